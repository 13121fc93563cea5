//! Unmodified strongSwan daemons: charon, as the distribution ships it, told what to do through its
//! own files and `swanctl`.
//!
//! Each has a folder with its configuration, credentials, log and control socket, so that many run
//! beside each other, one per network namespace. [`DataPlane`] says what carries their packets.
//! Dropping a [`StrongSwan`] ends its daemon, and so does the end of the process that started it.

mod config;
mod credentials;
mod sas;

use std::{
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

pub use config::{Auth, Child, Connection, DataPlane, Mode, StartAction};
pub use credentials::{Identity, identities};
pub use sas::{ChildSa, IkeSa};

use crate::{
    LabError, Namespace,
    daemon::{self, Daemon, find, write_private},
    error::Doing as _,
};

/// The control socket in a daemon's folder.
const SOCKET: &str = "vici.sock";
/// Its log there.
const LOG: &str = "charon.log";
/// File for what it prints.
const OUTPUT: &str = "charon.out";
/// Longest time that a daemon may take until it answers.
const START: Duration = Duration::from_secs(60);
/// Longest time for its farewell to its peers.
const END: Duration = Duration::from_secs(20);
/// Longest time for an answer that waits for no peer.
const ANSWER: Duration = Duration::from_secs(60);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Programs of strongSwan that the laboratory uses, and the packages of Debian and Ubuntu that have them.
const PROGRAMS: [(&str, &str); 3] = [
    ("charon-systemd", "charon-systemd"),
    ("swanctl", "strongswan-swanctl"),
    ("pki", "strongswan-pki"),
];
/// Folders in which distributions put the plugins.
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

/// A daemon to be started.
#[derive(Debug, Clone)]
pub struct StrongSwanConfig {
    /// Its folder, which is made if it is not there. Its path is short enough for a UNIX socket.
    pub folder: PathBuf,
    /// Carries its packets.
    pub plane: DataPlane,
    /// Its connections.
    pub connections: Vec<Connection>,
    /// Its key and certificate.
    pub identity: Option<Identity>,
    /// It may install routes, as it does unless it is told not to.
    pub own_routes: bool,
    /// Further options of the daemon, by their names in `strongswan.conf`.
    pub more: Vec<(String, String)>,
}

impl StrongSwanConfig {
    /// A daemon without connections. It installs routes, but where it speaks to a kernel.
    #[must_use]
    pub fn new(folder: &Path, plane: DataPlane) -> Self {
        Self {
            folder: folder.into(),
            own_routes: plane != DataPlane::Xfrm { launcher: Vec::new() },
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
    process: Daemon,
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
        let swanctl = find("swanctl")?;
        let mut config = config;
        config.folder = std::path::absolute(&config.folder).doing(|| "find a folder".into())?;
        prepare(&config)?;
        let launcher = match &config.plane {
            DataPlane::Libipsec => [].as_slice(),
            DataPlane::Xfrm { launcher } => launcher,
        };
        let variables = [("STRONGSWAN_CONF", config.folder.join("strongswan.conf"))];
        let output = config.folder.join(OUTPUT);
        let command = [charon.as_os_str()];
        let process = Daemon::start(namespace, launcher, command, &variables, &output)?;
        let mut daemon = Self { process, config, swanctl };
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
        self.process.program().child().id()
    }

    /// True if it has ended.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn has_ended(&mut self) -> Result<bool, LabError> {
        Ok(self.process.program().ended()?.is_some())
    }

    /// Its log so far.
    #[must_use]
    pub fn log(&self) -> String {
        daemon::read(&self.config.folder.join(LOG))
    }

    /// Ends it in good order: it tells its peers and takes back what it installed.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn stop(self) -> Result<StrongSwanConfig, LabError> {
        self.process.end(END)?;
        Ok(self.config)
    }

    /// Kills it without warning (SIGKILL). What it was can be started again.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn kill(self) -> Result<StrongSwanConfig, LabError> {
        self.process.kill()?;
        Ok(self.config)
    }

    /// Runs any command of `swanctl` and returns what it prints.
    ///
    /// # Errors
    /// [`LabError::Program`] when it fails or takes too long.
    pub fn swanctl(&self, words: &[&str], limit: Duration) -> Result<Vec<u8>, LabError> {
        let mut swanctl = Command::new(&self.swanctl);
        swanctl.args(words).env("STRONGSWAN_CONF", self.config.folder.join("strongswan.conf"));
        daemon::run(&mut swanctl, limit)
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
            if self.process.program().ended()?.is_some() || begun.elapsed() > START {
                let what = "answer of a charon that was started".into();
                return Err(LabError::TimedOut { what, said: self.last_words() });
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn last_words(&self) -> String {
        daemon::last_words(&[LOG, OUTPUT].map(|file| self.config.folder.join(file)))
    }
}

/// Writes everything that a daemon reads.
fn prepare(config: &StrongSwanConfig) -> Result<(), LabError> {
    let folder = &config.folder;
    daemon::make_folder(folder)?;
    daemon::make_way(&folder.join(SOCKET))?;
    for (kind, content) in config::credentials(config.identity.as_ref()) {
        let Some(content) = content else { continue };
        daemon::make_folder(&folder.join(kind))?;
        write_private(&folder.join(kind).join("own.pem"), content)?;
    }
    let daemon = config::strongswan(config);
    write_private(&folder.join("strongswan.conf"), daemon.as_bytes())?;
    let connections = config::swanctl(&config.connections);
    write_private(&folder.join("swanctl.conf"), connections.as_bytes())
}
