//! Runs of DPDK's gateway.

use std::fs;
use std::path::Path;

use convoy_crypto::Suite;
use convoy_packet::Pool;

use super::options::Driver;
use super::printed::Printed;
use super::program::{Program, RunError};
use super::secgw::{self, Sink};
use super::{WINDOWS, sealed};

/// A run of the gateway.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    pub(super) driver: &'a Driver,
    pub(super) suite: Suite,
    /// Inner packets that come over and over.
    pub(super) packets: &'a [Vec<u8>],
    pub(super) processor: usize,
}

impl Program {
    /// DPDK's gateway.
    #[must_use]
    pub fn gateway(path: &Path) -> Self {
        Self::new(path, secgw::NAME, "interop/secgw/build.sh makes one, and prints where it is")
    }

    /// Runs the gateway to its end. Returns what it said of versions, and cycles per packet of [`WINDOWS`] windows.
    pub(super) fn pass(
        &self,
        run: &Run<'_>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<(Printed, Vec<f64>), RunError> {
        self.run_gateway(run, Sink::Null, WINDOWS, tempfile::tempdir()?.path(), go_on)
    }

    /// Checks that ESP packets of the right lengths come out.
    pub(super) fn check_sealed(
        &self,
        run: &Run<'_>,
        pool: &mut Pool,
        go_on: &dyn Fn() -> bool,
    ) -> Result<(), RunError> {
        let folder = tempfile::tempdir()?;
        self.run_gateway(run, Sink::Capture, 1, folder.path(), go_on)?;
        let sizes: Vec<usize> = run.packets.iter().map(Vec::len).collect();
        let capture = folder.path().join(secgw::SEALED);
        sealed::check(&capture, run.suite, &sizes, pool).map_err(|fault| self.wrong(fault))
    }

    fn run_gateway(
        &self,
        run: &Run<'_>,
        sink: Sink,
        windows: usize,
        folder: &Path,
        go_on: &dyn Fn() -> bool,
    ) -> Result<(Printed, Vec<f64>), RunError> {
        let Run { driver, suite, packets, processor } = *run;
        let configuration = secgw::configuration(suite)
            .ok_or_else(|| self.wrong(format!("it has no options for {suite}")))?;
        let files = [configuration.into_bytes(), secgw::capture(packets)];
        for (name, bytes) in secgw::FILES.iter().zip(files) {
            fs::write(folder.join(name), bytes)?;
        }
        let mut command = self.command(&secgw::arguments(driver, processor, sink), folder);
        command.env(secgw::WINDOWS_VARIABLE, windows.to_string());
        let text = self.printed(command, go_on)?;
        let printed = Printed::parse(&text).map_err(|fault| self.wrong(fault))?;
        let windows = secgw::windows(&text, windows).map_err(|fault| self.wrong(fault))?;
        Ok((printed, windows))
    }
}
