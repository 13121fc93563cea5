//! Prefetching and the time-stamp counter behind safe functions.

/// Asks the processor to bring a value into its nearest cache, one cache line after another. Only a
/// hint: nothing is read as far as the program can tell, and targets without such an instruction do
/// nothing.
#[inline(always)]
pub fn prefetch_read<T: ?Sized>(value: &T) {
    prefetch_front::<{ usize::MAX }, T>(value);
}

/// The same for the first `N` bytes of a value, whose rest is used rarely.
#[inline(always)]
pub fn prefetch_front<const N: usize, T: ?Sized>(value: &T) {
    let (start, bytes) = (std::ptr::from_ref(value).cast::<u8>(), size_of_val(value).min(N));
    let mut at = 0;
    while at < bytes {
        prefetch_line(start.wrapping_add(at));
        at += 64;
    }
    // What is larger than its alignment may reach into one more.
    if bytes > align_of_val(value) && align_of_val(value) < 64 {
        prefetch_line(start.wrapping_add(bytes - 1));
    }
}

#[inline(always)]
fn prefetch_line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of x86-64, and a prefetch neither faults nor changes what the program
        // sees.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// The time-stamp counter: a clock of constant rate, read in some 20 cycles. Only differences
/// between readings on one machine mean anything. Targets without such a counter answer 0.
#[inline(always)]
#[must_use]
pub fn time_stamp() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has the counter, and reading it has no side effect.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_never_runs_backwards() {
        let readings: Vec<_> = (0..1000).map(|_| time_stamp()).collect();
        assert!(readings.is_sorted());
        assert!(!cfg!(target_arch = "x86_64") || readings[0] < readings[999]);
    }

    #[test]
    fn prefetching_takes_any_value() {
        for len in [0, 1, 64, 65, 5000] {
            let bytes = vec![3u8; len];
            prefetch_read(&*bytes);
            prefetch_front::<64, _>(&*bytes);
            prefetch_read(&len);
            assert!(bytes.iter().all(|&byte| byte == 3));
        }
    }
}
