//! Checks of an operation's lengths against the limits of its key.

use crate::{OpError, isa::job::TRAILER_MAX, key::Key};

/// Bytes of an operation's parts, of an AEAD.
#[derive(Clone, Copy)]
pub(super) struct Apart {
    pub(super) nonce: u8,
    pub(super) aad: usize,
    pub(super) data: usize,
    pub(super) icv: usize,
}

/// Bytes of an operation's parts, of a pair of cipher and MAC.
#[derive(Clone, Copy)]
pub(super) struct Framed {
    pub(super) nonce: u8,
    /// Header and text together.
    pub(super) frame: usize,
    pub(super) header: usize,
    pub(super) trailer: usize,
    pub(super) icv: usize,
}

/// Bytes of an operation's parts that lie in one piece, of any suite.
#[derive(Clone, Copy)]
pub(super) struct InPlace {
    pub(super) nonce: u8,
    pub(super) packet: usize,
    pub(super) header: usize,
    pub(super) text: usize,
    /// Additional data of an AEAD, trailer of a pair.
    pub(super) beside: usize,
}

/// Places in a packet.
pub(super) struct Layout {
    /// Bytes of header and text together.
    pub(super) end: usize,
    /// Bytes of the ICV behind them.
    pub(super) icv: usize,
}

impl InPlace {
    #[inline(always)]
    fn apart(self, icv: usize) -> Apart {
        Apart { nonce: self.nonce, aad: self.beside, data: self.text, icv }
    }

    #[inline(always)]
    fn framed(self, frame: usize, icv: usize) -> Framed {
        Framed { nonce: self.nonce, frame, header: self.header, trailer: self.beside, icv }
    }
}

/// The layout of an operation of either form.
#[inline(always)]
pub(super) fn check_in_place(key: &Key, lengths: InPlace) -> Result<Layout, OpError> {
    let InPlace { packet, header, text, .. } = lengths;
    let icv = usize::from(key.limits().icv);
    let end = header.wrapping_add(text);
    let room = end >= header && end <= packet && packet - end >= icv;
    let fits = match key.limits().aead {
        true => header == 0 && fits_apart(key, lengths.apart(icv)),
        false => fits_framed(key, lengths.framed(end, icv)),
    };
    if room && fits {
        return Ok(Layout { end, icv });
    }
    Err(in_place_error(key, lengths))
}

#[cold]
#[inline(never)]
fn in_place_error(key: &Key, lengths: InPlace) -> OpError {
    let InPlace { packet, header, text, .. } = lengths;
    let icv = usize::from(key.limits().icv);
    let needed = header.saturating_add(text).saturating_add(icv);
    match key.limits().aead {
        _ if needed > packet => OpError::PacketTooShort { needed, given: packet },
        true if header > 0 => OpError::WrongForm {
            suite: key.suite(),
            hint: "leave the header to the additional data",
        },
        true => apart_error(key, lengths.apart(icv)),
        false => framed_error(key, lengths.framed(header + text, icv)),
    }
}

#[inline(always)]
pub(super) fn check_apart(key: &Key, lengths: Apart) -> Result<(), OpError> {
    if fits_apart(key, lengths) {
        return Ok(());
    }
    Err(apart_error(key, lengths))
}

#[inline(always)]
fn fits_apart(key: &Key, Apart { nonce, aad, data, icv }: Apart) -> bool {
    let limits = key.limits();
    let (fewest, most) = limits.nonce;
    let limit = if fewest == most { limits.data } else { ccm_limit(nonce) };
    limits.aead
        && icv == usize::from(limits.icv)
        && (fewest..=most).contains(&nonce)
        && data as u64 <= limit
        && aad as u64 <= AAD_MAX
}

/// Most bytes of additional data.
const AAD_MAX: u64 = 1 << 60;

/// Most bytes that CCM's length field can tell with a nonce of this length (NIST SP 800-38C
/// appendix A.1).
pub(crate) const fn ccm_limit(nonce: u8) -> u64 {
    let field = 15u32.saturating_sub(nonce as u32);
    if field >= 8 { u64::MAX } else { (1 << (8 * field)) - 1 }
}

#[cold]
fn apart_error(key: &Key, Apart { nonce, aad, data, icv }: Apart) -> OpError {
    let (suite, limits) = (key.suite(), key.limits());
    let (fewest, most) = limits.nonce;
    let limit = if fewest == most { limits.data } else { ccm_limit(nonce) };
    if !limits.aead {
        return OpError::WrongForm { suite, hint: "use framed, with the header in the frame" };
    }
    if !(fewest..=most).contains(&nonce) {
        let (expected, given) = (suite.nonce_bytes(), usize::from(nonce));
        return OpError::NonceLength { expected, given };
    }
    if icv != usize::from(limits.icv) {
        return OpError::IcvLength { expected: suite.icv_bytes(), given: icv };
    }
    if data as u64 > limit {
        return OpError::DataTooLong { limit, given: data };
    }
    OpError::AadTooLong { given: aad }
}

#[inline(always)]
pub(super) fn check_framed(key: &Key, lengths: Framed) -> Result<(), OpError> {
    if fits_framed(key, lengths) {
        return Ok(());
    }
    Err(framed_error(key, lengths))
}

#[inline(always)]
fn fits_framed(key: &Key, Framed { nonce, frame, header, trailer, icv }: Framed) -> bool {
    let limits = key.limits();
    let text = frame.wrapping_sub(header);
    !limits.aead
        && icv == usize::from(limits.icv)
        && nonce == limits.nonce.0
        && header <= frame
        && header <= HEADER_MAX
        && text as u64 <= limits.data
        && text & usize::from(limits.partial) == 0
        && trailer <= TRAILER_MAX
}

#[cold]
fn framed_error(key: &Key, Framed { nonce, frame, header, trailer, icv }: Framed) -> OpError {
    let (suite, limits) = (key.suite(), key.limits());
    if limits.aead {
        return OpError::WrongForm { suite, hint: "use new, with the additional data apart" };
    }
    if nonce != limits.nonce.0 {
        let (expected, given) = (suite.nonce_bytes(), usize::from(nonce));
        return OpError::NonceLength { expected, given };
    }
    if icv != usize::from(limits.icv) {
        return OpError::IcvLength { expected: suite.icv_bytes(), given: icv };
    }
    if trailer > TRAILER_MAX {
        return OpError::TrailerTooLong { given: trailer };
    }
    let Some(text) = frame.checked_sub(header) else {
        return OpError::HeaderBeyondFrame { header, frame };
    };
    if header > HEADER_MAX {
        return OpError::HeaderTooLong { given: header };
    }
    if text as u64 > limits.data {
        return OpError::DataTooLong { limit: limits.data, given: text };
    }
    OpError::NotWholeBlocks { block: suite.block_bytes(), given: text }
}

/// Most bytes of a header: what fits the operation's field for it.
const HEADER_MAX: usize = u32::MAX as usize;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cpu, KeyMaterial, SealKey, SecretBytes, Suite};

    fn key(suite: &str) -> SealKey {
        let suite: Suite = suite.parse().unwrap();
        let secret = |bytes| SecretBytes::copy_from(&vec![1; bytes]);
        let material = KeyMaterial {
            cipher: secret(suite.key_bytes()),
            integrity: secret(suite.integrity_key_bytes()),
        };
        SealKey::new(&Cpu::without("").unwrap(), suite, material).unwrap()
    }

    fn apart(key: &SealKey, nonce: u8, aad: usize, data: usize, icv: usize) -> Result<(), OpError> {
        check_apart(key.inner(), Apart { nonce, aad, data, icv })
    }

    fn framed(
        key: &SealKey,
        nonce: u8,
        frame: usize,
        header: usize,
        trailer: usize,
        icv: usize,
    ) -> Result<(), OpError> {
        check_framed(key.inner(), Framed { nonce, frame, header, trailer, icv })
    }

    #[test]
    fn lengths_beyond_an_aead_are_refused() {
        let gcm = key("aes-128-gcm-16");
        let check = |nonce, aad, data, icv| apart(&gcm, nonce, aad, data, icv);
        let limit = crate::GcmParams::MAX_DATA;
        let most = limit as usize;
        assert_eq!(check(12, 0, most, 16), Ok(()));
        assert_eq!(
            check(12, 0, most + 1, 16),
            Err(OpError::DataTooLong { limit, given: most + 1 })
        );
        let aad = (1usize << 60) + 1;
        assert_eq!(check(12, aad, 0, 16), Err(OpError::AadTooLong { given: aad }));
        for given in [0, 8, 12, 15, 17] {
            let error = OpError::IcvLength { expected: 16, given };
            assert_eq!(check(12, 0, 0, given), Err(error));
        }
        for given in [0, 11, 13, 16] {
            let error = OpError::NonceLength { expected: 12, given };
            assert_eq!(check(given as u8, 0, 0, 16), Err(error));
        }
        let framed = framed(&gcm, 12, 10, 0, 0, 16);
        assert!(matches!(framed, Err(OpError::WrongForm { .. })), "{framed:?}");
    }

    #[test]
    fn chacha20_ends_before_its_counter() {
        let chacha = key("chacha20-poly1305");
        let limit = ((1u64 << 32) - 2) * 64;
        let most = limit as usize;
        assert_eq!(apart(&chacha, 12, 0, most, 16), Ok(()));
        let error = OpError::DataTooLong { limit, given: most + 1 };
        assert_eq!(apart(&chacha, 12, 0, most + 1, 16), Err(error));
    }

    #[test]
    fn the_longer_ccm_s_nonce_the_shorter_its_data() {
        let ccm = key("aes-128-ccm-8");
        let check = |nonce, data| apart(&ccm, nonce, 0, data, 8);
        for (nonce, limit) in
            [(13, 0xffff), (12, 0xff_ffff), (11, u64::from(u32::MAX)), (8, (1 << 56) - 1)]
        {
            let most = limit as usize;
            assert_eq!(check(nonce, most), Ok(()));
            let error = OpError::DataTooLong { limit, given: most + 1 };
            assert_eq!(check(nonce, most + 1), Err(error));
        }
        assert_eq!(check(7, usize::MAX), Ok(()));
        for given in [6, 14] {
            let error = OpError::NonceLength { expected: 11, given };
            assert_eq!(check(given as u8, 0), Err(error));
        }
    }

    #[test]
    fn frames_that_do_not_fit_a_pair_are_refused() {
        let cbc = key("aes-128-cbc+hmac-sha1-96");
        let check =
            |nonce, frame, header, trailer, icv| framed(&cbc, nonce, frame, header, trailer, icv);
        assert_eq!(check(16, 24 + 64, 24, 4, 12), Ok(()));
        assert_eq!(check(16, 24, 24, 0, 12), Ok(()));
        let cases = [
            (check(12, 88, 24, 0, 12), OpError::NonceLength { expected: 16, given: 12 }),
            (check(16, 88, 24, 0, 16), OpError::IcvLength { expected: 12, given: 16 }),
            (check(16, 88, 25, 0, 12), OpError::NotWholeBlocks { block: 16, given: 63 }),
            (check(16, 88, 89, 0, 12), OpError::HeaderBeyondFrame { header: 89, frame: 88 }),
            (
                check(16, 88, usize::MAX, 0, 12),
                OpError::HeaderBeyondFrame { header: usize::MAX, frame: 88 },
            ),
            (check(16, 88, 24, 17, 12), OpError::TrailerTooLong { given: 17 }),
            (
                check(16, 1 << 33, 0, 0, 12),
                OpError::DataTooLong { limit: (1 << 32) - 1, given: 1 << 33 },
            ),
        ];
        for (outcome, error) in cases {
            assert_eq!(outcome, Err(error));
        }
        let apart = apart(&cbc, 16, 0, 64, 12);
        assert!(matches!(apart, Err(OpError::WrongForm { .. })), "{apart:?}");
    }
}
