//! Performance of a TLS web server: the study of 2015 with nginx, repeated.

pub mod apache_bench;
mod connection;
pub mod hub;
pub mod job;
pub mod load;
pub mod member;
pub mod records;
pub mod report;
mod results;
pub mod run;
pub mod search;
pub mod server;
pub mod study;
