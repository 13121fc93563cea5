//! `convoy exec`, with a library of the tests' own: what Convoy's does is tested beside it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use socket2::{Domain, SockAddr, Socket, Type};

/// Says that it was loaded.
const LIBRARY: &str = "#include <unistd.h>\n\
    __attribute__((constructor)) static void loaded(void) { if (write(1, \"led \", 4)) {} }\n";
/// Bears the mark of programs in Go.
const LIKE_GO: &str = "__attribute__((section(\".go.buildinfo\"), used)) static const char info[32];\n\
    int main(void) { return 0; }\n";
/// Needs no libc.
const STATIC: &str = "void _start(void) { for (;;) {} }\n";

fn compile(folder: &Path, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let (input, output) = (folder.join(format!("{name}.c")), folder.join(name));
    fs::write(&input, source).unwrap();
    match Command::new("cc").args(flags).arg("-o").args([&output, &input]).status() {
        Ok(status) => {
            assert!(status.success());
            Some(output)
        }
        Err(error) => {
            println!("SKIPPED: no C compiler: {error}");
            None
        }
    }
}

struct Place {
    folder: tempfile::TempDir,
    library: PathBuf,
    socket: PathBuf,
    listener: Option<Socket>,
}

fn listen(path: &Path, kind: Type) -> Socket {
    let socket = Socket::new(Domain::UNIX, kind, None).unwrap();
    socket.bind(&SockAddr::unix(path).unwrap()).unwrap();
    socket.listen(8).unwrap();
    socket
}

impl Place {
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let library = compile(folder.path(), "library.so", LIBRARY, &["-shared", "-fPIC"])?;
        let socket = folder.path().join("xfrm.sock");
        let listener = Some(listen(&socket, Type::SEQPACKET));
        Some(Self { folder, library, socket, listener })
    }

    fn exec(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_convoy"))
            .args(["exec", "--socket", self.socket.to_str().unwrap()])
            .args(arguments)
            .env("CONVOY_XFRM_PRELOAD", &self.library)
            .output()
            .unwrap()
    }
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_command_is_led_and_keeps_its_exit_code_and_signal() {
    let Some(place) = Place::new() else { return };
    let output = place.exec(&["--", "sh", "-c", "echo $CONVOY_XFRM_SOCKET; exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", words(&output.stderr));
    assert_eq!(words(&output.stdout), format!("led {}\n", place.socket.display()));
    let output = place.exec(&["sh", "-c", "kill -TERM $$"]);
    assert_eq!(output.status.signal(), Some(15));
    // Nobody is told that a pipe broke where it would have ended the command.
    let output = place.exec(&["sh", "-c", "kill -PIPE $$"]);
    assert_eq!(output.status.signal(), Some(13));
}

#[test]
fn what_cannot_be_led_is_refused_before_it_runs() {
    let Some(place) = Place::new() else { return };
    let folder = place.folder.path();
    let output = place.exec(&["--", "no-such-command"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(words(&output.stderr).contains("no such command"), "{}", words(&output.stderr));
    let flags = ["-static", "-nostdlib", "-no-pie"];
    let program = compile(folder, "static", STATIC, &flags).unwrap();
    let output = place.exec(&["--", program.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(words(&output.stderr).contains("statically"), "{}", words(&output.stderr));
    let program = compile(folder, "like-go", LIKE_GO, &[]).unwrap();
    let output = place.exec(&["--", program.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(words(&output.stderr).contains("is in Go"), "{}", words(&output.stderr));
    if !nix::unistd::geteuid().is_root() {
        return println!("SKIPPED: only root can make a program of another user");
    }
    let program = folder.join("other");
    fs::copy("/bin/true", &program).unwrap();
    std::os::unix::fs::chown(&program, Some(65534), None).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let output = place.exec(&["--", program.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(words(&output.stderr).contains("setuid"), "{}", words(&output.stderr));
}

#[test]
fn a_missing_library_or_socket_is_named() {
    let Some(mut place) = Place::new() else { return };
    let library = place.library.clone();
    place.library = place.folder.path().join("nowhere.so");
    let output = place.exec(&["true"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(words(&output.stderr).contains("nowhere.so"), "{}", words(&output.stderr));
    place.library = library;
    fs::remove_file(&place.socket).unwrap();
    let output = place.exec(&["--wait", "0", "true"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(words(&output.stderr).contains("xfrm.sock"), "{}", words(&output.stderr));
}

#[test]
fn a_gateway_that_starts_is_waited_for_and_a_file_is_not() {
    let Some(place) = Place::new() else { return };
    fs::remove_file(&place.socket).unwrap();
    let path = place.socket.clone();
    let gateway = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        listen(&path, Type::SEQPACKET)
    });
    let output = place.exec(&["--", "sh", "-c", "exit 7"]);
    let said = words(&output.stderr);
    drop(gateway.join().unwrap());
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("waiting up to 10 s for a gateway at "), "{said}");
    fs::remove_file(&place.socket).unwrap();
    fs::write(&place.socket, "").unwrap();
    let output = place.exec(&["true"]);
    let said = words(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("no socket") && !said.contains("waiting"), "{said}");
}

/// A copy of the program with another group's rights, as one with setuid or file capabilities has others' rights.
#[test]
fn variables_of_a_caller_who_has_fewer_rights_are_ignored() {
    let Some(place) = Place::new() else { return };
    if !nix::unistd::geteuid().is_root() {
        return println!("SKIPPED: only root can make a program of another group");
    }
    let program = place.folder.path().join("convoy");
    fs::copy(env!("CARGO_BIN_EXE_convoy"), &program).unwrap();
    let said = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words).env("CONVOY_XFRM_SOCKET", &place.socket);
        command.env("CONVOY_XFRM_PRELOAD", &place.library).output().unwrap()
    };
    let usual = said(&["exec", "sh", "-c", "exit 7"]);
    assert_eq!((usual.status.code(), words(&usual.stdout).as_str()), (Some(7), "led "));
    std::os::unix::fs::chown(&program, None, Some(65534)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o2755)).unwrap();
    // Neither the library nor, when there is one where it belongs, the socket is the caller's.
    let asked = said(&["exec", "sh", "-c", "exit 7"]);
    let errors = words(&asked.stderr);
    assert!(asked.status.code() == Some(2) && errors.contains("is in none of"), "{errors}");
    fs::copy(&place.library, place.folder.path().join("libconvoy_xfrm.so")).unwrap();
    let asked = said(&["exec", "--wait", "0", "sh", "-c", "exit 7"]);
    let errors = words(&asked.stderr);
    assert!(!errors.contains(place.socket.to_str().unwrap()), "{errors}");
    assert!(asked.status.code() == Some(3) && errors.contains("/run/convoy/xfrm.sock"), "{errors}");
}

#[test]
fn a_socket_without_a_gateway_is_told_before_the_command_runs() {
    let Some(mut place) = Place::new() else { return };
    let said = |place: &Place| {
        let output = place.exec(&["--wait", "0", "true"]);
        (output.status.code(), words(&output.stderr))
    };
    place.listener = None;
    let (code, left_over) = said(&place);
    assert!(code == Some(3) && left_over.contains("left over"), "{left_over}");
    fs::remove_file(&place.socket).unwrap();
    // As that of `convoy status`.
    place.listener = Some(listen(&place.socket, Type::STREAM));
    let (code, other) = said(&place);
    assert!(code == Some(3) && other.contains("a socket for something else"), "{other}");
}

#[test]
fn a_gateway_of_another_network_namespace_is_warned_of() {
    let Some(place) = Place::new() else { return };
    let here = place.exec(&["true"]);
    assert_eq!((here.status.code(), words(&here.stderr).as_str()), (Some(0), ""));
    let made = Command::new("unshare").args(["--net", "true"]).output();
    if !made.is_ok_and(|output| output.status.success()) {
        return println!("SKIPPED in part: cannot make a network namespace here");
    }
    let led = |namespace: &[&str]| {
        let words = ["exec", "--socket", place.socket.to_str().unwrap(), "sh", "-c", "exit 7"];
        let mut command = Command::new("unshare");
        command.args(namespace).arg(env!("CARGO_BIN_EXE_convoy")).args(words);
        command.env("CONVOY_XFRM_PRELOAD", &place.library).output().unwrap()
    };
    let there = led(&["--net"]);
    let said = words(&there.stderr);
    assert!(said.contains("runs in another network namespace than this command"), "{said}");
    let its = format!("--net=/proc/{}/ns/net ", std::process::id());
    assert!(said.contains(&its), "{said}");
    assert_eq!(there.status.code(), Some(7), "it runs all the same");
    // Others do not matter.
    assert_eq!(words(&led(&["--uts"]).stderr), "");
}

#[test]
fn a_socket_that_another_user_serves_is_refused_before_the_command_runs() {
    let Some(mut place) = Place::new() else { return };
    if !nix::unistd::geteuid().is_root() {
        return println!("SKIPPED: only root can listen as another user");
    }
    fs::remove_file(&place.socket).unwrap();
    let stranger = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    stranger.bind(&SockAddr::unix(&place.socket).unwrap()).unwrap();
    // Who listens is the thread that says so.
    let begin = || {
        let user = rustix::fs::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        stranger.listen(8).unwrap();
    };
    std::thread::scope(|scope| scope.spawn(begin).join().unwrap());
    place.listener = Some(stranger);
    let output = place.exec(&["sh", "-c", "echo ran"]);
    assert_eq!((output.status.code(), words(&output.stdout).as_str()), (Some(3), ""));
    let said = words(&output.stderr);
    let socket = format!("socket {} (owner 0, mode ", place.socket.display());
    assert!(said.contains(&socket), "{said}");
    let process = format!(" is served by process {} (", std::process::id());
    assert!(
        said.contains(&process)
            && said.contains(" of user 65534, and nothing was sent to it: use a gateway of "),
        "{said}"
    );
}
