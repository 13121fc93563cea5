//! `convoy trace`: what would become of a packet, and why.

use convoy_control::protocol::{Answer, Request};
use convoy_control::status::Text as _;
use convoy_control::trace::{Question, Verdict};
use convoy_wire::Protocol;

use super::ask;
use crate::cli::TraceArgs;
use crate::exit::{Exit, Stop};
use crate::output;

pub(super) fn run(args: &TraceArgs) -> anyhow::Result<Exit> {
    let question = question(args)?;
    let client = ask::client(&args.target)?;
    let Answer::Trace(trace) = ask::ask(&client, Request::Trace(question), Exit::Usage)? else {
        return Err(ask::unexpected(&client));
    };
    if args.json {
        output::json(&trace)?
    } else {
        output::print(&trace.text())?
    }
    let last = trace.onward.as_ref().map_or(trace.verdict, |onward| onward.verdict);
    Ok(match last {
        Verdict::Dropped | Verdict::TooBig { .. } => Exit::Trouble,
        _ => Exit::Ok,
    })
}

fn question(args: &TraceArgs) -> anyhow::Result<Question> {
    let named = Protocol::from_name(&args.proto);
    let protocol = match named {
        // What is called ICMP is ICMPv6 between IPv6 addresses.
        Some(Protocol::ICMP) if args.from.is_ipv6() => Protocol::ICMPV6,
        Some(protocol) => protocol,
        None => {
            let text = format!("--proto {}: say a name such as udp, or a number", args.proto);
            return Err(Stop::usage(text));
        }
    };
    let given = (args.sport.is_some() || args.dport.is_some())
        .then_some((args.sport.unwrap_or(0), args.dport.unwrap_or(0)));
    let ports = match protocol {
        // Echo requests, as `ping` sends them.
        Protocol::ICMP => given.or(Some((8, 0))),
        Protocol::ICMPV6 => given.or(Some((128, 0))),
        protocol if protocol.has_ports() => given.or(Some((0, 0))),
        protocol if given.is_some() => {
            return Err(Stop::usage(format!("packets of {protocol} have no ports")));
        }
        _ => None,
    };
    Ok(Question {
        from: args.from,
        to: args.to,
        protocol: protocol.0,
        ports,
        bytes: args.bytes,
        dont_fragment: !args.may_fragment,
        spi: args.spi,
        if_id: args.if_id,
    })
}
