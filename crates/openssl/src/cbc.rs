//! A cipher context of AES-CBC with HMAC, as OpenSSL's `EVP_CIPHER_CTX` holds one for each direction.

use std::fmt;

use arrayvec::ArrayVec;
use convoy_crypto::{
    Cpu, KeyBits,
    manager::Direction,
    tls::{BurstRecord, CbcHmacKey, HEADER, RecordHeader, RecordMac},
};
use zeroize::Zeroize;

use crate::{
    Reason, random,
    stats::{Counter, Tally},
};

/// Bytes of an IV, and of an AES block.
pub const IV: usize = 16;

/// From this version on a record begins with an IV of its own (RFC 4346 section 6.2.3.2).
const TLS_1_1: u16 = 0x0302;

/// Bytes in front of what is encrypted: type, version and length.
const OUTER: usize = 5;

/// Most bytes of a record's text (RFC 5246 section 6.2.1).
const TEXT_MAX: usize = 1 << 14;

/// One direction of a user of AES-CBC with HMAC: records of TLS 1.0 to 1.2, the MAC first.
///
/// It does what the default provider's composites do, whole records and whole blocks at a time.
/// [Where it differs](crate::differences) is one list for all ciphers.
#[derive(Clone)]
pub struct CbcHmac {
    bits: KeyBits,
    seals: bool,
    key: CbcHmacKey,
    iv: [u8; IV],
    /// The one that was set, to which a start without another goes back.
    first_iv: Option<[u8; IV]>,
    /// Of the next record, as it was given.
    tls_aad: Option<[u8; HEADER]>,
    tls_pad: usize,
    /// If a protocol version was set, bytes in front of an opened record's text that are not counted: its
    /// length then is that of the text.
    explicit: Option<usize>,
    multi: Multi,
    tally: Tally,
}

/// Several records in one call (`tls1multi_*`).
#[derive(Clone, Copy, Default)]
struct Multi {
    max_fragment: usize,
    /// Bytes of the records that were made last.
    made: usize,
    plan: Option<Plan>,
}

/// Division of a text into records.
#[derive(Clone, Copy)]
struct Plan {
    header: RecordHeader,
    records: usize,
    /// Bytes of text in each record but the last, and in the last.
    each: usize,
    last: usize,
    /// Bytes of all records.
    packed: usize,
}

impl CbcHmac {
    /// A context without a key.
    ///
    /// # Errors
    ///
    /// [`Reason::Internal`] if `CONVOY_DENY_CPU` cannot be honoured.
    pub fn new(bits: KeyBits, mac: RecordMac) -> Result<Self, Reason> {
        let cpu = Cpu::detect().map_err(|_| Reason::Internal)?;
        Ok(Self {
            bits,
            seals: false,
            key: CbcHmacKey::empty(&cpu, mac),
            iv: [0; IV],
            first_iv: None,
            tls_aad: None,
            tls_pad: 0,
            explicit: None,
            multi: Multi::default(),
            tally: Tally::here(),
        })
    }

    /// Sets the direction and, if given, key and IV. A new key forgets the MAC's; without an IV, the one
    /// that was set before is taken up again.
    ///
    /// # Errors
    ///
    /// [`Reason::InvalidIvLength`], [`Reason::InvalidKeyLength`].
    pub fn init(
        &mut self,
        seals: bool,
        key: Option<&[u8]>,
        iv: Option<&[u8]>,
    ) -> Result<(), Reason> {
        if self.seals != seals {
            self.key.clear();
        }
        self.seals = seals;
        if let Some(iv) = iv {
            let iv = iv.try_into().map_err(|_| Reason::InvalidIvLength)?;
            self.first_iv = Some(iv);
        }
        if let Some(iv) = self.first_iv {
            self.iv = iv;
        }
        if let Some(key) = key {
            if key.len() != self.key_len() {
                return Err(Reason::InvalidKeyLength);
            }
            let direction = if seals { Direction::Encrypt } else { Direction::Decrypt };
            self.key.clear_mac();
            self.key.set_cipher(direction, key).map_err(|_| Reason::InvalidKeyLength)?;
            (self.tls_aad, self.multi.plan) = (None, None);
            self.explicit = self.explicit.map(|_| IV);
            self.tally.add(Counter::Keys, 1);
        }
        Ok(())
    }

    /// Sets the MAC's key.
    pub fn set_mac_key(&mut self, key: &[u8]) {
        self.key.set_mac(key);
    }

    /// Bytes of the key.
    #[must_use]
    pub fn key_len(&self) -> usize {
        self.bits.bytes()
    }

    /// Bytes that a TLS record becomes longer by.
    #[must_use]
    pub fn tls_pad(&self) -> usize {
        self.tls_pad
    }

    /// The IV that was set; zeros if none was.
    #[must_use]
    pub fn first_iv(&self) -> &[u8; IV] {
        self.first_iv.as_ref().unwrap_or(&[0; IV])
    }

    /// The IV of what comes next.
    #[must_use]
    pub fn iv(&self) -> &[u8; IV] {
        &self.iv
    }

    /// The protocol version of what is opened; 0 for none.
    pub fn set_tls_version(&mut self, version: u32) {
        self.explicit = match version {
            0 => None,
            version if version < u32::from(TLS_1_1) => Some(0),
            _ => Some(IV),
        };
    }

    /// The additional data of the next record; when sealing, its length counts the explicit IV, when
    /// opening it says nothing.
    ///
    /// # Errors
    ///
    /// `None` unless it has 13 bytes, and the record room for the IV.
    #[must_use]
    pub fn set_tls_aad(&mut self, aad: &[u8]) -> Option<()> {
        let aad = <[u8; HEADER]>::try_from(aad).ok()?;
        self.tls_aad = None;
        self.tls_pad = self.key.mac().bytes();
        if self.seals {
            let text = text_of(&aad).checked_sub(front_of(&aad))?;
            self.tls_pad = self.key.sealed_bytes(text) - text;
        }
        self.tls_aad = Some(aad);
        Some(())
    }

    /// Works on a whole record or on whole blocks in place, and gives how many bytes come out.
    ///
    /// # Errors
    ///
    /// [`Reason::NoKeySet`], or [`Reason::CipherOperationFailed`] for whatever else.
    pub fn update(&mut self, data: &mut [u8]) -> Result<usize, Reason> {
        self.needs_key()?;
        let done = match self.tls_aad.take() {
            Some(aad) if self.seals => self.seal(&aad, data),
            Some(aad) => self.open(&aad, data),
            None => self.blocks(data),
        };
        done.ok_or(Reason::CipherOperationFailed)
    }

    /// Refuses to work without a key.
    ///
    /// # Errors
    ///
    /// [`Reason::NoKeySet`].
    pub fn needs_key(&self) -> Result<(), Reason> {
        self.key.direction().map(|_| ()).ok_or(Reason::NoKeySet)
    }

    fn seal(&mut self, aad: &[u8; HEADER], record: &mut [u8]) -> Option<usize> {
        let front = front_of(aad);
        let text = text_of(aad).checked_sub(front)?;
        let header = RecordHeader::parse(aad);
        self.key.seal(header, &mut self.iv, front, text, record).ok()?;
        self.tally.add(Counter::RecordsSealed, 1);
        self.tally.add(Counter::RecordBytesSealed, text as u64);
        self.tally.add(Counter::CbcRecordsSealed, 1);
        Some(record.len())
    }

    fn open(&mut self, aad: &[u8; HEADER], record: &mut [u8]) -> Option<usize> {
        let whole = record.len();
        let front = front_of(aad);
        let (explicit, record) = record.split_at_mut_checked(front)?;
        let iv = *explicit.first_chunk().unwrap_or(&self.iv);
        if let Some(last) = record.last_chunk().filter(|_| whole.is_multiple_of(IV)) {
            self.iv = *last;
        }
        let opened = self.key.open(RecordHeader::parse(aad), &iv, record);
        let Ok(text) = opened else {
            self.tally.add(Counter::Forged, 1);
            return None;
        };
        self.tally.add(Counter::RecordsOpened, 1);
        self.tally.add(Counter::RecordBytesOpened, text as u64);
        self.tally.add(Counter::CbcRecordsOpened, 1);
        // libssl skips what stands in front.
        match self.explicit {
            Some(explicit) => (front + text).checked_sub(explicit),
            None => Some(whole),
        }
    }

    /// Outside TLS: the cipher, and a hash that nobody sees.
    fn blocks(&mut self, data: &mut [u8]) -> Option<usize> {
        let len = data.len() as u64;
        if self.seals {
            self.key.encrypt_only(&mut self.iv, data).ok()?;
            self.tally.add(Counter::MessageBytesSealed, len);
        } else {
            self.key.decrypt_only(&mut self.iv, data).ok()?;
            self.tally.add(Counter::MessageBytesOpened, len);
        }
        Some(data.len())
    }

    /// Most bytes of text in a record of several.
    pub fn set_max_fragment(&mut self, bytes: usize) {
        self.multi.max_fragment = bytes;
    }

    /// Bytes of a record with as much text as it has at most.
    #[must_use]
    pub fn max_record(&self) -> usize {
        (OUTER + IV).saturating_add(self.key.sealed_bytes(self.multi.max_fragment))
    }

    /// Records of the plan, 0 without one.
    #[must_use]
    pub fn multi_records(&self) -> usize {
        self.multi.plan.map_or(0, |plan| plan.records)
    }

    /// Bytes of the records of the plan, with their headers.
    #[must_use]
    pub fn multi_packed(&self) -> usize {
        self.multi.plan.map_or(0, |plan| plan.packed)
    }

    /// Bytes of the records that were made last.
    #[must_use]
    pub fn multi_made(&self) -> usize {
        self.multi.made
    }

    /// Plans several records: `text` bytes are cut into 4 or 8 of them, of which the first has this
    /// additional data. Its length is 0; older users say the text's there, and leave the number of records
    /// open.
    ///
    /// # Errors
    ///
    /// `None` unless it encrypts, the version has explicit IVs, and the text suits.
    #[must_use]
    pub fn plan_multi(&mut self, aad: &[u8; HEADER], text: usize, records: usize) -> Option<()> {
        self.multi.plan = None;
        let header = RecordHeader::parse(aad);
        if !self.seals || header.version < TLS_1_1 {
            return None;
        }
        let (records, text) = match (text_of(aad), records) {
            (0, 4..8) => (4, text),
            (0, 8..12) => (8, text),
            (said @ 4096..8192, _) => (4, said),
            (said @ 8192.., _) => (8, said),
            _ => return None,
        };
        let (mut each, mut last) = (text / records, text / records + text % records);
        // As OpenSSL cuts it: where the last record would need one block of the hash more than the others,
        // they take a byte of it each.
        if last > each && (last + HEADER + 9) % 64 < records - 1 {
            (each, last) = (each + 1, last.checked_sub(records - 1)?);
        }
        if each.max(last) > TEXT_MAX {
            return None;
        }
        let whole = |text| OUTER + IV + self.key.sealed_bytes(text);
        let packed = (records - 1) * whole(each) + whole(last);
        self.multi.plan = Some(Plan { header, records, each, last, packed });
        Some(())
    }

    /// Makes the records that were planned: `out` has [`multi_packed`](Self::multi_packed) bytes. Their
    /// IVs are drawn.
    ///
    /// # Errors
    ///
    /// `None` unless that is as planned, both keys are set, and the system has random numbers.
    #[must_use]
    pub fn seal_multi(&mut self, out: &mut [u8], text: &[u8], records: usize) -> Option<()> {
        let plan = self.multi.plan.filter(|plan| plan.records == records / 4 * 4)?;
        if text.len() != (plan.records - 1) * plan.each + plan.last || out.len() != plan.packed {
            return None;
        }
        let mut ivs = [[0; IV]; 8];
        random::fill(ivs.as_flattened_mut())?;
        let mut burst = ArrayVec::<BurstRecord<'_>, 8>::new();
        let (mut out, mut left) = (out, text);
        for (i, iv) in ivs.iter().enumerate().take(plan.records) {
            let len = if i + 1 < plan.records { plan.each } else { plan.last };
            let (now, then) = left.split_at_checked(len)?;
            let sealed = IV + self.key.sealed_bytes(len);
            let (record, rest) = out.split_at_mut_checked(OUTER + sealed)?;
            let (outer, bytes) = record.split_first_chunk_mut::<OUTER>()?;
            let ([major, minor], [high, low]) =
                (plan.header.version.to_be_bytes(), (sealed as u16).to_be_bytes());
            *outer = [plan.header.content_type, major, minor, high, low];
            bytes[..IV].copy_from_slice(iv);
            bytes[IV..IV + len].copy_from_slice(now);
            let number = plan.header.number.wrapping_add(i as u64);
            let header = RecordHeader { number, ..plan.header };
            burst.push(BurstRecord { header, text: len, bytes });
            (out, left) = (rest, then);
        }
        self.key.seal_burst(&mut burst).ok()?;
        self.multi.made = plan.packed;
        self.tally.add(Counter::Multiblocks, 1);
        self.tally.add(Counter::RecordsSealed, plan.records as u64);
        self.tally.add(Counter::RecordBytesSealed, text.len() as u64);
        self.tally.add(Counter::CbcRecordsSealed, plan.records as u64);
        Some(())
    }
}

/// The length that additional data says.
fn text_of(aad: &[u8; HEADER]) -> usize {
    usize::from(u16::from_be_bytes([aad[11], aad[12]]))
}

/// Bytes of the explicit IV that this version has.
fn front_of(aad: &[u8; HEADER]) -> usize {
    if RecordHeader::parse(aad).version >= TLS_1_1 { IV } else { 0 }
}

impl Drop for CbcHmac {
    fn drop(&mut self) {
        self.iv.zeroize();
    }
}

impl fmt::Debug for CbcHmac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bits, mac) = (self.bits.bits(), self.key.mac());
        write!(f, "CbcHmac(aes-{bits}-cbc, {mac:?}, seals: {})", self.seals)
    }
}
