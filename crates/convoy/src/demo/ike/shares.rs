//! SAs of many tunnels that each worker has, and packets of their traffic.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use convoy_control::status::WorkerStatus;
use serde::Serialize;

use super::world::{SIDES, World};

/// Longest time that SAs of earlier rekeys may stay.
const SETTLING: Duration = Duration::from_secs(10);
/// Time between two looks for them.
const PAUSE: Duration = Duration::from_millis(100);

/// Datagrams that were counted.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Datagrams {
    pub(super) sent: u64,
    /// Datagrams that did not arrive.
    pub(super) lost: u64,
}

/// A worker of a gateway.
#[derive(Clone, Copy, Debug, Serialize)]
struct Share {
    gateway: &'static str,
    #[serde(flatten)]
    worker: WorkerStatus,
}

/// The workers of all gateways.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub(super) struct Shares(Vec<Share>);

impl Shares {
    /// SAs that they have now, and packets until now.
    pub(super) fn of(world: &World) -> anyhow::Result<Self> {
        let mut shares = Vec::new();
        for (gateway, side) in SIDES.into_iter().zip(&world.sides) {
            let Some(running) = &side.gateway else { continue };
            let workers = running.status()?.by_worker.into_iter();
            shares.extend(workers.map(|worker| Share { gateway, worker }));
        }
        Ok(Self(shares))
    }

    /// Shares once the SAs of earlier rekeys have gone: strongSwan keeps the old inbound ones for five seconds
    /// (`delete_rekeyed_delay`). Where some stay longer, what there is then.
    pub(super) fn settled(world: &World) -> anyhow::Result<Self> {
        let until = Instant::now() + SETTLING;
        loop {
            let shares = Self::of(world)?;
            if shares.has_one_pair_each(world.tunnels.len()) || Instant::now() > until {
                return Ok(shares);
            }
            thread::sleep(PAUSE);
        }
    }

    /// True if each gateway has one SA in each direction for every tunnel.
    fn has_one_pair_each(&self, tunnels: usize) -> bool {
        SIDES.iter().all(|gateway| {
            let own = || self.0.iter().filter(|share| share.gateway == *gateway);
            let sum =
                |of: fn(&WorkerStatus) -> u64| own().map(|share| of(&share.worker)).sum::<u64>();
            let sas = [sum(|worker| worker.outbound_sas), sum(|worker| worker.inbound_sas)];
            own().next().is_none() || sas == [tunnels as u64; 2]
        })
    }

    /// SAs that they have now, and packets since another moment.
    pub(super) fn since(mut self, before: &Self) -> Self {
        for (now, then) in self.0.iter_mut().zip(&before.0) {
            let (now, then) = (&mut now.worker, &then.worker);
            now.outbound_packets -= then.outbound_packets.min(now.outbound_packets);
            now.inbound_packets -= then.inbound_packets.min(now.inbound_packets);
            now.dropped -= then.dropped.min(now.dropped);
        }
        self
    }

    /// SAs and packets of each worker in a line.
    pub(super) fn in_words(&self) -> String {
        let of = |Share { gateway, worker }: &Share| {
            let sas = worker.outbound_sas + worker.inbound_sas;
            let packets = worker.outbound_packets + worker.inbound_packets;
            format!("{gateway} {}: {sas} SAs, {packets} packets", worker.worker)
        };
        self.0.iter().map(of).collect::<Vec<_>>().join("; ")
    }

    /// Checks that every SA has a worker that worked.
    pub(super) fn check(&self, tunnels: usize) -> anyhow::Result<()> {
        for gateway in SIDES {
            let own = || self.0.iter().filter(|share| share.gateway == gateway).map(|s| s.worker);
            let sum = |of: fn(WorkerStatus) -> u64| own().map(of).sum::<u64>();
            let sas = sum(|worker| worker.outbound_sas).min(sum(|worker| worker.inbound_sas));
            let idle = own().filter(|worker| worker.outbound_packets + worker.inbound_packets == 0);
            let count = own().count();
            if count == 0 {
                continue;
            }
            let wanted = tunnels as u64;
            anyhow::ensure!(sas >= wanted, "{gateway} has {sas} of {wanted} tunnels");
            let most_idle = count.saturating_sub(tunnels);
            let idle = idle.count();
            anyhow::ensure!(
                idle <= most_idle,
                "{idle} of {count} workers of {gateway} did nothing"
            );
        }
        Ok(())
    }

    /// A table for people; empty where there is nothing to show.
    pub(super) fn text(&self, Datagrams { sent, lost }: Datagrams) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let mut text = format!(
            "\n{:<12}{:>14}{:>14}{:>14}{:>14}{:>10}\n",
            "worker", "outbound SAs", "packets", "inbound SAs", "packets", "dropped"
        );
        for Share { gateway, worker } in &self.0 {
            // Writing to a String does not fail.
            let _ = writeln!(
                text,
                "{:<12}{:>14}{:>14}{:>14}{:>14}{:>10}",
                format!("{gateway} {}", worker.worker),
                worker.outbound_sas,
                worker.outbound_packets,
                worker.inbound_sas,
                worker.inbound_packets,
                worker.dropped
            );
        }
        let _ = writeln!(text, "{lost} of {sent} datagrams lost\n");
        text
    }
}
