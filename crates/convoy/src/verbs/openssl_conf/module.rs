//! Where the provider's library is, and whether programs of this machine can load it.

use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::exit::Stop;

/// Bytes of what every ELF file begins with, up to the machine it is for.
const FRONT: usize = 20;

/// The library as an absolute path: the one named by the option `by`, or else where it is installed, or
/// beside the program. Programs of this machine can load it.
pub(in crate::verbs) fn named_or_found(named: Option<&Path>, by: &str) -> anyhow::Result<PathBuf> {
    let module = match named {
        Some(module) => fs::canonicalize(module)
            .map_err(|error| Stop::usage(format!("{}: {error}", module.display())))?,
        None => find(by)?,
    };
    match trouble(&module) {
        Some(trouble) => Err(Stop::usage(format!("{}: {trouble}", module.display()))),
        None => Ok(module),
    }
}

fn find(by: &str) -> anyhow::Result<PathBuf> {
    const NAME: &str = "libconvoy_openssl.so";
    let own = env::current_exe()?;
    let folder = own.parent().unwrap_or_else(|| Path::new("/"));
    let prefix = folder.parent().unwrap_or(folder);
    let places = [
        prefix.join("lib/convoy").join(NAME),
        prefix.join("lib").join(NAME),
        folder.join(NAME),
        folder.join("deps").join(NAME),
    ];
    places.iter().find(|place| place.is_file()).cloned().ok_or_else(|| {
        let places: Vec<_> = places.iter().map(|place| format!("  {}", place.display())).collect();
        Stop::usage(format!(
            "the provider's library is in none of\n{}\n\
             `make install` puts it there; {by} names it elsewhere",
            places.join("\n")
        ))
    })
}

/// What is wrong with a library; nothing if programs like this one can load it as Convoy's provider.
pub(super) fn trouble(module: &Path) -> Option<String> {
    let bytes = match fs::read(module) {
        Ok(bytes) => bytes,
        Err(error) => return Some(format!("cannot be read: {error}")),
    };
    let own = fs::read("/proc/self/exe").unwrap_or_default();
    if let Some(trouble) = unfit(&bytes, &own) {
        return Some(trouble);
    }
    let holds = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
    if !holds(b"OSSL_provider_init\0") {
        return Some("is no provider: it has no function OSSL_provider_init".to_owned());
    }
    if !holds(b"provider=convoy\0") {
        return Some("is a provider, but not Convoy's".to_owned());
    }
    None
}

/// Whether a file is none of ELF, or for another machine than the program `own`.
fn unfit(bytes: &[u8], own: &[u8]) -> Option<String> {
    let Some(front) = bytes.get(..FRONT).filter(|front| front.starts_with(b"\x7fELF")) else {
        return Some("is no library (not an ELF file)".to_owned());
    };
    let own = own.get(..FRONT).filter(|own| own.starts_with(b"\x7fELF"))?;
    let machine = |front: &[u8]| -> (u8, u8, u16) {
        let bytes = [front[18], front[19]];
        let is_little = front[5] == 1;
        let machine = if is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) };
        (front[4], front[5], machine)
    };
    let (its, ours) = (machine(front), machine(own));
    (its != ours).then(|| format!("is for {}, this machine is {}", name(its), name(ours)))
}

fn name((class, _, machine): (u8, u8, u16)) -> String {
    let bits = if class == 1 { "32" } else { "64" };
    match machine {
        3 => "x86 (32 bits)".to_owned(),
        40 => "ARM (32 bits)".to_owned(),
        62 => "x86-64".to_owned(),
        183 => "AArch64".to_owned(),
        243 => format!("RISC-V ({bits} bits)"),
        other => format!("ELF machine {other} ({bits} bits)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_other_machines_and_what_is_none_are_told_apart() {
        let own = fs::read("/proc/self/exe").unwrap();
        assert_eq!(unfit(&own, &own), None);
        let mut other = own.clone();
        other[18] = 183;
        other[19] = 0;
        let text = unfit(&other, &own).unwrap();
        assert!(text.starts_with("is for AArch64, this machine is "), "{text}");
        assert!(unfit(b"#!/bin/sh\n", &own).unwrap().contains("not an ELF file"));
        let own = trouble(Path::new("/proc/self/exe"));
        // The tests link the provider's library, so its name for itself may be in them, or not.
        assert!(own.is_none_or(|text| text.contains("provider")));
        assert!(trouble(Path::new("/not/there")).unwrap().contains("cannot be read"));
    }
}
