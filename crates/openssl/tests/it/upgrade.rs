//! nginx's program is replaced while it serves (`SIGUSR2`): the new one must find the provider, too.

use std::{
    env, fs,
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread,
};

use convoy_openssl::stats::Counter;

use crate::{
    common::{Setup, has, noise, plain, run, until},
    nginx::{MEGABYTE, WAYS, children, conf, fetch},
};

/// A server on its own: only such a one replaces itself.
struct Daemon {
    setup: Setup,
}

impl Daemon {
    fn start() -> Self {
        let setup = Setup::new();
        setup.certify();
        // Without this line the new program would not see where the configuration is.
        let conf = conf(&setup, "env OPENSSL_CONF;\n");
        fs::write(setup.path("nginx.conf"), conf).unwrap();
        // It starts its successor by the name that it was started by, which is not looked for.
        let mut command = setup.command(path_of("nginx"));
        command.arg("-p").arg(setup.folder()).args(["-e", "error.log", "-c", "nginx.conf"]);
        run(&mut command);
        let daemon = Self { setup };
        until("nginx has written its number", || daemon.master("nginx.pid").is_some());
        daemon
    }

    /// The process that a file names.
    fn master(&self, file: &str) -> Option<String> {
        let number = fs::read_to_string(self.setup.path(file)).ok()?;
        Some(number.trim().to_owned()).filter(|number| !number.is_empty())
    }

    fn tell(&self, signal: &str, master: &str) {
        run(plain("kill").args([signal, master]));
    }

    fn lives(master: &str) -> bool {
        fs::exists(format!("/proc/{master}")).unwrap_or(true)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        for file in ["nginx.pid.oldbin", "nginx.pid"] {
            if let Some(master) = self.master(file) {
                let _ = plain("kill").arg(master).output();
            }
        }
    }
}

/// Path of a program.
fn path_of(program: &str) -> PathBuf {
    let folders = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&folders).map(|folder| folder.join(program));
    places.into_iter().find(|place| place.is_file()).unwrap_or_else(|| program.into())
}

#[test]
fn nginx_is_replaced_under_load_and_loses_nothing() {
    if !has(&["nginx", "curl"]) {
        return;
    }
    let daemon = Daemon::start();
    let setup = &daemon.setup;
    fs::write(setup.path("file"), noise(MEGABYTE)).unwrap();
    let (ends, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for way in 0..3 {
            let (ends, served) = (&ends, &served);
            scope.spawn(move || {
                while !ends.load(Relaxed) {
                    // One that fails is the end of the test.
                    fetch(setup, "socket", plain("curl"), "file", WAYS[way % WAYS.len()].0);
                    served.fetch_add(1, Relaxed);
                }
            });
        }
        let ends_well = std::panic::catch_unwind(|| {
            for _ in 0..3 {
                let enough = served.load(Relaxed) + 5;
                until("it serves", || served.load(Relaxed) >= enough);
                let loaded = setup.count(Counter::Loaded);
                let old = daemon.master("nginx.pid").unwrap();
                daemon.tell("-USR2", &old);
                until("a new program runs", || {
                    let new = daemon.master("nginx.pid").filter(|new| *new != old);
                    new.is_some_and(|new| children(&new).len() >= 2)
                });
                assert!(setup.count(Counter::Loaded) > loaded, "the new program has the provider");
                daemon.tell("-QUIT", &old);
                until("the old program ends", || !Daemon::lives(&old));
                let sealed = setup.count(Counter::RecordsSealed);
                let enough = served.load(Relaxed) + 6;
                until("the new program serves", || served.load(Relaxed) >= enough);
                assert!(setup.count(Counter::RecordsSealed) > sealed + 64);
            }
        });
        ends.store(true, Relaxed);
        if let Err(panic) = ends_well {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(served.load(Relaxed) >= 33, "{served:?}");
}
