//! Metrics for Prometheus: a page in its text format, version 0.0.4, and who serves it.
//!
//! Names and labels are an interface like the JSON of [`status`](crate::status). Counters end in `_total` and
//! survive the replacement of SAs: they are kept per tunnel. Times are of the last packet, as Unix time.

mod http;
mod page;
mod tunnels;

use std::collections::BTreeMap;
use std::sync::Arc;

use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::event::Event;
use convoy_ipsec::pipeline::WorkerCounters;

use crate::state::State;
use crate::status::{Connections, Origin, PolicyDirection, PolicyReport, Status, policy_report};
use crate::xfrm::{Kernel, Moment, Wanted};
pub use http::{MetricsError, Server};
use page::{Kind, Page};
use tunnels::Tunnel;
pub use tunnels::Tunnels;

/// Events of workers, counted by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    soft: u64,
    hard: u64,
    acquires: u64,
    mappings: u64,
}

impl Told {
    /// Counts an event.
    pub fn count(&mut self, event: &Event) {
        let counter = match event {
            Event::Soft { .. } => &mut self.soft,
            Event::Hard { .. } => &mut self.hard,
            Event::Acquire { .. } => &mut self.acquires,
            Event::Mapping { .. } => &mut self.mappings,
            _ => return,
        };
        *counter += 1;
    }
}

/// Work of one worker.
#[derive(Clone, Debug)]
pub struct Load {
    /// Its number.
    pub worker: u16,
    /// Counters of its pipelines.
    pub pipeline: Arc<WorkerCounters>,
    /// Number of times that it went to sleep for want of work.
    pub sleeps: u64,
    /// Nanoseconds in which it moved packets.
    pub busy_ns: u64,
    /// Packets that it gave to other workers, and took from them.
    pub handed: (u64, u64),
}

/// Sources of a page.
#[derive(Debug)]
pub struct Inputs<'a> {
    /// The gateway.
    pub state: &'a State,
    /// SAs and policies of IKE daemons, if they are served.
    pub daemons: Option<&'a Kernel>,
    /// Its health, flows and drops.
    pub status: &'a Arc<Status>,
    /// Totals of tunnels, fed a moment ago.
    pub tunnels: &'a Tunnels,
    /// Events of workers.
    pub told: Told,
    /// Workers.
    pub workers: &'a [Load],
    /// This moment.
    pub at: Moment,
}

/// A copy of what a page tells, from which it is made while the gateway does other things.
#[derive(Debug)]
pub struct Figures {
    status: Arc<Status>,
    /// SAs there are, outbound and inbound.
    sas: (usize, usize),
    totals: Vec<(Tunnel, tunnels::Total)>,
    /// Tunnels that policies of daemons ask for.
    wanted: Vec<Wanted>,
    policies: PolicyReport,
    told: Told,
    workers: Vec<Load>,
    at: Moment,
}

impl Figures {
    /// Copies them.
    #[must_use]
    pub fn of(inputs: &Inputs<'_>) -> Self {
        Self {
            status: inputs.status.clone(),
            sas: inputs.state.published().current().len(),
            totals: inputs.tunnels.totals(),
            wanted: inputs.daemons.iter().flat_map(|kernel| kernel.tunnels()).collect(),
            policies: policy_report(inputs.state, inputs.daemons, inputs.at.worker.0),
            told: inputs.told,
            workers: inputs.workers.to_vec(),
            at: inputs.at,
        }
    }

    /// The page.
    #[must_use]
    pub fn page(&self) -> String {
        let mut page = Page::default();
        gateway(&mut page, self);
        tunnels(&mut page, self);
        policies(&mut page, self);
        workers(&mut page, self);
        page.into_text()
    }
}

/// The page.
#[must_use]
pub fn page(inputs: &Inputs<'_>) -> String {
    Figures::of(inputs).page()
}

/// Seconds since 1970 of a moment of the workers' clock; 0 for never.
fn unix(at: Moment, ns: u64) -> String {
    if ns == 0 {
        return "0".to_owned();
    }
    let unix_ns = at.unix_ns.saturating_sub(at.worker.0.saturating_sub(ns));
    format!("{}.{:03}", unix_ns / 1_000_000_000, unix_ns / 1_000_000 % 1000)
}

fn gateway(page: &mut Page, inputs: &Figures) {
    let status = &*inputs.status;
    let labels =
        [("version", &*status.version), ("tier", &*status.tier), ("gateway", &*status.name)];
    page.family("convoy_build_info", Kind::Gauge, "Version, CPU tier and name; always 1.")
        .sample(&labels, 1);
    let start = inputs.at.unix_ns as f64 / 1e9 - status.uptime_s;
    page.family(
        "convoy_start_time_seconds",
        Kind::Gauge,
        "When the gateway started, as Unix time.",
    )
    .sample(&[], format!("{start:.3}"));
    page.family(
        "convoy_health",
        Kind::Gauge,
        "0: well, 1: warning, 2: critical; `convoy status` says why.",
    )
    .sample(&[], status.health.level.exit_code());
    let flows = [("outbound", status.outbound), ("inbound", status.inbound)];
    let mut family = page.family("convoy_packets_total", Kind::Counter, "Packets that passed.");
    for (way, flow) in flows {
        family.sample(&[("direction", way)], flow.packets);
    }
    let mut family = page.family("convoy_bytes_total", Kind::Counter, "Inner bytes that passed.");
    for (way, flow) in flows {
        family.sample(&[("direction", way)], flow.bytes);
    }
    let mut family =
        page.family("convoy_dropped_packets_total", Kind::Counter, "Dropped packets by reason.");
    for reason in DropReason::ALL {
        let sum: u64 = inputs.workers.iter().map(|load| load.pipeline.drops.get(*reason)).sum();
        family.sample(&[("reason", reason.name())], sum);
    }
    page.family(
        "convoy_kernel_dropped_packets_total",
        Kind::Counter,
        "Packets that the kernel dropped before they could be read.",
    )
    .sample(&[], status.kernel_drops);
    let mut family = page.family(
        "convoy_events_total",
        Kind::Counter,
        "Other events that ports and workers count, by name.",
    );
    for count in &status.counters {
        family.sample(&[("event", &count.name)], count.value);
    }
    questions(page, status);
    connections(page, status);
    daemons(page, status);
    let Told { soft, hard, acquires, mappings } = inputs.told;
    page.family(
        "convoy_sa_expirations_total",
        Kind::Counter,
        "SAs that reached a limit of their lifetime.",
    )
    .sample(&[("limit", "soft")], soft)
    .sample(&[("limit", "hard")], hard);
    page.family("convoy_acquires_total", Kind::Counter, "Requests of workers for an SA on demand.")
        .sample(&[], acquires);
    page.family(
        "convoy_mappings_total",
        Kind::Counter,
        "Reports of workers that a peer behind a NAT sends from another address.",
    )
    .sample(&[], mappings);
    let (outbound, inbound) = inputs.sas;
    page.family("convoy_sas", Kind::Gauge, "SAs at present.")
        .sample(&[("direction", "outbound")], outbound)
        .sample(&[("direction", "inbound")], inbound);
}

/// Adds IKE daemons and the requests that were refused to them.
fn daemons(page: &mut Page, status: &Status) {
    let Some(daemons) = &status.daemons else { return };
    page.family("convoy_ike_daemons", Kind::Gauge, "IKE daemons that are attached.")
        .sample(&[], daemons.attached.len());
    page.family(
        "convoy_refused_requests_total",
        Kind::Counter,
        "Requests of IKE daemons that were refused with a reason.",
    )
    .sample(&[], daemons.refused_requests);
}

/// Adds the kernel's questions about packets of mixed prefixes, and the answers.
fn questions(page: &mut Page, status: &Status) {
    let Some(questions) = status.leak_protection.as_ref().and_then(|leaks| leaks.questions) else {
        return;
    };
    let ways = [("outbound", questions.outbound), ("inbound", questions.inbound)];
    let mut family = page.family(
        "convoy_questions_total",
        Kind::Counter,
        "Packets on which the kernel requested a verdict, because policies bypass a part of their networks.",
    );
    for (way, counts) in ways {
        if let Some(asked) = counts.asked {
            family.sample(&[("direction", way)], asked);
        }
    }
    let mut family =
        page.family("convoy_answers_total", Kind::Counter, "Verdicts that were given, by kind.");
    for (way, counts) in ways {
        let verdicts = [
            ("bypass", counts.bypassed),
            ("protect", counts.protected),
            ("discard", counts.discarded),
        ];
        for (verdict, count) in verdicts {
            family.sample(&[("direction", way), ("verdict", verdict)], count);
        }
    }
    let mut family = page.family(
        "convoy_unanswered_packets_total",
        Kind::Counter,
        "Packets dropped because they had no verdict.",
    );
    for (way, counts) in ways {
        family.sample(&[("direction", way)], counts.unanswered);
    }
    let mut family = page.family(
        "convoy_question_overflows_total",
        Kind::Counter,
        "Packets dropped because too many waited for a verdict (queue), or because requests were not read soon \
         enough (socket).",
    );
    for (way, counts) in ways {
        for (place, lost) in [("queue", counts.queue_full), ("socket", counts.unread)] {
            if let Some(lost) = lost {
                family.sample(&[("direction", way), ("place", place)], lost);
            }
        }
    }
}

/// The kernel's table of connections.
fn connections(page: &mut Page, status: &Status) {
    let leaks = status.leak_protection.as_ref();
    let Some(Connections { entries, limit }) = leaks.and_then(|leaks| leaks.connections) else {
        return;
    };
    page.family(
        "convoy_conntrack_entries",
        Kind::Gauge,
        "Flows that the kernel tracks in the gateway's network namespace.",
    )
    .sample(&[], entries);
    page.family(
        "convoy_conntrack_entries_limit",
        Kind::Gauge,
        "Most flows that the kernel tracks; further ones are dropped.",
    )
    .sample(&[], limit);
}

/// Labels of a tunnel.
struct Labels(Vec<(&'static str, String)>);

impl Labels {
    fn new(tunnel: &Tunnel) -> Self {
        let origin = if tunnel.origin() == Origin::Daemon { "daemon" } else { "site" };
        let mut all = vec![("origin", origin.to_owned()), ("reqid", tunnel.reqid.to_string())];
        // Most tunnels have none, and keep the name that they always had.
        if tunnel.if_id != 0 {
            all.push(("if_id", tunnel.if_id.to_string()));
        }
        all.extend([("local", tunnel.local.to_string()), ("remote", tunnel.remote.to_string())]);
        Self(all)
    }

    fn all(&self) -> Vec<(&str, &str)> {
        self.0.iter().map(|(name, text)| (*name, &**text)).collect()
    }

    fn with<'a>(&'a self, way: &'a str) -> Vec<(&'a str, &'a str)> {
        self.all().into_iter().chain([("direction", way)]).collect()
    }
}

fn tunnels(page: &mut Page, inputs: &Figures) {
    let totals = &inputs.totals;
    let mut up: BTreeMap<Tunnel, bool> =
        totals.iter().map(|(tunnel, total)| (*tunnel, total.is_up)).collect();
    // Policies whose tunnel never had an SA are seen as well.
    for wanted in &inputs.wanted {
        let Wanted { reqid, if_id, local, remote } = *wanted;
        up.entry(Tunnel { is_daemons: true, reqid, if_id, local, remote }).or_insert(false);
    }
    let mut family =
        page.family("convoy_tunnel_up", Kind::Gauge, "1 if a tunnel has an outbound SA, 0 if not.");
    for (tunnel, is_up) in &up {
        family.sample(&Labels::new(tunnel).all(), u8::from(*is_up));
    }
    let ways = |total: &tunnels::Total| [("outbound", total.outbound), ("inbound", total.inbound)];
    let labelled: Vec<_> =
        totals.iter().map(|(tunnel, total)| (Labels::new(tunnel), total)).collect();
    let mut family = page.family(
        "convoy_tunnel_packets_total",
        Kind::Counter,
        "Packets that passed through a tunnel's SAs, removed ones included.",
    );
    for (labels, (way, passed)) in labelled.iter().flat_map(|(l, t)| ways(t).map(|way| (l, way))) {
        family.sample(&labels.with(way), passed.packets);
    }
    let mut family =
        page.family("convoy_tunnel_bytes_total", Kind::Counter, "Inner bytes of those packets.");
    for (labels, (way, passed)) in labelled.iter().flat_map(|(l, t)| ways(t).map(|way| (l, way))) {
        family.sample(&labels.with(way), passed.bytes);
    }
    let mut family = page.family(
        "convoy_tunnel_dropped_packets_total",
        Kind::Counter,
        "Packets of a tunnel's SAs that were dropped.",
    );
    for (labels, (way, passed)) in labelled.iter().flat_map(|(l, t)| ways(t).map(|way| (l, way))) {
        family.sample(&labels.with(way), passed.dropped);
    }
    let mut family = page.family(
        "convoy_tunnel_last_packet_timestamp_seconds",
        Kind::Gauge,
        "When the last packet passed, as Unix time; 0 for never.",
    );
    for (labels, (way, passed)) in labelled.iter().flat_map(|(l, t)| ways(t).map(|way| (l, way))) {
        family.sample(&labels.with(way), unix(inputs.at, passed.last_ns));
    }
    let mut family = page.family(
        "convoy_tunnel_rekeys_total",
        Kind::Counter,
        "Outbound SAs of a tunnel after its first.",
    );
    for (labels, total) in &labelled {
        family.sample(&labels.all(), total.rekeys);
    }
}

fn policies(page: &mut Page, inputs: &Figures) {
    let report = &inputs.policies;
    let mut family = page.family(
        "convoy_policy_up",
        Kind::Gauge,
        "1 if a policy that protects outbound packets has an SA, 0 if not.",
    );
    let sends = |direction| matches!(direction, None | Some(PolicyDirection::Out));
    let protecting =
        report.policies.iter().filter(|p| p.action == "protect" && p.decides && sends(p.direction));
    for policy in protecting {
        family.sample(&[("policy", &policy.name)], u8::from(policy.spi_out.is_some()));
    }
    let mut family = page.family(
        "convoy_policy_questions_total",
        Kind::Counter,
        "Verdict requests of the kernel that a policy decided; only policies that decided some.",
    );
    for policy in &report.policies {
        for (way, asked) in [("outbound", policy.asked_out), ("inbound", policy.asked_in)] {
            if asked > 0 {
                family.sample(&[("policy", &policy.name), ("direction", way)], asked);
            }
        }
    }
    page.family("convoy_policies", Kind::Gauge, "Policies at present.")
        .sample(&[], report.policies.len());
}

fn workers(page: &mut Page, inputs: &Figures) {
    let mut family =
        page.family("convoy_worker_packets_total", Kind::Counter, "Packets that a worker passed.");
    for load in &inputs.workers {
        let worker = load.worker.to_string();
        let ways = [
            ("outbound", load.pipeline.outbound_packets.get()),
            ("inbound", load.pipeline.inbound_packets.get()),
        ];
        for (way, packets) in ways {
            family.sample(&[("worker", &worker), ("direction", way)], packets);
        }
    }
    let mut family = page.family(
        "convoy_worker_transit_packets_total",
        Kind::Counter,
        "Packets from one tunnel that policies of other tunnels decided about; included in the worker's \
         inbound packets.",
    );
    for load in &inputs.workers {
        let packets = load.pipeline.transit_packets.get();
        family.sample(&[("worker", &load.worker.to_string())], packets);
    }
    let mut family = page.family(
        "convoy_worker_sleeps_total",
        Kind::Counter,
        "Times that a worker went to sleep because it had no work.",
    );
    for load in &inputs.workers {
        family.sample(&[("worker", &load.worker.to_string())], load.sleeps);
    }
    let mut family = page.family(
        "convoy_worker_busy_seconds_total",
        Kind::Counter,
        "Seconds in which a worker moved packets; its rate is the worker's load.",
    );
    for load in &inputs.workers {
        let seconds = format!("{:.6}", load.busy_ns as f64 / 1e9);
        family.sample(&[("worker", &load.worker.to_string())], seconds);
    }
    let mut family = page.family(
        "convoy_worker_handed_packets_total",
        Kind::Counter,
        "Packets that a worker handed to other workers, or took from them.",
    );
    for load in &inputs.workers {
        let worker = load.worker.to_string();
        let (given, taken) = load.handed;
        family.sample(&[("worker", &worker), ("way", "given")], given);
        family.sample(&[("worker", &worker), ("way", "taken")], taken);
    }
}
