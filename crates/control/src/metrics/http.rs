//! Just enough of HTTP (RFC 9112) to be asked for one page: bounded in size, time and number, so that who
//! misbehaves costs nothing but its own connection. However many ask, one page is made at a time and served to
//! all who ask within a second.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::acceptor::{Acceptor, Work, write_until};

/// Connections served at once.
const CONNECTIONS_MAX: usize = 8;
/// Longest head of a request in bytes.
const HEAD_MAX: usize = 8192;
/// Time in which a request must be there.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time in which the whole of an answer must be taken.
const TAKING: Duration = Duration::from_secs(10);
/// Time that a page is kept.
const KEPT: Duration = Duration::from_secs(1);
/// Time in which the rest of a request may come when it was answered.
const REST: Duration = Duration::from_millis(200);

/// Error of metrics that cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("metrics cannot be served on {address} ({source}): choose another `listen` in [metrics]")]
pub struct MetricsError {
    address: SocketAddr,
    source: io::Error,
}

impl MetricsError {
    /// Kind of the kernel's error.
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

/// The page that was made last, and who makes the next.
struct Pages<F> {
    make: F,
    kept: Mutex<Option<(Instant, Arc<str>)>>,
}

impl<F: Fn() -> String> Pages<F> {
    /// A page that was made within a second. Who asks while one is made waits for it.
    fn get(&self) -> Arc<str> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some((made, page)) if made.elapsed() < KEPT => page.clone(),
            _ => {
                // Not two of them in memory, as far as nobody reads the old one any more.
                *kept = None;
                let page: Arc<str> = (self.make)().into();
                *kept = Some((Instant::now(), page.clone()));
                page
            }
        }
    }
}

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
        let pages = Pages { make: page, kept: Mutex::new(None) };
        let acceptor =
            Acceptor::start("metrics", listener, CONNECTIONS_MAX, move |stream, work| {
                serve(stream, work, &|| pages.get())
            });
        Ok(Self { local, _acceptor: acceptor.map_err(failed)? })
    }

    /// Address on which it listens.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }
}

/// One connection: one request, one answer.
fn serve(mut stream: &TcpStream, work: &Work<'_>, page: &dyn Fn() -> Arc<str>) -> io::Result<()> {
    let Answer { head, body } = match read_head(stream)? {
        Some(head) => work.of(|| answer(&head, page)),
        None => {
            let status = "431 Request Header Fields Too Large";
            Answer::new(status, "", "the request is too long\n".into())
        }
    };
    let deadline = Instant::now() + TAKING;
    write_until(stream, head.as_bytes(), deadline)?;
    write_until(stream, body.as_bytes(), deadline)?;
    stream.shutdown(std::net::Shutdown::Write)?;
    work.answered();
    // What was not read would make the kernel reset the connection and lose the answer.
    let deadline = Instant::now() + REST;
    let mut rest = [0; 512];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        stream.set_read_timeout(Some(left))?;
        if stream.read(&mut rest)? == 0 {
            return Ok(());
        }
    }
}

/// Reads up to the empty line behind the head; `None` when it is too long.
fn read_head(mut stream: &TcpStream) -> io::Result<Option<Vec<u8>>> {
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

fn answer(head: &[u8], page: &dyn Fn() -> Arc<str>) -> Answer {
    let line = head.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let line = std::str::from_utf8(line).unwrap_or_default();
    let mut words = line.split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some("HTTP/1.0" | "HTTP/1.1"), None) =
        (method, target, version, words.next())
    else {
        return Answer::new("400 Bad Request", "", "this is no request of HTTP/1\n".into());
    };
    let is_page = target.split('?').next() == Some("/metrics");
    match (method, is_page) {
        ("GET", true) => Answer::new("200 OK", "", page()),
        ("GET", false) => Answer::new("404 Not Found", "", "metrics are at /metrics\n".into()),
        // No page is made for its length.
        ("HEAD", true) => Answer::without_body("200 OK"),
        ("HEAD", false) => Answer::without_body("404 Not Found"),
        _ => {
            let allow = "Allow: GET, HEAD\r\n";
            Answer::new("405 Method Not Allowed", allow, "only GET is understood\n".into())
        }
    }
}

/// Head and body that are sent.
struct Answer {
    head: String,
    body: Arc<str>,
}

impl Answer {
    /// `more` are lines of the head.
    fn new(status: &str, more: &str, body: Arc<str>) -> Self {
        let more = format!("Content-Length: {}\r\n{more}", body.len());
        Self { head: head(status, &more), body }
    }

    fn without_body(status: &str) -> Self {
        Self { head: head(status, ""), body: "".into() }
    }
}

fn head(status: &str, more: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Connection: close\r\n{more}\r\n"
    )
}
