//! Marks and security contexts.

use crate::attribute::{Attributes, SEC_CTX};
use crate::bytes::{Fields, Writer};
use crate::refusal::Refusal;

/// A value under a mask: `struct xfrm_mark`. All zero, which is also what a message without one
/// means, goes with every packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mark {
    /// The value.
    pub value: u32,
    /// The bits of a packet's mark that count.
    pub mask: u32,
}

impl Mark {
    /// True if a packet's `mark` has this value under the mask.
    #[must_use]
    pub const fn matches(self, mark: u32) -> bool {
        mark & self.mask == self.value
    }

    pub(crate) fn take(attributes: &mut Attributes<'_>, number: u16) -> Self {
        let Some(payload) = attributes.take(number) else { return Self::default() };
        let mut fields = Fields::new(payload);
        Self { value: fields.u32(), mask: fields.u32() }
    }

    pub(crate) fn write(self, to: &mut Writer, number: u16) {
        if self != Self::default() {
            to.attribute(number, |to| {
                to.u32(self.value);
                to.u32(self.mask);
            });
        }
    }
}

/// A label of a security module such as SELinux (`struct xfrm_user_sec_ctx`). It narrows what a
/// policy covers; who knows no labels refuses it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SecurityContext {
    /// The domain of interpretation; 1 for security modules.
    pub doi: u8,
    /// The module; 1 for SELinux.
    pub algorithm: u8,
    /// The `exttype` of the structure, which nobody looks at.
    pub extension: u16,
    /// The label, of at most 4096 bytes.
    pub label: Vec<u8>,
}

impl SecurityContext {
    const LABEL_MAX: usize = 4096;

    /// Checks that the lengths agree (`verify_sec_ctx_len`).
    ///
    /// # Errors
    /// `EINVAL` when they do not, or the label is longer than 4096 bytes.
    pub(crate) fn check(attributes: &Attributes<'_>) -> Result<(), Refusal> {
        attributes.get(SEC_CTX).map(Self::read).transpose().map(drop)
    }

    pub(crate) fn take(attributes: &mut Attributes<'_>) -> Result<Option<Self>, Refusal> {
        attributes.take(SEC_CTX).map(Self::read).transpose()
    }

    fn read(payload: &[u8]) -> Result<Self, Refusal> {
        let invalid = Refusal::invalid("Invalid security context length");
        let mut fields = Fields::new(payload);
        let (len, extension) = (usize::from(fields.u16()), fields.u16());
        let (algorithm, doi) = (fields.u8(), fields.u8());
        let label_len = usize::from(fields.u16());
        if label_len > Self::LABEL_MAX || len != label_len.saturating_add(8) {
            return Err(invalid);
        }
        let label = fields.rest().get(..label_len).ok_or(invalid)?.to_vec();
        Ok(Self { doi, algorithm, extension, label })
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        let label = self.label.get(..Self::LABEL_MAX).unwrap_or(&self.label);
        let len = u16::try_from(label.len()).unwrap_or_default();
        to.attribute(SEC_CTX, |to| {
            to.u16(len.saturating_add(8));
            to.u16(self.extension);
            to.u8(self.algorithm);
            to.u8(self.doi);
            to.u16(len);
            to.bytes(label);
        });
    }
}
