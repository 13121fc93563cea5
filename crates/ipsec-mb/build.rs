//! Gives the shared library the name that programs linked with version 2 of intel-ipsec-mb ask for.

#![forbid(unsafe_code)]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libIPSec_MB.so.2");
    }
}
