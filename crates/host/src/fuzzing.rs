//! Parsers of a kernel's events, without the sockets that these come by. Fuzz targets call them.

use crate::{News, generation, watch};

/// Changes that a datagram of the routing socket tells of.
#[must_use]
pub fn news(datagram: &[u8]) -> News {
    let mut news = News::default();
    watch::note(datagram, &mut news);
    news
}

/// True if an event of a device, or a record of the kernel's log, says that the machine is a copy.
#[must_use]
pub fn is_copy(said: &[u8]) -> bool {
    generation::is_new_generation(said) || generation::is_fork(said)
}
