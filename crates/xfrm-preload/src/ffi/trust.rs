//! Trust in the server: one of root or of this process's own user is talked to, and nobody else.
//!
//! Whoever may make files in the socket's folder can listen there while the gateway is away. What a daemon
//! says there are keys, and what it hands over are its sockets.

use std::ffi::{c_int, c_uint};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::{path, system};

/// Room for what people are told: a path and three numbers among words.
const TEXT_MAX: usize = 512;
/// True if people were told of the server that is there now.
static IS_TOLD: AtomicBool = AtomicBool::new(false);
/// Device and inode of standard error at the library's load: a daemon may put anything else in its place.
static STANDARD_ERROR: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Notes what standard error is.
pub(super) fn note_standard_error() {
    let [device, inode] = system::identity(libc::STDERR_FILENO).unwrap_or_default();
    STANDARD_ERROR[0].store(device, Relaxed);
    STANDARD_ERROR[1].store(inode, Relaxed);
}

/// True if the process at the other end of a connection may hear what this one says. If not, people are told,
/// once until another one serves.
pub(super) fn may_hear(server: c_int) -> bool {
    let own = system::effective_user();
    let peer = system::peer(server);
    let is_right = peer.is_ok_and(|peer| is_right(peer.uid, own));
    if is_right {
        IS_TOLD.store(false, Relaxed);
    } else if !IS_TOLD.swap(true, Relaxed) {
        let mut room = [0; TEXT_MAX];
        let text =
            describe(&mut room, path::of_server(), peer.ok().map(|peer| (peer.pid, peer.uid)), own);
        system::uncancelled(|| tell(text));
    }
    is_right
}

const fn is_right(server: c_uint, own: c_uint) -> bool {
    server == 0 || server == own
}

/// The text, which ends with a zero behind its line feed.
fn describe<'a>(
    room: &'a mut [u8; TEXT_MAX],
    path: &[u8],
    server: Option<(c_int, c_uint)>,
    own: c_uint,
) -> &'a [u8] {
    let len = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
    // The last two bytes stay for the line feed and the zero.
    let mut rest = &mut room[..TEXT_MAX - 2];
    let _ = rest.write_all(b"libconvoy_xfrm: ");
    let _ = rest.write_all(&path[..len]);
    let _ = match server {
        Some((process, user)) => {
            write!(
                rest,
                ": served by process {process} of user {user}, who is neither root nor user {own}"
            )
        }
        None => write!(rest, ": nobody can tell who serves there"),
    };
    let _ = write!(
        rest,
        ": it is told nothing, as if there were no gateway; right is one of root or of user {own}"
    );
    let left = rest.len();
    let end = TEXT_MAX - 2 - left;
    room[end..=end + 1].copy_from_slice(b"\n\0");
    &room[..=end + 1]
}

/// Tells people: on standard error where that is what it was at first, else in the system's log.
fn tell(text: &[u8]) {
    let noted = [STANDARD_ERROR[0].load(Relaxed), STANDARD_ERROR[1].load(Relaxed)];
    let is_same = system::identity(libc::STDERR_FILENO) == Some(noted);
    if !is_same || !system::write_at_once(libc::STDERR_FILENO, &text[..text.len() - 1]) {
        system::log(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_the_own_user_may_serve() {
        assert!(is_right(0, 0) && is_right(0, 1000) && is_right(1000, 1000));
        assert!(!is_right(1000, 0) && !is_right(65534, 1000));
    }

    #[test]
    fn the_text_says_where_who_and_what_would_be_right_and_ends_with_a_zero() {
        let mut room = [0xee; TEXT_MAX];
        let mut path = [0; 108];
        path[..12].copy_from_slice(b"/tmp/x\xff.sock");
        let text = describe(&mut room, &path, Some((77, 65534)), 0).to_vec();
        let (zero, line) = text.split_last().unwrap();
        assert_eq!((*zero, line.last()), (0, Some(&b'\n')));
        let line = String::from_utf8_lossy(line);
        assert!(line.starts_with("libconvoy_xfrm: /tmp/x\u{fffd}.sock: "), "{line}");
        assert!(line.contains("process 77 of user 65534"), "{line}");
        assert!(line.ends_with("right is one of root or of user 0\n"), "{line}");
        // The longest path and numbers have room.
        let longest = Some((c_int::MAX, c_uint::MAX));
        let text = describe(&mut room, &[b'x'; 108], longest, c_uint::MAX);
        assert!(text.ends_with(b"of user 4294967295\n\0"));
    }
}
