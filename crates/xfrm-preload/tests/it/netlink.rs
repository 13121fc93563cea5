//! Applications see what the kernel's NETLINK_XFRM sockets would show them.

use std::path::Path;
use std::process::Command;

use crate::common::{Running, Server, Told, client, in_namespace, output, preloaded};

/// One program, printing all it sees, on the kernel's sockets and on these.
#[test]
fn a_program_sees_what_the_kernel_shows_it() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = client(folder.path()) else { return };
    let socket = folder.path().join("xfrm.sock");
    let _server = Server::start(&socket);
    let ours = output(preloaded(&program, &socket).arg("same"));
    assert!(ours.contains("threads: 0 failures"), "{ours}");
    let Some(mut kernel) = in_namespace(&program) else { return };
    let kernels = output(kernel.arg("same"));
    let differ: Vec<_> =
        kernels.lines().zip(ours.lines()).filter(|(kernel, ours)| kernel != ours).collect();
    assert!(differ.is_empty(), "kernel, and here: {differ:#?}");
    assert_eq!(kernels.lines().count(), ours.lines().count());
}

#[test]
fn without_a_server_there_is_no_such_socket() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = client(folder.path()) else { return };
    let nowhere = folder.path().join("nowhere");
    let text = output(preloaded(&program, &nowhere).arg("socket"));
    assert_eq!(text, "socket: EPROTONOSUPPORT\n");
    let long = folder.path().join("x".repeat(200));
    let text = output(preloaded(&program, &long).arg("socket"));
    assert_eq!(text, "socket: EPROTONOSUPPORT\n");
}

#[test]
fn sockets_that_daemons_exempt_from_policies_get_the_mark_of_leak_protection() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = client(folder.path()) else { return };
    let Some(mut command) = in_namespace(&program) else { return };
    let text = output(command.arg("exempt").env("LD_PRELOAD", crate::common::library()));
    let said: Vec<_> = text.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
    // The bits that are not the mark's stay.
    let four = [
        "EOPNOTSUPP",
        "EINVAL",
        "EOPNOTSUPP",
        "ok",
        "00000123",
        "ok",
        "c5000123",
        "ok",
        "00000123",
    ];
    let six = ["ok", "c5000000", "ok", "ok", "c5000000", "EBADF"];
    assert_eq!(said, [&four[..], &six].concat(), "{text}");
}

#[test]
fn sockets_get_the_mark_that_the_gateway_has_now() {
    use std::io::{BufRead as _, BufReader, Write as _};
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = client(folder.path()) else { return };
    let Some(mut command) = in_namespace(&program) else { return };
    let socket = folder.path().join("xfrm.sock");
    let server = Server::marked(&socket, [0x0500, 0x0f00]);
    let mut child = command
        .arg("exempt-again")
        .env("LD_PRELOAD", crate::common::library())
        .env("CONVOY_XFRM_SOCKET", &socket)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .map(Running)
        .unwrap();
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let before: Vec<_> = lines.by_ref().take(6).collect();
    assert!(before[..3].iter().all(|line| line.ends_with(" ok")), "{before:?}");
    assert_eq!(before[3..5], ["mark 00000523", "mark 00000000"], "{before:?}");
    drop(server);
    let _server = Server::marked(&socket, [0x00a0_0000, 0x00f0_0000]);
    child.0.stdin.take().unwrap().write_all(b"\n").unwrap();
    let after: Vec<_> = lines.by_ref().take(3).collect();
    assert!(after[0].ends_with(" ok"), "{after:?}");
    assert_eq!(after[1..], ["mark 00a00023", "mark 00000000"], "{after:?}");
    assert!(child.0.wait().unwrap().success());
}

/// Runs the client's `exempt-more` as far as its first question.
fn exempts_more(folder: &Path, socket: &Path) -> Option<(Running, impl Iterator<Item = String>)> {
    use std::io::{BufRead as _, BufReader};
    let program = client(folder)?;
    let mut child = in_namespace(&program)?
        .arg("exempt-more")
        .env("LD_PRELOAD", crate::common::library())
        .env("CONVOY_XFRM_SOCKET", socket)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .map(Running)
        .unwrap();
    let lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    // What is said is what was said of marks, and what failed.
    let lines = lines.filter(|line| !line.ends_with(" ok"));
    Some((child, lines))
}

fn go_on(child: &mut Running) {
    use std::io::Write as _;
    child.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
}

#[test]
fn sockets_that_were_exempt_before_get_the_mark_that_another_one_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("xfrm.sock");
    let server = Server::marked(&socket, [0x0500, 0x0f00]);
    let Some((mut child, mut lines)) = exempts_more(folder.path(), &socket) else { return };
    assert_eq!(lines.next().unwrap(), "mark 00000523");
    // Its netlink socket does not notice before it is used.
    drop(server);
    let _server = Server::marked(&socket, [0x00a0_0000, 0x00f0_0000]);
    go_on(&mut child);
    assert_eq!(
        [lines.next(), lines.next()].map(Option::unwrap),
        ["mark 00a00023", "mark 00a00000"]
    );
    go_on(&mut child);
    let last: Vec<_> = lines.collect();
    assert_eq!(last, ["mark 00a00023", "mark 00a00000", "mark 00000023"]);
    assert!(child.0.wait().unwrap().success());
}

#[test]
fn a_server_that_was_late_with_its_mark_is_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("xfrm.sock");
    let server = Server::start(&socket);
    let Some((mut child, mut lines)) = exempts_more(folder.path(), &socket) else { return };
    assert_eq!(lines.next().unwrap(), "mark c5000123");
    server.mark([0x0500, 0x0f00], 1);
    go_on(&mut child);
    assert_eq!(
        [lines.next(), lines.next()].map(Option::unwrap),
        ["mark c5000123", "mark c5000000"]
    );
    go_on(&mut child);
    let last: Vec<_> = lines.collect();
    assert_eq!(last, ["mark 00000523", "mark 00000500", "mark 00000023"]);
    assert!(child.0.wait().unwrap().success());
}

#[test]
fn a_server_that_knows_no_marks_leaves_the_usual_one() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("xfrm.sock");
    let server = Server::marked(&socket, [0x0500, 0x0f00]);
    let Some((mut child, mut lines)) = exempts_more(folder.path(), &socket) else { return };
    assert_eq!(lines.next().unwrap(), "mark 00000523");
    drop(server);
    let server = Server::old(&socket);
    go_on(&mut child);
    assert_eq!(
        [lines.next(), lines.next()].map(Option::unwrap),
        ["mark c5000023", "mark c5000000"]
    );
    // It acknowledged the question, so nobody waited for its answer.
    assert_eq!(server.requests(), 1);
    go_on(&mut child);
    assert_eq!(lines.last().unwrap(), "mark 00000023");
    assert!(child.0.wait().unwrap().success());
}

#[test]
fn files_of_xfrm_are_there_where_the_kernel_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = client(folder.path()) else { return };
    let script = "mount -t tmpfs none /proc && exec env LD_PRELOAD=$0 $1 files";
    for arguments in [&["-m"][..], &["-rm"]] {
        let output = Command::new("unshare")
            .args(arguments)
            .args(["sh", "-c", script])
            .args([crate::common::library(), program.clone()])
            .output()
            .unwrap();
        if output.status.success() {
            let text = String::from_utf8(output.stdout).unwrap();
            assert_eq!(
                text,
                "/proc/sys/net/core/xfrm_acq_expires: stat ok open ok fopen ok says 30\n\
                 /proc/net/xfrm_stat: stat ok open ok fopen ok\n\
                 /proc/version: stat ENOENT open ENOENT fopen ENOENT\n"
            );
            return;
        }
    }
    println!("SKIPPED: no mount namespace to hide /proc in");
}

#[test]
fn udp_sockets_are_handed_over_again_to_the_next_server() {
    use std::io::{BufRead as _, BufReader, Write as _};
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = client(folder.path()) else { return };
    let socket = folder.path().join("xfrm.sock");
    // Convoy's own socket, which has the port already.
    let convoy = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    nix::sys::socket::setsockopt(&convoy, nix::sys::socket::sockopt::ReusePort, &true).unwrap();
    let port = convoy.local_addr().unwrap().port();

    let server = Server::start(&socket);
    let mut child = preloaded(&program, &socket)
        .arg("encapsulation")
        .env("PORT", port.to_string())
        .stdin(std::process::Stdio::piped())
        .spawn()
        .map(Running)
        .unwrap();
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let seen: Vec<_> = lines.by_ref().take(6).collect();
    assert!(seen[..3].iter().all(|line| line.ends_with(" ok")), "{seen:?}");
    assert_eq!(seen[3..5], ["in the kernel 0", "shared 1"]);
    assert!(seen[5].ends_with(" ok"), "{seen:?}");
    let told = Told::Steer { value: 2, port };
    assert_eq!(server.told(), std::slice::from_ref(&told));
    drop(server);
    let server = Server::start(&socket);
    child.0.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(lines.next().unwrap().ends_with(" ok"));
    assert!(child.0.wait().unwrap().success());
    assert!(server.told().contains(&told), "{:?}", server.told());
}
