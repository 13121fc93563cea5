//! Whoever listens where the gateway's socket was is told nothing, unless it is root or the program's own user.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{Running, Server, Told, client, library, output, preloaded, until};

/// A user who is nobody's.
const STRANGER: u32 = 65_534;

fn is_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        println!("SKIPPED: only root can listen as another user");
    }
    is_root
}

fn says(of: &str) -> String {
    let pid = std::process::id();
    format!("{of}: served by process {pid} of user {STRANGER}, who is neither root nor user 0: ")
}

#[test]
fn a_stranger_is_as_if_there_was_no_server_and_people_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = client(folder.path()) else { return };
    if !is_root() {
        return;
    }
    let socket = folder.path().join("xfrm.sock");
    let stranger = Server::of_user(&socket, STRANGER);
    // It asks for a socket twice, and its people are told once.
    let led = preloaded(&program, &socket).arg("socket").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&led.stdout), "socket: EPROTONOSUPPORT\n");
    let said = String::from_utf8_lossy(&led.stderr).into_owned();
    assert!(said.contains(&says(socket.to_str().unwrap())), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!((stranger.requests(), stranger.told()), (0, Vec::new()));
}

#[test]
fn a_stranger_in_the_place_of_a_server_gets_no_request_and_no_udp_socket() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = client(folder.path()) else { return };
    if !is_root() {
        return;
    }
    let socket = folder.path().join("xfrm.sock");
    let server = Server::start(&socket);
    let mut child = preloaded(&program, &socket);
    child.arg("encapsulation").env("PORT", "0").stdin(Stdio::piped());
    let mut child = child.spawn().map(Running).unwrap();
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    until("handed over", || server.told().iter().any(|told| matches!(told, Told::Steer { .. })));
    let before: Vec<_> = lines.by_ref().take(6).collect();
    assert!(before[5].ends_with(" ok"), "{before:?}");
    drop(server);
    let stranger = Server::of_user(&socket, STRANGER);
    child.0.stdin.take().unwrap().write_all(b"\n").unwrap();
    let asked = lines.next().unwrap();
    assert!(asked.ends_with(" ECONNREFUSED"), "{asked}");
    let mut said = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains(&says(socket.to_str().unwrap())), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!((stranger.requests(), stranger.told()), (0, Vec::new()));
}

#[test]
fn a_server_of_the_own_user_is_talked_to() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = client(folder.path()) else { return };
    if !is_root() {
        return;
    }
    // The program, the library and the socket must be reached by that user.
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(folder.path(), 0o755);
    let copy = folder.path().join("library.so");
    std::fs::copy(library(), &copy).unwrap();
    let socket = folder.path().join("xfrm.sock");
    for (of, user, word) in [
        (STRANGER, STRANGER, "ok"),
        (0, STRANGER, "ok"),
        (STRANGER - 1, STRANGER, "EPROTONOSUPPORT"),
    ] {
        let _server = Server::of_user(&socket, of);
        open(&socket, 0o666);
        let ids = [format!("--reuid={user}"), format!("--regid={user}")];
        let mut command = Command::new("setpriv");
        command.args(ids).arg("--clear-groups").arg("env");
        command.arg(format!("LD_PRELOAD={}", copy.display()));
        command.arg(format!("CONVOY_XFRM_SOCKET={}", socket.display()));
        assert_eq!(
            output(command.arg(&program).arg("socket")),
            format!("socket: {word}\n"),
            "{of}"
        );
    }
}

#[test]
fn a_program_with_rights_that_its_caller_lacks_does_not_ask_the_callers_environment() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = client(folder.path()) else { return };
    if !is_root() {
        return;
    }
    let socket = folder.path().join("xfrm.sock");
    let _server = Server::start(&socket);
    // A loader takes no library of its caller for such a program, but one that the system names.
    let script = "mount -t tmpfs none /run && mount -t tmpfs none /etc && echo \"$0\" >/etc/ld.so.preload && \
        exec \"$1\" socket";
    let led = || {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]).args([library(), program.clone()]);
        command.env("CONVOY_XFRM_SOCKET", &socket).output().unwrap()
    };
    let usual = led();
    if !usual.status.success() {
        return println!("SKIPPED: no mount namespace: {}", String::from_utf8_lossy(&usual.stderr));
    }
    assert_eq!(usual.stdout, b"socket: ok\n");
    std::os::unix::fs::chown(&program, None, Some(STRANGER)).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o2755)).unwrap();
    // It looked where the gateway's socket usually is, and nobody is there.
    assert_eq!(led().stdout, b"socket: EPROTONOSUPPORT\n");
}
