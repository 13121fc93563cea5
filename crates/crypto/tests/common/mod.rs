//! What several test programs share: the tiers to test, and packets that own their buffers.

// No test program uses all of it.
#![allow(dead_code, clippy::unwrap_used)]

use convoy_crypto::{
    Cpu, GcmParams, IcvLen, KeyBits, Nonce, OpenKey, OpenOp, SealKey, SealOp, SecretBytes, Tier,
    Verdict, open_burst, seal_burst,
};

/// The tiers that this machine has and `CONVOY_DENY_CPU` leaves; says which are left out.
pub(crate) fn tiers() -> Vec<Tier> {
    let cpu = cpu();
    for tier in Tier::ALL.into_iter().filter(|&tier| !cpu.has(tier)) {
        println!("SKIPPED in part: tier {tier}: not on this machine, or denied");
    }
    cpu.tiers().collect()
}

pub(crate) fn cpu() -> Cpu {
    Cpu::detect().expect("CONVOY_DENY_CPU names tiers")
}

pub(crate) fn seal_key(tier: Tier, params: GcmParams, key: &[u8]) -> SealKey {
    SealKey::with_tier(&cpu(), tier, params, SecretBytes::copy_from(key))
        .expect("key fits its parameters")
}

pub(crate) fn open_key(tier: Tier, params: GcmParams, key: &[u8]) -> OpenKey {
    OpenKey::with_tier(&cpu(), tier, params, SecretBytes::copy_from(key))
        .expect("key fits its parameters")
}

/// A packet and everything that is needed to seal or open it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) params: GcmParams,
    pub(crate) key: Vec<u8>,
    pub(crate) nonce: [u8; 12],
    pub(crate) aad: Vec<u8>,
    pub(crate) data: Vec<u8>,
    pub(crate) icv: Vec<u8>,
}

impl Packet {
    /// A packet of given shape whose bytes come from `seed`.
    pub(crate) fn of_shape(
        key_bits: KeyBits,
        icv_len: IcvLen,
        aad: usize,
        data: usize,
        seed: u64,
    ) -> Self {
        let mut random = Random(seed);
        Self {
            params: GcmParams::new(key_bits, icv_len),
            key: random.bytes(key_bits.bytes()),
            nonce: random.bytes(12).try_into().unwrap(),
            aad: random.bytes(aad),
            data: random.bytes(data),
            icv: vec![0; icv_len.bytes()],
        }
    }
}

/// Seals every packet in one burst, packet `i` on tier `tier_of(i)`.
pub(crate) fn seal(packets: &mut [Packet], tier_of: impl Fn(usize) -> Tier) {
    let keys: Vec<_> =
        packets.iter().enumerate().map(|(i, p)| seal_key(tier_of(i), p.params, &p.key)).collect();
    let mut ops: Vec<_> = packets
        .iter_mut()
        .zip(&keys)
        .map(|(p, key)| {
            SealOp::new(key, Nonce::new(p.nonce), &p.aad, &mut p.data, &mut p.icv).unwrap()
        })
        .collect();
    seal_burst(&mut ops);
    assert!(ops.iter().all(SealOp::is_sealed));
}

/// Opens every packet in one burst, packet `i` on tier `tier_of(i)`.
pub(crate) fn open(packets: &mut [Packet], tier_of: impl Fn(usize) -> Tier) -> Vec<Verdict> {
    let keys: Vec<_> =
        packets.iter().enumerate().map(|(i, p)| open_key(tier_of(i), p.params, &p.key)).collect();
    let mut ops: Vec<_> = packets
        .iter_mut()
        .zip(&keys)
        .map(|(p, key)| OpenOp::new(key, p.nonce, &p.aad, &mut p.data, &p.icv).unwrap())
        .collect();
    open_burst(&mut ops);
    ops.iter().map(OpenOp::verdict).collect()
}

/// What an independent implementation makes of a packet.
pub(crate) fn sealed_by_oracle(packet: &Packet) -> Packet {
    use aws_lc_rs::aead::{
        AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey,
    };
    let algorithm = match packet.params.key_bits {
        KeyBits::Aes128 => &AES_128_GCM,
        KeyBits::Aes192 => &AES_192_GCM,
        KeyBits::Aes256 => &AES_256_GCM,
    };
    let key = LessSafeKey::new(UnboundKey::new(algorithm, &packet.key).unwrap());
    let mut sealed = packet.clone();
    let nonce = Nonce::assume_unique_for_key(packet.nonce);
    let tag =
        key.seal_in_place_separate_tag(nonce, Aad::from(&packet.aad), &mut sealed.data).unwrap();
    sealed.icv = tag.as_ref()[..packet.icv.len()].to_vec();
    sealed
}

/// Numbers that look random and depend on the seed alone (SplitMix64).
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}
