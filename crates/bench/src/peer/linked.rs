//! Peers that are linked into the program, each with a feature of its own.

use crate::contender::Contender;
use crate::peer::PeerError;
use crate::workload::Workload;

/// A peer that takes part only where it was built in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linked {
    /// AWS-LC.
    AwsLc,
    /// BoringSSL.
    BoringSsl,
}

impl Linked {
    /// Every one, built in or not.
    pub const ALL: [Self; 2] = [Self::AwsLc, Self::BoringSsl];

    /// Its name, as arguments and results spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AwsLc => "aws-lc",
            Self::BoringSsl => "boringssl",
        }
    }

    /// The library's own name.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::AwsLc => "AWS-LC",
            Self::BoringSsl => "BoringSSL",
        }
    }

    /// The feature that builds it in.
    const fn feature(self) -> &'static str {
        match self {
            Self::AwsLc => "peer-aws-lc",
            Self::BoringSsl => "peer-boringssl",
        }
    }

    /// Its version.
    ///
    /// # Errors
    /// [`PeerError::NotBuilt`] if this program was built without it.
    pub fn version(self) -> Result<String, PeerError> {
        match self {
            #[cfg(feature = "peer-aws-lc")]
            Self::AwsLc => Ok(super::aws_lc::version()),
            #[cfg(feature = "peer-boringssl")]
            Self::BoringSsl => Ok(super::boringssl::version()),
            #[allow(unreachable_patterns, reason = "with all features")]
            _ => Err(PeerError::NotBuilt { who: self.title(), feature: self.feature() }),
        }
    }

    /// A contender; none if it lacks the suite, or was not built in.
    #[must_use]
    pub fn contenders(self, work: &Workload) -> Vec<Box<dyn Contender>> {
        #[cfg(not(any(feature = "peer-aws-lc", feature = "peer-boringssl")))]
        let _ = work;
        match self {
            #[cfg(feature = "peer-aws-lc")]
            Self::AwsLc => super::aws_lc::contenders(work),
            #[cfg(feature = "peer-boringssl")]
            Self::BoringSsl => super::boringssl::contenders(work),
            #[allow(unreachable_patterns, reason = "with all features")]
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use convoy_crypto::{Cpu, Suite};

    use super::*;
    use crate::contender::agree;
    use crate::convoy::Convoy;
    use crate::mix::Sizes;

    /// True for peers that are built in, by the features and not by what the code says.
    fn built_in(peer: Linked) -> bool {
        match peer {
            Linked::AwsLc => cfg!(feature = "peer-aws-lc"),
            Linked::BoringSsl => cfg!(feature = "peer-boringssl"),
        }
    }

    #[test]
    fn a_peer_that_was_not_built_in_says_how_to_build_it_in() {
        for peer in Linked::ALL {
            let version = peer.version();
            if built_in(peer) {
                assert!(version.unwrap().contains(|c: char| c.is_ascii_digit()));
                continue;
            }
            let error = version.unwrap_err().to_string();
            let build = format!("cargo build --release -p convoy --features peer-{}", peer.name());
            assert!(error.starts_with(peer.title()) && error.contains(&build), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn peers_that_are_built_in_agree_with_convoy_at_every_length() {
        let cpu = Cpu::detect().unwrap();
        for peer in Linked::ALL {
            if !built_in(peer) {
                println!("SKIPPED {}: built without {}", peer.title(), peer.feature());
                continue;
            }
            for name in ["aes-128-gcm-16", "aes-192-gcm-16", "aes-256-gcm-16", "chacha20-poly1305"]
            {
                for text in (0..=300).chain([1420]) {
                    let work = Workload::new(name.parse().unwrap(), Sizes::Fixed(text), 2, 3);
                    let convoy = Convoy::new(&cpu, cpu.best(), &work).unwrap();
                    let mut contenders: Vec<Box<dyn Contender>> = vec![Box::new(convoy)];
                    contenders.extend(peer.contenders(&work));
                    assert_eq!(contenders.len(), 2, "{} has {name}", peer.title());
                    assert_eq!(contenders[1].who(), peer.name());
                    agree(&work, &mut contenders).unwrap();
                }
            }
        }
    }

    #[test]
    fn suites_that_they_lack_have_no_contender() {
        let has = |suite: &Suite| {
            let name = suite.to_string();
            name == "chacha20-poly1305" || (name.contains("-gcm-") && name.ends_with("-16"))
        };
        for suite in Suite::all() {
            let work = Workload::new(suite, Sizes::Fixed(64), 1, 1);
            for peer in Linked::ALL {
                let count = peer.contenders(&work).len();
                assert_eq!(count, usize::from(has(&suite) && built_in(peer)), "{suite}");
            }
        }
    }
}
