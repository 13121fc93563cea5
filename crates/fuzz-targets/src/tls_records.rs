//! Records of TLS in AES-CBC with HMAC: every tier seals what the portable one does, alone and with others;
//! and what is received, with any padding and anything changed, is opened exactly where an opener that
//! looks at one thing after the other opens it.

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use convoy_crypto::{
    SecretBytes, Tier,
    manager::{
        Buffer, Direction, HmacKeys, Job, JobCipher, JobHash, Runner, Span, Status, tags_match,
    },
    tls::{BurstRecord, CbcHmacKey, RecordError, RecordHeader, RecordMac},
};

use crate::common::{Random, Setup, cpu, setups};

/// A record, and what becomes of it on its way.
#[derive(Arbitrary, Debug)]
pub struct Input {
    setup: u8,
    /// The MAC, the size of the cipher's key, and what stands in front.
    shape: u8,
    key: u8,
    number: u64,
    version: u16,
    text: u16,
    /// Blocks of padding beyond the least.
    padding: u8,
    /// Number of the changes that are made, modulo 5.
    changed: u8,
    /// Bytes of the record that are replaced before it is encrypted, from its end.
    changes: [(u16, u8); 4],
    /// Whole blocks that are cut off, and bytes.
    cut: (u8, u8),
    /// Number of records that are sealed together, modulo 20.
    together: u8,
}

static SETUPS: LazyLock<Vec<Setup>> = LazyLock::new(setups);

/// Longest text, and longest one of several.
const TEXT_MAX: usize = 16_384;

struct Keys {
    mac: RecordMac,
    secrets: [Vec<u8>; 2],
}

impl Keys {
    fn key(&self, setup: Setup, direction: Direction) -> Box<CbcHmacKey> {
        let [cipher, integrity] = [0, 1].map(|i| SecretBytes::copy_from(&self.secrets[i]));
        let (cpu, tier, mac) = (setup.cpu(), setup.tier, self.mac);
        CbcHmacKey::with_tier(&cpu, tier, mac, direction, &cipher, &integrity).unwrap()
    }

    /// The MAC as a manager makes it.
    fn mac(&self, header: RecordHeader, text: &[u8]) -> Vec<u8> {
        let mut message = header.number.to_be_bytes().to_vec();
        message.push(header.content_type);
        message.extend(header.version.to_be_bytes());
        message.extend((text.len() as u16).to_be_bytes());
        message.extend(text);
        let secret = SecretBytes::copy_from(&self.secrets[1]);
        let key = HmacKeys::new(&cpu(), self.mac.hash(), &secret);
        let mut tag = vec![0; self.mac.bytes()];
        let mut job = Job::default();
        (job.buffer, job.cipher) = (Buffer::ReadOnly(&message), JobCipher::Null);
        (job.hash, job.hash_span) = (JobHash::Hmac(&key), Span::new(0, message.len()));
        job.tag = &mut tag;
        Runner::best(&cpu()).run_one(&mut job);
        assert_eq!(job.status(), Status::Completed);
        tag
    }

    /// Opens what is decrypted already, one step after the other.
    fn open(&self, header: RecordHeader, plain: &[u8]) -> Result<usize, RecordError> {
        let padding = plain.last().map_or(0, |&byte| usize::from(byte));
        let (mac, whole) = (self.mac.bytes(), plain.len());
        let text = whole.checked_sub(mac + padding + 1).ok_or(RecordError::Forged)?;
        let is_padded = plain[text + mac..].iter().all(|&byte| usize::from(byte) == padding);
        let is_right = tags_match(&self.mac(header, &plain[..text]), &plain[text..text + mac]);
        let fits = whole.is_multiple_of(16) && is_padded && is_right;
        if fits { Ok(text) } else { Err(RecordError::Forged) }
    }
}

/// Panics where tiers differ from each other or from the slow opener.
pub fn check(input: &Input) {
    let setup = SETUPS[usize::from(input.setup) % SETUPS.len()];
    let mac = RecordMac::ALL[usize::from(input.shape % 2)];
    let bits = if input.shape & 2 == 0 { 16 } else { 32 };
    let front = if input.shape & 4 == 0 { 0 } else { 16 };
    let mut random = Random(u64::from(input.key));
    let keys =
        Keys { mac, secrets: [random.bytes(bits), random.bytes(usize::from(input.key) % 80)] };
    let header =
        RecordHeader { number: input.number, content_type: input.shape, version: input.version };
    let text = usize::from(input.text) % (TEXT_MAX + 1);
    let portable = keys.key(Tier::Portable.into(), Direction::Encrypt);
    let seals = keys.key(setup, Direction::Encrypt);

    // Sealed alone, by both.
    let mut records = [(); 2].map(|()| {
        let mut record = Random(7).bytes(front + text);
        record.resize(front + seals.sealed_bytes(text), 0);
        record
    });
    let [one, other] = &mut records;
    for (key, record) in [(&seals, one), (&portable, other)] {
        key.seal(header, &mut [9; 16], front, text, record).unwrap();
    }
    assert!(records[0] == records[1], "sealing {text} bytes on {setup}");

    // Sealed together: what begins with the IV is as if it were sealed from there.
    let texts: Vec<_> =
        (0..usize::from(input.together) % 20).map(|i| (text / 8 + 13 * i) % 2100).collect();
    let mut burst: Vec<_> =
        texts.iter().map(|&text| vec![3; 16 + seals.sealed_bytes(text)]).collect();
    let mut places: Vec<_> = burst
        .iter_mut()
        .zip(&texts)
        .map(|(bytes, &text)| BurstRecord { header, text, bytes })
        .collect();
    seals.seal_burst(&mut places).unwrap();
    for (record, &text) in burst.iter().zip(&texts) {
        let mut alone = vec![3; seals.sealed_bytes(text)];
        portable.seal(header, &mut [3; 16], 0, text, &mut alone).unwrap();
        assert!(record[16..] == alone, "{text} bytes of {} on {setup}", texts.len());
    }
    receive(input, &keys, header, text, setup);
}

/// Opens a record of any padding, with anything changed.
fn receive(input: &Input, keys: &Keys, header: RecordHeader, text: usize, setup: Setup) {
    let mut plain = Random(5).bytes(text);
    plain.extend(keys.mac(header, &plain));
    let least = 15 - plain.len() % 16;
    let padding = (least + 16 * usize::from(input.padding % 16)).min(240 + least);
    plain.resize(plain.len() + padding + 1, padding as u8);
    for &(at, byte) in input.changes.iter().take(usize::from(input.changed) % 5) {
        let at = usize::from(at) % plain.len();
        let at = plain.len() - 1 - at;
        plain[at] = byte;
    }
    plain.truncate(plain.len() - (16 * usize::from(input.cut.0 % 4)).min(plain.len()));
    let right = keys.open(header, &plain);
    let mut record = plain.clone();
    keys.key(setup, Direction::Encrypt).encrypt_only(&mut [4; 16], &mut record).unwrap();
    let opens = keys.key(setup, Direction::Decrypt);
    let mut odd = record.clone();
    assert_eq!(opens.open(header, &[4; 16], &mut record), right, "{text} bytes on {setup}");
    match right {
        Ok(text) => assert!(record[..text] == plain[..text], "{text} bytes on {setup}"),
        Err(_) => assert!(record.iter().all(|&byte| byte == 0), "{text} bytes on {setup}"),
    }
    odd.truncate(odd.len() - usize::from(input.cut.1 % 16).min(odd.len()));
    if !odd.len().is_multiple_of(16) {
        assert_eq!(opens.open(header, &[4; 16], &mut odd), Err(RecordError::Forged));
        assert!(odd.iter().all(|&byte| byte == 0));
    }
}
