//! Wire formats: no bytes make a parser panic or promise bytes that are not there, and every
//! packet that is built parses back to what it was built from.

use std::net::IpAddr;

use arbitrary::Arbitrary;
use convoy_wire::esp::{EspHeader, UdpPayload, emit_trailer, parse_trailer};
use convoy_wire::icmp::{IcmpErrorView, Quoted, emit_error, emit_too_big};
use convoy_wire::ipv4::{self, Fragments};
use convoy_wire::ipv6::{ExtensionLimits, FragmentHeader, transport_point};
use convoy_wire::{
    EspLayout, EspView, FragmentState, IpVersion, Ipv4Mut, Ipv4Repr, Ipv4View, Ipv6Mut, Ipv6Repr,
    Ipv6View, PacketInfo, ParseOptions, Ports, Protocol, TcpView, Tos, UdpView, checksum,
    parse_packet, parse_packet_with,
};

/// Bytes, or the parts of a packet.
#[derive(Arbitrary, Debug)]
pub struct Input<'a>(Kind<'a>);

#[derive(Arbitrary, Debug)]
enum Kind<'a> {
    Bytes(&'a [u8]),
    V4(BuildV4<'a>),
    V6(BuildV6<'a>),
}

#[derive(Arbitrary, Debug)]
struct BuildV4<'a> {
    tos: u8,
    ident: u16,
    dont_fragment: bool,
    ttl: u8,
    protocol: u8,
    src: u32,
    dst: u32,
    options: [u32; 10],
    option_words: u8,
    mtu: u16,
    payload: &'a [u8],
}

#[derive(Arbitrary, Debug)]
struct BuildV6<'a> {
    tos: u8,
    flow_label: u32,
    hop_limit: u8,
    src: u128,
    dst: u128,
    chain: [Option<Extension>; 9],
    protocol: u8,
    payload: &'a [u8],
}

#[derive(Arbitrary, Debug, Clone, Copy)]
enum Extension {
    HopByHop { units: u8 },
    Destination { units: u8 },
    Routing { units: u8 },
    Fragment { offset: u16, more: bool, ident: u32 },
}

/// Panics where a parser or an emitter breaks its promise.
pub fn check(input: Input<'_>) {
    match input.0 {
        Kind::Bytes(bytes) => parse_everything(bytes),
        Kind::V4(build) => build_v4(&build),
        Kind::V6(build) => build_v6(&build),
    }
}

/// Runs `bytes` through every parser of the crate.
fn parse_everything(bytes: &[u8]) {
    let strict = ParseOptions { verify_checksum: true, ..ParseOptions::default() };
    let lenient = parse_packet(bytes);
    if let Ok(info) = parse_packet_with(bytes, &strict) {
        assert_eq!(lenient, Ok(info));
    }
    if let Ok(info) = lenient {
        lies_inside(&info, bytes);
    }
    if let Ok(view) = Ipv4View::parse(bytes) {
        let parts = view.header_len() + view.payload().len() + view.trailing();
        assert_eq!(parts, bytes.len());
        assert_eq!(ipv4::HEADER_LEN + view.options().len(), view.header_len());
        cut(&view, 68 + bytes.len() / 3);
    }
    if let Ok(view) = Ipv6View::parse(bytes) {
        assert_eq!(40 + view.payload().len() + view.trailing(), bytes.len());
        let limits = ExtensionLimits::default();
        if let Ok(point) = transport_point(view.next_header(), view.payload(), limits) {
            assert!(point.offset <= view.payload().len());
            assert_eq!(bytes[point.next_header_at], point.protocol.0);
        }
    }
    if let Ok(view) = UdpView::parse(bytes) {
        assert_eq!(usize::from(view.total_len()), 8 + view.payload().len());
        let _ = UdpPayload::parse(view.payload());
    }
    if let Ok(view) = TcpView::parse(bytes) {
        assert_eq!(view.header_len() + view.payload().len(), bytes.len());
    }
    parse_esp(bytes);
    for version in [IpVersion::V4, IpVersion::V6] {
        let _ = IcmpErrorView::parse(version, bytes);
        let _ = Quoted::parse(version, bytes);
    }
    answer(bytes);
    change(bytes);
}

fn parse_esp(bytes: &[u8]) {
    for (iv_len, icv_len, block_len) in [(8, 16, 1), (16, 12, 16), (0, 0, 4)] {
        let Some(layout) = EspLayout::new(iv_len, icv_len, block_len) else { continue };
        if let Ok(view) = EspView::parse(bytes, layout) {
            let parts = layout.prefix_len() + view.ciphertext().len() + view.icv().len();
            assert_eq!(parts, bytes.len());
            assert_eq!(EspHeader::parse(bytes).map(|h| h.spi), Ok(view.spi()));
        }
    }
    if let Ok(trailer) = parse_trailer(bytes) {
        let mut again = bytes[..trailer.payload_len].to_vec();
        again.resize(bytes.len(), 0);
        let room = &mut again[trailer.payload_len..];
        emit_trailer(room, trailer.pad_len, trailer.next_header).expect("fits");
        assert_eq!(again, bytes);
    }
}

/// ICMP answers to anything parse again and are addressed to the sender.
fn answer(original: &[u8]) {
    let mut out = [0; 1500];
    for source in [IpAddr::from([192, 0, 2, 1]), IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1])] {
        let Ok(len) = emit_too_big(&mut out, original, 1400, source) else { continue };
        let strict = ParseOptions { verify_checksum: true, ..ParseOptions::default() };
        let info = parse_packet_with(&out[..len], &strict).expect("an answer is a packet");
        let asked = parse_packet(original).map(|info| info.flow.src_addr());
        assert!(asked.is_err() || asked == Ok(info.flow.dst_addr()));
        let message = &out[usize::from(info.upper_offset)..len];
        assert!(IcmpErrorView::parse(info.flow.version, message).is_ok());
        // An error is never answered with an error.
        let error = convoy_wire::icmp::IcmpError::TimeExceeded;
        assert!(emit_error(&mut [0; 1500], &out[..len], error, source).is_err());
    }
}

/// Setters keep a right checksum right.
fn change(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if ipv4::fill_checksum(&mut bytes).is_ok()
        && let Ok(mut header) = Ipv4Mut::new(&mut bytes)
    {
        header.decrement_ttl();
        header.set_tos(Tos(0xb8));
        header.set_ident(0x1234);
        header.set_protocol(Protocol::ESP);
        if let Ok(view) = Ipv4View::parse(&bytes) {
            assert!(view.checksum_ok());
        }
    }
    if let Ok(mut header) = Ipv6Mut::new(&mut bytes) {
        header.decrement_hop_limit();
        header.set_tos(Tos(0xb8));
        assert_eq!(bytes[0] >> 4, 6);
    }
}

fn lies_inside(info: &PacketInfo, bytes: &[u8]) {
    assert!(info.total_len as usize <= bytes.len());
    assert!(u32::from(info.upper_offset) <= info.total_len);
    assert!(info.header_len <= info.upper_offset);
    if info.fragment == FragmentState::Later {
        assert_eq!(info.flow.ports, Ports::Opaque);
    }
    assert_eq!(info.flow.reversed().reversed(), info.flow);
}

/// The fragments of a packet are packets, fit, and carry its payload without gap or overlap.
fn cut(packet: &Ipv4View<'_>, mtu: usize) {
    let Ok(fragments) = Fragments::new(packet, mtu) else { return };
    let mut next = 0;
    for fragment in fragments {
        let mut bytes = vec![0; 60];
        let header_len = fragment.emit_header(packet, &mut bytes).expect("fits");
        bytes.truncate(header_len);
        bytes.extend(&packet.payload()[fragment.start..][..fragment.len]);
        assert!(bytes.len() <= mtu && fragment.start == next);
        let part = Ipv4View::parse(&bytes).expect("a fragment is a packet");
        assert!(part.checksum_ok() && part.trailing() == 0);
        next += fragment.len;
    }
    // Only a fragment whose parts would lie past 65535 may end early.
    assert!(next == packet.payload().len() || packet.is_fragment());
}

fn build_v4(build: &BuildV4<'_>) {
    let options: Vec<u8> = build.options.iter().flat_map(|word| word.to_be_bytes()).collect();
    let options = &options[..usize::from(build.option_words % 11) * 4];
    let repr = Ipv4Repr {
        tos: Tos(build.tos),
        ident: build.ident,
        dont_fragment: build.dont_fragment,
        ttl: build.ttl,
        protocol: Protocol(build.protocol),
        src: build.src.into(),
        dst: build.dst.into(),
        payload_len: options.len() + build.payload.len(),
    };
    let Ok(header) = repr.to_bytes() else { return };
    let mut bytes = [&header[..], options, build.payload].concat();
    bytes[0] += (options.len() / 4) as u8;
    ipv4::fill_checksum(&mut bytes).expect("a whole header");

    let view = Ipv4View::parse(&bytes).expect("what is built parses");
    assert!(view.checksum_ok());
    assert_eq!((view.options(), view.payload()), (options, build.payload));
    assert_eq!((view.src(), view.dst(), view.tos()), (repr.src, repr.dst, repr.tos));
    assert_eq!((view.protocol(), view.ttl(), view.ident()), (repr.protocol, repr.ttl, repr.ident));
    if let Some(pseudo) =
        checksum::Sum::pseudo(repr.src.into(), repr.dst.into(), repr.protocol, build.payload.len())
    {
        assert_eq!(pseudo.fold(), view.pseudo_sum().fold());
    }
    cut(&view, usize::from(build.mtu));
    parse_everything(&bytes);
}

fn build_v6(build: &BuildV6<'_>) {
    let chain: Vec<Extension> = build.chain.iter().flatten().copied().collect();
    let mut names: Vec<u8> = chain.iter().map(|extension| extension.protocol().0).collect();
    names.push(build.protocol);
    let mut payload = Vec::new();
    for (extension, next) in chain.iter().zip(&names[1..]) {
        payload.extend(extension.bytes(Protocol(*next)));
    }
    payload.extend(build.payload);
    let repr = Ipv6Repr {
        tos: Tos(build.tos),
        flow_label: build.flow_label & 0xf_ffff,
        next_header: Protocol(names[0]),
        hop_limit: build.hop_limit,
        src: build.src.into(),
        dst: build.dst.into(),
        payload_len: payload.len(),
    };
    let Ok(header) = repr.to_bytes() else { return };
    let bytes = [&header[..], &payload].concat();
    let view = Ipv6View::parse(&bytes).expect("what is built parses");
    assert_eq!((view.src(), view.dst(), view.tos()), (repr.src, repr.dst, repr.tos));
    assert_eq!((view.flow_label(), view.hop_limit()), (repr.flow_label, repr.hop_limit));
    if let Ok(upper) = view.upper_layer(ExtensionLimits::default())
        && upper.fragment.is_none_or(|fragment| fragment.offset == 0)
        && ![0, 43, 44, 60].contains(&build.protocol)
    {
        assert_eq!(upper.protocol, Protocol(build.protocol));
        assert_eq!(&payload[upper.offset..], build.payload);
    }
    parse_everything(&bytes);
}

impl Extension {
    fn protocol(self) -> Protocol {
        match self {
            Self::HopByHop { .. } => Protocol::HOP_BY_HOP,
            Self::Destination { .. } => Protocol::DEST_OPTIONS,
            Self::Routing { .. } => Protocol::ROUTING,
            Self::Fragment { .. } => Protocol::FRAGMENT,
        }
    }

    fn bytes(self, next_header: Protocol) -> Vec<u8> {
        match self {
            Self::HopByHop { units } | Self::Destination { units } | Self::Routing { units } => {
                let mut bytes = vec![0; (usize::from(units) + 1) * 8];
                bytes[0] = next_header.0;
                bytes[1] = units;
                bytes
            }
            Self::Fragment { offset, more, ident } => {
                FragmentHeader { next_header, offset, more, ident }.to_bytes().to_vec()
            }
        }
    }
}
