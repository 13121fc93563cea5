//! OpenSSL's own programs.

use std::fs;

use convoy_openssl::stats::Counter;

use crate::{
    common::{Setup, has, plain, run},
    talk::talk,
};

fn text(command: &mut std::process::Command) -> String {
    String::from_utf8(run(command).stdout).unwrap()
}

#[test]
fn openssl_lists_the_provider_and_every_name_of_its_ciphers() {
    if !has(&[]) {
        return;
    }
    let setup = Setup::new();
    let providers = text(setup.command("openssl").args(["list", "-providers"]));
    assert!(providers.contains("name: Convoy") && providers.contains("default"), "{providers}");
    let ciphers = text(setup.command("openssl").args(["list", "-cipher-algorithms"]));
    for (bits, oid) in [(128, 6), (192, 26), (256, 46)] {
        let of = |provider: &str| {
            let line = ciphers
                .lines()
                .find(|line| line.contains(&format!("aes{bits}-GCM")) && line.ends_with(provider));
            let line = line.unwrap_or_else(|| panic!("{bits} of {provider}: {ciphers}"));
            line.trim_end_matches(provider).to_owned()
        };
        assert_eq!(of("convoy"), of("default"), "the names are those of the default provider");
        assert!(of("convoy").contains(&format!("2.16.840.1.101.3.4.1.{oid}")));
    }
}

#[test]
fn without_room_for_counters_programs_work_all_the_same() {
    if !has(&[]) {
        return;
    }
    let setup = Setup::new();
    let conf = fs::read_to_string(setup.conf()).unwrap();
    let conf = conf.replace("stats = ", "stats = /nowhere/at/all");
    fs::write(setup.conf(), conf).unwrap();
    let speed = ["speed", "-seconds", "1", "-bytes", "1024", "-evp", "aes-128-gcm"];
    run(setup.command("openssl").args(speed));
}

#[test]
fn speed_measures_messages_and_the_environment_names_the_counters() {
    if !has(&[]) {
        return;
    }
    let setup = Setup::new();
    let conf = fs::read_to_string(setup.conf()).unwrap();
    let conf: Vec<_> = conf.lines().filter(|line| !line.starts_with("stats")).collect();
    fs::write(setup.conf(), conf.join("\n") + "\n").unwrap();
    for cipher in ["aes-256-gcm", "chacha20-poly1305"] {
        for more in [&[][..], &["-aead"], &["-decrypt"]] {
            let mut command = setup.command("openssl");
            command.args(["speed", "-seconds", "1", "-bytes", "8192", "-evp", cipher]);
            run(command.args(more).env("CONVOY_PROVIDER_STATS", setup.path("stats")));
        }
    }
    let counts = setup.counts();
    assert!(counts.get(Counter::MessageBytesSealed) > 1 << 20, "{counts}");
    assert!(counts.get(Counter::MessageBytesOpened) > 1 << 20, "{counts}");
    // A program that cannot use what the variable says does not fail for it.
    let mut command = setup.command("openssl");
    let other = setup.path("other");
    fs::write(&other, "something else").unwrap();
    run(command.args(["list", "-providers"]).env("CONVOY_PROVIDER_STATS", &other));
    assert_eq!(fs::read_to_string(other).unwrap(), "something else");
}

#[test]
fn speed_measures_composites_with_several_records_at_once_and_without() {
    if !has(&[]) {
        return;
    }
    let setup = Setup::new();
    // The first to load the provider makes the file of counters.
    run(setup.command("openssl").args(["list", "-providers"]));
    for cipher in ["aes-128-cbc-hmac-sha1", "aes-256-cbc-hmac-sha256"] {
        for more in [&["-bytes", "8192"][..], &["-bytes", "8192", "-decrypt"], &["-mb"]] {
            let before = setup.counts();
            let mut command = setup.command("openssl");
            command.args(["speed", "-seconds", "1", "-evp", cipher]);
            run(command.args(more));
            let after = setup.counts();
            let more_of = |counter| after.get(counter) - before.get(counter);
            match more {
                ["-mb"] => assert!(more_of(Counter::Multiblocks) > 100, "{after}"),
                [_, _] => assert!(more_of(Counter::MessageBytesSealed) > 1 << 20, "{after}"),
                _ => assert!(more_of(Counter::MessageBytesOpened) > 1 << 20, "{after}"),
            }
        }
    }
}

#[test]
fn s_client_and_s_server_talk_through_convoy() {
    if !has(&[]) {
        return;
    }
    let setup = Setup::new();
    setup.certify();
    for way in ["-tls1_2", "-tls1_3"] {
        for serves in [true, false] {
            talk(&setup, &format!("{way}-{serves}"), &[way], serves);
        }
    }
    let counts = setup.counts();
    for counter in [Counter::RecordsSealed, Counter::RecordsOpened] {
        assert!(counts.get(counter) >= 4, "{}\n{counts}", counter.name());
    }
    for counter in [Counter::MessagesSealed, Counter::MessagesOpened] {
        assert!(counts.get(counter) >= 4, "{}\n{counts}", counter.name());
    }
}

#[test]
fn s_client_and_s_server_talk_in_chacha20_poly1305_through_convoy() {
    if !has(&[]) {
        return;
    }
    let setup = Setup::new();
    setup.certify();
    for way in [
        ["-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"],
        ["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"],
    ] {
        let before = setup.path("stats").exists().then(|| setup.counts());
        for serves in [true, false] {
            talk(&setup, &format!("{}-{serves}", way[0]), &way, serves);
        }
        let after = setup.counts();
        let more_of =
            |counter| after.get(counter) - before.as_ref().map_or(0, |counts| counts.get(counter));
        let records = [Counter::RecordsSealed, Counter::RecordsOpened];
        let messages = [Counter::MessagesSealed, Counter::MessagesOpened];
        for counter in if way[0] == "-tls1_2" { records } else { messages } {
            assert!(more_of(counter) >= 4, "{way:?}, {}\n{after}", counter.name());
        }
    }
    assert_eq!(setup.count(Counter::Forged), 0);
}

#[test]
fn s_client_and_s_server_talk_in_cbc_of_every_version_through_convoy() {
    if !has(&[]) {
        return;
    }
    let setup = Setup::new();
    setup.certify();
    setup.macs_before_it_encrypts();
    let mut spoken = 0;
    for (version, cipher) in [
        ("-tls1", "ECDHE-ECDSA-AES128-SHA"),
        ("-tls1_1", "ECDHE-ECDSA-AES256-SHA"),
        ("-tls1_2", "ECDHE-ECDSA-AES128-SHA"),
        ("-tls1_2", "ECDHE-ECDSA-AES256-SHA"),
        ("-tls1_2", "ECDHE-ECDSA-AES128-SHA256"),
    ] {
        let help = plain("openssl").args(["s_client", "-help"]).output().unwrap();
        let help = String::from_utf8_lossy(&help.stderr).into_owned();
        if !help.contains(&format!("{version} ")) {
            println!("SKIPPED in part: this OpenSSL has no {version}");
            continue;
        }
        let cipher = format!("{cipher}:@SECLEVEL=0");
        for serves in [true, false] {
            let socket = format!("{version}-{spoken}");
            talk(&setup, &socket, &[version, "-cipher", &cipher], serves);
            spoken += 1;
        }
    }
    let counts = setup.counts();
    for counter in [Counter::CbcRecordsSealed, Counter::CbcRecordsOpened] {
        assert!(counts.get(counter) >= 2 * spoken, "{}\n{counts}", counter.name());
    }
    assert_eq!(counts.get(Counter::Forged), 0, "{counts}");
}
