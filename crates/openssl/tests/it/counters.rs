//! The file of counters where there is no room for it, and programs that run where little is.

use std::process::Command;

use convoy_openssl::stats::Counter;

use crate::common::{Setup, has, run};

/// A shell that does something and then encrypts with Convoy.
fn encrypts_after(setup: &Setup, before: &str) -> Command {
    let mut command = setup.command("sh");
    let encrypt = "openssl speed -elapsed -seconds 1 -bytes 64 -evp aes-128-gcm";
    command.args(["-c", &format!("{before} && exec {encrypt}")]);
    command
}

#[test]
fn a_full_file_system_ends_no_program() {
    if !has(&[]) {
        return;
    }
    let setup = Setup::new();
    std::fs::create_dir(setup.path("full")).unwrap();
    setup.count_in("full/stats");
    let mount = format!("mount -t tmpfs -o size=4k none '{}'", setup.path("full").display());
    let mut probe = setup.command("unshare");
    if !probe.args(["-m", "sh", "-c", &mount]).status().is_ok_and(|status| status.success()) {
        return println!("SKIPPED: no file system can be mounted in a namespace (root can)");
    }
    // With room for half of the file, and with a file of another version's that has holes.
    for before in
        ["true", "truncate -s 8192 full/stats && printf CONVOYP2 | dd of=full/stats conv=notrunc"]
    {
        let mut command = setup.command("unshare");
        let encrypt = encrypts_after(&setup, before);
        let script = encrypt.get_args().last().unwrap().to_str().unwrap().to_owned();
        // Every row is used, whichever processor this runs on.
        command.args(["-m", "sh", "-c", &format!("{mount} && {script}")]);
        run(&mut command);
    }
}

#[test]
fn a_limit_on_file_sizes_ends_no_program() {
    if !has(&[]) {
        return;
    }
    let setup = Setup::new();
    run(&mut encrypts_after(&setup, "ulimit -f 8"));
    assert!(
        !setup.path("stats").exists() || std::fs::metadata(setup.path("stats")).unwrap().len() == 0
    );
    // Without the limit, what was left is made whole.
    run(&mut encrypts_after(&setup, "true"));
    assert!(setup.count(Counter::MessagesSealed) > 0);
    run(&mut encrypts_after(&setup, "ulimit -f 8"));
    assert_eq!(setup.count(Counter::Loaded), 2);
}

/// Valgrind unmaps what the kernel maps for getcpu(2), which a library of system calls once read.
#[test]
fn programs_under_valgrind_are_not_ended_at_load() {
    if !has(&[]) {
        return;
    }
    let setup = Setup::new();
    let mut probe = setup.command("valgrind");
    if !probe.arg("--version").status().is_ok_and(|status| status.success()) {
        return println!("SKIPPED: valgrind is not installed");
    }
    let mut command = setup.command("valgrind");
    command.args(["--tool=none", "openssl", "list", "-providers"]);
    let output = run(&mut command);
    assert!(String::from_utf8_lossy(&output.stdout).contains("name: Convoy"));
    assert_eq!(setup.count(Counter::Loaded), 1);
}
