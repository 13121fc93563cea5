//! `ip xfrm` with keys, told the same, shows the same of a gateway as of a kernel with ESP. Such a kernel
//! ran in an emulated machine; `interop/record-xfrm.sh` wrote down what it said.

use std::fmt::Write as _;
use std::process::Command;

use convoy_control::xfrm::{Multicast, Server};

use super::golden::whole;
use super::programs::{has_ip, preloaded};

const KERNEL: &str = include_str!("recorded/linux.txt");
/// Answers of a gateway where it means to do otherwise than the kernel did: commands in the order of the
/// recording and in its form, with the reasons as comments.
const OTHERWISE: &str = include_str!("recorded/otherwise.txt");

/// A command with what was said: output behind two blanks, errors behind `! `, the status behind `= `.
fn turns(recording: &str) -> Vec<(&str, String)> {
    let mut turns: Vec<(&str, String)> = Vec::new();
    for line in recording.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        match line.strip_prefix("$ ") {
            Some(command) => turns.push((command, String::new())),
            None => turns.last_mut().unwrap().1 += &format!("{line}\n"),
        }
    }
    turns
}

/// True if `ip` here prints as that of the recording did.
fn is_same_ip() -> bool {
    if !has_ip() {
        return false;
    }
    let output = Command::new("ip").arg("-V").output().unwrap();
    let version = String::from_utf8_lossy(&output.stdout);
    let is_of = |line: &str| line.strip_prefix("# ").is_some_and(|made| version.contains(made));
    let known = KERNEL.lines().any(|line| line.starts_with("# iproute2-") && is_of(line));
    if !known {
        println!("SKIPPED: the kernel's answers were printed by another ip than {version}");
    }
    known
}

#[test]
fn ip_shows_keys_of_a_gateway_as_of_a_kernel_with_esp() {
    if !is_same_ip() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("xfrm.sock");
    let server = Server::start(&path, whole(), Multicast::new().unwrap()).unwrap();
    let mut otherwise = turns(OTHERWISE).into_iter().peekable();
    let mut wrong = String::new();
    for (command, theirs) in turns(KERNEL) {
        let mut ip = preloaded("ip", server.path());
        let words = command.split_whitespace().map(|word| if word == "\"\"" { "" } else { word });
        let output = ip.arg("xfrm").args(words).output().unwrap();
        let mut ours = String::new();
        for (mark, bytes) in [("  ", &output.stdout), ("! ", &output.stderr)] {
            for line in String::from_utf8_lossy(bytes).lines() {
                writeln!(ours, "{mark}{line}").unwrap();
            }
        }
        writeln!(ours, "= {}", output.status.code().unwrap()).unwrap();
        let due = match otherwise.next_if(|(next, _)| *next == command) {
            Some((_, meant)) => {
                assert_ne!(meant, theirs, "no longer otherwise: {command}");
                meant
            }
            None => theirs,
        };
        if ours != due {
            write!(wrong, "$ {command}\n{ours}-- and not\n{due}").unwrap();
        }
    }
    assert_eq!(otherwise.next(), None, "a command that was not recorded");
    assert!(wrong.is_empty(), "{wrong}");
}
