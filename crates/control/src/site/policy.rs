//! `[[policy]]` sections.

use std::net::IpAddr;
use std::sync::Arc;

use convoy_wire::{IpVersion, PortRange, Protocol};

use super::fields::{name, parse_prefix};
use super::model::{Action, Addresses, Policy, Upper};
use super::reader::{At, Field, Place, Report, Table, nearest, quote};

/// Priority of a policy that gives none.
const DEFAULT_PRIORITY: u64 = 100;

/// A policy as far as it could be read; what checks across sections need, with places.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) place: Place,
    pub(super) name: Option<At<String>>,
    pub(super) sa_out: Option<At<String>>,
    pub(super) sa_in: Vec<At<String>>,
    /// The database it is in, if it is not the common one.
    pub(super) spd: Option<At<String>>,
    /// Position of the local and the remote addresses.
    pub(super) selector: Place,
    /// Addresses, as far as they could be read.
    pub(super) local: Vec<Addresses>,
    pub(super) remote: Vec<Addresses>,
    /// True if its action is to protect.
    pub(super) protects: bool,
    /// For comparing with others; it may disagree with itself and with its SAs.
    pub(super) built: Option<Policy>,
    /// True if everything in the section could be read, and agrees.
    pub(super) is_sound: bool,
}

/// Reads one section.
pub(super) fn read(mut table: Table<'_>, report: &mut Report<'_>) -> Draft {
    let place = table.place.clone();
    let name =
        table.need(report, "name", "name = \"lan-to-lan\"").and_then(|f| name(f, report, "policy"));
    let action = table.need(report, "action", "action = \"protect\"").and_then(|f| {
        f.choice(
            report,
            &[("protect", Word::Protect), ("bypass", Word::Bypass), ("discard", Word::Discard)],
        )
    });
    let local = table
        .need(report, "local", "local = \"10.1.0.0/24\"")
        .map(|f| (f.place.clone(), addresses(f, report)));
    let remote = table
        .need(report, "remote", "remote = \"10.2.0.0/24\"")
        .map(|f| (f.place.clone(), addresses(f, report)));
    let (protocol_place, protocol) = match table.take("protocol") {
        Some(f) => (Some(f.place.clone()), protocol(f, report)),
        None => (None, Some(None)),
    };
    let upper = upper(&mut table, report, protocol);
    let priority = match table.take("priority") {
        Some(f) => f
            .integer(report, 0..=65_535, "use a number; of overlapping policies the lowest decides")
            .map(|at| at.value),
        None => Some(DEFAULT_PRIORITY),
    };
    let sa_out = table.take("sa_out");
    let sa_in = table.take("sa_in");
    let acquire = table.take("acquire").map(|f| {
        let place = f.place.clone();
        f.boolean(report).map(|value| At { value, place })
    });
    let given = sa_out.as_ref().or(sa_in.as_ref()).map(|f| f.place.clone());
    let sa_out = sa_out.map(|f| f.string(report, "the name of an outbound SA"));
    let sa_in: Option<Vec<_>> = sa_in.map(|f| {
        f.one_or_many().into_iter().map(|f| f.string(report, "the name of an inbound SA")).collect()
    });
    let sas_read = !matches!(sa_out, Some(None)) && sa_in.iter().flatten().all(Option::is_some);
    let on_demand = acquire.as_ref().is_some_and(|given| given.as_ref().is_some_and(|at| at.value));
    let sas_agree = sas_fit_action(action.as_ref(), given, on_demand, &place, report);
    let acquire_fits = acquire_fits(action.as_ref(), sa_out.is_some(), acquire.as_ref(), report);
    let spd = table.take("spd").map(|f| self::name(f, report, "database"));
    table.finish(report);

    let sa_out = sa_out.flatten();
    let sa_in: Vec<_> = sa_in.into_iter().flatten().flatten().collect();
    let selector = remote.as_ref().map_or_else(|| place.clone(), |(at, _)| at.clone());
    let pairs = families_meet(&local, &remote, report);
    let icmp_fits = icmp_fits(protocol_place.as_ref(), protocol.flatten(), &remote, report);
    let protects = action.as_ref().is_some_and(|at| at.value == Word::Protect);
    let action = action.map(|at| match at.value {
        Word::Protect => Action::Protect {
            sa_out: sa_out.as_ref().map(|at| Arc::from(at.value.as_str())),
            sa_in: sa_in.iter().map(|at| Arc::from(at.value.as_str())).collect(),
        },
        Word::Bypass => Action::Bypass,
        Word::Discard => Action::Discard,
    });
    let spd_read = !matches!(spd, Some(None));
    let is_sound = pairs && icmp_fits && sas_read && sas_agree && acquire_fits && spd_read;
    let spd = spd.flatten();
    let (local, remote) = (local.and_then(|side| side.1), remote.and_then(|side| side.1));
    let built = (|| {
        Some(Policy {
            name: name.as_ref()?.value.as_str().into(),
            action: action?,
            local: local.clone()?,
            remote: remote.clone()?,
            protocol: protocol?,
            upper: upper?,
            priority: u32::try_from(priority?).ok()?,
            acquire: on_demand,
            spd: spd.as_ref().map(|at| at.value.as_str().into()),
        })
    })();
    let (local, remote) = (local.unwrap_or_default(), remote.unwrap_or_default());
    Draft { place, name, sa_out, sa_in, spd, selector, local, remote, protects, built, is_sound }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Protect,
    Bypass,
    Discard,
}

/// Only what protects names SAs, and it names at least one.
fn sas_fit_action(
    action: Option<&At<Word>>,
    given: Option<Place>,
    on_demand: bool,
    section: &Place,
    report: &mut Report<'_>,
) -> bool {
    match (action.map(|at| at.value), given) {
        (Some(Word::Protect), None) if !on_demand => {
            let place =
                Place { span: section.span.clone(), key: format!("{}.sa_out", section.key) };
            report.error(
                &place,
                "is missing, and so is `sa_in`",
                "name the SAs that protect: sa_out = \"…\" and sa_in = \"…\"",
            );
            false
        }
        (Some(Word::Bypass | Word::Discard), Some(place)) => {
            report.error(
                &place,
                "only policies with action = \"protect\" name SAs",
                "remove the line, or change the action",
            );
            false
        }
        _ => true,
    }
}

/// Only an SA that has no name here can be made on demand.
fn acquire_fits(
    action: Option<&At<Word>>,
    has_sa_out: bool,
    acquire: Option<&Option<At<bool>>>,
    report: &mut Report<'_>,
) -> bool {
    let acquire = match acquire {
        None => return true,
        Some(None) => return false,
        Some(Some(acquire)) => acquire,
    };
    let (what, help) = match action.map(|at| at.value) {
        _ if !acquire.value => return true,
        Some(Word::Bypass | Word::Discard) => (
            "only policies with action = \"protect\" have SAs made on demand",
            "remove the line, or change the action",
        ),
        _ if has_sa_out => (
            "is of no use with `sa_out`, which is always there",
            "remove the line, or leave `sa_out` to whoever makes SAs on demand",
        ),
        _ => return true,
    };
    report.error(&acquire.place, what, help);
    false
}

type Side = Option<(Place, Option<Vec<Addresses>>)>;

/// True if every address on one side has one of its IP version on the other.
fn families_meet(local: &Side, remote: &Side, report: &mut Report<'_>) -> bool {
    let (Some((_, Some(local))), Some((place, Some(remote)))) = (local, remote) else {
        return false;
    };
    let alone = |from: &[Addresses], to: &[Addresses]| {
        from.iter().find(|a| !to.iter().any(|b| a.version() == b.version())).copied()
    };
    match alone(local, remote)
        .map(|a| (a, "remote"))
        .or_else(|| alone(remote, local).map(|a| (a, "local")))
    {
        Some((addresses, side)) => {
            report.error(
                place,
                format!("{addresses} has no {side} addresses of its IP version"),
                "give addresses of the same IP versions on both sides",
            );
            false
        }
        None => true,
    }
}

/// ICMP is part of IPv4, ICMPv6 of IPv6: whether any address has the one that is asked for.
fn icmp_fits(
    place: Option<&Place>,
    protocol: Option<Protocol>,
    remote: &Side,
    report: &mut Report<'_>,
) -> bool {
    let (Some(place), Some((_, Some(remote)))) = (place, remote) else { return true };
    let (version, other) = match protocol {
        Some(Protocol::ICMP) => (IpVersion::V4, "icmpv6"),
        Some(Protocol::ICMPV6) => (IpVersion::V6, "icmp"),
        _ => return true,
    };
    if remote.iter().any(|addresses| addresses.version() == version) {
        return true;
    }
    report.error(
        place,
        "no packet between these addresses is of this protocol",
        format!("did you mean \"{other}\"?"),
    );
    false
}

/// Networks and ranges, one or a list.
fn addresses(field: Field<'_>, report: &mut Report<'_>) -> Option<Vec<Addresses>> {
    let place = field.place.clone();
    let fields = field.one_or_many();
    if fields.is_empty() {
        report.error(
            &place,
            "is an empty list",
            "give networks; \"0.0.0.0/0\" and \"::/0\" are everything",
        );
        return None;
    }
    let read: Vec<_> = fields.into_iter().map(|f| one_address(f, report)).collect();
    read.into_iter().collect()
}

fn one_address(field: Field<'_>, report: &mut Report<'_>) -> Option<Addresses> {
    let text = field.string(
        report,
        "a network such as \"10.1.0.0/24\" or a range such as \"10.1.0.5-10.1.0.9\"",
    )?;
    let Some((first, last)) = text.value.split_once('-') else {
        return parse_prefix(&text.value, &text.place, report).map(Addresses::network);
    };
    let (Ok(first), Ok(last)) = (first.trim().parse::<IpAddr>(), last.trim().parse::<IpAddr>())
    else {
        report.error(
            &text.place,
            format!("{} is no range of addresses", quote(&text.value)),
            "write it like \"10.1.0.5-10.1.0.9\"",
        );
        return None;
    };
    let range = Addresses::range(first, last);
    if range.is_none() {
        let help = if first.is_ipv4() == last.is_ipv4() {
            format!("did you mean \"{last}-{first}\"?")
        } else {
            "use two addresses of one IP version".to_owned()
        };
        report.error(&text.place, format!("{} is an empty range", quote(&text.value)), help);
    }
    range
}

/// A protocol by name or number; the inner `None` stands for any.
fn protocol(field: Field<'_>, report: &mut Report<'_>) -> Option<Option<Protocol>> {
    let help =
        "use a name such as \"tcp\", \"udp\" or \"icmp\", a number from 0 to 255, or \"any\"";
    if !field.is_word() {
        let number = field.integer(report, 0..=255, help)?;
        return u8::try_from(number.value).ok().map(|n| Some(Protocol(n)));
    }
    let text = field.string(report, "a protocol")?;
    if text.value == "any" {
        return Some(None);
    }
    let found = Protocol::from_name(&text.value);
    if found.is_none() {
        let names = (0..=u8::MAX).filter_map(|n| Protocol(n).name());
        let help = nearest(&text.value, names)
            .map_or_else(|| help.to_owned(), |near| format!("did you mean \"{near}\"?"));
        report.error(&text.place, format!("{} is no protocol", quote(&text.value)), help);
    }
    found.map(Some)
}

/// Ports or ICMP types; `protocol` is `None` when it was wrong and reported.
fn upper(
    table: &mut Table<'_>,
    report: &mut Report<'_>,
    protocol: Option<Option<Protocol>>,
) -> Option<Upper> {
    let local_port = table.take("local_port");
    let remote_port = table.take("remote_port");
    let icmp_type = table.take("icmp_type");
    let icmp_code = table.take("icmp_code");
    let mut fits = true;
    if let Some(known) = protocol {
        let has_ports = known.is_some_and(Protocol::has_ports);
        let is_icmp = is_icmp(known);
        for field in [&local_port, &remote_port].into_iter().flatten().filter(|_| !has_ports) {
            report.error(
                &field.place,
                "only protocols with ports have one",
                "add protocol = \"tcp\" or \"udp\"",
            );
            fits = false;
        }
        for field in [&icmp_type, &icmp_code].into_iter().flatten().filter(|_| !is_icmp) {
            report.error(
                &field.place,
                "only ICMP has types and codes",
                "add protocol = \"icmp\" or \"icmpv6\"",
            );
            fits = false;
        }
    }
    // Read in any case, so that their own errors are told at once.
    let (local, remote) = (port_range(local_port, report), port_range(remote_port, report));
    let (types, codes) = (byte_range(icmp_type, report), byte_range(icmp_code, report));
    let known = protocol.filter(|_| fits)?;
    if known.is_some_and(Protocol::has_ports) {
        return Some(Upper::Ports { local: local?, remote: remote? });
    }
    if is_icmp(known) {
        return Some(Upper::Icmp { types: types?, codes: codes? });
    }
    Some(Upper::Any)
}

fn is_icmp(protocol: Option<Protocol>) -> bool {
    matches!(protocol, Some(Protocol::ICMP | Protocol::ICMPV6))
}

fn port_range(field: Option<Field<'_>>, report: &mut Report<'_>) -> Option<PortRange> {
    let Some(field) = field else { return Some(PortRange::ANY) };
    if field.is_string() {
        return field
            .parsed(report, "a port such as 443 or a range such as \"8000-8999\"")
            .map(|at| at.value);
    }
    let port = field.integer(
        report,
        0..=65_535,
        "use a port, or a range in quotes such as \"8000-8999\"",
    )?;
    u16::try_from(port.value).ok().map(PortRange::single)
}

fn byte_range(field: Option<Field<'_>>, report: &mut Report<'_>) -> Option<(u8, u8)> {
    let Some(field) = field else { return Some((0, u8::MAX)) };
    let help = "use a number from 0 to 255, or a range in quotes such as \"0-8\"";
    if !field.is_string() {
        let number = field.integer(report, 0..=255, help)?;
        return u8::try_from(number.value).ok().map(|n| (n, n));
    }
    let text = field.string(report, "a number or a range")?;
    let (first, last) = text.value.split_once('-').unwrap_or((&text.value, &text.value));
    match (first.trim().parse::<u8>(), last.trim().parse::<u8>()) {
        (Ok(first), Ok(last)) if first <= last => Some((first, last)),
        _ => {
            report.error(&text.place, format!("{} is no range", quote(&text.value)), help);
            None
        }
    }
}
