//! ESP in tunnel mode around an outbound packet: a new IP header, ESP header and IV in front, padding, trailer and
//! room for the ICV behind.

use convoy_engine::Job;
use convoy_wire::esp::TRAILER_LEN;
use convoy_wire::{PacketInfo, Protocol, Tos};

use super::form::Known;
use super::iv::IvSource;
use super::layout::Enclosure;
use super::lengths::Tunnel;
use super::sa::OutboundSa;
use crate::clock::Now;
use crate::drop_reason::DropReason;

/// Properties of a payload that its tunnel packet depends on, beside its bytes.
pub(super) struct Payload {
    /// Bytes of traffic-flow-confidentiality padding behind it (RFC 4303 section 2.7).
    pub(super) fill: usize,
    pub(super) next_header: Protocol,
    /// TOS byte and DF bit that the outer header's are derived from.
    pub(super) tos: Tos,
    pub(super) dont_fragment: bool,
    /// True if the outer packet is no longer than the path takes. If not, it may be fragmented.
    pub(super) fits: bool,
}

impl Payload {
    /// An inner packet that fits the path and is not filled up, as nearly all are.
    #[inline(always)]
    pub(super) fn usual(info: &PacketInfo) -> Self {
        Self {
            fill: 0,
            next_header: info.flow.version.as_next_header(),
            tos: info.tos,
            dont_fragment: info.dont_fragment,
            fits: true,
        }
    }

    /// A dummy packet's payload of `len` bytes (RFC 4303 section 2.6): its frame is empty.
    pub(super) fn dummy(len: usize) -> Self {
        let tos = Tos::default();
        Self { fill: len, next_header: Protocol::NONE, tos, dont_fragment: true, fits: true }
    }
}

/// Gives the job's packet a sequence number, puts ESP and the outer header around it and fills the
/// job in.
#[inline(always)]
pub(super) fn protect<K: Known>(
    sa: &mut OutboundSa,
    now: Now,
    ivs: &mut IvSource,
    job: &mut Job,
    payload: &Payload,
) -> Result<(), DropReason> {
    let Tunnel { before, front, behind, align_mask, .. } = sa.tunnel;
    let Payload { fill, next_header, .. } = *payload;
    let len = job.frame.len();
    let pad = (len + fill + TRAILER_LEN).wrapping_neg() & usize::from(align_mask);
    let enclosure = Enclosure {
        front: front.into(),
        before: before.into(),
        len,
        fill,
        pad: pad as u8,
        next_header,
    };
    let packet = job.frame.enclose(before.into(), fill + pad + usize::from(behind));
    let packet = packet.map_err(|_| DropReason::NoFrame)?;
    let reserved = sa.sequence.next()?;
    let (seq, total) = (reserved.number(), packet.len());
    let (tos, df) = sa.rules.apply(payload.tos, payload.dont_fragment, payload.fits);
    sa.outer.write(packet, total, tos, df, seq.low() as u16);
    let iv = sa.layout.write_esp::<K>(packet, &enclosure, sa.spi, seq, || ivs.next());
    // Unreachable: there is room for all of it, and an SA that needs random IVs got a source of them.
    let iv = iv.ok_or(DropReason::NoFrame)?;
    sa.count(len, seq, now);
    sa.fill_in::<K>(job, enclosure.text(), reserved, iv, len);
    Ok(())
}
