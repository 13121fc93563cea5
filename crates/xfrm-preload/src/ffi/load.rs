//! Preparations when the library is loaded.

use super::{next, path, trust};

/// Has functions and path looked up when the library is loaded, while the environment is what it
/// was, and because `dlsym` is not for signal handlers.
#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static PREPARE: extern "C" fn() = prepare;

extern "C" fn prepare() {
    next::prepare();
    path::of_server();
    trust::note_standard_error();
}
