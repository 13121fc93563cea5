//! nginx as the distribution has it, with a port for each way to serve.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::job::Cipher;
use crate::peer::libssl::Version;

/// Time in which nginx must begin, and end.
const PATIENCE: Duration = Duration::from_secs(20);
/// Connections that a worker may have, as in the study.
pub const WORKER_CONNECTIONS: usize = 8192;

/// The key of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Certificate {
    /// RSA of 2,048 bits.
    Rsa,
    /// ECDSA with the curve P-256.
    Ecdsa,
}

impl Certificate {
    const fn name(self) -> &'static str {
        match self {
            Self::Rsa => "rsa",
            Self::Ecdsa => "ecdsa",
        }
    }
}

/// A way to serve files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsConfig {
    /// The cipher.
    pub cipher: Cipher,
    /// The certificate.
    pub certificate: Certificate,
    /// `ssl_buffer_size`, KiB.
    pub buffer_kib: usize,
}

impl TlsConfig {
    /// A short name.
    #[must_use]
    pub fn name(&self) -> String {
        let mut name = self.cipher.name.clone();
        if self.cipher.is_cbc() && self.cipher.encrypt_then_mac {
            name += ", EtM";
        }
        if self.certificate == Certificate::Ecdsa {
            name += ", ECDSA";
        }
        let _ = write!(name, ", {}k", self.buffer_kib);
        name
    }
}

/// nginx does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// A program is not there, or cannot be started.
    #[error("{program} cannot be started: {error}; {mend}")]
    Start {
        /// Name of the program.
        program: String,
        /// The system's error.
        error: io::Error,
        /// Advice.
        mend: &'static str,
    },
    /// It ended, or does not listen.
    #[error("nginx does not serve: {0}")]
    Nginx(String),
    /// OpenSSL's program did not make a certificate.
    #[error("no certificate could be made: {0}")]
    Certificate(String),
    /// A file of the server could not be made.
    #[error("{}: {error}", path.display())]
    File {
        /// File that could not be made.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The kernel does not tell what a process spent.
    #[error("the processor time of nginx is not known: {0}")]
    Time(nix::Error),
}

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// The program.
    pub program: &'a Path,
    /// A folder for its files, with certificates and what is served.
    pub site: &'a Site,
    /// A name, for the folder of this server.
    pub name: &'a str,
    /// Variables of its environment.
    pub environment: &'a [(String, String)],
    /// The processors of its workers, one each.
    pub cpus: &'a [usize],
    /// Configurations that it serves with.
    pub ways: &'a [TlsConfig],
}

/// A folder with certificates and files of zeros.
#[derive(Debug)]
pub struct Site {
    folder: PathBuf,
    address: IpAddr,
}

impl Site {
    /// Makes certificates of both kinds in `folder`. What is there will be served on `address`.
    ///
    /// # Errors
    /// [`ServerError`] when there is no `openssl` to make them.
    pub fn new(folder: &Path, address: IpAddr) -> Result<Self, ServerError> {
        let site = Self { folder: folder.to_owned(), address };
        let config = "[req]\ndistinguished_name = name\nx509_extensions = more\n[name]\n[more]\n\
                      subjectAltName = DNS:localhost\n";
        let path = folder.join("req.cnf");
        fs::write(&path, config).map_err(|error| ServerError::File { path, error })?;
        for (kind, key) in [
            (Certificate::Rsa, &["rsa:2048"][..]),
            (Certificate::Ecdsa, &["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]),
        ] {
            let name = kind.name();
            let mut command = Command::new("openssl");
            command.args(["req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
            command.args(["-config", "req.cnf", "-keyout", &format!("{name}.key")]);
            command.args(["-out", &format!("{name}.pem"), "-newkey"]).args(key);
            command.current_dir(folder).env("OPENSSL_CONF", "/dev/null").stdin(Stdio::null());
            let output = command.output().map_err(|error| ServerError::Start {
                program: "openssl".to_owned(),
                error,
                mend: "install it (Debian and Ubuntu: apt install openssl)",
            })?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr);
                return Err(ServerError::Certificate(said.trim().to_owned()));
            }
        }
        Ok(site)
    }

    /// Makes a file of `size` zeros that takes no room where the file system can do so, and gives its path on
    /// the server.
    ///
    /// # Errors
    /// [`ServerError::File`].
    pub fn file(&self, size: u64) -> Result<String, ServerError> {
        let path = self.folder.join(format!("{size}.bin"));
        let made = File::create(&path).and_then(|file| file.set_len(size));
        made.map_err(|error| ServerError::File { path, error })?;
        Ok(format!("/{size}.bin"))
    }
}

/// nginx at work. It ends when this goes.
#[derive(Debug)]
pub struct Nginx {
    master: Child,
    address: IpAddr,
    ports: Vec<u16>,
    workers: Vec<Pid>,
    log: PathBuf,
}

impl Nginx {
    /// Starts nginx with one worker on each of the processors, and waits until it listens.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start(setup: &Setup<'_>) -> Result<Self, ServerError> {
        let folder = setup.site.folder.join(setup.name);
        let conf = folder.join("nginx.conf");
        let ports = free_ports(setup.site.address, setup.ways.len())
            .map_err(|error| ServerError::Nginx(format!("no port is free: {error}")))?;
        fs::create_dir_all(&folder)
            .and_then(|()| fs::write(&conf, configuration(setup, &folder, &ports)))
            .map_err(|error| ServerError::File { path: conf.clone(), error })?;
        let log = folder.join("error.log");
        let mut command = Command::new(setup.program);
        command.arg("-p").arg(&folder).args(["-e", "error.log", "-c"]).arg(&conf);
        command.envs(setup.environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(&folder).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null());
        // Ctrl-C reaches the whole group of the bench, which ends nginx itself when a run is over.
        command.process_group(0);
        let master = command.spawn().map_err(|error| ServerError::Start {
            program: setup.program.display().to_string(),
            error,
            mend: "install nginx (Debian and Ubuntu: apt install nginx-light), or name it with --nginx",
        })?;
        let mut nginx =
            Self { master, address: setup.site.address, ports, workers: Vec::new(), log };
        nginx.wait(setup.cpus.len())?;
        Ok(nginx)
    }

    /// Waits until it listens and has its workers.
    fn wait(&mut self, workers: usize) -> Result<(), ServerError> {
        let begun = Instant::now();
        loop {
            let has_ended = self.master.try_wait().is_ok_and(|status| status.is_some());
            if has_ended || begun.elapsed() > PATIENCE {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                let what = if has_ended { "it ended" } else { "it does not listen" };
                return Err(ServerError::Nginx(format!("{what}: {}", log.trim())));
            }
            let listens = self.ports.iter().all(|port| {
                let address = SocketAddr::from((self.address, *port));
                TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
            });
            self.workers = children(self.master.id());
            if listens && self.workers.len() == workers {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Address at which the way with this number is served: `address:port`.
    #[must_use]
    pub fn address(&self, way: usize) -> String {
        let port = self.ports.get(way).copied().unwrap_or_default();
        SocketAddr::from((self.address, port)).to_string()
    }

    /// Processor time of all workers since they began, seconds.
    ///
    /// # Errors
    /// [`ServerError::Time`] when a worker has gone.
    pub fn cpu_seconds(&self) -> Result<f64, ServerError> {
        let mut sum = 0.0;
        for worker in &self.workers {
            let clock: ClockId = clock_getcpuclockid(*worker).map_err(ServerError::Time)?;
            let time = clock_gettime(clock).map_err(ServerError::Time)?;
            sum += time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9;
        }
        Ok(sum)
    }
}

/// Workers outlive a master that is killed, so it is asked to end.
impl Drop for Nginx {
    fn drop(&mut self) {
        let master = Pid::from_raw(self.master.id() as i32);
        let begun = Instant::now();
        let _ = kill(master, Signal::SIGTERM);
        while begun.elapsed() < PATIENCE && matches!(self.master.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.master.kill();
        let _ = self.master.wait();
    }
}

fn configuration(setup: &Setup<'_>, folder: &Path, ports: &[u16]) -> String {
    let affinity: Vec<_> = setup.cpus.iter().map(|cpu| format!("1{}", "0".repeat(*cpu))).collect();
    let temps: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path {}/{kind};\n", folder.display()))
        .concat();
    let user = if nix::unistd::geteuid().is_root() { "user root;\n" } else { "" };
    let mut text = format!(
        "daemon off;\n{user}worker_processes {};\nworker_cpu_affinity {};\n\
         worker_rlimit_nofile {};\npid {}/nginx.pid;\nerror_log {}/error.log warn;\n\
         events {{\n    worker_connections {WORKER_CONNECTIONS};\n    multi_accept on;\n}}\n\
         http {{\n    access_log off;\n    keepalive_timeout 0;\n{temps}",
        setup.cpus.len(),
        affinity.join(" "),
        2 * WORKER_CONNECTIONS + 64,
        folder.display(),
        folder.display(),
    );
    for (way, port) in setup.ways.iter().zip(ports) {
        let site = setup.site.folder.display();
        let (cipher, certificate) = (&way.cipher, way.certificate.name());
        let (version, suites) = match cipher.version {
            Version::Tls12 => ("TLSv1.2", format!("ssl_ciphers {}", cipher.name)),
            Version::Tls13 => ("TLSv1.3", format!("ssl_conf_command Ciphersuites {}", cipher.name)),
        };
        let more = match cipher.is_cbc() && !cipher.encrypt_then_mac {
            true => "        ssl_conf_command Options -EncryptThenMac;\n",
            false => "",
        };
        let _ = write!(
            text,
            "    server {{\n        listen {} ssl backlog={WORKER_CONNECTIONS};\n        \
             root {site};\n        ssl_certificate {site}/{certificate}.pem;\n        \
             ssl_certificate_key {site}/{certificate}.key;\n        ssl_protocols {version};\n        \
             {suites};\n{more}        ssl_session_cache off;\n        ssl_session_tickets off;\n        \
             ssl_buffer_size {}k;\n    }}\n",
            SocketAddr::from((setup.site.address, *port)),
            way.buffer_kib
        );
    }
    text + "}\n"
}

/// Ports that nobody uses.
fn free_ports(address: IpAddr, many: usize) -> io::Result<Vec<u16>> {
    let listeners: Vec<_> =
        (0..many).map(|_| TcpListener::bind((address, 0))).collect::<Result<_, _>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// The processes that a process started.
fn children(parent: u32) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_child = |number: &i32| {
        let status = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        // Behind the program's name, which may hold anything: state, parent.
        let behind = status.rsplit_once(')').map_or("", |(_, behind)| behind);
        behind.split_whitespace().nth(1) == Some(parent.to_string().as_str())
    };
    numbers.filter(is_child).map(Pid::from_raw).collect()
}
