//! Reports as text: aligned columns, units for people, no colours.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::columns::columns;
use super::summary::{LISTED_MAX, Summary};
use super::{
    CryptoReport, Daemons, DirectionStatus, DriverChange, DriverState, DriverStatus, Drops,
    LeakProtection, LifetimeLeft, LifetimeState, LifetimeStatus, Origin, PolicyDirection,
    PolicyReport, PolicyStatus, Questions, SaReport, SaStatus, Status, Use, WorkerStatus,
};
use crate::state::ReloadReport;

/// Something that can be shown on a terminal.
pub trait Text {
    /// The text, ending in a line end.
    fn text(&self) -> String;
}

impl Status {
    /// The text with every SA, however many they are.
    #[must_use]
    pub fn whole_text(&self) -> String {
        self.text_with(&self.sas, "")
    }

    /// The text with these SAs and a line about others.
    fn text_with(&self, sas: &[SaStatus], others: &str) -> String {
        let mut out = String::new();
        let workers = if self.workers == 1 {
            "1 worker".to_owned()
        } else {
            format!("{} workers", self.workers)
        };
        let engine = self.engine.iter().map(|name| format!(", engine {name}")).collect::<String>();
        // Writing to a String does not fail, here and below.
        let _ = writeln!(
            out,
            "{}: {}, up {}, {workers}{engine}, tier {}, process {}",
            self.name,
            self.health.level.word(),
            duration(self.uptime_s),
            self.tier,
            self.pid
        );
        for reason in &self.health.reasons {
            let _ = writeln!(out, "  ! {reason}");
        }
        let _ = writeln!(out, "  site file     {}", self.site_file);
        if let Some(namespace) = &self.namespace {
            let _ = writeln!(out, "  namespace     {namespace}");
        }
        if let Some(dir) = &self.leases.state_dir {
            let state = if self.leases.failure.is_some() { " (cannot be written)" } else { "" };
            let _ = writeln!(out, "  state folder  {dir}{state}");
        }
        if let Some(LeakProtection { is_on, detail, .. }) = &self.leak_protection {
            let state = if *is_on { "on" } else { "off" };
            let _ = writeln!(out, "  leak protection  {state}: {detail}");
        }
        if let Some(wire) = &self.wire {
            let _ = writeln!(out, "  wire          {}", wire.in_words());
        }
        if let Some(confinement) = &self.confinement {
            let _ = writeln!(out, "  confinement   {}", confinement.in_words());
        }
        if let Some(daemons) = &self.daemons {
            let _ = writeln!(out, "  IKE daemons   {}", attached(daemons));
        }
        let mut flows = Table::new(&["", "packets", "packets/s", "rate", "bytes", "last packet"]);
        let transit = self.transit.iter().filter(|flow| flow.packets > 0);
        let transit = transit.map(|flow| ("tunnel to tunnel", flow));
        let ways = [("outbound", &self.outbound), ("inbound", &self.inbound)];
        for (name, flow) in ways.into_iter().chain(transit) {
            flows.row(vec![
                name.to_owned(),
                count(flow.packets),
                rate(flow.packets_per_second, ""),
                rate(flow.bits_per_second, "bit/s"),
                bytes(flow.bytes),
                age(flow.last_packet_s),
            ]);
        }
        let _ = write!(out, "\n{}", flows.text());
        if self.by_worker.len() > 1 {
            let _ = write!(out, "\n{}", worker_table(&self.by_worker));
        }
        if let Some(questions) = self.leak_protection.as_ref().and_then(|leaks| leaks.questions) {
            let _ = write!(out, "\n{}", question_table(&questions));
        }
        if !others.is_empty() {
            let _ = writeln!(out, "\n{others}");
        }
        if !sas.is_empty() {
            let _ = write!(out, "\n{}", sa_table(sas));
        }
        let mut drops = drop_table("dropped because", self.drops.iter().filter(|it| it.is_loss));
        if self.kernel_drops > 0 {
            let meaning = "Dropped by the kernel before they could be read".to_owned();
            drops.row(vec![
                "(kernel)".to_owned(),
                count(self.kernel_drops),
                String::new(),
                meaning,
            ]);
        }
        let _ = match drops.rows.is_empty() {
            true => write!(out, "\nno packets dropped\n"),
            false => write!(out, "\n{}", drops.text()),
        };
        let useless = drop_table("dropped, no loss", self.drops.iter().filter(|it| !it.is_loss));
        if !useless.rows.is_empty() {
            let _ = write!(out, "\n{}", useless.text());
        }
        out
    }
}

impl Text for Status {
    fn text(&self) -> String {
        if self.sas.len() <= LISTED_MAX {
            return self.whole_text();
        }
        let Summary { line, noticed, more } = Summary::of(&self.sas);
        let more = match more {
            0 => String::new(),
            more => format!("\n{more} more that need attention are not shown"),
        };
        self.text_with(&noticed, &format!("{line}{more}"))
    }
}

/// The IKE daemons, and how many of their requests were refused.
fn attached(daemons: &Daemons) -> String {
    let names = daemons.attached.iter().map(|daemon| {
        format!("{} (pid {}) for {}", daemon.name, daemon.pid, duration(daemon.since_s))
    });
    let names = match daemons.attached.is_empty() {
        true => "none".to_owned(),
        false => names.collect::<Vec<_>>().join(", "),
    };
    match daemons.refused_requests {
        0 => names,
        count => format!("{names}; requests refused: {}", self::count(count)),
    }
}

impl Text for SaReport {
    fn text(&self) -> String {
        if self.sas.is_empty() {
            return "no SAs\n".to_owned();
        }
        sa_table(&self.sas)
    }
}

fn drop_table<'a>(heading: &str, drops: impl Iterator<Item = &'a Drops>) -> Table {
    let mut table = Table::new(&[heading, "packets", "packets/s", "meaning"]);
    for drop in drops {
        let meaning = drop.help.split_once(". ").map_or(drop.help.as_str(), |(first, _)| first);
        let meaning = meaning.trim_end_matches('.').to_owned();
        let rate = rate(drop.packets_per_second, "");
        table.row(vec![drop.reason.clone(), count(drop.packets), rate, meaning]);
    }
    table
}

fn worker_table(workers: &[WorkerStatus]) -> String {
    let mut table =
        Table::new(&["worker", "outbound SAs", "packets", "inbound SAs", "packets", "dropped"]);
    for of in workers {
        let counts =
            [of.outbound_sas, of.outbound_packets, of.inbound_sas, of.inbound_packets, of.dropped];
        let number = core::iter::once(of.worker.to_string());
        table.row(number.chain(counts.map(count)).collect());
    }
    table.text()
}

fn question_table(questions: &Questions) -> String {
    let mut table = Table::new(&[
        "verdicts",
        "requested",
        "in clear",
        "protected",
        "dropped",
        "not given",
        "queue full",
        "unread",
    ]);
    for (name, of) in [("outbound", &questions.outbound), ("inbound", &questions.inbound)] {
        let counts = [
            of.asked,
            Some(of.bypassed),
            Some(of.protected),
            Some(of.discarded),
            Some(of.unanswered),
            of.queue_full,
            of.unread,
        ];
        let counts = counts.map(|known| known.map_or_else(|| "?".to_owned(), count));
        table.row(core::iter::once(name.to_owned()).chain(counts).collect());
    }
    table.text()
}

fn sa_table(sas: &[SaStatus]) -> String {
    let mut out = String::new();
    let common = |sa: &SaStatus| {
        let peer = match sa.udp_ports {
            Some((_, port)) if sa.remote.is_ipv6() => format!("[{}]:{port}", sa.remote),
            Some((_, port)) => format!("{}:{port}", sa.remote),
            None => sa.remote.to_string(),
        };
        vec![
            sa.name.clone(),
            sa.spi.clone(),
            peer,
            if sa.protocol == "ah" { format!("AH {}", sa.algorithm) } else { sa.algorithm.clone() },
            count(sa.flow.packets),
            rate(sa.flow.bits_per_second, "bit/s"),
            age(sa.flow.last_packet_s),
        ]
    };
    let mut outbound = Table::new(&[
        "outbound SA",
        "SPI",
        "peer",
        "algorithm",
        "packets",
        "rate",
        "last",
        "numbers left",
        "leased",
        "ends in",
        "path MTU",
    ]);
    let mut inbound = Table::new(&[
        "inbound SA",
        "SPI",
        "peer",
        "algorithm",
        "packets",
        "rate",
        "last",
        "highest number",
        "window",
        "replayed",
        "bad ICV",
    ]);
    let limited = sas.iter().any(|sa| sa.lifetime.is_some());
    if limited {
        for table in [&mut outbound, &mut inbound] {
            table.column("lifetime left");
        }
    }
    let lossy = sas.iter().any(|sa| sa.dropped > 0);
    let driven = sas.iter().any(|sa| sa.origin == Origin::Daemon);
    let divided = sas.iter().any(|sa| sa.worker != 0);
    let placed = sas.iter().any(|sa| sa.if_id != 0);
    let refused = sas.iter().any(|sa| sa.refused_by_engine);
    for table in [&mut outbound, &mut inbound] {
        lossy.then(|| table.column("dropped"));
        driven.then(|| table.column("reqid"));
        placed.then(|| table.column("if_id"));
        divided.then(|| table.column("worker"));
        refused.then(|| table.column("done by"));
    }
    let rest = |sa: &SaStatus| {
        let dropped = lossy.then(|| count(sa.dropped));
        let is_daemons = sa.origin == Origin::Daemon;
        let reqid = if is_daemons { sa.reqid.to_string() } else { "-".to_owned() };
        let if_id = placed.then(|| sa.if_id.to_string());
        let by = if sa.refused_by_engine { "worker" } else { "engine" };
        let by = refused.then(|| by.to_owned());
        let reqid = driven.then_some(reqid);
        let worker = divided.then(|| sa.worker.to_string());
        let all = dropped.into_iter().chain(reqid).chain(if_id).chain(worker).chain(by);
        all.collect::<Vec<_>>()
    };
    for sa in sas {
        let mut row = common(sa);
        match sa.direction {
            DirectionStatus::Outbound {
                sequence,
                left,
                exhausted_in_s,
                leased_until,
                path_mtu,
            } => {
                row.extend([
                    large(left),
                    leased(sequence, leased_until),
                    ends(exhausted_in_s),
                    path_mtu.to_string(),
                ]);
                row.extend(limited.then(|| life(sa.lifetime.as_ref())));
                row.extend(rest(sa));
                outbound.row(row);
            }
            DirectionStatus::Inbound { replay_edge, replay_window, replayed, icv_failures } => {
                let window =
                    if replay_window == 0 { "off".to_owned() } else { replay_window.to_string() };
                row.extend([large(replay_edge), window, count(replayed), count(icv_failures)]);
                row.extend(limited.then(|| life(sa.lifetime.as_ref())));
                row.extend(rest(sa));
                inbound.row(row);
            }
        }
    }
    let tables = [outbound, inbound];
    for (at, table) in tables.iter().filter(|table| !table.rows.is_empty()).enumerate() {
        let gap = if at > 0 { "\n" } else { "" };
        let _ = write!(out, "{gap}{}", table.text());
    }
    out
}

/// Count of numbers that may be used before the next lease; `-` for an SA without leases.
fn leased(sequence: u64, leased_until: u64) -> String {
    match leased_until {
        u64::MAX => "-".to_owned(),
        until => count(until.saturating_sub(sequence.saturating_add(1))),
    }
}

/// A remainder of packets or bytes that is no limit to anybody: 2^60 bytes take three years at 100 Gbit/s. Libreswan writes
/// 2^63 for no limit.
const ENDLESS: u64 = 1 << 60;

/// Remainder until an SA ends, or until it should be replaced if it never ends by itself.
fn life(lifetime: Option<&LifetimeStatus>) -> String {
    let Some(lifetime) = lifetime else { return "no limit".to_owned() };
    let parts = |left: &LifetimeLeft| {
        let time = [left.age_s, left.use_s].into_iter().flatten().min_by(f64::total_cmp);
        let parts = [
            time.map(duration),
            left.bytes.filter(|n| *n < ENDLESS).map(bytes),
            left.packets.filter(|n| *n < ENDLESS).map(|n| format!("{} packets", count(n))),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    };
    let mut text = match (lifetime.state, parts(&lifetime.hard)) {
        (LifetimeState::Expired, _) => return "EXPIRED".to_owned(),
        (LifetimeState::Ending, hard) if hard.is_empty() => return "replace it".to_owned(),
        (LifetimeState::Live, hard) if hard.is_empty() => match parts(&lifetime.soft) {
            soft if soft.is_empty() => "no limit".to_owned(),
            soft => format!("{soft} (soft)"),
        },
        (LifetimeState::Live, hard) if !parts(&lifetime.soft).is_empty() => {
            format!("{hard}; {} (soft)", parts(&lifetime.soft))
        }
        (_, hard) => hard,
    };
    if lifetime.state == LifetimeState::Ending {
        text += " (replace it)";
    }
    text
}

impl Text for PolicyReport {
    fn text(&self) -> String {
        if self.policies.is_empty() {
            return "no policies: every packet is dropped\n".to_owned();
        }
        let mut titles =
            vec!["policy", "priority", "action", "local", "remote", "protocol", "SA out", "SA in"];
        titles.extend(["sent", "received", "last packet"]);
        let asked = self.policies.iter().any(|policy| policy.asked_out + policy.asked_in > 0);
        titles.extend(asked.then_some(["verdicts out", "verdicts in"]).into_iter().flatten());
        // Most gateways have one database only.
        let several = self.policies.iter().any(|policy| policy.spd.is_some());
        titles.extend(several.then_some("database"));
        let driven = self.policies.iter().any(|policy| policy.origin == Origin::Daemon);
        titles.extend(driven.then_some("way"));
        let mut table = Table::new(&titles);
        for policy in &self.policies {
            let protocol = policy.protocol.clone().unwrap_or_else(|| "any".to_owned());
            let upper = policy.upper.as_ref().map(|upper| format!(" {upper}")).unwrap_or_default();
            let mut row = vec![
                policy.name.clone(),
                policy.priority.to_string(),
                policy.action.clone(),
                policy.local.join(", "),
                policy.remote.join(", "),
                protocol + &upper,
                match &policy.sa_out {
                    None if policy.acquire => "(on demand)".to_owned(),
                    sa_out => sa_out.clone().unwrap_or_default(),
                },
                policy.sa_in.join(", "),
            ];
            let count =
                |of: &Use| format!("{}{}", of.packets, if policy.shared { "*" } else { "" });
            let last = [policy.sent.last_packet_s, policy.received.last_packet_s];
            row.extend([
                count(&policy.sent),
                count(&policy.received),
                age(last.into_iter().flatten().min_by(f64::total_cmp)),
            ]);
            let questions = [policy.asked_out, policy.asked_in].map(|count| count.to_string());
            row.extend(asked.then_some(questions).into_iter().flatten());
            let unused = if policy.decides { "" } else { " (unused)" };
            let name = policy.spd.as_deref().unwrap_or("(common)");
            row.extend(several.then(|| format!("{name}{unused}")));
            row.extend(driven.then(|| way(policy).to_owned()));
            table.row(row);
        }
        let mut text = table.text();
        if self.policies.iter().any(|policy| policy.shared) {
            text += "* with packets of other policies that use the same SA\n";
        }
        text
    }
}

/// For packets of which direction a policy is.
fn way(policy: &PolicyStatus) -> &'static str {
    match policy.direction {
        None => "both",
        Some(PolicyDirection::Out) => "out",
        Some(PolicyDirection::In) => "in",
        Some(PolicyDirection::Forward) => "fwd",
    }
}

impl Text for CryptoReport {
    fn text(&self) -> String {
        let mut table = Table::new(&["tier", "", "needs"]);
        for tier in &self.tiers {
            let state = match tier.available {
                true if tier.name == self.best => "in use",
                true => "available",
                false => "missing or denied",
            };
            let needs = tier.builds_on.iter().chain(&tier.features).cloned().collect::<Vec<_>>();
            table.row(vec![tier.name.clone(), state.to_owned(), needs.join(" ")]);
        }
        let mut out = format!("engine: {}\n\n{}\n", self.engine, table.text());
        let used: HashSet<_> =
            self.drivers.iter().filter(|d| d.sas > 0).map(|d| &d.algorithm).collect();
        let is_shown = |driver: &&DriverStatus| {
            let is_off = driver.state == DriverState::Off;
            is_off || used.contains(&driver.algorithm) && driver.state != DriverState::Benches
        };
        let shown: Vec<_> = self.drivers.iter().filter(is_shown).collect();
        out += &drivers(&shown);
        let rest = self.drivers.len() - shown.len();
        let _ =
            writeln!(out, "{rest} drivers more, of other algorithms or for benches: see --json");
        out
    }
}

fn drivers(all: &[&DriverStatus]) -> String {
    let heading =
        ["algorithm", "driver", "priority", "use", "SAs", "packets", "wrong ICVs", "self-test"];
    let mut table = Table::new(&heading);
    for driver in all {
        table.row(vec![
            driver.algorithm.clone(),
            driver.driver.clone(),
            driver.priority.to_string(),
            driver.state.word().to_owned(),
            driver.sas.to_string(),
            driver.packets.to_string(),
            driver.failures.to_string(),
            driver.self_test.clone(),
        ]);
    }
    table.text()
}

impl Text for DriverChange {
    fn text(&self) -> String {
        let moved = match self.sas_changed {
            0 => "no SA changed its driver".to_owned(),
            1 => "1 SA changed its driver".to_owned(),
            many => format!("{many} SAs changed their driver"),
        };
        format!("{}{moved}\n", drivers(&[&self.driver]))
    }
}

impl Text for ReloadReport {
    fn text(&self) -> String {
        if self.is_empty() {
            return "nothing changed\n".to_owned();
        }
        let mut out = String::new();
        for (what, names) in [
            ("SAs added", &self.sas_added),
            ("SAs changed", &self.sas_changed),
            ("SAs with a new key", &self.sas_replaced),
            ("SAs removed", &self.sas_removed),
            ("policies added", &self.policies_added),
            ("policies changed", &self.policies_changed),
            ("policies removed", &self.policies_removed),
        ] {
            if !names.is_empty() {
                let _ = writeln!(out, "{what}: {}", listed(names));
            }
        }
        let _ = writeln!(out, "SAs unchanged: {}", self.sas_unchanged);
        out
    }
}

/// Names of a list that are written out, if it is longer.
const FIRST_NAMES: usize = 5;

/// Names, or how many there are and the first of them.
fn listed(names: &[String]) -> String {
    if names.len() <= 2 * FIRST_NAMES {
        return names.join(", ");
    }
    let first = names.get(..FIRST_NAMES).unwrap_or_default().join(", ");
    let more = names.len().saturating_sub(FIRST_NAMES);
    format!("{} ({first} and {more} more)", names.len())
}

/// Columns as wide as their widest entry; numbers to the right.
struct Table {
    rows: Vec<Vec<String>>,
    head: Vec<String>,
}

impl Table {
    fn new(head: &[&str]) -> Self {
        Self { rows: Vec::new(), head: head.iter().map(|&name| name.to_owned()).collect() }
    }

    /// Adds a column to the right.
    fn column(&mut self, name: &str) {
        self.head.push(name.to_owned());
    }

    fn row(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    fn text(&self) -> String {
        let is_right = |at: usize| {
            let mut cells = self.rows.iter().filter_map(|row| row.get(at));
            at > 0 && cells.all(|cell| is_number(cell))
        };
        let is_right: Vec<_> = (0..self.head.len()).map(is_right).collect();
        let rows: Vec<_> = std::iter::once(&self.head).chain(&self.rows).cloned().collect();
        columns(&rows, |at| is_right.get(at).copied().unwrap_or(false))
    }
}

/// True if a cell is a number, perhaps with a unit, or stands for one.
fn is_number(cell: &str) -> bool {
    let digits = |c: char| c.is_ascii_digit() || c == ' ' || c == '.';
    let unit = cell.trim_start_matches(digits);
    let is_quantity = unit.len() < cell.len()
        && unit.len() <= 6
        && !unit.starts_with(|c: char| "x:-".contains(c));
    cell.is_empty() || cell == "-" || (is_quantity && cell.matches('.').count() <= 1)
}

/// A number with thin groups: `12 345 678`.
fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// A number that may have 64 bits, in full while it has no more than 15 digits.
fn large(n: u64) -> String {
    if n < 1_000_000_000_000_000 { count(n) } else { scaled(n as f64, "") }
}

/// A rate with three significant digits and a decimal prefix.
fn rate(per_second: Option<f64>, unit: &str) -> String {
    match per_second {
        None => "-".to_owned(),
        Some(rate) => scaled(rate, unit),
    }
}

fn bytes(n: u64) -> String {
    scaled(n as f64, "B")
}

fn scaled(mut value: f64, unit: &str) -> String {
    let mut prefix = "";
    for next in ["k", "M", "G", "T", "P", "E"] {
        if value < 999.5 {
            break;
        }
        (value, prefix) = (value / 1000.0, next);
    }
    let decimals = match value {
        v if prefix.is_empty() || v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$} {prefix}{unit}");
    text.trim_end().to_owned()
}

fn age(seconds: Option<f64>) -> String {
    match seconds {
        None => "never".to_owned(),
        Some(s) if s < 1.0 => "now".to_owned(),
        Some(s) => format!("{} ago", duration(s)),
    }
}

fn ends(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), duration)
}

/// The two largest units of a time.
fn duration(seconds: f64) -> String {
    const YEAR: f64 = 365.25 * 86_400.0;
    let (first, second) = match seconds {
        s if s >= 1000.0 * YEAR => return "over 1000 years".to_owned(),
        s if s >= YEAR => ((s / YEAR, "y"), (s % YEAR / 86_400.0, "d")),
        s if s >= 86_400.0 => ((s / 86_400.0, "d"), (s % 86_400.0 / 3600.0, "h")),
        s if s >= 3600.0 => ((s / 3600.0, "h"), (s % 3600.0 / 60.0, "min")),
        s if s >= 60.0 => ((s / 60.0, "min"), (s % 60.0, "s")),
        s => return format!("{s:.0} s"),
    };
    format!("{:.0} {} {:.0} {}", first.0.floor(), first.1, second.0.floor(), second.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_for_people() {
        assert_eq!(
            [count(0), count(999), count(1000), count(12_345_678)],
            ["0", "999", "1 000", "12 345 678"]
        );
        assert_eq!(scaled(0.4, "bit/s"), "0 bit/s");
        assert_eq!(scaled(999.6, "bit/s"), "1.00 kbit/s");
        assert_eq!(scaled(2_345_000_000.0, "bit/s"), "2.35 Gbit/s");
        assert_eq!(scaled(12_340.0, ""), "12.3 k");
        assert_eq!(rate(None, "bit/s"), "-");
        assert_eq!(
            [age(None), age(Some(0.2)), age(Some(75.0))],
            ["never", "now", "1 min 15 s ago"]
        );
        assert_eq!([duration(59.4), duration(3.0 * 3600.0 + 720.0)], ["59 s", "3 h 12 min"]);
        assert_eq!([duration(2.0 * 86_400.0), duration(1e12)], ["2 d 0 h", "over 1000 years"]);
    }

    #[test]
    fn an_sa_without_leases_shows_none() {
        assert_eq!([leased(0, 1), leased(99, 1100), leased(50, u64::MAX)], ["0", "1 000", "-"]);
    }

    #[test]
    fn limits_that_nobody_reaches_are_none() {
        let none = LifetimeLeft { packets: None, bytes: None, age_s: None, use_s: None };
        let far = LifetimeLeft { packets: Some(1 << 63), bytes: Some(1 << 62), ..none };
        let shown = |soft, hard| {
            let state = LifetimeState::Live;
            life(Some(&LifetimeStatus { state, packets: 1, bytes: 1, soft, hard }))
        };
        assert_eq!(shown(far, far), "no limit");
        assert_eq!(shown(none, far), "no limit");
        let timed = LifetimeLeft { age_s: Some(60.0), ..far };
        assert_eq!(shown(timed, far), "1 min 0 s (soft)");
        assert_eq!(shown(far, timed), "1 min 0 s");
        let near = LifetimeLeft { bytes: Some((1 << 60) - 1), ..none };
        assert_eq!(shown(far, near), "1.15 EB");
    }

    #[test]
    fn numbers_of_64_bits_have_a_prefix() {
        let all = [1_u64 << 32, 999_999_999_999_999, 1 << 50, u64::MAX].map(large);
        assert_eq!(all, ["4 294 967 296", "999 999 999 999 999", "1.13 P", "18.4 E"]);
    }

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["name", "n"]);
        table.row(vec!["a".into(), "1".into()]);
        table.row(vec!["longer".into(), "1 000".into()]);
        assert_eq!(table.text(), "name        n\na           1\nlonger  1 000\n");
    }
}
