//! Gateways as processes in a laboratory of namespaces.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

pub mod inside;
mod sandbox;

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use convoy_lab::{Family, Namespace, Topology};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{getsockopt, sockopt::TcpMaxSeg};
use nix::unistd::Pid;

pub use sandbox::{HELPER, OWN_USER, User, sandboxed, sandboxed_as};

/// A guard against hanging: what is certain to come takes long on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Says why and returns false where namespaces cannot be made.
pub fn can_make_namespaces() -> bool {
    if nix::unistd::geteuid().is_root() && Namespace::anonymous().is_ok() {
        return true;
    }
    println!("SKIPPED: namespaces need root");
    false
}

/// Copies the program, to be run from there. Not by this process: another that it has just started may still
/// have a copy of the descriptor that writes, and then the kernel runs no such file.
pub fn copy_program(to: &Path) {
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_convoy")).arg(to).status();
    assert!(copied.unwrap().success(), "cp to {}", to.display());
}

/// For the environment of `convoy exec`: the library that cargo has put beside the tests.
pub fn preload() -> (&'static str, PathBuf) {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libconvoy_xfrm_preload.so");
    assert!(library.exists(), "{} is not there", library.display());
    ("CONVOY_XFRM_PRELOAD", library)
}

/// `convoy exec` over an XFRM socket; a program and its arguments are to follow.
pub fn exec(socket: impl AsRef<Path>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_convoy"));
    let (variable, library) = preload();
    command.env(variable, library).args(["exec", "--socket"]).arg(socket.as_ref()).arg("--");
    command
}

/// Folder into which `interop/install-libreswan.sh` unpacks Libreswan; none, said loudly, where it is not.
pub fn libreswan() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("tools/libreswan");
    if folder.join("usr/libexec/ipsec/pluto").exists() {
        return Some(folder);
    }
    // Past the harness, which would keep it from being seen.
    let _ = writeln!(std::io::stderr(), "SKIPPED: not there: interop/install-libreswan.sh");
    None
}

/// Runs convoy to its end.
pub fn convoy(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_convoy")).args(arguments).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Site file sections, and a [wire] section for sockets if there is none: captures on the wire see nothing of AF_XDP.
pub fn by_sockets(sections: &str) -> String {
    let wire = if sections.contains("[wire]") { "" } else { "[wire]\nbackend = \"socket\"\n" };
    format!("{sections}{wire}")
}

/// An SA pair as both sides see it.
#[derive(Clone, Debug)]
pub struct Tunnel {
    pub name: &'static str,
    pub spi: u32,
    pub key: u8,
}

impl Tunnel {
    fn key(&self, to_b: bool) -> String {
        let byte = self.key.wrapping_mul(2).wrapping_add(u8::from(to_b));
        format!("{byte:02x}").repeat(20)
    }

    fn spi(&self, to_b: bool) -> u32 {
        self.spi + u32::from(to_b)
    }
}

/// A policy of side A; side B's is its mirror.
#[derive(Clone, Debug)]
pub struct PolicyText {
    pub name: &'static str,
    pub local: &'static str,
    pub remote: &'static str,
    pub out: &'static str,
    pub ins: Vec<&'static str>,
    pub priority: u32,
}

/// Settings that the site files of both sides are made from.
#[derive(Clone, Debug)]
pub struct Plan {
    pub tunnels: Vec<Tunnel>,
    pub policies: Vec<PolicyText>,
    pub workers: u16,
    pub lease_block: u64,
    pub udp_encap: bool,
    pub esn: bool,
}

impl Plan {
    /// One tunnel for everything between the two inner networks.
    pub fn simple() -> Self {
        Self {
            tunnels: vec![Tunnel { name: "one", spi: 0x1000, key: 1 }],
            policies: vec![PolicyText {
                name: "all",
                local: "10.1.0.0/24",
                remote: "10.2.0.0/24",
                out: "one",
                ins: vec!["one"],
                priority: 100,
            }],
            workers: 1,
            lease_block: 1 << 20,
            udp_encap: false,
            esn: true,
        }
    }

    /// The file of one side: `side` is 'a' or 'b', `folder` holds its state. By sockets, whose packets captures see.
    pub fn site(&self, side: char, folder: &Path) -> String {
        let is_a = side == 'a';
        let wire = |a: bool| if a { "198.51.100.1" } else { "198.51.100.2" };
        let mut text = format!(
            "name = \"{side}\"\nstate_dir = \"{0}/{side}.state\"\n\
             control_socket = \"{0}/{side}.sock\"\n\
             [plain]\ninterface = \"tun0\"\naddresses = [\"10.255.0.{2}/32\"]\n\
             [wire]\nbackend = \"socket\"\n[workers]\ncount = {1}\n",
            folder.display(),
            self.workers,
            u8::from(!is_a) + 1,
        );
        for tunnel in &self.tunnels {
            for outbound in [true, false] {
                let to_b = outbound == is_a;
                let (direction, way) =
                    if outbound { ("outbound", "out") } else { ("inbound", "in") };
                let _ = write!(
                    text,
                    "[[sa]]\nname = \"{}-{way}\"\ndirection = \"{direction}\"\nspi = {}\n\
                     local = \"{}\"\nremote = \"{}\"\nalgorithm = \"aes-128-gcm\"\nkey = \"{}\"\n",
                    tunnel.name,
                    tunnel.spi(to_b),
                    wire(is_a),
                    wire(!is_a),
                    tunnel.key(to_b),
                );
                if outbound {
                    let _ = writeln!(text, "lease_block = {}", self.lease_block);
                }
                let _ = writeln!(text, "esn = {}", self.esn);
                if self.udp_encap {
                    let _ = writeln!(text, "encap = \"udp\"");
                }
            }
        }
        for policy in &self.policies {
            let (local, remote) =
                if is_a { (policy.local, policy.remote) } else { (policy.remote, policy.local) };
            let ins: Vec<_> = policy.ins.iter().map(|name| format!("\"{name}-in\"")).collect();
            let _ = write!(
                text,
                "[[policy]]\nname = \"{}\"\naction = \"protect\"\nlocal = \"{local}\"\n\
                 remote = \"{remote}\"\nsa_out = \"{}-out\"\nsa_in = [{}]\npriority = {}\n",
                policy.name,
                policy.out,
                ins.join(", "),
                policy.priority,
            );
        }
        text
    }

    /// Writes the file of one side (and makes its state folder) and returns its path.
    pub fn write(&self, side: char, folder: &Path) -> PathBuf {
        let state = folder.join(format!("{side}.state"));
        if !state.exists() {
            fs::DirBuilder::new().mode(0o700).create(&state).unwrap();
        }
        let path = folder.join(format!("{side}.toml"));
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .unwrap();
        file.write_all(self.site(side, folder).as_bytes()).unwrap();
        path
    }
}

/// The site file of one side, between its two interfaces.
pub fn site_of(plan: &Plan, side: char, folder: &Path, backend: &str) -> PathBuf {
    let path = plan.write(side, folder);
    let text = fs::read_to_string(&path).unwrap();
    let (head, rest) = text.split_once("[plain]\n").unwrap();
    let (_, rest) = rest.split_once("[workers]").unwrap();
    let sides = format!(
        "[plain]\nbackend = \"{backend}\"\ninterface = \"lan\"\n\
         [wire]\nbackend = \"{backend}\"\ninterface = \"wire\"\n[workers]"
    );
    let mut file = fs::OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
    file.write_all(format!("{head}{sides}{rest}").as_bytes()).unwrap();
    path
}

/// Runs `ip` there.
pub fn ip(namespace: &Namespace, arguments: &str) -> String {
    let mut command = Command::new("ip");
    command.args(arguments.split_whitespace());
    command.stdout(Stdio::piped());
    let output = namespace.spawn(&mut command).unwrap().wait_with_output().unwrap();
    assert!(output.status.success(), "ip {arguments}");
    text(&output.stdout)
}

/// A running `convoy run`. Killed when dropped.
pub struct Gateway {
    child: Child,
    log: PathBuf,
}

impl Gateway {
    /// Starts a gateway without waiting for it.
    pub fn launch(namespace: &Namespace, site: &Path) -> Self {
        Self::launch_by(namespace, Command::new(env!("CARGO_BIN_EXE_convoy")), site)
    }

    /// The same by a command that ends in the program and its first arguments.
    pub fn launch_by(namespace: &Namespace, command: Command, site: &Path) -> Self {
        Self::launch_with(namespace, command, site, &[])
    }

    /// The same with further arguments.
    pub fn launch_with(
        namespace: &Namespace,
        mut command: Command,
        site: &Path,
        arguments: &[&str],
    ) -> Self {
        let log = site.with_extension("log");
        let file = fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        command
            .arg("run")
            .arg(site)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file);
        Self { child: namespace.spawn(&mut command).unwrap(), log }
    }

    /// Starts a gateway and waits until traffic can flow.
    pub fn start(namespace: &Namespace, site: &Path) -> Self {
        let mut gateway = Self::launch(namespace, site);
        assert!(gateway.wait_ready(), "not ready:\n{}", gateway.log());
        gateway
    }

    /// Waits for the line that says so; false when the process ends without it.
    pub fn wait_ready(&mut self) -> bool {
        let mut lines = BufReader::new(self.child.stdout.take().unwrap()).lines();
        lines.any(|line| line.is_ok_and(|line| line == "ready"))
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its number as a process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid() as i32), signal).unwrap();
    }

    /// Ends it at once, the hard way.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it the orderly way.
    pub fn terminate(mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.wait()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "did not end:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The packets of a capture.
pub fn read_pcap(path: &Path) -> Vec<Vec<u8>> {
    let file = fs::read(path).unwrap();
    // The first word tells the byte order.
    let big = file[0] == 0xa1;
    let mut rest = &file[24..];
    let mut packets = Vec::new();
    while !rest.is_empty() {
        let len = rest[8..12].try_into().unwrap();
        let len = if big { u32::from_be_bytes(len) } else { u32::from_le_bytes(len) } as usize;
        packets.push(rest[16..16 + len].to_vec());
        rest = &rest[16 + len..];
    }
    packets
}

/// `convoy status SITE --json`.
pub fn status(site: &Path) -> serde_json::Value {
    let output = convoy(&["status", site.to_str().unwrap(), "--json"]);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}{}", text(&output.stdout), text(&output.stderr)))
}

/// Packets that a status says were dropped for a reason.
pub fn dropped(status: &serde_json::Value, reason: &str) -> u64 {
    let drops = status["drops"].as_array().unwrap();
    let row = drops.iter().find(|row| row["reason"] == reason);
    row.map_or(0, |row| row["packets"].as_u64().unwrap())
}

/// Largest segment that each end of a TCP connection between the hosts believes to fit, in bytes.
pub fn segment_sizes(lab: &Topology) -> [u32; 2] {
    let to = lab.b.host_address(Family::V4);
    let listener = lab.b.host.run(|| TcpListener::bind((to, 0)).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let ours = lab.a.host.run(|| TcpStream::connect(address).unwrap()).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    [&ours, &theirs].map(|stream| getsockopt(stream, TcpMaxSeg).unwrap())
}
