//! Metrics of a running gateway: served as soon as their address and port can be had.

use std::net::SocketAddr;
use std::sync::Arc;

use convoy_control::metrics::Server;

use super::Live;
use super::holder::Transport;
use super::port_wait::PortWait;

/// The server of metrics, or the wait for its port. The gateway does its work without.
#[derive(Debug)]
pub struct Metrics {
    live: Arc<Live>,
    server: Option<Server>,
    wait: PortWait,
}

impl Metrics {
    /// Serves metrics of a gateway at an address, now or when it can be had.
    #[must_use]
    pub fn start(live: Arc<Live>, at: SocketAddr) -> Self {
        let wait = PortWait::new("metrics are not served", Transport::Tcp, at);
        let mut metrics = Self { live, server: None, wait };
        metrics.tick();
        metrics
    }

    /// Tries again if they are not served yet. To be called about once a second.
    pub fn tick(&mut self) {
        if self.server.is_some() {
            return;
        }
        let page = self.live.clone();
        match Server::start(self.wait.at(), move || page.metrics()) {
            Ok(server) => {
                self.server = Some(server);
                self.wait.done("metrics are served");
            }
            Err(error) => self.wait.failed(error.kind(), &error),
        }
        self.live.note_metrics(self.wait.reason().map(str::to_owned));
    }
}
