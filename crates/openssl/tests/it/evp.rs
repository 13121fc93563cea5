//! Programs in C that use EVP, with Convoy beside OpenSSL's default provider.

use std::env;

use convoy_crypto::{Cpu, Tier};
use convoy_openssl::stats::Counter;

use crate::common::{Setup, has, library, run};

/// The variable that asks for what is too long for the gate.
const LONG: &str = "CONVOY_LONG";

#[test]
fn random_calls_are_answered_as_the_default_provider_answers_them() {
    if !has(&[]) {
        return;
    }
    let setup = Setup::new();
    let Some(program) = setup.compile("differential.c") else { return };
    let output = run(setup.comparing(program).args(["20000", "1"]));
    println!("{}", String::from_utf8_lossy(&output.stdout));
    let counts = setup.counts();
    for counter in [Counter::MessagesSealed, Counter::Forged, Counter::InParts] {
        assert!(counts.get(counter) > 0, "{}\n{counts}", counter.name());
    }
}

#[test]
fn records_and_messages_of_one_side_are_opened_by_the_other() {
    if !has(&[]) {
        return;
    }
    let setup = Setup::new();
    let Some(program) = setup.compile("both_ways.c") else { return };
    let output = run(&mut setup.command(program));
    println!("{}", String::from_utf8_lossy(&output.stdout));
    let counts = setup.counts();
    for counter in [Counter::RecordsSealed, Counter::RecordsOpened, Counter::Forged] {
        assert!(counts.get(counter) > 100, "{}\n{counts}", counter.name());
    }
}

#[test]
fn composites_are_led_through_the_same_calls_as_the_default_provider_s() {
    if !has(&[]) {
        return;
    }
    let setup = Setup::new();
    let Some(program) = setup.compile("composites.c") else { return };
    let mut command = setup.comparing(program);
    let output = command.args(["6000", "1"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    if output.status.code() == Some(77) {
        println!("SKIPPED: the default provider has no composites on this processor");
        return;
    }
    assert!(output.status.success(), "{}: {said}", output.status);
    let counts = setup.counts();
    for (counter, least) in [
        (Counter::CbcRecordsSealed, 1000),
        (Counter::CbcRecordsOpened, 1000),
        (Counter::Multiblocks, 240),
        (Counter::Forged, 300),
    ] {
        assert!(counts.get(counter) >= least, "{}\n{counts}", counter.name());
    }
}

/// Memory is looked at by the program itself.
#[test]
fn threads_share_contexts_of_tls_and_memory_does_not_grow() {
    if !has(&[]) {
        return;
    }
    let setup = Setup::new();
    setup.certify();
    let Some(program) = setup.compile("handshakes.c") else { return };
    let number = if env::var_os(LONG).is_some() { 100_000 } else { 10_000 };
    let output = run(setup.command(program).args([&number.to_string(), "4"]));
    println!("{}", String::from_utf8_lossy(&output.stdout));
    let counts = setup.counts();
    for counter in [
        Counter::RecordsSealed,
        Counter::RecordsOpened,
        Counter::MessagesSealed,
        Counter::MessagesOpened,
    ] {
        assert!(counts.get(counter) > number, "{}\n{counts}", counter.name());
    }
}

#[test]
fn processes_fork_in_the_middle_of_messages_and_connections() {
    if !has(&[]) {
        return;
    }
    let setup = Setup::new();
    setup.certify();
    let Some(program) = setup.compile("forks.c") else { return };
    let output = run(&mut setup.command(program));
    println!("{}", String::from_utf8_lossy(&output.stdout));
    let counts = setup.counts();
    assert_eq!(counts.get(Counter::Loaded), 1, "\n{counts}");
    // Twenty connections of each version, with 640 KB each.
    for counter in [Counter::RecordsOpened, Counter::MessagesOpened] {
        assert!(counts.get(counter) > 20 * 70, "{}\n{counts}", counter.name());
    }
}

/// Memory is looked at by the program itself.
#[test]
fn keys_and_keystream_are_wiped_when_a_context_goes() {
    if !has(&[]) {
        return;
    }
    if !cfg!(target_env = "gnu") {
        return println!("SKIPPED: the program takes the place of glibc's free()");
    }
    let setup = Setup::new();
    let Some(program) = setup.compile("wiping.c") else { return };
    let output = run(&mut setup.command(program));
    println!("{}", String::from_utf8_lossy(&output.stdout));
}

/// Every function of every table, called without libcrypto, at every CPU tier.
fn call_every_entry(how: &str) {
    if !has(&[]) {
        return;
    }
    let setup = Setup::new();
    let Some(program) = setup.compile("entries.c") else { return };
    let mut denied = vec![String::new()];
    denied.extend(Tier::ALL.iter().skip(1).map(|tier| tier.name().to_owned()));
    // A tier that is denied denies those that build on it, and one of two branches is left.
    denied.push("avx512,vaes256".to_owned());
    for denied in denied {
        let mut command = setup.command(&program);
        command.arg(library()).arg(how).env(Cpu::DENY_VARIABLE, &denied);
        command.env("STATS_FILE", setup.path("counted"));
        let output = run(&mut command);
        println!("without {denied:?}:\n{}", String::from_utf8_lossy(&output.stdout));
    }
}

/// Jobs of OpenSSL's have 32 KiB of stack and no guard page below.
#[test]
fn no_function_takes_more_than_eight_kilobytes_of_stack() {
    call_every_entry("stack");
}

#[test]
fn no_function_ends_a_cancelled_thread() {
    call_every_entry("cancel");
}

#[test]
fn every_allocation_may_fail() {
    call_every_entry("memory");
}

/// Forged records of a client end no server, however small its stack.
#[test]
fn forged_records_are_refused_in_asynchronous_jobs() {
    if !has(&[]) {
        return;
    }
    let setup = Setup::new();
    setup.certify();
    let Some(program) = setup.compile("jobs.c") else { return };
    // Calls that are bound late take stack that is none of Convoy's.
    let output = setup.command(program).env("LD_BIND_NOW", "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    if output.status.code() == Some(77) {
        println!("SKIPPED: this OpenSSL has no asynchronous jobs");
        return;
    }
    assert!(output.status.success(), "{}: {said}", output.status);
    assert!(setup.count(Counter::Forged) >= 24);
}
