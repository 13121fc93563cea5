//! Calls that kernels make, by their object code.
//!
//! A kernel is compiled with the features of a CPU tier, and all that it does is meant to be inlined into it.
//! Where an optimiser sees one crate or unit at a time, a function of the standard library that is not marked
//! `#[inline]` stays a call: without the tier's features, and with every register saved around it. The
//! library of the tests is compiled that way.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::report::Tally;
use crate::workspace::{Workspace, cargo, works};

/// Part of the mangled names of the functions behind doors.
const DOOR: &str = "4door17h";

/// Functions that kernels may call: they do no work on packets, or as much for a burst as for a packet.
const ALLOWED: &[&str] = &[
    // The compiler's own.
    "memcpy",
    "memset",
    "memmove",
    "memcmp",
    "bcmp",
    "_Unwind_Resume",
    // Never reached, or the end of the program.
    "core::panicking::",
    "core::slice::index::",
    "core::option::",
    "core::result::unwrap_failed",
    "core::cell::panic",
    // A copy of a length that is not known: a check and `memcpy`.
    "core::slice::<impl [T]>::copy_from_slice",
    "core::slice::copy_from_slice_impl",
    // Once for a burst, and kept out of the kernels (see there).
    "convoy_crypto::isa::x86::aes::order::Order::",
    "convoy_crypto::isa::x86::chacha::ByLength::of",
    "convoy_crypto::isa::x86::chacha::blocks",
    "convoy_crypto::isa::x86::chacha::in_lanes",
    "convoy_crypto::isa::x86::hash::lanes::sort",
    // A few times for a record: blocks that are put together byte by byte.
    "convoy_crypto::isa::record_job::Edges",
    // Instructions: with debug assertions some of them check a pointer, and are not inlined then.
    "core::core_arch::",
    "4core9core_arch",
    // Keys are wiped where they are set up.
    "<convoy_crypto::block::RoundKeys as core::ops::drop::Drop>::drop",
    "zeroize::",
    "zeroize>",
];

/// Reads the library that the tests were built with.
pub(crate) fn run(workspace: &Workspace) -> Result<Tally> {
    if !cfg!(target_arch = "x86_64") {
        return Ok(Tally::skip("kernels: there are none for this architecture".to_owned()));
    }
    if !works(Command::new("readelf").arg("--version")) {
        return Ok(Tally::skip("kernels: readelf (package binutils) is not there".to_owned()));
    }
    let library = library(workspace)?;
    let read = |option: &str| -> Result<String> {
        let output = Command::new("readelf")
            .args([option, "--wide", "--demangle=rust"])
            .arg(&library)
            .output()
            .context("cannot run readelf")?;
        ensure!(output.status.success(), "readelf cannot read {}", library.display());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (symbols, relocations) = (read("--symbols")?, read("--relocs")?);
    let Found { kernels, calls } = calls(&relocations, &functions(&symbols));
    ensure!(kernels > 100, "only {kernels} kernels in {}: were they renamed?", library.display());
    for (name, count) in &calls {
        println!("kernels call {name} ({count} times)");
    }
    if calls.is_empty() {
        println!("{kernels} kernels call nothing but kernels");
        return Ok(Tally::pass());
    }
    Ok(Tally::fail(
        "kernels: what is named above is called from within kernels, and is slow where nothing inlines it: \
         write a loop, use PairedWith for zip, or mark it #[inline(always)]"
            .to_owned(),
    ))
}

/// The file of convoy-crypto among those that the tests are built of.
fn library(workspace: &Workspace) -> Result<PathBuf> {
    let output = cargo()
        .args(["test", "--workspace", "--tests", "--no-run", "--locked"])
        .args(["--quiet", "--message-format=json-render-diagnostics"])
        .current_dir(&workspace.root)
        .output()
        .context("cannot run cargo test")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout)?;
    let file = messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_it = message["target"]["name"] == "convoy_crypto"
            && message["target"]["kind"] == serde_json::json!(["lib"])
            && message["profile"]["test"] == false;
        let files = message["filenames"].as_array().filter(|_| is_it)?;
        files
            .iter()
            .filter_map(Value::as_str)
            .find(|file| file.ends_with(".rlib"))
            .map(Path::new)
            .map(Path::to_owned)
    });
    file.context("cargo names no library of convoy-crypto")
}

/// The functions among the symbols that `readelf --symbols` lists.
fn functions(symbols: &str) -> BTreeSet<&str> {
    // Number, value, size, type, binding, visibility and section come before the name.
    let of_line = |line| {
        let is_function = behind(line, 3)?.starts_with("FUNC ");
        behind(line, 7).filter(|_| is_function)
    };
    symbols.lines().filter_map(of_line).collect()
}

/// Rest of a line behind so many columns.
fn behind(line: &str, columns: usize) -> Option<&str> {
    (0..columns).try_fold(line.trim(), |rest, _| {
        rest.split_once(char::is_whitespace).map(|(_, rest)| rest.trim_start())
    })
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Found<'a> {
    kernels: usize,
    /// Calls that are not allowed, and their numbers.
    calls: BTreeMap<&'a str, usize>,
}

/// The calls among the relocations that `readelf --relocs` lists.
fn calls<'a>(relocations: &'a str, functions: &BTreeSet<&str>) -> Found<'a> {
    let mut found = Found::default();
    let mut in_kernel = false;
    for line in relocations.lines() {
        if let Some(section) = line.strip_prefix("Relocation section '") {
            in_kernel = section.contains(DOOR) && section.starts_with(".rela.text.");
            found.kernels += usize::from(in_kernel);
            continue;
        }
        let Some((kind, name)) = relocation(line).filter(|_| in_kernel) else { continue };
        let is_call = kind == "R_X86_64_PLT32"
            || name.starts_with(".text.")
            || functions.contains(name)
            || (kind.contains("GOTPCREL") && ALLOWED.iter().any(|allowed| name.contains(allowed)));
        let is_allowed = ALLOWED.iter().any(|allowed| name.contains(allowed))
            || name.ends_with("::door")
            || name.contains(DOOR);
        if is_call && !is_allowed {
            *found.calls.entry(name).or_default() += 1;
        }
    }
    found
}

/// The kind of a relocation and the symbol that it is to.
fn relocation(line: &str) -> Option<(&str, &str)> {
    // Offset and type's number come before, the symbol's value behind, and then what is added to it.
    let (kind, _) = behind(line, 2)?.split_once(' ')?;
    let symbol = behind(line, 4).filter(|_| kind.starts_with("R_X86_64_"))?;
    let name = symbol.rsplit_once(" - ").or_else(|| symbol.rsplit_once(" + "));
    Some((kind, name.map_or(symbol, |(name, _)| name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_out_of_kernels_are_found_and_data_is_not() {
        let symbols = "\
   Num:    Value          Size Type    Bind   Vis      Ndx Name
     7: 0000000000000000    12 FUNC    LOCAL  DEFAULT    9 core::iter::adapters::zip::Zip<A,B>::new
     8: 0000000000000000   128 OBJECT  LOCAL  DEFAULT   10 convoy_crypto::isa::x86::TABLE
";
        let functions = functions(symbols);
        assert_eq!(Vec::from_iter(&functions), [&"core::iter::adapters::zip::Zip<A,B>::new"]);
        let relocations = "\
Relocation section '.rela.text._ZN5token6Behind4door17h0123456789abcdefE' at offset 0x10 contains 5 entries:
    Offset             Info             Type               Symbol's Value  Symbol's Name + Addend
000000000000000b  0000000300000009 R_X86_64_GOTPCREL      0000000000000000 core::iter::adapters::zip::Zip<A,B>::new - 4
000000000000001b  0000000400000004 R_X86_64_PLT32         0000000000000000 convoy_crypto::sorted - 4
000000000000002b  0000000500000009 R_X86_64_GOTPCREL      0000000000000000 convoy_crypto::isa::x86::TABLE - 4
000000000000003b  000000050000002a R_X86_64_REX_GOTPCRELX 0000000000000000 memcpy - 4
000000000000004b  0000000500000002 R_X86_64_PC32          0000000000000000 .rodata..L__unnamed_1 + 4

Relocation section '.rela.text._ZN5other17h0123456789abcdefE' at offset 0x20 contains 1 entry:
000000000000001b  0000000400000004 R_X86_64_PLT32         0000000000000000 convoy_crypto::sorted - 4
";
        let found = calls(relocations, &functions);
        let named: Vec<_> = found.calls.keys().copied().collect();
        assert_eq!(named, ["convoy_crypto::sorted", "core::iter::adapters::zip::Zip<A,B>::new"]);
        assert_eq!(found.kernels, 1);
    }
}
