//! Two ends within rustls, at least one of them with Convoy's AEADs; aws-lc-rs judges.

use std::io::{IoSlice, Read as _, Write as _};

use convoy_crypto::{Cpu, Tier};
use rustls::{ConnectionCommon, Error, SideData, SupportedCipherSuite, version::TLS13};

use crate::common::{Identity, Side, assert_same, is_rsa, noise, suites, version};

/// Sizes of writes: the edges of blocks, of kernels and of records (16,384 bytes).
const SIZES: [usize; 19] = [
    1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1024, 1424, 4095, 16383, 16384, 16385, 40_000,
    100_000,
];

/// Leads what one end has to say to the other.
fn pass<A: SideData, B: SideData>(
    from: &mut ConnectionCommon<A>,
    to: &mut ConnectionCommon<B>,
) -> Result<(), Error> {
    let mut wire = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut wire).unwrap();
    }
    receive(to, &wire)
}

fn receive<B: SideData>(to: &mut ConnectionCommon<B>, mut wire: &[u8]) -> Result<(), Error> {
    while !wire.is_empty() {
        to.read_tls(&mut wire).unwrap();
        to.process_new_packets()?;
    }
    Ok(())
}

fn shake_hands<A: SideData, B: SideData>(
    client: &mut ConnectionCommon<A>,
    server: &mut ConnectionCommon<B>,
) {
    while client.is_handshaking() || server.is_handshaking() {
        pass(client, server).unwrap();
        pass(server, client).unwrap();
    }
    // Session tickets.
    pass(server, client).unwrap();
}

/// Everything that was received so far.
fn received<A: SideData>(connection: &mut ConnectionCommon<A>) -> Vec<u8> {
    let mut text = Vec::new();
    // It ends with "would block", for more may come.
    connection.reader().read_to_end(&mut text).unwrap_err();
    text
}

fn send<A: SideData, B: SideData>(
    from: &mut ConnectionCommon<A>,
    to: &mut ConnectionCommon<B>,
    text: &[u8],
) -> Vec<u8> {
    let (mut sent, mut got, mut wire) = (0, Vec::new(), Vec::new());
    while sent < text.len() {
        sent += from.writer().write(&text[sent..]).unwrap();
        while from.wants_write() {
            from.write_tls(&mut wire).unwrap();
        }
        // The receiver takes so many at once as it has room for.
        for part in wire.chunks(4096) {
            receive(to, part).unwrap();
            got.extend(received(to));
        }
        wire.clear();
    }
    got
}

/// Runs a test with every suite, and with Convoy at either end or both.
fn for_each(test: impl Fn(&Identity, SupportedCipherSuite, Side, Side)) {
    let (Some(ec), Some(rsa)) = (Identity::new(false), Identity::new(true)) else { return };
    for suite in suites() {
        let identity = if is_rsa(suite) { &rsa } else { &ec };
        for (client, server) in
            [(Side::Convoy, Side::AwsLc), (Side::AwsLc, Side::Convoy), (Side::Convoy, Side::Convoy)]
        {
            test(identity, suite, client, server);
        }
    }
}

#[test]
fn every_suite_talks_with_another_library() {
    let text = noise(100_000);
    for_each(|identity, suite, client_side, server_side| {
        let what = (suite, client_side, server_side);
        let mut client = identity.client(client_side, suite);
        let mut server = identity.server(server_side, suite);
        shake_hands(&mut client, &mut server);
        assert_eq!(client.negotiated_cipher_suite(), Some(suite));
        for size in SIZES {
            let text = &text[..size];
            assert_same(&send(&mut client, &mut server, text), text, (what, size, "up"));
            assert_same(&send(&mut server, &mut client, text), text, (what, size, "down"));
        }
    });
}

#[test]
fn a_record_of_many_slices_is_one_text() {
    let text = noise(5000);
    for_each(|identity, suite, client_side, server_side| {
        let mut client = identity.client(client_side, suite);
        let mut server = identity.server(server_side, suite);
        shake_hands(&mut client, &mut server);
        let slices: Vec<_> = text.chunks(77).map(IoSlice::new).collect();
        assert_eq!(client.writer().write_vectored(&slices).unwrap(), text.len());
        pass(&mut client, &mut server).unwrap();
        assert_same(&received(&mut server), &text, (suite, client_side));
    });
}

#[test]
fn keys_are_changed_under_way() {
    let text = noise(1000);
    for_each(|identity, suite, client_side, server_side| {
        if version(suite) != &TLS13 {
            return;
        }
        let mut client = identity.client(client_side, suite);
        let mut server = identity.server(server_side, suite);
        shake_hands(&mut client, &mut server);
        for _ in 0..3 {
            client.refresh_traffic_keys().unwrap();
            assert_same(&send(&mut client, &mut server, &text), &text, (suite, "up"));
            server.refresh_traffic_keys().unwrap();
            assert_same(&send(&mut server, &mut client, &text), &text, (suite, "down"));
        }
    });
}

/// Each byte of a record in turn is damaged; the receiver refuses it and gives nothing out.
#[test]
fn a_damaged_record_is_refused_as_by_another_library() {
    let text = b"to be or not to be";
    for_each(|identity, suite, client_side, server_side| {
        let record = {
            let mut client = identity.client(client_side, suite);
            let mut server = identity.server(server_side, suite);
            shake_hands(&mut client, &mut server);
            wire_of(&mut client, text).len()
        };
        // A header in front names type, version and length.
        for at in (5..record).chain([record]) {
            let mut client = identity.client(client_side, suite);
            let mut server = identity.server(server_side, suite);
            shake_hands(&mut client, &mut server);
            let mut wire = wire_of(&mut client, text);
            match wire.get_mut(at) {
                Some(byte) => *byte ^= 1 << (at % 8),
                // A byte less, and a header that says so.
                None => {
                    wire.pop();
                    wire[4] -= 1;
                }
            }
            let outcome = receive(&mut server, &wire);
            assert_eq!(outcome, Err(Error::DecryptError), "{suite:?} {server_side:?} {at}");
            let mut text = Vec::new();
            let _ = server.reader().read_to_end(&mut text);
            assert!(text.is_empty(), "{suite:?} {server_side:?} {at}");
            // What it tells the other end is the same for every mistake.
            let mut alert = Vec::new();
            server.write_tls(&mut alert).unwrap();
            assert_eq!(pass_alert(&mut client, &alert), "BadRecordMac", "{suite:?}");
        }
    });
}

fn wire_of<A: SideData>(connection: &mut ConnectionCommon<A>, text: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    connection.writer().write_all(text).unwrap();
    connection.write_tls(&mut wire).unwrap();
    wire
}

/// The name of the alert that was received.
fn pass_alert<A: SideData>(to: &mut ConnectionCommon<A>, wire: &[u8]) -> String {
    match receive(to, wire) {
        Err(Error::AlertReceived(alert)) => format!("{alert:?}"),
        other => panic!("{other:?}"),
    }
}

/// A record that came before does not come again.
#[test]
fn a_record_that_comes_twice_is_refused() {
    for_each(|identity, suite, client_side, server_side| {
        let mut client = identity.client(client_side, suite);
        let mut server = identity.server(server_side, suite);
        shake_hands(&mut client, &mut server);
        let wire = wire_of(&mut client, b"once");
        receive(&mut server, &wire).unwrap();
        assert_eq!(received(&mut server), b"once");
        assert_eq!(receive(&mut server, &wire), Err(Error::DecryptError), "{suite:?}");
    });
}

/// One number seals one record, whatever the caller says.
#[test]
fn a_number_seals_once() {
    use rustls::{
        ContentType, ProtocolVersion,
        crypto::cipher::{AeadKey, OutboundChunks, OutboundPlainMessage},
    };
    let provider = convoy_rustls::with_convoy_aead(rustls::crypto::aws_lc_rs::default_provider());
    let has_chacha = Cpu::detect().unwrap().best() == Tier::Vaes512;
    for suite in provider.unwrap().cipher_suites {
        if !has_chacha && !format!("{:?}", suite.suite()).contains("GCM") {
            continue;
        }
        let key = AeadKey::from([7; 32]);
        let mut encrypter = match suite {
            // Those take keys of 32 bytes, the only length that a key can be made of here.
            SupportedCipherSuite::Tls13(suite) if suite.aead_alg.key_len() == 32 => {
                suite.aead_alg.encrypter(key, [1; 12].into())
            }
            SupportedCipherSuite::Tls12(suite)
                if suite.aead_alg.key_block_shape().enc_key_len == 32 =>
            {
                let shape = suite.aead_alg.key_block_shape();
                let (fixed, explicit) = (shape.fixed_iv_len, shape.explicit_nonce_len);
                suite.aead_alg.encrypter(key, &[1; 12][..fixed], &[2; 8][..explicit])
            }
            _ => continue,
        };
        let mut seal = |seq| {
            let payload = OutboundChunks::Single(b"text");
            let (typ, version) = (ContentType::ApplicationData, ProtocolVersion::TLSv1_2);
            encrypter.encrypt(OutboundPlainMessage { typ, version, payload }, seq).map(drop)
        };
        assert_eq!(seal(0), Ok(()), "{suite:?}");
        assert_eq!(seal(0), Err(Error::EncryptError), "{suite:?}");
        assert_eq!(seal(5), Ok(()));
        assert_eq!(seal(4), Err(Error::EncryptError));
        assert_eq!(seal(6), Ok(()));
        assert_eq!(seal(u64::MAX), Err(Error::EncryptError), "there is no number behind it");
    }
}
