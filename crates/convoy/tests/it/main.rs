//! The integration tests of this crate, in one program: linking is what many would cost.
#![allow(clippy::unwrap_used, reason = "tests")]

mod adversity;
mod bench;
mod bench_tls;
mod carrier;
mod cli;
mod common;
mod confinement;
mod copies;
mod demo;
mod demo_ike;
mod direct;
mod docs;
mod doctor;
mod exec;
mod fast_path;
mod install;
mod json;
mod keep;
mod kernel_policies;
mod leaks;
mod live;
mod mtu;
mod nonce;
mod openssl_conf;
mod private;
mod privileges;
mod reload;
mod replay;
mod standby;
mod strongswan;
mod stuck;
mod tls_records;
mod tunnels;
mod unit;
mod workers;
