//! Codec of the XFRM netlink protocol, in which IKE daemons and `ip xfrm` program Linux' IPsec.
//!
//! This crate knows messages and nothing else: it has no sockets, keeps no state and has no `unsafe`.
//! Both sides are here. A server in a kernel's place reads [`Request`]s and answers with [`Reply`]s,
//! [`Sa::answer`] and [`Acknowledgement::build`]; a client, or a test, goes the other way.
//!
//! * **What is parsed makes sense.** Families, modes, protocols and combinations of attributes were
//!   checked in a kernel's order, and a request that a kernel would refuse for what it says is a
//!   [`Refusal`] with that kernel's error number, words and offset (`net/xfrm/xfrm_user.c` of
//!   Linux 6.18). What depends on which SAs, policies and algorithms there are is left to the server.
//! * **Nothing is ignored in silence.** Attributes without a place in a message are kept by number
//!   ([`Others`]), so that a server can refuse what might narrow or widen protection.
//! * **Keys** ([`Key`]) lie in memory that is wiped, and are never printed, copied or compared.
//!   [`Datagram`]s that were built and [`Received`] ones are wiped as well.
//! * **Memory is bounded** by the datagram: at most six templates, 128 words of bitmap, keys of
//!   [`KEY_BITS_MAX`].
//!
//! Numbers on netlink are in host byte order, addresses, ports and SPIs in network byte order; all
//! fields here are host-order numbers or types of their own. The layout is that of 64-bit systems.
//!
//! ```
//! use convoy_xfrm::{AckOptions, Acknowledgement, Errno, Flags, Messages, Request, SaDump};
//!
//! // `ip xfrm state` asks for all SAs.
//! let asked = Request::DumpSa(SaDump::default()).build(1, Flags::default());
//! let message = Messages::new(asked.as_bytes()).next().expect("one message");
//! assert!(matches!(Request::parse(&message), Ok(Some(Request::DumpSa(_)))));
//!
//! // A message of a kind that there is not is refused as a kernel would.
//! let mut bytes = asked.as_bytes().to_vec();
//! bytes[4] = 0x29;
//! let message = Messages::new(&bytes).next().expect("one message");
//! let refusal = Request::parse(&message).expect_err("no such kind");
//! assert_eq!(refusal.errno, Errno::EINVAL);
//! let answer = Acknowledgement::build(&message, Err(&refusal), 0, AckOptions::default());
//! assert_eq!(answer.as_bytes().len(), 16 + 4 + 16);
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used
    )
)]

mod acknowledgement;
mod address;
mod algorithm;
mod attribute;
mod bytes;
mod database;
mod event;
mod header;
mod lifetime;
mod mark;
pub mod names;
mod policy;
mod refusal;
mod replay;
mod reply;
mod request;
mod sa;
mod sa_key;
mod sa_request;
mod selector;
mod template;

pub use acknowledgement::{AckOptions, Acknowledgement};
pub use address::{Mode, ProtocolFilter, SaProtocol};
pub use algorithm::{Aead, Algorithm, AlgorithmName, Integrity, KEY_BITS_MAX, Key, Transform};
pub use attribute::{Others, attribute_name, leftover};
pub use bytes::{Datagram, Received};
pub use database::{
    DefaultAction, Defaults, FlushPolicy, FlushSa, HashThreshold, InfoQuery, SadInfo, SetSpdInfo,
    SpdInfo,
};
pub use event::{Acquire, Expire, Group, Mapping, PolicyExpire};
pub use header::{DATAGRAM_MAX, Flags, HEADER_LEN, Header, Kind, Message, Messages};
pub use lifetime::{Failures, Limit, Limits, Usage};
pub use mark::{Mark, SecurityContext};
pub use policy::{
    Action, Policy, PolicyDeleted, PolicyDirection, PolicyInfo, PolicyKey, PolicyName, PolicyType,
    Share,
};
pub use refusal::{Errno, Refusal};
pub use replay::{AsyncEvent, Replay, ReplayEsn, SaState};
pub use reply::{Address, Reply};
pub use request::Request;
pub use sa::{
    EXTRA_DONT_ENCAP_DSCP, EXTRA_OSEQ_MAY_WRAP, Encap, Offload, Sa, SaDeleted, SaDirection,
    SaFlags, SaInfo,
};
pub use sa_key::{AddressFilter, SaDump, SaKey, SaQuery};
pub use sa_request::AllocSpi;
pub use selector::{Addresses, Network, PortMask, Selector};
pub use template::{TEMPLATES_MAX, Template};
