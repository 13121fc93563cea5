//! Contests of two sides: bursts of the library and DPDK's devices, a worker and DPDK's gateway.

use convoy_crypto::Suite;
use convoy_runtime::EngineChoice;

use super::options::{self, Driver};
use super::printed::Printed;
use super::program::{Program, Run, RunError};
use super::rounds::{Plan, RoundsError};
use super::windows::{Bursts, beside_a_spinning_thread, middle};
use super::{BURST, WINDOWS, gateway, saturated, sealed, secgw};
use crate::esp::rig::RigError;
use crate::forward::gateway::Memory;
use crate::maker::Maker;

/// The side beside Convoy.
#[derive(Clone, Debug)]
pub enum Peer {
    /// DPDK's devices, by the program that measures them, beside bursts of the library.
    Devices(Program),
    /// DPDK's gateway with its devices, beside a worker.
    Gateway(Program),
}

/// A device's values.
pub(super) struct Measured {
    /// DPDK's version.
    pub(super) version: Option<String>,
    /// The version of intel-ipsec-mb, if the device is made of it.
    pub(super) library: Option<String>,
    /// One for each size.
    pub(super) values: Vec<f64>,
}

/// Both sides, for one suite. Values are cycles per packet of the middle one of some windows, one for each size.
pub(super) trait Contest {
    /// Bytes that count as throughput, for each size.
    fn bytes(&self) -> Vec<usize>;

    /// Convoy's values.
    fn own(&mut self) -> Result<Vec<f64>, RunError>;

    /// A device's.
    fn device(&mut self, driver: &Driver, go_on: &dyn Fn() -> bool) -> Result<Measured, RunError>;
}

impl Peer {
    /// DPDK's program.
    #[must_use]
    pub const fn program(&self) -> &Program {
        match self {
            Self::Devices(program) | Self::Gateway(program) => program,
        }
    }

    /// Number of processors that a run needs.
    #[must_use]
    pub const fn processors(&self) -> usize {
        match self {
            // The program's main thread spins on one of its own.
            Self::Devices(_) => 2,
            Self::Gateway(_) => 1,
        }
    }

    /// True if the program has options for a suite.
    pub(super) fn has(&self, suite: Suite) -> bool {
        match self {
            Self::Devices(_) => options::of_suite(suite).is_some(),
            Self::Gateway(_) => secgw::configuration(suite).is_some(),
        }
    }

    /// Both sides.
    pub(super) fn contest(
        &self,
        plan: &Plan,
        suite: Suite,
    ) -> Result<Box<dyn Contest>, RoundsError> {
        match self {
            Self::Devices(program) => Ok(Box::new(Library::new(program, plan, suite)?)),
            Self::Gateway(program) => Ok(Box::new(Gateway::new(program, plan, suite)?)),
        }
    }
}

/// Bursts of the library, and DPDK's devices.
struct Library {
    program: Program,
    suite: Suite,
    bursts: Vec<Bursts>,
    processors: [usize; 2],
}

impl Library {
    fn new(program: &Program, plan: &Plan, suite: Suite) -> Result<Self, RoundsError> {
        let bursts = plan.sizes.iter();
        let bursts = bursts.map(|size| Bursts::new(&plan.cpu, plan.tier, suite, *size));
        let bursts = bursts.collect::<Result<Vec<_>, _>>();
        let bursts = bursts.map_err(|error| RoundsError::Own { suite, error })?;
        Ok(Self { program: program.clone(), suite, bursts, processors: plan.processors })
    }
}

impl Contest for Library {
    fn bytes(&self) -> Vec<usize> {
        self.bursts.iter().map(Bursts::text).collect()
    }

    fn own(&mut self) -> Result<Vec<f64>, RunError> {
        let bursts = &mut self.bursts;
        let all = || bursts.iter_mut().map(Bursts::measure).collect();
        Ok(beside_a_spinning_thread(self.processors[1], all))
    }

    fn device(&mut self, driver: &Driver, go_on: &dyn Fn() -> bool) -> Result<Measured, RunError> {
        let (suite, texts) = (self.suite, self.bytes());
        let run = Run { driver, suite, texts: &texts, processors: self.processors };
        let Printed { version, library, windows } = self.program.run(&run, go_on)?;
        let cycles: Vec<f64> = windows.iter().map(|window| window.cycles).collect();
        let values = cycles.chunks(WINDOWS).map(|part| middle(&mut part.to_vec())).collect();
        Ok(Measured { version, library, values })
    }
}

/// A worker, and DPDK's gateway, which protect the same packets.
struct Gateway {
    program: Program,
    suite: Suite,
    maker: Maker,
    sizes: Vec<usize>,
    /// Inner packets of each size.
    packets: Vec<Vec<Vec<u8>>>,
    memory: Memory,
    processor: usize,
    /// Devices whose packets were looked at.
    checked: Vec<Driver>,
}

impl Gateway {
    fn new(program: &Program, plan: &Plan, suite: Suite) -> Result<Self, RoundsError> {
        let mut memory = Memory::default();
        let mut packets = |size: &usize| -> Result<_, RunError> {
            let arena = memory.of(*size, &EngineChoice::Inline).map_err(RigError::from)?;
            Ok(saturated::packets(*size, arena)?)
        };
        let packets = plan.sizes.iter().map(&mut packets).collect::<Result<Vec<_>, _>>();
        Ok(Self {
            program: program.clone(),
            suite,
            maker: Maker::Tier(plan.cpu, plan.tier),
            sizes: plan.sizes.clone(),
            packets: packets.map_err(RoundsError::Program)?,
            memory,
            processor: plan.processors[0],
            checked: Vec::new(),
        })
    }

    /// Checks, once for each device, what comes out of DPDK's gateway.
    fn check(&mut self, driver: &Driver, go_on: &dyn Fn() -> bool) -> Result<(), RunError> {
        if self.checked.contains(driver) {
            return Ok(());
        }
        let longest = self.sizes.iter().copied().max().unwrap_or(0);
        let longest = sealed::outer_bytes(self.suite, longest);
        let arena = self.memory.of(longest, &EngineChoice::Inline).map_err(RigError::from)?;
        let packets: Vec<_> = self.packets.iter().flat_map(|all| &all[..BURST]).cloned().collect();
        let Self { program, suite, processor, .. } = self;
        let run = gateway::Run { driver, suite: *suite, packets: &packets, processor: *processor };
        program.check_sealed(&run, &mut arena.pool(), go_on)?;
        self.checked.push(driver.clone());
        Ok(())
    }
}

impl Contest for Gateway {
    fn bytes(&self) -> Vec<usize> {
        self.sizes.clone()
    }

    fn own(&mut self) -> Result<Vec<f64>, RunError> {
        let Self { suite, maker, packets, memory, processor, .. } = self;
        let value = |packets: &Vec<Vec<u8>>| {
            let mut windows = saturated::windows(maker, *suite, packets, *processor, memory)?;
            Ok(middle(&mut windows))
        };
        packets.iter().map(value).collect()
    }

    fn device(&mut self, driver: &Driver, go_on: &dyn Fn() -> bool) -> Result<Measured, RunError> {
        self.check(driver, go_on)?;
        let mut measured = Measured { version: None, library: None, values: Vec::new() };
        for packets in &self.packets {
            let Self { suite, processor, .. } = *self;
            let run = gateway::Run { driver, suite, packets, processor };
            let (printed, mut windows) = self.program.pass(&run, go_on)?;
            (measured.version, measured.library) = (printed.version, printed.library);
            measured.values.push(middle(&mut windows));
        }
        Ok(measured)
    }
}
