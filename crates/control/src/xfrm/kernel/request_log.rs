//! Lines of the log about requests of IKE daemons, and the requests that were refused.

use std::collections::HashMap;
use std::fmt;
use std::time::Instant;

use convoy_ipsec::clock::Now;
use convoy_xfrm::Refusal;

use crate::throttle::{Fold, Throttle};
use crate::xfrm::Client;

/// Reasons of which the log remembers the time of the last line.
const REASONS_MAX: usize = 64;

/// A request that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Object, process and reason.
    pub text: String,
    /// Moment of the workers' clock.
    pub at: Now,
}

/// Requests that were carried out, in the log, and those that were refused, for the log and the status.
#[derive(Debug, Default)]
pub(super) struct RequestLog {
    changes: Fold,
    refused: u64,
    last: Option<Refused>,
    /// By the reason: each is told at once, and again once in a while.
    reasons: HashMap<String, Throttle>,
}

impl RequestLog {
    /// Tells of a change, unless there were many just now.
    pub(super) fn changed(&mut self, client: &Client, what: fmt::Arguments<'_>) {
        let (by, pid) = (&client.command, client.pid);
        match self.changes.says(Instant::now()) {
            true => tracing::info!(%by, pid, "{what}"),
            false => tracing::debug!(%by, pid, "{what}"),
        }
    }

    /// Tells how many changes were not told one by one. To be called about once a second.
    pub(super) fn tell_folded(&mut self) {
        if let Some(count) = self.changes.folded(Instant::now()) {
            tracing::info!(
                "{count} more changes of SAs and policies (the level `debug` shows each)"
            );
        }
    }

    /// Takes note of a refusal, and tells it, unless one with this reason was told just now.
    pub(super) fn refused(
        &mut self,
        client: &Client,
        what: &impl fmt::Display,
        refusal: &Refusal,
        at: Now,
    ) {
        self.refused = self.refused.saturating_add(1);
        let text =
            format!("{what} refused: {} (by {}, pid {})", refusal.text, client.command, client.pid);
        // "SA …" or "policy …".
        let kind = text.split(' ').next().unwrap_or_default();
        let key = format!("{kind} {}", refusal.text);
        if self.reasons.len() >= REASONS_MAX && !self.reasons.contains_key(&key) {
            self.reasons.clear();
        }
        let throttle = self.reasons.entry(key).or_default();
        throttle.warn(|| text.clone());
        self.last = Some(Refused { text, at });
    }

    /// Number of refused requests, and the last one.
    pub(super) fn refusals(&self) -> (u64, Option<&Refused>) {
        (self.refused, self.last.as_ref())
    }
}
