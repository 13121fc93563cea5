//! A TLS server that does with each connection what a script says.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use convoy_bench::tls::server::Site;

/// Treatment of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// The file is sent.
    Serve,
    /// It is sent after a while.
    Late(Duration),
    /// No handshake, and no word.
    Ignore,
    /// The request is read, and nothing is said.
    Stall,
    /// Half of the file is sent, then the connection is cut.
    Cut,
    /// More is sent than was promised.
    TooMuch,
    /// The header promises a byte less.
    Lie,
    /// There is no such file.
    NotFound,
    /// Something is said that is no TLS.
    Garble,
    /// A byte of the file is wrong.
    Wrong,
}

/// A server that does one deed of the list with each connection, and the last one with all that follow.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Server {
    /// `None`, and it is said, where there is no `openssl` to make a certificate.
    pub(crate) fn start(size: usize, deeds: Vec<Deed>) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        if let Err(error) = Site::new(folder.path(), Ipv4Addr::LOCALHOST.into()) {
            println!("SKIPPED: {error}");
            return None;
        }
        let certificate = CertificateDer::from_pem_file(folder.path().join("rsa.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(folder.path().join("rsa.key")).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        // It ends with the process.
        thread::spawn(move || {
            let last = *deeds.last().unwrap();
            for (deed, stream) in
                deeds.into_iter().chain(std::iter::repeat(last)).zip(listener.incoming())
            {
                let config = config.clone();
                thread::spawn(move || answer(deed, stream.unwrap(), config, size));
            }
        });
        Some(Self { address, _folder: folder })
    }
}

fn answer(deed: Deed, mut stream: TcpStream, config: Arc<ServerConfig>, size: usize) -> Option<()> {
    match deed {
        Deed::Ignore => return hold(stream),
        Deed::Garble => return stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").ok(),
        _ => {}
    }
    let connection = ServerConnection::new(config).unwrap();
    let mut tls = StreamOwned::new(connection, stream);
    let mut request = [0; 1024];
    if tls.read(&mut request).ok()? == 0 {
        return None;
    }
    let (mut status, mut promised, mut body) = ("200 OK", size, vec![0; size]);
    match deed {
        Deed::Stall => return hold(tls.sock),
        Deed::Late(delay) => thread::sleep(delay),
        Deed::Cut => body.truncate(size / 2),
        Deed::TooMuch => body.extend([0; 20_000]),
        Deed::Lie => promised -= 1,
        Deed::NotFound => status = "404 Not Found",
        Deed::Wrong => body[size / 3] = 1,
        Deed::Serve | Deed::Ignore | Deed::Garble => {}
    }
    let header = format!("HTTP/1.1 {status}\r\nContent-Length: {promised}\r\n\r\n");
    tls.write_all(header.as_bytes()).ok()?;
    tls.write_all(&body).ok()?;
    if deed != Deed::Cut {
        tls.conn.send_close_notify();
    }
    tls.flush().ok()?;
    tls.sock.shutdown(Shutdown::Write).ok()?;
    // Until the client has gone, so that nothing it sends resets what is still under way.
    while tls.sock.read(&mut request).ok()? > 0 {}
    None
}

/// Until the client goes.
fn hold(mut stream: TcpStream) -> Option<()> {
    let mut some = [0; 1024];
    while stream.read(&mut some).ok()? > 0 {}
    None
}
