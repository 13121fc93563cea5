//! A connection between OpenSSL's own server and client.

use std::{fs, io::Write as _, process::Stdio};

use crate::common::{Running, Setup, plain, until};

/// A server that says each line backwards, and a client, both OpenSSL's, one of them on Convoy. The client
/// must understand the server; what both are told in the end comes behind `way`. OpenSSL's server takes no path of 32
/// bytes or more for its socket, so that has a short name.
pub(crate) fn talk(setup: &Setup, socket: &str, way: &[&str], serves: bool) {
    let socket = setup.path(socket);
    let side = |is_convoy: bool| match is_convoy {
        true => setup.command("openssl"),
        false => plain("openssl"),
    };
    let mut server = side(serves);
    server.args(["s_server", "-quiet", "-rev", "-naccept", "1", "-unix"]).arg(&socket).args(way);
    server.arg("-cert").arg(setup.path("cert.pem")).arg("-key").arg(setup.path("key.pem"));
    let _server = Running(server.spawn().unwrap());
    // Its file is there a moment before.
    until("the server listens", || {
        let sockets = fs::read_to_string("/proc/net/unix").unwrap();
        let path = format!(" {}", socket.display());
        sockets.lines().any(|line| line.ends_with(&path) && line.contains(" 00010000 "))
    });
    let mut client = side(!serves);
    client.args(["s_client", "-quiet", "-servername", "localhost", "-CAfile"]);
    client.arg(setup.path("cert.pem")).arg("-verify_return_error").arg("-unix").arg(&socket);
    let mut client = client.args(way).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = client.stdin.take().unwrap();
    // The server hangs up at this line.
    input.write_all(b"yovnoc hguorht\nCLOSE\n").unwrap();
    let output = client.wait_with_output().unwrap();
    drop(input);
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("through convoy"), "{way:?}, {serves}: {said}{errors}");
}
