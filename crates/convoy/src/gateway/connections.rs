//! The kernel's table of connections: how full it is, and whether others on this host need it.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use convoy_control::status::Connections as Report;
use convoy_leak_protection::{
    Config, Fill, Others, Tracked, connections, has_legacy_rules, others,
};
use convoy_netlink::Refusal;
use convoy_netlink::nft::{Changed, Monitor};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::on_change::OnChange;
use super::recheck::Recheck;

/// From which share on, in percent, the table counts as nearly full, and below which it does not any more.
pub(crate) const NEARLY_FULL: u64 = 90;
const ROOMY: u64 = 80;
/// Time between two looks at it: whoever fills a table of usual size takes some seconds for the last tenth.
const LOOKS: Duration = Duration::from_millis(250);

/// State of the table, shared by those who look and those who decide.
#[derive(Debug, Clone, Default)]
pub(super) struct Connections(Arc<Seen>);

#[derive(Debug, Default)]
struct Seen {
    entries: AtomicU64,
    limit: AtomicU64,
    /// It is nearly full, or was and is not roomy yet.
    is_short: AtomicBool,
    /// Nobody else has packets tracked, as far as is known.
    is_ours_alone: AtomicBool,
    /// Others change addresses, or may.
    is_rewritten: AtomicBool,
}

impl Connections {
    /// Takes over how full it is.
    fn note(&self, fill: Option<Fill>) {
        let fill = fill.unwrap_or(Fill { entries: 0, limit: 0 });
        self.0.entries.store(fill.entries, Ordering::Relaxed);
        self.0.limit.store(fill.limit, Ordering::Relaxed);
        let was_short = self.0.is_short.load(Ordering::Relaxed);
        let limit = if was_short { ROOMY } else { NEARLY_FULL };
        self.0.is_short.store(fill.has_reached(limit), Ordering::Relaxed);
    }

    fn fill(&self) -> Fill {
        let (entries, limit) = (&self.0.entries, &self.0.limit);
        Fill { entries: entries.load(Ordering::Relaxed), limit: limit.load(Ordering::Relaxed) }
    }

    /// True if what is left of it is kept for flows that are protected.
    pub(super) fn is_nearly_full(&self) -> bool {
        self.fill().has_reached(NEARLY_FULL)
    }

    /// Flows to track where the kernel asks about packets.
    pub(super) fn tracked(&self) -> Tracked {
        let is = |what: &AtomicBool| what.load(Ordering::Relaxed);
        match (is(&self.0.is_ours_alone), is(&self.0.is_short)) {
            (true, _) => Tracked::Asked,
            (false, true) => Tracked::AllButTunnels,
            (false, false) => Tracked::All,
        }
    }

    /// Takes over what others do with flows, or may where that cannot be seen.
    pub(super) fn look_at_others(&self, config: &Config) {
        let others = others(config).unwrap_or(Others { track: true, rewrite: true });
        self.0.is_ours_alone.store(!others.track, Ordering::Relaxed);
        self.0.is_rewritten.store(others.rewrite, Ordering::Relaxed);
    }

    /// True if others change addresses (NAT).
    pub(super) fn are_rewritten(&self) -> bool {
        self.0.is_rewritten.load(Ordering::Relaxed)
    }

    /// That it is nearly full, in words.
    pub(super) fn trouble(&self) -> Option<String> {
        let Fill { entries, limit } = self.fill();
        self.is_nearly_full().then(|| nearly_full(entries, limit))
    }

    /// For `convoy status`; none where nothing is tracked.
    pub(super) fn report(&self) -> Option<Report> {
        let Fill { entries, limit } = self.fill();
        (limit > 0).then_some(Report { entries, limit })
    }
}

/// Message about a table that is nearly full.
pub(crate) fn nearly_full(entries: u64, limit: u64) -> String {
    format!(
        "the kernel's table of connections has {entries} of at most {limit} entries: new flows are dropped, those of \
         the gateway's networks that pass in clear from {NEARLY_FULL} % on; see who opens them with `conntrack -L`, or \
         raise net.netfilter.nf_conntrack_max"
    )
}

/// Looks at the table, and listens to changes of the packet filter.
#[derive(Debug)]
pub(crate) struct Lookout {
    connections: Connections,
    config: Config,
    /// The port of the socket by which this process changes the filter.
    own_port: u32,
    /// None where the kernel does not tell.
    monitor: Option<Monitor>,
    /// Rules of others may have changed.
    others: Recheck,
    had_legacy_rules: OnChange<bool>,
}

impl Lookout {
    /// Begins to listen, in the calling thread's network namespace.
    pub(super) fn open(connections: Connections, config: Config, own_port: u32) -> Self {
        let told = |refusal: &Refusal| {
            tracing::warn!(
                "changes of the packet filter are seen once a second, not at once: {refusal}"
            );
        };
        let monitor = Monitor::open(own_port).inspect_err(told).ok();
        Self {
            connections,
            config,
            own_port,
            monitor,
            others: Recheck::due(),
            had_legacy_rules: OnChange::default(),
        }
    }

    /// Waits until others changed something, at most [`LOOKS`]; whether they may have changed the table of leak
    /// protection.
    pub(super) fn wait(&mut self) -> bool {
        let changes = self.changes().unwrap_or_else(|error| {
            tracing::warn!(
                "changes of the packet filter are not reported any more, and are looked for several times a \
                 second: {error}"
            );
            self.monitor = None;
            Vec::new()
        });
        let table = self.config.table();
        let others: Vec<_> = changes.iter().filter(|it| it.by != self.own_port).collect();
        self.others.note(others.iter().any(|it| it.concerns_others(&table)));
        others.iter().any(|it| it.concerns(&table))
    }

    fn changes(&mut self) -> io::Result<Vec<Changed>> {
        let Some(monitor) = &mut self.monitor else {
            std::thread::sleep(LOOKS);
            self.others.note(true);
            return Ok(Vec::new());
        };
        let timeout = PollTimeout::try_from(LOOKS).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(monitor.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) | Err(nix::Error::EINTR) => Ok(Vec::new()),
            Ok(_) => monitor.changes(),
            Err(error) => Err(error.into()),
        }
    }

    /// Looks how full the table is, and who needs it.
    pub(super) fn look(&mut self) {
        self.connections.note(connections().unwrap_or_default());
        // Nobody tells of these.
        let has_legacy_rules = has_legacy_rules();
        self.others.note(self.had_legacy_rules.set(has_legacy_rules).is_some());
        if let Some(began) = self.others.begin() {
            self.connections.look_at_others(&self.config);
            self.others.rest(began);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnels_are_spared_from_where_it_is_nearly_full_until_there_is_room() {
        let connections = Connections::default();
        let tracked = |entries| {
            connections.note(Some(Fill { entries, limit: 100 }));
            (connections.tracked(), connections.is_nearly_full())
        };
        assert_eq!(tracked(89), (Tracked::All, false));
        assert_eq!(tracked(90), (Tracked::AllButTunnels, true));
        assert_eq!(tracked(80), (Tracked::AllButTunnels, false));
        assert_eq!(tracked(79), (Tracked::All, false));
        connections.0.is_ours_alone.store(true, Ordering::Relaxed);
        assert_eq!(connections.tracked(), Tracked::Asked);
        connections.note(None);
        assert_eq!((connections.report(), connections.trouble()), (None, None));
    }
}
