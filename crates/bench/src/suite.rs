//! Suites of the crypto crate that are measured, and the layout of their packets in ESP.

use convoy_crypto::{Cipher, Suite, UnknownSuite};

/// Bytes of an ESP header: SPI and sequence number (RFC 4303 section 2).
pub(crate) const ESP_HEADER: usize = 8;
/// Pad length and next header (RFC 4303 section 2).
const ESP_TRAILER: usize = 2;
/// ESP aligns the end of its trailer to this.
const ESP_ALIGN: usize = 4;

/// The suites of the field's studies, which benches of pipelines and engines measure by default, as a command line has them.
pub const STUDIED: &str = "aes-128-gcm-16,aes-128-cbc+hmac-sha1-96";

/// Properties of every suite in ESP.
pub trait Layout {
    /// Bytes of the explicit IV between ESP header and text: 0, 8 or 16.
    fn iv_bytes(self) -> usize;

    /// Bytes in front of the text: ESP header and IV.
    fn header_bytes(self) -> usize;

    /// Bytes of text that a packet of `packet` bytes becomes with its ESP trailer.
    fn esp_text_bytes(self, packet: usize) -> usize;
}

impl Layout for Suite {
    fn iv_bytes(self) -> usize {
        match self {
            Self::Pair { cipher: Cipher::AesCbc(_) | Cipher::CamelliaCbc(_), .. } => 16,
            Self::Pair { cipher: Cipher::Null, .. } => 0,
            _ => 8,
        }
    }

    fn header_bytes(self) -> usize {
        ESP_HEADER + self.iv_bytes()
    }

    fn esp_text_bytes(self, packet: usize) -> usize {
        (packet + ESP_TRAILER).next_multiple_of(self.block_bytes().max(ESP_ALIGN))
    }
}

/// Bytes of the header that an AEAD authenticates as additional data: without the IV, but for GMAC
/// (RFC 4543 section 3.3).
pub(crate) fn aad_bytes(suite: Suite) -> usize {
    match suite {
        Suite::Gmac(_) => suite.header_bytes(),
        _ => ESP_HEADER,
    }
}

/// Every suite that `--suite all` measures: all of IPsec's, GCM and CCM with the whole ICV only, as
/// cutting it changes no cost, and none of old peers, which no one takes for its speed.
pub fn all() -> impl Iterator<Item = Suite> {
    let is_cut = |suite: &Suite| suite.is_aead() && !Suite::AEADS.contains(suite);
    Suite::all().filter(move |suite| !suite.is_legacy() && !is_cut(suite))
}

/// The suites that a word of the command line names: `all`, or a suite's name.
///
/// # Errors
/// A message on the word, and a name that is near.
pub fn parse(word: &str) -> Result<Vec<Suite>, String> {
    if word == "all" {
        return Ok(all().collect());
    }
    word.parse().map(|suite| vec![suite]).map_err(|UnknownSuite| {
        let names = "`convoy bench crypto --suite list` prints the names";
        // `aes-128-cbc+hmac-sha1` is what one writes before one has seen the list.
        let near = Suite::all().map(|suite| suite.to_string());
        match near.filter(|name| !word.is_empty() && name.starts_with(word)).last() {
            Some(near) => format!("no suite is called {word:?}, but {near} is; {names}"),
            None => format!("no suite is called {word:?}; {names}"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_holds_each_suite_once() {
        let all: Vec<_> = all().collect();
        assert_eq!(all.len(), 3 + 3 + 3 + 1 + 7 * 8);
        assert_eq!(parse("all").unwrap(), all);
        for name in ["aes-256-gcm-8", "3des-cbc+hmac-sha1-96"] {
            assert_eq!(parse(name).unwrap().len(), 1, "others can be named");
        }
    }

    #[test]
    fn wrong_names_are_answered_with_a_near_one() {
        let error = parse("aes-128-cbc+hmac-sha1").unwrap_err();
        assert!(error.contains("but aes-128-cbc+hmac-sha1-96 is"), "{error}");
        assert!(parse("aes-128-gcm").unwrap_err().contains("aes-128-gcm-16"));
        let error = parse("des").unwrap_err();
        assert!(error.contains("--suite list") && !error.contains("but"), "{error}");
    }
}
