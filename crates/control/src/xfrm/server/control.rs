//! Messages of the preloaded library beside XFRM's, and the answers to it
//! (`docs/xfrm-socket.md`).

use convoy_host::Mark;
use convoy_xfrm::{AckOptions, Flags, HEADER_LEN, Message};

/// The version of the protocol.
const VERSION: u32 = 1;

const OVERRUN: u16 = 4;
const BIND: u16 = 5;
const MEMBERSHIP: u16 = 6;
const OPTION: u16 = 7;
const STEER: u16 = 8;
const MARK: u16 = 9;

/// In [`BIND`]: the socket belonged to a server that went.
const RESUMED: u32 = 1;
/// `NETLINK_CAP_ACK`.
const CAP_ACK: u32 = 10;
/// `NETLINK_EXT_ACK`.
const EXT_ACK: u32 = 11;

/// A message of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    /// The socket's address.
    Bind {
        port: u32,
        /// A mask, group 1 in bit 0.
        groups: u32,
        resumed: bool,
    },
    /// A group, as its bit in the mask, is joined or left.
    Membership { group: u32, joins: bool },
    /// A switch of `SOL_NETLINK`.
    Switch { number: u32, on: bool },
    /// A UDP socket that came along is handed over: the value of `UDP_ENCAP`.
    Steer(u32),
    /// The library asks which mark exempts sockets from policies.
    Mark,
    /// A message that no library of this version sends.
    Unknown,
}

impl Control {
    /// Reads a message that fills its datagram. `None` is for whoever stands behind the socket.
    pub(super) fn read(message: &Message<'_>) -> Option<Self> {
        let header = message.header();
        if !matches!(header.number, BIND..=MARK) || !header.flags.any(Flags::REQUEST) {
            return None;
        }
        let body = message.as_bytes().get(HEADER_LEN..).unwrap_or_default();
        let (words, rest) = body.as_chunks::<4>();
        let mut numbers = [0; 4];
        for (number, word) in numbers.iter_mut().zip(words) {
            *number = u32::from_ne_bytes(*word);
        }
        let [first, second, third, fourth] = numbers;
        Some(match (header.number, words.len()) {
            _ if !rest.is_empty() => Self::Unknown,
            (BIND, 4) if first == VERSION => {
                Self::Bind { port: second, groups: third, resumed: fourth & RESUMED != 0 }
            }
            (MEMBERSHIP, 2) => {
                // A kernel has no more than these.
                let bit = first.checked_sub(1).and_then(|at| 1_u32.checked_shl(at));
                Self::Membership { group: bit.unwrap_or_default(), joins: second != 0 }
            }
            (OPTION, 2) => Self::Switch { number: first, on: second != 0 },
            (STEER, 1) => Self::Steer(first),
            (MARK, 0) => Self::Mark,
            _ => Self::Unknown,
        })
    }
}

/// Sets an option that matters here; the others change nothing.
pub(super) fn switch(options: &mut AckOptions, number: u32, on: bool) {
    match number {
        CAP_ACK => options.capped = on,
        EXT_ACK => options.extended = on,
        _ => {}
    }
}

/// The message that events were lost.
pub(super) fn overrun(port: u32) -> Vec<u8> {
    said(OVERRUN, port, &[])
}

/// The answer to [`Control::Mark`].
pub(super) fn mark(port: u32, Mark { value, mask }: Mark) -> Vec<u8> {
    said(MARK, port, &[value, mask])
}

fn said(kind: u16, port: u32, numbers: &[u32]) -> Vec<u8> {
    let len = HEADER_LEN.saturating_add(size_of_val(numbers));
    let mut bytes = u32::try_from(len).unwrap_or_default().to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(Flags::REQUEST.0.to_ne_bytes());
    bytes.extend([0_u32, port].iter().chain(numbers).flat_map(|number| number.to_ne_bytes()));
    bytes
}

#[cfg(test)]
mod tests {
    use convoy_xfrm::Messages;

    use super::*;

    /// As `docs/xfrm-socket.md` has it.
    fn message(kind: u16, numbers: &[u32]) -> Vec<u8> {
        let len = u32::try_from(16 + 4 * numbers.len()).unwrap();
        let mut bytes = len.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(1_u16.to_ne_bytes());
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend(7_u32.to_ne_bytes());
        bytes.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Control> {
        Control::read(&Messages::new(bytes).next().unwrap())
    }

    fn told(kind: u16, numbers: &[u32]) -> Option<Control> {
        read(&message(kind, numbers))
    }

    #[test]
    fn what_the_library_says_is_understood() {
        let bind = told(5, &[1, 12, 3, 1]);
        assert_eq!(bind, Some(Control::Bind { port: 12, groups: 3, resumed: true }));
        let bind = told(5, &[1, 12, 0, 0]);
        assert_eq!(bind, Some(Control::Bind { port: 12, groups: 0, resumed: false }));
        assert_eq!(told(6, &[2, 1]), Some(Control::Membership { group: 2, joins: true }));
        let leaves = told(6, &[32, 0]);
        assert_eq!(leaves, Some(Control::Membership { group: 1 << 31, joins: false }));
        assert_eq!(told(7, &[11, 1]), Some(Control::Switch { number: 11, on: true }));
        assert_eq!(told(8, &[2]), Some(Control::Steer(2)));
        assert_eq!(told(9, &[]), Some(Control::Mark));
        assert_eq!(overrun(7), message(4, &[]));
        assert_eq!(mark(7, Mark { value: 3, mask: 15 }), message(9, &[3, 15]));
    }

    #[test]
    fn what_it_does_not_say_is_no_message_of_its() {
        for group in [0, 33, u32::MAX] {
            let far = told(6, &[group, 1]);
            assert_eq!(far, Some(Control::Membership { group: 0, joins: true }), "{group}");
        }
        assert_eq!(told(5, &[2, 12, 3, 0]), Some(Control::Unknown));
        assert_eq!(told(5, &[1, 12, 3]), Some(Control::Unknown));
        assert_eq!(told(5, &[1, 12, 3, 0, 0]), Some(Control::Unknown));
        assert_eq!(told(8, &[]), Some(Control::Unknown));
        assert_eq!(told(4, &[]), None);
        assert_eq!(told(9, &[1]), Some(Control::Unknown));
        assert_eq!(told(10, &[]), None);
        let mut torn = message(8, &[2]);
        torn[6] = 0;
        assert_eq!(read(&torn), None, "it is no request");
        torn[6] = 1;
        torn[0] += 1;
        torn.push(0);
        assert_eq!(read(&torn), Some(Control::Unknown));
    }

    #[test]
    fn two_switches_matter() {
        let mut options = AckOptions::default();
        for number in 0..64 {
            switch(&mut options, number, true);
        }
        assert_eq!(options, AckOptions { capped: true, extended: true });
        switch(&mut options, 11, false);
        assert_eq!(options, AckOptions { capped: true, extended: false });
    }
}
