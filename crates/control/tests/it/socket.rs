//! The control socket: who may ask, what is answered, and what hostile clients achieve.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use convoy_control::client::{Client, ClientError, Target};
use convoy_control::protocol::{Answer, DriverSetting, Request};
use convoy_control::server::{Gateway, Server, ServerError};
use convoy_control::state::ReloadReport;
use convoy_control::status::{
    CryptoReport, DriverChange, PolicyReport, SCHEMA, SaReport, Status, crypto_report,
};
use convoy_control::trace::{Question, Trace};
use convoy_crypto::Cpu;
use convoy_engine::registry::Drivers;
use convoy_ipsec::snapshot::Snapshot;
use zeroize::Zeroizing;

#[derive(Default)]
struct Fake {
    stops: AtomicUsize,
}

impl Gateway for Fake {
    fn status(&self) -> Status {
        let empty = serde_json::json!({
            "schema": SCHEMA, "version": "1", "name": "fake", "pid": 7, "uptime_s": 1.5,
            "site_file": "fake.toml", "namespace": null, "health": {"level": "warning", "reasons": ["x"]},
            "tier": "portable", "generation": 1, "outbound": {"packets": 1, "bytes": 2},
            "inbound": {"packets": 0, "bytes": 0}, "drops": [], "kernel_drops": 0, "counters": [],
            "workers": 1, "leases": {"state_dir": null, "failure": null}, "sas": [],
        });
        serde_json::from_value(empty).unwrap()
    }

    fn sas(&self) -> SaReport {
        SaReport { schema: SCHEMA, sas: Vec::new() }
    }

    fn policies(&self) -> PolicyReport {
        PolicyReport { schema: SCHEMA, policies: Vec::new() }
    }

    fn crypto(&self) -> CryptoReport {
        let cpu = Cpu::detect().unwrap();
        crypto_report(&cpu, &Drivers::new(&cpu), &Snapshot::default(), "inline")
    }

    fn set_driver(&self, driver: &str, _: DriverSetting) -> Result<DriverChange, String> {
        Err(format!("no driver is called {driver:?}"))
    }

    fn trace(&self, question: Question) -> Result<Trace, String> {
        Err(format!("of {} bytes", question.bytes))
    }

    fn reload(&self) -> Result<ReloadReport, String> {
        Err("left.toml:3:1: no good".to_owned())
    }

    fn keys(&self) -> Zeroizing<String> {
        Zeroizing::new("\"IPv4\"\n".to_owned())
    }

    fn metrics(&self) -> String {
        "convoy_up 1\n".to_owned()
    }

    fn stop(&self) {
        self.stops.fetch_add(1, Ordering::Relaxed);
    }
}

struct Running {
    dir: tempfile::TempDir,
    gateway: Arc<Fake>,
    server: Server,
}

impl Running {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let gateway = Arc::new(Fake::default());
        let server = Server::start(&dir.path().join("fake.sock"), gateway.clone()).unwrap();
        Self { dir, gateway, server }
    }

    fn ask(&self, request: Request) -> Result<Answer, ClientError> {
        Client::find(&Target::Socket(self.server.path().to_owned())).unwrap().ask(request)
    }

    /// Sends raw bytes and reads what comes back.
    fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(self.server.path()).unwrap();
        // A server that has heard enough may hang up before everything is written.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn every_request_is_answered() {
    let running = Running::new();
    let Answer::Status(status) = running.ask(Request::Status).unwrap() else { panic!() };
    assert_eq!((status.name.as_str(), status.health.level.exit_code()), ("fake", 1));
    assert!(
        matches!(running.ask(Request::Sa).unwrap(), Answer::Sa(report) if report.sas.is_empty())
    );
    assert!(matches!(running.ask(Request::Policy).unwrap(), Answer::Policy(_)));
    let Answer::Crypto(crypto) = running.ask(Request::Crypto).unwrap() else { panic!() };
    assert!(crypto.tiers.iter().any(|tier| tier.name == "portable" && tier.available));
    assert!(
        matches!(running.ask(Request::Keys).unwrap(), Answer::Keys(keys) if keys == "\"IPv4\"\n")
    );
    let metrics = running.ask(Request::Metrics).unwrap();
    assert!(matches!(metrics, Answer::Metrics(page) if page == "convoy_up 1\n"));
    let refused = running.ask(Request::Reload).unwrap_err();
    assert!(
        matches!(&refused, ClientError::Refused(why) if why == "left.toml:3:1: no good"),
        "{refused}"
    );
    assert!(matches!(running.ask(Request::Stop).unwrap(), Answer::Stopping));
    assert_eq!(running.gateway.stops.load(Ordering::Relaxed), 1);
}

#[test]
fn only_the_owner_may_use_the_socket_and_it_goes_with_the_server() {
    let running = Running::new();
    let path = running.server.path().to_owned();
    assert_eq!(mode(&path), 0o600);
    let Running { dir, server, .. } = running;
    drop(server);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let gone = Client::find(&Target::Socket(path)).unwrap().ask(Request::Status).unwrap_err();
    assert!(gone.is_no_gateway(), "{gone}");
    assert!(gone.to_string().contains("start one with `convoy run"), "{gone}");
}

#[test]
fn hostile_requests_are_refused_and_hurt_nobody() {
    let running = Running::new();
    let long = vec![b'x'; 1 << 20];
    let deep = "[".repeat(4000) + "\n";
    for bytes in [
        b"\n" as &[u8],
        b"{}\n",
        b"{\"verb\":\"boom\"}\n",
        b"\0\xff\xfe\n",
        deep.as_bytes(),
        b"null\n",
    ] {
        assert!(running.raw(bytes).contains("this gateway does not know the request"), "{bytes:?}");
    }
    running.raw(&long);
    assert_eq!(running.raw(b"{\"verb\":\"sta"), "");
    assert_eq!(running.raw(b""), "");
}

/// More connections than are served at once say nothing, or ask and never read.
#[test]
fn connections_that_wait_keep_nobody_out() {
    let running = Running::new();
    let idle: Vec<_> =
        (0..40).map(|_| UnixStream::connect(running.server.path()).unwrap()).collect();
    for _ in 0..20 {
        running.ask(Request::Status).unwrap();
    }
    let idle = idle.into_iter().map(|mut stream| stream.read(&mut [0]));
    assert!(idle.take(24).all(|end| matches!(end, Ok(0) | Err(_))), "the oldest gave way");
}

#[test]
fn a_gateway_that_hangs_is_named_by_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hangs.sock");
    let _never_accepts = UnixListener::bind(&path).unwrap();
    let client = Client::find(&Target::Socket(path.clone())).unwrap();
    let error = client.with_patience(Duration::from_millis(50)).ask(Request::Status).unwrap_err();
    assert!(matches!(error, ClientError::Silent { .. }), "{error}");
    let said = error.to_string();
    let named =
        format!("the gateway at {} (process {}, state ", path.display(), std::process::id());
    assert!(said.starts_with(&named) && said.contains("within 0.05 s"), "{said}");
}

#[test]
fn a_socket_left_behind_is_replaced_and_a_live_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/er/fake.sock");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    drop(UnixListener::bind(&path).unwrap());
    let server = Server::start(&path, Arc::new(Fake::default())).unwrap();
    let second = Server::start(&path, Arc::new(Fake::default())).unwrap_err();
    assert!(matches!(second, ServerError::InUse(_)), "{second}");
    let client = Client::find(&Target::Socket(path.clone())).unwrap();
    client.ask(Request::Status).unwrap();
    drop(server);
    std::fs::write(&path, "a file").unwrap();
    let file = Server::start(&path, Arc::new(Fake::default())).unwrap_err();
    assert!(matches!(file, ServerError::NotASocket(_)), "{file}");
    assert_eq!(std::fs::read(&path).unwrap(), b"a file");
}

#[test]
fn the_only_gateway_is_found_and_several_must_be_named() {
    let running = Running::new();
    let folder = running.dir.path();
    drop(UnixListener::bind(folder.join("dead.sock")).unwrap());
    let find = |target| Client::find_in(&target, folder);
    assert_eq!(find(Target::Only).unwrap().path(), running.server.path());
    assert_eq!(find(Target::Name("fake".into())).unwrap().path(), running.server.path());
    let second = Server::start(&folder.join("other.sock"), Arc::new(Fake::default())).unwrap();
    let several = find(Target::Only).unwrap_err().to_string();
    assert!(several.contains("fake.sock") && several.contains("other.sock"), "{several}");
    drop(second);
    let empty = tempfile::tempdir().unwrap();
    let none = Client::find_in(&Target::Only, empty.path()).unwrap_err();
    assert!(none.is_no_gateway() && none.to_string().contains("no gateway runs here"), "{none}");
}

#[test]
fn a_site_file_tells_its_socket_even_when_broken_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let site = dir.path().join("left.toml");
    let socket = |text: &str| {
        std::fs::write(&site, text).unwrap();
        Client::find(&Target::Site(site.clone())).map(|client| client.path().to_owned())
    };
    assert_eq!(
        socket("name = \"left\"\nbroken = 1\n").unwrap(),
        PathBuf::from("/run/convoy/left.sock")
    );
    assert_eq!(
        socket("name = \"left\"\ncontrol_socket = \"c.sock\"\n").unwrap(),
        dir.path().join("c.sock")
    );
    assert!(socket("nothing = 1\n").unwrap_err().to_string().contains("name: is missing"));
}

/// A listener of another user, which only root can make; it says nothing.
fn stranger_at(path: &Path) -> Option<UnixListener> {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: only root can listen as another user");
        return None;
    }
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
    let socket = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    // Who listens is the thread that says so.
    let begin = || {
        let user = rustix::fs::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        listen(&socket, 8).unwrap();
    };
    std::thread::scope(|scope| scope.spawn(begin).join().unwrap());
    Some(socket.into())
}

#[test]
fn another_user_who_listens_where_the_gateway_did_is_asked_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("left.sock");
    let Some(listener) = stranger_at(&path) else { return };
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    for target in [Target::Socket(path.clone()), Target::Only] {
        let client = Client::find_in(&target, folder.path()).unwrap();
        let refused = client.ask(Request::Keys).unwrap_err();
        assert!(matches!(refused, ClientError::Stranger(_)) && !refused.is_no_gateway());
        let (refused, process) = (refused.to_string(), std::process::id());
        let begin = format!(
            "socket {} (owner 0, mode 0640) is served by process {process} (",
            path.display()
        );
        assert!(refused.starts_with(&begin), "{refused}");
        assert!(
            refused.contains(") of user 65534, and nothing was sent to it: use a gateway of root"),
            "{refused}"
        );
    }
    // One was made to find the only gateway, and two to ask.
    for _ in 0..3 {
        let mut heard = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut heard).unwrap();
        assert_eq!(heard, b"");
    }
}

#[test]
fn a_socket_in_a_folder_that_others_can_change_is_not_served() {
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let start = || Server::start(&inner.join("g.sock"), Arc::new(Fake::default()));
    for mode in [0o777, 0o1777] {
        open(&inner, mode);
        let refused = start().unwrap_err();
        assert!(matches!(refused, ServerError::Open { .. }), "{refused}");
        let (refused, folder) = (refused.to_string(), inner.display());
        assert!(
            refused.contains(&format!("other users can write to folder {folder} (owner ")),
            "{refused}"
        );
        assert!(refused.contains(&format!("mode {mode:04o})")), "{refused}");
        assert_eq!(std::fs::read_dir(&inner).unwrap().count(), 0);
    }
    open(&inner, 0o755);
    open(folder.path(), 0o777);
    assert!(start().unwrap_err().to_string().contains("can rename what is in folder"));
    // As /tmp, where they can rename what is their own.
    open(folder.path(), 0o1777);
    start().unwrap();
}

#[test]
fn a_folder_of_another_user_that_nobody_else_can_change_serves_root() {
    if !nix::unistd::geteuid().is_root() {
        return println!("SKIPPED: only root can give folders away");
    }
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    for path in [folder.path(), &inner] {
        std::os::unix::fs::chown(path, Some(54_321), Some(54_321)).unwrap();
        // As a user with a private group and umask 002 makes it.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o775)).unwrap();
    }
    drop(Server::start(&inner.join("g.sock"), Arc::new(Fake::default())).unwrap());
    std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(0o777)).unwrap();
    let refused = Server::start(&inner.join("g.sock"), Arc::new(Fake::default())).unwrap_err();
    assert!(matches!(refused, ServerError::Open { .. }), "{refused}");
}

#[test]
fn a_link_in_the_place_of_the_lock_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("g.sock");
    let target = folder.path().join("target");
    std::os::unix::fs::symlink(&target, folder.path().join("g.sock.lock")).unwrap();
    let refused = Server::start(&path, Arc::new(Fake::default())).unwrap_err();
    assert!(
        matches!(&refused, ServerError::IsLink(link) if link.ends_with("g.sock.lock")),
        "{refused}"
    );
    assert!(!target.exists());
}
