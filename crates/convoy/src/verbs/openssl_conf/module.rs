//! Path of the provider's library, and a check that programs of this machine can load it.

use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use crate::exit::Stop;

/// The library's name.
pub(in crate::verbs) const NAME: &str = "libconvoy_openssl.so";

/// Names that the dynamic linker replaces, with or without braces.
const TOKENS: [&[u8]; 3] = [b"ORIGIN", b"PLATFORM", b"LIB"];

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

/// True if a file is the provider's library.
pub(in crate::verbs) fn is_provider(module: &Path) -> bool {
    trouble(module).is_none()
}

/// Fault of a library; nothing if programs like this one can load it as Convoy's provider.
pub(super) fn trouble(module: &Path) -> Option<String> {
    if let Some(token) = token(module.as_os_str().as_bytes()) {
        let token = String::from_utf8_lossy(token);
        return Some(format!(
            "cannot be loaded: the dynamic linker puts something else in for ${token}; put the library elsewhere"
        ));
    }
    let bytes = match fs::read(module) {
        Ok(bytes) => bytes,
        Err(error) => return Some(format!("cannot be read: {error}")),
    };
    // Without it, only the architecture is not compared.
    let own = own_front().unwrap_or_default();
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

/// First bytes of this program's own file.
fn own_front() -> io::Result<Vec<u8>> {
    let mut own = Vec::new();
    fs::File::open("/proc/self/exe")?.take(FRONT as u64).read_to_end(&mut own)?;
    Ok(own)
}

/// A file that looks as if it were the provider's library.
#[cfg(test)]
pub(super) fn look_alike() -> Vec<u8> {
    let mut bytes = own_front().unwrap();
    bytes.extend(b"OSSL_provider_init\0provider=convoy\0");
    bytes
}

/// The first token of the dynamic linker in a path (`ld.so(8)`).
fn token(path: &[u8]) -> Option<&'static [u8]> {
    let mut names = path.split(|byte| *byte == b'$').skip(1);
    names.find_map(|behind| {
        TOKENS.into_iter().find(|token| match behind.strip_prefix(b"{") {
            Some(behind) => behind.strip_prefix(*token).is_some_and(|rest| rest.starts_with(b"}")),
            None => behind.strip_prefix(*token).is_some_and(|rest| {
                !rest.first().is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
            }),
        })
    })
}

/// Fault of a file that is none of ELF, or for another machine than the program `own`.
fn unfit(bytes: &[u8], own: &[u8]) -> Option<String> {
    let Some(front) = bytes.get(..FRONT).filter(|front| front.starts_with(b"\x7fELF")) else {
        return Some("is no library (not an ELF file)".to_owned());
    };
    let own = own.get(..FRONT).filter(|own| own.starts_with(b"\x7fELF"))?;
    let [its, ours] = [front, own].map(Machine::of);
    (its != ours).then(|| format!("is for {}, this machine is {}", its.name(), ours.name()))
}

/// Machine that an ELF file is for.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Machine {
    /// `EI_CLASS`.
    class: u8,
    /// `EI_DATA`.
    order: u8,
    /// `e_machine`.
    number: u16,
}

impl Machine {
    /// The machine of a file that begins with these [`FRONT`] bytes.
    fn of(front: &[u8]) -> Self {
        let (bytes, order) = ([front[18], front[19]], front[5]);
        let is_little = order == 1;
        let number = if is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) };
        Self { class: front[4], order, number }
    }

    fn name(self) -> String {
        let bits = if self.class == 1 { "32" } else { "64" };
        match self.number {
            3 => "x86 (32 bits)".to_owned(),
            40 => "ARM (32 bits)".to_owned(),
            62 => "x86-64".to_owned(),
            183 => "AArch64".to_owned(),
            243 => format!("RISC-V ({bits} bits)"),
            other => format!("ELF machine {other} ({bits} bits)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_dynamic_linker_replaces_is_found_in_paths() {
        for path in ["/a/$LIB/b.so", "/${ORIGIN}/b.so", "/$a$PLATFORM", "/$LIB.so"] {
            assert!(token(path.as_bytes()).is_some(), "{path}");
            assert!(trouble(Path::new(path)).unwrap().contains("dynamic linker"), "{path}");
        }
        for path in ["/a/LIB/$b.so", "/$ORIGINAL/b.so", "/${LIB/b.so", "/$LIB_2", "/\\$", "/{LIB}"]
        {
            assert!(token(path.as_bytes()).is_none(), "{path}");
        }
    }

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
