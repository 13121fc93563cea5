//! The cipher without a MAC: what OpenSSL's composites do outside TLS.

use super::{CbcHmacKey, RecordError};
use crate::{
    isa::{
        job::{CipherJob, SizedKeys},
        record_job::RecordJob,
    },
    manager::Direction,
    pass,
};

impl CbcHmacKey {
    /// Encrypts whole blocks with CBC, and hashes them without telling what comes out: the work of a
    /// record without its ends, for programs that measure it. `iv` becomes the last block. A key of the
    /// cipher suffices.
    ///
    /// # Errors
    ///
    /// [`RecordError::NoKey`]; [`RecordError::Length`] unless the text is whole blocks of 16 bytes.
    pub fn encrypt_only(&self, iv: &mut [u8; 16], text: &mut [u8]) -> Result<(), RecordError> {
        let bits = self.cipher(Direction::Encrypt)?;
        whole_blocks(text)?;
        let len = text.len();
        let mut job = RecordJob { chain: *iv, record: text, front: 0, text: len, ends: None };
        self.one.seal(
            self.mac.hash(),
            SizedKeys { bits, keys: &self.round_keys },
            std::slice::from_mut(&mut job),
        );
        *iv = job.chain;
        self.wipe_behind(false);
        Ok(())
    }

    /// Decrypts whole blocks with CBC, and hashes them. `iv` becomes the last block that was encrypted.
    ///
    /// # Errors
    ///
    /// As [`encrypt_only`](Self::encrypt_only).
    pub fn decrypt_only(&self, iv: &mut [u8; 16], text: &mut [u8]) -> Result<(), RecordError> {
        let bits = self.cipher(Direction::Decrypt)?;
        whole_blocks(text)?;
        let last = text.last_chunk().copied();
        let job = CipherJob { keys: &self.round_keys, iv, data: &mut *text };
        pass::cbc_decrypt(self.one.kernel, bits, &mut [job]);
        self.one.hash_only(self.mac.hash(), text);
        *iv = last.unwrap_or(*iv);
        self.wipe_behind(false);
        Ok(())
    }
}

fn whole_blocks(text: &[u8]) -> Result<(), RecordError> {
    let given = text.len();
    let needed = given.next_multiple_of(16);
    if given == needed { Ok(()) } else { Err(RecordError::Length { needed, given }) }
}
