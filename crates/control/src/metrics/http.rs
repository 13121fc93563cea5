//! Just enough of HTTP (RFC 9112) to be asked for one page: bounded in size, time and number, so that who
//! misbehaves costs nothing but its own connection.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::acceptor::Acceptor;

/// Connections served at once.
const CONNECTIONS_MAX: usize = 8;
/// Longest head of a request in bytes.
const HEAD_MAX: usize = 8192;
/// Time in which a request must be there, and in which an answer must be taken.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time in which the rest of a request may come when it was answered.
const REST: Duration = Duration::from_millis(200);

/// Why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("metrics cannot be served on {address} ({source}): choose another `listen` in [metrics]")]
pub struct MetricsError {
    address: SocketAddr,
    source: io::Error,
}

impl MetricsError {
    /// What kind of error the kernel gave.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}

/// A page that is being served. Dropping it ends that.
#[derive(Debug)]
pub struct Server {
    local: SocketAddr,
    _acceptor: Acceptor,
}

type Page = dyn Fn() -> String + Send + Sync;

impl Server {
    /// Serves what `page` makes at `/metrics`.
    ///
    /// # Errors
    /// [`MetricsError`].
    pub fn start(
        address: SocketAddr,
        page: impl Fn() -> String + Send + Sync + 'static,
    ) -> Result<Self, MetricsError> {
        let failed = |source| MetricsError { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let acceptor = Acceptor::start("metrics", listener, CONNECTIONS_MAX, move |stream| {
            serve(stream, &page)
        });
        Ok(Self { local, _acceptor: acceptor.map_err(failed)? })
    }

    /// Where it listens.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }
}

/// One connection: one request, one answer.
fn serve(mut stream: TcpStream, page: &Page) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let answer = match read_head(&mut stream)? {
        Some(head) => answer(&head, page),
        None => {
            response("431 Request Header Fields Too Large", "", "the request is too long\n", false)
        }
    };
    stream.write_all(answer.as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)?;
    // What was not read would make the kernel reset the connection and lose the answer.
    stream.set_read_timeout(Some(REST))?;
    let mut rest = [0; 512];
    for _ in 0..64 {
        if stream.read(&mut rest)? == 0 {
            break;
        }
    }
    Ok(())
}

/// Reads up to the empty line behind the head; `None` when it is too long.
fn read_head(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let deadline = Instant::now() + PATIENCE;
    let mut head = Vec::with_capacity(512);
    let mut chunk = [0; 512];
    let is_whole = |head: &[u8]| {
        head.windows(4).any(|four| four == b"\r\n\r\n") || head.windows(2).any(|two| two == b"\n\n")
    };
    while !is_whole(&head) {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let count = stream.read(&mut chunk)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(chunk.get(..count).unwrap_or_default());
        if head.len() > HEAD_MAX {
            return Ok(None);
        }
    }
    Ok(Some(head))
}

fn answer(head: &[u8], page: &Page) -> String {
    let line = head.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let line = std::str::from_utf8(line).unwrap_or_default();
    let mut words = line.split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some("HTTP/1.0" | "HTTP/1.1"), None) =
        (method, target, version, words.next())
    else {
        return response("400 Bad Request", "", "this is no request of HTTP/1\n", false);
    };
    let is_head = match method {
        "GET" => false,
        "HEAD" => true,
        _ => {
            return response(
                "405 Method Not Allowed",
                "Allow: GET, HEAD\r\n",
                "only GET is understood\n",
                false,
            );
        }
    };
    match target.split('?').next() {
        Some("/metrics") => response("200 OK", "", &page(), is_head),
        _ => response("404 Not Found", "", "metrics are at /metrics\n", is_head),
    }
}

fn response(status: &str, more: &str, body: &str, is_head: bool) -> String {
    let shown = if is_head { "" } else { body };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n{more}\r\n{shown}",
        body.len()
    )
}
