//! Requests that make SAs, with everything a kernel checks before it looks for an algorithm.

use std::net::IpAddr;

use convoy_wire::Spi;

use crate::address::{self, Mode, SaProtocol};
use crate::algorithm::Transform;
use crate::attribute::{
    ALG_AEAD, ALG_AUTH, ALG_AUTH_TRUNC, ALG_COMP, ALG_CRYPT, Attributes, COADDR, ENCAP, IF_ID,
    IPTFS_DONT_FRAG, IPTFS_DROP_TIME, IPTFS_INIT_DELAY, IPTFS_MAX_QSIZE, IPTFS_PKT_SIZE,
    IPTFS_REORDER_WINDOW, MARK, MTIMER_THRESH, Others, SA_EXTRA_FLAGS, SA_PCPU, SEC_CTX, TFCPAD,
};
use crate::bytes::{Fields, Writer};
use crate::lifetime::{Failures, Limit, Limits, Usage};
use crate::mark::{Mark, SecurityContext};
use crate::refusal::Refusal;
use crate::replay::{Replay, ReplayEsn, SaState};
use crate::sa::{
    EXTRA_DONT_ENCAP_DSCP, EXTRA_OSEQ_MAY_WRAP, RawSaInfo, Sa, SaDirection, SaFlags, SaInfo,
};
use crate::selector::Selector;

/// `EINVAL` with these words, if `wrong`.
fn refuse_if(wrong: bool, text: &'static str) -> Result<(), Refusal> {
    if wrong { Err(Refusal::invalid(text)) } else { Ok(()) }
}

impl Sa {
    /// Reads a request to add or change an SA.
    ///
    /// # Errors
    /// `EINVAL` with a kernel's words, of several faults the one that a kernel names
    /// (`verify_newsa_info`).
    pub(crate) fn read_request(
        fixed: &[u8],
        mut attributes: Attributes<'_>,
    ) -> Result<Self, Refusal> {
        let mut raw = RawSaInfo::read(&mut Fields::new(fixed));
        raw.version()?;
        let family = raw.selector_family();
        raw.selector.family = family;
        match address::version(family) {
            Some(version) => raw.selector.check_prefixes(version)?,
            None => refuse_if(family != 0, "Invalid address family in selector")?,
        }
        check_protocol(&raw, &attributes)?;
        let transform = Transform::take(&mut attributes)?;
        let security = SecurityContext::take(&mut attributes)?;
        let direction = SaDirection::peek(&attributes);
        let state = SaState::take(&mut attributes)?;
        check_esn(&raw, state.replay_esn.as_ref(), direction)?;
        check_mode(&raw, direction)?;
        check_mapping(&attributes, direction)?;
        match direction {
            Some(SaDirection::Out) => check_outbound(&raw, &attributes, &state)?,
            Some(SaDirection::In) => check_inbound(&raw, &attributes)?,
            None => {
                let text = "SA_PCPU only supported with SA_DIR";
                refuse_if(attributes.has(SA_PCPU), text)?;
            }
        }
        let sa = Self { transform, security, state, ..Self::take_rest(raw.typed()?, attributes) };
        check_keepalive(&sa)?;
        check_window(&sa)?;
        Ok(sa)
    }
}

/// Checks that the attributes go with the protocol.
fn check_protocol(raw: &RawSaInfo, attributes: &Attributes<'_>) -> Result<(), Refusal> {
    let separate = [ALG_AUTH, ALG_AUTH_TRUNC, ALG_CRYPT];
    match raw.protocol()? {
        SaProtocol::Ah => {
            refuse_if(
                !attributes.any(&[ALG_AUTH, ALG_AUTH_TRUNC]),
                "Missing required attribute for AH: AUTH_TRUNC or AUTH",
            )?;
            refuse_if(
                attributes.any(&[ALG_AEAD, ALG_CRYPT, ALG_COMP, TFCPAD]),
                "Invalid attributes for AH: AEAD, CRYPT, COMP, TFCPAD",
            )
        }
        SaProtocol::Esp => {
            refuse_if(attributes.has(ALG_COMP), "Invalid attribute for ESP: COMP")?;
            refuse_if(
                !attributes.any(&separate) && !attributes.has(ALG_AEAD),
                "Missing required attribute for ESP: at least one of AUTH, AUTH_TRUNC, CRYPT, AEAD",
            )?;
            refuse_if(
                attributes.any(&separate) && attributes.has(ALG_AEAD),
                "Invalid attribute combination for ESP: AEAD can't be used with AUTH, AUTH_TRUNC, CRYPT",
            )?;
            refuse_if(
                attributes.has(TFCPAD) && raw.mode != Mode::Tunnel.number(),
                "TFC padding can only be used in tunnel mode",
            )?;
            let iptfs = [
                IPTFS_DROP_TIME,
                IPTFS_REORDER_WINDOW,
                IPTFS_DONT_FRAG,
                IPTFS_INIT_DELAY,
                IPTFS_MAX_QSIZE,
                IPTFS_PKT_SIZE,
            ];
            refuse_if(
                attributes.any(&iptfs) && raw.mode != Mode::IpTfs.number(),
                "IP-TFS options can only be used in IP-TFS mode",
            )
        }
        SaProtocol::Comp => {
            refuse_if(!attributes.has(ALG_COMP), "Missing required attribute for COMP: COMP")?;
            refuse_if(
                attributes.any(&separate) || attributes.any(&[ALG_AEAD, TFCPAD]),
                "Invalid attributes for COMP: AEAD, AUTH, AUTH_TRUNC, CRYPT, TFCPAD",
            )?;
            refuse_if(raw.spi >= 0x10000, "SPI is too large for COMP (must be < 0x10000)")
        }
        SaProtocol::Routing | SaProtocol::DestinationOptions => {
            refuse_if(
                attributes.any(&separate)
                    || attributes.any(&[ALG_COMP, ALG_AEAD, ENCAP, SEC_CTX, TFCPAD]),
                "Invalid attributes for DSTOPTS/ROUTING",
            )?;
            refuse_if(
                !attributes.has(COADDR),
                "Missing required COADDR attribute for DSTOPTS/ROUTING",
            )
        }
    }
}

/// Checks the fields that go with `XFRMA_REPLAY_ESN_VAL` (`verify_replay`).
fn check_esn(
    raw: &RawSaInfo,
    replay: Option<&ReplayEsn>,
    direction: Option<SaDirection>,
) -> Result<(), Refusal> {
    let Some(replay) = replay else {
        let text = "Missing required attribute for ESN";
        return refuse_if(raw.flags.any(SaFlags::ESN), text);
    };
    let protocol = raw.protocol()?;
    refuse_if(
        !matches!(protocol, SaProtocol::Esp | SaProtocol::Ah),
        "ESN only supported for ESP and AH",
    )?;
    refuse_if(raw.replay_window != 0, "ESN not compatible with legacy replay_window")?;
    let esn = raw.flags.any(SaFlags::ESN);
    match direction {
        Some(SaDirection::Out) => {
            refuse_if(replay.window != 0, "Replay window should be 0 for output SA")?;
            refuse_if(replay.received != 0, "Replay seq and seq_hi should be 0 for output SA")?;
            check_number(
                replay.sent,
                esn,
                [
                    "Replay oseq_hi should be 0 in non-ESN mode for output SA",
                    "Replay oseq should be less than 0xFFFFFFFF in non-ESN mode for output SA",
                    "Replay oseq and oseq_hi should be less than 0xFFFFFFFF for output SA",
                ],
            )?;
            refuse_if(!replay.bitmap.is_empty(), "Replay bmp_len should 0 for output SA")
        }
        Some(SaDirection::In) => {
            refuse_if(replay.sent != 0, "Replay oseq and oseq_hi should be 0 for input SA")?;
            check_number(
                replay.received,
                esn,
                [
                    "Replay seq_hi should be 0 in non-ESN mode for input SA",
                    "Replay seq should be less than 0xFFFFFFFF in non-ESN mode for input SA",
                    "Replay seq and seq_hi should be less than 0xFFFFFFFF for input SA",
                ],
            )
        }
        None => Ok(()),
    }
}

/// Checks that a sequence number has one that comes after it, and fits into 32 bits where it must.
fn check_number(number: u64, esn: bool, texts: [&'static str; 3]) -> Result<(), Refusal> {
    let [too_long, last, last_esn] = texts;
    if esn {
        return refuse_if(number == u64::MAX, last_esn);
    }
    refuse_if(number > u64::from(u32::MAX), too_long)?;
    refuse_if(number == u64::from(u32::MAX), last)
}

fn check_mode(raw: &RawSaInfo, direction: Option<SaDirection>) -> Result<(), Refusal> {
    if raw.mode()? == Mode::IpTfs {
        let esp = raw.protocol == SaProtocol::Esp.number();
        refuse_if(!esp, "IP-TFS mode only supported with ESP")?;
        refuse_if(direction.is_none(), "IP-TFS mode requires in or out direction attribute")?;
    }
    Ok(())
}

fn check_mapping(
    attributes: &Attributes<'_>,
    direction: Option<SaDirection>,
) -> Result<(), Refusal> {
    if attributes.has(MTIMER_THRESH) {
        let text = "MTIMER_THRESH attribute can only be set on ENCAP states";
        refuse_if(!attributes.has(ENCAP), text)?;
        let text = "MTIMER_THRESH attribute should not be set on output SA";
        refuse_if(direction == Some(SaDirection::Out), text)?;
    }
    Ok(())
}

fn check_outbound(
    raw: &RawSaInfo,
    attributes: &Attributes<'_>,
    state: &SaState,
) -> Result<(), Refusal> {
    refuse_if(
        raw.flags.any(SaFlags::DECAP_DSCP),
        "Flag DECAP_DSCP should not be set for output SA",
    )?;
    refuse_if(raw.flags.any(SaFlags::ICMP), "Flag ICMP should not be set for output SA")?;
    refuse_if(
        raw.flags.any(SaFlags::WILD_RECEIVE),
        "Flag WILDRECV should not be set for output SA",
    )?;
    refuse_if(raw.replay_window != 0, "Replay window should be 0 for output SA")?;
    refuse_if(attributes.has(IPTFS_DROP_TIME), "IP-TFS drop time should not be set for output SA")?;
    refuse_if(
        attributes.has(IPTFS_REORDER_WINDOW),
        "IP-TFS reorder window should not be set for output SA",
    )?;
    refuse_if(
        state.replay.is_some_and(|replay| replay.received != 0 || replay.bitmap != 0),
        "Replay seq and bitmap should be 0 for output SA",
    )
}

fn check_inbound(raw: &RawSaInfo, attributes: &Attributes<'_>) -> Result<(), Refusal> {
    refuse_if(
        raw.flags.any(SaFlags::NO_PMTU_DISCOVERY),
        "Flag NOPMTUDISC should not be set for input SA",
    )?;
    if let Some(extra) = attributes.get(SA_EXTRA_FLAGS).and_then(<[u8]>::first_chunk) {
        let extra = u32::from_ne_bytes(*extra);
        refuse_if(
            extra & EXTRA_DONT_ENCAP_DSCP != 0,
            "Flag DONT_ENCAP_DSCP should not be set for input SA",
        )?;
        refuse_if(
            extra & EXTRA_OSEQ_MAY_WRAP != 0,
            "Flag OSEQ_MAY_WRAP should not be set for input SA",
        )?;
    }
    for (number, text) in [
        (IPTFS_DONT_FRAG, "IP-TFS don't fragment should not be set for input SA"),
        (IPTFS_INIT_DELAY, "IP-TFS initial delay should not be set for input SA"),
        (IPTFS_MAX_QSIZE, "IP-TFS max queue size should not be set for input SA"),
        (IPTFS_PKT_SIZE, "IP-TFS packet size should not be set for input SA"),
    ] {
        refuse_if(attributes.has(number), text)?;
    }
    Ok(())
}

/// Of `__xfrm_init_state`, which a kernel comes to when it has the algorithms.
fn check_keepalive(sa: &Sa) -> Result<(), Refusal> {
    if sa.nat_keepalive != 0 {
        refuse_if(
            sa.direction != Some(SaDirection::Out),
            "NAT keepalive is only supported for outbound SAs",
        )?;
        refuse_if(
            sa.encap.is_none_or(|encap| encap.kind != 2),
            "NAT keepalive is only supported for UDP encapsulation",
        )?;
    }
    Ok(())
}

/// Of `xfrm_init_replay`, which a kernel comes to last.
fn check_window(sa: &Sa) -> Result<(), Refusal> {
    let Some(replay) = &sa.state.replay_esn else { return Ok(()) };
    let bits = u32::try_from(replay.bitmap.len()).unwrap_or(u32::MAX).saturating_mul(32);
    refuse_if(replay.window > bits, "ESN replay window is too large for the chosen bitmap size")?;
    refuse_if(
        sa.info.flags.any(SaFlags::ESN)
            && replay.window == 0
            && sa.direction != Some(SaDirection::Out),
        "ESN replay window must be > 0",
    )
}

/// A request for an SPI that nobody has (`struct xfrm_userspi_info`, 232 bytes). The answer is an SA
/// that has nothing but this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocSpi {
    /// The destination of the packets to come: this host.
    pub destination: IpAddr,
    /// Their source, of the same version.
    pub source: IpAddr,
    /// Their protocol: ESP, AH or IPComp.
    pub protocol: SaProtocol,
    /// The mode to come.
    pub mode: Mode,
    /// The number of the acquire event that it answers; 0 for none.
    pub seq: u32,
    /// The request number; 0 for none.
    pub reqid: u32,
    /// The lowest SPI wanted.
    pub min: u32,
    /// The highest SPI wanted; not below `min`.
    pub max: u32,
    /// The mark of the SA.
    pub mark: Mark,
    /// The XFRM interface; 0 for none.
    pub if_id: u32,
    /// Direction of the SA's packets.
    pub direction: Option<SaDirection>,
    /// The processor that it is for.
    pub cpu: Option<u32>,
    /// Attributes without a place here.
    pub others: Others,
}

impl AllocSpi {
    pub(crate) fn read(fixed: &[u8], mut attributes: Attributes<'_>) -> Result<Self, Refusal> {
        let mut fields = Fields::new(fixed);
        let raw = RawSaInfo::read(&mut fields);
        let (min, max) = (fields.u32(), fields.u32());
        let protocol = SaProtocol::from_number(raw.protocol)
            .filter(|protocol| protocol.is_ipsec())
            .ok_or(Refusal::invalid("Invalid protocol, must be one of AH, ESP, IPCOMP"))?;
        refuse_if(protocol == SaProtocol::Comp && max >= 0x10000, "IPCOMP SPI must be <= 65535")?;
        refuse_if(min > max, "Invalid SPI range: min > max")?;
        let info = raw.typed()?;
        Ok(Self {
            destination: info.destination,
            source: info.source,
            protocol,
            mode: info.mode,
            seq: info.seq,
            reqid: info.reqid,
            min,
            max,
            mark: Mark::take(&mut attributes, MARK),
            if_id: attributes.take_u32(IF_ID).unwrap_or_default(),
            direction: SaDirection::take(&mut attributes),
            cpu: attributes.take_u32(SA_PCPU),
            others: attributes.others(),
        })
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        SaInfo { seq: self.seq, ..self.info() }.write(to);
        to.u32(self.min);
        to.u32(self.max);
        self.mark.write(to, MARK);
        to.attribute_unless_zero(IF_ID, self.if_id);
        to.attribute_if(SA_PCPU, self.cpu);
        SaDirection::write(self.direction, to);
        self.others.write(to);
    }

    /// The SA that a kernel makes of it: a larval one, which has at most an SPI and nothing to work with,
    /// and which is gone after `seconds` unless it gets its keys (`xfrm_acq_expires`). `now` is the time in
    /// seconds since 1970.
    #[must_use]
    pub fn larval(&self, spi: Option<Spi>, seconds: u64, now: u64) -> Sa {
        let info = SaInfo {
            selector: Selector::any_but_showing(self.source, self.destination),
            spi,
            limits: Limits { add_seconds: Limit { soft: 0, hard: seconds }, ..Limits::NONE },
            usage: Usage { add_time: now, ..Usage::default() },
            ..self.info()
        };
        Sa {
            state: SaState { replay: Some(Replay::default()), ..SaState::default() },
            mark: self.mark,
            if_id: self.if_id,
            direction: self.direction,
            cpu: self.cpu,
            ..Sa::new(info)
        }
    }

    /// Fields that a larval SA and the request have alike.
    const fn info(&self) -> SaInfo {
        SaInfo {
            selector: Selector::ANY,
            destination: self.destination,
            source: self.source,
            spi: None,
            protocol: self.protocol,
            limits: Limits::NONE,
            usage: Usage { bytes: 0, packets: 0, add_time: 0, use_time: 0 },
            failures: Failures { replay_window: 0, replay: 0, integrity_failed: 0 },
            seq: 0,
            reqid: self.reqid,
            mode: self.mode,
            replay_window: 0,
            flags: SaFlags(0),
        }
    }
}
