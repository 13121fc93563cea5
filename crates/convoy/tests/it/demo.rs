//! `convoy demo` as it is called: what it prints, how it ends, what is left behind.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use convoy_lab::{HostState, Namespace};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// The user and group that own nothing.
const NOBODY: u32 = 65_534;
/// A guard against hanging: what is waited for takes long on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// Runs of a demonstration at most until one loses nothing.
const TRIES: u32 = 3;
/// Looks for a quiet moment between two of them.
const LOOKS: u32 = 4;

static ALONE: Mutex<()> = Mutex::new(());

/// One demonstration at a time: they share the processors, and the list of processes.
fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Past the harness, which would keep it from being seen.
fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// A network namespace from which demonstrations are started, so that nothing else changes in it.
struct Bench {
    namespace: Namespace,
    folder: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Bench {
    /// None, said loudly, where namespaces cannot be made.
    fn new() -> Option<Self> {
        let guard = alone();
        let usable = nix::unistd::geteuid().is_root() && Path::new("/dev/net/tun").exists();
        match Namespace::anonymous() {
            Ok(namespace) if usable => {
                let folder = tempfile::tempdir().unwrap();
                Some(Self { namespace, folder, _alone: guard })
            }
            Ok(_) => {
                skipped("the demonstration in namespaces needs root and /dev/net/tun");
                None
            }
            Err(error) => {
                skipped(&error.to_string());
                None
            }
        }
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("demo")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        command(env!("CARGO_BIN_EXE_convoy"), &self.out(), arguments)
    }

    fn start(&self, arguments: &[&str]) -> Child {
        self.namespace.spawn(&mut self.command(arguments)).unwrap()
    }

    fn state(&self) -> HostState {
        self.namespace.run(HostState::snapshot).unwrap().unwrap()
    }

    /// Runs to the end and returns the output, after comparing the host before and after.
    fn run(&self, arguments: &[&str], meanwhile: impl FnOnce(&Child)) -> Output {
        let before = self.state();
        let child = self.start(arguments);
        let pid = child.id();
        meanwhile(&child);
        let output = child.wait_with_output().unwrap();
        self.nothing_is_left(&before, pid);
        no_state_is_left(&self.out());
        output
    }

    fn nothing_is_left(&self, before: &HostState, pid: u32) {
        let left = before.differences(&self.state());
        // Whoever else works on this machine may make namespaces meanwhile, and other tests run programs.
        let others = [": namespace ", ": mount ", ": process "];
        let mine = |line: &&String| {
            line.contains(&format!("convoy-{pid}-")) || !others.iter().any(|it| line.contains(it))
        };
        let left: Vec<_> = left.iter().filter(mine).collect();
        assert!(left.is_empty(), "{left:#?}");
        let begun = Instant::now();
        while !processes_of(&self.out()).is_empty() {
            assert!(begun.elapsed() < PATIENCE, "{:?}", processes_of(&self.out()));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The command lines that name the folder of a demonstration: those of its gateways.
fn processes_of(out: &Path) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.map(|line| text(&line)).filter(|line| line.contains(out.to_str().unwrap())).collect()
}

fn no_state_is_left(out: &Path) {
    for entry in fs::read_dir(out).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        assert!(!name.ends_with(".state") && !name.contains(".sock"), "{name} is left");
    }
}

fn command(program: impl AsRef<OsStr>, out: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.arg("demo").args(arguments).arg("--out").arg(out);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a demonstration and returns its object. It should lose nothing. On a busy machine queues fill
/// up while their readers wait for a processor, so it has more than one try, in quiet moments if there
/// are any; [`good`] asks of every try what must hold there, too.
fn lossless(wire: &str, run: impl Fn() -> Output) -> Value {
    let mut object = good(&run(), wire);
    for _ in 1..TRIES {
        if object["lost"] == 0 {
            break;
        }
        let _ = convoy_lab::wait_for_quiet(LOOKS);
        object = good(&run(), wire);
    }
    let is_shared = object["processors_percent"].as_f64().unwrap() < convoy_lab::QUIET * 100.0;
    assert!(object["lost"] == 0 || is_shared, "{object:#}");
    object
}

/// The one JSON object, with everything as it should be. Packets may be lost only between hosts, where others
/// may use the processors, and only if kernels or gateways have counted them.
fn good(output: &Output, wire: &str) -> Value {
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
    let object: Value = serde_json::from_str(&stdout).unwrap();
    for (key, value) in [("uncounted", 0), ("icv_failures", 0), ("replays", 0)] {
        assert_eq!(object[key], value, "{key}: {stdout}");
    }
    assert!(object["lost"] == 0 || wire != "in-memory", "{stdout}");
    for key in ["throughput_bps", "throughput_back_bps", "baseline_bps", "packets"] {
        assert!(object[key].as_u64().unwrap() > 0, "{key}: {stdout}");
    }
    assert_eq!(object["wire"], wire);
    let best = convoy_crypto::Cpu::detect().unwrap().best();
    assert_eq!(object["tier"], best.name(), "{stdout}");
    assert!(object["udp"]["received"].as_u64().unwrap() > 100, "{stdout}");
    let count = |what: &str, key: &str| object[what][key].as_u64().unwrap();
    let lost = ["udp", "ping"].map(|what| count(what, "sent") - count(what, "received"));
    assert_eq!(object["lost"], lost[0] + lost[1], "{stdout}");
    object
}

/// Both site files, the keys and a capture that holds ESP of these keys.
fn files_are_left(object: &Value, protocol: u8) {
    let path = |value: &Value| PathBuf::from(value.as_str().unwrap());
    let keys = fs::read_to_string(path(&object["files"]["keys"])).unwrap();
    assert_eq!(keys.lines().count(), 2, "{keys}");
    for site in object["files"]["sites"].as_array().unwrap() {
        assert!(fs::read_to_string(path(site)).unwrap().contains("[plain]"));
    }
    let capture = path(&object["files"]["capture"]);
    assert_eq!(fs::metadata(&capture).unwrap().permissions().mode() & 0o7777, 0o600);
    let capture = fs::read(capture).unwrap();
    // Behind the file's header of 24 bytes and the first packet's of 16 (link type "raw IP").
    let first = &capture[40..];
    let outer = if first[0] >> 4 == 4 { first[9] } else { first[6] };
    assert_eq!(outer, protocol);
    assert!(object["decrypt"].as_str().unwrap().contains("tshark -r "));
}

/// Waits until the demonstration has started a gateway.
fn wait_for_gateway(child: &Child, out: &Path, name: &str) {
    let begun = Instant::now();
    while gateway_process(child.id(), name).is_none() {
        assert!(begun.elapsed() < PATIENCE, "no gateway {name} in {}", out.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The process of a gateway that a demonstration has started.
fn gateway_process(demo: u32, name: &str) -> Option<i32> {
    let children = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok()?;
        let arguments = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        (parent == demo && arguments.contains(name)).then_some(pid)
    });
    children.into_iter().next()
}

fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

#[test]
fn json_is_one_object_and_nothing_is_left_behind() {
    let Some(bench) = Bench::new() else { return };
    let object = lossless("native ESP", || bench.run(&["--seconds", "3", "--json"], |_| ()));
    files_are_left(&object, 50);
    for key in ["a_to_b", "b_to_a"] {
        assert_eq!(object["tcp"][key]["damaged"], 0);
    }
    let other = &object["other_wire"];
    assert_eq!(other["wire"], "ESP in UDP");
    for key in ["throughput_bps", "throughput_back_bps"] {
        assert!(other[key].as_u64() > Some(0), "{other}");
    }
    // Again, over what the first left.
    let output = bench.run(&["--seconds", "2"], |_| ());
    let summary = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{summary}{}", text(&output.stderr));
    for line in ["ICV failures    0\n", "replays         0\n", "tshark -r "] {
        assert!(summary.contains(line), "{line:?} in {summary}");
    }
    // On a busy machine it may have lost packets, and says why.
    let is_lossless = summary.contains("lost            0\n");
    assert!(is_lossless || summary.contains("the processors are shared"), "{summary}");
}

#[test]
fn ipv6_and_udp_encapsulation_work_too() {
    let Some(bench) = Bench::new() else { return };
    let run = |more: &[&str]| {
        bench.run(&[&["--seconds", "2", "--json", "--mtu", "1400"], more].concat(), |_| ())
    };
    let object = lossless("native ESP", || run(&["--v6"]));
    assert_eq!(object["ip_version"], 6);
    files_are_left(&object, 50);
    let object = lossless("ESP in UDP", || run(&["--udp-encap"]));
    assert_eq!(object["mtu"], 1400);
    files_are_left(&object, 17);
}

/// The device is removed and comes back while packets flow; nothing is lost with it.
#[test]
fn engines_beside_the_workers_lose_nothing() {
    let Some(bench) = Bench::new() else { return };
    let run = |more: &[&str]| bench.run(&[&["--seconds", "2", "--json"], more].concat(), |_| ());
    let object = lossless("native ESP", || run(&["--engine", "pool"]));
    let engines = &object["engines"];
    assert!(engines["jobs"].as_u64() > Some(100), "{engines}");
    lossless("native ESP", || run(&["--engine", "rfc4106-gcm-aes-convoy-portable"]));
    let model = ["--engine", "model", "--fault", "remove@200ms"];
    let object = lossless("native ESP", || run(&model));
    let engines = &object["engines"];
    assert!(engines["losses"].as_u64() > Some(0), "{engines}");
    assert!(engines["in_software"].as_u64() > Some(0), "{engines}");
}

#[test]
fn faults_are_the_models_alone() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, error) in [
        (&["--engine", "pool", "--fault", "stall@2s"][..], "only --engine model fails"),
        (&["--engine", "model", "--fault", "burn@2s"], "stall@2s"),
        (&["--engine", "poool"], "use inline, pool, model, cryptodev, or a driver"),
        (&["--engine", "rfc4106-gcm-aes-null"], "for benches only"),
        (&["--engine", "authenc-hmac-sha1-cbc-aes-convoy-portable"], "are of rfc4106(gcm(aes))"),
    ] {
        let output = command(env!("CARGO_BIN_EXE_convoy"), dir.path(), arguments).output().unwrap();
        let shown = text(&output.stderr);
        assert!(output.status.code() == Some(2) && shown.contains(error), "{shown}");
    }
}

#[test]
fn ctrl_c_in_the_middle_leaves_nothing_behind() {
    let Some(bench) = Bench::new() else { return };
    for (sent, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let output = bench.run(&["--seconds", "10", "--json"], |child| {
            wait_for_gateway(child, &bench.out(), "gwB.toml");
            std::thread::sleep(Duration::from_millis(300));
            signal(child.id().cast_signed(), sent);
        });
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn a_gateway_that_dies_is_named_and_nothing_is_left_behind() {
    let Some(bench) = Bench::new() else { return };
    let begun = Instant::now();
    let output = bench.run(&["--seconds", "10", "--json"], |child| {
        wait_for_gateway(child, &bench.out(), "gwB.toml");
        while fs::read(bench.out().join("gwB.log")).is_ok_and(|log| log.is_empty()) {
            assert!(begun.elapsed() < PATIENCE, "gateway gwB logs nothing");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(700));
        signal(gateway_process(child.id(), "gwB.toml").unwrap(), Signal::SIGKILL);
    });
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("gateway gwB died (signal: 9"), "{stderr}");
    assert!(stderr.contains("gwB.log ends with"), "{stderr}");
    assert!(begun.elapsed() < PATIENCE);
}

#[test]
fn gateways_forward_between_interfaces_without_loss() {
    let Some(bench) = Bench::new() else { return };
    for arguments in [
        &["--io", "af_packet"][..],
        &["--io", "af_packet", "--v6", "--udp-encap"],
        &["--io", "af_xdp"],
        &["--io", "af_xdp", "--v6", "--udp-encap"],
    ] {
        let wire = if arguments.len() > 2 { "ESP in UDP" } else { "native ESP" };
        let run = || bench.run(&[arguments, &["--seconds", "2", "--json"]].concat(), |_| {});
        let object = lossless(wire, run);
        assert_eq!(object["io"], arguments[1]);
        let site = fs::read_to_string(bench.out().join("gwA.toml")).unwrap();
        assert_eq!(site.matches(&format!("backend = \"{}\"", arguments[1])).count(), 2, "{site}");
        files_are_left(&object, if wire == "ESP in UDP" { 17 } else { 50 });
    }
}

#[test]
fn gateways_end_with_a_demonstration_that_is_killed_and_the_next_one_clears_up() {
    let Some(bench) = Bench::new() else { return };
    let before = bench.state();
    let mut killed = bench.start(&["--seconds", "10", "--json"]);
    wait_for_gateway(&killed, &bench.out(), "gwB.toml");
    std::thread::sleep(Duration::from_millis(300));
    let gateways = ["gwA.toml", "gwB.toml"].map(|name| gateway_process(killed.id(), name).unwrap());
    killed.kill().unwrap();
    killed.wait().unwrap();
    let begun = Instant::now();
    while gateways.iter().any(|pid| Path::new(&format!("/proc/{pid}")).exists()) {
        assert!(begun.elapsed() < PATIENCE, "gateways {gateways:?} live on");
        std::thread::sleep(Duration::from_millis(10));
    }
    let name = format!("convoy-{}-gwA", killed.id());
    assert!(Path::new("/run/netns").join(&name).exists());
    let next = bench.start(&["--seconds", "2", "--json"]);
    let pid = next.id();
    good(&next.wait_with_output().unwrap(), "native ESP");
    bench.nothing_is_left(&before, killed.id());
    bench.nothing_is_left(&before, pid);
    no_state_is_left(&bench.out());
}

#[test]
fn two_at_once_do_not_meet_and_keep_stays_until_told_to_stop() {
    let Some(bench) = Bench::new() else { return };
    let before = bench.state();
    let kept = bench.start(&["--seconds", "2", "--json", "--keep"]);
    let other = bench.start(&["--seconds", "2", "--json"]);
    let kept_id = kept.id();
    let other_id = other.id();
    let output = other.wait_with_output().unwrap();
    good(&output, "native ESP");
    // Which folder was whose is a matter of luck.
    let used = |pid: u32| {
        // One that only looks whether a folder is in use holds its lock for a moment, so that there
        // may be a third.
        let numbered = [2, 3].map(|number| bench.out().with_file_name(format!("demo-{number}")));
        [bench.out()].into_iter().chain(numbered).find(|folder| {
            fs::read_to_string(folder.join("in-use")).is_ok_and(|text| text == pid.to_string())
        })
    };
    let begun = Instant::now();
    // On a busy machine the other one may be through before this one has chosen its folder.
    let folder = loop {
        if let Some(folder) = used(kept_id) {
            break folder;
        }
        assert!(begun.elapsed() < PATIENCE, "no folder says that {kept_id} uses it");
        std::thread::sleep(Duration::from_millis(20));
    };
    // It has done its traffic when it tells how to look around; then it can be asked.
    let socket = folder.join("gwA.sock");
    while !socket.exists() {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(3));
    let convoy = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_convoy")).args(arguments).output().unwrap()
    };
    let site = folder.join("gwA.toml");
    let status = convoy(&["status", site.to_str().unwrap(), "--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["name"], "gwA");
    let stopped = convoy(&["demo", "--stop", "--out", folder.to_str().unwrap()]);
    assert_eq!(stopped.status.code(), Some(0), "{}", text(&stopped.stderr));
    let output = kept.wait_with_output().unwrap();
    good(&output, "native ESP");
    assert!(text(&output.stderr).contains("Everything is left running"));
    for pid in [kept_id, other_id] {
        bench.nothing_is_left(&before, pid);
    }
    no_state_is_left(&folder);
    let again = convoy(&["demo", "--stop", "--out", folder.to_str().unwrap()]);
    assert!(text(&again.stderr).contains("no demonstration runs with"), "{}", text(&again.stderr));

    // As `kill -9` leaves it: a namespace of a process that is gone.
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let name = format!("convoy-{}-hostA", gone.id());
    let _left = std::mem::ManuallyDrop::new(Namespace::named(&name).unwrap());
    let swept = convoy(&["demo", "--stop", "--out", folder.to_str().unwrap()]);
    assert!(text(&swept.stderr).contains(&name), "{}", text(&swept.stderr));
    assert!(!Path::new("/run/netns").join(&name).exists());
}

#[test]
fn an_ordinary_user_has_namespaces_of_their_own() {
    let Some(bench) = Bench::new() else { return };
    // Where that user can run it and write.
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    // As /tmp: without the sticky bit, others could put another folder in the place of the demonstration's.
    open(folder.path(), 0o1777);
    let program = folder.path().join("convoy");
    crate::common::copy_program(&program);
    open(&program, 0o755);
    let out = folder.path().join("demo");
    let before = bench.state();
    let mut command = command(&program, &out, &["--seconds", "2", "--json"]);
    command.uid(NOBODY).gid(NOBODY).current_dir(folder.path());
    let child = bench.namespace.spawn(&mut command).unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    let object: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    if let Some(why) = object["why_in_memory"].as_str() {
        skipped(&format!("namespaces of an ordinary user: {why}"));
        good(&output, "in-memory");
    } else {
        good(&output, "native ESP");
    }
    bench.nothing_is_left(&before, pid);
    no_state_is_left(&out);
}

#[test]
fn without_namespaces_both_gateways_run_in_one_process() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("demo");
    for (arguments, protocol) in [(&[][..], 50), (&["--v6", "--udp-encap"][..], 17)] {
        let mut command = command(env!("CARGO_BIN_EXE_convoy"), &out, arguments);
        command.args(["--seconds", "2", "--json", "--in-memory"]);
        let output = command.output().unwrap();
        let object = good(&output, "in-memory");
        files_are_left(&object, protocol);
        assert!(text(&output.stderr).contains("cannot make network namespaces"));
        no_state_is_left(&out);
    }
}

/// Every packet that one SA carries comes back once, whoever did its cryptography.
#[test]
fn one_sa_is_spread_over_workers() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--one-sa", "--workers", "2", "--seconds", "2", "--json"];
    let mut command = command(env!("CARGO_BIN_EXE_convoy"), folder.path(), &arguments);
    let output = command.output().unwrap();
    if std::thread::available_parallelism().is_ok_and(|n| n.get() < 2) {
        assert!(text(&output.stderr).contains("each worker needs one"));
        return skipped("there is one processor");
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rates = object["rates"].as_array().unwrap();
    let workers: Vec<_> = rates.iter().map(|rate| rate["workers"].as_u64().unwrap()).collect();
    assert_eq!(workers, [1, 2, 1, 2]);
    for rate in rates {
        let is_many = rate["workers"] == 2;
        assert_eq!(rate["errors"].as_array().unwrap().len(), 0, "{rate}");
        assert_eq!(rate["helped"].as_f64() > Some(0.0), is_many, "{rate}");
    }
}

#[test]
fn a_wrong_command_line_changes_nothing() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("demo");
    for arguments in [
        &["--v6", "--mtu", "1399"][..],
        &["--mtu", "100"],
        &["--io", "af_xdp", "--mtu", "9000"],
        &["--stop", "--keep"],
        &["--one-sa", "--engine", "pool"],
        &["--workers", "2"],
        &["--one-sa", "--workers", "64000"],
    ] {
        let output = command(env!("CARGO_BIN_EXE_convoy"), &out, arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(!out.exists());
    }
}
