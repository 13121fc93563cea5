//! SAs as `swanctl --list-sas --pretty` lists them.

use std::{net::IpAddr, str::Lines};

/// An IKE SA as the daemon lists it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IkeSa {
    /// Name of its connection.
    pub connection: String,
    /// The daemon's number for it; a new one after each rekey.
    pub id: u64,
    /// `ESTABLISHED` and others.
    pub state: String,
    /// Own address and port.
    pub local: Option<(IpAddr, u16)>,
    /// The peer's.
    pub remote: Option<(IpAddr, u16)>,
    /// Its CHILD_SAs, rekeyed ones that are still there included.
    pub children: Vec<ChildSa>,
}

/// A CHILD_SA as the daemon lists it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChildSa {
    /// Its name in the configuration.
    pub name: String,
    /// The daemon's number for it; a new one after each rekey.
    pub id: u64,
    /// `INSTALLED`, `REKEYED` and others.
    pub state: String,
    /// `TUNNEL` or `TRANSPORT`.
    pub mode: String,
    /// ESP in UDP.
    pub encap: bool,
    /// Extended sequence numbers.
    pub esn: bool,
    /// Encryption algorithm, such as `AES_GCM_16`.
    pub encryption: String,
    /// Bits of its key; 0 where the algorithm has one length only.
    pub key_bits: u32,
    /// Integrity algorithm, if apart from encryption.
    pub integrity: String,
    /// SPI of the inbound SA.
    pub spi_in: u32,
    /// SPI of the outbound SA.
    pub spi_out: u32,
    /// Bytes received, as what carries the packets told the daemon.
    pub bytes_in: u64,
    /// Packets received.
    pub packets_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Packets sent.
    pub packets_out: u64,
}

impl ChildSa {
    /// True if packets may use it.
    #[must_use]
    pub fn is_installed(&self) -> bool {
        self.state == "INSTALLED"
    }
}

/// A section of the output: pairs and named sections, in order. Lists are passed over.
#[derive(Debug, Default)]
struct Section<'a> {
    values: Vec<(&'a str, &'a str)>,
    sections: Vec<(&'a str, Self)>,
}

impl<'a> Section<'a> {
    /// Everything up to the closing brace, or the end.
    fn read(lines: &mut Lines<'a>) -> Self {
        let mut section = Self::default();
        while let Some(line) = lines.next().map(str::trim) {
            if line == "}" {
                break;
            } else if let Some(name) = line.strip_suffix(" {") {
                section.sections.push((name, Self::read(lines)));
            } else if line.ends_with("= [") {
                lines.by_ref().find(|line| line.trim() == "]");
            } else if let Some((key, value)) = line.split_once(" = ") {
                section.values.push((key, value));
            }
        }
        section
    }

    fn text(&self, key: &str) -> String {
        let found = self.values.iter().find(|(name, _)| *name == key);
        found.map(|(_, value)| (*value).to_owned()).unwrap_or_default()
    }

    fn number<T: std::str::FromStr + Default>(&self, key: &str) -> T {
        self.text(key).parse().unwrap_or_default()
    }

    fn hex(&self, key: &str) -> u32 {
        u32::from_str_radix(&self.text(key), 16).unwrap_or_default()
    }

    fn flag(&self, key: &str) -> bool {
        self.text(key) == "yes"
    }

    fn address(&self, end: &str) -> Option<(IpAddr, u16)> {
        let host = self.text(&format!("{end}-host")).parse().ok()?;
        Some((host, self.number(&format!("{end}-port"))))
    }
}

/// All SAs of the output.
pub(super) fn parse(output: &str) -> Vec<IkeSa> {
    let all = Section::read(&mut output.lines());
    let events = all.sections.iter().filter(|(name, _)| *name == "list-sa event");
    events.flat_map(|(_, event)| &event.sections).map(|(name, sa)| ike_sa(name, sa)).collect()
}

fn ike_sa(name: &str, section: &Section<'_>) -> IkeSa {
    let children = section.sections.iter().filter(|(name, _)| *name == "child-sas");
    IkeSa {
        connection: name.into(),
        id: section.number("uniqueid"),
        state: section.text("state"),
        local: section.address("local"),
        remote: section.address("remote"),
        children: children
            .flat_map(|(_, list)| &list.sections)
            .map(|(_, child)| child_sa(child))
            .collect(),
    }
}

fn child_sa(section: &Section<'_>) -> ChildSa {
    ChildSa {
        name: section.text("name"),
        id: section.number("uniqueid"),
        state: section.text("state"),
        mode: section.text("mode"),
        encap: section.flag("encap"),
        esn: section.number::<u8>("esn") != 0 || section.flag("esn"),
        encryption: section.text("encr-alg"),
        key_bits: section.number("encr-keysize"),
        integrity: section.text("integ-alg"),
        spi_in: section.hex("spi-in"),
        spi_out: section.hex("spi-out"),
        bytes_in: section.number("bytes-in"),
        packets_in: section.number("packets-in"),
        bytes_out: section.number("bytes-out"),
        packets_out: section.number("packets-out"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As strongSwan 5.9.8 printed it, shortened.
    const OUTPUT: &str = "\
list-sa event {
  c {
    uniqueid = 1
    state = ESTABLISHED
    local-host = 192.0.2.1
    local-port = 4500
    local-id = C=CH, O=strongSwan, CN=a.test
    remote-host = 2001:db8::2
    remote-port = 500
    child-sas {
      net-1 {
        name = net
        uniqueid = 1
        state = INSTALLED
        mode = TUNNEL
        encap = yes
        spi-in = 87f1c39d
        spi-out = 4a88f0d6
        encr-alg = AES_GCM_16
        encr-keysize = 128
        bytes-in = 420
        packets-in = 5
        local-ts = [
          10.1.0.0/24
        ]
      }
      net-2 {
        name = net
        state = REKEYED
      }
    }
  }
}
list-sa event {
  d {
    uniqueid = 2
    state = CONNECTING
  }
}
list-sas reply {
}
";

    #[test]
    fn sas_are_read_with_their_children() {
        let sas = parse(OUTPUT);
        let names: Vec<_> = sas.iter().map(|sa| sa.connection.as_str()).collect();
        assert_eq!(names, ["c", "d"]);
        assert_eq!(sas[0].local, Some(([192, 0, 2, 1].into(), 4500)));
        assert_eq!(sas[1].local, None);
        let [live, old] = &sas[0].children[..] else { panic!("{sas:?}") };
        assert!(live.is_installed() && live.encap && !live.esn && !old.is_installed());
        assert_eq!((live.spi_in, live.spi_out), (0x87f1_c39d, 0x4a88_f0d6));
        assert_eq!((live.bytes_in, live.packets_in, live.key_bits), (420, 5, 128));
    }

    #[test]
    fn output_that_breaks_off_is_no_reason_to_panic() {
        for end in 0..OUTPUT.len() {
            parse(&OUTPUT[..end]);
        }
        assert_eq!(parse("list-sas reply {\n}\n"), []);
    }
}
