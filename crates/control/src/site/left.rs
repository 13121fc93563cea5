//! The part of a site file that says what its gateway leaves on the host.

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// Interfaces with their namespace, marks, and the socket at which a gateway that runs answers.
const WHOLE: [&str; 4] = ["name", "namespace", "control_socket", "marks"];

/// Keeps that part alone.
pub(super) fn only(document: DeTable<'_>) -> DeTable<'_> {
    document.into_iter().filter_map(part).collect()
}

fn part<'t>(
    (key, value): (Spanned<DeString<'t>>, Spanned<DeValue<'t>>),
) -> Option<(Spanned<DeString<'t>>, Spanned<DeValue<'t>>)> {
    let names: &[&str] = match &**key.get_ref() {
        "plain" => &["backend", "interface"],
        "wire" => &["backend", "interface", "udp_port"],
        "xfrm" => &["interface"],
        whole => return WHOLE.contains(&whole).then_some((key, value)),
    };
    let span = value.span();
    let value = match value.into_inner() {
        DeValue::Table(table) => DeValue::Table(with(table, names)),
        other => other,
    };
    Some((key, Spanned::new(span, value)))
}

fn with<'t>(table: DeTable<'t>, names: &[&str]) -> DeTable<'t> {
    table.into_iter().filter(|(key, _)| names.contains(&&**key.get_ref())).collect()
}
