//! The lengths of the packets of SAs whose packets go the usual way.

use convoy_wire::esp::TRAILER_LEN;

use super::form::{Form, Known};
use super::sa::OutboundSa;
use crate::sa::Mode;

/// The lengths of an SA's packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tunnel {
    /// Inner packets of up to so many bytes fit the path; 0 for SAs whose packets go another way.
    pub(super) max: u32,
    /// Bytes in front of ESP, and in front of the inner packet.
    pub(super) front: u16,
    pub(super) before: u16,
    /// Bytes of trailer and ICV.
    pub(super) behind: u8,
    /// Alignment of inner packet, padding and trailer together, in bytes, less one.
    pub(super) align_mask: u8,
    /// The [bit](Form::bit) of the packets' form.
    pub(super) form: u8,
}

impl Tunnel {
    pub(super) fn new(sa: &OutboundSa) -> Self {
        if sa.mode != Mode::Tunnel || sa.ah.is_some() || sa.pad_to > 0 {
            return Self::default();
        }
        let (front, lengths) = (sa.outer.len(), sa.layout.lengths());
        let room = (sa.path_mtu as usize).saturating_sub(front);
        Self {
            // All of these are below 128, but for the first, which is below 2^16.
            max: lengths.max_payload_len(room).unwrap_or(0) as u32,
            front: front as u16,
            before: (front + lengths.prefix_len()) as u16,
            behind: (TRAILER_LEN + lengths.icv_len()) as u8,
            align_mask: (lengths.align() - 1) as u8,
            form: sa.layout.form().bit(),
        }
    }

    /// True if a packet of `len` bytes goes this way.
    #[inline]
    pub(super) const fn takes(&self, len: usize) -> bool {
        len <= self.max as usize
    }

    /// True if packets are of this form, or need not be.
    #[inline(always)]
    pub(super) fn is<K: Known>(&self) -> bool {
        K::FORM == Form::Any || self.form == K::FORM.bit()
    }
}
