//! Keys leave nothing behind: no heap block that is given back holds one, whichever way its message
//! went.
//!
//! The allocator of this program looks at blocks as they are freed, one thread at a time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::Ipv4Addr;

use convoy_wire::Spi;
use convoy_xfrm::{
    AckOptions, Acknowledgement, Address, Aead, AlgorithmName, Errno, Failures, Flags, Integrity,
    Key, Limits, Messages, Mode, Received, Refusal, ReplayEsn, Reply, Request, Sa, SaFlags, SaInfo,
    SaProtocol, SecurityContext, Selector, Transform, Usage,
};

const SECRET: &[u8; 20] = b"a secret of 20 bytes";

struct Inspector;

thread_local! {
    /// Freed blocks that held the secret, while somebody wants to know.
    static FOUND: Cell<Option<usize>> = const { Cell::new(None) };
}

// SAFETY: every call is passed to the system's allocator; freed blocks are only read first.
unsafe impl GlobalAlloc for Inspector {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on. Zeroed, because padding that nobody writes is
        // read on freeing.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if let Ok(Some(found)) = FOUND.try_with(Cell::get) {
            // SAFETY: the block is still allocated, has this size, and was zeroed or written
            // throughout.
            let bytes = unsafe { std::slice::from_raw_parts(block, layout.size()) };
            let holds = bytes.windows(SECRET.len()).any(|window| window == SECRET);
            FOUND.with(|cell| cell.set(Some(found + usize::from(holds))));
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static INSPECTOR: Inspector = Inspector;

/// Number of blocks with the secret that were freed during `work`.
fn found(work: impl FnOnce()) -> usize {
    FOUND.with(|cell| cell.set(Some(0)));
    work();
    FOUND.with(|cell| cell.take()).unwrap()
}

fn sa(transform: Transform) -> Box<Sa> {
    let address = Ipv4Addr::new(192, 0, 2, 1).into();
    let info = SaInfo {
        selector: Selector::any_but_showing(address, address),
        destination: address,
        source: address,
        spi: Spi::new(0x1000),
        protocol: SaProtocol::Esp,
        limits: Limits::NONE,
        usage: Usage::default(),
        failures: Failures::default(),
        seq: 0,
        reqid: 1,
        mode: Mode::Tunnel,
        replay_window: 0,
        flags: SaFlags::AF_UNSPEC,
    };
    let mut sa = Sa { transform, ..Sa::new(info) };
    // Behind the key, and large, so that the message outgrows its memory when the key is in it.
    let replay = ReplayEsn { window: 4096, bitmap: vec![7; 128], ..ReplayEsn::default() };
    sa.state.replay_esn = Some(replay);
    let label = vec![b'x'; 1000];
    sa.security = Some(SecurityContext { doi: 1, algorithm: 1, extension: 0, label });
    Box::new(sa)
}

fn aead() -> Transform {
    let name = AlgorithmName::new("rfc4106(gcm(aes))").unwrap();
    Transform::Aead(Aead { name, key: Key::new(SECRET).unwrap(), icv_bits: 128 })
}

fn integrity() -> Transform {
    let name = AlgorithmName::new("hmac(sha1)").unwrap();
    let integrity = Integrity { name, key: Key::new(SECRET).unwrap(), icv_bits: Some(96) };
    Transform::Separate { cipher: None, integrity: Some(integrity) }
}

/// The way of an SA: asked for, received, taken, shown, and its request refused with all of it quoted.
fn go_all_ways(transform: fn() -> Transform) {
    let built = Request::NewSa(sa(transform())).build(1, Flags::ACK);
    assert!(built.as_bytes().len() > 1500);
    let mut buffer = built.as_bytes().to_vec();
    let received = Received::new(&mut buffer);
    let message = Messages::new(received.as_bytes()).next().unwrap();
    let Ok(Some(Request::NewSa(sa))) = Request::parse(&message) else { panic!() };
    let answer = sa.answer(false, Address::default());
    let message_of_answer = Messages::new(answer.as_bytes()).next().unwrap();
    drop(Reply::parse(&message_of_answer).unwrap());
    let refusal = Refusal::bare(Errno::EEXIST);
    let options = AckOptions::default();
    let quoted = Acknowledgement::build(&message, Err(&refusal), 0, options);
    assert!(quoted.as_bytes().windows(SECRET.len()).any(|window| window == SECRET));
    drop(Reply::parse(&Messages::new(quoted.as_bytes()).next().unwrap()).unwrap());
}

#[test]
fn no_key_stays_behind_on_any_way() {
    assert_eq!(found(|| go_all_ways(aead)), 0);
    assert_eq!(found(|| go_all_ways(integrity)), 0);
}

#[test]
fn a_refused_request_leaves_no_key() {
    let built = Request::NewSa(sa(aead())).build(1, Flags::ACK);
    let mut bytes = built.as_bytes().to_vec();
    // A mode that there is not, found after the key was taken.
    bytes[16 + 214] = 3;
    let work = || {
        let refusal = Request::parse(&Messages::new(&bytes).next().unwrap()).unwrap_err();
        assert_eq!(refusal.text, "Unsupported mode");
    };
    assert_eq!(found(work), 0);
}

#[test]
fn the_inspector_sees_what_is_not_wiped() {
    assert_eq!(found(|| drop(SECRET.to_vec())), 1);
}
