//! Record calls through EVP, with OpenSSL's default provider in both places: what it seals it opens.

use std::path::Path;
use std::time::Duration;

use convoy_bench::peer::PeerError;
use convoy_bench::peer::openssl::{Libcrypto, Side};
use convoy_bench::records::measure::{Effort, Outcome, Sides};
use convoy_bench::records::{PACKETS, PARTS, RecordCipher, Sizes, Subject};

#[test]
fn every_call_is_measured_and_the_default_provider_agrees_with_itself() {
    let library = match Libcrypto::load(None) {
        Ok(library) => library,
        Err(error) => return println!("SKIPPED: {error}"),
    };
    println!("{}", library.version());
    let side = || Side::new(&library, None).unwrap();
    let sides = Sides { default: side(), ours: side() };
    let effort = Effort { rounds: 2, time: Duration::from_micros(20) };
    let mut measured = 0;
    let records = vec![1, 64, 1000, 16_384];
    let sizes = Sizes { records, packets: PACKETS.to_vec(), parts: PARTS.to_vec() };
    for subject in Subject::all(&RecordCipher::ALL, &sizes) {
        match sides.measure(subject, effort).unwrap_or_else(|e| panic!("{subject:?}: {e}")) {
            Outcome::Measured(point) => {
                assert!(point.default_ns > 0.0 && point.convoy_ns > 0.0, "{point:?}");
                assert!(point.ratio.low <= point.ratio.median, "{point:?}");
                assert_eq!((point.rounds, point.size), (2, subject.size));
                measured += 1;
            }
            missing => println!("SKIPPED in part: {}: {missing:?}", subject.cipher.name),
        }
    }
    // Without AES-NI OpenSSL has no ciphers with a MAC inside; GCM it always has.
    assert!(measured >= 3 * (4 * 4 + 2 * 3 + 5 + 2), "{measured}");
}

#[test]
fn what_is_no_provider_is_refused_with_openssl_s_reason() {
    let library = match Libcrypto::load(None) {
        Ok(library) => library,
        Err(error) => return println!("SKIPPED: {error}"),
    };
    let error = Side::new(&library, Some(Path::new("/proc/self/exe"))).unwrap_err();
    assert!(matches!(error, PeerError::Unfit { .. }));
    assert!(error.to_string().contains("OpenSSL cannot load /proc/self/exe: error:"), "{error}");
}
