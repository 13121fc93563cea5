//! Answers about rules and chains, read by the library.

use netlink_packet_core::{NLA_HEADER_SIZE, NlaBuffer, ParseableParametrized as _};
use netlink_packet_netfilter::{
    NetfilterMessage, NetfilterMessageInner, nftables::NfTablesMessage,
};

use super::{
    elements::{ELEMENT, within},
    transaction::Answer,
};

/// `NFT_MSG_NEWCHAIN` and `NFT_MSG_NEWRULE`, with the subsystem.
pub(super) const CHAIN: u16 = 0x0a03;
pub(super) const RULE: u16 = 0x0a06;
/// `NFTA_RULE_EXPRESSIONS`, `NFTA_EXPR_NAME`, `NFTA_EXPR_DATA`.
pub(super) const EXPRESSIONS: u16 = 4;
pub(super) const EXPRESSION_NAME: u16 = 1;
pub(super) const EXPRESSION_DATA: u16 = 2;
/// Expressions with constants, and the attributes that hold these (`NFTA_CMP_DATA`, `NFTA_BITWISE_MASK`,
/// `NFTA_BITWISE_XOR`, `NFTA_BITWISE_DATA`, `NFTA_IMMEDIATE_DATA`).
const CONSTANTS: [(&[u8], &[u16]); 3] =
    [(b"cmp", &[3]), (b"bitwise", &[4, 5, 7]), (b"immediate", &[2])];

impl Answer {
    /// Parses it, if it is of that kind and whole.
    pub(super) fn read(&self, kind: u16) -> Option<NfTablesMessage> {
        // Other kinds have constants in other places.
        if self.kind != kind || !self.constants_are_whole() {
            return None;
        }
        match NetfilterMessage::parse_with_param(&self.bytes, self.kind).ok()?.inner {
            NetfilterMessageInner::NfTables(message) => Some(message),
            _ => None,
        }
    }

    /// True if the constants in a rule are whole attributes. The library takes their lengths on trust, and panics.
    fn constants_are_whole(&self) -> bool {
        let lists = self.attributes(EXPRESSIONS);
        lists.flat_map(|list| within(list, ELEMENT)).all(|expression| {
            let names = within(expression, EXPRESSION_NAME);
            let names = names.map(|name| name.strip_suffix(&[0]).unwrap_or(name));
            let kinds = names.flat_map(|name| {
                CONSTANTS.iter().filter(move |(it, _)| *it == name).flat_map(|(_, kinds)| *kinds)
            });
            kinds.into_iter().all(|kind| {
                let mut constants =
                    within(expression, EXPRESSION_DATA).flat_map(|data| within(data, *kind));
                constants.all(is_whole)
            })
        })
    }
}

fn is_whole(attribute: &[u8]) -> bool {
    NlaBuffer::new_checked(attribute).is_ok_and(|nla| usize::from(nla.length()) >= NLA_HEADER_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let len = u16::try_from(4 + value.len()).unwrap();
        let mut bytes = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// A rule whose only expression has this constant.
    fn rule(name: &str, kind: u16, constant: &[u8]) -> Answer {
        let name = attribute(EXPRESSION_NAME, format!("{name}\0").as_bytes());
        let data = attribute(EXPRESSION_DATA, &attribute(kind, constant));
        let element = attribute(ELEMENT, &[name, data].concat());
        let named = [attribute(1, b"t\0"), attribute(2, b"c\0")].concat();
        let bytes = [&[1, 0, 0, 0], &named[..], &attribute(EXPRESSIONS, &element)].concat();
        Answer { kind: RULE, bytes }
    }

    #[test]
    fn a_rule_with_a_torn_constant_is_not_understood_and_no_panic() {
        for (name, kinds) in CONSTANTS {
            let name = std::str::from_utf8(name).unwrap();
            for kind in kinds {
                let whole = rule(name, *kind, &attribute(1, &[0; 4]));
                assert!(whole.read(RULE).is_some(), "{name} {kind}");
                assert!(whole.read(CHAIN).is_none(), "{name} {kind}");
                let torn: [&[u8]; 5] = [&[], &[8, 0], &[3, 0, 1, 0], &[8, 0, 1, 0, 0], &[0; 8]];
                for torn in torn {
                    assert!(rule(name, *kind, torn).read(RULE).is_none(), "{name} {kind} {torn:?}");
                }
            }
        }
    }
}
