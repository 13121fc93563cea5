//! Ways to set a key up, and numbers that look random.

use std::{env, fmt, sync::OnceLock};

use convoy_crypto::{Cpu, GcmParams, IcvLen, KeyBits, MacAlg, Suite, Tier};

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

/// Target of a key: a tier, and whether its hashes may use the SHA extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Setup {
    pub(crate) tier: Tier,
    pub(crate) sha_ni: bool,
}

impl Setup {
    pub(crate) fn cpu(self) -> Cpu {
        static WITHOUT: OnceLock<Cpu> = OnceLock::new();
        if self.sha_ni {
            return cpu();
        }
        *WITHOUT.get_or_init(|| {
            let denied = env::var(Cpu::DENY_VARIABLE).unwrap_or_default();
            Cpu::without(&format!("{denied},{}", Cpu::SHA_NI)).unwrap()
        })
    }
}

impl From<Tier> for Setup {
    fn from(tier: Tier) -> Self {
        Self { tier, sha_ni: true }
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.tier.name())?;
        if self.sha_ni { Ok(()) } else { f.write_str(" without sha-ni") }
    }
}

/// Every way that makes a difference to some suite: all tiers, with the SHA extensions and without.
pub(crate) fn setups() -> Vec<Setup> {
    let tiers = tiers();
    let with = tiers.iter().map(|&tier| Setup::from(tier));
    let without = tiers.iter().map(|&tier| Setup { tier, sha_ni: false });
    if cpu().has_sha_ni() {
        with.chain(without).collect()
    } else {
        println!("SKIPPED in part: sha-ni: not on this machine, or denied");
        with.collect()
    }
}

/// Selects those of `setups` that make a difference to `suite`.
pub(crate) fn setups_for(suite: Suite, setups: &[Setup]) -> Vec<Setup> {
    let hashes = matches!(mac(suite), MacAlg::Hmac(_));
    setups.iter().copied().filter(|setup| setup.sha_ni || hashes).collect()
}

fn mac(suite: Suite) -> MacAlg {
    match suite {
        Suite::Pair { integrity, .. } => integrity.alg(),
        _ => MacAlg::Null,
    }
}

/// AES-GCM of the sizes given.
pub(crate) fn gcm(key_bits: KeyBits, icv_len: IcvLen) -> Suite {
    Suite::Gcm(GcmParams::new(key_bits, icv_len))
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

    /// A length as packets have it: mostly short, at times up to `most`.
    pub(crate) fn length(&mut self, most: usize) -> usize {
        let limit = self.pick(&[1, 20, 100, 300, 1600, 1600, 4100, 16_385]);
        self.below(limit.min(most + 1))
    }
}
