//! Classes of processors by what AES-GCM runs on, for which goals differ.

use convoy_crypto::{Cpu, Tier};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A class of processors. Figures of one say nothing about another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// AES-NI and AVX-512, without AES in wide registers: Skylake-SP, Cascade Lake.
    A,
    /// Intel's with AES in registers of 512 bits: Ice Lake and later.
    BIntel,
    /// AMD's with the same: Zen 4 and later.
    BAmd,
    /// AES in registers of 256 bits, without AVX-512: Zen 3, Alder Lake and later.
    C,
    /// AES-NI and at most AVX2.
    D,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::A, Self::BIntel, Self::BAmd, Self::C, Self::D];

    /// The class whose processors have `tier` as their best.
    #[must_use]
    pub const fn of(tier: Tier, by_amd: bool) -> Self {
        match tier {
            Tier::Vaes512 if by_amd => Self::BAmd,
            Tier::Vaes512 => Self::BIntel,
            Tier::Vaes256 => Self::C,
            Tier::Avx512 => Self::A,
            _ => Self::D,
        }
    }

    /// The class of the processor at hand, whatever is denied.
    #[must_use]
    pub fn at_hand() -> Option<Self> {
        let cpu = Cpu::without("").ok()?;
        Some(Self::of(cpu.best(), cpu.is_by_amd()))
    }

    /// Its name: `A`, `B-Intel`, `B-AMD`, `C` or `D`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::BIntel => "B-Intel",
            Self::BAmd => "B-AMD",
            Self::C => "C",
            Self::D => "D",
        }
    }
}

impl Serialize for Class {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Class {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        let found = Self::ALL.into_iter().find(|class| class.name() == name);
        found.ok_or_else(|| D::Error::custom(format!("no class of processors is called {name:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for class in Class::ALL {
            let text = serde_json::to_string(&class).unwrap();
            assert_eq!(serde_json::from_str::<Class>(&text).unwrap(), class);
        }
        assert!(serde_json::from_str::<Class>("\"E\"").unwrap_err().to_string().contains("\"E\""));
    }

    #[test]
    fn tiers_and_makers_make_five_classes() {
        let of = |tier, by_amd| Class::of(tier, by_amd).name();
        assert_eq!(of(Tier::Vaes512, true), "B-AMD");
        assert_eq!(of(Tier::Vaes512, false), "B-Intel");
        assert_eq!(of(Tier::Vaes256, true), of(Tier::Vaes256, false));
        assert_eq!(of(Tier::Avx512, false), "A");
        assert_eq!(of(Tier::Portable, true), "D");
    }

    #[test]
    fn the_processor_at_hand_has_a_class() {
        let best = Cpu::detect().unwrap().best();
        // A denied tier makes keys narrower, not the processor.
        assert!(Class::at_hand().is_some() && Cpu::without("").unwrap().best() >= best);
    }
}
