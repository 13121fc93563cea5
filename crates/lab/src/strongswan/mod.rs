//! Unmodified strongSwan daemons: charon, as the distribution ships it, told what to do through its
//! own files and `swanctl`.
//!
//! Each has a folder with its configuration, credentials, log and control socket, so that many run
//! beside each other, one per network namespace. [`DataPlane`] says what carries their packets.
//! Dropping a [`StrongSwan`] ends its daemon, and so does the end of the process that started it.

mod command;
mod config;
mod credentials;
mod sas;

use std::{
    env,
    fs::{self, File, OpenOptions},
    io::Write as _,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{DirBuilderExt as _, OpenOptionsExt as _},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

pub use config::{Auth, Child, Connection, DataPlane, Mode, StartAction};
pub use credentials::{Identity, identities};
pub use sas::{ChildSa, IkeSa};

use crate::{LabError, Namespace, Program, error::Doing as _};

/// The control socket in a daemon's folder.
const SOCKET: &str = "vici.sock";
/// Its log there.
const LOG: &str = "charon.log";
/// What it prints.
const OUTPUT: &str = "charon.out";
/// Longest path of a UNIX socket in bytes (`sockaddr_un`), with its end.
const SOCKET_PATH: usize = 108;
/// How long a daemon may take until it answers.
const START: Duration = Duration::from_secs(10);
/// How long it may take to say farewell to its peers.
const END: Duration = Duration::from_secs(5);
/// How long an answer may take that waits for no peer.
const ANSWER: Duration = Duration::from_secs(10);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// What the laboratory takes of strongSwan, and the packages of Debian and Ubuntu that have it.
const PROGRAMS: [(&str, &str); 3] = [
    ("charon-systemd", "charon-systemd"),
    ("swanctl", "strongswan-swanctl"),
    ("pki", "strongswan-pki"),
];
/// Where programs are that are not in everybody's `PATH`.
const PLACES: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];
/// Where distributions put the plugins.
const PLUGIN_PLACES: [&str; 4] = [
    "/usr/lib/ipsec/plugins",
    "/usr/lib/strongswan/plugins",
    "/usr/lib64/strongswan/plugins",
    "/usr/libexec/strongswan/plugins",
];

/// Packages (by their names in Debian) that have to be installed before a daemon can run here;
/// empty when all are there.
#[must_use]
pub fn missing(plane: &DataPlane) -> Vec<&'static str> {
    let absent =
        |(program, package): (&str, &'static str)| find(program).is_err().then_some(package);
    let mut missing: Vec<_> = PROGRAMS.into_iter().filter_map(absent).collect();
    let plugin = |folder: &str| Path::new(folder).join("libstrongswan-kernel-libipsec.so").exists();
    if *plane == DataPlane::Libipsec && !PLUGIN_PLACES.into_iter().any(plugin) {
        missing.push("libcharon-extra-plugins");
    }
    missing
}

/// A program of strongSwan.
fn find(name: &str) -> Result<PathBuf, LabError> {
    let path = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&path).chain(PLACES.map(PathBuf::from));
    places
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| LabError::Missing { program: name.into() })
}

/// A daemon to be started.
#[derive(Debug, Clone)]
pub struct StrongSwanConfig {
    /// Its folder, which is made if it is not there. Its path is short enough for a UNIX socket.
    pub folder: PathBuf,
    /// What carries its packets.
    pub plane: DataPlane,
    /// Its connections.
    pub connections: Vec<Connection>,
    /// Its key and certificate.
    pub identity: Option<Identity>,
    /// Further options of the daemon, by their names in `strongswan.conf`.
    pub more: Vec<(String, String)>,
}

impl StrongSwanConfig {
    /// A daemon without connections.
    #[must_use]
    pub fn new(folder: &Path, plane: DataPlane) -> Self {
        Self {
            folder: folder.into(),
            plane,
            connections: Vec::new(),
            identity: None,
            more: Vec::new(),
        }
    }
}

/// A running daemon.
#[derive(Debug)]
pub struct StrongSwan {
    // Before the daemon, which it would take along.
    _watch: Program,
    program: Program,
    config: StrongSwanConfig,
    swanctl: PathBuf,
}

impl StrongSwan {
    /// Starts a daemon in a namespace, waits until it answers, and loads its connections.
    ///
    /// # Errors
    /// [`LabError::Missing`] without strongSwan, [`LabError::TimedOut`] with the end of its log when
    /// it does not answer, [`LabError::Program`] when it refuses what it is to load.
    pub fn start(namespace: &Namespace, config: StrongSwanConfig) -> Result<Self, LabError> {
        let charon = find("charon-systemd")?;
        // As /proc names it.
        let charon = fs::canonicalize(charon).doing(|| "find charon-systemd".into())?;
        let swanctl = find("swanctl")?;
        let mut config = config;
        config.folder = std::path::absolute(&config.folder).doing(|| "find a folder".into())?;
        prepare(&config)?;
        let mut program = launch(namespace, &config, &charon)?;
        let watch = watch(namespace, program.child().id(), &charon)?;
        let mut daemon = Self { _watch: watch, program, config, swanctl };
        daemon.wait_until_it_answers()?;
        daemon.load()?;
        Ok(daemon)
    }

    /// Other connections instead of those it has; SAs that are there stay.
    ///
    /// # Errors
    /// As [`StrongSwan::start`].
    pub fn reload(&mut self, connections: Vec<Connection>) -> Result<(), LabError> {
        self.config.connections = connections;
        write_private(&self.swanctl_conf(), config::swanctl(&self.config.connections).as_bytes())?;
        self.load()
    }

    /// Makes a tunnel and waits for it.
    ///
    /// # Errors
    /// [`LabError::Program`] with the daemon's reasons.
    pub fn initiate(&self, child: &str, limit: Duration) -> Result<(), LabError> {
        let seconds = limit.as_secs().max(1).to_string();
        let words = ["--initiate", "--child", child, "--timeout", &seconds];
        self.swanctl(&words, limit + ANSWER).map(drop)
    }

    /// Ends a tunnel.
    ///
    /// # Errors
    /// [`LabError::Program`], also when there is none.
    pub fn terminate(&self, child: &str) -> Result<(), LabError> {
        self.swanctl(&["--terminate", "--child", child], ANSWER).map(drop)
    }

    /// Ends a connection with all its tunnels.
    ///
    /// # Errors
    /// [`LabError::Program`], also when there is none.
    pub fn terminate_ike(&self, connection: &str) -> Result<(), LabError> {
        self.swanctl(&["--terminate", "--ike", connection], ANSWER).map(drop)
    }

    /// Has the SAs of a tunnel replaced; does not wait for it.
    ///
    /// # Errors
    /// [`LabError::Program`], also when there are none.
    pub fn rekey(&self, child: &str) -> Result<(), LabError> {
        self.swanctl(&["--rekey", "--child", child], ANSWER).map(drop)
    }

    /// Has an IKE SA replaced; does not wait for it.
    ///
    /// # Errors
    /// [`LabError::Program`], also when there is none.
    pub fn rekey_ike(&self, connection: &str) -> Result<(), LabError> {
        self.swanctl(&["--rekey", "--ike", connection], ANSWER).map(drop)
    }

    /// All SAs, with the counts of those who carry the packets.
    ///
    /// # Errors
    /// [`LabError::Program`] when the daemon does not answer.
    pub fn sas(&self) -> Result<Vec<IkeSa>, LabError> {
        let output = self.swanctl(&["--list-sas", "--pretty"], ANSWER)?;
        Ok(sas::parse(&String::from_utf8_lossy(&output)))
    }

    /// The SAs of a tunnel that packets may use, the newest last.
    ///
    /// # Errors
    /// As [`StrongSwan::sas`].
    pub fn installed(&self, child: &str) -> Result<Vec<ChildSa>, LabError> {
        let all = self.sas()?.into_iter().flat_map(|ike| ike.children);
        let mut found: Vec<_> = all.filter(|sa| sa.name == child && sa.is_installed()).collect();
        found.sort_by_key(|sa| sa.id);
        Ok(found)
    }

    /// Waits until a tunnel can be used, and returns its SAs.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] with the end of the log.
    pub fn wait_installed(&self, child: &str, limit: Duration) -> Result<ChildSa, LabError> {
        self.wait(limit, &format!("tunnel {child}"), |daemon| Ok(daemon.installed(child)?.pop()))
    }

    /// Waits until a tunnel has other SAs than those of a number.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] with the end of the log.
    pub fn wait_rekeyed(
        &self,
        child: &str,
        before: u64,
        limit: Duration,
    ) -> Result<ChildSa, LabError> {
        self.wait(limit, &format!("new SAs of tunnel {child}"), |daemon| {
            Ok(daemon.installed(child)?.pop().filter(|sa| sa.id > before))
        })
    }

    /// Waits until a question has an answer.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] with the end of the log, and the question's own.
    pub fn wait<T>(
        &self,
        limit: Duration,
        what: &str,
        mut question: impl FnMut(&Self) -> Result<Option<T>, LabError>,
    ) -> Result<T, LabError> {
        let begun = Instant::now();
        loop {
            if let Some(answer) = question(self)? {
                return Ok(answer);
            }
            if begun.elapsed() > limit {
                return Err(LabError::TimedOut { what: what.into(), said: self.last_words() });
            }
            thread::sleep(PAUSE);
        }
    }

    /// Its process.
    pub fn process(&mut self) -> u32 {
        self.program.child().id()
    }

    /// Whether it has ended.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn has_ended(&mut self) -> Result<bool, LabError> {
        Ok(self.program.ended()?.is_some())
    }

    /// Its log so far.
    #[must_use]
    pub fn log(&self) -> String {
        let log = fs::read(self.config.folder.join(LOG)).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Ends it in good order: it tells its peers and takes back what it installed.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn stop(self) -> Result<StrongSwanConfig, LabError> {
        self.program.end(END)?;
        Ok(self.config)
    }

    /// Kills it without warning (SIGKILL). What it was can be started again.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn kill(mut self) -> Result<StrongSwanConfig, LabError> {
        let child = self.program.child();
        child.kill().and_then(|()| child.wait()).doing(|| "kill a daemon".into())?;
        Ok(self.config)
    }

    /// Runs any command of `swanctl` and returns what it prints.
    ///
    /// # Errors
    /// [`LabError::Program`] when it fails or takes too long.
    pub fn swanctl(&self, words: &[&str], limit: Duration) -> Result<Vec<u8>, LabError> {
        let mut swanctl = Command::new(&self.swanctl);
        swanctl.args(words).env("STRONGSWAN_CONF", self.config.folder.join("strongswan.conf"));
        command::run(&mut swanctl, limit)
    }

    fn load(&self) -> Result<(), LabError> {
        let file = self.swanctl_conf().display().to_string();
        self.swanctl(&["--load-all", "--clear", "--noprompt", "--file", &file], ANSWER).map(drop)
    }

    fn swanctl_conf(&self) -> PathBuf {
        self.config.folder.join("swanctl.conf")
    }

    fn wait_until_it_answers(&mut self) -> Result<(), LabError> {
        let begun = Instant::now();
        while self.swanctl(&["--stats"], ANSWER).is_err() {
            if self.program.ended()?.is_some() || begun.elapsed() > START {
                let what = "answer of a charon that was started".into();
                return Err(LabError::TimedOut { what, said: self.last_words() });
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// The end of its log, or what it printed if it has none.
    fn last_words(&self) -> String {
        let log = self.log();
        let printed = fs::read(self.config.folder.join(OUTPUT)).unwrap_or_default();
        let printed = String::from_utf8_lossy(&printed);
        let text = if log.is_empty() { printed.as_ref() } else { &log };
        let lines: Vec<_> = text.lines().collect();
        let last = lines.get(lines.len().saturating_sub(15)..).unwrap_or_default();
        format!("{} ends with\n  {}", self.config.folder.display(), last.join("\n  "))
    }
}

/// Writes everything that a daemon reads.
fn prepare(config: &StrongSwanConfig) -> Result<(), LabError> {
    let folder = &config.folder;
    let socket = folder.join(SOCKET);
    if socket.as_os_str().as_bytes().len() >= SOCKET_PATH {
        return Err(LabError::LongPath { path: socket });
    }
    let make = |folder: &Path| {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder)
    };
    make(folder).doing(|| format!("make {}", folder.display()))?;
    // Of an earlier daemon there: its answers must not be taken for this one's.
    let _ = fs::remove_file(&socket);
    for (kind, content) in config::credentials(config.identity.as_ref()) {
        let Some(content) = content else { continue };
        make(&folder.join(kind)).doing(|| format!("make {kind}"))?;
        write_private(&folder.join(kind).join("own.pem"), content)?;
    }
    let daemon = config::strongswan(folder, &config.plane, &config.more);
    write_private(&folder.join("strongswan.conf"), daemon.as_bytes())?;
    let connections = config::swanctl(&config.connections);
    write_private(&folder.join("swanctl.conf"), connections.as_bytes())
}

fn launch(
    namespace: &Namespace,
    config: &StrongSwanConfig,
    charon: &Path,
) -> Result<Program, LabError> {
    let launcher = match &config.plane {
        DataPlane::Libipsec => [].as_slice(),
        DataPlane::Xfrm { launcher } => launcher,
    };
    let mut words = launcher.iter().map(std::ffi::OsString::as_os_str).chain([charon.as_os_str()]);
    let mut command = Command::new(words.next().unwrap_or_default());
    let output = config.folder.join(OUTPUT);
    let output = File::create(&output).doing(|| format!("create {}", output.display()))?;
    let errors = output.try_clone().doing(|| "share a file".into())?;
    command
        .args(words)
        .env("STRONGSWAN_CONF", config.folder.join("strongswan.conf"))
        // It would tell a service manager that is not its own.
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        // Ctrl-C is for the owner, who then ends it.
        .process_group(0);
    Program::start(namespace, &mut command)
}

/// A process that kills the daemon when this one dies without ending it: its standard input ends
/// then.
fn watch(namespace: &Namespace, daemon: u32, charon: &Path) -> Result<Program, LabError> {
    let script = "read -r _; [ \"$(readlink \"/proc/$1/exe\")\" = \"$2\" ] && kill -9 \"$1\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "watch", &daemon.to_string()]).arg(charon);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    Program::start(namespace, &mut command)
}

/// Writes a file for the owner's eyes only.
fn write_private(path: &Path, content: &[u8]) -> Result<(), LabError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(path).and_then(|mut file| file.write_all(content));
    written.doing(|| format!("write {}", path.display()))
}
