//! Views of operations: what the scheduler, the passes and the kernels see of them, and how they end.

use std::ptr;

use super::{Icv, OpenOp, SealOp, Stage};
use crate::{
    icv::{icv_matches, write_icv},
    isa::{
        Tables,
        packet::{GcmPacket, Parts},
    },
    key::Key,
};

/// Parts of an operation that a pass of any suite works on.
pub(crate) struct Whole<'p> {
    /// The nonce or IV, then zeros; for CTR, the first counter block.
    pub(crate) nonce: &'p [u8; 16],
    pub(crate) nonce_len: usize,
    /// Bytes of `data` in front of the text.
    pub(crate) header: usize,
    /// Additional data of an AEAD, trailer of a pair.
    pub(crate) beside: &'p [u8],
    pub(crate) data: &'p mut [u8],
}

/// Receiver of the outcome of an operation: of one that seals, or of one that opens.
pub(crate) enum Sink<'p> {
    Seal { icv: &'p mut [u8], sealed: &'p mut bool },
    Open { icv: &'p [u8], stage: &'p mut Stage },
    Give { tag: &'p mut [u8; 16], stage: &'p mut Stage },
}

impl Sink<'_> {
    /// Writes the ICV from the front of the whole MAC, or compares it. To end an operation that opens
    /// is left to the caller ([`Op::conclude`]).
    #[inline(always)]
    pub(crate) fn finish(self, tag: &[u8]) {
        match self {
            Self::Seal { icv, sealed } => {
                *sealed = true;
                write_icv(tag, icv);
            }
            Self::Open { icv, stage } => {
                *stage = if icv_matches(tag, icv) { Stage::Matches } else { Stage::Refused };
            }
            Self::Give { tag: to, stage } => {
                *stage = Stage::Decrypted;
                write_icv(tag, to);
            }
        }
    }
}

/// View of an operation for the scheduler.
pub(crate) trait Op<'a>: GcmPacket<'a> {
    /// The key.
    fn key(&self) -> &'a Key;

    /// True if the operation still has to run.
    fn is_due(&self) -> bool;

    /// True if its ICV was compared and does not match, but it has not been wiped yet. False where
    /// nothing is compared.
    #[inline(always)]
    fn is_refused(&self) -> bool {
        false
    }

    /// True if it was opened and is not authentic. False where nothing is compared.
    #[inline(always)]
    fn is_forged(&self) -> bool {
        false
    }

    /// True if it was opened and its tag given away, so that nobody here knows whether it is authentic. False
    /// where tags are compared.
    #[inline(always)]
    fn is_unjudged(&self) -> bool {
        false
    }

    /// Ends what was opened, once nothing is left to be decrypted: wipes what does not match, and
    /// gives the verdict.
    #[inline(always)]
    fn conclude(&mut self) {}

    /// All of it, and where the outcome goes.
    fn split(&mut self) -> (Whole<'_>, Sink<'_>);
}

/// Makes the parts that passes need of an operation, its outcome apart; a macro, because it borrows single fields.
macro_rules! whole {
    ($op:ident) => {
        Whole {
            nonce: &$op.nonce.bytes,
            nonce_len: usize::from($op.nonce.len()),
            header: $op.header as usize,
            beside: $op.beside,
            data: $op.data,
        }
    };
}

macro_rules! common {
    () => {
        #[inline(always)]
        fn tables(&self) -> Option<&'a Tables> {
            self.key.tables()
        }

        #[inline(always)]
        fn key_address(&self) -> usize {
            ptr::from_ref(self.key).addr()
        }

        #[inline(always)]
        fn data_len(&self) -> usize {
            self.data.len()
        }

        #[inline(always)]
        fn parts(&mut self) -> Parts<'_> {
            let beyond = self.header.cast_signed() as isize;
            let aad_len = self.beside.len().wrapping_add_signed(beyond);
            Parts { counter: &self.nonce.bytes, aad: self.beside, aad_len, data: self.data }
        }
    };
}

impl<'a> GcmPacket<'a> for SealOp<'a> {
    const SEAL: bool = true;

    common!();

    #[inline(always)]
    fn finish(&mut self, tag: [u8; 16]) {
        self.sealed = true;
        write_icv(&tag, self.icv);
    }

    #[inline(always)]
    fn place(&mut self) -> Option<&mut [u8; 16]> {
        self.icv.try_into().ok()
    }

    #[inline(always)]
    fn settle(&mut self, _: bool) {
        self.sealed = true;
    }
}

impl<'a> Op<'a> for SealOp<'a> {
    #[inline(always)]
    fn key(&self) -> &'a Key {
        self.key
    }

    #[inline(always)]
    fn is_due(&self) -> bool {
        !self.sealed
    }

    #[inline(always)]
    fn split(&mut self) -> (Whole<'_>, Sink<'_>) {
        (whole!(self), Sink::Seal { icv: self.icv, sealed: &mut self.sealed })
    }
}

impl<'a> GcmPacket<'a> for OpenOp<'a> {
    const SEAL: bool = false;

    common!();

    #[inline(always)]
    fn finish(&mut self, tag: [u8; 16]) {
        match &mut self.icv {
            Icv::Compare(icv) => {
                let matches = icv_matches(&tag, icv);
                self.settle(matches);
            }
            Icv::Give(to) => {
                **to = tag;
                self.stage = Stage::Decrypted;
            }
        }
    }

    #[inline(always)]
    fn expected(&self) -> Option<&[u8; 16]> {
        match &self.icv {
            Icv::Compare(icv) => (*icv).try_into().ok(),
            Icv::Give(_) => None,
        }
    }

    #[inline(always)]
    fn place(&mut self) -> Option<&mut [u8; 16]> {
        match &mut self.icv {
            Icv::Compare(_) => None,
            Icv::Give(to) => Some(to),
        }
    }

    #[inline(always)]
    fn settle(&mut self, matches: bool) {
        self.stage = match self.icv {
            Icv::Give(_) => Stage::Decrypted,
            Icv::Compare(_) if matches => Stage::Authentic,
            Icv::Compare(_) => {
                self.data.fill(0);
                Stage::Forged
            }
        };
    }
}

impl<'a> Op<'a> for OpenOp<'a> {
    #[inline(always)]
    fn key(&self) -> &'a Key {
        self.key
    }

    #[inline(always)]
    fn is_due(&self) -> bool {
        self.stage == Stage::Due
    }

    #[inline(always)]
    fn is_refused(&self) -> bool {
        self.stage == Stage::Refused
    }

    #[inline(always)]
    fn is_forged(&self) -> bool {
        self.stage == Stage::Forged
    }

    #[inline(always)]
    fn is_unjudged(&self) -> bool {
        self.stage == Stage::Decrypted
    }

    #[inline(always)]
    fn conclude(&mut self) {
        match self.stage {
            Stage::Matches => self.stage = Stage::Authentic,
            Stage::Refused => {
                if let Some(text) = self.data.get_mut(self.header as usize..) {
                    text.fill(0);
                }
                self.stage = Stage::Forged;
            }
            Stage::Due | Stage::Authentic | Stage::Forged | Stage::Decrypted => {}
        }
    }

    #[inline(always)]
    fn split(&mut self) -> (Whole<'_>, Sink<'_>) {
        let stage = &mut self.stage;
        let sink = match &mut self.icv {
            Icv::Compare(icv) => Sink::Open { icv, stage },
            Icv::Give(tag) => Sink::Give { tag, stage },
        };
        (whole!(self), sink)
    }
}
