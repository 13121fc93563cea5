//! Applications see what the kernel's NETLINK_XFRM sockets would show them.

#![allow(clippy::unwrap_used)]

mod common;

use std::process::Command;

use common::{Running, Server, Told, client, in_namespace, output, preloaded};

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
    let text = output(command.arg("exempt").env("LD_PRELOAD", common::library()));
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
fn files_of_xfrm_are_there_where_the_kernel_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = client(folder.path()) else { return };
    let script = "mount -t tmpfs none /proc && exec env LD_PRELOAD=$0 $1 files";
    for arguments in [&["-m"][..], &["-rm"]] {
        let output = Command::new("unshare")
            .args(arguments)
            .args(["sh", "-c", script])
            .args([common::library(), program.clone()])
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
