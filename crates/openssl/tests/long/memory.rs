//! The programs in C under AddressSanitizer and Valgrind, with the provider loaded.

use std::{fs, process::Command};

use crate::common::{Setup, has, plain};

/// Programs, and how often they do what they do under either. The one that is not among them has a `free()` of
/// its own.
const PROGRAMS: [(&str, [&[&str]; 2]); 5] = [
    ("differential.c", [&["20000", "3"], &["1500", "3"]]),
    ("both_ways.c", [&[], &[]]),
    ("composites.c", [&["6000", "3"], &["600", "3"]]),
    ("handshakes.c", [&["400", "4", "watched"], &["40", "2", "watched"]]),
    ("forks.c", [&[], &[]]),
];

/// Suppressions for the default provider: its tags of AES-GCM have bytes that Valgrind takes for undefined.
const NOT_OURS: &str = "{\n  compared\n  Memcheck:Cond\n  ...\n  fun:same\n}\n\
                        {\n  in-libcrypto\n  Memcheck:Cond\n  obj:*libcrypto.so*\n}\n";

/// Accesses of C, and what Rust hands to functions of the C library; leaks of both. Rust's own accesses are
/// left to its compiler and to Valgrind.
#[test]
fn address_sanitizer_finds_nothing() {
    if !has(&[]) {
        return;
    }
    let setup = Setup::new();
    setup.certify();
    for (name, [arguments, _]) in PROGRAMS {
        let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
        let Some(program) = setup.compile_with(name, &flags) else { return };
        let mut command = setup.comparing(program);
        // As in Valgrind, leaks of a process that forks while threads work are not its own.
        let leaks = if name == "forks.c" { "detect_leaks=0" } else { "detect_leaks=1" };
        command.args(arguments).env("ASAN_OPTIONS", leaks);
        finish(&mut command, name);
    }
}

/// Accesses and branches of everything, on the CPU tiers that Valgrind's processor has: up to AVX2.
#[test]
fn valgrind_finds_nothing() {
    if !has(&[]) {
        return;
    }
    if plain("valgrind").arg("--version").output().is_err() {
        return println!("SKIPPED: valgrind is not installed");
    }
    let setup = Setup::new();
    setup.certify();
    fs::write(setup.path("not-ours"), NOT_OURS).unwrap();
    for (name, [_, arguments]) in PROGRAMS {
        let Some(program) = setup.compile(name) else { return };
        let mut command = setup.comparing("valgrind");
        command.args(["--quiet", "--error-exitcode=9", "--suppressions=not-ours"]);
        if name != "forks.c" {
            // A process that forks while threads work loses what those had.
            command.args(["--leak-check=full", "--errors-for-leak-kinds=definite"]);
        }
        finish(command.arg(program).args(arguments), name);
    }
}

/// Runs a program that must succeed, unless it says that it cannot.
fn finish(command: &mut Command, name: &str) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.code() == Some(77) {
        return println!("SKIPPED in part: {name}: the default provider has no such ciphers here");
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{said}{errors}", output.status);
    println!("{name}: {}", said.trim_end());
}
