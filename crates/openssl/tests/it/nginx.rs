//! nginx as the distribution has it, serving through Convoy.

use std::{
    fs,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use convoy_openssl::stats::{Counter, Counts};

use crate::common::{Running, Setup, has, noise, plain, run, until};

/// A server of the files in its folder, on UNIX sockets, with two workers. That of `wide` writes eight
/// records at once. What is encrypted is not authenticated afterwards, but before.
pub(crate) struct Nginx {
    pub(crate) setup: Setup,
    running: Running,
}

impl Nginx {
    pub(crate) fn start(uses_convoy: bool) -> Self {
        let setup = Setup::new();
        setup.certify();
        fs::write(setup.path("nginx.conf"), conf(&setup, "daemon off;\n")).unwrap();
        let mut command = if uses_convoy { setup.command("nginx") } else { plain("nginx") };
        command.arg("-p").arg(setup.folder()).args(["-e", "error.log", "-c", "nginx.conf"]);
        let mut running = Running(command.current_dir(setup.folder()).spawn().unwrap());
        until("nginx listens", || {
            let ended = running.0.try_wait().unwrap();
            let log = || fs::read_to_string(setup.path("error.log")).unwrap_or_default();
            assert!(ended.is_none(), "nginx ended: {}", log());
            std::os::unix::net::UnixStream::connect(setup.path("socket")).is_ok()
        });
        Self { setup, running }
    }

    fn fetch(&self, curl: Command, name: &str, what: &[&str]) {
        fetch(&self.setup, "socket", curl, name, what);
    }
}

/// A server's configuration, with `front` in front.
pub(crate) fn conf(setup: &Setup, front: &str) -> String {
    let folder = setup.folder().display();
    let temps: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {folder}/{kind};\n"))
        .concat();
    let server = format!(
        "server_name localhost;\nroot {folder};\n\
         ssl_certificate cert.pem;\nssl_certificate_key key.pem;\n\
         ssl_protocols TLSv1.2 TLSv1.3;\nssl_ciphers ALL:@SECLEVEL=1;\n\
         ssl_conf_command Options -EncryptThenMac;\n"
    );
    format!(
        "{front}worker_processes 2;\npid {folder}/nginx.pid;\n{user}\n\
         error_log {folder}/error.log warn;\nevents {{ worker_connections 64; }}\n\
         http {{\naccess_log off;\nkeepalive_timeout 0;\n{temps}\
         server {{\nlisten unix:{folder}/socket ssl;\n{server}}}\n\
         server {{\nlisten unix:{folder}/wide ssl;\nssl_buffer_size 128k;\n{server}}}\n}}\n",
        user = if is_root() { "user root;" } else { "" },
    )
}

/// Fetches a file with curl from the server on a socket in a folder, and compares it.
pub(crate) fn fetch(setup: &Setup, socket: &str, mut curl: Command, name: &str, what: &[&str]) {
    let whole = fs::read(setup.path(name)).unwrap();
    curl.args(["--silent", "--show-error", "--fail", "--cacert"]).arg(setup.path("cert.pem"));
    curl.arg("--unix-socket").arg(setup.path(socket));
    curl.args(what).arg(format!("https://localhost/{name}"));
    let output = run(&mut curl);
    assert!(output.stdout == whole, "{what:?}: {} bytes differ", output.stdout.len());
}

/// Workers outlive a master that is killed, so it is asked to end.
impl Drop for Nginx {
    fn drop(&mut self) {
        let master = &mut self.running.0;
        let asked = plain("kill").arg(master.id().to_string()).status();
        let is_asked = asked.is_ok_and(|status| status.success());
        let end = Instant::now() + Duration::from_secs(10);
        while is_asked && Instant::now() < end && matches!(master.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0)
}

/// Ways to speak TLS, as curl is told them, and what counts records of them.
pub(crate) const WAYS: [(&[&str], Counter, Counter); 7] = [
    (
        &["--tls-max", "1.2", "--ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256"],
        Counter::RecordsSealed,
        Counter::RecordsOpened,
    ),
    (
        &["--tls-max", "1.2", "--ciphers", "ECDHE-ECDSA-AES256-GCM-SHA384"],
        Counter::RecordsSealed,
        Counter::RecordsOpened,
    ),
    (
        &["--tlsv1.3", "--tls13-ciphers", "TLS_AES_128_GCM_SHA256"],
        Counter::MessagesSealed,
        Counter::MessagesOpened,
    ),
    (
        &["--tlsv1.3", "--tls13-ciphers", "TLS_AES_256_GCM_SHA384"],
        Counter::MessagesSealed,
        Counter::MessagesOpened,
    ),
    (
        &["--tls-max", "1.2", "--ciphers", "ECDHE-ECDSA-AES128-SHA"],
        Counter::CbcRecordsSealed,
        Counter::CbcRecordsOpened,
    ),
    (
        &["--tls-max", "1.2", "--ciphers", "ECDHE-ECDSA-AES256-SHA"],
        Counter::CbcRecordsSealed,
        Counter::CbcRecordsOpened,
    ),
    (
        &["--tls-max", "1.2", "--ciphers", "ECDHE-ECDSA-AES128-SHA256"],
        Counter::CbcRecordsSealed,
        Counter::CbcRecordsOpened,
    ),
];

/// A megabyte is 64 records of 16 KiB.
pub(crate) const MEGABYTE: usize = 1 << 20;

/// The processes that a process started.
pub(crate) fn children(parent: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let names = processes.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_child = |name: &String| {
        let status = fs::read_to_string(format!("/proc/{name}/stat")).unwrap_or_default();
        // Behind the program's name, which may hold anything: state, parent.
        let behind = status.rsplit_once(')').map_or("", |(_, behind)| behind);
        behind.split_whitespace().nth(1) == Some(parent)
    };
    names.filter(is_child).collect()
}

fn delta(before: &Counts, after: &Counts, counter: Counter) -> u64 {
    after.get(counter) - before.get(counter)
}

#[test]
fn nginx_serves_through_convoy_over_tls_1_2_and_1_3() {
    if !has(&["nginx", "curl"]) {
        return;
    }
    let nginx = Nginx::start(true);
    fs::write(nginx.setup.path("file"), noise(MEGABYTE)).unwrap();
    fs::write(nginx.setup.path("small"), "small").unwrap();
    for (what, sealed, opened) in WAYS {
        let before = nginx.setup.counts();
        nginx.fetch(plain("curl"), "file", what);
        nginx.fetch(plain("curl"), "small", what);
        let after = nginx.setup.counts();
        assert!(delta(&before, &after, sealed) >= 65, "{what:?}:\n{before}\n{after}");
        assert!(delta(&before, &after, opened) >= 2, "{what:?}:\n{before}\n{after}");
        assert_eq!(delta(&before, &after, Counter::Forged), 0, "{what:?}");
    }
    // Several at once, on both workers.
    thread::scope(|scope| {
        for i in 0..8 {
            let nginx = &nginx;
            scope.spawn(move || nginx.fetch(plain("curl"), "file", WAYS[i % WAYS.len()].0));
        }
    });
    assert_eq!(nginx.setup.count(Counter::Loaded), 1, "workers inherit what the master loaded");
    let log = fs::read_to_string(nginx.setup.path("error.log")).unwrap();
    assert_eq!(log, "");
}

#[test]
fn nginx_writes_eight_records_of_cbc_at_once_through_convoy() {
    if !has(&["nginx", "curl"]) {
        return;
    }
    let nginx = Nginx::start(true);
    fs::write(nginx.setup.path("file"), noise(4 * MEGABYTE)).unwrap();
    for (what, ..) in WAYS.iter().filter(|(_, sealed, _)| *sealed == Counter::CbcRecordsSealed) {
        let before = nginx.setup.counts();
        fetch(&nginx.setup, "wide", plain("curl"), "file", what);
        let after = nginx.setup.counts();
        // A buffer of 128 KiB is eight records of 15,872 bytes, and one of what is left.
        let calls = delta(&before, &after, Counter::Multiblocks);
        assert!(calls >= 31, "{what:?}:\n{before}\n{after}");
        let records = delta(&before, &after, Counter::CbcRecordsSealed);
        assert!(records >= 8 * calls + 32, "{what:?}:\n{before}\n{after}");
    }
}

#[test]
fn nginx_goes_on_through_convoy_when_it_is_reloaded() {
    if !has(&["nginx", "curl"]) {
        return;
    }
    let mut nginx = Nginx::start(true);
    fs::write(nginx.setup.path("file"), noise(MEGABYTE)).unwrap();
    for round in 1..=3 {
        let master = nginx.running.0.id().to_string();
        let workers = || children(&master);
        let before = workers();
        run(plain("kill").args(["-HUP", &master]));
        until("new workers", || {
            let now = workers();
            !now.is_empty() && !now.iter().any(|worker| before.contains(worker))
        });
        let sealed = nginx.setup.count(Counter::RecordsSealed);
        nginx.fetch(plain("curl"), "file", WAYS[0].0);
        assert!(nginx.setup.count(Counter::RecordsSealed) >= sealed + 64, "after reload {round}");
        assert!(nginx.running.0.try_wait().unwrap().is_none());
    }
}

#[test]
fn curl_reads_through_convoy_from_a_server_without_it() {
    if !has(&["nginx", "curl"]) {
        return;
    }
    let nginx = Nginx::start(false);
    fs::write(nginx.setup.path("file"), noise(MEGABYTE)).unwrap();
    for (what, _, opened) in WAYS {
        // The first makes the file of counters.
        nginx.fetch(nginx.setup.command("curl"), "file", what);
        let before = nginx.setup.counts();
        nginx.fetch(nginx.setup.command("curl"), "file", what);
        let after = nginx.setup.counts();
        assert!(delta(&before, &after, opened) >= 64, "{what:?}:\n{before}\n{after}");
        assert_eq!(delta(&before, &after, Counter::Loaded), 1, "{what:?}");
    }
}
