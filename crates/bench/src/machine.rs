//! Machine that a result must be read with.

use std::time::{Duration, Instant};
use std::{env, fs};

use convoy_crypto::{Cpu, time_stamp};
use serde::{Deserialize, Serialize};

use crate::class::Class;
use crate::cores::{self, Cores};

/// The machine a result was measured on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the processor, and family, model and stepping as numbers.
    pub cpu: String,
    /// Its class, whatever is denied; none where that cannot be told.
    pub class: Option<Class>,
    /// Convoy's tiers that it has and that are not denied, the least first.
    pub tiers: Vec<String>,
    /// Features of it that are denied in the environment; none where nothing is.
    pub denied: Option<String>,
    /// Ticks of the time-stamp counter in a microsecond.
    pub tsc_mhz: f64,
    /// The clock at the time, where the kernel tells.
    pub clock_mhz: Option<f64>,
    /// Name of the kernel's governor of the clock; none where it does not tell.
    pub governor: Option<String>,
    /// The processors that the process may use, by number.
    pub processors: Vec<usize>,
    /// Groups of them that are threads of one core, as the system says.
    pub siblings: Vec<Vec<usize>>,
    /// Mean number of programs that wanted a processor before the run, over 1, 5 and 15 minutes.
    pub load_before: Option<[f64; 3]>,
    /// The same at the end of the run.
    pub load_after: Option<[f64; 3]>,
    /// The kernel's release.
    pub kernel: String,
    /// Versions of those that were measured beside Convoy, or served as a base of it.
    pub peers: Vec<PeerVersion>,
}

/// A peer that took part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerVersion {
    /// Name, as series have it.
    pub who: String,
    /// Version, and kind or build.
    pub version: String,
    /// Convoy's tier beside which it was so, if that matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
}

impl Machine {
    /// Looks at the machine, for some 20 ms.
    #[must_use]
    pub fn look() -> Self {
        let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line =
                text.lines().find(|line| line.split(':').next().is_some_and(|n| n.trim() == name));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim())
        };
        let known = |name: &str| field(name).unwrap_or("?");
        let read = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let numbers = format!(
            "family {} model {} stepping {}",
            known("cpu family"),
            known("model"),
            known("stepping")
        );
        let cpu = Cpu::detect().ok();
        let processors = Cores::allowed().unwrap_or_default();
        Self {
            cpu: format!("{} ({} {numbers})", known("model name"), known("vendor_id")),
            class: Class::at_hand(),
            tiers: cpu.iter().flat_map(Cpu::tiers).map(|tier| tier.name().to_owned()).collect(),
            denied: env::var(Cpu::DENY_VARIABLE).ok().filter(|denied| !denied.is_empty()),
            tsc_mhz: tsc_mhz(),
            clock_mhz: field("cpu MHz").and_then(|clock| clock.parse().ok()),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            siblings: cores::siblings(&processors),
            processors,
            load_before: load(),
            load_after: None,
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_default(),
            peers: Vec::new(),
        }
    }

    /// Looks at what there is to see at the end of a run.
    pub fn look_again(&mut self) {
        self.load_after = load();
    }

    /// Puts down who takes part.
    pub fn add_peer(&mut self, who: &str, version: &str, tier: Option<&str>) {
        let (who, version) = (who.to_owned(), version.to_owned());
        let peer = PeerVersion { who, version, tier: tier.map(str::to_owned) };
        if !self.peers.contains(&peer) {
            self.peers.push(peer);
        }
    }
}

/// The load averages.
fn load() -> Option<[f64; 3]> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let mut words = text.split_whitespace().map(str::parse);
    let mut next = || words.next()?.ok();
    Some([next()?, next()?, next()?])
}

fn tsc_mhz() -> f64 {
    let (start, ticks) = (Instant::now(), time_stamp());
    while start.elapsed() < Duration::from_millis(20) {
        std::hint::spin_loop();
    }
    (time_stamp() - ticks) as f64 / start.elapsed().as_micros() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_a_name_and_a_clock() {
        let mut machine = Machine::look();
        assert!(machine.cpu.contains("family"), "{machine:?}");
        assert!(!cfg!(target_arch = "x86_64") || machine.tsc_mhz > 100.0, "{machine:?}");
        assert!(!machine.processors.is_empty() && !machine.tiers.is_empty(), "{machine:?}");
        machine.look_again();
        assert_eq!(machine.load_before.is_some(), machine.load_after.is_some());
        machine.add_peer("openssl", "OpenSSL 3", None);
        machine.add_peer("openssl", "OpenSSL 3", None);
        assert_eq!(machine.peers.len(), 1);
    }

    #[test]
    fn a_machine_is_read_back() {
        let mut machine = Machine::look();
        machine.add_peer("ipsec-mb", "1.5, avx2", Some("vaes256"));
        let text = serde_json::to_string(&machine).unwrap();
        assert_eq!(serde_json::from_str::<Machine>(&text).unwrap(), machine);
    }
}
