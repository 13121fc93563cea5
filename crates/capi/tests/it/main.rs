//! The C library as programs meet it that are short of stack or memory, or whose threads are cancelled.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

/// The library, as cargo built it for these tests.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libconvoy_capi.so");
    assert!(library.exists(), "{} is not there", library.display());
    library
}

/// Compiles `entries.c` and runs it; prints why, where it cannot be.
fn run(what: &str) {
    let (here, folder) = (Path::new(env!("CARGO_MANIFEST_DIR")), tempfile::tempdir().unwrap());
    if !cfg!(target_env = "gnu") {
        return println!("SKIPPED: the program takes the place of glibc's malloc()");
    }
    let program = folder.path().join("entries");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    compiler.arg("-I").arg(here.join("include")).arg(here.join("tests/it/entries.c"));
    compiler.arg(library()).arg("-o").arg(&program);
    let output = match compiler.output() {
        Ok(output) => output,
        Err(error) => return println!("SKIPPED: no C compiler: {error}"),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Under the name that it has among shared libraries (see build.rs).
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    let name = format!("libconvoy_crypto.so.{major}.{minor}");
    symlink(library(), folder.path().join(name)).unwrap();
    let mut command = Command::new(program);
    command.arg(what).env("LD_LIBRARY_PATH", folder.path());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}\n{said}{errors}", output.status);
}

#[test]
fn no_function_takes_more_stack_than_the_header_says() {
    run("stack");
}

#[test]
fn no_function_ends_a_cancelled_thread() {
    run("cancel");
}

#[test]
fn every_allocation_may_fail() {
    run("memory");
}
