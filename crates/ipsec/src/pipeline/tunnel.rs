//! The usual way of an outbound packet, without a look at what only other SAs need: ESP around it,
//! not filled up, a new IP header in front.

use convoy_engine::{Job, Span};
use convoy_wire::PacketInfo;
use convoy_wire::esp::{self, TRAILER_LEN};

use super::PipelineConfig;
use super::form::Known;
use super::iv::IvSource;
use super::layout::Iv;
use super::lengths::Tunnel;
use super::protect::decrement_ttl;
use super::sa::OutboundSa;
use crate::clock::Now;
use crate::drop_reason::DropReason;
use crate::sequence::ReservedSeq;

/// Gives the job's packet a sequence number, puts ESP and the outer header around it and fills the
/// job in.
#[inline(always)]
pub(super) fn protect<K: Known>(
    sa: &mut OutboundSa,
    (config, now): (&PipelineConfig, Now),
    ivs: &mut IvSource,
    job: &mut Job,
    info: &PacketInfo,
) -> Result<(), DropReason> {
    let Tunnel { before, behind, align_mask, .. } = sa.tunnel;
    let inner = job.frame.len();
    let pad = (inner + TRAILER_LEN).wrapping_neg() & usize::from(align_mask);
    let packet = job.frame.enclose(before.into(), pad + usize::from(behind));
    let packet = packet.map_err(|_| DropReason::NoFrame)?;
    let reserved = sa.sequence.next()?;
    let written = write::<K>(sa, (config, ivs), packet, info, (inner, pad as u8, &reserved));
    // Unreachable: there is room for all of it, and whoever needs random IVs got a source of them.
    let iv = written.ok_or(DropReason::NoFrame)?;
    sa.count(inner, reserved.number(), now);
    let text = Span { start: before.into(), len: (inner + pad + TRAILER_LEN) as u32 };
    sa.fill_in::<K>(job, text, (reserved, iv), inner);
    Ok(())
}

/// Writes what ESP and the new IP header put around the inner packet; returns the IV.
#[inline(always)]
fn write<K: Known>(
    sa: &OutboundSa,
    (config, ivs): (&PipelineConfig, &mut IvSource),
    packet: &mut [u8],
    info: &PacketInfo,
    (inner, pad, reserved): (usize, u8, &ReservedSeq),
) -> Option<Iv> {
    let (seq, version, total) = (reserved.number(), info.flow.version, packet.len());
    let (head, inside) = packet.split_at_mut_checked(sa.tunnel.before.into())?;
    if config.decrement_ttl {
        decrement_ttl(inside, version);
    }
    // The ICV comes behind it.
    esp::emit_trailer_over(inside.get_mut(inner..)?, pad, version.as_next_header()).ok()?;
    // It is no longer than the path takes.
    let (tos, df) = sa.rules.apply(info.tos, info.dont_fragment, true);
    sa.outer.write(head, total, tos, df, seq.low() as u16);
    let place = head.get_mut(sa.tunnel.front.into()..)?;
    sa.layout.begin::<K>(place, (sa.spi, seq), || ivs.next())
}
