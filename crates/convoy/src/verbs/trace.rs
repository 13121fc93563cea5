//! `convoy trace`: what would become of a packet, and why.

use std::net::IpAddr;

use clap::Args;
use convoy_control::protocol::{Answer, Request};
use convoy_control::status::Text as _;
use convoy_control::trace::{Question, Verdict};
use convoy_wire::Protocol;

use super::ask::{self, Target};
use crate::exit::{Exit, Stop};
use crate::output;

/// `convoy trace`
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// The gateway to ask.
    #[command(flatten)]
    pub target: Target,
    /// Source of the packet.
    #[arg(long, value_name = "ADDRESS")]
    pub from: IpAddr,
    /// Destination of the packet.
    #[arg(long, value_name = "ADDRESS")]
    pub to: IpAddr,
    /// Upper protocol: a name such as tcp, udp or icmp, or a number.
    #[arg(
        long,
        value_name = "PROTOCOL",
        default_value = "icmp",
        default_value_if("sport", clap::builder::ArgPredicate::IsPresent, "udp"),
        default_value_if("dport", clap::builder::ArgPredicate::IsPresent, "udp")
    )]
    pub proto: String,
    /// Source port, or ICMP type.
    #[arg(long, value_name = "PORT")]
    pub sport: Option<u16>,
    /// Destination port, or ICMP code.
    #[arg(long, value_name = "PORT")]
    pub dport: Option<u16>,
    /// Length of the packet with its IP header.
    #[arg(long, value_name = "BYTES", default_value_t = 84)]
    pub bytes: u16,
    /// Clear the don't-fragment bit: IPv4 packets that are too long are fragmented.
    #[arg(long)]
    pub may_fragment: bool,
    /// Identifier of the [[xfrm.interface]] that the packet is routed into; 0 for none.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, conflicts_with = "inbound")]
    pub if_id: u32,
    /// The packet arrives inside a packet of ESP or AH.
    #[arg(long, requires = "spi")]
    pub inbound: bool,
    /// SPI of that ESP or AH packet.
    #[arg(long, value_name = "SPI", requires = "inbound", value_parser = spi)]
    pub spi: Option<u32>,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: &TraceArgs) -> anyhow::Result<Exit> {
    let question = question(args)?;
    let client = ask::client(&args.target)?;
    let Answer::Trace(trace) = ask::ask(&client, Request::Trace(question), Exit::Usage)? else {
        return Err(ask::unexpected(&client));
    };
    if args.json {
        output::json_as_is(&trace)?
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

/// An SPI, in hexadecimal with 0x in front or in decimal.
fn spi(text: &str) -> Result<u32, String> {
    let spi = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    spi.map_err(|_| "an SPI is a number of 32 bits, such as 0xc1a2b3c4".to_owned())
}
