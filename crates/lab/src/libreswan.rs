//! Unmodified Libreswan daemons: pluto, unpacked from the distribution's package rather than
//! installed, because packages of IKE daemons exclude one another.
//!
//! As [`crate::strongswan`] does, each daemon has a folder with its configuration, log and control
//! socket. Pluto knows the kernel's XFRM only, so it always has a launcher that leads it elsewhere.

use std::{
    ffi::OsString,
    fmt::Write as _,
    net::IpAddr,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use ipnet::IpNet;

use crate::{
    LabError, Namespace,
    daemon::{self, Daemon, find, write_private},
};

/// The control socket in a daemon's folder.
const SOCKET: &str = "pluto.ctl";
/// File for what it logs and prints.
const OUTPUT: &str = "pluto.log";
/// Folder in which it expects its helpers. Nothing else below that folder's parent is needed.
const HELPERS: &str = "/usr/libexec/ipsec";
/// Puts a folder there, for one process and its children.
const PLACE: &str = "mount -t tmpfs none /usr/libexec && mkdir /usr/libexec/ipsec && \
                     mount --bind \"$1\" /usr/libexec/ipsec && shift && exec \"$@\"";
/// Longest time that a daemon may take until it answers.
const START: Duration = Duration::from_secs(60);
/// Longest time for its farewell to its peers.
const END: Duration = Duration::from_secs(20);
/// Longest time for an answer that waits for no peer.
const ANSWER: Duration = Duration::from_secs(60);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// A connection with a pre-shared key and one tunnel, the daemon's own side first. Texts go into
/// Libreswan's files as they are: no quotes, no line ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conn {
    /// Its name.
    pub name: String,
    /// Addresses of the gateways.
    pub gateways: [IpAddr; 2],
    /// Their identities, such as `left.test`.
    pub ids: [String; 2],
    /// The networks behind them; none for transport mode between the gateways.
    pub networks: Option<[IpNet; 2]>,
    /// Key that both know.
    pub secret: String,
    /// Algorithms of ESP, such as `aes_gcm128` or `aes128-sha2_256`.
    pub esp: String,
    /// ESP in UDP even where there is no NAT.
    pub encap: bool,
    /// Extended sequence numbers.
    pub esn: bool,
    /// Further options, by their names in `ipsec.conf`.
    pub more: Vec<(String, String)>,
}

impl Conn {
    fn text(&self) -> String {
        let mut text = format!("conn {}\n", self.name);
        // Writing to a String does not fail.
        let mut line = |key: &str, value: &str| {
            let _ = writeln!(text, "  {key}={value}");
        };
        for (end, side) in ["left", "right"].into_iter().enumerate() {
            line(side, &self.gateways[end].to_string());
            line(&format!("{side}id"), &format!("@{}", self.ids[end]));
            if let Some(networks) = &self.networks {
                line(&format!("{side}subnet"), &networks[end].to_string());
            }
        }
        let yes = |condition| if condition { "yes" } else { "no" };
        line("authby", "secret");
        line("ikev2", "insist");
        line("ike", "aes128-sha2_256-dh31");
        line("esp", &self.esp);
        line("esn", yes(self.esn));
        line("encapsulation", yes(self.encap));
        line("type", if self.networks.is_some() { "tunnel" } else { "transport" });
        line("mobike", "no");
        if !self.more.iter().any(|(key, _)| key == "leftupdown") {
            // Its own script, `ipsec _updown`, makes routes for a kernel that has ESP.
            line("leftupdown", "/bin/true");
        }
        line("auto", "add");
        for (key, value) in &self.more {
            line(key, value);
        }
        text
    }
}

/// Bytes that an SA has carried, as the daemon tells it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
}

/// A running daemon. Dropping it ends it.
#[derive(Debug)]
pub struct Libreswan {
    process: Daemon,
    folder: PathBuf,
    helpers: PathBuf,
    /// Its connections.
    names: Vec<String>,
}

impl Libreswan {
    /// Starts a daemon in a namespace and loads its connections. `unpacked` holds the package's
    /// files, the launcher is as in [`crate::strongswan::DataPlane::Xfrm`].
    ///
    /// # Errors
    /// [`LabError::Missing`] without pluto or NSS' `certutil`, [`LabError::TimedOut`] with the end of
    /// its log when it does not answer, [`LabError::Program`] when it refuses a connection.
    pub fn start(
        namespace: &Namespace,
        folder: &Path,
        unpacked: &Path,
        launcher: &[OsString],
        conns: &[Conn],
    ) -> Result<Self, LabError> {
        let helpers = unpacked.join(HELPERS.trim_start_matches('/'));
        if !helpers.join("pluto").is_file() {
            return Err(LabError::Missing { program: "pluto".into() });
        }
        prepare(folder, conns)?;
        let place = place(&helpers, launcher);
        let file = |name: &str| folder.join(name).into_os_string();
        let pluto = Path::new(HELPERS).join("pluto").into_os_string();
        let options = ["--nofork", "--stderrlog", "--no-dnssec", "--rundir"].map(OsString::from);
        let folders = [
            ("--config", "ipsec.conf"),
            ("--secretsfile", "ipsec.secrets"),
            ("--nssdir", "nss"),
            ("--ipsecdir", "ipsec.d"),
        ];
        let mut words = vec![pluto];
        words.extend(options.into_iter().chain([folder.into()]));
        words.extend(folders.into_iter().flat_map(|(option, name)| [option.into(), file(name)]));
        let words = words.iter().map(OsString::as_os_str);
        let process = Daemon::start(namespace, &place, words, &[], &folder.join(OUTPUT))?;
        let mut daemon = Self { process, folder: folder.into(), helpers, names: Vec::new() };
        daemon.wait_until_it_answers()?;
        daemon.add_all(namespace, conns)?;
        daemon.whack(&["--listen"], ANSWER)?;
        Ok(daemon)
    }

    /// Other connections instead of those it has; the SAs of those end. Its namespace is where it was
    /// started.
    ///
    /// # Errors
    /// As [`Libreswan::start`].
    pub fn reload(&mut self, namespace: &Namespace, conns: &[Conn]) -> Result<(), LabError> {
        for name in std::mem::take(&mut self.names) {
            self.whack(&["--name", &name, "--delete"], ANSWER)?;
        }
        write(&self.folder, conns)?;
        self.whack(&["--rereadsecrets"], ANSWER)?;
        self.add_all(namespace, conns)
    }

    /// Makes a tunnel and waits for it.
    ///
    /// # Errors
    /// [`LabError::Program`] with the daemon's reasons.
    pub fn initiate(&self, conn: &str, limit: Duration) -> Result<(), LabError> {
        self.whack(&["--name", conn, "--initiate"], limit).map(drop)
    }

    /// Has the SAs of a tunnel replaced, and waits for it.
    ///
    /// # Errors
    /// [`LabError::Program`] with the daemon's reasons.
    pub fn rekey(&self, conn: &str, limit: Duration) -> Result<(), LabError> {
        self.whack(&["--name", conn, "--rekey-ipsec"], limit).map(drop)
    }

    /// Has packets make a tunnel (its policies are there from now on), as `auto=ondemand` does.
    ///
    /// # Errors
    /// [`LabError::Program`].
    pub fn route(&self, conn: &str) -> Result<(), LabError> {
        self.whack(&["--name", conn, "--route"], ANSWER).map(drop)
    }

    /// Ends a connection with its tunnel.
    ///
    /// # Errors
    /// [`LabError::Program`].
    pub fn terminate(&self, conn: &str) -> Result<(), LabError> {
        self.whack(&["--name", conn, "--terminate"], ANSWER).map(drop)
    }

    /// Bytes that the SAs of a connection have carried; none when it has none.
    ///
    /// # Errors
    /// [`LabError::Program`] when the daemon does not answer.
    pub fn traffic(&self, conn: &str) -> Result<Option<Traffic>, LabError> {
        let said = self.whack(&["--trafficstatus"], ANSWER)?;
        Ok(traffic(&String::from_utf8_lossy(&said), conn))
    }

    /// Its log so far.
    #[must_use]
    pub fn log(&self) -> String {
        daemon::read(&self.folder.join(OUTPUT))
    }

    /// Ends it in good order.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn stop(self) -> Result<(), LabError> {
        self.process.end(END)
    }

    /// Kills it without warning (SIGKILL).
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn kill(self) -> Result<(), LabError> {
        self.process.kill()
    }

    fn add_all(&mut self, namespace: &Namespace, conns: &[Conn]) -> Result<(), LabError> {
        for conn in conns {
            self.add(namespace, &conn.name)?;
            self.names.push(conn.name.clone());
        }
        Ok(())
    }

    fn add(&self, namespace: &Namespace, conn: &str) -> Result<(), LabError> {
        // Whether an address is its own it asks the kernel, so it has to be there.
        let mut words = place(&self.helpers, &[]);
        let addconn = Path::new(HELPERS).join("addconn").into_os_string();
        let control = self.folder.join(SOCKET).into_os_string();
        let config = self.folder.join("ipsec.conf").into_os_string();
        words.extend([
            addconn,
            "--config".into(),
            config,
            "--ctlsocket".into(),
            control,
            conn.into(),
        ]);
        let mut words = words.iter();
        let mut command =
            Command::new(words.next().map_or_else(Default::default, OsString::as_os_str));
        command.args(words);
        namespace.run(|| daemon::run(&mut command, ANSWER))?.map(drop)
    }

    fn whack(&self, words: &[&str], limit: Duration) -> Result<Vec<u8>, LabError> {
        let mut whack = Command::new(self.helpers.join("whack"));
        whack.arg("--ctlsocket").arg(self.folder.join(SOCKET)).args(words);
        daemon::run(&mut whack, limit)
    }

    fn wait_until_it_answers(&mut self) -> Result<(), LabError> {
        let begun = Instant::now();
        while self.whack(&["--briefstatus"], ANSWER).is_err() {
            if self.process.program().ended()?.is_some() || begun.elapsed() > START {
                let what = "answer of a pluto that was started".into();
                let said = daemon::last_words(&[self.folder.join(OUTPUT)]);
                return Err(LabError::TimedOut { what, said });
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }
}

/// Words before a command that finds its helpers where they were compiled to be.
fn place(helpers: &Path, launcher: &[OsString]) -> Vec<OsString> {
    let mut words: Vec<OsString> =
        ["unshare", "--mount", "sh", "-c", PLACE, "place"].map(OsString::from).to_vec();
    words.push(helpers.into());
    words.extend_from_slice(launcher);
    words
}

/// Writes everything that a daemon reads.
fn prepare(folder: &Path, conns: &[Conn]) -> Result<(), LabError> {
    for part in ["", "nss", "ipsec.d"] {
        daemon::make_folder(&folder.join(part))?;
    }
    daemon::make_way(&folder.join(SOCKET))?;
    write(folder, conns)?;
    let nss = folder.join("nss");
    if nss.join("cert9.db").exists() {
        return Ok(());
    }
    let mut certutil = Command::new(find("certutil")?);
    certutil.args(["-N", "--empty-password", "-d"]).arg(format!("sql:{}", nss.display()));
    daemon::run(&mut certutil, ANSWER).map(drop)
}

/// Writes its connections and their keys.
fn write(folder: &Path, conns: &[Conn]) -> Result<(), LabError> {
    let mut text = String::from("config setup\n");
    let mut secrets = String::new();
    for conn in conns {
        text.push_str(&conn.text());
        let [own, peer] = &conn.ids;
        let _ = writeln!(secrets, "@{own} @{peer} : PSK \"{}\"", conn.secret);
    }
    write_private(&folder.join("ipsec.conf"), text.as_bytes())?;
    write_private(&folder.join("ipsec.secrets"), secrets.as_bytes())
}

/// The line of a connection in what `whack --trafficstatus` says.
fn traffic(said: &str, conn: &str) -> Option<Traffic> {
    let name = format!("\"{conn}\"");
    // The newest SA of a connection comes last.
    let line = said.lines().rfind(|line| line.contains(&name))?;
    let count = |key: &str| -> Option<u64> {
        line.split(", ").find_map(|item| item.strip_prefix(key))?.parse().ok()
    };
    Some(Traffic { bytes_in: count("inBytes=")?, bytes_out: count("outBytes=")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_read_from_the_newest_line_of_a_connection() {
        let said = "006 #2: \"net\", type=ESP, add_time=1, inBytes=1, outBytes=2, id='@b.test'\n\
                    006 #4: \"net\", type=ESP, add_time=9, inBytes=420, outBytes=0, id='@b.test'\n\
                    006 #3: \"other\", type=ESP, add_time=1, inBytes=7, outBytes=7, id='@c.test'\n";
        let of = |conn: &str| traffic(said, conn);
        assert_eq!(of("net"), Some(Traffic { bytes_in: 420, bytes_out: 0 }));
        assert_eq!(of("ne"), None);
        assert_eq!(traffic("006 #2: \"net\", type=ESP\n", "net"), None);
    }
}
