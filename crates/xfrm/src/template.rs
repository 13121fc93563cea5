//! Templates: what SA a policy's packets need.

use std::net::IpAddr;

use convoy_wire::{IpVersion, Spi};

use crate::address::{self, Mode, SaProtocol};
use crate::attribute::{Attributes, TMPL};
use crate::bytes::{Fields, Writer};
use crate::policy::{PolicyDirection, Share};
use crate::refusal::Refusal;

/// The most templates a policy may have (`XFRM_MAX_DEPTH`).
pub const TEMPLATES_MAX: usize = 6;

const TEMPLATE_LEN: usize = 64;

/// One step of what is done to a policy's packets: `struct xfrm_user_tmpl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Template {
    /// The protocol.
    pub protocol: SaProtocol,
    /// The SPI of the SA; `None` for any, as `reqid` says.
    pub spi: Option<Spi>,
    /// The SA's source address; unspecified in transport mode and for any.
    pub source: IpAddr,
    /// The SA's destination address, of the same version.
    pub destination: IpAddr,
    /// The request number that SA and policy share; 0 for any.
    pub reqid: u32,
    /// The mode of the SA.
    pub mode: Mode,
    /// Scope in which the SA is shared; kernels do not look at it.
    pub share: Share,
    /// True if packets may also do without, as incoming ones that were not worth compressing.
    pub optional: bool,
    /// Integrity algorithms, ciphers and compressions that may be used: one bit for each PF_KEY
    /// number, all ones for any.
    pub algorithms: [u32; 3],
}

impl Template {
    /// Takes the templates of a message. `selector` is the version of the policy's packets, and the
    /// outermost meaning of a template without a family.
    ///
    /// # Errors
    /// `EINVAL` as `validate_tmpl` has it.
    pub(crate) fn take(
        attributes: &mut Attributes<'_>,
        selector: IpVersion,
        direction: PolicyDirection,
    ) -> Result<Vec<Self>, Refusal> {
        let Some(payload) = attributes.take(TMPL) else { return Ok(Vec::new()) };
        let (chunks, _) = payload.as_chunks::<TEMPLATE_LEN>();
        if chunks.len() > TEMPLATES_MAX {
            let text = "Template count must be <= XFRM_MAX_DEPTH (6)";
            return Err(Refusal::invalid(text));
        }
        // The family that the packet has before this step, as a number that may be anything.
        let mut before = address::family(Some(selector));
        let mut templates = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            templates.push(Self::read(chunk, selector, &mut before, direction)?);
        }
        Ok(templates)
    }

    fn read(
        chunk: &[u8; TEMPLATE_LEN],
        selector: IpVersion,
        before: &mut u16,
        direction: PolicyDirection,
    ) -> Result<Self, Refusal> {
        let mut fields = Fields::new(chunk);
        let destination = fields.array();
        let spi = Spi::new(fields.be32());
        let protocol = fields.u8();
        fields.skip::<3>();
        let family = match fields.u16() {
            0 => address::family(Some(selector)),
            family => family,
        };
        fields.skip::<2>();
        let source = fields.array();
        let reqid = fields.u32();
        let (mode, share, optional) = (fields.u8(), fields.u8(), fields.u8() != 0);
        fields.skip::<1>();
        let algorithms = [fields.u32(), fields.u32(), fields.u32()];

        let mode = Mode::from_number(mode);
        match mode {
            Some(Mode::Tunnel | Mode::Beet) if optional && direction == PolicyDirection::Out => {
                let text = "Mode in optional template not allowed in outbound policy";
                return Err(Refusal::invalid(text));
            }
            Some(Mode::Tunnel | Mode::Beet | Mode::IpTfs) => {}
            _ if family != *before => {
                let text = "Mode in template doesn't support a family change";
                return Err(Refusal::invalid(text));
            }
            _ => {}
        }
        let mode =
            mode.ok_or_else(|| Refusal::invalid("Mode in template must be < XFRM_MODE_MAX (6)"))?;
        *before = family;
        let version = address::version(family)
            .ok_or_else(|| Refusal::invalid("Invalid family in template"))?;
        let protocol = SaProtocol::from_number(protocol)
            .ok_or_else(|| Refusal::invalid("Invalid XFRM protocol in template"))?;
        Ok(Self {
            protocol,
            spi,
            source: address::address(version, source),
            destination: address::address(version, destination),
            reqid,
            mode,
            share: Share::from_number(share).unwrap_or_default(),
            optional,
            algorithms,
        })
    }

    pub(crate) fn write_all(templates: &[Self], to: &mut Writer) {
        if !templates.is_empty() {
            to.attribute(TMPL, |to| {
                for template in templates.iter().take(TEMPLATES_MAX) {
                    template.write(to);
                }
            });
        }
    }

    fn write(&self, to: &mut Writer) {
        to.address(self.destination);
        to.be32(self.spi.map_or(0, Spi::get));
        to.u8(self.protocol.number());
        to.zeros::<3>();
        to.u16(address::family(Some(IpVersion::of_addr(self.destination))));
        to.zeros::<2>();
        to.address(self.source);
        to.u32(self.reqid);
        to.u8(self.mode.number());
        to.u8(self.share.number());
        to.u8(u8::from(self.optional));
        to.zeros::<1>();
        for bits in self.algorithms {
            to.u32(bits);
        }
    }
}
