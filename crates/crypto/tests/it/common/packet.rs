//! Packets of any suite that own their bytes, and bursts of them.

use std::collections::HashMap;

use convoy_crypto::{
    IcvLen, KeyBits, KeyMaterial, Nonce, OpenKey, OpenOp, SealKey, SealOp, SecretBytes, Suite,
    Verdict, open_burst, seal_burst,
};

use super::{Random, Setup, gcm};

/// A packet and everything that is needed to seal or open it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) suite: Suite,
    /// Of the cipher or AEAD, and of the MAC.
    pub(crate) keys: (Vec<u8>, Vec<u8>),
    pub(crate) nonce: Vec<u8>,
    /// Header of a pair, additional data of an AEAD.
    pub(crate) header: Vec<u8>,
    pub(crate) text: Vec<u8>,
    /// Of a pair.
    pub(crate) trailer: Vec<u8>,
    pub(crate) icv: Vec<u8>,
}

impl Packet {
    /// A packet of AES-GCM of given shape whose bytes come from `seed`.
    pub(crate) fn of_shape(
        key_bits: KeyBits,
        icv_len: IcvLen,
        aad: usize,
        data: usize,
        seed: u64,
    ) -> Self {
        Self::of_lengths(gcm(key_bits, icv_len), &mut Random(seed), aad, data, 0)
    }

    /// A packet with header, text and trailer of given lengths; the text is cut to whole blocks
    /// where the suite wants them.
    pub(crate) fn of_lengths(
        suite: Suite,
        random: &mut Random,
        header: usize,
        text: usize,
        trailer: usize,
    ) -> Self {
        let text = text - text % suite.block_bytes();
        Self {
            suite,
            keys: (random.bytes(suite.key_bytes()), random.bytes(suite.integrity_key_bytes())),
            nonce: random.bytes(suite.nonce_bytes()),
            header: random.bytes(header),
            text: random.bytes(text),
            trailer: random.bytes(if suite.is_aead() { 0 } else { trailer }),
            icv: vec![0; suite.icv_bytes()],
        }
    }

    /// A packet with the text's length given and everything else at random.
    pub(crate) fn random(suite: Suite, random: &mut Random, text: usize) -> Self {
        let header = random.pick(&[0, 8, 12, 16, 20, 24, 77]);
        let trailer = random.pick(&[0, 4, 4, 16]);
        Self::of_lengths(suite, random, header, text, trailer)
    }

    pub(crate) fn material(&self) -> KeyMaterial {
        KeyMaterial {
            cipher: SecretBytes::copy_from(&self.keys.0),
            integrity: SecretBytes::copy_from(&self.keys.1),
        }
    }

    pub(crate) fn seal_key(&self, setup: impl Into<Setup>) -> SealKey {
        let setup = setup.into();
        SealKey::with_tier(&setup.cpu(), setup.tier, self.suite, self.material())
            .unwrap_or_else(|error| panic!("{} on {setup}: {error}", self.suite))
    }

    pub(crate) fn open_key(&self, setup: impl Into<Setup>) -> OpenKey {
        let setup = setup.into();
        OpenKey::with_tier(&setup.cpu(), setup.tier, self.suite, self.material())
            .unwrap_or_else(|error| panic!("{} on {setup}: {error}", self.suite))
    }

    /// The packet before it was sealed, or after it was opened: its ICV is yet to be made.
    pub(crate) fn with_text(&self, text: &[u8]) -> Self {
        Self { text: text.to_vec(), icv: vec![0; self.icv.len()], ..self.clone() }
    }
}

/// The operation of a packet on `frame`, its header and text.
pub(crate) fn seal_op<'a>(
    packet: &'a Packet,
    key: &'a SealKey,
    frame: &'a mut [u8],
    icv: &'a mut [u8],
) -> SealOp<'a> {
    let header = packet.header.len();
    let nonce = nonce(&packet.nonce);
    if packet.suite.is_aead() {
        let (aad, data) = frame.split_at_mut(header);
        SealOp::new(key, nonce, aad, data, icv)
    } else {
        SealOp::framed(key, nonce, frame, header, &packet.trailer, icv)
    }
    .unwrap_or_else(|error| panic!("{}: {error}", packet.suite))
}

macro_rules! with_array {
    ($slice:expr, |$array:ident| $body:expr, $($len:literal)*) => {
        match $slice.len() {
            $($len => {
                let $array: [u8; $len] = (*$slice).try_into().unwrap();
                $body
            })*
            len => panic!("no suite has nonces of {len} bytes"),
        }
    };
}

fn nonce(bytes: &[u8]) -> Nonce {
    with_array!(bytes, |array| Nonce::new(array), 0 7 8 9 10 11 12 13 16)
}

/// The same for opening.
pub(crate) fn open_op<'a>(
    packet: &'a Packet,
    key: &'a OpenKey,
    frame: &'a mut [u8],
    icv: &'a [u8],
) -> OpenOp<'a> {
    let header = packet.header.len();
    let op = if packet.suite.is_aead() {
        let (aad, data) = frame.split_at_mut(header);
        with_array!(&*packet.nonce, |nonce| OpenOp::new(key, nonce, aad, data, icv),
            7 8 9 10 11 12 13)
    } else {
        let trailer = &packet.trailer;
        with_array!(&*packet.nonce, |iv| OpenOp::framed(key, iv, frame, header, trailer, icv),
            0 8 12 16)
    };
    op.unwrap_or_else(|error| panic!("{}: {error}", packet.suite))
}

/// Packets in one buffer, each at a place that no alignment helps, with bytes between them that must
/// stay as they are.
struct Yard {
    bytes: Vec<u8>,
    /// Start and end of each frame, and end of its ICV.
    places: Vec<(usize, usize, usize)>,
}

const BETWEEN: u8 = 0xa5;

impl Yard {
    fn new(packets: &[Packet]) -> Self {
        let mut random = Random(packets.len() as u64);
        let mut yard = Self { bytes: Vec::new(), places: Vec::new() };
        for packet in packets {
            let start = yard.bytes.len() + random.below(67);
            yard.bytes.resize(start, BETWEEN);
            yard.bytes.extend_from_slice(&packet.header);
            yard.bytes.extend_from_slice(&packet.text);
            let end = yard.bytes.len();
            yard.bytes.extend_from_slice(&packet.icv);
            yard.places.push((start, end, yard.bytes.len()));
        }
        yard.bytes.resize(yard.bytes.len() + 64, BETWEEN);
        yard
    }

    /// Frame and ICV of each packet.
    fn split(&mut self) -> Vec<(&mut [u8], &mut [u8])> {
        let mut rest = &mut *self.bytes;
        let mut at = 0;
        let mut all = Vec::new();
        for &(start, end, icv_end) in &self.places {
            let (_, tail) = rest.split_at_mut(start - at);
            let (frame, tail) = tail.split_at_mut(end - start);
            let (icv, tail) = tail.split_at_mut(icv_end - end);
            all.push((frame, icv));
            (rest, at) = (tail, icv_end);
        }
        all
    }

    /// Copies texts and ICVs back; checks that nothing else changed.
    fn leave(self, packets: &mut [Packet]) {
        let mut at = 0;
        for (packet, (start, end, icv_end)) in packets.iter_mut().zip(self.places) {
            assert!(
                self.bytes[at..start].iter().all(|&byte| byte == BETWEEN),
                "{}: bytes in front of a packet changed",
                packet.suite
            );
            let (header, text) = self.bytes[start..end].split_at(packet.header.len());
            assert_eq!(header, packet.header, "{}: the header changed", packet.suite);
            packet.text.copy_from_slice(text);
            packet.icv.copy_from_slice(&self.bytes[end..icv_end]);
            at = icv_end;
        }
        assert!(
            self.bytes[at..].iter().all(|&byte| byte == BETWEEN),
            "bytes behind the last packet changed"
        );
    }
}

/// One key for all packets of equal secrets and set-up, and which of them each packet has.
fn keys<K>(
    packets: &[Packet],
    setup_of: impl Fn(usize) -> Setup,
    make: impl Fn(&Packet, Setup) -> K,
) -> (Vec<K>, Vec<usize>) {
    let mut keys = Vec::new();
    let mut known = HashMap::new();
    let of_packets = packets.iter().enumerate().map(|(i, packet)| {
        let setup = setup_of(i);
        *known.entry((setup, packet.suite, &packet.keys)).or_insert_with(|| {
            keys.push(make(packet, setup));
            keys.len() - 1
        })
    });
    let of_packets = of_packets.collect();
    (keys, of_packets)
}

/// Seals every packet in one burst, packet `i` set up for `setup_of(i)`.
pub(crate) fn seal<S: Into<Setup>>(packets: &mut [Packet], setup_of: impl Fn(usize) -> S) {
    let (keys, of_packets) = keys(packets, |i| setup_of(i).into(), Packet::seal_key);
    let mut yard = Yard::new(packets);
    let places = yard.split();
    let mut ops: Vec<_> = packets
        .iter()
        .zip(&of_packets)
        .zip(places)
        .map(|((packet, &key), (frame, icv))| seal_op(packet, &keys[key], frame, icv))
        .collect();
    seal_burst(&mut ops);
    assert!(ops.iter().all(SealOp::is_sealed));
    drop(ops);
    yard.leave(packets);
}

/// Opens every packet in one burst, packet `i` set up for `setup_of(i)`.
pub(crate) fn open<S: Into<Setup>>(
    packets: &mut [Packet],
    setup_of: impl Fn(usize) -> S,
) -> Vec<Verdict> {
    let (keys, of_packets) = keys(packets, |i| setup_of(i).into(), Packet::open_key);
    let mut yard = Yard::new(packets);
    let places = yard.split();
    let mut ops: Vec<_> = packets
        .iter()
        .zip(&of_packets)
        .zip(places)
        .map(|((packet, &key), (frame, icv))| open_op(packet, &keys[key], frame, icv))
        .collect();
    open_burst(&mut ops);
    let verdicts = ops.iter().map(OpenOp::verdict).collect();
    drop(ops);
    yard.leave(packets);
    verdicts
}
