//! `[[sa]]` sections.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use convoy_crypto::Suite;
use convoy_ipsec::key::SaKeyMaterial;
use convoy_ipsec::lifetime::Lifetime;
use convoy_ipsec::sa::{
    DfPolicy, DscpPolicy, Endpoints, IpsecProtocol, Mode, OuterHeader, UdpEncap, WorkerId,
};
use convoy_ipsec::selector::Direction;
use convoy_wire::{Dscp, Spi};

use super::fields::{mtu, name, port, transposed};
use super::model::{Association, InboundSa, OutboundSa, least_mtu};
use super::reader::{At, Field, Place, Report, Table};
use super::{drivers, lifetime, sa_key, workers};

/// Sequence numbers leased at a time, unless the file says otherwise.
const DEFAULT_LEASE_BLOCK: u64 = 1 << 20;

/// Anti-replay window in packets, unless the file says otherwise.
const DEFAULT_REPLAY_WINDOW: u64 = 1024;

/// Seconds between NAT keepalives (RFC 3948 section 4).
const DEFAULT_KEEPALIVE_S: u64 = 20;

/// Parts of the rest of the file that an SA must agree with.
pub(super) struct Context<'a> {
    pub(super) folder: &'a Path,
    /// True if ciphers of old peers are allowed.
    pub(super) legacy: bool,
    pub(super) worker_count: u16,
    pub(super) udp_port: u16,
    pub(super) drivers: &'a drivers::Known,
}

/// An SA as far as it could be read; what checks across SAs need, with places.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) place: Place,
    pub(super) name: Option<At<String>>,
    pub(super) direction: Option<Direction>,
    pub(super) spi: Option<At<Spi>>,
    pub(super) protocol: Option<IpsecProtocol>,
    pub(super) mode: Option<Mode>,
    pub(super) local: Option<At<IpAddr>>,
    pub(super) remote: Option<At<IpAddr>>,
    pub(super) key: Option<At<Arc<SaKeyMaterial>>>,
    /// Position of a key that stands in the file itself.
    pub(super) inline_key: Option<Place>,
    pub(super) built: Option<Built>,
}

/// A complete SA.
#[derive(Debug)]
pub(super) enum Built {
    Outbound(OutboundSa),
    Inbound(InboundSa),
}

/// Reads one section.
pub(super) fn read(mut table: Table<'_>, report: &mut Report<'_>, context: &Context<'_>) -> Draft {
    let place = table.place.clone();
    let name =
        table.need(report, "name", "name = \"to-right\"").and_then(|f| name(f, report, "SA"));
    let direction = table
        .need(report, "direction", "direction = \"outbound\"")
        .and_then(|f| {
            f.choice(report, &[("outbound", Direction::Outbound), ("inbound", Direction::Inbound)])
        })
        .map(|at| at.value);
    let spi = table.need(report, "spi", "spi = 0x1000").and_then(|f| spi(f, report));
    let protocol = match table.take("protocol") {
        Some(f) => f
            .choice(report, &[("esp", IpsecProtocol::Esp), ("ah", IpsecProtocol::Ah)])
            .map(|at| at.value),
        None => Some(IpsecProtocol::Esp),
    };
    let mode = match table.take("mode") {
        Some(f) => f
            .choice(report, &[("tunnel", Mode::Tunnel), ("transport", Mode::Transport)])
            .map(|at| at.value),
        None => Some(Mode::Tunnel),
    };
    let address = "an IP address such as \"192.0.2.1\"";
    let local = table
        .need(report, "local", "local = \"192.0.2.1\"")
        .and_then(|f| f.parsed::<IpAddr>(report, address));
    let remote = table
        .need(report, "remote", "remote = \"192.0.2.2\"")
        .and_then(|f| f.parsed::<IpAddr>(report, address));
    let ends_fit = ends_fit(local.as_ref(), remote.as_ref(), report);
    let sa_key::Keys { suite, material: key, inline: inline_key } =
        sa_key::read(&mut table, report, context, protocol);
    let is_ah = protocol == Some(IpsecProtocol::Ah);
    if is_ah && let Some(field) = table.take("encap") {
        let what = "has no meaning with AH, which covers the addresses that a NAT changes";
        report.error(&field.place, what, "remove the line, or use ESP (RFC 4302 section 1)");
    }
    for key in ["tfc", "dummy_s"] {
        if is_ah && let Some(field) = table.take(key) {
            report.error(&field.place, "has no meaning with AH", "remove the line, or use ESP");
        }
    }
    let driver = table.take("driver").map(|field| {
        let name = context.drivers.name(field, report)?;
        context.drivers.suits(&name, suite?, report)?;
        Some(name.value)
    });
    let common = common(&mut table, report, context, direction, suite);
    let outbound = outbound_only(&mut table, report, direction, mode, local.as_ref());
    let inbound = inbound_only(&mut table, report, direction, common.as_ref().map(|c| c.esn));
    table.finish(report);

    let mut draft = Draft {
        place,
        name,
        direction,
        spi,
        protocol,
        mode,
        local,
        remote,
        key,
        inline_key,
        built: None,
    };
    draft.built = ends_fit.then(|| draft.build(common, outbound, inbound, driver)).flatten();
    draft
}

impl Draft {
    fn build(
        &self,
        common: Option<Common>,
        outbound: Option<OutboundOnly>,
        inbound: Option<u32>,
        driver: Option<Option<Arc<str>>>,
    ) -> Option<Built> {
        let common = common?;
        let association = Association {
            name: self.name.as_ref()?.value.as_str().into(),
            spi: self.spi.as_ref()?.value,
            protocol: self.protocol?,
            mode: self.mode?,
            endpoints: Endpoints {
                local: self.local.as_ref()?.value,
                remote: self.remote.as_ref()?.value,
            },
            encap: common.encap,
            esn: common.esn,
            ecn: common.ecn,
            key: self.key.as_ref()?.value.clone(),
            lifetime: common.lifetime,
            worker: common.worker,
            driver: transposed(driver)?,
        };
        Some(match self.direction? {
            Direction::Outbound => {
                let only = outbound?;
                let outer = OuterHeader {
                    df: only.df,
                    dscp: only.dscp,
                    ecn: common.ecn,
                    hop_limit: only.hop_limit,
                };
                let OutboundOnly { path_mtu, pad_to, dummy_every, lease_block, .. } = only;
                Built::Outbound(OutboundSa {
                    association,
                    outer,
                    path_mtu,
                    pad_to,
                    dummy_every,
                    lease_block,
                })
            }
            Direction::Inbound => {
                Built::Inbound(InboundSa { association, replay_window: inbound? })
            }
        })
    }
}

fn spi(field: Field<'_>, report: &mut Report<'_>) -> Option<At<Spi>> {
    let least = u64::from(Spi::MIN_ASSIGNABLE);
    let help =
        "use a number from 0x100 to 0xffffffff; 1 to 255 are reserved (RFC 4303 section 2.1)";
    let number = field.integer(report, least..=u32::MAX.into(), help)?;
    let value = Spi::new(u32::try_from(number.value).ok()?)?;
    Some(At { value, place: number.place })
}

/// True if both are addresses of hosts, of one IP version, and not the same.
fn ends_fit(
    local: Option<&At<IpAddr>>,
    remote: Option<&At<IpAddr>>,
    report: &mut Report<'_>,
) -> bool {
    let mut are_hosts = true;
    for end in [local, remote].into_iter().flatten() {
        let address = end.value;
        let what = match address {
            _ if address.is_unspecified() => "is no address of a host",
            _ if address.is_multicast() => {
                "is a multicast address, and the ends of an SA are hosts"
            }
            IpAddr::V4(v4) if v4.is_broadcast() => "is the broadcast address",
            _ => continue,
        };
        report.error(
            &end.place,
            format!("{address} {what}"),
            "give the address of one gateway, such as \"192.0.2.1\"",
        );
        are_hosts = false;
    }
    let (true, Some(local), Some(remote)) = (are_hosts, local, remote) else { return false };
    if local.value.is_ipv4() != remote.value.is_ipv4() {
        report.error(
            &remote.place,
            format!(
                "{} and local address {} are of different IP versions",
                remote.value, local.value
            ),
            "use two IPv4 or two IPv6 addresses; what is inside the tunnel may differ",
        );
        return false;
    }
    if local.value == remote.value {
        report.error(
            &remote.place,
            format!("{} is the local address as well", remote.value),
            "give the peer's address",
        );
        return false;
    }
    true
}

/// Settings of both directions beside names, addresses and key.
struct Common {
    encap: Option<UdpEncap>,
    esn: bool,
    ecn: bool,
    lifetime: Lifetime,
    worker: WorkerId,
}

fn common(
    table: &mut Table<'_>,
    report: &mut Report<'_>,
    context: &Context<'_>,
    direction: Option<Direction>,
    suite: Option<Suite>,
) -> Option<Common> {
    let encap = table.take("encap").map(|f| encap(f, report, context, direction));
    let esn = table.take("esn").map(|f| f.boolean(report));
    let ecn = table.take("ecn").map(|f| f.boolean(report));
    let lifetime = table.take("lifetime").map(|f| lifetime::read(f, report, suite));
    let worker = table.take("worker").map(|f| workers::worker(f, report, context.worker_count));
    Some(Common {
        encap: match encap {
            Some(given) => Some(given?),
            None => None,
        },
        esn: esn.map_or(Some(true), |given| given)?,
        ecn: ecn.map_or(Some(true), |given| given)?,
        lifetime: lifetime::capped(lifetime.unwrap_or_else(|| Some(Lifetime::default()))?, suite),
        worker: worker.map_or(Some(WorkerId(0)), |given| given)?,
    })
}

fn encap(
    field: Field<'_>,
    report: &mut Report<'_>,
    context: &Context<'_>,
    direction: Option<Direction>,
) -> Option<UdpEncap> {
    let outbound = direction == Some(Direction::Outbound);
    let keepalive = |seconds: u64| (outbound && seconds > 0).then(|| Duration::from_secs(seconds));
    let default = UdpEncap {
        local_port: context.udp_port,
        remote_port: 4500,
        keepalive: keepalive(DEFAULT_KEEPALIVE_S),
    };
    if field.is_string() {
        return field.choice(report, &[("udp", default)]).map(|at| at.value);
    }
    let mut table =
        field.table(report, "\"udp\" or a table such as { kind = \"udp\", remote_port = 4500 }")?;
    let kind =
        table.need(report, "kind", "kind = \"udp\"").and_then(|f| f.choice(report, &[("udp", ())]));
    let local = table.take("local_port").map(|f| {
        let place = f.place.clone();
        let port = port(f, report)?;
        if port != context.udp_port {
            report.error(
                &place,
                format!("{port} is not the gateway's UDP port {}", context.udp_port),
                "leave it out, or set `udp_port` in [wire]: all SAs share one port",
            );
            return None;
        }
        Some(port)
    });
    let remote = table.take("remote_port").map(|f| port(f, report));
    let seconds = table.take("keepalive_s").map(|f| {
        let place = f.place.clone();
        let seconds = f.integer(
            report,
            0..=3600,
            "use seconds; 0 sends none, 20 is usual (RFC 3948 section 4)",
        )?;
        if direction == Some(Direction::Inbound) {
            report.error(
                &place,
                "has no meaning for an inbound SA",
                "set it at the outbound SA, which sends keepalives",
            );
            return None;
        }
        Some(seconds.value)
    });
    table.finish(report);
    kind?;
    Some(UdpEncap {
        local_port: local.map_or(Some(default.local_port), |given| given)?,
        remote_port: remote.map_or(Some(default.remote_port), |given| given)?,
        keepalive: keepalive(seconds.map_or(Some(DEFAULT_KEEPALIVE_S), |given| given)?),
    })
}

/// Settings of outbound SAs alone.
struct OutboundOnly {
    df: DfPolicy,
    dscp: DscpPolicy,
    hop_limit: u8,
    path_mtu: Option<u16>,
    pad_to: u16,
    dummy_every: Option<Duration>,
    lease_block: u64,
}

fn outbound_only(
    table: &mut Table<'_>,
    report: &mut Report<'_>,
    direction: Option<Direction>,
    mode: Option<Mode>,
    local: Option<&At<IpAddr>>,
) -> Option<OutboundOnly> {
    const NO_HEADER: Option<&str> = Some("it adds no outer header");
    const NO_END: Option<&str> = Some("no length tells the receiver where the filling begins");
    const NO_DUMMIES: Option<&str> = Some("dummy packets go through tunnels only");
    let mut take = |key, only_tunnel: Option<&str>, report: &mut Report<'_>| {
        let field = table.take(key)?;
        if direction == Some(Direction::Inbound) {
            report.error(
                &field.place,
                "has no meaning for an inbound SA",
                "remove the line, or move it to the outbound SA",
            );
            return None;
        }
        if mode == Some(Mode::Transport)
            && let Some(why) = only_tunnel
        {
            let what = format!("has no meaning in transport mode: {why}");
            report.error(&field.place, what, "remove the line");
            return None;
        }
        Some(field)
    };
    let df = take("df", NO_HEADER, report).map(|f| {
        f.choice(
            report,
            &[("copy", DfPolicy::Copy), ("set", DfPolicy::Set), ("clear", DfPolicy::Clear)],
        )
    });
    let dscp = take("dscp", NO_HEADER, report).map(|f| dscp(f, report));
    let hop_limit =
        take("hop_limit", NO_HEADER, report).map(|f| f.integer(report, 1..=255, "64 is usual"));
    let least = local.map_or(576, |at| least_mtu(at.value));
    let path_mtu = take("path_mtu", None, report).map(|f| mtu(f, report, least.into()));
    let tfc = take("tfc", NO_END, report).map(|f| {
        f.integer(
            report,
            0..=65_535,
            "use to how many bytes inner packets are filled up; 0 for none",
        )
    });
    let dummy = take("dummy_s", NO_DUMMIES, report).map(|f| {
        f.integer(
            report,
            0..=3600,
            "use seconds of silence after which a dummy packet is sent; 0 sends none",
        )
    });
    let block = take("lease_block", None, report).map(|f| {
        f.integer(
            report,
            64..=1 << 30,
            "use how many sequence numbers to lease at a time; 1048576 is usual",
        )
    });
    Some(OutboundOnly {
        df: df.map_or(Some(DfPolicy::Copy), |given| given.map(|at| at.value))?,
        dscp: dscp.map_or(Some(DscpPolicy::Copy), |given| given)?,
        hop_limit: hop_limit
            .map_or(Some(64), |given| given.and_then(|at| u8::try_from(at.value).ok()))?,
        path_mtu: match path_mtu {
            Some(given) => Some(given?),
            None => None,
        },
        pad_to: tfc.map_or(Some(0), |given| given.and_then(|at| u16::try_from(at.value).ok()))?,
        dummy_every: match dummy {
            Some(seconds) => Some(Duration::from_secs(seconds?.value)).filter(|s| !s.is_zero()),
            None => None,
        },
        lease_block: block.map_or(Some(DEFAULT_LEASE_BLOCK), |given| given.map(|at| at.value))?,
    })
}

fn dscp(field: Field<'_>, report: &mut Report<'_>) -> Option<DscpPolicy> {
    if field.is_word() {
        return field.choice(report, &[("copy", DscpPolicy::Copy)]).map(|at| at.value);
    }
    let number =
        field.integer(report, 0..=63, "use \"copy\" or a code point from 0 to 63 (RFC 2474)")?;
    Dscp::new(u8::try_from(number.value).ok()?).map(DscpPolicy::Fixed)
}

fn inbound_only(
    table: &mut Table<'_>,
    report: &mut Report<'_>,
    direction: Option<Direction>,
    esn: Option<bool>,
) -> Option<u32> {
    let Some(field) = table.take("replay_window") else {
        return u32::try_from(DEFAULT_REPLAY_WINDOW).ok();
    };
    if direction == Some(Direction::Outbound) {
        report.error(
            &field.place,
            "has no meaning for an outbound SA",
            "remove the line, or move it to the inbound SA",
        );
        return None;
    }
    let help = "use 32 to 65536 packets; 1024 is usual; 0 switches the check off";
    let window = field.integer(report, 0..=65_536, help)?;
    match (window.value, esn) {
        (1..=31, _) => {
            report.error(&window.place, format!("{} packets are too few", window.value), help);
            None
        }
        (0, Some(true)) => {
            report.error(
                &window.place,
                "extended sequence numbers need the anti-replay window (RFC 4303 section 2.2.1)",
                "use 32 to 65536 packets, or add `esn = false`",
            );
            None
        }
        (0, _) => {
            report.warn(
                &window.place,
                "without the anti-replay window recorded packets are accepted again",
                help,
            );
            Some(0)
        }
        (packets, _) => u32::try_from(packets).ok(),
    }
}
