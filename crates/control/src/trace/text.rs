//! A trace for people.

use std::fmt::Write as _;
use std::net::SocketAddr;

use convoy_wire::Protocol;

use super::{HostWay, Question, Trace, Verdict};
use crate::status::Text;

impl Text for Trace {
    fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String does not fail.
        let _ = writeln!(out, "packet   {}", packet(&self.packet));
        if let Some(way) = &self.host {
            host(&mut out, way);
        }
        way(self, &mut out);
        if let Some(onward) = &self.onward {
            out.push_str("\nFrom there on:\n");
            way(onward, &mut out);
        }
        out
    }
}

/// Writes the treatment of a packet on one side.
fn way(trace: &Trace, out: &mut String) {
    let _ = match &trace.policy {
        Some(policy) => {
            let index = policy.index.map_or_else(String::new, |index| format!(", index {index}"));
            let (name, action, priority) = (&policy.name, &policy.action, policy.priority);
            writeln!(out, "policy   {name}: {action} (priority {priority}{index})")
        }
        None if trace.reason.as_ref().is_some_and(|reason| reason.name == "unknown-spi") => Ok(()),
        None => writeln!(out, "policy   none covers it"),
    };
    if let Some(sa) = &trace.sa {
        let [local, remote] = match sa.udp_ports {
            Some((ours, theirs)) => [(sa.local, ours), (sa.remote, theirs)]
                .map(|(address, port)| SocketAddr::new(address, port).to_string()),
            None => [sa.local.to_string(), sa.remote.to_string()],
        };
        let arrow = if trace.packet.spi.is_some() { "<-" } else { "->" };
        let _ = writeln!(
            out,
            "SA       {}: {} {} {}, SPI {}, reqid {}, worker {}",
            sa.name, sa.protocol, sa.mode, sa.algorithm, sa.spi, sa.reqid, sa.worker
        );
        let udp = if sa.udp_ports.is_some() { " in UDP" } else { "" };
        let _ = writeln!(out, "outer    {local} {arrow} {remote}{udp}");
        if let (Some(left), Some(mtu)) = (sa.sequence_left, sa.path_mtu) {
            let _ = writeln!(out, "         {left} sequence numbers left, path MTU {mtu} bytes");
        }
    }
    let _ = writeln!(out, "verdict  {}", verdict(&trace.verdict));
    if let Some(reason) = &trace.reason {
        let _ = writeln!(out, "reason   {}: {}", reason.name, reason.help);
    }
    if let Some(advice) = &trace.advice {
        let _ = writeln!(out, "advice   {advice}");
    }
}

/// Writes the way of a packet through the host.
fn host(out: &mut String, way: &HostWay) {
    let comes = match &way.from_link {
        _ if way.is_own => "sent by the host itself".to_owned(),
        Some(link) => format!("comes in by {link}"),
        None => "comes in by an interface that is not known".to_owned(),
    };
    let _ = writeln!(out, "host     {comes}; {}", way.prefixes);
    let mark = way.mark.as_ref().map_or_else(String::new, |mark| format!(", mark {mark}"));
    let _ = writeln!(out, "decided  {}{mark}", way.decision);
    let _ = match (&way.route, &way.refused) {
        (Some(route), _) => writeln!(out, "route    {route}"),
        (None, Some(why)) => writeln!(out, "route    none: {why}"),
        (None, None) => Ok(()),
    };
    let _ = writeln!(out, "fate     {}", way.fate);
}

fn packet(packet: &Question) -> String {
    let Question { from, to, ports, bytes, .. } = packet;
    let protocol = Protocol(packet.protocol);
    let flow = match ports {
        Some((ty, code)) if matches!(protocol, Protocol::ICMP | Protocol::ICMPV6) => {
            format!("{from} -> {to} type {ty} code {code}")
        }
        Some((from_port, to_port)) => {
            format!("{} -> {}", SocketAddr::new(*from, *from_port), SocketAddr::new(*to, *to_port))
        }
        None => format!("{from} -> {to}"),
    };
    let df = if packet.dont_fragment && from.is_ipv4() { ", don't fragment" } else { "" };
    let via = packet.spi.map_or_else(String::new, |spi| format!(", arrives with SPI {spi:#010x}"));
    format!("{protocol} {flow}, {bytes} bytes{df}{via}")
}

fn verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Protected { bytes } => format!("protected, and sent as a packet of {bytes} bytes"),
        Verdict::Fragmented { room_bytes, pieces } => format!(
            "cut into {pieces} fragments of up to {room_bytes} bytes, each protected and sent"
        ),
        Verdict::Accepted => "accepted, and given to the plain side".to_owned(),
        Verdict::SentOn => "accepted, and an outbound policy decides about it".to_owned(),
        Verdict::InClear => "passes in clear".to_owned(),
        Verdict::Waits => "waits up to 5 s for an SA, which was requested".to_owned(),
        Verdict::TooBig { mtu_bytes } => {
            format!("dropped, and its sender told that packets may have {mtu_bytes} bytes")
        }
        Verdict::Dropped => "dropped".to_owned(),
    }
}
