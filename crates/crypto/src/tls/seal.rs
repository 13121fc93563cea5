//! Sealing records: one, or many at once.

use std::fmt;

use arrayvec::ArrayVec;

use super::{BLOCK, CbcHmacKey, HEADER, RecordError, RecordHeader, mac::MAC_MAX};
use crate::{
    KeyBits,
    isa::{
        job::{CipherJob, HmacJob, SizedKeys},
        record_job::{Ends, RecordJob, write_end},
    },
    manager::Direction,
    pass::{self, Batch},
    secret::{Scratch, depth, wipe_below},
};

/// Records that go through the lanes together: more are quicker in wide lanes, but need more stack than callers
/// may have.
const CHUNK: usize = 8;

/// A record to be sealed among others, in place: an explicit IV of 16 bytes, which stays as it is, the
/// text, and room for MAC and padding.
pub struct BurstRecord<'r> {
    /// Header that is authenticated in front of the text.
    pub header: RecordHeader,
    /// Bytes of the text.
    pub text: usize,
    /// The record behind its header of five bytes: `16 + sealed_bytes(text)` bytes.
    pub bytes: &'r mut [u8],
}

impl fmt::Debug for BurstRecord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { header, text, bytes } = self;
        write!(f, "BurstRecord({header:?}, {text} bytes of text in {})", bytes.len())
    }
}

impl CbcHmacKey {
    /// Bytes of a text with its MAC and the least padding: whole blocks.
    #[must_use]
    pub const fn sealed_bytes(&self, text: usize) -> usize {
        text.saturating_add(self.mac.bytes() + BLOCK) / BLOCK * BLOCK
    }

    /// Seals a record in place: `front` bytes that are encrypted and not authenticated, the text, and
    /// room for MAC and padding. All of it is encrypted from `iv`, which becomes the last block, for that
    /// is where the next record of TLS 1.0 begins.
    ///
    /// In TLS 1.0 there is nothing in front, and the first IV comes from the key block. From TLS 1.1 on
    /// there are 16 bytes, fresh random ones: encrypted, they are the explicit IV of the text (RFC 4346
    /// section 6.2.3.2, way 2). The IV that they are encrypted from may then be any.
    ///
    /// # Errors
    ///
    /// [`RecordError::NoKey`]; [`RecordError::TextTooLong`]; [`RecordError::Length`] unless there are
    /// 0 or 16 bytes in front and the record has [`sealed_bytes`](Self::sealed_bytes) behind them. Then
    /// nothing was changed.
    pub fn seal(
        &self,
        header: RecordHeader,
        iv: &mut [u8; 16],
        front: usize,
        text: usize,
        record: &mut [u8],
    ) -> Result<(), RecordError> {
        let bits = self.both(Direction::Encrypt)?;
        let header = self.check(header, front, text, record.len())?;
        let ends = Some(Ends { key: &self.mac_key, header });
        let mut job = RecordJob { chain: *iv, record, front, text, ends };
        self.one.seal(
            self.mac.hash(),
            SizedKeys { bits, keys: &self.round_keys },
            std::slice::from_mut(&mut job),
        );
        *iv = job.chain;
        self.wipe_behind(false);
        Ok(())
    }

    /// Seals any number of records at once: eight side by side as far as the processor's registers hold
    /// them, or fewer where that is faster.
    ///
    /// # Errors
    ///
    /// As [`seal`](Self::seal), for the first record that does not fit; then none is sealed.
    pub fn seal_burst(&self, records: &mut [BurstRecord<'_>]) -> Result<(), RecordError> {
        let bits = self.both(Direction::Encrypt)?;
        for record in &*records {
            self.check(record.header, BLOCK, record.text, record.bytes.len())?;
        }
        if self.one.seals_all(self.mac.hash(), records.len()) {
            self.seal_side_by_side(bits, records);
            self.wipe_behind(false);
            return Ok(());
        }
        for records in records.chunks_mut(CHUNK) {
            let (mut ivs, mut macs) = ([[0; BLOCK]; CHUNK], Scratch([[0; MAC_MAX]; CHUNK]));
            self.make_macs(records, &mut ivs, &mut macs.0);
            self.encrypt(bits, records, &ivs, &macs.0);
        }
        self.wipe_behind(false);
        if self.one.kernel.is_some() {
            // Where records are encrypted side by side, compilers may put round keys on the stack.
            wipe_below::<{ depth::MESSAGE }>();
        }
        Ok(())
    }

    /// Takes the IV out of each record and makes its MAC. The header is authenticated in one piece with the
    /// text, so it lies over the IV afterwards.
    // Never inlined, so that its frame and the next one's are not there at once.
    #[inline(never)]
    fn make_macs(
        &self,
        records: &mut [BurstRecord<'_>],
        ivs: &mut [[u8; BLOCK]; CHUNK],
        macs: &mut [[u8; MAC_MAX]; CHUNK],
    ) {
        for (record, iv) in records.iter_mut().zip(ivs) {
            let Some((front, _)) = record.bytes.split_first_chunk_mut::<BLOCK>() else { continue };
            *iv = *front;
            front[BLOCK - HEADER..].copy_from_slice(&record.header.of(record.text as u16));
        }
        let mut batch = Batch::<HmacJob<'_>, &mut [u8; MAC_MAX], CHUNK>::new();
        for (record, place) in records.iter().zip(macs) {
            let message = record.bytes.get(BLOCK - HEADER..BLOCK + record.text);
            let (key, message) = (&self.mac_key, message.unwrap_or_default());
            batch.push(HmacJob { key, message, trailer: &[], tag: [0; 64] }, place);
        }
        let hash = self.mac.hash();
        let hasher = self.one.hasher.for_jobs(hash, batch.jobs());
        pass::hmac(hasher, hash, batch.jobs());
        batch.deliver(|place, tag| place.iter_mut().zip(tag).for_each(|(to, byte)| *to = *byte));
    }

    /// Puts each record's IV and MAC into place and encrypts it.
    #[inline(never)]
    fn encrypt(
        &self,
        bits: KeyBits,
        records: &mut [BurstRecord<'_>],
        ivs: &[[u8; BLOCK]; CHUNK],
        macs: &[[u8; MAC_MAX]; CHUNK],
    ) {
        let mut jobs = ArrayVec::<CipherJob<'_>, CHUNK>::new();
        for ((record, iv), mac) in records.iter_mut().zip(ivs).zip(macs) {
            let Some((front, data)) = record.bytes.split_first_chunk_mut() else { continue };
            *front = *iv;
            if let Some(end) = data.get_mut(record.text..) {
                write_end(end, &mac[..self.mac.bytes()]);
            }
            jobs.push(CipherJob { keys: &self.round_keys, iv, data });
        }
        pass::cbc_encrypt(self.one.kernel, bits, &mut jobs);
    }

    /// Seals records, hash and cipher side by side; all of them fit.
    #[inline(never)]
    fn seal_side_by_side(&self, bits: KeyBits, records: &mut [BurstRecord<'_>]) {
        for records in records.chunks_mut(CHUNK) {
            let mut jobs = ArrayVec::<_, CHUNK>::new();
            for BurstRecord { header, text, bytes } in records {
                let Some((iv, record)) = bytes.split_first_chunk_mut() else { continue };
                let header = header.of(*text as u16);
                let ends = Some(Ends { key: &self.mac_key, header });
                jobs.push(RecordJob { chain: *iv, record, front: 0, text: *text, ends });
            }
            self.one.seal(self.mac.hash(), SizedKeys { bits, keys: &self.round_keys }, &mut jobs);
        }
    }

    /// The header with its length, if the record's parts fit.
    #[inline(always)]
    fn check(
        &self,
        header: RecordHeader,
        front: usize,
        text: usize,
        given: usize,
    ) -> Result<[u8; HEADER], RecordError> {
        let len = u16::try_from(text).map_err(|_| RecordError::TextTooLong { given: text })?;
        let needed = if front == 0 { 0 } else { BLOCK } + self.sealed_bytes(text);
        if given != needed || !matches!(front, 0 | BLOCK) {
            return Err(RecordError::Length { needed, given });
        }
        Ok(header.of(len))
    }
}
