//! Keys in the form in which Wireshark and tshark take them.
//!
//! Wireshark keeps ESP keys in a table called `esp_sa` in its configuration folder (Edit,
//! Preferences, Protocols, ESP). Each line names addresses, SPI, algorithm and key ‖ salt; for
//! AES-GCM the authentication column must say `NULL`, because the ICV's length is part of the
//! algorithm's name. Capture files decrypt with
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

use zeroize::Zeroizing;

use crate::site::{Association, Site};

/// The lines of an `esp_sa` file for all SAs of a site. It holds their keys.
#[must_use]
pub fn esp_sa(site: &Site) -> Zeroizing<String> {
    let outbound = site.outbound.iter().map(|sa| (&sa.association, true));
    let inbound = site.inbound.iter().map(|sa| (&sa.association, false));
    let sas: Vec<_> = outbound.chain(inbound).collect();
    // In one piece, so that growing leaves no copies of keys behind. A line has at most about 300.
    let mut text = Zeroizing::new(String::with_capacity(sas.len() * 384));
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
    let icv = sa.key.params().icv_len.bytes();
    // Writing to a String does not fail.
    let _ = write!(
        text,
        "\"{family}\",\"{from}\",\"{to}\",\"{:#010x}\",\"AES-GCM with {icv} octet ICV [RFC4106]\",\"0x",
        sa.spi.get()
    );
    for byte in sa.key.expose_with_salt() {
        let _ = write!(text, "{byte:02x}");
    }
    text.push_str("\",\"NULL\",\"\"\n");
}
