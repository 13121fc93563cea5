//! One connection of a load process: handshake, request, and what comes back.

use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;

use super::job::{Cipher, Job};
use super::records::{Counter, Overhead};
use crate::peer::libssl::{self, Progress, Version};

/// Buffers that one connection may fill before others have their turn.
const TURNS: usize = 4;
/// Longest header of a response, and what tickets of sessions may add to it, bytes.
const HEADER_MAX: usize = 4096;
/// A record of TLS 1.3 below this size is taken for a ticket, not for the first of a file.
const TICKET_MAX: usize = 1024;

/// Reasons of failed connections; texts without numbers, as failures are counted by them.
const CLOSED: &str = "closed in the middle of the file";
const TOO_MUCH: &str = "more came than the file has";

/// Settings that connections of one run share.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    request: Vec<u8>,
    size: u64,
    cipher: Cipher,
    overhead: Overhead,
}

impl Setting {
    pub(super) fn of(job: &Job) -> Self {
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: */*\r\n\r\n",
            job.path
        );
        Self {
            request: request.into_bytes(),
            size: job.size,
            overhead: job.cipher.overhead(),
            cipher: job.cipher.clone(),
        }
    }
}

/// Event on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// It is there.
    Connected,
    /// The handshake is over, with this cipher.
    Agreed(String),
    /// The file begins.
    FirstByte,
    /// So many bytes of the file came.
    Bytes(u64),
}

/// Progress of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    Handshake,
    Request,
    Response,
}

/// A connection, and what it has seen.
#[derive(Debug)]
pub(super) struct Connection {
    tls: libssl::Connection,
    verify: bool,
    stage: Stage,
    wants_write: bool,
    /// The header of the response, until it is whole; of a connection that is decrypted.
    header: Option<Vec<u8>>,
    counter: Counter,
    /// Bytes of the file, and of text altogether.
    bytes: u64,
    text: u64,
    has_first_byte: bool,
    records: u64,
    encrypt_then_mac: Option<bool>,
}

impl Connection {
    pub(super) fn new(tls: libssl::Connection, verify: bool) -> Self {
        Self {
            tls,
            verify,
            stage: Stage::Connecting,
            wants_write: true,
            header: Some(Vec::new()),
            counter: Counter::default(),
            bytes: 0,
            text: 0,
            has_first_byte: false,
            records: 0,
            encrypt_then_mac: None,
        }
    }

    /// True if what comes is decrypted and compared.
    pub(super) const fn is_verified(&self) -> bool {
        self.verify
    }

    pub(super) const fn is_connected(&self) -> bool {
        !matches!(self.stage, Stage::Connecting)
    }

    pub(super) const fn has_first_byte(&self) -> bool {
        self.has_first_byte
    }

    /// True if it goes on when the socket can be written, not read.
    pub(super) const fn wants_write(&self) -> bool {
        self.wants_write
    }

    /// Records since the last call.
    pub(super) fn take_records(&mut self) -> u64 {
        std::mem::take(&mut self.records)
    }

    /// True if the server uses encrypt-then-MAC, if that can be seen.
    pub(super) const fn encrypt_then_mac(&self) -> Option<bool> {
        self.encrypt_then_mac
    }

    /// Goes on as far as the socket allows, and tells `tell` what happens; true when the file has come whole.
    ///
    /// # Errors
    /// Reason for which the connection has failed.
    pub(super) fn go_on(
        &mut self,
        setting: &Setting,
        buffer: &mut [u8],
        socket: &TcpStream,
        mut tell: impl FnMut(Moment),
    ) -> Result<bool, String> {
        if self.stage == Stage::Connecting {
            if let Some(error) = socket.take_error().ok().flatten() {
                return Err(format!("connect: {error}"));
            }
            tell(Moment::Connected);
            self.stage = Stage::Handshake;
        }
        if self.stage == Stage::Handshake {
            if !self.step(|tls| tls.handshake())? {
                return Ok(false);
            }
            let cipher = self.tls.cipher().unwrap_or_default();
            if cipher != setting.cipher.name {
                return Err(format!("the server chose {cipher}, not {}", setting.cipher.name));
            }
            tell(Moment::Agreed(cipher));
            self.stage = Stage::Request;
        }
        if self.stage == Stage::Request {
            if !self.step(|tls| tls.write(&setting.request))? {
                return Ok(false);
            }
            self.stage = Stage::Response;
        }
        self.wants_write = false;
        match self.verify {
            true => self.decrypt(setting, buffer, tell),
            false => self.count(setting, buffer, socket, tell),
        }
    }

    /// A step of TLS that is done, or waits.
    fn step(
        &mut self,
        mut step: impl FnMut(&mut libssl::Connection) -> Result<Progress, libssl::ClientError>,
    ) -> Result<bool, String> {
        match step(&mut self.tls).map_err(|error| error.to_string())? {
            Progress::Done(_) => Ok(true),
            Progress::WantRead => {
                self.wants_write = false;
                Ok(false)
            }
            Progress::WantWrite => {
                self.wants_write = true;
                Ok(false)
            }
            Progress::Closed => Err("the server closed the connection".to_owned()),
        }
    }

    /// Decrypts what came, and compares it.
    fn decrypt(
        &mut self,
        setting: &Setting,
        buffer: &mut [u8],
        mut tell: impl FnMut(Moment),
    ) -> Result<bool, String> {
        let turns = TURNS * buffer.len() / (16 << 10);
        for _ in 0..turns.max(1) {
            let read = self.tls.read(buffer);
            match read.map_err(|error| format!("in the middle of the file: {error}"))? {
                // One record at most.
                Progress::Done(len) => {
                    self.records += 1;
                    let text = buffer.get(..len).unwrap_or_default();
                    self.take_text(setting, text, &mut tell)?;
                    if self.header.is_none() && self.bytes == setting.size {
                        return Ok(true);
                    }
                }
                Progress::WantRead | Progress::WantWrite => return Ok(false),
                Progress::Closed => return Err(CLOSED.to_owned()),
            }
        }
        Ok(false)
    }

    fn take_text(
        &mut self,
        setting: &Setting,
        text: &[u8],
        tell: &mut impl FnMut(Moment),
    ) -> Result<(), String> {
        let mut body = text;
        if let Some(header) = &mut self.header {
            let before = header.len();
            header.extend_from_slice(text);
            let Some(end) = header.windows(4).position(|four| four == b"\r\n\r\n") else {
                return match header.len() > HEADER_MAX {
                    true => Err("the response has no end of its header".to_owned()),
                    false => Ok(()),
                };
            };
            check_header(&header[..end], setting.size)?;
            body = &text[end + 4 - before..];
            self.header = None;
        }
        if body.is_empty() {
            return Ok(());
        }
        if !self.has_first_byte {
            self.has_first_byte = true;
            tell(Moment::FirstByte);
        }
        if body.iter().any(|byte| *byte != 0) {
            return Err("the file is not what it should be".to_owned());
        }
        self.bytes += body.len() as u64;
        if self.bytes > setting.size {
            return Err(TOO_MUCH.to_owned());
        }
        tell(Moment::Bytes(body.len() as u64));
        Ok(())
    }

    /// Counts the records that came.
    fn count(
        &mut self,
        setting: &Setting,
        buffer: &mut [u8],
        mut socket: &TcpStream,
        mut tell: impl FnMut(Moment),
    ) -> Result<bool, String> {
        for _ in 0..TURNS {
            let len = match socket.read(buffer) {
                Ok(0) => return self.end_of_count(setting, tell),
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(format!("read: {error}")),
            };
            let (mut counter, mut text, mut first) = (self.counter, 0, false);
            let came = buffer.get(..len).unwrap_or_default();
            counter
                .take(came, |len| {
                    text += setting.overhead.text(len) as u64;
                    first |= setting.cipher.version == Version::Tls12 || len >= TICKET_MAX;
                    if let Overhead::Cbc(20) = setting.overhead {
                        // 20 bytes of MAC stand behind whole blocks, or are part of them.
                        self.encrypt_then_mac = Some(!len.is_multiple_of(16));
                    }
                })
                .map_err(|error| error.to_string())?;
            self.records += counter.records - self.counter.records;
            self.counter = counter;
            if first && !self.has_first_byte {
                self.has_first_byte = true;
                tell(Moment::FirstByte);
            }
            self.text += text;
            // What is beyond the file is the header.
            let bytes = self.text.min(setting.size);
            tell(Moment::Bytes(bytes - self.bytes));
            self.bytes = bytes;
        }
        Ok(false)
    }

    fn end_of_count(
        &mut self,
        setting: &Setting,
        mut tell: impl FnMut(Moment),
    ) -> Result<bool, String> {
        // Padding is hidden: a record's text may be 8 bytes longer or shorter than it was taken for.
        let hidden = match setting.overhead {
            Overhead::Fixed(_) => 0,
            Overhead::Cbc(_) => 8 * self.counter.records,
        };
        if !self.counter.is_whole() || self.text + hidden < setting.size {
            return Err(CLOSED.to_owned());
        }
        if self.text > setting.size + hidden + HEADER_MAX as u64 {
            return Err(TOO_MUCH.to_owned());
        }
        tell(Moment::Bytes(setting.size - self.bytes));
        self.bytes = setting.size;
        Ok(true)
    }
}

/// Checks that a response promises the file.
fn check_header(header: &[u8], size: u64) -> Result<(), String> {
    let header = String::from_utf8_lossy(header);
    let mut lines = header.lines();
    let status = lines.next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(format!("the server answered {status:?}"));
    }
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<u64>())
    });
    match length {
        Some(Ok(length)) if length == size => Ok(()),
        Some(Ok(length)) => Err(format!("the file has {length} bytes, not {size}")),
        _ => Err("the response has no length".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_must_promise_the_file() {
        let check = |text: &str| check_header(text.as_bytes(), 100);
        assert_eq!(check("HTTP/1.1 200 OK\r\nServer: x\r\ncontent-length: 100"), Ok(()));
        for (header, said) in [
            ("HTTP/1.1 404 Not Found\r\nContent-Length: 100", "404 Not Found"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 99", "99 bytes, not 100"),
            ("HTTP/1.1 200 OK\r\nContent-Length: many", "no length"),
            ("HTTP/1.1 200 OK\r\nServer: x", "no length"),
            ("", "answered \"\""),
        ] {
            let error = check(header).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
