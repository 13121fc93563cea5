//! Verdicts of the security policy database on packets between partly bypassed prefixes.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use convoy_io::tun::Inlet;
use convoy_ipsec::snapshot::Published;
use convoy_ipsec::spd::{Direction, MeantFor, PolicyAction, PolicyId, Spd, SpdId};
use convoy_leak_protection::{Answers, Held, Listener, Policies, PolicyDirection, Verdict};
use convoy_wire::{FlowKey, parse_packet};

use super::connections::Connections;

/// Policies that the packet filter's questions are put to.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) published: Arc<Published>,
    /// The database of the plain interface.
    pub(super) spd: SpdId,
}

impl Source {
    /// Answers what waits at a listener by the policies that are published then. What NAT made a protected packet is put
    /// into the interface `tun`.
    pub(super) fn answering(
        &self,
        connections: &Connections,
        tun: String,
    ) -> impl FnMut(&mut Listener, &Held) -> io::Result<Answers> + Send + use<> {
        let (source, connections) = (self.clone(), connections.clone());
        let mut inlet = None;
        move |listener, held| {
            let snapshot = source.published.current();
            let spd = snapshot.spd_of(source.spd);
            let database = Database { spd, held: Cow::Borrowed(held) };
            let is_nearly_full = connections.is_nearly_full();
            listener.answer(&mut Sparing { database, is_nearly_full, tun: &tun, inlet: &mut inlet })
        }
    }
}

/// The security policy database, and what is held where it says nothing.
pub(super) struct Database<'a> {
    /// None: it is gone, and everything is dropped.
    pub(super) spd: Option<&'a Spd>,
    pub(super) held: Cow<'a, Held>,
}

impl Database<'_> {
    fn look_up(&self, way: PolicyDirection, packet: &[u8]) -> Verdict {
        let Some(flow) = flow_of(packet) else { return Verdict::Discard };
        let (policy, verdict) = self.judge(way, &flow);
        if let (Some(spd), Some(policy)) = (self.spd, policy) {
            spd.count_question(policy);
        }
        verdict
    }

    /// The policy that decides about a packet, if one does, and what becomes of it.
    pub(super) fn judge(
        &self,
        way: PolicyDirection,
        flow: &FlowKey,
    ) -> (Option<PolicyId>, Verdict) {
        let Some(spd) = self.spd else { return (None, Verdict::Discard) };
        let (from, to) = (flow.src_addr(), flow.dst_addr());
        let (decision, local, remote) = match way {
            PolicyDirection::Out => (spd.lookup(Direction::Outbound, flow), from, to),
            PolicyDirection::In => (spd.lookup_for(MeantFor::Host, flow), to, from),
            PolicyDirection::Forward => (spd.lookup_for(MeantFor::Others, flow), to, from),
        };
        let is_held = self.held.holds(way, local, remote);
        let verdict = match decision.map(|decision| decision.action) {
            Some(PolicyAction::Protect { .. }) => Verdict::Protect,
            Some(PolicyAction::Bypass) => Verdict::Bypass,
            Some(PolicyAction::Discard) => Verdict::Discard,
            // What no policy names is not protected, but between local and remote networks it is held (RFC 4301 section 5.1).
            None if is_held => Verdict::Discard,
            None => Verdict::Bypass,
        };
        (decision.map(|decision| decision.id), verdict)
    }
}

/// Answers from the database, and keeps what is left of the kernel's table of connections for flows that are protected.
struct Sparing<'a> {
    database: Database<'a>,
    is_nearly_full: bool,
    tun: &'a str,
    /// Opened with the first packet that needs it.
    inlet: &'a mut Option<Inlet>,
}

impl Sparing<'_> {
    fn look_up(&self, way: PolicyDirection, packet: &[u8]) -> Verdict {
        match self.database.look_up(way, packet) {
            Verdict::Bypass if self.is_nearly_full => Verdict::Discard,
            verdict => verdict,
        }
    }
}

impl Policies for Sparing<'_> {
    fn outbound(&mut self, packet: &[u8]) -> Verdict {
        self.look_up(PolicyDirection::Out, packet)
    }

    fn inbound(&mut self, packet: &[u8]) -> Verdict {
        self.look_up(PolicyDirection::In, packet)
    }

    fn forwarded(&mut self, packet: &[u8]) -> Verdict {
        self.look_up(PolicyDirection::Forward, packet)
    }

    /// Puts a packet into the interface. It is lost if that fails, as where there is no room; who sent it sends again.
    fn take(&mut self, packet: &[u8]) {
        if self.inlet.is_none() {
            *self.inlet = Inlet::open(self.tun)
                .inspect_err(|error| tracing::debug!("a packet behind NAT is lost: {error}"))
                .ok();
        }
        if let Some(inlet) = self.inlet {
            let put = inlet.put(packet);
            // It may have another number now.
            if put.is_err_and(|error| error.raw_os_error() == Some(libc::ENXIO)) {
                *self.inlet = None;
            }
        }
    }
}

/// Selector fields of a packet whose end may be missing.
fn flow_of(packet: &[u8]) -> Option<FlowKey> {
    let mut packet = packet.to_vec();
    let is_v4 = packet.first()? >> 4 == 4;
    let (at, shown) = if is_v4 { (2, packet.len()) } else { (4, packet.len().checked_sub(40)?) };
    let said = packet.get_mut(at..)?.first_chunk_mut::<2>()?;
    // Where many packets are together, it may say less, too.
    *said = u16::try_from(shown).ok()?.to_be_bytes();
    parse_packet(&packet).ok().map(|info| info.flow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_whose_end_is_missing_keeps_its_flow() {
        let mut packet = vec![0x45, 0, 0xff, 0xff, 0, 0, 0, 0, 64, 6, 0, 0];
        packet.extend([10, 1, 0, 1, 10, 2, 0, 1]);
        packet.extend([0x12, 0x34, 0, 22]);
        packet.resize(60, 0);
        let flow = flow_of(&packet).unwrap();
        assert_eq!(flow.dst_addr(), std::net::IpAddr::from([10, 2, 0, 1]));
        assert_eq!(flow.ports, convoy_wire::Ports::Known { src: 0x1234, dst: 22 });
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, 17, 64];
        packet.resize(40, 1);
        packet.extend([0, 7, 0, 8, 0xff, 0xff, 0, 0]);
        let flow = flow_of(&packet).unwrap();
        assert_eq!(flow.ports, convoy_wire::Ports::Known { src: 7, dst: 8 });
        for wrong in [&[][..], &[0x45], &[0x60; 39], &[0x10; 60]] {
            assert!(flow_of(wrong).is_none());
        }
    }
}
