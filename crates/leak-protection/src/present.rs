//! Leak protection that is installed, whoever did that.

use convoy_host::{Family, LinkName};
use convoy_netlink::nft::Cover;
use ipnet::IpNet;

use crate::{
    config::{Config, Lead},
    error::LeakProtectionError,
    ranges::prefixes,
    routes::Routes,
    rules::Rules,
    second_lock::SecondLock,
    sets::{self, Prefixes},
    table::{self, Table},
};

/// Removes the routes and `ip rule`s alone, which another kind of protection does not need. How many routes there were.
///
/// # Errors
/// [`LeakProtectionError`]; some may still be there then.
pub fn remove_routes(config: Config) -> Result<usize, LeakProtectionError> {
    let mut routes = Routes::open(&config)?;
    let mut rules = Rules::open(&config)?;
    let [of_marks, of_interface] = [Lead::ByMark, Lead::ByDestination]
        .map(|leads| SecondLock::open(&Config { leads, ..config.clone() }));
    let are_anothers = match Table::open(config).and_then(|mut table| table.is_marked_by_another())
    {
        Err(LeakProtectionError::Unsupported(_) | LeakProtectionError::Denied { .. }) => false,
        outcome => outcome?,
    };
    let mut gone = 0;
    if !are_anothers {
        rules.remove()?;
        gone += of_marks?.remove()?;
    }
    gone += of_interface?.remove()?;
    routes.leave_tables(are_anothers);
    Ok(gone + routes.remove()?)
}

/// Interfaces around which leak protection stands, in the calling thread's network namespace.
///
/// # Errors
/// [`LeakProtectionError`] when there is no packet filter, or this process may not look.
pub fn interfaces() -> Result<Vec<LinkName>, LeakProtectionError> {
    table::interfaces()
}

/// Ends leak protection around an interface, in the calling thread's network namespace: packets go where routes
/// lead, in clear. Whether there was any; where somebody emptied the packet filter, routes may be left of it.
///
/// # Errors
/// [`LeakProtectionError`]; some of it may still stand then.
pub fn remove(config: Config) -> Result<bool, LeakProtectionError> {
    let stood = match Table::open(config.clone()).and_then(|mut table| table.remove()) {
        // Without a packet filter there is no table.
        Err(LeakProtectionError::Unsupported(_)) => false,
        outcome => outcome?,
    };
    Ok(remove_routes(config)? > 0 || stood)
}

/// The remote prefixes of leak protection that is installed around an interface, in the calling thread's network namespace.
///
/// # Errors
/// As [`is_installed`].
pub fn remote_prefixes(config: Config) -> Result<Vec<IpNet>, LeakProtectionError> {
    let present = Table::open(config)?.present()?.unwrap_or_default();
    let of = |(version, Prefixes { remote, .. }): (Family, &Prefixes<Cover>)| -> Vec<IpNet> {
        remote.ranges().flat_map(|range| prefixes(range, version)).collect()
    };
    Ok(present.out.both().map(of).concat())
}

/// True if leak protection that is installed around an interface asks about some packets, in the calling thread's network
/// namespace.
///
/// # Errors
/// As [`is_installed`].
pub fn asks(config: Config) -> Result<bool, LeakProtectionError> {
    let covers = Table::open(config)?.present()?.unwrap_or_default();
    Ok(sets::asks(covers.each_ref()))
}

/// True if leak protection is installed around an interface, in the calling thread's network namespace.
///
/// # Errors
/// [`LeakProtectionError`] when there is no packet filter, or this process may not look.
pub fn is_installed(config: Config) -> Result<bool, LeakProtectionError> {
    Ok(Table::open(config)?.present()?.is_some())
}
