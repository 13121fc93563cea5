//! Reasons for dropping a packet.
//!
//! The data path has no errors, only these reasons: each is a counter, and every packet that is
//! not forwarded adds to exactly one. The doc comment of a reason is the help text of its metric.

use crate::counter::Counter;

/// Defines the enum and, from the same list, its names and help texts.
macro_rules! reasons {
    (
        $(#[$meta:meta])*
        pub enum $ty:ident {
            $($(#[doc = $help:literal])+ $variant:ident = $name:literal,)+
        }
    ) => {
        $(#[$meta])*
        pub enum $ty {
            $($(#[doc = $help])+ $variant,)+
        }

        impl $ty {
            /// Every reason, in the order of its counter.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The metric's name: words in small letters joined by hyphens.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// One sentence or two for people: what happened, and the rule that says so.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($help),+).trim_ascii(),)+
                }
            }
        }
    };
}

reasons! {
    /// Reason for which a packet was dropped. The discriminant is the index of its counter.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    #[non_exhaustive]
    pub enum DropReason {
        /// An IP packet shorter than its header.
        IpTruncated = "ip-truncated",
        /// An IP packet whose version is neither 4 nor 6, or not the one its ESP trailer names.
        IpVersion = "ip-version",
        /// An IPv4 header length below 20 bytes or beyond the packet (RFC 791 section 3.1).
        IpHeaderLength = "ip-header-length",
        /// A length field that is smaller than the header it counts, or larger than the packet.
        IpTotalLength = "ip-total-length",
        /// A wrong IPv4 header checksum, seen by a port on an interface (RFC 791 section 3.1);
        /// elsewhere the kernel has looked at it.
        IpChecksum = "ip-checksum",
        /// A chain of IPv6 extension headers that is too long, out of order or cut off (RFC 8200
        /// section 4.1, RFC 7112).
        ExtensionHeaders = "extension-headers",
        /// A fragment with an impossible offset or length (RFC 791 section 3.2, RFC 8200 section
        /// 4.5).
        BadFragment = "bad-fragment",
        /// A packet too short for the ports or the ICMP type that policies look at (RFC 1858
        /// section 3).
        UpperTruncated = "upper-truncated",
        /// No policy covers the packet (RFC 4301 section 5.1: then it is discarded).
        NoPolicy = "no-policy",
        /// No policy covers the packet, and it is for its sender's link alone (RFC 4291 section 2.7,
        /// RFC 3927, RFC 5771): hosts send such by themselves, as Router Solicitations.
        LinkLocal = "link-local",
        /// A policy says DISCARD (RFC 4301 section 4.4.1).
        PolicyDiscard = "policy-discard",
        /// A policy says PROTECT, and there is no SA to do it (RFC 4301 section 5.1).
        NoSa = "no-sa",
        /// A packet had waited for an SA until it was of no more use (RFC 4301 section 5.1).
        AcquireTimeout = "acquire-timeout",
        /// Too many packets already waited for an SA (RFC 4301 section 5.1).
        AcquireFull = "acquire-full",
        /// A policy says BYPASS, but this path has no way to send the packet unprotected.
        BypassImpossible = "bypass-impossible",
        /// The SA has used its last sequence number and must be replaced (RFC 4303 section 3.3.3).
        SequenceExhausted = "sequence-exhausted",
        /// The leased sequence numbers are used up and no new ones are on stable storage yet.
        LeaseExhausted = "lease-exhausted",
        /// The SA's source address is no address of this host: another host may send on the SA, and both would
        /// use its sequence numbers, of which nonces are made (RFC 4106 section 3).
        SourceAbsent = "source-absent",
        /// The SA has reached a hard limit of its lifetime (RFC 4301 section 4.4.2.1).
        LifetimeExpired = "lifetime-expired",
        /// The packet does not fit the tunnel's path MTU and may not be fragmented (RFC 4301
        /// section 8.2).
        TooBig = "too-big",
        /// The TTL or hop limit was used up (RFC 4301 section 5.1.2.1).
        TtlExpired = "ttl-expired",
        /// A fragment met an SA in transport mode, which takes whole packets only (RFC 4303
        /// section 3.3.4).
        TransportFragment = "transport-fragment",
        /// The packet is not between the two hosts of the SA in transport mode (RFC 4301 section
        /// 4.1).
        TransportAddress = "transport-address",
        /// Something on the wire side that is no ESP or AH packet, IKE message or keepalive.
        NotEsp = "not-esp",
        /// A fragment whose packet's others did not come within 30 seconds (RFC 8200 section 4.5).
        FragmentTimeout = "fragment-timeout",
        /// A fragment for which there is no room, because too many packets wait for theirs, or one
        /// has too many gaps.
        FragmentsFull = "fragments-full",
        /// A fragment that contradicts another of its packet; then none of them is taken (RFC 5722
        /// section 4).
        FragmentOverlap = "fragment-overlap",
        /// A fragment that was there before, byte for byte (RFC 8200 section 4.5).
        FragmentDuplicate = "fragment-duplicate",
        /// A packet in fragments that together do not fit a frame.
        ReassemblyTooBig = "reassembly-too-big",
        /// A fragment on the wire side of something that is neither ESP, nor AH, nor in UDP (RFC 4303
        /// section 3.4.1).
        FragmentOnWire = "fragment-on-wire",
        /// A NAT keepalive; counted, not an error (RFC 3948 section 2.3).
        NatKeepalive = "nat-keepalive",
        /// An IKE message behind a non-ESP marker, which no IKE daemon here takes (RFC 3948 section 2.2).
        IkeMessage = "ike-message",
        /// An ESP packet shorter than its header, IV, trailer and ICV, or of a length its cipher
        /// cannot have made (RFC 4303 section 2).
        EspLength = "esp-length",
        /// An AH packet shorter than its header says, or whose ICV field is not of its SA's length
        /// (RFC 4302 section 2).
        AhLength = "ah-length",
        /// IP options or extension headers around AH: they have mutable parts of their own, which are
        /// not handled (RFC 4302 section 3.3.3.1).
        AhOptions = "ah-options",
        /// ESP in UDP for an SA without encapsulation, or without for one with it (RFC 3948).
        EncapMismatch = "encap-mismatch",
        /// No SA has this SPI, destination and protocol (RFC 4303 section 3.4.2).
        UnknownSpi = "unknown-spi",
        /// The sequence number was seen before (RFC 4303 section 3.4.3).
        Replayed = "replayed",
        /// The sequence number is left of the anti-replay window, or may have been accepted before a
        /// restart (RFC 4303 section 3.4.3).
        TooOld = "too-old",
        /// The integrity check failed: damaged, forged, sealed with another key, or with an extended
        /// sequence number far below the anti-replay window (RFC 4303 sections 3.4.4 and A2.2).
        BadIcv = "bad-icv",
        /// The padding is not 1, 2, 3 … or longer than the packet (RFC 4303 section 2.4).
        BadPadding = "bad-padding",
        /// The trailer names a next header that the SA's mode cannot carry (RFC 4303 section 2.6).
        BadNextHeader = "bad-next-header",
        /// A dummy packet, next header 59: traffic flow confidentiality, not an error (RFC 4303
        /// section 2.6).
        DummyPacket = "dummy-packet",
        /// An ESP payload that is no valid IP packet (RFC 4303 section 3.4.4.1).
        InnerMalformed = "inner-malformed",
        /// An ESP payload that no policy of its SA covers (RFC 4301 section 5.2).
        InnerPolicyMismatch = "inner-policy-mismatch",
        /// Congestion was experienced on the way and the inner transport cannot be told (RFC 6040
        /// section 4.2).
        EcnDrop = "ecn-drop",
        /// It is what its own SA sent, and a route leads it back into that SA's interface: protected again
        /// and again, it would never leave.
        RoutingLoop = "routing-loop",
        /// The engine refused the packet.
        EngineRejected = "engine-rejected",
        /// No frame, or no room in one, for the packet.
        NoFrame = "no-frame",
        /// The ring to the worker that owns the packet's SA was full.
        RingFull = "ring-full",
        /// The interface or socket did not take the packet.
        IoTxFailed = "io-tx-failed",
        /// The interface or socket refused the packet as too long.
        IoTxTooBig = "io-tx-too-big",
        /// No router forwards such a packet: to all hosts of a link, or from a loopback, multicast or
        /// broadcast address (RFC 1812 sections 5.3.5 and 5.3.7).
        NotForwardable = "not-forwardable",
    }
}

impl DropReason {
    /// False for packets that are of no use to anybody: those that hosts send on their link by themselves, keepalives
    /// and dummies.
    #[must_use]
    pub const fn is_loss(self) -> bool {
        !matches!(self, Self::LinkLocal | Self::NatKeepalive | Self::DummyPacket)
    }
}

const COUNT: usize = DropReason::ALL.len();

/// One counter for each [`DropReason`], written by one worker and read by anyone.
#[derive(Debug)]
pub struct DropCounters([Counter; COUNT]);

impl Default for DropCounters {
    fn default() -> Self {
        Self(core::array::from_fn(|_| Counter::default()))
    }
}

impl DropCounters {
    /// Counts one packet. Only the owning worker calls this.
    #[inline]
    pub fn count(&self, reason: DropReason) {
        self.add(reason, 1);
    }

    /// Counts `n` packets. Only the owning worker calls this.
    #[inline]
    pub fn add(&self, reason: DropReason, n: u64) {
        if let Some(counter) = self.0.get(reason as usize) {
            counter.add(n);
        }
    }

    /// Packets dropped for this reason.
    #[must_use]
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0.get(reason as usize).map_or(0, Counter::get)
    }

    /// Every reason with its count, zeros included.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&reason| (reason, self.get(reason)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn discriminants_are_the_indices_of_the_list() {
        for (index, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index, "{reason:?}");
        }
    }

    #[test]
    fn names_are_unique_and_kebab_case_of_the_variant() {
        let names: BTreeSet<_> = DropReason::ALL.iter().map(|r| r.name()).collect();
        assert_eq!(names.len(), DropReason::ALL.len());
        for reason in DropReason::ALL {
            let mut expected = String::new();
            for c in format!("{reason:?}").chars() {
                if c.is_ascii_uppercase() && !expected.is_empty() {
                    expected.push('-');
                }
                expected.push(c.to_ascii_lowercase());
            }
            assert_eq!(reason.name(), expected);
        }
    }

    #[test]
    fn help_is_the_doc_comment_on_one_line() {
        assert_eq!(
            DropReason::TooBig.help(),
            "The packet does not fit the tunnel's path MTU and may not be fragmented (RFC 4301 \
             section 8.2)."
        );
        for reason in DropReason::ALL {
            assert!(reason.help().ends_with('.') && !reason.help().contains("  "), "{reason:?}");
        }
    }

    #[test]
    fn counters_count_their_own_reason_only() {
        let counters = DropCounters::default();
        counters.count(DropReason::NoSa);
        counters.add(DropReason::NoSa, 2);
        for (reason, count) in counters.iter() {
            assert_eq!(count, if reason == DropReason::NoSa { 3 } else { 0 });
        }
    }
}
