//! Memory that is free for a measurement.

/// Refuses a count of things that the memory which is free does not hold, before the kernel ends the process.
///
/// # Errors
/// A message on the `option` of the command line, with the largest count that fits.
pub fn check(option: &str, count: usize, bytes_each: u64, most: usize) -> Result<(), String> {
    let free = free_memory();
    let holds = free.map_or(most, |free| {
        // A quarter stays for everything else.
        usize::try_from(free / 4 * 3 / bytes_each).unwrap_or(usize::MAX).clamp(1, most)
    });
    if (1..=holds).contains(&count) {
        return Ok(());
    }
    let why = match free {
        Some(free) if holds < most => {
            format!(
                ": each takes up to {bytes_each} bytes, and {} MB of memory are free",
                free >> 20
            )
        }
        _ => String::new(),
    };
    Err(format!("{option} {count}: use 1 to {holds}{why}"))
}

/// Bytes of memory that are free, if the kernel tells.
fn free_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_no_memory_holds_are_refused_with_what_fits() {
        assert_eq!(check("--keys", 1, 8192, 1 << 20), Ok(()));
        for (count, most) in
            [(0, 1 << 20), (100_000_000_000, 1 << 20), (usize::MAX, 1 << 20), (65, 64)]
        {
            let error = check("--keys", count, 8192, most).unwrap_err();
            assert!(error.starts_with(&format!("--keys {count}: use 1 to ")), "{error}");
        }
        let error = check("--keys", 1 << 20, 1 << 40, 1 << 20).unwrap_err();
        assert!(error.contains("use 1 to 1: each takes up to"), "{error}");
        assert!(free_memory().unwrap() > 1 << 20);
    }
}
