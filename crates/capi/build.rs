//! Gives the shared library its name among shared libraries: releases that may differ in their
//! interface have different ones.

#![forbid(unsafe_code)]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        let name = format!("libconvoy_crypto.so.{major}.{minor}");
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{name}");
    }
}
