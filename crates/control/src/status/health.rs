//! Conditions that somebody should know of.

use std::time::Duration;

use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::sequence::SequenceLimits;

use super::peers::Silent;
use super::{
    Daemons, DirectionStatus, Drops, Flow, Health, Leases, Level, LifetimeState, SaStatus,
};

/// An SA whose numbers end within this time is worth a warning.
const SOON: Duration = Duration::from_secs(7 * 24 * 3600);

/// A loss is critical from this part of a direction's packets on; a smaller one is worth a warning.
const CRITICAL_SHARE: f64 = 0.01;

/// Parts of a status that tell of health.
pub(super) struct Seen<'a> {
    pub(super) sas: &'a [SaStatus],
    /// Peers that get packets and send none.
    pub(super) silent: Vec<Silent>,
    pub(super) drops: &'a [Drops],
    pub(super) outbound: Flow,
    pub(super) inbound: Flow,
    pub(super) kernel_drop_rate: Option<f64>,
    /// Names of ports' counters that grew within the last seconds.
    pub(super) growing: Vec<&'a str>,
    /// Interfaces that cannot be used, with the reason.
    pub(super) broken: &'a [String],
    /// Facilities that the gateway can do without and has not, with the reason.
    pub(super) lacking: &'a [String],
    pub(super) leases: &'a Leases,
    /// IKE daemons, if they are served.
    pub(super) daemons: Option<&'a Daemons>,
    /// True if daemons are served, and there are no SAs and no policies of theirs.
    pub(super) has_nothing_of_daemons: bool,
}

impl Seen<'_> {
    /// Packets per second lost for a reason within the last seconds, if any were.
    fn rate(&self, reason: DropReason) -> Option<f64> {
        let drops = self.drops.iter().find(|drops| drops.reason == reason.name())?;
        drops.packets_per_second.filter(|rate| *rate > 0.0)
    }

    /// Severity of a loss beside what passes.
    fn weight(&self, lost: f64, way: Traffic) -> Level {
        let rate = |flow: Flow| flow.packets_per_second.unwrap_or(0.0);
        let passed = match way {
            Traffic::Outbound => rate(self.outbound),
            Traffic::Either => rate(self.outbound) + rate(self.inbound),
        };
        if lost >= CRITICAL_SHARE * (lost + passed) { Level::Critical } else { Level::Warning }
    }
}

/// Of which direction packets of a reason are.
#[derive(Clone, Copy)]
enum Traffic {
    Outbound,
    Either,
}

/// Packets that are lost for want of something, and what would be right.
const WANTS: [(DropReason, Traffic, &str); 10] = [
    (
        DropReason::NoSa,
        Traffic::Outbound,
        "packets are dropped because their policy has no SA: add one, and name it in `sa_out`",
    ),
    (
        DropReason::SourceAbsent,
        Traffic::Outbound,
        "packets are dropped because the source address of their SA is no address of this host: another host \
         may send on the SA; `ip address` shows what this one has",
    ),
    (
        DropReason::AcquireTimeout,
        Traffic::Outbound,
        "packets that waited for an SA are dropped: no SA is made on demand; the log names the policy",
    ),
    (
        DropReason::AcquireFull,
        Traffic::Outbound,
        "packets are dropped because too many wait for an SA: no SA is made on demand; the log names the \
         policy",
    ),
    (
        DropReason::BypassImpossible,
        Traffic::Either,
        "packets are dropped that a policy lets pass unprotected: a wire side of sockets cannot send \
         them; route them past the plain interface, or use an interface as the wire side (`backend` \
         in [wire])",
    ),
    (
        DropReason::RingFull,
        Traffic::Either,
        "a worker does not keep up with the packets that other workers hand to it: spread the SAs over more \
         workers (`worker` in [[sa]]), or give each worker a CPU of its own (`pin` in [workers])",
    ),
    (
        DropReason::NoFrame,
        Traffic::Either,
        "packets are dropped because all frames are in use: too many packets are under way at once",
    ),
    (
        DropReason::EngineRejected,
        Traffic::Either,
        "packets are dropped because the engine refuses them: please report this",
    ),
    (DropReason::IoTxFailed, Traffic::Either, "packets cannot be sent"),
    (
        DropReason::IoTxTooBig,
        Traffic::Either,
        "packets cannot be sent because they are too long for the link: lower `path_mtu` of the SA, or \
         raise the link's MTU",
    ),
];

/// Packets that are refused as they come. Whoever knows an SPI can cause these, so they are never
/// worth more than a warning.
const REFUSALS: [(DropReason, &str); 3] = [
    (
        DropReason::BadIcv,
        "packets arrive with a wrong ICV: the peer's key differs, its sequence numbers lie far below the \
         replay window (was its state folder restored from a copy?), or packets are forged",
    ),
    (
        DropReason::TooOld,
        "packets arrive whose sequence numbers are too old: after a crash of this gateway some are expected, \
         until the peer's numbers are above the highest accepted number; otherwise the peer restarted with an \
         old key, and both sides need a new one, or packets are replayed",
    ),
    (
        DropReason::EncapMismatch,
        "packets arrive in UDP for an SA without `encap`, or without UDP for one with it: both \
         gateways must agree",
    ),
];

/// Counters of leak protection whose growth somebody should know of.
const LEAK_CAUSES: [(&str, &str); 2] = [
    (
        "leak-protection.past-interface",
        "leak protection drops packets that policies protect, because they would leave past the TUN interface: \
         a route or an ip rule leads them there, or a rule of the packet filter clears their mark or changes \
         their source; `convoy doctor` looks for it, `convoy trace` follows one packet",
    ),
    (
        "leak-protection.question-overflows",
        "leak protection drops packets of new flows, because the kernel requests more verdicts than the \
         gateway can give: there is a flood of new flows, or policies bypass a part of large networks",
    ),
];

/// Counters of ports that tell why packets cannot be sent.
const TX_CAUSES: [(&str, &str); 6] = [
    ("tx-no-route", "no route leads to their destination through the interface"),
    ("tx-unresolved", "the next hop does not answer"),
    ("tx-would-block", "the interface stays full"),
    (
        "tx-denied",
        "a rule of this host's packet filter drops them (`nft list ruleset`, chains of output)",
    ),
    ("tx-error", "the kernel refuses them: is there a route, and is the link up?"),
    ("tx-malformed", "their outer header does not suit the interface"),
];

/// Finds conditions that somebody should know of.
pub(super) fn health(seen: &Seen<'_>) -> Health {
    let mut found: Vec<(Level, String)> = Vec::new();
    for reason in seen.broken {
        found.push((Level::Critical, reason.clone()));
    }
    found.extend(seen.lacking.iter().map(|reason| (Level::Warning, reason.clone())));
    for sa in seen.sas {
        found.extend(lifetime(sa));
        found.extend(numbers(sa));
    }
    found.extend(silence(&seen.silent).map(|text| (Level::Warning, text)));
    let daemons = seen.daemons.iter().flat_map(|it| daemons(it, seen.has_nothing_of_daemons));
    found.extend(daemons.map(|text| (Level::Warning, text)));
    if let Some(why) = &seen.leases.failure {
        found.push((Level::Warning, format!("the state folder cannot be written: {why}")));
    }
    if seen.rate(DropReason::LeaseExhausted).is_some() {
        found.push((
            Level::Critical,
            "packets are dropped because no sequence numbers could be leased".to_owned(),
        ));
    }
    for (reason, way, text) in WANTS {
        let Some(lost) = seen.rate(reason) else { continue };
        let mut text = text.to_owned();
        if reason == DropReason::IoTxFailed {
            text.push_str(&tx_causes(&seen.growing));
        }
        found.push((seen.weight(lost, way), text));
    }
    for (reason, text) in REFUSALS {
        if seen.rate(reason).is_some() {
            found.push((Level::Warning, text.to_owned()));
        }
    }
    for (counter, text) in LEAK_CAUSES {
        if seen.growing.contains(&counter) {
            found.push((Level::Warning, text.to_owned()));
        }
    }
    if seen.kernel_drop_rate.is_some_and(|rate| rate > 0.0) {
        found.push((
            Level::Warning,
            "the kernel drops packets: more arrive than are read".to_owned(),
        ));
    }
    let level = found.iter().map(|(level, _)| *level).max().unwrap_or(Level::Ok);
    Health { level, reasons: found.into_iter().map(|(_, reason)| reason).collect() }
}

/// Causes of packets that cannot be sent, as far as ports tell.
fn tx_causes(growing: &[&str]) -> String {
    let mut text = String::new();
    for (counter, cause) in TX_CAUSES {
        for name in growing.iter().filter(|name| name.ends_with(counter)) {
            text.push_str(if text.is_empty() { ": " } else { "; " });
            text.push_str(&format!("{cause} ({name})"));
        }
    }
    text
}

/// Time for which a refused request is worth a warning, in seconds.
const REFUSED_S: f64 = 600.0;

/// Faults beside IKE daemons, in words: none is attached, or a request was refused of late.
fn daemons(daemons: &Daemons, has_nothing: bool) -> Vec<String> {
    let absent = match (&daemons.gone, daemons.attached.is_empty()) {
        (Some(gone), true) => Some(format!(
            "the IKE daemon {} (pid {}) has ended, and its SAs are not renewed: start it again",
            gone.name, gone.pid
        )),
        (None, true) if has_nothing => Some(
            "no IKE daemon is attached, and there are no SAs: start one with `convoy exec`, or lead its \
             service here with `convoy enable`"
                .to_owned(),
        ),
        _ => None,
    };
    let refused = daemons.last_refusal.as_ref().filter(|last| last.age_s < REFUSED_S);
    let refused = refused.map(|last| match daemons.refused_requests {
        1 => format!("a request of an IKE daemon was refused: {}", last.text),
        count => {
            format!("{count} requests of an IKE daemon were refused, the last one: {}", last.text)
        }
    });
    absent.into_iter().chain(refused).collect()
}

/// Peers that are named one by one; of more, their number is told.
const NAMED_PEERS: usize = 8;

/// Peers that get packets and send none, in words.
fn silence(silent: &[Silent]) -> Option<String> {
    let longest = silent.iter().map(|silent| silent.seconds).max()?;
    let named: Vec<_> = silent.iter().take(NAMED_PEERS).map(|it| it.peer.to_string()).collect();
    let more = match silent.len().saturating_sub(NAMED_PEERS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "no packet has come from {}{more} for {longest} s, although packets are sent there: is the peer's \
         gateway up, has it the same keys, and does the path let ESP through both ways? (normal where traffic \
         goes one way only)",
        named.join(", ")
    ))
}

fn lifetime(sa: &SaStatus) -> Option<(Level, String)> {
    match sa.lifetime?.state {
        LifetimeState::Expired => Some((
            Level::Critical,
            format!("SA {} has reached the end of its lifetime: give it a new key", sa.name),
        )),
        LifetimeState::Ending => Some((
            Level::Warning,
            format!("SA {} nears the end of its lifetime: give it a new key soon", sa.name),
        )),
        LifetimeState::Live => None,
    }
}

fn numbers(sa: &SaStatus) -> Option<(Level, String)> {
    let DirectionStatus::Outbound { sequence, left, exhausted_in_s, .. } = sa.direction else {
        return None;
    };
    let is_soon = exhausted_in_s.is_some_and(|s| s < SOON.as_secs_f64());
    if left == 0 {
        let text = format!("SA {} has no sequence numbers left: give it a new key", sa.name);
        Some((Level::Critical, text))
    } else if sequence >= SequenceLimits::new(sa.esn).soft.get() || is_soon {
        let text = format!("SA {} runs out of sequence numbers: give it a new key soon", sa.name);
        Some((Level::Warning, text))
    } else {
        None
    }
}
