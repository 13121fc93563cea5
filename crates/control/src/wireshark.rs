//! Keys in the form in which Wireshark and tshark take them.
//!
//! Wireshark keeps ESP keys in a table called `esp_sa` in its configuration folder (Edit,
//! Preferences, Protocols, ESP). Each line names addresses, SPI, algorithm and key ‖ salt, then
//! what authenticates and its key; for AES-GCM that column must say `NULL`, because the ICV's length
//! is part of the algorithm's name. SAs of suites that Wireshark has no name for stand as comments.
//! Capture files decrypt with
//!
//! ```text
//! mkdir conf && convoy keys left --output conf/esp_sa
//! WIRESHARK_CONFIG_DIR=conf tshark -o esp.enable_encryption_decode:TRUE -r wire.pcap
//! ```
//!
//! UDP-encapsulated ESP is recognised on port 4500; on another one add
//! `-d udp.port==PORT,udpencap`.

use std::fmt::Write as _;
use std::net::IpAddr;

use convoy_crypto::Suite;
use convoy_ipsec::sa::IpsecProtocol;
use zeroize::Zeroizing;

use crate::site::{Association, Site};

/// The lines of an `esp_sa` file for all SAs of a site. It holds their keys.
#[must_use]
pub fn esp_sa(site: &Site) -> Zeroizing<String> {
    let outbound = site.outbound.iter().map(|sa| (&sa.association, true));
    let inbound = site.inbound.iter().map(|sa| (&sa.association, false));
    let sas: Vec<_> = outbound.chain(inbound).collect();
    // In one piece, so that growing leaves no copies of keys behind. A line has at most about 450.
    let mut text = Zeroizing::new(String::with_capacity(sas.len() * 640));
    for (sa, is_outbound) in sas {
        line(&mut text, sa, is_outbound);
    }
    text
}

fn line(text: &mut String, sa: &Association, is_outbound: bool) {
    let (from, to) = match is_outbound {
        true => (sa.endpoints.local, sa.endpoints.remote),
        false => (sa.endpoints.remote, sa.endpoints.local),
    };
    let (family, from) = match from {
        IpAddr::V4(v4) => ("IPv4", v4.to_string()),
        IpAddr::V6(v6) => ("IPv6", v6.to_string()),
    };
    // The source may change behind a NAT, and the destination there is the peer's inner one.
    let from = if sa.encap.is_some() { "*".to_owned() } else { from };
    // Writing to a String does not fail.
    if sa.protocol == IpsecProtocol::Ah {
        let _ = writeln!(text, "# {}: AH encrypts nothing", sa.name);
        return;
    }
    let Some((encryption, authentication)) = names(sa.key.suite()) else {
        let _ = writeln!(text, "# {}: Wireshark has no name for {}", sa.name, sa.key.suite());
        return;
    };
    let spi = sa.spi.get();
    let _ = write!(text, "\"{family}\",\"{from}\",\"{to}\",\"{spi:#010x}\",\"{encryption}\",\"");
    key(text, sa.key.expose_with_salt());
    let _ = write!(text, "\",\"{authentication}\",\"");
    key(text, sa.key.expose_integrity());
    text.push_str("\"\n");
}

fn key(text: &mut String, bytes: &[u8]) {
    if !bytes.is_empty() {
        text.push_str("0x");
    }
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
}

/// Names of a suite in Wireshark 4.0: encryption and authentication.
fn names(suite: Suite) -> Option<(String, &'static str)> {
    match suite {
        Suite::Pair { cipher, integrity } => {
            Some((cipher.names().wireshark?.to_owned(), integrity.wireshark()?))
        }
        aead => {
            let name = aead.names()?.wireshark?;
            Some((name.replace("{}", &aead.icv_bytes().to_string()), "NULL"))
        }
    }
}
