//! The cipher without a MAC: what OpenSSL's composites do outside TLS.

use std::hint::black_box;

use super::{CbcHmacKey, RecordError};
use crate::{
    manager::Direction,
    pass::{
        self, CipherJob,
        record::{cbc_encrypt_one, hash_blocks},
    },
    portable::hash::start,
    secret::Scratch,
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
        let hash = self.mac.hash();
        let (keys, mut state) = (&self.round_keys, Scratch(start(hash)));
        let done = match self.record {
            Some(kernel) => kernel.both(hash, bits, keys, iv, &mut state.0, text, 0),
            None => 0,
        };
        let rest = text.get_mut(done..).unwrap_or_default();
        hash_blocks(self.hasher, hash, &mut state.0, rest.as_chunks().0);
        cbc_encrypt_one(self.kernel, bits, keys, iv, rest);
        black_box(&state.0);
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
        pass::cbc_decrypt(self.kernel, bits, &mut [job]);
        let mut state = Scratch(start(self.mac.hash()));
        hash_blocks(self.hasher, self.mac.hash(), &mut state.0, text.as_chunks().0);
        black_box(&state.0);
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
