//! What a result must be read with: the machine.

use std::fs;
use std::time::{Duration, Instant};

use convoy_crypto::time_stamp;
use serde::Serialize;

use crate::class::Class;

/// The machine a result was measured on.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Name of the processor, and family, model and stepping as numbers.
    pub cpu: String,
    /// Its class, whatever is denied; none where that cannot be told.
    pub class: Option<Class>,
    /// Ticks of the time-stamp counter in a microsecond.
    pub tsc_mhz: f64,
    /// How the kernel governs the clock; none where it does not tell.
    pub governor: Option<String>,
    /// The kernel's release.
    pub kernel: String,
}

impl Machine {
    /// Looks at the machine, for some 20 ms.
    #[must_use]
    pub fn look() -> Self {
        let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line =
                text.lines().find(|line| line.split(':').next().is_some_and(|n| n.trim() == name));
            line.and_then(|line| line.split_once(':'))
                .map_or("?", |(_, value)| value.trim())
                .to_owned()
        };
        let read = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let (name, vendor) = (field("model name"), field("vendor_id"));
        let numbers = format!(
            "family {} model {} stepping {}",
            field("cpu family"),
            field("model"),
            field("stepping")
        );
        Self {
            cpu: format!("{name} ({vendor} {numbers})"),
            class: Class::at_hand(),
            tsc_mhz: tsc_mhz(),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_default(),
        }
    }
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
        let machine = Machine::look();
        assert!(machine.cpu.contains("family"), "{machine:?}");
        assert!(!cfg!(target_arch = "x86_64") || machine.tsc_mhz > 100.0, "{machine:?}");
    }
}
