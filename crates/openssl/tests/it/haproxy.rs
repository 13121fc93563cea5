//! HAProxy as the distribution has it: it decrypts what clients send through Convoy, and encrypts it again to
//! a server.

use std::{fs, os::unix::net::UnixStream, thread};

use convoy_openssl::stats::Counter;

use crate::{
    common::{Running, Setup, has, noise, plain, until},
    nginx::{MEGABYTE, Nginx, fetch},
};

/// HAProxy with two threads, on a UNIX socket, before a server.
fn start(setup: &Setup, server: &Nginx) -> Running {
    let folder = setup.folder().display();
    let pem = ["cert.pem", "key.pem"].map(|name| fs::read(setup.path(name)).unwrap()).concat();
    fs::write(setup.path("both.pem"), pem).unwrap();
    let conf = format!(
        "global\n    nbthread 2\n    maxconn 64\n    ssl-default-bind-options ssl-min-ver TLSv1.2\n\
         defaults\n    mode http\n    timeout connect 10s\n    timeout client 30s\n    timeout server 30s\n\
         frontend clients\n    bind unix@{folder}/socket ssl crt {folder}/both.pem\n    default_backend servers\n\
         backend servers\n    server nginx unix@{socket} ssl verify required ca-file {ca} sni str(localhost)\n",
        socket = server.setup.path("socket").display(),
        ca = server.setup.path("cert.pem").display(),
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
