//! Records of TLS 1.0 to 1.2 under AES-CBC and HMAC, against records that RustCrypto's AES and AWS-LC's
//! HMAC make.

use aes::cipher::{Array, BlockCipherEncrypt, KeyInit, consts::U16};
use aws_lc_rs::hmac;
use convoy_crypto::{
    Cpu, KeyError, SecretBytes, Tier,
    manager::Direction,
    tls::{BurstRecord, CbcHmacKey, HEADER, RecordError, RecordHeader, RecordMac},
};

use crate::common::{Random, Setup, guarded::Guarded, setups};

/// Keys of both directions, and the secrets that they are made of.
struct Keys {
    mac: RecordMac,
    cipher_key: Vec<u8>,
    mac_key: Vec<u8>,
    seals: Box<CbcHmacKey>,
    opens: Box<CbcHmacKey>,
}

impl Keys {
    fn new(setup: Setup, mac: RecordMac, bytes: usize, random: &mut Random) -> Self {
        let (cipher_key, mac_key) = (random.bytes(bytes), random.bytes(mac.bytes()));
        let key = |direction| {
            let secrets = [&cipher_key, &mac_key].map(|key| SecretBytes::copy_from(key));
            let [cipher, integrity] = &secrets;
            CbcHmacKey::with_tier(&setup.cpu(), setup.tier, mac, direction, cipher, integrity)
        };
        let (seals, opens) = (key(Direction::Encrypt), key(Direction::Decrypt));
        Self { mac, seals: seals.unwrap(), opens: opens.unwrap(), cipher_key, mac_key }
    }

    /// The oracle's MAC.
    fn mac(&self, header: RecordHeader, text: &[u8]) -> Vec<u8> {
        let algorithm = match self.mac {
            RecordMac::HmacSha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            RecordMac::HmacSha256 => hmac::HMAC_SHA256,
        };
        let mut context = hmac::Context::with_key(&hmac::Key::new(algorithm, &self.mac_key));
        context.update(&header.number.to_be_bytes());
        context.update(&[header.content_type]);
        context.update(&header.version.to_be_bytes());
        context.update(&(text.len() as u16).to_be_bytes());
        context.update(text);
        context.sign().as_ref().to_vec()
    }

    /// The oracle's CBC.
    fn encrypt(&self, iv: &[u8; 16], data: &mut [u8]) {
        match self.cipher_key.len() {
            16 => cbc(&aes::Aes128::new_from_slice(&self.cipher_key).unwrap(), iv, data),
            _ => cbc(&aes::Aes256::new_from_slice(&self.cipher_key).unwrap(), iv, data),
        }
    }

    /// The oracle's record with so much padding, not encrypted yet.
    fn plain(&self, header: RecordHeader, text: &[u8], padding: usize) -> Vec<u8> {
        let mut record = [text, &self.mac(header, text)].concat();
        record.resize(record.len() + padding + 1, padding as u8);
        record
    }

    fn sealed(&self, header: RecordHeader, iv: &[u8; 16], text: &[u8], padding: usize) -> Vec<u8> {
        let mut record = self.plain(header, text, padding);
        self.encrypt(iv, &mut record);
        record
    }

    /// Paddings that a text of this length may have: all that make whole blocks.
    fn paddings(&self, text: usize) -> impl Iterator<Item = usize> + use<> {
        let least = 15 - (text + self.mac.bytes()) % 16;
        (least..256).step_by(16)
    }
}

fn cbc(cipher: &impl BlockCipherEncrypt<BlockSize = U16>, iv: &[u8; 16], data: &mut [u8]) {
    let mut chain = *iv;
    for block in data.as_chunks_mut::<16>().0 {
        block.iter_mut().zip(chain).for_each(|(byte, chain)| *byte ^= chain);
        let mut state = Array::from(*block);
        cipher.encrypt_block(&mut state);
        *block = state.into();
        chain = *block;
    }
}

fn header(random: &mut Random) -> RecordHeader {
    let version = random.pick(&[0x0301, 0x0302, 0x0303]);
    RecordHeader { number: random.next(), content_type: random.pick(&[20, 21, 22, 23]), version }
}

/// Every way that makes a difference, with both sizes and MACs. The number tells them apart.
fn each_key(mut test: impl FnMut(&Keys, &mut Random, Setup, usize)) {
    let mut number = 0;
    for setup in setups() {
        for mac in RecordMac::ALL {
            for bytes in [16, 32] {
                let random = &mut Random(number as u64);
                test(&Keys::new(setup, mac, bytes, random), random, setup, number);
                number += 1;
            }
        }
    }
}

/// Every length up to some blocks, and those around where the work changes, up to the longest. Of all but the
/// short ones, each set of keys has its share.
fn lengths(number: usize) -> impl Iterator<Item = usize> {
    let around = [512, 1024, 1420, 4096, 8192, 16_384 - 64, 16_384];
    let around = around.into_iter().flat_map(|len| [len - 14, len - 13, len - 1, len, len + 1]);
    let long = around.filter(|&len| len <= 16_384).chain((340..16_384).step_by(997));
    let long = long.enumerate().filter(move |(i, _)| i % 8 == number % 8).map(|(_, len)| len);
    (0..=330).filter(move |len| *len < 80 || len % 4 == number % 4).chain(long)
}

#[test]
fn sealed_records_are_those_of_the_oracle() {
    each_key(|keys, random, setup, number| {
        let mut guarded = Guarded::new(17_000);
        for text in lengths(number) {
            let (bytes, header) = (random.bytes(16 + text), header(random));
            for front in [0, 16] {
                let first: [u8; 16] = random.bytes(16).try_into().unwrap();
                let mut iv = first;
                let least = keys.paddings(text).next().unwrap();
                let behind = keys.plain(header, &bytes[16..], least);
                let mut right = [&bytes[..front], &behind].concat();
                keys.encrypt(&first, &mut right);

                let record = guarded.slice(front + keys.seals.sealed_bytes(text), text % 2 == 0);
                record[..front].copy_from_slice(&bytes[..front]);
                record[front..front + text].copy_from_slice(&bytes[16..]);
                keys.seals.seal(header, &mut iv, front, text, record).unwrap();
                assert!(record == right, "{setup}, {:?}, {text} bytes behind {front}", keys.mac);
                assert_eq!(iv[..], right[right.len() - 16..]);
            }
        }
    });
}

#[test]
fn bursts_are_made_of_the_records_that_are_sealed_alone() {
    each_key(|keys, random, setup, number| {
        for (round, count) in [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33].into_iter().enumerate() {
            for most in [0, 50, 51, 70, 300, 4000, 16_384] {
                if most > 300 && (count > 9 || round % 4 != number % 4) {
                    continue;
                }
                let texts: Vec<_> = (0..count)
                    .map(|i| if i % 3 == 2 { random.below(most + 1) } else { most })
                    .collect();
                let headers: Vec<_> = texts.iter().map(|_| header(random)).collect();
                let mut records: Vec<_> = texts
                    .iter()
                    .map(|&text| {
                        let mut record = random.bytes(16 + text);
                        record.resize(16 + keys.seals.sealed_bytes(text), 0xee);
                        record
                    })
                    .collect();
                let right: Vec<_> = records
                    .iter()
                    .zip(texts.iter().zip(&headers))
                    .map(|(record, (&text, &header))| {
                        let (iv, rest) = record.split_first_chunk().unwrap();
                        let padding = keys.paddings(text).next().unwrap();
                        [&iv[..], &keys.sealed(header, iv, &rest[..text], padding)].concat()
                    })
                    .collect();
                let mut burst: Vec<_> = records
                    .iter_mut()
                    .zip(texts.iter().zip(headers))
                    .map(|(bytes, (&text, header))| BurstRecord { header, text, bytes })
                    .collect();
                keys.seals.seal_burst(&mut burst).unwrap();
                assert!(records == right, "{setup}, {:?}: {count} of at most {most}", keys.mac);
            }
        }
    });
}

#[test]
fn records_of_every_padding_are_opened_and_what_was_tampered_with_is_wiped() {
    each_key(|keys, random, setup, number| {
        let mut guarded = Guarded::new(17_000);
        for (round, text) in lengths(number).enumerate() {
            let (bytes, header) = (random.bytes(text), header(random));
            let iv: [u8; 16] = random.bytes(16).try_into().unwrap();
            for padding in keys.paddings(text) {
                // Of all but the shortest texts, each set of keys has its share of paddings.
                if text > 40 && (padding / 16 + text) % 4 != number % 4 {
                    continue;
                }
                let plain = keys.plain(header, &bytes, padding);
                let mut sealed = plain.clone();
                keys.encrypt(&iv, &mut sealed);
                let about = format!("{setup}, {:?}, {text} bytes, padding {padding}", keys.mac);
                let record = guarded.copy(&sealed, round % 2 == 0);
                assert_eq!(keys.opens.open(header, &iv, record), Ok(text), "{about}");
                assert!(record[..text] == bytes, "{about}");

                let mut refuse = |plain: &[u8], header, what: &str| {
                    let mut forged = plain.to_vec();
                    keys.encrypt(&iv, &mut forged);
                    let record = guarded.copy(&forged, round % 2 == 1);
                    let opened = keys.opens.open(header, &iv, record);
                    assert_eq!(opened, Err(RecordError::Forged), "{about}: {what}");
                    assert!(record.iter().all(|&byte| byte == 0), "{about}: {what}");
                };
                let tag = text..text + keys.mac.bytes();
                for (at, what) in [
                    (0, "the first byte"),
                    (random.below(plain.len()), "some byte"),
                    (tag.start, "the first byte of the MAC"),
                    (tag.end - 1, "the last byte of the MAC"),
                    (tag.end, "the first byte of padding"),
                    (plain.len() - 1, "the length of the padding"),
                ] {
                    let mut forged = plain.clone();
                    forged[at] ^= 1 << random.below(8);
                    if text <= 40 || random.below(3) == 0 {
                        refuse(&forged, header, what);
                    }
                }
                refuse(&plain, RecordHeader { number: header.number ^ 1, ..header }, "the number");
            }
        }
    });
}

/// A padding that would reach into the MAC, or in front of the record.
#[test]
fn paddings_that_do_not_fit_are_refused_like_wrong_macs() {
    each_key(|keys, random, _, number| {
        let (iv, header) = ([7; 16], header(random));
        for len in (32..=384).step_by(16) {
            for padding in (0..=255).filter(|&padding| usize::from(padding) % 5 == number % 5) {
                let mut record: Vec<u8> = vec![padding; len];
                keys.encrypt(&iv, &mut record);
                assert_eq!(keys.opens.open(header, &iv, &mut record), Err(RecordError::Forged));
                assert_eq!(record, vec![0; len]);
            }
        }
    });
}

#[test]
fn records_of_impossible_lengths_are_refused_and_wiped() {
    each_key(|keys, random, _, _| {
        let header = header(random);
        for len in (0..=keys.mac.bytes()).chain([33, 47, 49, 100, 16_385, 65_536]) {
            let mut record = vec![5; len];
            assert_eq!(keys.opens.open(header, &[7; 16], &mut record), Err(RecordError::Forged));
            assert_eq!(record, vec![0; len]);
        }
    });
}

#[test]
fn what_does_not_fit_is_not_sealed() {
    let keys = Keys::new(Tier::Portable.into(), RecordMac::HmacSha1, 16, &mut Random(1));
    let header = RecordHeader { number: 1, content_type: 23, version: 0x0303 };
    let seal = |front, text, len| {
        let mut record = vec![9; len];
        let sealed = keys.seals.seal(header, &mut [1; 16], front, text, &mut record);
        assert!(sealed.is_ok() || record == vec![9; len]);
        sealed
    };
    assert_eq!(seal(0, 11, 32), Ok(()));
    assert_eq!(seal(0, 12, 32), Err(RecordError::Length { needed: 48, given: 32 }));
    assert_eq!(seal(0, 11, 31), Err(RecordError::Length { needed: 32, given: 31 }));
    assert_eq!(seal(16, 11, 32), Err(RecordError::Length { needed: 48, given: 32 }));
    assert_eq!(seal(32, 11, 64), Err(RecordError::Length { needed: 48, given: 64 }));
    assert_eq!(seal(0, 65_535, 65_568), Ok(()));
    assert_eq!(seal(0, 65_536, 65_568), Err(RecordError::TextTooLong { given: 65_536 }));
    assert_eq!(seal(0, usize::MAX, 0), Err(RecordError::TextTooLong { given: usize::MAX }));
    let mut bytes = [9; 100];
    let (one, two) = bytes.split_at_mut(48);
    let mut burst = [
        BurstRecord { header, text: 11, bytes: one },
        BurstRecord { header, text: 11, bytes: two },
    ];
    let error = RecordError::Length { needed: 48, given: 52 };
    assert_eq!(keys.seals.seal_burst(&mut burst), Err(error));
    assert_eq!(bytes, [9; 100]);
}

#[test]
fn keys_are_set_one_after_the_other_and_for_one_direction() {
    let cpu = Cpu::without("").unwrap();
    let header = RecordHeader { number: 1, content_type: 23, version: 0x0303 };
    let mut key = CbcHmacKey::empty(&cpu, RecordMac::HmacSha256);
    let mut record = [0; 48];
    let mut seal = |key: &CbcHmacKey| key.seal(header, &mut [0; 16], 0, 11, &mut record);
    assert_eq!(seal(&key), Err(RecordError::NoKey));
    key.set_mac(&[2; 32]);
    assert_eq!(seal(&key), Err(RecordError::NoKey));
    key.set_cipher(Direction::Decrypt, &[1; 16]).unwrap();
    assert_eq!(seal(&key), Err(RecordError::NoKey));
    key.set_cipher(Direction::Encrypt, &[1; 16]).unwrap();
    assert_eq!(seal(&key), Ok(()));
    assert_eq!(seal(&key.clone()), Ok(()));
    assert_eq!(key.open(header, &[0; 16], &mut [0; 48]), Err(RecordError::NoKey));
    let error = KeyError::Length { expected: 16, given: 24 };
    assert_eq!(key.set_cipher(Direction::Encrypt, &[1; 24]), Err(error));
    assert_eq!((seal(&key), key.direction()), (Err(RecordError::NoKey), None));
    key.set_cipher(Direction::Encrypt, &[1; 32]).unwrap();
    assert_eq!(seal(&key), Ok(()));
    key.clear();
    assert_eq!(seal(&key), Err(RecordError::NoKey));
    assert_eq!(HEADER, 13);
    assert!(!format!("{key:?}").contains('1'), "{key:?}");
}
