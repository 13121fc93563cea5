//! Sequence numbers and replay windows, in both forms.

use std::net::IpAddr;

use crate::address;
use crate::attribute::{
    Attributes, ETIMER_THRESH, IF_ID, LTIME_VAL, MARK, Others, REPLAY_ESN_VAL, REPLAY_THRESH,
    REPLAY_VAL, SA_PCPU,
};
use crate::bytes::{Fields, Writer};
use crate::lifetime::Usage;
use crate::mark::Mark;
use crate::refusal::{Errno, Refusal};
use crate::sa::SaDirection;
use crate::sa_key::{RawSaId, SaKey};

/// Words of the largest bitmap: 4096 bits (`XFRMA_REPLAY_ESN_MAX`).
const BITMAP_WORDS_MAX: u32 = 128;

/// `struct xfrm_replay_state`: sequence numbers of 32 bits and a window of at most 32 packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Replay {
    /// The last sequence number sent.
    pub sent: u32,
    /// The highest sequence number received.
    pub received: u32,
    /// Packets up to `received` that came: bit 0 is `received` itself.
    pub bitmap: u32,
}

/// `struct xfrm_replay_state_esn`: numbers of 64 bits and windows up to 4096 packets. Daemons send it
/// also without ESN, for windows above 32.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReplayEsn {
    /// The last sequence number sent.
    pub sent: u64,
    /// The highest sequence number received.
    pub received: u64,
    /// The size of the window in packets; 0 for none.
    pub window: u32,
    /// Packets that came, in a ring of at most 128 words: the bit of a sequence number is the
    /// number modulo the size of the window.
    pub bitmap: Vec<u32>,
}

impl Replay {
    fn read(payload: &[u8]) -> Self {
        let mut fields = Fields::new(payload);
        Self { sent: fields.u32(), received: fields.u32(), bitmap: fields.u32() }
    }
}

const fn join(high: u32, low: u32) -> u64 {
    let [a, b, c, d] = high.to_be_bytes();
    let [e, f, g, h] = low.to_be_bytes();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// The high and the low half.
const fn halves(number: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = number.to_be_bytes();
    (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
}

impl ReplayEsn {
    /// Reads one whose length was checked to be 24 at least.
    ///
    /// # Errors
    /// `EINVAL` for bitmaps of more than 128 words, and for such as are only there in part; a
    /// structure without any of its bitmap stands for one of zeros.
    pub(crate) fn read(payload: &[u8]) -> Result<Self, Refusal> {
        let mut fields = Fields::new(payload);
        let words = fields.u32();
        if words > BITMAP_WORDS_MAX {
            return Err(Refusal::invalid("ESN bitmap length must be <= 128"));
        }
        let (sent, received) = (fields.u32(), fields.u32());
        let (sent_high, received_high) = (fields.u32(), fields.u32());
        let window = fields.u32();
        let words = usize::try_from(words).unwrap_or_default();
        let mut bitmap = vec![0; words];
        let rest = fields.rest();
        if !rest.is_empty() {
            if rest.len() < words.saturating_mul(4) {
                let text = "ESN attribute is too short to fit the full bitmap length";
                return Err(Refusal::invalid(text));
            }
            for (word, bytes) in bitmap.iter_mut().zip(rest.as_chunks().0) {
                *word = u32::from_ne_bytes(*bytes);
            }
        }
        let (sent, received) = (join(sent_high, sent), join(received_high, received));
        Ok(Self { sent, received, window, bitmap })
    }

    fn write(&self, to: &mut Writer) {
        let (sent_high, sent) = halves(self.sent);
        let (received_high, received) = halves(self.received);
        let words = u32::try_from(self.bitmap.len()).unwrap_or(BITMAP_WORDS_MAX);
        for value in [words, sent, received, sent_high, received_high, self.window] {
            to.u32(value);
        }
        for word in &self.bitmap {
            to.u32(*word);
        }
    }
}

/// The state of an SA's numbers, its counters, and how often events tell of them. An absent part is
/// left as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SaState {
    /// `XFRMA_REPLAY_VAL`.
    pub replay: Option<Replay>,
    /// `XFRMA_REPLAY_ESN_VAL`.
    pub replay_esn: Option<ReplayEsn>,
    /// `XFRMA_LTIME_VAL`: what the SA has done, which a daemon that moves it gives back.
    pub usage: Option<Usage>,
    /// `XFRMA_REPLAY_THRESH`: packets after which an event tells of the numbers.
    pub replay_threshold: Option<u32>,
    /// `XFRMA_ETIMER_THRESH`: tenths of a second after which an event tells of the numbers.
    pub timer_threshold: Option<u32>,
}

impl SaState {
    pub(crate) fn take(attributes: &mut Attributes<'_>) -> Result<Self, Refusal> {
        Ok(Self {
            replay: attributes.take(REPLAY_VAL).map(Replay::read),
            replay_esn: attributes.take(REPLAY_ESN_VAL).map(ReplayEsn::read).transpose()?,
            usage: attributes.take(LTIME_VAL).map(|payload| Usage::read(&mut Fields::new(payload))),
            replay_threshold: attributes.take_u32(REPLAY_THRESH),
            timer_threshold: attributes.take_u32(ETIMER_THRESH),
        })
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        if let Some(replay) = &self.replay_esn {
            to.attribute(REPLAY_ESN_VAL, |to| replay.write(to));
        }
        if let Some(replay) = self.replay {
            to.attribute(REPLAY_VAL, |to| {
                for value in [replay.sent, replay.received, replay.bitmap] {
                    to.u32(value);
                }
            });
        }
        if let Some(usage) = self.usage {
            to.attribute(LTIME_VAL, |to| usage.write(to));
        }
        to.attribute_if(REPLAY_THRESH, self.replay_threshold);
        to.attribute_if(ETIMER_THRESH, self.timer_threshold);
    }
}

/// Sequence numbers and counters of one SA: `GETAE`, `NEWAE`, and the event of that name
/// (`struct xfrm_aevent_id`, 48 bytes).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// Identity of the SA.
    pub sa: SaKey,
    /// Its source address.
    pub source: IpAddr,
    /// Its request number.
    pub reqid: u32,
    /// In a question what is wanted, in an event what caused it: bits of [`AsyncEvent`]'s constants.
    pub flags: u32,
    /// The state itself.
    pub state: SaState,
    /// The direction, where the SA has one.
    pub direction: Option<SaDirection>,
    /// The processor that the SA is for (RFC 9611).
    pub cpu: Option<u32>,
    /// Attributes without a place here.
    pub others: Others,
}

impl AsyncEvent {
    /// The packet threshold is wanted.
    pub const REPLAY_THRESHOLD: u32 = 1;
    /// Sequence numbers are wanted.
    pub const REPLAY_VALUE: u32 = 2;
    /// Counters are wanted.
    pub const LIFETIME_VALUE: u32 = 4;
    /// The time threshold is wanted.
    pub const TIMER_THRESHOLD: u32 = 8;
    /// The packet threshold caused the event.
    pub const CAUSE_REPLAY: u32 = 16;
    /// The time threshold caused the event.
    pub const CAUSE_TIMER: u32 = 32;
    /// A `NEWAE` caused the event.
    pub const CAUSE_UPDATE: u32 = 64;

    /// A question has no state to look at.
    pub(crate) fn read_question(fixed: &[u8], attributes: Attributes<'_>) -> Result<Self, Refusal> {
        Self::with(fixed, attributes, |_| Ok(SaState::default()))
    }

    pub(crate) fn read(fixed: &[u8], attributes: Attributes<'_>) -> Result<Self, Refusal> {
        Self::with(fixed, attributes, SaState::take)
    }

    fn with<'a>(
        fixed: &[u8],
        mut attributes: Attributes<'a>,
        state: impl FnOnce(&mut Attributes<'a>) -> Result<SaState, Refusal>,
    ) -> Result<Self, Refusal> {
        let mut fields = Fields::new(fixed);
        let raw = RawSaId::read(&mut fields);
        let source = fields.array();
        let (flags, reqid) = (fields.u32(), fields.u32());
        let version = raw.version().ok_or_else(|| Refusal::bare(Errno::ESRCH))?;
        let mut sa = raw.key(Errno::ESRCH)?;
        sa.mark = Mark::take(&mut attributes, MARK);
        sa.if_id = attributes.take_u32(IF_ID).unwrap_or_default();
        Ok(Self {
            sa,
            source: address::address(version, source),
            reqid,
            flags,
            state: state(&mut attributes)?,
            direction: SaDirection::take(&mut attributes),
            cpu: attributes.take_u32(SA_PCPU),
            others: attributes.others(),
        })
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        self.sa.write_id(to);
        to.address(self.source);
        to.u32(self.flags);
        to.u32(self.reqid);
        self.state.write(to);
        self.sa.mark.write(to, MARK);
        to.attribute_unless_zero(IF_ID, self.sa.if_id);
        to.attribute_if(SA_PCPU, self.cpu);
        SaDirection::write(self.direction, to);
        self.others.write(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn esn(words: u32, payload_words: usize) -> Result<ReplayEsn, Refusal> {
        let mut bytes = Vec::new();
        for value in [words, 1, 2, 3, 4, 64] {
            bytes.extend_from_slice(&u32::to_ne_bytes(value));
        }
        for word in 0..payload_words {
            bytes.extend_from_slice(&u32::try_from(word + 7).unwrap().to_ne_bytes());
        }
        ReplayEsn::read(&bytes)
    }

    #[test]
    fn halves_make_whole_numbers() {
        let state = esn(2, 2).unwrap();
        assert_eq!((state.sent, state.received), (0x3_0000_0001, 0x4_0000_0002));
        assert_eq!((state.window, state.bitmap.as_slice()), (64, &[7, 8][..]));
        assert_eq!(halves(0x3_0000_0001), (3, 1));
    }

    #[test]
    fn a_missing_bitmap_is_zeros_and_a_torn_one_is_refused() {
        assert_eq!(esn(128, 0).unwrap().bitmap, [0; 128]);
        assert!(esn(3, 2).unwrap_err().text.contains("too short"));
        assert!(esn(129, 129).unwrap_err().text.contains("<= 128"));
        assert!(esn(u32::MAX, 0).is_err());
    }
}
