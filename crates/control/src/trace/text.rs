//! A trace for people.

use std::fmt::Write as _;
use std::net::SocketAddr;

use convoy_wire::Protocol;

use super::{Question, Trace, Verdict};
use crate::status::Text;

impl Text for Trace {
    fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String does not fail.
        let _ = writeln!(out, "packet   {}", packet(&self.packet));
        let _ = match &self.policy {
            Some(policy) => {
                let index =
                    policy.index.map_or_else(String::new, |index| format!(", index {index}"));
                let (name, action, priority) = (&policy.name, &policy.action, policy.priority);
                writeln!(out, "policy   {name}: {action} (priority {priority}{index})")
            }
            None if self.reason.as_ref().is_some_and(|reason| reason.name == "unknown-spi") => {
                Ok(())
            }
            None => writeln!(out, "policy   none covers it"),
        };
        if let Some(sa) = &self.sa {
            let [local, remote] = match sa.udp_ports {
                Some((ours, theirs)) => [(sa.local, ours), (sa.remote, theirs)]
                    .map(|(address, port)| SocketAddr::new(address, port).to_string()),
                None => [sa.local.to_string(), sa.remote.to_string()],
            };
            let arrow = if self.packet.spi.is_some() { "<-" } else { "->" };
            let _ = writeln!(
                out,
                "SA       {}: {} {} {}, SPI {}, reqid {}, worker {}",
                sa.name, sa.protocol, sa.mode, sa.algorithm, sa.spi, sa.reqid, sa.worker
            );
            let udp = if sa.udp_ports.is_some() { " in UDP" } else { "" };
            let _ = writeln!(out, "outer    {local} {arrow} {remote}{udp}");
            if let (Some(left), Some(mtu)) = (sa.sequence_left, sa.path_mtu) {
                let _ =
                    writeln!(out, "         {left} sequence numbers left, path MTU {mtu} bytes");
            }
        }
        let _ = writeln!(out, "verdict  {}", verdict(&self.verdict));
        if let Some(reason) = &self.reason {
            let _ = writeln!(out, "reason   {}: {}", reason.name, reason.help);
        }
        if let Some(advice) = &self.advice {
            let _ = writeln!(out, "advice   {advice}");
        }
        out
    }
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
        Verdict::InClear => "passes in clear".to_owned(),
        Verdict::Waits => "waits up to 5 s for an SA that is asked for".to_owned(),
        Verdict::TooBig { mtu_bytes } => {
            format!("dropped, and its sender told that packets may have {mtu_bytes} bytes")
        }
        Verdict::Dropped => "dropped".to_owned(),
    }
}
