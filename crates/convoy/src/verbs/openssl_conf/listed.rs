//! A provider as OpenSSL reads it from a list of providers.

use std::ffi::OsStr;

use convoy_openssl::PROVIDER;

use super::module;
use super::parse::{Conf, Entry};

/// A provider as a list of providers has it.
pub(super) struct Listed<'a> {
    pub(super) entry: &'a Entry,
    /// Identifier in OpenSSL: what is behind the first dot of the entry's name, or its `identity`.
    pub(super) name: &'a str,
    pub(super) section_is_missing: bool,
    pub(super) activate: Option<&'a Entry>,
    /// All that OpenSSL reads as on or off.
    switches: Vec<&'a Entry>,
    pub(super) module: Option<&'a Entry>,
}

impl<'a> Listed<'a> {
    pub(super) fn of(conf: &'a Conf, entry: &'a Entry) -> Self {
        let says = |name: &str| {
            conf.section(&entry.value).filter(|it| behind_dot(&it.name) == name).last()
        };
        Self {
            entry,
            name: says("identity")
                .map_or_else(|| behind_dot(&entry.name), |identity| &identity.value),
            section_is_missing: !conf.has(&entry.value),
            activate: says("activate"),
            switches: conf
                .section(&entry.value)
                .filter(|it| ["activate", "soft_load"].contains(&behind_dot(&it.name)))
                .collect(),
            module: says("module"),
        }
    }

    /// A switch that OpenSSL refuses.
    pub(super) fn refused(&self) -> Option<&'a Entry> {
        self.switches.iter().copied().find(|it| switch(&it.value).is_none())
    }

    pub(super) fn is_active(&self) -> bool {
        self.activate.is_some_and(|activate| switch(&activate.value) == Some(true))
    }

    /// True if it is Convoy, or meant to be.
    pub(super) fn is_convoy(&self) -> bool {
        let is_library = |module: &Entry| {
            module.path.file_name() == Some(OsStr::new(module::NAME))
                || (module.path.is_absolute() && module::trouble(&module.path).is_none())
        };
        self.name == PROVIDER || self.module.is_some_and(is_library)
    }

    /// Fault of its module, as far as that can be told.
    pub(super) fn trouble(&self) -> Option<String> {
        let path = &self.module?.path;
        if path.as_os_str().is_empty() {
            return Some("module names no library".to_owned());
        }
        path.is_absolute().then(|| module::trouble(path)).flatten()
    }
}

/// Value of a switch, as OpenSSL reads it from 3.3 on; nothing if it refuses it.
pub(super) fn switch(value: &str) -> Option<bool> {
    match value {
        "1" | "yes" | "YES" | "true" | "TRUE" | "on" | "ON" => Some(true),
        "0" | "no" | "NO" | "false" | "FALSE" | "off" | "OFF" => Some(false),
        _ => None,
    }
}

/// OpenSSL has what is in front of a dot only for the order, or to name a thing twice.
fn behind_dot(name: &str) -> &str {
    name.split_once('.').map_or(name, |(_, behind)| behind)
}
