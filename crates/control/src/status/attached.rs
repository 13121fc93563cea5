//! IKE daemons beside a gateway.

use convoy_ipsec::clock::Now;

use super::{Daemon, Daemons, RefusedRequest};
use crate::xfrm::{Client, Kernel};

/// Processes that listen as IKE daemons do, and since when.
#[derive(Debug, Default)]
pub struct Attached {
    daemons: Vec<(Client, Now)>,
    /// The one that ended last.
    gone: Option<(Client, Now)>,
}

impl Attached {
    /// Takes over which processes listen now.
    pub fn follow(&mut self, daemons: &[Client], now: Now) {
        let before = std::mem::take(&mut self.daemons);
        if let Some((gone, _)) = before.iter().find(|(client, _)| !daemons.contains(client)) {
            self.gone = Some((gone.clone(), now));
        }
        self.daemons = daemons
            .iter()
            .map(|client| {
                let known = before.iter().find(|(known, _)| known == client);
                known.cloned().unwrap_or_else(|| (client.clone(), now))
            })
            .collect();
    }

    /// The daemons and the requests that their kernel refused.
    pub(super) fn report(&self, kernel: &Kernel, now_ns: u64) -> Daemons {
        let seconds = |at: Now| now_ns.saturating_sub(at.0) as f64 / 1e9;
        let daemon = |(client, since): &(Client, Now)| Daemon {
            name: client.command.to_string(),
            pid: client.pid,
            since_s: seconds(*since),
        };
        let (refused_requests, last) = kernel.refusals();
        Daemons {
            attached: self.daemons.iter().map(daemon).collect(),
            gone: self.gone.as_ref().filter(|_| self.daemons.is_empty()).map(daemon),
            refused_requests,
            last_refusal: last
                .map(|it| RefusedRequest { text: it.text.clone(), age_s: seconds(it.at) }),
        }
    }
}
