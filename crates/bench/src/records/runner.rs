//! One side of a point: a context, its buffers, and the calls that are counted.

use std::rc::Rc;

use super::{Call, Kind, MOST, RecordCipher, Subject};
use crate::peer::openssl::{Cipher, Context, Refused};

/// Bytes in front of a record's text: the explicit nonce, or the IV, or nothing.
pub(super) const fn front(cipher: RecordCipher) -> usize {
    match cipher.kind {
        Kind::Gcm => 8,
        Kind::ChaCha => 0,
        Kind::CbcHmac(_) => 16,
    }
}

/// Bytes of the tag of an AEAD.
const TAG: usize = 16;

/// Most bytes that records grow by: header, IV, MAC and padding.
const GROWTH: usize = 128;

/// Bytes of records that are opened between two looks at the clock, and most records.
const BATCH: (usize, usize) = (1 << 18, 512);

/// The part of the nonce that stays; the whole nonce of TLS 1.3 begins with it.
const FIXED: [u8; 4] = [9, 8, 7, 6];

/// A record: additional data as TLS 1.2 has it (RFC 5246 section 6.2.3.3).
pub(super) fn header(number: u64, len: usize) -> [u8; 13] {
    let mut header = [0; 13];
    header[..8].copy_from_slice(&number.to_be_bytes());
    header[8..11].copy_from_slice(&[23, 3, 3]);
    header[11..].copy_from_slice(&(len as u16).to_be_bytes());
    header
}

/// The nonce of a record of TLS 1.3: its number over an IV (RFC 8446 section 5.3).
fn nonce(number: u64) -> [u8; 12] {
    let mut nonce = [5; 12];
    nonce[..4].copy_from_slice(&FIXED);
    for (byte, number) in nonce[4..].iter_mut().zip(number.to_be_bytes()) {
        *byte ^= number;
    }
    nonce
}

/// Any text.
pub(super) fn text(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + 3) as u8).collect()
}

/// Keys for a cipher, the `number`th.
struct Keys {
    key: Vec<u8>,
    mac: Vec<u8>,
}

impl Keys {
    fn new(cipher: RecordCipher, key_len: usize) -> Self {
        let mac = match cipher.kind {
            Kind::Gcm | Kind::ChaCha => 0,
            Kind::CbcHmac(len) => len,
        };
        let bytes = |seed: u8, len: usize| (0..len).map(|i| seed ^ i as u8).collect();
        Self { key: bytes(0x40, key_len), mac: bytes(0x80, mac) }
    }

    fn renew(&mut self, number: u64) {
        self.key[..8].copy_from_slice(&number.to_be_bytes());
    }
}

/// One side of a point.
pub(super) struct Runner {
    subject: Subject,
    cipher: Rc<Cipher>,
    context: Context,
    keys: Keys,
    /// The record that is sealed in place, over and over; or all those of a batch that are opened.
    arena: Vec<u8>,
    /// Text that goes elsewhere when it is sealed.
    input: Vec<u8>,
    /// The record that every opening opens.
    sealed: Vec<u8>,
    number: u64,
}

/// Set-up, calls and results of a side.
impl Runner {
    /// A side, ready to be called; `sealed` is the record to open.
    pub(super) fn new(
        cipher: &Rc<Cipher>,
        subject: Subject,
        sealed: &[u8],
    ) -> Result<Self, Refused> {
        let keys = Keys::new(subject.cipher, cipher.key_len());
        let seals = !subject.call.opens();
        let context = keyed(cipher, subject, &keys, seals)?;
        let several = subject.call.records();
        let has_input = several > 1 || subject.call == Call::PacketSeal;
        let input = if has_input { text(several * subject.size) } else { Vec::new() };
        let arena = if seals {
            vec![0; front(subject.cipher) + several * (subject.size + GROWTH)]
        } else if subject.call == Call::PacketOpen {
            vec![0; sealed.len()]
        } else {
            vec![0; sealed.len() * batch(sealed.len())]
        };
        let sealed = sealed.to_vec();
        let cipher = cipher.clone();
        Ok(Self { subject, cipher, context, keys, arena, input, sealed, number: 1 })
    }

    /// Calls between two looks at the clock at most.
    pub(super) fn batch(&self) -> usize {
        match self.subject.call {
            Call::Tls12Open | Call::Tls13Open => batch(self.sealed.len()),
            _ => usize::MAX,
        }
    }

    /// Makes ready for a batch; not measured.
    pub(super) fn refill(&mut self) -> Result<(), Refused> {
        match self.subject.call {
            Call::Tls12Open | Call::Tls13Open => {
                for record in self.arena.chunks_exact_mut(self.sealed.len()) {
                    record.copy_from_slice(&self.sealed);
                }
                Ok(())
            }
            // A message has an end: 64 GiB.
            Call::Part => {
                self.number += 1;
                self.context.iv(&nonce(self.number))
            }
            _ => Ok(()),
        }
    }

    /// So many calls.
    #[inline(never)]
    pub(super) fn run(&mut self, calls: usize) -> Result<(), Refused> {
        let size = self.subject.size;
        match self.subject.call {
            Call::Tls12Seal => (0..calls).try_for_each(|_| self.seal_record().map(drop)),
            Call::Tls12Open => {
                let len = self.sealed.len();
                for record in self.arena.chunks_exact_mut(len).take(calls) {
                    self.context.tls_aad(header(1, len))?;
                    self.context.in_place(record)?;
                }
                Ok(())
            }
            Call::Tls13Seal => (0..calls).try_for_each(|_| self.seal_message()),
            Call::Tls13Open => {
                let records = self.arena.chunks_exact_mut(self.sealed.len());
                records.take(calls).try_for_each(|record| open_message(&mut self.context, record))
            }
            Call::PacketSeal => (0..calls).try_for_each(|_| self.seal_packet()),
            Call::PacketOpen => (0..calls)
                .try_for_each(|_| open_packet(&mut self.context, &self.sealed, &mut self.arena)),
            Call::Part => {
                (0..calls).try_for_each(|_| self.context.in_place(&mut self.arena[..size]))
            }
            Call::Multiblock4 | Call::Multiblock8 => {
                (0..calls).try_for_each(|_| self.seal_several().map(drop))
            }
            Call::Key => (0..calls).try_for_each(|_| {
                self.number += 1;
                self.keys.renew(self.number);
                rekey(&mut self.context, self.subject.cipher, &self.keys)
            }),
            Call::Context => (0..calls).try_for_each(|_| {
                self.number += 1;
                self.keys.renew(self.number);
                keyed(&self.cipher, self.subject, &self.keys, true).map(drop)
            }),
        }
    }

    /// Seals the next record of TLS 1.2 where it lies; gives its length.
    #[inline(always)]
    fn seal_record(&mut self) -> Result<usize, Refused> {
        let len = front(self.subject.cipher) + self.subject.size;
        let grows = self.context.tls_aad(header(self.number, len))?;
        self.number += 1;
        let record = self.arena.get_mut(..len + grows).ok_or(Refused("growth by too much"))?;
        self.context.in_place(record).map(|()| len + grows)
    }

    /// Seals the next record of TLS 1.3 where it lies.
    #[inline(always)]
    fn seal_message(&mut self) -> Result<(), Refused> {
        let size = self.subject.size;
        let [nonce, head] = message(&self.context, self.number, size)?;
        self.number += 1;
        let (text, rest) = self.arena.split_at_mut(size);
        let tag = rest.first_chunk_mut().ok_or(Refused("a tag without room"))?;
        self.context.iv(&nonce)?;
        self.context.aad(&head[..5])?;
        self.context.in_place(text)?;
        self.context.finish()?;
        self.context.tag(tag)
    }

    /// Seals the next packet, from where it lies to another place.
    #[inline(always)]
    fn seal_packet(&mut self) -> Result<(), Refused> {
        let [nonce, head] = packet(self.number);
        self.number += 1;
        let room = self.arena.split_at_mut_checked(self.subject.size);
        let (text, rest) = room.ok_or(Refused("a packet without room"))?;
        let tag = rest.first_chunk_mut().ok_or(Refused("a tag without room"))?;
        self.context.iv(&nonce)?;
        self.context.aad(&head[..8])?;
        self.context.to_other_place(&self.input, text)?;
        self.context.finish()?;
        self.context.tag(tag)
    }

    /// Seals several records; gives the length of them all.
    #[inline(always)]
    fn seal_several(&mut self) -> Result<usize, Refused> {
        let records = self.subject.call.records() as u32;
        let header = header(self.number, 0);
        let room = self.context.multiblock_aad(header, self.input.len(), records)?;
        self.context.multiblock(&mut self.arena, &self.input, records)?;
        self.number += u64::from(records);
        Ok(room)
    }

    /// Text sealed by this side, in the form that an opener gets.
    pub(super) fn sealed(&mut self) -> Result<Vec<u8>, Refused> {
        let (size, front) = (self.subject.size, front(self.subject.cipher));
        match self.subject.call {
            Call::Tls13Seal | Call::Tls13Open => {
                self.arena[..size].copy_from_slice(&text(size));
                self.seal_message()?;
                Ok(self.arena[..size + TAG].to_vec())
            }
            Call::PacketSeal => {
                self.seal_packet()?;
                Ok(self.arena[..size + TAG].to_vec())
            }
            Call::Part => {
                self.refill()?;
                let mut sealed = Vec::new();
                for _ in 0..3 {
                    self.arena[..size].copy_from_slice(&text(size));
                    self.context.in_place(&mut self.arena[..size])?;
                    sealed.extend(&self.arena[..size]);
                }
                self.context.finish()?;
                let mut tag = [0; TAG];
                self.context.tag(&mut tag)?;
                sealed.extend(tag);
                Ok(sealed)
            }
            Call::Multiblock4 | Call::Multiblock8 => {
                let len = self.seal_several()?;
                Ok(self.arena[..len].to_vec())
            }
            _ => {
                self.arena[..front].fill(0x11);
                self.arena[front..front + size].copy_from_slice(&text(size));
                let len = self.seal_record()?;
                Ok(self.arena[..len].to_vec())
            }
        }
    }

    /// Opens a record of TLS 1.2 with a number of its own, one of TLS 1.3, or a packet: the text.
    pub(super) fn opened(&mut self, number: u64, record: &[u8]) -> Result<Vec<u8>, Refused> {
        let mut record = record.to_vec();
        let (len, front) = (self.subject.size, front(self.subject.cipher));
        if self.subject.call == Call::Tls13Open {
            open_message(&mut self.context, &mut record)?;
            record.truncate(len);
            return Ok(record);
        }
        if self.subject.call == Call::PacketOpen {
            let mut text = vec![0; record.len()];
            open_packet(&mut self.context, &record, &mut text)?;
            text.truncate(len);
            return Ok(text);
        }
        self.context.tls_aad(header(number, record.len()))?;
        self.context.in_place(&mut record)?;
        record.get(front..front + len).map(<[u8]>::to_vec).ok_or(Refused("a record too short"))
    }

    /// Reasons of the last refusal.
    pub(super) fn errors(&self) -> String {
        self.context.errors()
    }
}

/// Records of a batch.
fn batch(len: usize) -> usize {
    debug_assert!(len <= MOST + 2 * GROWTH);
    (BATCH.0 / len.max(1)).clamp(1, BATCH.1)
}

/// Nonce and header of a message; both with room for either.
#[inline(always)]
fn message(context: &Context, number: u64, size: usize) -> Result<[[u8; 12]; 2], Refused> {
    if context.iv_len() != 12 {
        return Err(Refused("EVP_CIPHER_CTX_get_iv_length"));
    }
    let [high, low] = ((size + TAG) as u16).to_be_bytes();
    Ok([nonce(number), [23, 3, 3, high, low, 0, 0, 0, 0, 0, 0, 0]])
}

/// Opens the first record of TLS 1.3 where it lies.
#[inline(always)]
fn open_message(context: &mut Context, record: &mut [u8]) -> Result<(), Refused> {
    let (text, tag) = record.split_last_chunk_mut::<TAG>().ok_or(Refused("a record too short"))?;
    let [nonce, head] = message(context, 1, text.len())?;
    context.iv(&nonce)?;
    context.set_tag(tag)?;
    context.aad(&head[..5])?;
    context.in_place(text)?;
    context.finish()
}

/// Nonce and header of a packet, the latter with room behind its 8 bytes: where it goes to, and its number.
#[inline(always)]
fn packet(number: u64) -> [[u8; 12]; 2] {
    let mut head = [0x48, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0];
    head[4..8].copy_from_slice(&(number as u32).to_be_bytes());
    [nonce(number), head]
}

/// Opens the first packet, text and tag, into another place.
#[inline(always)]
fn open_packet(context: &mut Context, whole: &[u8], text: &mut [u8]) -> Result<(), Refused> {
    let (sealed, tag) = whole.split_last_chunk::<TAG>().ok_or(Refused("a packet too short"))?;
    let [nonce, head] = packet(1);
    context.iv(&nonce)?;
    context.aad(&head[..8])?;
    context.to_other_place(sealed, text)?;
    context.set_tag(&mut { *tag })?;
    context.finish()
}

/// A context with its keys, as libssl makes one.
fn keyed(
    cipher: &Rc<Cipher>,
    subject: Subject,
    keys: &Keys,
    seals: bool,
) -> Result<Context, Refused> {
    let mut context = Context::new(cipher, seals)?;
    match (subject.cipher.kind, subject.call) {
        (
            Kind::Gcm | Kind::ChaCha,
            Call::Tls13Seal | Call::Tls13Open | Call::PacketSeal | Call::PacketOpen | Call::Part,
        ) => {
            context.set_iv_len(12)?;
            context.key(&keys.key, None)?;
        }
        (Kind::Gcm, _) => {
            context.key(&keys.key, None)?;
            context.fixed_iv(&FIXED)?;
            context.tls_version(0x303)?;
        }
        (Kind::ChaCha, _) => {
            context.key(&keys.key, None)?;
            context.fixed_iv(&nonce(0))?;
            context.tls_version(0x303)?;
        }
        (Kind::CbcHmac(_), _) => {
            context.key(&keys.key, Some(&[3; 16]))?;
            context.mac_key(&keys.mac)?;
            context.tls_version(0x303)?;
        }
    }
    Ok(context)
}

/// Another key for a context that is there.
#[inline(always)]
fn rekey(context: &mut Context, cipher: RecordCipher, keys: &Keys) -> Result<(), Refused> {
    if cipher.is_aead() {
        return context.key(&keys.key, Some(&nonce(1)));
    }
    context.key(&keys.key, Some(&[3; 16]))?;
    context.mac_key(&keys.mac)
}
