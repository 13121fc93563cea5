//! Gives the shared library the name that programs linked with its version of intel-ipsec-mb ask for, and tells the sources which
//! version that is: convoy-ipsec-mb is version 2, convoy-ipsec-mb-1 is version 1.

#![forbid(unsafe_code)]

fn main() {
    println!("cargo::rerun-if-changed=../ipsec-mb/build.rs");
    println!("cargo::rustc-check-cfg=cfg(abi_1)");
    let is_first = std::env::var("CARGO_PKG_NAME").is_ok_and(|name| name.ends_with("-1"));
    if is_first {
        println!("cargo::rustc-cfg=abi_1");
    }
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        let number = if is_first { 1 } else { 2 };
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libIPSec_MB.so.{number}");
    }
}
