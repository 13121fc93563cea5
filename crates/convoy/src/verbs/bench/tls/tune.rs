//! Settings of the kernel that hold many connections back: told, or changed while the bench runs.

use std::fs;
use std::path::Path;

use crate::exit::Stop;

/// A setting, and what a run with many connections wants of it.
struct Setting {
    /// Its name for `sysctl`.
    name: &'static str,
    wanted: &'static str,
    /// Consequence of a lower value.
    why: &'static str,
}

const SETTINGS: [Setting; 3] = [
    Setting {
        name: "net.core.somaxconn",
        wanted: "8192",
        why: "many connections that begin together may be refused",
    },
    Setting {
        name: "net.ipv4.tcp_max_syn_backlog",
        wanted: "8192",
        why: "many connections that begin together may have to begin again",
    },
    Setting {
        name: "net.ipv4.ip_local_port_range",
        wanted: "1024\t65535",
        why: "a load process may run out of ports",
    },
];

impl Setting {
    fn path(&self) -> String {
        format!("/proc/sys/{}", self.name.replace('.', "/"))
    }

    /// Present value, if that is less than what is wanted.
    fn too_low(&self) -> Option<String> {
        let now = fs::read_to_string(self.path()).ok()?.trim().to_owned();
        let width = |text: &str| -> Option<i64> {
            let numbers: Vec<i64> =
                text.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
            match numbers[..] {
                [one] => Some(one),
                [low, high] => Some(high - low),
                _ => None,
            }
        };
        (width(&now)? < width(self.wanted)?).then_some(now)
    }
}

/// Settings that would help, a line each.
pub(super) fn advice() -> Vec<String> {
    let line = |setting: &Setting| {
        let now = setting.too_low()?;
        let Setting { name, wanted, why } = setting;
        Some(format!("{name} is {now:?}: {why}; --tune sets it to {wanted:?} while the bench runs"))
    };
    SETTINGS.iter().filter_map(line).collect()
}

/// Settings that are other than they were. They are taken back when this goes.
#[derive(Debug, Default)]
pub(super) struct Tuned(Vec<(&'static str, String, String)>);

impl Tuned {
    /// Raises what is too low.
    pub(super) fn raise() -> anyhow::Result<Self> {
        let mut tuned = Self::default();
        for setting in &SETTINGS {
            let Some(before) = setting.too_low() else { continue };
            let path = setting.path();
            fs::write(&path, setting.wanted).map_err(|error| {
                Stop::usage(format!(
                    "--tune: {} cannot be set: {error}; run as root, or leave --tune out",
                    setting.name
                ))
            })?;
            tuned.0.push((setting.name, path, before));
        }
        Ok(tuned)
    }

    /// Changed settings, a line each.
    pub(super) fn lines(&self) -> Vec<String> {
        let now = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let line = |(name, path, before): &(&str, String, String)| {
            format!("{name} was {before:?}, and {:?} while this ran", now(path))
        };
        self.0.iter().map(line).collect()
    }
}

impl Drop for Tuned {
    fn drop(&mut self) {
        for (name, path, before) in &self.0 {
            if let Err(error) = fs::write(Path::new(path), before) {
                eprintln!("error: {name} cannot be set back to {before:?}: {error}");
            }
        }
    }
}
