//! Forms that the packets of most SAs have, so that loops over packets of one form need not ask.

/// Layout of packets: most SAs have one of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    /// As the layout says.
    #[default]
    Any,
    /// An AEAD with a salt of four bytes, and the sequence number as IV.
    Counter,
    /// CBC and a MAC: the nonce is a block that nobody can predict.
    Cbc,
}

impl Form {
    /// A bit for this form.
    #[inline]
    pub(super) const fn bit(self) -> u8 {
        1 << self as u8
    }

    /// Common form of packets that have these [`bits`](Self::bit).
    pub(super) const fn of_all(bits: u8) -> Self {
        const COUNTER: u8 = Form::Counter.bit();
        const CBC: u8 = Form::Cbc.bit();
        match bits {
            COUNTER => Self::Counter,
            CBC => Self::Cbc,
            _ => Self::Any,
        }
    }
}

/// A [`Form`] that is known where code is compiled: what it settles is not asked for each packet.
pub(super) trait Known {
    const FORM: Form;
}

pub(super) struct Any;
pub(super) struct Counter;
pub(super) struct Cbc;

impl Known for Any {
    const FORM: Form = Form::Any;
}

impl Known for Counter {
    const FORM: Form = Form::Counter;
}

impl Known for Cbc {
    const FORM: Form = Form::Cbc;
}
