//! HAProxy as the distribution has it: it decrypts what clients send through Convoy, and encrypts it again to
//! a server.

use std::{fs, os::unix::net::UnixStream, thread};

use convoy_openssl::stats::Counter;

use crate::{
    common::{Running, Setup, has, noise, plain, run, until},
    nginx::{MEGABYTE, Nginx, fetch},
};

/// HAProxy with two threads, on a UNIX socket, before a server.
fn start(setup: &Setup, server: &Nginx) -> Running {
    let socket = server.setup.path("socket");
    let ca = server.setup.path("cert.pem");
    let backend = format!(
        "default_backend servers\nbackend servers\n    server nginx unix@{} ssl verify required ca-file {} \
         sni str(localhost)\n",
        socket.display(),
        ca.display(),
    );
    start_with(setup, "", &backend)
}

/// The same with more for the process, and the end of the configuration, which begins among what is for clients.
fn start_with(setup: &Setup, global: &str, rest: &str) -> Running {
    let folder = setup.folder().display();
    let pem = ["cert.pem", "key.pem"].map(|name| fs::read(setup.path(name)).unwrap()).concat();
    fs::write(setup.path("both.pem"), pem).unwrap();
    let conf = format!(
        "global\n    nbthread 2\n    maxconn 64\n    ssl-default-bind-options ssl-min-ver TLSv1.2\n{global}\
         defaults\n    mode http\n    timeout connect 10s\n    timeout client 30s\n    timeout server 30s\n\
         frontend clients\n    bind unix@{folder}/socket ssl crt {folder}/both.pem\n    {rest}"
    );
    fs::write(setup.path("haproxy.cfg"), conf).unwrap();
    let mut command = setup.command("haproxy");
    let mut running = Running(command.args(["-db", "-q", "-f", "haproxy.cfg"]).spawn().unwrap());
    until("HAProxy listens", || {
        assert!(running.0.try_wait().unwrap().is_none(), "HAProxy ended");
        UnixStream::connect(setup.path("socket")).is_ok()
    });
    running
}

#[test]
fn haproxy_decrypts_and_encrypts_through_convoy() {
    if !has(&["haproxy", "nginx", "curl"]) {
        return;
    }
    let server = Nginx::start(false);
    fs::write(server.setup.path("file"), noise(MEGABYTE)).unwrap();
    let setup = Setup::new();
    setup.certify();
    setup.macs_before_it_encrypts();
    fs::copy(server.setup.path("file"), setup.path("file")).unwrap();
    let _running = start(&setup, &server);
    for (what, sealed, opened) in crate::nginx::WAYS {
        let before = setup.counts();
        fetch(&setup, "socket", plain("curl"), "file", what);
        let after = setup.counts();
        let delta = |counter| after.get(counter) - before.get(counter);
        assert!(delta(sealed) >= 64, "{what:?}:\n{before}\n{after}");
        assert!(delta(opened) >= 1, "{what:?}:\n{before}\n{after}");
        // The server chooses TLS 1.3, and AES-256-GCM of it.
        assert!(delta(Counter::MessagesOpened) >= 64, "{what:?}:\n{before}\n{after}");
        assert_eq!(delta(Counter::Forged), 0, "{what:?}");
    }
    thread::scope(|scope| {
        for i in 0..8 {
            let (setup, ways) = (&setup, crate::nginx::WAYS);
            scope.spawn(move || {
                fetch(setup, "socket", plain("curl"), "file", ways[i % ways.len()].0)
            });
        }
    });
}

/// In that mode HAProxy has libssl called in jobs of 32 KiB of stack.
#[test]
fn haproxy_outlives_forging_clients_in_asynchronous_mode() {
    if !has(&["haproxy", "curl"]) {
        return;
    }
    let setup = Setup::new();
    setup.certify();
    let Some(forger) = setup.compile("forger.c") else { return };
    let answer = "http-request return status 200 content-type text/plain string yes\n";
    let mut running = start_with(&setup, "    ssl-mode-async\n", answer);
    run(setup.plain_command(forger).args(["socket", "5"]));
    assert!(running.0.try_wait().unwrap().is_none(), "HAProxy ended");
    assert!(setup.count(Counter::Forged) >= 5);
    let mut curl = setup.plain_command("curl");
    curl.args(["-s", "--cacert", "cert.pem", "--unix-socket", "socket", "https://localhost/"]);
    assert_eq!(run(&mut curl).stdout, b"yes");
}
