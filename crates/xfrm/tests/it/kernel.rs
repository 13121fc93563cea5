//! The kernel under this machine, asked the same: what the parser refuses the kernel refuses with the
//! same number, words and offset, and what the parser takes the kernel does not refuse for what the
//! message says.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::common::{only, request};
use convoy_xfrm::{
    Aead, AlgorithmName, Errno, Flags, HEADER_LEN, Key, Kind, Messages, Refusal, ReplayEsn, Reply,
    Request, SaDirection, SaFlags, SaProtocol, Transform,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_XFRM};
use nix::sched::{CloneFlags, unshare};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Runs `work` in a network namespace of its own.
fn in_a_namespace(work: impl FnOnce(&Socket) + Send + 'static) {
    let thread = std::thread::spawn(|| {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            println!("SKIPPED: XFRM parser against the kernel: no network namespace: {error}");
            return;
        }
        let mut socket = Socket::new(NETLINK_XFRM).expect("this kernel has XFRM");
        socket.bind_auto().unwrap();
        socket.connect(&SocketAddr::new(0, 0)).unwrap();
        socket.set_ext_ack(true).unwrap();
        socket.set_rx_buf_sz(1 << 22).unwrap();
        work(&socket);
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Sends a message to the kernel, and returns its refusal or `None`.
fn ask(socket: &Socket, bytes: &[u8], seq: u32) -> Option<Refusal> {
    assert_eq!(socket.send(bytes, 0).unwrap(), bytes.len());
    loop {
        let (datagram, _) = socket.recv_from_full().unwrap();
        for message in Messages::new(&datagram) {
            if message.header().seq != seq {
                continue;
            }
            match Reply::parse(&message).unwrap() {
                Reply::Acknowledgement(ack) => return ack.refusal,
                Reply::Done(refusal) => return refusal,
                _ => {}
            }
        }
    }
}

/// One change to a message.
#[derive(Debug, Clone)]
enum Change {
    /// A number of the fixed structure that decides much gets another value.
    Field(Index, Index),
    /// An attribute gets another number, which may have flags.
    Number(Index, u16),
    /// An attribute is longer or shorter.
    Len(Index, Index),
    /// A byte of an attribute's contents changes.
    Byte(Index, Index, u8),
    /// An attribute goes.
    Remove(Index),
    /// An attribute comes.
    Add(u16, Index, u8),
    /// The message is cut.
    Cut(Index),
    /// The flags lose or gain one.
    Flag(Index),
    /// The message is of another kind.
    Kind(u16),
}

fn change() -> impl Strategy<Value = Change> {
    let index = any::<Index>;
    prop_oneof![
        8 => (index(), index()).prop_map(|(at, value)| Change::Field(at, value)),
        2 => (index(), 0..46_u16, prop::sample::select(vec![0, 0, 0x8000, 0x4000_u16]))
            .prop_map(|(at, number, flags)| Change::Number(at, number | flags)),
        4 => (index(), index()).prop_map(|(at, len)| Change::Len(at, len)),
        4 => (index(), index(), any::<u8>()).prop_map(|(at, to, byte)| Change::Byte(at, to, byte)),
        3 => index().prop_map(Change::Remove),
        6 => (0..46_u16, index(), prop_oneof![Just(0), Just(1), any::<u8>()])
            .prop_map(|(number, len, fill)| Change::Add(number, len, fill)),
        1 => index().prop_map(Change::Cut),
        1 => index().prop_map(Change::Flag),
        1 => (0x0f..0x2a_u16).prop_map(Change::Kind),
    ]
}

/// Offsets behind the header of the numbers that decide much, and their sizes in bytes.
fn fields(kind: Option<Kind>) -> &'static [(usize, usize)] {
    match kind {
        Some(Kind::NewSa | Kind::UpdSa) => {
            &[(40, 2), (42, 1), (43, 1), (72, 4), (76, 1), (212, 2), (214, 1), (215, 1), (216, 1)]
        }
        // Not the family and mode, which the kernel does not look at here.
        Some(Kind::AllocSpi) => &[(76, 1), (204, 4), (224, 4), (228, 4)],
        Some(Kind::NewPolicy | Kind::UpdPolicy) => {
            &[(40, 2), (42, 1), (43, 1), (156, 4), (160, 1), (161, 1), (162, 1), (163, 1)]
        }
        Some(Kind::DelPolicy | Kind::GetPolicy) => &[(40, 2), (56, 4), (60, 1)],
        Some(Kind::DelSa | Kind::GetSa | Kind::NewAe | Kind::GetAe) => &[(16, 4), (20, 2), (22, 1)],
        _ => &[(0, 1)],
    }
}

const VALUES: [u32; 18] =
    [0, 1, 2, 3, 4, 5, 6, 10, 32, 33, 50, 51, 60, 108, 128, 129, 255, 0x0200_0000];
const LENS: [usize; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 36, 64, 68, 72, 80, 512];

/// A message in parts.
struct Parts {
    header: Vec<u8>,
    fixed: Vec<u8>,
    attributes: Vec<(u16, Vec<u8>)>,
}

impl Parts {
    fn of(bytes: &[u8]) -> Self {
        let message = only(bytes);
        let number = message.header().number;
        let dump = message.header().flags.any(Flags::DUMP)
            && matches!(Kind::from_number(number), Some(Kind::GetSa | Kind::GetPolicy));
        let fixed_len = if dump { 0 } else { fixed_len(number) };
        let start = HEADER_LEN + fixed_len.next_multiple_of(4);
        let bytes = message.as_bytes();
        let mut attributes = Vec::new();
        let mut rest = bytes.get(start..).unwrap_or_default();
        while let Some([l0, l1, n0, n1]) = rest.first_chunk() {
            let len = usize::from(u16::from_ne_bytes([*l0, *l1]));
            let number = u16::from_ne_bytes([*n0, *n1]);
            attributes.push((number, rest[4..len].to_vec()));
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        let header = bytes[..HEADER_LEN].to_vec();
        let fixed = bytes[HEADER_LEN..start.min(bytes.len())].to_vec();
        Self { header, fixed, attributes }
    }

    fn apply(&mut self, change: &Change) {
        let pick = |at: &Index, attributes: &[(u16, Vec<u8>)]| {
            (!attributes.is_empty()).then(|| at.index(attributes.len()))
        };
        match change {
            Change::Field(at, value) => {
                let kind = Kind::from_number(u16::from_ne_bytes([self.header[4], self.header[5]]));
                let fields = fields(kind);
                let (start, len) = fields[at.index(fields.len())];
                let value = VALUES[value.index(VALUES.len())].to_ne_bytes();
                if let Some(field) = self.fixed.get_mut(start..start + len) {
                    field.copy_from_slice(&value[..len]);
                }
            }
            Change::Number(at, number) => {
                if let Some(at) = pick(at, &self.attributes) {
                    self.attributes[at].0 = *number;
                }
            }
            Change::Len(at, len) => {
                if let Some(at) = pick(at, &self.attributes) {
                    let len = match len.index(LENS.len() + 2) {
                        0 => self.attributes[at].1.len() + 1,
                        1 => self.attributes[at].1.len().saturating_sub(1),
                        len => LENS[len - 2],
                    };
                    self.attributes[at].1.resize(len, 0);
                }
            }
            Change::Byte(at, to, byte) => {
                if let Some(at) = pick(at, &self.attributes)
                    && !self.attributes[at].1.is_empty()
                {
                    let payload = &mut self.attributes[at].1;
                    let to = to.index(payload.len());
                    payload[to] = *byte;
                }
            }
            Change::Remove(at) => {
                if let Some(at) = pick(at, &self.attributes) {
                    self.attributes.remove(at);
                }
            }
            Change::Add(number, len, fill) => {
                self.attributes.push((*number, vec![*fill; LENS[len.index(LENS.len())]]));
            }
            // Made when the bytes are.
            Change::Cut(_) => {}
            Change::Flag(at) => {
                // Never without the request's or acknowledgement's, or there would be no answer.
                let bit = [0x100_u16, 0x200, 0x800][at.index(3)];
                let flags = u16::from_ne_bytes([self.header[6], self.header[7]]) ^ bit;
                self.header[6..8].copy_from_slice(&flags.to_ne_bytes());
            }
            Change::Kind(number) => self.header[4..6].copy_from_slice(&number.to_ne_bytes()),
        }
    }

    fn bytes(&self, changes: &[Change]) -> Vec<u8> {
        let mut bytes = [self.header.clone(), self.fixed.clone()].concat();
        for (number, payload) in &self.attributes {
            let len = u16::try_from(payload.len() + 4).unwrap();
            bytes.extend(len.to_ne_bytes());
            bytes.extend(number.to_ne_bytes());
            bytes.extend(payload);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        for change in changes {
            if let Change::Cut(at) = change {
                bytes.truncate(HEADER_LEN + at.index(bytes.len() - HEADER_LEN + 1));
            }
        }
        let len = u32::try_from(bytes.len()).unwrap();
        bytes[..4].copy_from_slice(&len.to_ne_bytes());
        bytes
    }
}

fn fixed_len(number: u16) -> usize {
    match number {
        0x10 | 0x1a => 224,
        0x11 | 0x12 => 24,
        0x13 | 0x19 => 168,
        0x14 | 0x15 | 0x21 | 0x26 => 64,
        0x16 | 0x18 => 232,
        0x17 => 280,
        0x1b => 176,
        0x1c => 1,
        0x1e | 0x1f => 48,
        0x20 => 60,
        0x22..=0x25 => 4,
        0x27 | 0x28 => 3,
        _ => 0,
    }
}

/// Refusals that depend on more than the message: on what there is, or on what the kernel was built
/// with.
fn is_of_the_databases(refusal: &Refusal) -> bool {
    let texts = [
        "Requested AEAD algorithm not found",
        "Requested AUTH algorithm not found",
        "Requested AUTH_TRUNC algorithm not found",
        "Requested CRYPT algorithm not found",
        "Requested COMP algorithm not found",
        "Requested type not found",
        "Invalid length requested for truncated ICV",
        "pCPU number too big",
        "Target ACQUIRE not found",
        "Could not find",
        "Failed to",
        "SPI",
    ];
    matches!(refusal.errno, Errno::ESRCH | Errno::ENOENT | Errno::EEXIST | Errno::ENOSYS)
        || refusal.errno == Errno::EPROTONOSUPPORT
        || texts.iter().any(|text| refusal.text.starts_with(text))
}

/// Refusals that a kernel comes to only after it has found the algorithms, which this one has not.
const LATE: [&str; 4] = [
    "NAT keepalive is only supported for outbound SAs",
    "NAT keepalive is only supported for UDP encapsulation",
    "ESN replay window is too large for the chosen bitmap size",
    "ESN replay window must be > 0",
];

/// SPIs for families and modes that there are not: the kernel makes SAs of them, with which nothing
/// can be done; the parser refuses them.
fn is_beyond_the_kernel(bytes: &[u8]) -> bool {
    let message = only(bytes);
    message.header().number == Kind::AllocSpi.number()
        && Request::parse(&message).is_err_and(|refusal| {
            matches!(&*refusal.text, "Invalid address family" | "Unsupported mode")
        })
}

/// Compares parser and kernel; the error says how they differ.
fn compare(bytes: &[u8], kernel: Option<&Refusal>) -> Result<&'static str, String> {
    let message = only(bytes);
    match (Request::parse(&message), kernel) {
        // Labels need a security module, devices a device; and both are the server's.
        (Ok(Some(Request::NewSa(sa) | Request::UpdSa(sa))), Some(_))
            if sa.security.is_some() || sa.offload.is_some() =>
        {
            Ok("label or device")
        }
        (Ok(Some(Request::NewPolicy(policy) | Request::UpdPolicy(policy))), Some(_))
            if policy.security.is_some() || policy.offload.is_some() =>
        {
            Ok("label or device")
        }
        (Ok(Some(Request::GetPolicy(key) | Request::DelPolicy(key))), Some(_))
            if key.security.is_some() =>
        {
            Ok("label or device")
        }
        // Only recognised.
        (Ok(Some(Request::Migrate | Request::Raise(_))), _) => Ok("recognised"),
        (Ok(_), None) => Ok("both take it"),
        (Ok(_), Some(refusal)) if is_of_the_databases(refusal) => Ok("refused for other reasons"),
        (Err(ours), Some(theirs)) if LATE.contains(&&*ours.text) && is_of_the_databases(theirs) => {
            Ok("late")
        }
        // The kernel looks for the SA first.
        (Err(ours), Some(theirs))
            if message.header().number == Kind::NewAe.number()
                && ours.text.starts_with("ESN ")
                && theirs.errno == Errno::ESRCH =>
        {
            Ok("late")
        }
        (Err(ours), Some(theirs)) if ours == *theirs => Ok("both refuse it"),
        (Ok(_), Some(theirs)) => Err(format!("taken, but the kernel says {theirs:?}")),
        (Err(ours), theirs) => Err(format!("{ours:?}, but the kernel says {theirs:?}")),
    }
}

/// Kernels before this one know fewer attributes and use fewer words.
const COMPARED: (u32, u32) = (6, 18);

/// Version and subversion of the kernel.
fn kernel_version() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn parser_and_kernel_refuse_the_same() {
    let version = kernel_version();
    if version < COMPARED {
        println!("SKIPPED: XFRM parser against the kernel: {version:?} is older than {COMPARED:?}");
        return;
    }
    let cases: u32 = std::env::var("CONVOY_XFRM_CASES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20_000);
    in_a_namespace(move |socket| {
        let seed = std::env::var("CONVOY_XFRM_SEED").ok().and_then(|text| text.parse().ok());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed.unwrap_or(1); 32]);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let strategy = (request(), prop::collection::vec(change(), 0..4));
        let mut tally: BTreeMap<&str, u32> = BTreeMap::new();
        let mut texts: BTreeMap<String, u32> = BTreeMap::new();
        let mut differences: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for seq in 1..=cases {
            let (request, changes) = strategy.new_tree(&mut runner).unwrap().current();
            let mut parts = Parts::of(request.build(seq, Flags::ACK).as_bytes());
            for change in &changes {
                parts.apply(change);
            }
            let bytes = parts.bytes(&changes);
            if is_beyond_the_kernel(&bytes) {
                *tally.entry("not asked").or_default() += 1;
                continue;
            }
            let kernel = ask(socket, &bytes, seq);
            match compare(&bytes, kernel.as_ref()) {
                Ok(how) => {
                    *tally.entry(how).or_default() += 1;
                    if let (how, Some(refusal)) = ("both refuse it", &kernel)
                        && compare(&bytes, kernel.as_ref()) == Ok(how)
                    {
                        *texts.entry(refusal.to_string()).or_default() += 1;
                    }
                }
                Err(difference) => {
                    let number = only(&bytes).header().number;
                    differences.entry(format!("{number:#x}: {difference}")).or_insert(bytes);
                }
            }
            // Databases stay small.
            if seq % 500 == 0 {
                for flush in [0x1c_u16, 0x1d] {
                    let mut bytes = vec![0; 20];
                    bytes[..4].copy_from_slice(&20_u32.to_ne_bytes());
                    bytes[4..6].copy_from_slice(&flush.to_ne_bytes());
                    bytes[6] = 5;
                    bytes[8..12].copy_from_slice(&seq.to_ne_bytes());
                    assert_eq!(ask(socket, &bytes, seq), None);
                }
            }
        }
        println!("{tally:?}\n{} kinds of refusals: {texts:#?}", texts.len());
        for (difference, bytes) in differences.iter().take(40) {
            let hex: Cow<'_, str> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            println!("{difference}\n  {}", &hex[..hex.len().min(900)]);
        }
        assert!(differences.is_empty(), "{} differences", differences.len());
        assert!(texts.len() >= 25, "the messages are wrong in too few ways");
    });
}

/// An outbound or inbound SA with a state of its numbers.
fn with_numbers(direction: SaDirection, esn: bool, sent: u64, received: u64) -> Request {
    let mut runner = TestRunner::deterministic();
    let mut sa = crate::common::sa().new_tree(&mut runner).unwrap().current();
    let name = AlgorithmName::new("rfc4106(gcm(aes))").unwrap();
    let key = Key::new(&[7; 20]).unwrap();
    sa.transform = Transform::Aead(Aead { name, key, icv_bits: 128 });
    sa.info.protocol = SaProtocol::Esp;
    sa.info.flags = if esn { SaFlags::ESN } else { SaFlags::default() };
    sa.info.replay_window = 0;
    sa.direction = Some(direction);
    (sa.extra_flags, sa.nat_keepalive, sa.mapping_threshold) = (0, 0, None);
    (sa.tfc_padding, sa.security, sa.offload, sa.state.replay) = (None, None, None, None);
    let inbound = direction == SaDirection::In;
    let (window, bitmap) = if inbound { (32, vec![0]) } else { (0, Vec::new()) };
    sa.state.replay_esn = Some(ReplayEsn { sent, received, window, bitmap });
    Request::NewSa(sa)
}

#[test]
fn last_sequence_numbers_are_refused_alike() {
    if kernel_version() < COMPARED {
        println!("SKIPPED: XFRM sequence numbers against the kernel: older than {COMPARED:?}");
        return;
    }
    in_a_namespace(|socket| {
        let numbers = [0, 1, 0xffff_fffe, 0xffff_ffff, 1 << 32, u64::MAX - 1, u64::MAX];
        let mut refused = BTreeMap::new();
        let mut seq = 0;
        for direction in [SaDirection::In, SaDirection::Out] {
            for esn in [false, true] {
                for (sent, received) in
                    numbers.into_iter().flat_map(|number| [(number, 0), (0, number)])
                {
                    seq += 1;
                    let built = with_numbers(direction, esn, sent, received).build(seq, Flags::ACK);
                    let kernel = ask(socket, built.as_bytes(), seq);
                    let how = compare(built.as_bytes(), kernel.as_ref());
                    assert!(how.is_ok(), "{direction:?} {esn} {sent} {received}: {how:?}");
                    *refused.entry(kernel.unwrap().text).or_insert(0) += 1;
                }
            }
        }
        // Six faults, and that the algorithm is not there, or its protocol.
        assert!(refused.len() >= 9, "{refused:#?}");
    });
}
