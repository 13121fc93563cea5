//! AWS-LC as a contender, through the safe calls of its crate. It is linked in, with the feature `peer-aws-lc`.

use aws_lc_rs::aead::{
    AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey,
    NONCE_LEN, Nonce, UnboundKey,
};
use convoy_crypto::{GcmParams, IcvLen, KeyBits, Suite};

use crate::contender::Contender;
use crate::suite::{Layout as _, aad_bytes};
use crate::workload::{Arena, Packet, Workload};

/// The library's version.
pub(super) fn version() -> String {
    aws_lc_rs::awslc_version().to_owned()
}

/// A contender; none if AWS-LC lacks the suite.
pub(super) fn contenders(work: &Workload) -> Vec<Box<dyn Contender>> {
    let aead = Aead::new(work);
    aead.into_iter().map(|aead| Box::new(aead) as Box<dyn Contender>).collect()
}

fn algorithm(suite: Suite) -> Option<&'static Algorithm> {
    match suite {
        Suite::Gcm(GcmParams { key_bits, icv_len: IcvLen::Icv16 }) => Some(match key_bits {
            KeyBits::Aes128 => &AES_128_GCM,
            KeyBits::Aes192 => &AES_192_GCM,
            KeyBits::Aes256 => &AES_256_GCM,
        }),
        Suite::ChaCha20Poly1305 => Some(&CHACHA20_POLY1305),
        _ => None,
    }
}

/// The keys of a workload. One serves both directions.
struct Aead {
    keys: Vec<LessSafeKey>,
}

impl Aead {
    fn new(work: &Workload) -> Option<Self> {
        let algorithm = algorithm(work.suite)?;
        let keys = work.keys.iter().map(|keys| UnboundKey::new(algorithm, &keys.cipher).ok());
        Some(Self { keys: keys.map(|key| key.map(LessSafeKey::new)).collect::<Option<_>>()? })
    }
}

/// Hands key, nonce, additional data, text and ICV of every packet to `each`.
#[inline(always)]
fn for_each(
    keys: &[LessSafeKey],
    work: &Workload,
    arena: &mut Arena,
    mut each: impl FnMut(&LessSafeKey, Nonce, Aad<&[u8]>, &mut [u8], &mut [u8]),
) {
    let (header, aad, icv) =
        (work.suite.header_bytes(), aad_bytes(work.suite), work.suite.icv_bytes());
    let bytes = arena.bytes_mut();
    for packet in &work.packets {
        let frame = &mut bytes[packet.start..][..header + packet.text + icv];
        let (front, rest) = frame.split_at_mut(header);
        let (text, icv) = rest.split_at_mut(packet.text);
        each(&keys[packet.key], nonce(packet), Aad::from(&front[..aad]), text, icv);
    }
}

#[inline(always)]
fn nonce(packet: &Packet) -> Nonce {
    let bytes = packet.nonce.first_chunk::<NONCE_LEN>().copied();
    Nonce::assume_unique_for_key(bytes.unwrap_or([0; NONCE_LEN]))
}

impl Contender for Aead {
    fn who(&self) -> &'static str {
        "aws-lc"
    }

    fn api(&self) -> &str {
        "evp-aead"
    }

    fn seal(&mut self, work: &Workload, arena: &mut Arena) {
        for_each(&self.keys, work, arena, |key, nonce, aad, text, icv| {
            // Failure leaves wrong bytes, which the comparison before the measurement finds.
            let _ = key.seal_in_place_scatter(nonce, aad, text, &[], icv);
        });
    }

    fn open(&mut self, work: &Workload, arena: &mut Arena) -> usize {
        let mut authentic = 0;
        for_each(&self.keys, work, arena, |key, nonce, aad, text, icv| {
            authentic += usize::from(key.open_in_place_separate_tag(nonce, aad, icv, text).is_ok());
        });
        authentic
    }
}
