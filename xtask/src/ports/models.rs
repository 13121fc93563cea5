//! The processors that are asked about, and what is asked: the one place that names them.

/// A processor as llvm-mca knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) name: &'static str,
    /// Output of `convoy-ports tier` where keys get what they would get there.
    pub(crate) tier: &'static str,
    /// Features to deny to a processor that has everything, so that they do.
    pub(crate) denied: &'static str,
    /// The proof tokens of the doors that it can go through.
    tokens: &'static [&'static str],
}

impl Model {
    /// True if the processor has what kernels behind a door of `token` need.
    pub(crate) fn has(&self, token: &str) -> bool {
        self.tokens.contains(&token)
    }
}

/// Oldest first, one maker after the other.
pub(crate) static MODELS: [Model; 5] = [
    Model {
        name: "skylake-avx512",
        tier: "avx512 -",
        denied: "vaes256,sha-ni",
        tokens: &["AesNi", "Avx", "Avx2", "Avx512"],
    },
    Model { name: "icelake-server", tier: "vaes512 sha-ni", denied: "", tokens: ICE_LAKE },
    Model { name: "sapphirerapids", tier: "vaes512 sha-ni", denied: "", tokens: ICE_LAKE },
    Model {
        name: "znver3",
        tier: "vaes256 sha-ni",
        denied: "avx512",
        tokens: &["AesNi", "Avx", "Avx2", "Vaes256", "ShaNi", "AesSha"],
    },
    Model {
        name: "znver4",
        tier: "vaes512 sha-ni",
        denied: "",
        tokens: &[
            "AesNi", "Avx", "Avx2", "Avx512", "Vaes256", "Vaes512", "ShaNi", "AesSha", "WideSha",
        ],
    },
];

/// The processor of this name.
pub(crate) fn named(name: &str) -> Option<&'static Model> {
    MODELS.iter().find(|model| model.name == name)
}

/// A processor for every tier that there is among them.
pub(crate) fn of_every_tier() -> impl Iterator<Item = &'static Model> {
    let is_first = |(at, model): &(usize, &'static Model)| {
        !MODELS[..*at].iter().any(|other| other.tier == model.tier)
    };
    MODELS.iter().enumerate().filter(is_first).map(|(_, model)| model)
}

const ICE_LAKE: &[&str] =
    &["AesNi", "Avx", "Avx2", "Avx512", "Vaes256", "Vaes512", "ShaNi", "AesSha"];

/// The suites whose bursts are followed.
pub(crate) const SUITES: [&str; 4] =
    ["aes-128-gcm-16", "aes-128-cbc+hmac-sha1-96", "chacha20-poly1305", "aes-128-ccm-16"];

pub(crate) const DIRECTIONS: [&str; 2] = ["seal", "open"];

/// Bytes of text, which CBC rounds up to whole blocks, and how many such packets are a burst: fewer long ones,
/// so that llvm-mca works for seconds and not for minutes.
pub(crate) const LENGTHS: [(usize, usize); 3] = [(64, 64), (256, 32), (1420, 16)];

/// A burst to be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Burst {
    pub(crate) suite: &'static str,
    pub(crate) direction: &'static str,
    pub(crate) bytes: usize,
    pub(crate) packets: usize,
}

/// Every burst that is followed, and held to the budget.
pub(crate) fn bursts() -> impl Iterator<Item = Burst> {
    SUITES.into_iter().flat_map(|suite| {
        DIRECTIONS.into_iter().flat_map(move |direction| {
            LENGTHS.into_iter().map(move |(bytes, packets)| Burst {
                suite,
                direction,
                bytes,
                packets,
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_processor_is_fed_what_it_lacks() {
        let find = |name| MODELS.iter().find(|model| model.name == name).unwrap();
        assert!(find("znver4").has("Vaes512") && find("znver4").has("WideSha"));
        assert!(!find("znver3").has("Avx512") && !find("znver3").has("Vaes512"));
        assert!(!find("skylake-avx512").has("Vaes256") && !find("skylake-avx512").has("ShaNi"));
        let tiers: Vec<&str> = of_every_tier().map(|model| model.tier).collect();
        assert_eq!(tiers, ["avx512 -", "vaes512 sha-ni", "vaes256 sha-ni"]);
        // Kernels that mix encodings are for AMD's processors alone.
        assert!(!find("sapphirerapids").has("WideSha"));
    }
}
