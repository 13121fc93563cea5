//! Crypto devices of DPDK's as engines of a gateway.

use std::sync::Arc;

use convoy_control::site;
use convoy_cryptodev::{Cryptodev, CryptodevError, Settings};
use convoy_engine::Lookaside;
use convoy_runtime::Devices;

use crate::exit::Stop;

/// A device that has a queue pair for each worker and direction.
#[derive(Debug)]
struct OfDpdk(Cryptodev);

impl Devices for OfDpdk {
    fn name(&self) -> &'static str {
        "cryptodev"
    }

    fn engine(&self) -> Option<Box<dyn Lookaside>> {
        self.0.engine()
    }

    fn requests(&self) -> usize {
        self.0.requests()
    }
}

/// Opens a device as engines of workers.
///
/// # Errors
/// The fault of the device, or of DPDK.
pub(crate) fn open(settings: &Settings) -> Result<Arc<dyn Devices>, CryptodevError> {
    let device = Cryptodev::open(settings)?;
    tracing::info!("the crypto device {} works: {}", settings.device, device.about());
    Ok(Arc::new(OfDpdk(device)))
}

/// Opens the device of a site for so many workers.
pub(super) fn of_site(
    cryptodev: &site::Cryptodev,
    workers: u16,
) -> anyhow::Result<Arc<dyn Devices>> {
    let settings = Settings {
        library: cryptodev.library.clone(),
        device: cryptodev.device.clone(),
        arguments: cryptodev.arguments.clone(),
        queues: 2 * workers,
        sessions: cryptodev.sessions,
        deadline: u64::try_from(cryptodev.deadline.as_nanos()).unwrap_or(u64::MAX),
        ..Settings::default()
    };
    let failed = |error| Stop::usage(format!("crypto.cryptodev: {error}"));
    open(&settings).map_err(failed)
}
