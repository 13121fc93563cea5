//! A folder with a configuration that loads the provider, and programs that run under it.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use convoy_crypto::Cpu;
use convoy_openssl::{
    PROVIDER, offer,
    stats::{Counter, Counts},
};
use tempfile::TempDir;

/// The library, as cargo built it for these tests.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libconvoy_openssl.so");
    assert!(library.exists(), "{} is not there", library.display());
    library
}

/// A configuration, and what counts under it. Every cipher is offered, whatever this processor has.
pub(crate) struct Setup {
    folder: TempDir,
    /// Features of the processor that its programs must not use.
    denied: Option<&'static str>,
}

/// Line of the configuration that has every cipher offered.
const OFFERS_ALL: &str = "offer = all\n";

impl Setup {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let setup = Self { folder, denied: None };
        let text = format!(
            "openssl_conf = start\n[start]\nproviders = providers\nalg_section = algorithms\n\
             [providers]\ndefault = own\n{PROVIDER} = convoy\n[own]\nactivate = 1\n\
             [convoy]\nmodule = {}\nactivate = 1\n{OFFERS_ALL}stats = {}\n\
             [algorithms]\ndefault_properties = ?provider={PROVIDER}\n",
            library().display(),
            setup.stats().display()
        );
        fs::write(setup.conf(), text).unwrap();
        setup
    }

    /// Has the configuration say something else of what is offered: `value`, or nothing.
    pub(crate) fn offer(&self, value: Option<&str>) {
        let line = value.map(|value| format!("{} = {value}\n", offer::KEY)).unwrap_or_default();
        let conf = fs::read_to_string(self.conf()).unwrap();
        assert!(conf.contains(OFFERS_ALL), "{conf}");
        fs::write(self.conf(), conf.replace(OFFERS_ALL, &line)).unwrap();
    }

    /// Has programs do without some of what the processor has.
    pub(crate) fn deny(&mut self, list: &'static str) {
        self.denied = Some(list);
    }

    /// Has another file count.
    pub(crate) fn count_in(&self, name: &str) {
        let conf = fs::read_to_string(self.conf()).unwrap();
        let (old, new) = (self.stats(), self.path(name));
        let conf = conf.replace(&*old.to_string_lossy(), &new.to_string_lossy());
        fs::write(self.conf(), conf).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn conf(&self) -> PathBuf {
        self.path("openssl.cnf")
    }

    fn stats(&self) -> PathBuf {
        self.path("stats")
    }

    /// Counters so far.
    pub(crate) fn counts(&self) -> Counts {
        Counts::read(&self.stats()).unwrap()
    }

    pub(crate) fn count(&self, counter: Counter) -> u64 {
        self.counts().get(counter)
    }

    /// A program that uses Convoy.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = plain(program);
        command.env("OPENSSL_CONF", self.conf()).current_dir(self.folder());
        command.envs(self.denied.map(|list| (Cpu::DENY_VARIABLE, list)));
        command
    }

    /// A program that compares Convoy with OpenSSL's own, and so reads what may differ.
    pub(crate) fn comparing(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command(program);
        let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("differences.md");
        command.env("DIFFERENCES", list);
        command
    }

    /// A program of this folder that uses OpenSSL as it is.
    pub(crate) fn plain_command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = plain(program);
        command.current_dir(self.folder());
        command
    }

    /// Compiles a program of `tests/evp`; `None` without a compiler, or libcrypto's headers.
    pub(crate) fn compile(&self, name: &str) -> Option<PathBuf> {
        self.compile_with(name, &[])
    }

    /// The same with more flags.
    pub(crate) fn compile_with(&self, name: &str, flags: &[&str]) -> Option<PathBuf> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/evp").join(name);
        let header = self.path("header.c");
        fs::write(&header, "#include <openssl/evp.h>\nint main(void) { return 0; }\n").unwrap();
        let build = |source: &Path, program: &Path| {
            let mut command = Command::new("cc");
            command.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]);
            command.arg(program).args(flags).arg(source).args(["-lssl", "-lcrypto"]).output()
        };
        let probe = match build(&header, &self.path("header")) {
            Ok(output) => output,
            Err(error) => {
                println!("SKIPPED: no C compiler: {error}");
                return None;
            }
        };
        if !probe.status.success() {
            println!("SKIPPED: no headers of OpenSSL 3 (libssl-dev)");
            return None;
        }
        let program = self.path(name.trim_end_matches(".c"));
        let output = build(&source, &program).unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        Some(program)
    }

    /// Has TLS of Convoy's side authenticate before it encrypts, which is what composites are for.
    pub(crate) fn macs_before_it_encrypts(&self) {
        let conf = fs::read_to_string(self.conf()).unwrap();
        let conf = conf.replace("[start]\n", "[start]\nssl_conf = ssl\n");
        let tls = "[ssl]\nsystem_default = tls\n[tls]\nOptions = -EncryptThenMac\n";
        fs::write(self.conf(), conf + tls).unwrap();
    }

    /// Makes a key and a certificate for `localhost`: `key.pem`, `cert.pem`.
    pub(crate) fn certify(&self) {
        self.certify_with(&["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    }

    /// The same with a key of another kind.
    pub(crate) fn certify_with(&self, key: &[&str]) {
        let mut command = self.command("openssl");
        command.args(["req", "-x509", "-newkey"]).args(key);
        command.args(["-nodes", "-days", "2", "-subj", "/CN=localhost", "-config", "req.cnf"]);
        command.args(["-keyout", "key.pem", "-out", "cert.pem"]);
        let config = "[req]\ndistinguished_name = name\n[name]\n";
        fs::write(self.path("req.cnf"), config).unwrap();
        run(command.env_remove("OPENSSL_CONF"));
    }
}

/// A program that uses the machine's own OpenSSL as it is.
pub(crate) fn plain(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("OPENSSL_CONF", "/dev/null");
    command.env_remove("CONVOY_PROVIDER_STATS").env_remove(offer::VARIABLE);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// True if there is an OpenSSL 3 here, and the programs named; says what is missing.
pub(crate) fn has(programs: &[&str]) -> bool {
    let Ok(version) = plain("openssl").arg("version").output() else {
        println!("SKIPPED: openssl is not installed");
        return false;
    };
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    if !version.starts_with("OpenSSL 3") {
        println!("SKIPPED: providers need OpenSSL 3, this is {}", version.trim());
        return false;
    }
    for program in programs {
        if plain(program).arg("-V").output().is_err() {
            println!("SKIPPED: {program} is not installed");
            return false;
        }
    }
    true
}

/// Runs a program that must succeed.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{command:?}: {}\n{text}{errors}", output.status);
    output
}

/// A program that ends with its test, however that ends.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Bytes that repeat nowhere near.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}
