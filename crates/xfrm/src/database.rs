//! The databases as a whole: how much is in them, what goes at once, and what happens to packets
//! without a policy.

use crate::address::ProtocolFilter;
use crate::attribute::{Attributes, Others, sad, spd};
use crate::bytes::{Fields, Writer};
use crate::policy::PolicyType;
use crate::refusal::{Errno, Refusal};

/// All SAs of a protocol go: `FLUSHSA`, as request and event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlushSa {
    /// Of which protocols.
    pub protocol: ProtocolFilter,
    /// Attributes without a place here.
    pub others: Others,
}

impl FlushSa {
    pub(crate) fn read(fixed: &[u8], attributes: Attributes<'_>) -> Self {
        let protocol = ProtocolFilter(Fields::new(fixed).u8());
        Self { protocol, others: attributes.others() }
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        to.u8(self.protocol.0);
        to.align();
        self.others.write(to);
    }
}

/// All policies go: `FLUSHPOLICY`, as request and event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlushPolicy {
    /// From which database; `None` for the main one.
    pub policy_type: Option<PolicyType>,
    /// Attributes without a place here.
    pub others: Others,
}

impl FlushPolicy {
    pub(crate) fn read(mut attributes: Attributes<'_>) -> Result<Self, Refusal> {
        let policy_type = PolicyType::take(&mut attributes)?;
        Ok(Self { policy_type, others: attributes.others() })
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        PolicyType::write(self.policy_type, to);
        self.others.write(to);
    }
}

/// Number of SAs: `NEWSADINFO`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SadInfo {
    /// The number that the request had in its place.
    pub flags: u32,
    /// SAs.
    pub count: u32,
    /// Buckets of the hash table, now and at most.
    pub buckets: (u32, u32),
}

impl SadInfo {
    pub(crate) fn read(fixed: &[u8], mut attributes: Attributes<'_>) -> Result<Self, Refusal> {
        let torn = || Refusal::bare(Errno::ERANGE);
        let flags = Fields::new(fixed).u32();
        let count = attributes.take_u32(sad::CNT).ok_or_else(torn)?;
        let buckets: [u32; 2] = numbers(attributes.take(sad::HINFO)).ok_or_else(torn)?;
        Ok(Self { flags, count, buckets: buckets.into() })
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        to.u32(self.flags);
        to.attribute_u32(sad::CNT, self.count);
        to.attribute(sad::HINFO, |to| {
            to.u32(self.buckets.0);
            to.u32(self.buckets.1);
        });
    }
}

/// `N` numbers at the front of an attribute.
fn numbers<const N: usize>(payload: Option<&[u8]>) -> Option<[u32; N]> {
    let (chunks, _) = payload?.as_chunks::<4>();
    let chunks: &[[u8; 4]; N] = chunks.first_chunk()?;
    Some(chunks.map(u32::from_ne_bytes))
}

/// Prefix lengths from which on policies are found by hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HashThreshold {
    /// Bits of the address on this side.
    pub local: u8,
    /// Bits of the address on the other side.
    pub remote: u8,
}

impl HashThreshold {
    fn take(attributes: &mut Attributes<'_>, number: u16) -> Option<Self> {
        let [local, remote] = *attributes.take(number)?.first_chunk()?;
        Some(Self { local, remote })
    }

    fn write(threshold: Option<Self>, number: u16, to: &mut Writer) {
        if let Some(Self { local, remote }) = threshold {
            to.attribute(number, |to| to.bytes(&[local, remote]));
        }
    }

    const fn fits(self, bits: u8) -> bool {
        self.local <= bits && self.remote <= bits
    }
}

/// New thresholds: `NEWSPDINFO` as a request. What is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetSpdInfo {
    /// A number that is not looked at.
    pub flags: u32,
    /// For IPv4, 0 to 32.
    pub v4: Option<HashThreshold>,
    /// For IPv6, 0 to 128.
    pub v6: Option<HashThreshold>,
    /// Attributes without a place here, by their numbers in this message.
    pub others: Others,
}

impl SetSpdInfo {
    pub(crate) fn read(fixed: &[u8], mut attributes: Attributes<'_>) -> Result<Self, Refusal> {
        let flags = Fields::new(fixed).u32();
        let v4 = HashThreshold::take(&mut attributes, spd::IPV4_HTHRESH);
        if v4.is_some_and(|threshold| !threshold.fits(32)) {
            return Err(Refusal::invalid("Invalid hash threshold (must be <= 32 for IPv4)"));
        }
        let v6 = HashThreshold::take(&mut attributes, spd::IPV6_HTHRESH);
        if v6.is_some_and(|threshold| !threshold.fits(128)) {
            return Err(Refusal::invalid("Invalid hash threshold (must be <= 128 for IPv6)"));
        }
        Ok(Self { flags, v4, v6, others: attributes.others() })
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        to.u32(self.flags);
        HashThreshold::write(self.v4, spd::IPV4_HTHRESH, to);
        HashThreshold::write(self.v6, spd::IPV6_HTHRESH, to);
        self.others.write_bare(to);
    }
}

/// Number of policies: `NEWSPDINFO` as an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpdInfo {
    /// The number that the request had in its place.
    pub flags: u32,
    /// Policies in, out and forward, and of sockets likewise.
    pub counts: [u32; 6],
    /// Buckets of the hash table, now and at most.
    pub buckets: (u32, u32),
    /// The threshold for IPv4; kernels start with 32 and 32.
    pub v4: Option<HashThreshold>,
    /// The threshold for IPv6; kernels start with 128 and 128.
    pub v6: Option<HashThreshold>,
}

impl SpdInfo {
    pub(crate) fn read(fixed: &[u8], mut attributes: Attributes<'_>) -> Result<Self, Refusal> {
        let torn = || Refusal::bare(Errno::ERANGE);
        let buckets: [u32; 2] = numbers(attributes.take(spd::HINFO)).ok_or_else(torn)?;
        Ok(Self {
            flags: Fields::new(fixed).u32(),
            counts: numbers(attributes.take(spd::INFO)).ok_or_else(torn)?,
            buckets: buckets.into(),
            v4: HashThreshold::take(&mut attributes, spd::IPV4_HTHRESH),
            v6: HashThreshold::take(&mut attributes, spd::IPV6_HTHRESH),
        })
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        to.u32(self.flags);
        to.attribute(spd::INFO, |to| self.counts.iter().for_each(|count| to.u32(*count)));
        to.attribute(spd::HINFO, |to| {
            to.u32(self.buckets.0);
            to.u32(self.buckets.1);
        });
        HashThreshold::write(self.v4, spd::IPV4_HTHRESH, to);
        HashThreshold::write(self.v6, spd::IPV6_HTHRESH, to);
    }
}

/// Decision about packets without a policy: `XFRM_USERPOLICY_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DefaultAction {
    /// 1: they are dropped.
    Block,
    /// 2: they pass.
    Accept,
}

/// Decision about packets without a policy in each direction: `SETDEFAULT`, and the answer to
/// `GETDEFAULT` (`struct xfrm_userpolicy_default`, 3 bytes). `None` leaves it as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    /// To this host.
    pub input: Option<DefaultAction>,
    /// Through this host.
    pub forward: Option<DefaultAction>,
    /// From this host.
    pub output: Option<DefaultAction>,
    /// Attributes without a place here.
    pub others: Others,
}

impl Defaults {
    pub(crate) fn read(fixed: &[u8], attributes: Attributes<'_>) -> Self {
        let mut fields = Fields::new(fixed);
        let mut action = || match fields.u8() {
            1 => Some(DefaultAction::Block),
            2 => Some(DefaultAction::Accept),
            _ => None,
        };
        let (input, forward, output) = (action(), action(), action());
        Self { input, forward, output, others: attributes.others() }
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        for action in [self.input, self.forward, self.output] {
            to.u8(match action {
                None => 0,
                Some(DefaultAction::Block) => 1,
                Some(DefaultAction::Accept) => 2,
            });
        }
        to.align();
        self.others.write(to);
    }
}

/// A number of 32 bits that comes back in the answer: `GETSADINFO` and `GETSPDINFO`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InfoQuery {
    /// The number.
    pub flags: u32,
    /// Attributes without a place here.
    pub others: Others,
}

impl InfoQuery {
    pub(crate) fn read(fixed: &[u8], attributes: Attributes<'_>) -> Self {
        Self { flags: Fields::new(fixed).u32(), others: attributes.others() }
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        to.u32(self.flags);
        self.others.write(to);
    }
}
