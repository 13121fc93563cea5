//! The other end is OpenSSL's own program.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustls::{Stream, SupportedCipherSuite, version::TLS13};

use crate::common::{Identity, Side, assert_same, is_rsa, noise, plain, suites, version};

const TEXT: usize = 300_000;

/// A program that ends with its test, however that ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Options that leave OpenSSL one version and one suite.
fn options(suite: SupportedCipherSuite) -> Vec<String> {
    // TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256 to OpenSSL.
    let name = format!("{:?}", suite.suite());
    let options = if version(suite) == &TLS13 {
        ["-tls1_3", "-ciphersuites", &name.replace("TLS13_", "TLS_")].map(str::to_owned)
    } else {
        let name = name.replace("TLS_", "").replace("_WITH", "").replace("AES_", "AES");
        let name = name.replace("POLY1305_SHA256", "POLY1305");
        let name = name.replace('_', "-");
        ["-tls1_2", "-cipher", &name].map(str::to_owned)
    };
    options.into()
}

#[test]
fn openssl_gets_a_file_and_gives_it_back() {
    for_each(|identity, suite| {
        let socket = identity.path("server.sock");
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let text = noise(TEXT);
        let mut client = plain();
        client.args([
            "s_client",
            "-quiet",
            "-verify_quiet",
            "-servername",
            "localhost",
            "-verify_return_error",
        ]);
        client.args(options(suite)).arg("-CAfile").arg(identity.path("cert.pem"));
        client.arg("-unix").arg(&socket).stdin(Stdio::piped()).stderr(Stdio::inherit());
        let mut client = Running(client.spawn().unwrap());
        let mut input = client.0.stdin.take().unwrap();
        let mut output = client.0.stdout.take().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| input.write_all(&text).unwrap());
            let got = scope.spawn(|| {
                let mut got = Vec::new();
                output.read_to_end(&mut got).unwrap();
                got
            });
            let mut connection = identity.server(Side::Convoy, suite);
            let mut socket = listener.accept().unwrap().0;
            let mut tls = Stream::new(&mut connection, &mut socket);
            let mut up = vec![0; TEXT];
            tls.read_exact(&mut up).unwrap();
            assert_same(&up, &text, (suite, "up"));
            tls.write_all(&up).unwrap();
            tls.conn.send_close_notify();
            tls.flush().unwrap();
            drop(socket);
            assert_same(&got.join().unwrap(), &text, (suite, "down"));
        });
    });
}

#[test]
fn openssl_serves_a_file() {
    for_each(|identity, suite| {
        let socket = identity.path("client.sock");
        let _ = fs::remove_file(&socket);
        let text = noise(TEXT);
        fs::write(identity.path("file"), &text).unwrap();
        let mut server = plain();
        server.args(["s_server", "-quiet", "-HTTP", "-naccept", "1", "-cert", "cert.pem"]);
        server.args(["-key", "key.pem"]).args(options(suite)).arg("-unix").arg(&socket);
        server.current_dir(identity.folder()).stderr(Stdio::inherit());
        let _server = Running(server.spawn().unwrap());
        let begin = Instant::now();
        let mut stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(error) => assert!(begin.elapsed() < Duration::from_secs(30), "{error}"),
            }
            thread::sleep(Duration::from_millis(10));
        };
        let mut connection = identity.client(Side::Convoy, suite);
        let mut tls = Stream::new(&mut connection, &mut stream);
        // With -HTTP the file has its own header, which is none here.
        tls.write_all(b"GET /file HTTP/1.0\r\n\r\n").unwrap();
        let mut got = Vec::new();
        tls.read_to_end(&mut got).unwrap();
        assert_same(&got, &text, suite);
    });
}

fn for_each(test: impl Fn(&Identity, SupportedCipherSuite)) {
    let (Some(ec), Some(rsa)) = (Identity::new(false), Identity::new(true)) else { return };
    for suite in suites() {
        test(if is_rsa(suite) { &rsa } else { &ec }, suite);
    }
}
