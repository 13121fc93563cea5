//! Readers of fields that several sections have.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use convoy_wire::{IpVersion, Prefix, PrefixError};

use super::model::InterfaceAddress;
use super::name::is_name;
use super::reader::{At, Field, Place, Report, Table, quote};

/// Longest path of a UNIX socket: `sun_path` less the final zero (unix(7)).
const MAX_SOCKET_PATH: usize = 107;

/// `Some(None)`: given but wrong, which was reported.
pub(super) fn transposed<T>(value: Option<Option<T>>) -> Option<Option<T>> {
    match value {
        Some(None) => None,
        Some(some) => Some(some),
        None => Some(None),
    }
}

/// A section in which everything has a default, so that it may be left out.
pub(super) fn section<T>(
    root: &mut Table<'_>,
    report: &mut Report<'_>,
    key: &'static str,
    read: impl FnOnce(Table<'_>, &mut Report<'_>) -> Option<T>,
) -> Option<T> {
    match root.take(key) {
        Some(field) => {
            let table = field.table(report, &format!("a [{key}] section"))?;
            read(table, report)
        }
        None => read(
            Table::new(Place { span: 0..0, key: key.to_owned() }, toml::de::DeTable::new()),
            report,
        ),
    }
}

pub(super) fn tables<'s>(
    root: &mut Table<'s>,
    report: &mut Report<'_>,
    key: &'static str,
) -> Vec<Table<'s>> {
    root.take(key).map_or_else(Vec::new, |field| field.tables(report))
}

/// A name of a gateway, SA or policy.
pub(super) fn name(field: Field<'_>, report: &mut Report<'_>, what: &str) -> Option<At<String>> {
    let name = field.string(report, &format!("the name of the {what}"))?;
    if is_name(&name.value) {
        return Some(name);
    }
    report.error(
        &name.place,
        format!("{} cannot be a name", quote(&name.value)),
        "use 1 to 64 letters, digits, '-', '_' and '.', beginning with a letter or digit",
    );
    None
}

pub(super) fn path_in(
    field: Field<'_>,
    report: &mut Report<'_>,
    folder: &Path,
) -> Option<At<PathBuf>> {
    let text = field.string(report, "a path")?;
    if text.value.is_empty() || text.value.contains('\0') {
        report.error(
            &text.place,
            "is not a path",
            "give a path; a relative one begins at the site file's folder",
        );
        return None;
    }
    Some(At { value: folder.join(text.value), place: text.place })
}

pub(super) fn socket(
    field: Field<'_>,
    report: &mut Report<'_>,
    folder: &Path,
) -> Option<At<PathBuf>> {
    let path = path_in(field, report, folder)?;
    let length = path.value.as_os_str().len();
    if length > MAX_SOCKET_PATH {
        report.error(
            &path.place,
            format!("path of the socket has {length} bytes"),
            format!("use a path of at most {MAX_SOCKET_PATH} bytes (unix(7))"),
        );
        return None;
    }
    Some(path)
}

pub(super) fn interface(field: Field<'_>, report: &mut Report<'_>) -> Option<String> {
    let name = field.string(report, "the name of an interface")?;
    let bad = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    if (1..=15).contains(&name.value.len())
        && !name.value.contains(bad)
        && !matches!(name.value.as_str(), "." | "..")
    {
        return Some(name.value);
    }
    report.error(
        &name.place,
        format!("{} cannot be the name of an interface", quote(&name.value)),
        "use 1 to 15 bytes without '/', ':' and white space",
    );
    None
}

/// `"auto"`, or something else: `Some(None)` stands for automatic, `None` for wrong.
pub(super) fn auto_or<'s, T>(
    field: Field<'s>,
    report: &mut Report<'_>,
    read: impl FnOnce(Field<'s>, &mut Report<'_>) -> Option<T>,
) -> Option<Option<T>> {
    if field.is_word() {
        return field.choice(report, &[("auto", ())]).map(|_| None);
    }
    read(field, report).map(Some)
}

/// An MTU from `least` to 65,535 bytes.
pub(super) fn mtu(field: Field<'_>, report: &mut Report<'_>, least: u64) -> Option<u16> {
    let help = "use the largest packet in bytes, such as 1500, or leave it out";
    let mtu = field.integer(report, least..=65_535, help)?;
    u16::try_from(mtu.value).ok()
}

pub(super) fn interface_address(
    field: Field<'_>,
    report: &mut Report<'_>,
) -> Option<InterfaceAddress> {
    let expected = "an address with prefix length such as \"10.1.0.1/24\"";
    let text = field.string(report, expected)?;
    let (addr, len) =
        text.value.split_once('/').map_or((text.value.as_str(), None), |(a, l)| (a, Some(l)));
    let Ok(addr) = addr.parse::<IpAddr>() else {
        report.error(
            &text.place,
            format!("{} is no address", quote(&text.value)),
            format!("write {expected}"),
        );
        return None;
    };
    let bits = IpVersion::of_addr(addr).address_bits();
    match len.map(str::parse::<u8>) {
        Some(Ok(prefix_len)) if prefix_len <= bits => Some(InterfaceAddress { addr, prefix_len }),
        None => {
            report.error(
                &text.place,
                format!("{addr} has no prefix length"),
                format!("write \"{addr}/{bits}\" for the address alone, or its network's length"),
            );
            None
        }
        Some(_) => {
            report.error(
                &text.place,
                format!("prefix length of {} is wrong", quote(&text.value)),
                format!("use a number from 0 to {bits}"),
            );
            None
        }
    }
}

/// A network; bits beyond its prefix length are an error with the network that was meant.
pub(super) fn prefix(field: Field<'_>, report: &mut Report<'_>) -> Option<Prefix> {
    let text = field.string(report, "a network such as \"192.0.2.0/24\"")?;
    parse_prefix(&text.value, &text.place, report)
}

/// As [`prefix`], of a text that was read already.
pub(super) fn parse_prefix(text: &str, place: &Place, report: &mut Report<'_>) -> Option<Prefix> {
    match text.parse::<Prefix>() {
        Ok(prefix) => Some(prefix),
        Err(PrefixError::HostBits { suggested }) => {
            report.error(
                place,
                format!("{} has bits set beyond its prefix length", quote(text)),
                format!("did you mean \"{suggested}\"?"),
            );
            None
        }
        Err(error) => {
            report.error(
                place,
                format!("{} is no network: {error}", quote(text)),
                "write it like \"192.0.2.0/24\" or \"2001:db8::/32\"",
            );
            None
        }
    }
}

/// A port from 1 to 65,535.
pub(super) fn port(field: Field<'_>, report: &mut Report<'_>) -> Option<u16> {
    let port = field.integer(report, 1..=65_535, "use a UDP port; 4500 is usual (RFC 3948)")?;
    u16::try_from(port.value).ok()
}

/// CPUs, one for each of what `who` says two of.
pub(super) fn cpus(field: Field<'_>, report: &mut Report<'_>, who: &str) -> Option<Vec<u16>> {
    let place = field.place.clone();
    let fields = field.many(report, "a list of CPU numbers such as [2, 3]")?;
    let cpus: Option<Vec<_>> = fields
        .into_iter()
        .map(|f| {
            f.integer(report, 0..=4095, "use a CPU number that `lscpu` shows")
                .and_then(|n| u16::try_from(n.value).ok())
        })
        .collect();
    let cpus = cpus?;
    if cpus.iter().enumerate().any(|(at, cpu)| cpus.iter().take(at).any(|other| other == cpu)) {
        report.warn(&place, format!("{who} share a CPU"), "give each a CPU of its own");
    }
    Some(cpus)
}
