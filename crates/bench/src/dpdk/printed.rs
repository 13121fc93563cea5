//! Output of `dpdk-test-crypto-perf --csv-friendly`.

/// One window: so many packets of one size, timed as a whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Bytes of text of a packet.
    pub bytes: usize,
    /// Packets of a burst.
    pub burst: usize,
    /// Packets that came back.
    pub packets: usize,
    /// Cycles of the time-stamp counter per packet.
    pub cycles: f64,
}

/// All of it that matters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Printed {
    /// DPDK's version, such as `22.11.11`.
    pub version: Option<String>,
    /// The version of intel-ipsec-mb, where the device is made of it and its log says so.
    pub library: Option<String>,
    /// The table.
    pub windows: Vec<Window>,
}

/// Positions of columns in the table.
struct Columns {
    count: usize,
    bytes: usize,
    burst: usize,
    packets: usize,
    cycles: usize,
}

impl Printed {
    /// Reads it.
    ///
    /// # Errors
    /// The fault of the table.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut printed = Self::default();
        let mut columns: Option<Columns> = None;
        for line in text.lines() {
            if let Some((_, rest)) = line.split_once("RTE Version: 'DPDK ") {
                printed.version = rest.split('\'').next().map(str::to_owned);
            } else if let Some((_, version)) =
                line.split_once("IPSec Multi-buffer library version used: ")
            {
                printed.library = Some(version.trim().to_owned());
            } else if line.starts_with('#') && line.contains(',') {
                columns = Some(Columns::of(line)?);
            } else if let Some(columns) = &columns {
                printed.windows.extend(columns.window(line)?);
            }
        }
        Ok(printed)
    }
}

impl Columns {
    fn of(head: &str) -> Result<Self, String> {
        let names: Vec<&str> = head.split(',').map(str::trim).collect();
        let place = |wanted: &str| {
            let found = names.iter().position(|name| *name == wanted);
            found.ok_or_else(|| format!("its table has no column {wanted:?}: {head}"))
        };
        Ok(Self {
            count: names.len(),
            bytes: place("Buffer Size(B)")?,
            burst: place("Burst Size")?,
            packets: place("Dequeued")?,
            cycles: place("Cycles/Buf")?,
        })
    }

    /// A row's window; none of a line that is no row.
    fn window(&self, line: &str) -> Result<Option<Window>, String> {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        if cells.len() != self.count {
            return Ok(None);
        }
        let wrong = || format!("no row of its table: {line}");
        let cell = |place: usize| cells.get(place).copied().ok_or_else(wrong);
        let count = |place: usize| cell(place)?.parse::<usize>().map_err(|_| wrong());
        let cycles: f64 = cell(self.cycles)?.parse().map_err(|_| wrong())?;
        let (bytes, burst) = (count(self.bytes)?, count(self.burst)?);
        let window = Window { bytes, burst, packets: count(self.packets)?, cycles };
        // Not a number is not above zero.
        if cycles.is_finite() && cycles > 0.0 { Ok(Some(window)) } else { Err(wrong()) }
    }
}
