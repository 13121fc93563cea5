//! Before anything is measured: each side opens what the other one sealed, and refuses what somebody
//! changed.

use std::rc::Rc;

use super::runner::{Runner, text};
use super::{Call, RecordError, Subject};
use crate::peer::openssl::{Cipher, Refused};

/// A side of the comparison.
#[derive(Clone, Copy)]
pub(super) struct Party<'a> {
    /// Its name.
    pub(super) who: &'static str,
    pub(super) cipher: &'a Rc<Cipher>,
}

/// Names the side that refused a call.
pub(super) fn refused<'a>(
    who: &'static str,
    why: impl Fn() -> String + 'a,
) -> impl Fn(Refused) -> RecordError + 'a {
    move |Refused(what)| RecordError::Refused { who, what, why: why() }
}

/// A runner of one side.
pub(super) fn runner(
    side: Party<'_>,
    subject: Subject,
    sealed: &[u8],
) -> Result<Runner, RecordError> {
    let Party { who, cipher } = side;
    Runner::new(cipher, subject, sealed).map_err(refused(who, || cipher.side().errors()))
}

/// Compares both sides. Gives a record of the first one's, for both to open.
pub(super) fn compare(sides: [Party<'_>; 2], subject: Subject) -> Result<Vec<u8>, RecordError> {
    let sealer = Subject { call: sealer(subject.call), ..subject };
    let sealed = [seal(sides[0], sealer)?, seal(sides[1], sealer)?];
    match sealer.call {
        Call::Part | Call::Tls13Seal | Call::PacketSeal if sealed[0] != sealed[1] => {
            return Err(disagreement(format!(
                "{} and {} seal to different bytes",
                sides[0].who, sides[1].who
            )));
        }
        Call::Part => {}
        Call::Multiblock4 | Call::Multiblock8 => {
            cross(sides, subject, &sealed, split)?;
        }
        _ => cross(sides, subject, &sealed, |whole| Ok(vec![whole]))?,
    }
    let [theirs, _] = sealed;
    Ok(theirs)
}

/// By which call a record is made that another call opens, or whose keys another one sets.
fn sealer(call: Call) -> Call {
    match call {
        Call::Tls13Open => Call::Tls13Seal,
        Call::PacketOpen => Call::PacketSeal,
        Call::Tls12Open | Call::Key | Call::Context => Call::Tls12Seal,
        other => other,
    }
}

fn seal(side: Party<'_>, subject: Subject) -> Result<Vec<u8>, RecordError> {
    let mut runner = runner(side, subject, &[])?;
    let sealed = runner.sealed();
    sealed.map_err(refused(side.who, || runner.errors()))
}

fn disagreement(text: String) -> RecordError {
    RecordError::Disagreement(text)
}

type Split = fn(&[u8]) -> Result<Vec<&[u8]>, RecordError>;

/// Each side opens the other one's records, and none that is not as it was sealed.
fn cross(
    sides: [Party<'_>; 2],
    subject: Subject,
    sealed: &[Vec<u8>; 2],
    split: Split,
) -> Result<(), RecordError> {
    let call = match subject.call {
        Call::Tls13Seal | Call::Tls13Open => Call::Tls13Open,
        Call::PacketSeal | Call::PacketOpen => Call::PacketOpen,
        _ => Call::Tls12Open,
    };
    let texts = text(subject.size * subject.call.records());
    for (opener, sealer) in [(0, 1), (1, 0)] {
        let (who, whose) = (sides[opener].who, sides[sealer].who);
        let records = split(&sealed[sealer])?;
        if records.len() != subject.call.records() {
            return Err(disagreement(format!("{whose} made {} records", records.len())));
        }
        let mut expected = texts.as_slice();
        for (number, record) in (1..).zip(records) {
            let opening = Subject { call, ..subject };
            let mut runner = runner(sides[opener], opening, record)?;
            let opened = runner.opened(number, record);
            let opened = opened.map_err(refused(who, || runner.errors()))?;
            let (text, rest) = expected.split_at(subject.size.min(expected.len()));
            expected = rest;
            if opened != text {
                return Err(disagreement(format!("{who} opens {whose}'s record to other bytes")));
            }
            let mut forged = record.to_vec();
            let middle = forged.len() / 2;
            forged[middle] ^= 0x10;
            if runner.opened(number, &forged).is_ok() {
                return Err(disagreement(format!("{who} opens a forged record")));
            }
            let _ = runner.errors();
        }
    }
    Ok(())
}

/// Takes several records apart, each with its header (RFC 5246 section 6.2.1).
fn split(mut whole: &[u8]) -> Result<Vec<&[u8]>, RecordError> {
    let mut records = Vec::new();
    while let Some((&[kind, major, minor, high, low], rest)) = whole.split_first_chunk() {
        let len = usize::from(u16::from_be_bytes([high, low]));
        if [kind, major, minor] != [23, 3, 3] || len > rest.len() {
            return Err(disagreement(
                "several records are not laid out as TLS has them".to_owned(),
            ));
        }
        let (record, others) = rest.split_at(len);
        records.push(record);
        whole = others;
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::openssl::{Libcrypto, Side};

    #[test]
    fn several_records_are_taken_apart_and_others_refused() {
        let two = [&[23, 3, 3, 0, 2, 7, 7][..], &[23, 3, 3, 0, 1, 8]].concat();
        assert_eq!(split(&two).unwrap(), [&[7u8, 7][..], &[8]]);
        assert!(split(&[23, 3, 3, 0, 3, 7, 7]).is_err());
        assert!(split(&[22, 3, 3, 0, 1, 7]).is_err());
    }

    #[test]
    fn sides_that_do_not_agree_are_not_measured() {
        let library = match Libcrypto::load(None) {
            Ok(library) => library,
            Err(error) => return println!("SKIPPED: {error}"),
        };
        let side = Side::new(&library, None).unwrap();
        let mut compared = 0;
        for (one, other, call) in [
            (c"AES-128-CBC-HMAC-SHA1", c"AES-128-CBC-HMAC-SHA256", Call::Tls12Seal),
            (c"id-aes128-GCM", c"id-aes128-CCM", Call::Tls12Open),
            (c"id-aes128-GCM", c"ChaCha20-Poly1305", Call::Tls13Seal),
        ] {
            let (Some(one), Some(other)) = (side.cipher(one), side.cipher(other)) else { continue };
            let name =
                if call == Call::Tls12Seal { "aes-128-cbc-hmac-sha1" } else { "aes-128-gcm" };
            let subject = Subject { cipher: name.parse().unwrap(), call, size: 100 };
            let party = |who, cipher| Party { who, cipher };
            let [same, differ] = [("itself", &one), ("other", &other)]
                .map(|(who, cipher)| compare([party("one", &one), party(who, cipher)], subject));
            assert!(same.is_ok(), "{subject:?}");
            let error = differ.unwrap_err();
            println!("{error}");
            compared += 1;
        }
        assert!(compared > 0);
    }
}
