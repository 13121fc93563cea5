//! Passes that jobs take part in, and sets of them.

use std::marker::PhantomData;

use super::job::Direction;
use crate::{HashAlg, KeyBits};

/// A pass of a cipher or AEAD: what the jobs of a batch go through together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CipherPass {
    CbcEncrypt(KeyBits),
    CbcDecrypt(KeyBits),
    Ctr(KeyBits),
    CcmSeal(KeyBits),
    CcmOpen(KeyBits),
    /// An AEAD that has a key type of its own.
    Aead(Direction),
}

/// A pass of a MAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MacPass {
    Hmac(HashAlg),
    /// AES-CMAC; and AES-XCBC, which is the same once its keys are derived.
    CbcMac(KeyBits),
}

/// The passes that a job takes part in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) cipher: Planned<CipherPass>,
    /// The MAC, if it comes before the cipher.
    pub(super) early_mac: Planned<MacPass>,
    /// The MAC, if it comes behind the cipher.
    pub(super) late_mac: Planned<MacPass>,
}

impl Plan {
    /// No pass at all.
    pub(super) const NOTHING: Self =
        Self { cipher: Planned::NONE, early_mac: Planned::NONE, late_mac: Planned::NONE };
}

impl Default for Plan {
    #[inline(always)]
    fn default() -> Self {
        Self::NOTHING
    }
}

/// A pass that a job takes part in, or none: by its index, so that to compare two or to add one to a set is one
/// instruction.
#[derive(Clone, Copy)]
pub(super) struct Planned<P> {
    index: u8,
    passes: PhantomData<P>,
}

impl<P> Planned<P> {
    /// No pass: the index of none.
    pub(super) const NONE: Self = Self { index: 31, passes: PhantomData };
}

impl<P: Pass> Planned<P> {
    #[inline(always)]
    pub(super) fn new(pass: P) -> Self {
        // At most 31.
        Self { index: pass.index() as u8, passes: PhantomData }
    }
}

impl<P> PartialEq for Planned<P> {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}

impl<P> Eq for Planned<P> {}

/// Passes that can be members of a set.
pub(super) trait Pass: Copy + 'static {
    /// All passes, by index; at most 31.
    const ALL: &'static [Self];

    /// Place among all.
    fn index(self) -> usize;
}

impl Pass for CipherPass {
    const ALL: &'static [Self] = &{
        use KeyBits::{Aes128, Aes192, Aes256};
        [
            Self::CbcEncrypt(Aes128),
            Self::CbcEncrypt(Aes192),
            Self::CbcEncrypt(Aes256),
            Self::CbcDecrypt(Aes128),
            Self::CbcDecrypt(Aes192),
            Self::CbcDecrypt(Aes256),
            Self::Ctr(Aes128),
            Self::Ctr(Aes192),
            Self::Ctr(Aes256),
            Self::CcmSeal(Aes128),
            Self::CcmSeal(Aes192),
            Self::CcmSeal(Aes256),
            Self::CcmOpen(Aes128),
            Self::CcmOpen(Aes192),
            Self::CcmOpen(Aes256),
            Self::Aead(Direction::Encrypt),
            Self::Aead(Direction::Decrypt),
        ]
    };

    #[inline(always)]
    fn index(self) -> usize {
        match self {
            Self::CbcEncrypt(bits) => bits as usize,
            Self::CbcDecrypt(bits) => 3 + bits as usize,
            Self::Ctr(bits) => 6 + bits as usize,
            Self::CcmSeal(bits) => 9 + bits as usize,
            Self::CcmOpen(bits) => 12 + bits as usize,
            Self::Aead(direction) => 15 + direction as usize,
        }
    }
}

impl Pass for MacPass {
    const ALL: &'static [Self] = &[
        Self::Hmac(HashAlg::Md5),
        Self::Hmac(HashAlg::Sha1),
        Self::Hmac(HashAlg::Sha224),
        Self::Hmac(HashAlg::Sha256),
        Self::Hmac(HashAlg::Sha384),
        Self::Hmac(HashAlg::Sha512),
        Self::CbcMac(KeyBits::Aes128),
        Self::CbcMac(KeyBits::Aes192),
        Self::CbcMac(KeyBits::Aes256),
    ];

    #[inline(always)]
    fn index(self) -> usize {
        match self {
            Self::Hmac(alg) => alg as usize,
            Self::CbcMac(bits) => HashAlg::ALL.len() + bits as usize,
        }
    }
}

/// A set of passes.
pub(super) struct PassSet<P> {
    /// A bit for each pass, at its index, and one for none.
    members: u32,
    passes: PhantomData<P>,
}

impl<P: Pass> PassSet<P> {
    const NONE: u32 = 1 << Planned::<P>::NONE.index;

    #[inline(always)]
    pub(super) fn new() -> Self {
        Self { members: 0, passes: PhantomData }
    }

    #[inline(always)]
    pub(super) fn insert(&mut self, pass: Planned<P>) {
        self.members |= 1 << pass.index;
    }

    /// True if no pass is a member.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.members & !Self::NONE == 0
    }

    /// The members by index.
    #[inline(always)]
    pub(super) fn iter(&self) -> impl Iterator<Item = P> + use<P> {
        let mut left = self.members & !Self::NONE;
        std::iter::from_fn(move || {
            let pass = P::ALL.get(left.trailing_zeros() as usize);
            left &= left.wrapping_sub(1);
            pass.copied()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_return_what_was_put_into_them() {
        fn check<P: Pass + PartialEq + std::fmt::Debug>() {
            for (index, &pass) in P::ALL.iter().enumerate() {
                assert_eq!(pass.index(), index, "{pass:?}");
            }
            assert!(P::ALL.len() <= 31);
            for step in 1..5 {
                let members: Vec<P> = P::ALL.iter().copied().step_by(step).collect();
                let mut set = PassSet::new();
                set.insert(Planned::NONE);
                assert!(set.is_empty());
                members.iter().rev().for_each(|&pass| set.insert(Planned::new(pass)));
                assert!(!set.is_empty());
                assert_eq!(set.iter().collect::<Vec<_>>(), members);
            }
        }
        check::<CipherPass>();
        check::<MacPass>();
    }
}
