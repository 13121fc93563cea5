//! Notes of a rule on a new flow whose source is changed, for a process that the packet is queued for: a queue shows
//! packets as they became, and few kernels say with them what they were.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{
    Bitwise, DataAttribute, Expressions, Meta, MetaKey, NfTablesMessage, Register, SetAttribute,
    SetDescription, SetFlags, SetMessage,
};

use super::{
    addresses::{IPV4_ADDRESS, IPV6_ADDRESS},
    elements,
    expression::{Expression, V4, V6, equal, meta},
    flow::{Bits, End, FlowDirection, address, number, other, source_port},
    transaction::{Nft, Order},
};
use crate::Refusal;

/// nft(8)'s numbers for ports and for marks, and by how many bits each part of a combination is shifted.
const PORT: u32 = 13;
const MARK: u32 = 19;
const COMBINED_BY: u32 = 6;
/// `NFTA_DYNSET_SET_NAME`, `NFTA_DYNSET_OP`, `NFTA_DYNSET_SREG_KEY`, `NFTA_DYNSET_SREG_DATA`, and `NFT_DYNSET_OP_ADD`.
pub(super) const SET_NAME: u16 = 1;
pub(super) const OPERATION: u16 = 3;
pub(super) const KEY_FROM: u16 = 4;
const DATA_FROM: u16 = 5;
pub(super) const ADD: u32 = 0;
/// The first register of four bytes, `NFT_REG32_00`. It has the key, and those behind it what the key leads to.
pub(super) const FIRST: u32 = 8;
/// Bytes of a register: ports take one, too.
pub(super) const WORD: usize = 4;
/// Notes there are at most; what finds no room is not noted, and its rule ends.
const MOST: u32 = 1 << 16;
/// Time that one stays, in milliseconds.
const STAYS: u64 = 2_000;

/// Notes about new flows of one IP version, by a number that the packet bears as its mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notes {
    /// Name of the map in the table.
    pub name: &'static str,
    /// The IP version.
    pub is_v4: bool,
}

/// Facts noted of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note {
    /// The source that the packet had.
    pub source: IpAddr,
    /// Its port, or the number of an ICMP message's flow; 0 for protocols without.
    pub port: u16,
    /// The source that it has now.
    pub shown: IpAddr,
    /// The mark that the packet had.
    pub mark: u32,
}

impl Notes {
    const fn address_len(self) -> usize {
        if self.is_v4 { 4 } else { 16 }
    }

    /// Two addresses, a port and a mark.
    const fn data_len(self) -> usize {
        2 * self.address_len() + 2 * WORD
    }

    /// Makes the map; `id` is a number that no other set of the transaction has.
    #[must_use]
    pub fn make(self, table: &str, id: u32) -> Order {
        let kind = if self.is_v4 { IPV4_ADDRESS } else { IPV6_ADDRESS };
        let data = [kind, PORT, kind, MARK].into_iter().fold(0, |all, it| all << COMBINED_BY | it);
        Order::make(NfTablesMessage::NewSet(SetMessage {
            attributes: vec![
                SetAttribute::Table(table.into()),
                SetAttribute::Name(self.name.into()),
                SetAttribute::Flags(SetFlags::Map | SetFlags::Timeout | SetFlags::Eval),
                SetAttribute::KeyType(MARK),
                SetAttribute::KeyLen(WORD as u32),
                SetAttribute::DataType(data),
                SetAttribute::DataLen(self.data_len() as u32),
                SetAttribute::Description(vec![SetDescription::Size(MOST)]),
                SetAttribute::Id(id),
                SetAttribute::Timeout(STAYS),
            ],
        }))
    }

    /// The packet is of the IP version.
    #[must_use]
    pub fn of_version(self) -> Vec<Expression> {
        vec![meta(MetaKey::Nfproto), equal(vec![if self.is_v4 { V4 } else { V6 }])]
    }

    /// Notes the flow of a packet [`Self::of_version`], and gives the packet the note's
    /// number for a mark, but for some bits, which are these.
    #[must_use]
    pub fn note(self, bits: Bits) -> Vec<Expression> {
        let [original, reply] = [FlowDirection::Original, FlowDirection::Reply];
        let words = (self.address_len() / WORD) as u32;
        let [source, port] = [FIRST + 1, FIRST + 1 + words];
        let [shown, mark] = [port + 1, port + 1 + words];
        vec![
            load(MetaKey::PseudoRandom, FIRST),
            combine(bits),
            address(original, End::Source, self.is_v4, source),
            source_port(original, port),
            address(reply, End::Destination, self.is_v4, shown),
            load(MetaKey::Mark, mark),
            other(
                "dynset",
                vec![
                    DefaultNla::new(SET_NAME, [self.name.as_bytes(), &[0]].concat()),
                    number(OPERATION, ADD),
                    number(KEY_FROM, FIRST),
                    number(DATA_FROM, FIRST + 1),
                ],
            ),
            Expressions::Meta(vec![
                Meta::Key(MetaKey::Mark),
                Meta::SourceRegister(Register::Reg32_00),
            ])
            .into(),
        ]
    }

    /// Reads the note under a number; none if nothing was noted, or too long ago.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn read(self, nft: &mut Nft, table: &str, number: u32) -> Result<Option<Note>, Refusal> {
        let key = number.to_ne_bytes().to_vec();
        match nft.get(elements::question_of(table, self.name, key)) {
            Err(Refusal { errno: nix::libc::ENOENT, .. }) => Ok(None),
            answer => Ok(answer?.as_ref().and_then(elements::data).and_then(|it| self.parse(it))),
        }
    }

    fn parse(self, data: &[u8]) -> Option<Note> {
        let (source, rest) = data.split_at_checked(self.address_len())?;
        let (port, rest) = rest.split_first_chunk::<WORD>()?;
        let (shown, mark) = rest.split_at_checked(self.address_len())?;
        let [high, low, ..] = *port;
        Some(Note {
            source: ip(source)?,
            port: u16::from_be_bytes([high, low]),
            shown: ip(shown)?,
            mark: u32::from_ne_bytes(*mark.first_chunk()?),
        })
    }
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match <[u8; 4]>::try_from(bytes) {
        Ok(v4) => Some(Ipv4Addr::from(v4).into()),
        Err(_) => <[u8; 16]>::try_from(bytes).ok().map(|v6| Ipv6Addr::from(v6).into()),
    }
}

pub(super) fn load(key: MetaKey, register: u32) -> Expression {
    /// `NFTA_META_DREG`, `NFTA_META_KEY`.
    const TO: u16 = 1;
    const KEY: u16 = 2;
    other("meta", vec![number(TO, register), number(KEY, key.into())])
}

/// Gives the first register these bits.
fn combine(bits: Bits) -> Expression {
    let bytes = |value: u32| DataAttribute::Value(value.to_ne_bytes().to_vec());
    Expressions::Bitwise(vec![
        Bitwise::SourceRegister(Register::Reg32_00),
        Bitwise::DestinationRegister(Register::Reg32_00),
        Bitwise::Length(WORD as u32),
        Bitwise::Mask(bytes(!bits.mask)),
        Bitwise::Xor(bytes(bits.value & bits.mask)),
    ])
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_registers_lie_in_it() {
        let notes = Notes { name: "n", is_v4: true };
        let data =
            [&[192, 168, 7, 2][..], &[0x12, 0x34, 0, 0], &[10, 1, 0, 77], &7_u32.to_ne_bytes()];
        let note = notes.parse(&data.concat()).unwrap();
        assert_eq!(note.source, IpAddr::from([192, 168, 7, 2]));
        assert_eq!((note.port, note.shown, note.mark), (0x1234, [10, 1, 0, 77].into(), 7));
        for cut in 0..16 {
            assert_eq!(notes.parse(&data.concat()[..cut]), None);
        }
        let notes = Notes { name: "n", is_v4: false };
        assert_eq!(notes.parse(&[1; 40]).map(|note| note.port), Some(0x101));
        assert_eq!(notes.parse(&[1; 39]), None);
    }
}
