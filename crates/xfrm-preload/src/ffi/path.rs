//! The path of the server's socket.

use std::sync::OnceLock;

use super::system;
use crate::wire;

/// The socket's path, as the environment had it when the library was loaded. A program that has rights which
/// its caller lacks does not ask the caller's environment.
pub(super) fn of_server() -> &'static [u8; 108] {
    static PATH: OnceLock<[u8; 108]> = OnceLock::new();
    PATH.get_or_init(|| {
        let mut path = [0; 108];
        let named = std::env::var_os(wire::SOCKET_VARIABLE);
        let named = named.filter(|name| !name.is_empty() && !system::is_secure());
        let named = named.as_deref().map_or(wire::DEFAULT_SOCKET.as_bytes(), |name| {
            std::os::unix::ffi::OsStrExt::as_bytes(name)
        });
        // One that is too long stays empty, and cannot be connected to.
        if named.len() < path.len() {
            path[..named.len()].copy_from_slice(named);
        }
        path
    })
}
