//! SAs: their terms, and everything a message says of one.

use std::net::IpAddr;

use convoy_wire::{IpVersion, Spi};

use crate::address::{self, Mode, RawAddress, SaProtocol};
use crate::algorithm::Transform;
use crate::attribute::{
    Attributes, COADDR, ENCAP, IF_ID, LASTUSED, MARK, MTIMER_THRESH, NAT_KEEPALIVE_INTERVAL,
    OFFLOAD_DEV, Others, SA, SA_DIR, SA_EXTRA_FLAGS, SA_PCPU, SET_MARK, SET_MARK_MASK, TFCPAD,
};
use crate::bytes::{Fields, Writer};
use crate::lifetime::{Failures, Limits, Usage};
use crate::mark::{Mark, SecurityContext};
use crate::refusal::{Errno, Refusal};
use crate::replay::SaState;
use crate::sa_key::SaKey;
use crate::selector::{RawSelector, Selector};

/// Direction of an SA's packets: `XFRM_SA_DIR_*`. Older daemons do not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SaDirection {
    /// 1: it opens packets.
    In,
    /// 2: it seals packets.
    Out,
}

impl SaDirection {
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::In => 1,
            Self::Out => 2,
        }
    }

    pub(crate) fn peek(attributes: &Attributes<'_>) -> Option<Self> {
        match attributes.get(SA_DIR)? {
            [1] => Some(Self::In),
            _ => Some(Self::Out),
        }
    }

    pub(crate) fn take(attributes: &mut Attributes<'_>) -> Option<Self> {
        let direction = Self::peek(attributes);
        let _ = attributes.take(SA_DIR);
        direction
    }

    pub(crate) fn write(direction: Option<Self>, to: &mut Writer) {
        if let Some(direction) = direction {
            to.attribute(SA_DIR, |to| to.u8(direction.number()));
        }
    }
}

/// Bits of an SA's `flags`: `XFRM_STATE_*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SaFlags(pub u8);

impl SaFlags {
    /// Congestion marks are not carried between the headers (RFC 6040).
    pub const NO_ECN: Self = Self(1);
    /// The DSCP of the outer header is copied to the inner one on arrival.
    pub const DECAP_DSCP: Self = Self(2);
    /// The outer header does not have the inner one's Don't Fragment.
    pub const NO_PMTU_DISCOVERY: Self = Self(4);
    /// Packets from any address are taken.
    pub const WILD_RECEIVE: Self = Self(8);
    /// ICMP errors about its packets are taken.
    pub const ICMP: Self = Self(16);
    /// Packets of either version may go through the tunnel: a selector without a family stays so.
    pub const AF_UNSPEC: Self = Self(32);
    /// AH aligns to 4 bytes also with IPv6.
    pub const ALIGN4: Self = Self(64);
    /// Extended sequence numbers (RFC 4303 2.2.1).
    pub const ESN: Self = Self(128);

    /// True if any bit of `other` is set.
    #[must_use]
    pub const fn any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// `extra_flags` bit: the outer header's DSCP is 0 rather than the inner one's.
pub const EXTRA_DONT_ENCAP_DSCP: u32 = 1;
/// `extra_flags` bit: the sequence counter may start again at 0.
pub const EXTRA_OSEQ_MAY_WRAP: u32 = 2;

/// `struct xfrm_usersa_info`: 224 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SaInfo {
    /// Packets that may use it.
    pub selector: Selector,
    /// The destination of its packets' outer header.
    pub destination: IpAddr,
    /// The source of its packets' outer header, of the same version.
    pub source: IpAddr,
    /// Its SPI; `None` while it has none.
    pub spi: Option<Spi>,
    /// Its protocol.
    pub protocol: SaProtocol,
    /// Bounds of its lifetime.
    pub limits: Limits,
    /// Its counters and times so far; ignored in requests, where [`SaState::usage`] counts.
    pub usage: Usage,
    /// Packets that it dropped, by cause; ignored in requests.
    pub failures: Failures,
    /// The number of the acquire event that it answers; 0 for none. It goes back and forth as it is;
    /// iproute2 shows and takes it in network byte order.
    pub seq: u32,
    /// The request number that it shares with policies' templates; 0 for none.
    pub reqid: u32,
    /// Its mode.
    pub mode: Mode,
    /// The replay window in packets, up to 32; 0 for none, or when [`SaState::replay_esn`] gives it.
    pub replay_window: u8,
    /// Flags.
    pub flags: SaFlags,
}

impl SaInfo {
    pub(crate) const fn version(&self) -> IpVersion {
        IpVersion::of_addr(self.destination)
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        self.selector.write(to);
        to.address(self.destination);
        to.be32(self.spi.map_or(0, Spi::get));
        to.u8(self.protocol.number());
        to.zeros::<3>();
        to.address(self.source);
        self.limits.write(to);
        self.usage.write(to);
        self.failures.write(to);
        to.u32(self.seq);
        to.u32(self.reqid);
        to.u16(address::family(Some(self.version())));
        to.u8(self.mode.number());
        to.u8(self.replay_window);
        to.u8(self.flags.0);
        to.zeros::<7>();
    }
}

/// `struct xfrm_usersa_info` with its numbers as they came.
#[derive(Clone, Copy)]
pub(crate) struct RawSaInfo {
    pub(crate) selector: RawSelector,
    destination: RawAddress,
    pub(crate) spi: u32,
    pub(crate) protocol: u8,
    source: RawAddress,
    limits: Limits,
    usage: Usage,
    failures: Failures,
    seq: u32,
    reqid: u32,
    pub(crate) family: u16,
    pub(crate) mode: u8,
    pub(crate) replay_window: u8,
    pub(crate) flags: SaFlags,
}

impl RawSaInfo {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Self {
        let selector = RawSelector::read(fields);
        let destination = fields.array();
        let (spi, protocol) = (fields.be32(), fields.u8());
        fields.skip::<3>();
        let source = fields.array();
        let (limits, usage, failures) =
            (Limits::read(fields), Usage::read(fields), Failures::read(fields));
        let (seq, reqid, family) = (fields.u32(), fields.u32(), fields.u16());
        let (mode, replay_window, flags) = (fields.u8(), fields.u8(), SaFlags(fields.u8()));
        fields.skip::<7>();
        Self {
            selector,
            destination,
            spi,
            protocol,
            source,
            limits,
            usage,
            failures,
            seq,
            reqid,
            family,
            mode,
            replay_window,
            flags,
        }
    }

    /// A selector without a family has the SA's, unless the SA says that it shall have none.
    pub(crate) fn selector_family(&self) -> u16 {
        match self.selector.family {
            0 if !self.flags.any(SaFlags::AF_UNSPEC) => self.family,
            family => family,
        }
    }

    pub(crate) fn version(&self) -> Result<IpVersion, Refusal> {
        address::version(self.family).ok_or_else(|| Refusal::invalid("Invalid address family"))
    }

    pub(crate) fn protocol(&self) -> Result<SaProtocol, Refusal> {
        SaProtocol::from_number(self.protocol)
            .ok_or_else(|| Refusal::invalid("Unsupported protocol"))
    }

    /// The mode of an SA; one of Mobile IPv6's is only for templates.
    pub(crate) fn mode(&self) -> Result<Mode, Refusal> {
        match Mode::from_number(self.mode) {
            Some(Mode::InTrigger) | None => Err(Refusal::invalid("Unsupported mode")),
            Some(mode) => Ok(mode),
        }
    }

    /// # Errors
    /// `EINVAL` for a family, protocol or mode that there is not.
    pub(crate) fn typed(&self) -> Result<SaInfo, Refusal> {
        let version = self.version()?;
        Ok(SaInfo {
            selector: self.selector.typed(),
            destination: address::address(version, self.destination),
            source: address::address(version, self.source),
            spi: Spi::new(self.spi),
            protocol: self.protocol()?,
            limits: self.limits,
            usage: self.usage,
            failures: self.failures,
            seq: self.seq,
            reqid: self.reqid,
            mode: self.mode()?,
            replay_window: self.replay_window,
            flags: self.flags,
        })
    }
}

/// UDP encapsulation: `struct xfrm_encap_tmpl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Encap {
    /// 1: of old drafts; 2: RFC 3948; 7: TCP (RFC 8229).
    pub kind: u16,
    /// The source port of its packets.
    pub source_port: u16,
    /// The destination port of its packets.
    pub destination_port: u16,
    /// The peer's address before translation, for the checksums of transport mode; unspecified when
    /// nobody knows.
    pub original: IpAddr,
}

/// A device that is asked to do the work: `struct xfrm_user_offload`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Offload {
    /// The number of the interface.
    pub interface: i32,
    /// 2: an inbound SA; 4: the whole packet's way and not only its cipher.
    pub flags: u8,
}

impl Offload {
    /// `XFRM_OFFLOAD_IPV6` and `XFRM_OFFLOAD_INBOUND`: which SA it is. `XFRM_OFFLOAD_PACKET`.
    const KIND: u8 = 1 | 2;
    const PACKET: u8 = 4;

    /// True if the device is to have the packet's whole way. Of its cipher alone, software does the work where a device
    /// cannot.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        self.flags & Self::PACKET != 0
    }

    /// True if it has no flags but those of Linux.
    #[must_use]
    pub const fn is_known(self) -> bool {
        self.flags & !(Self::KIND | Self::PACKET) == 0
    }

    pub(crate) fn take(attributes: &mut Attributes<'_>) -> Option<Self> {
        let mut fields = Fields::new(attributes.take(OFFLOAD_DEV)?);
        Some(Self { interface: fields.i32(), flags: fields.u8() })
    }

    pub(crate) fn write(offload: Option<Self>, to: &mut Writer) {
        if let Some(Self { interface, flags }) = offload {
            to.attribute(OFFLOAD_DEV, |to| {
                to.i32(interface);
                to.u8(flags);
                to.zeros::<3>();
            });
        }
    }
}

/// An SA: `NEWSA` and `UPDSA`, as request, answer and event.
///
/// It cannot be cloned, because its keys cannot.
#[derive(Debug)]
pub struct Sa {
    /// Identity, selector, limits.
    pub info: SaInfo,
    /// Algorithms and keys.
    pub transform: Transform,
    /// Sequence numbers and counters to go on from, and how often events tell of them.
    pub state: SaState,
    /// UDP encapsulation.
    pub encap: Option<Encap>,
    /// The care-of address of Mobile IPv6.
    pub care_of: Option<IpAddr>,
    /// A label that narrows it.
    pub security: Option<SecurityContext>,
    /// The length that packets are padded to (RFC 4303 2.7), in bytes of the outer packet. 0, with
    /// which kernels do not pad, is kept apart from none, because it is refused in the same places.
    pub tfc_padding: Option<u32>,
    /// More flags, see [`EXTRA_DONT_ENCAP_DSCP`].
    pub extra_flags: u32,
    /// The mark of packets that may use it.
    pub mark: Mark,
    /// The mark its packets get.
    pub output_mark: Mark,
    /// The XFRM interface it belongs to; 0 for none.
    pub if_id: u32,
    /// The device that is to do the work.
    pub offload: Option<Offload>,
    /// Direction of its packets, where it is said.
    pub direction: Option<SaDirection>,
    /// Seconds without a packet after which a NAT keepalive is sent; 0 for never.
    pub nat_keepalive: u32,
    /// The processor that it is for (RFC 9611).
    pub cpu: Option<u32>,
    /// Seconds before another event may tell of a changed address; 0 for the usual.
    pub mapping_threshold: Option<u32>,
    /// Time of its last use, in seconds since 1970; only in answers.
    pub last_used: Option<u64>,
    /// Attributes without a place here.
    pub others: Others,
}

impl Sa {
    /// An SA with nothing but its fixed part.
    #[must_use]
    pub fn new(info: SaInfo) -> Self {
        Self {
            info,
            transform: Transform::None,
            state: SaState::default(),
            encap: None,
            care_of: None,
            security: None,
            tfc_padding: None,
            extra_flags: 0,
            mark: Mark::default(),
            output_mark: Mark::default(),
            if_id: 0,
            offload: None,
            direction: None,
            nat_keepalive: 0,
            cpu: None,
            mapping_threshold: None,
            last_used: None,
            others: Others::default(),
        }
    }

    /// Reads an answer or event.
    pub(crate) fn read(fixed: &[u8], mut attributes: Attributes<'_>) -> Result<Self, Refusal> {
        let info = RawSaInfo::read(&mut Fields::new(fixed)).typed()?;
        let transform = Transform::take(&mut attributes)?;
        let security = SecurityContext::take(&mut attributes)?;
        let state = SaState::take(&mut attributes)?;
        Ok(Self { transform, security, state, ..Self::take_rest(info, attributes) })
    }

    /// Takes what cannot be wrong, and leaves what was taken before.
    pub(crate) fn take_rest(info: SaInfo, mut attributes: Attributes<'_>) -> Self {
        let version = info.version();
        let encap = attributes.take(ENCAP).map(|payload| {
            let mut fields = Fields::new(payload);
            let kind = fields.u16();
            let (source_port, destination_port) = (fields.be16(), fields.be16());
            fields.skip::<2>();
            Encap { kind, source_port, destination_port, original: fields.address(version) }
        });
        let address = |payload| Fields::new(payload).address(version);
        // A mask says nothing without a mark.
        let output_mark = match attributes.take_u32(SET_MARK) {
            Some(value) => {
                Mark { value, mask: attributes.take_u32(SET_MARK_MASK).unwrap_or(u32::MAX) }
            }
            None => Mark::default(),
        };
        let last_used = attributes.take(LASTUSED).and_then(|payload| payload.first_chunk());
        Self {
            encap,
            care_of: attributes.take(COADDR).map(address),
            tfc_padding: attributes.take_u32(TFCPAD),
            extra_flags: attributes.take_u32(SA_EXTRA_FLAGS).unwrap_or_default(),
            mark: Mark::take(&mut attributes, MARK),
            output_mark,
            if_id: attributes.take_u32(IF_ID).unwrap_or_default(),
            offload: Offload::take(&mut attributes),
            direction: SaDirection::take(&mut attributes),
            nat_keepalive: attributes.take_u32(NAT_KEEPALIVE_INTERVAL).unwrap_or_default(),
            cpu: attributes.take_u32(SA_PCPU),
            mapping_threshold: attributes.take_u32(MTIMER_THRESH),
            last_used: last_used.copied().map(u64::from_ne_bytes),
            others: attributes.others(),
            ..Self::new(info)
        }
    }

    /// `answer`: as a kernel writes it.
    pub(crate) fn write(&self, to: &mut Writer, answer: bool) {
        self.info.write(to);
        self.write_attributes(to, answer);
    }

    /// In the order of a kernel (`copy_to_user_state_extra`).
    pub(crate) fn write_attributes(&self, to: &mut Writer, answer: bool) {
        to.attribute_unless_zero(SA_EXTRA_FLAGS, self.extra_flags);
        if let Some(care_of) = self.care_of {
            to.attribute(COADDR, |to| to.address(care_of));
        }
        if let Some(last_used) = self.last_used {
            to.attribute(LASTUSED, |to| to.u64(last_used));
        }
        self.transform.write(to, answer);
        if let Some(encap) = &self.encap {
            to.attribute(ENCAP, |to| {
                to.u16(encap.kind);
                to.be16(encap.source_port);
                to.be16(encap.destination_port);
                to.zeros::<2>();
                to.address(encap.original);
            });
        }
        to.attribute_if(TFCPAD, self.tfc_padding);
        self.mark.write(to, MARK);
        if self.output_mark != Mark::default() {
            to.attribute_u32(SET_MARK, self.output_mark.value);
            to.attribute_u32(SET_MARK_MASK, self.output_mark.mask);
        }
        self.state.write(to);
        Offload::write(self.offload, to);
        to.attribute_unless_zero(IF_ID, self.if_id);
        if let Some(security) = &self.security {
            security.write(to);
        }
        to.attribute_if(MTIMER_THRESH, self.mapping_threshold);
        to.attribute_if(SA_PCPU, self.cpu);
        SaDirection::write(self.direction, to);
        to.attribute_unless_zero(NAT_KEEPALIVE_INTERVAL, self.nat_keepalive);
        self.others.write(to);
    }

    /// Its identity, as requests give it.
    #[must_use]
    pub const fn key(&self) -> SaKey {
        SaKey {
            destination: self.info.destination,
            spi: self.info.spi,
            protocol: self.info.protocol,
            source: None,
            mark: self.mark,
            if_id: self.if_id,
        }
    }
}

/// The event that an SA went.
#[derive(Debug)]
pub struct SaDeleted {
    /// All of it.
    pub sa: Box<Sa>,
}

impl SaDeleted {
    pub(crate) fn read(mut attributes: Attributes<'_>) -> Result<Self, Refusal> {
        let info = attributes.take(SA).ok_or_else(|| Refusal::bare(Errno::EINVAL))?;
        Ok(Self { sa: Box::new(Sa::read(info, attributes)?) })
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        self.sa.key().write_id(to);
        to.attribute(SA, |to| self.sa.info.write(to));
        self.sa.write_attributes(to, true);
    }
}
