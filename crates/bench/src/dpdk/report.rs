//! The table of DPDK's devices and Convoy's bursts.

use convoy_crypto::Tier;

use super::rounds::{Device, Findings, Point};
use super::{BURST, PACKETS, WINDOWS};
use crate::results::LeftOut;
use crate::results::head::Head;
use crate::stats::Summary;

/// Everything a run found out.
#[derive(Clone, Debug)]
pub struct Report {
    /// Version, command and machine.
    pub head: Head,
    /// Convoy's tier.
    pub tier: Tier,
    /// True if it is about gateways, and not about devices.
    pub is_of_gateways: bool,
    /// Measured points.
    pub findings: Findings,
}

impl Findings {
    /// Versions of DPDK and of intel-ipsec-mb, as far as they are known.
    #[must_use]
    pub fn versions(&self) -> String {
        let devices = || self.points.iter().flat_map(|point| &point.devices);
        let dpdk = self.version.as_ref().map(|version| format!("DPDK {version}"));
        let library = devices().find_map(Device::library_name);
        dpdk.into_iter().chain(library).collect::<Vec<_>>().join(", ")
    }
}

impl Device {
    /// The library that it is made of, if it says so.
    #[must_use]
    pub fn library_name(&self) -> Option<String> {
        self.library.as_ref().map(|version| format!("intel-ipsec-mb {version}"))
    }
}

impl Report {
    /// Text above the table.
    #[must_use]
    pub fn head(&self) -> String {
        let machine = &self.head.machine;
        let burst = match self.is_of_gateways {
            true => String::new(),
            false => format!(" in bursts of {BURST}"),
        };
        let versions = match self.findings.versions() {
            versions if versions.is_empty() => versions,
            versions => versions + "; ",
        };
        format!(
            "convoy {}: {}\n{}; time-stamp counter {:.0} MHz; tier {}\n{versions}windows of {PACKETS} packets{burst}, the middle one of {WINDOWS} in each round\n",
            self.head.version, self.head.command, machine.cpu, machine.tsc_mhz, self.tier
        )
    }

    /// A row for each device of each point, below a head.
    #[must_use]
    pub fn rows(&self) -> Vec<Vec<String>> {
        let head = ["SUITE", "BYTES", "DEVICE", "CYCLES", "CONVOY", "RATIO", "QUARTILES", "ROUNDS"];
        let rows = self.findings.points.iter().flat_map(rows);
        [head.map(str::to_owned).to_vec()].into_iter().chain(rows).collect()
    }

    /// Text below the table.
    #[must_use]
    pub fn missing(&self) -> String {
        let told = |LeftOut { what, why }: &LeftOut| format!("left out: {what}: {why}\n");
        self.findings.left_out.iter().map(told).collect()
    }
}

fn rows(point: &Point) -> Vec<Vec<String>> {
    let row = |Device { driver, rounds, .. }: &Device| {
        let ratios: Vec<f64> = rounds.iter().zip(&point.convoy).map(|(a, b)| a / b).collect();
        let (device, convoy) = (Summary::of(rounds)?, Summary::of(&point.convoy)?);
        let ratio = Summary::of(&ratios)?;
        Some(vec![
            point.suite.to_string(),
            point.size.to_string(),
            driver.to_string(),
            format!("{:.1}", device.median),
            format!("{:.1}", convoy.median),
            format!("{:.2}", ratio.median),
            format!("{:.2}–{:.2}", ratio.low, ratio.high),
            rounds.len().to_string(),
        ])
    };
    point.devices.iter().filter_map(row).collect()
}
