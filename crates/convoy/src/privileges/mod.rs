//! What a running gateway may do: no more than it needs.
//!
//! * `memory`: before keys are read, no core file and no debugger of the same user gets at them, and they
//!   are not swapped out;
//! * `capabilities`: once the gateway has started, every thread keeps those that its site needs;
//! * `filter`: from then on, the kernel refuses system calls that no gateway makes.

mod capabilities;
mod filter;
mod memory;

use convoy_control::site::Site;

use crate::cli::SyscallFilter;
use crate::exit::describe;

pub(crate) use memory::keep_private;

/// Gives up what the gateway needs for its start alone, in all threads and for ever.
///
/// # Errors
/// When a thread keeps rights all the same. A kernel without filters for system calls is told, and no error.
pub(crate) fn give_up(site: &Site, system_calls: SyscallFilter) -> anyhow::Result<()> {
    capabilities::keep_needed(site)?;
    if let Err(error) = std::fs::File::open(&site.path) {
        tracing::warn!(
            "{} cannot be read from now on ({error}), so it cannot be reloaded: a running gateway has only \
             the rights of its user; give it the file, and let it into the folders above",
            site.path.display(),
        );
    }
    if let Err(error) = filter::install(site, system_calls) {
        tracing::warn!(
            "system calls are not filtered: {}; --syscall-filter off says that this is wanted",
            describe(&error)
        );
    }
    Ok(())
}
