//! Counts of what a port has carried and lost.

use convoy_packet::Frame;

macro_rules! port_counters {
    ($($(#[doc = $help:literal])+ $name:ident: $kind:ident,)+) => {
        /// Counts of one port since it was opened.
        ///
        /// A port has one owner, so these are plain numbers; a caller that wants them elsewhere publishes
        /// the copy that [`Port::counters`](crate::Port::counters) returns.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct PortCounters {
            $($(#[doc = $help])+ pub $name: u64,)+
        }

        impl PortCounters {
            /// All counters as (name, help text, value), in a fixed order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), concat!($($help),+).trim_ascii_start(), self.$name),)+]
                    .into_iter()
            }

            /// The counters of lost packets as (name, value), in a fixed order.
            pub fn losses(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), Kind::$kind, self.$name),)+]
                    .into_iter()
                    .filter(|(_, kind, _)| *kind == Kind::Loss)
                    .map(|(name, _, value)| (name, value))
            }
        }

        impl core::ops::AddAssign for PortCounters {
            /// Sums counter by counter, for totals over several ports.
            fn add_assign(&mut self, other: Self) {
                $(self.$name = self.$name.wrapping_add(other.$name);)+
            }
        }
    };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Work,
    Loss,
}

port_counters! {
    /// Packets handed to the pipeline.
    rx_packets: Work,
    /// Bytes of those packets, IP headers included.
    rx_bytes: Work,
    /// Packets given to the kernel or the peer.
    tx_packets: Work,
    /// Bytes of those packets, IP headers included.
    tx_bytes: Work,
    /// System calls made to receive.
    rx_calls: Work,
    /// System calls made to send.
    tx_calls: Work,
    /// Super-segments received and split into packets.
    rx_supers: Work,
    /// Super-segments sent, each made of several packets.
    tx_supers: Work,
    /// Times receiving stopped because no frame was free; the packets stay where they are.
    rx_no_frame: Work,
    /// Times sending waited because the socket buffer or the peer's ring was full.
    tx_waits: Work,
    /// Received packets that were longer than a frame.
    rx_truncated: Loss,
    /// Received bytes that are no packet, or a super-segment that contradicts itself.
    rx_malformed: Loss,
    /// Received packets whose IPv4 header checksum is wrong (RFC 791 section 3.1).
    rx_checksum: Loss,
    /// Received frames that are not for this port: VLAN tags, other protocols than IP.
    rx_foreign: Loss,
    /// Packets that the kernel or a ring dropped before they could be received.
    rx_kernel_drops: Loss,
    /// Packets of SPIs without an SA that a filter dropped in the kernel during a flood ([`SpiFilter`](crate::SpiFilter)).
    rx_unknown_spi: Loss,
    /// Packets with sequence numbers before the anti-replay window that it dropped.
    rx_too_old: Loss,
    /// Packets not sent because the buffer stayed full for the whole time allowed.
    tx_would_block: Loss,
    /// Packets not sent because they exceed the link's MTU and must not be fragmented.
    tx_too_big: Loss,
    /// Packets not sent because the next hop did not answer (ARP, Neighbour Discovery), or too many
    /// waited for it.
    tx_unresolved: Loss,
    /// Packets not sent because no route leads to their destination through the interface.
    tx_no_route: Loss,
    /// Packets not sent because no router forwards them: to all hosts of a link, or from a loopback,
    /// multicast or broadcast address (RFC 1812 sections 5.3.5 and 5.3.7).
    tx_not_forwardable: Loss,
    /// Packets not sent because their outer header does not suit the port.
    tx_malformed: Loss,
    /// Packets not sent because the kernel's packet filter drops them (EPERM).
    tx_denied: Loss,
    /// Packets not sent because the kernel refused them for another reason (no route, link down).
    tx_error: Loss,
    /// Packets lost on purpose by the fault injector.
    fault_losses: Loss,
    /// Packets not recorded because the capture was full or its writer too slow; they were carried.
    capture_misses: Work,
}

impl PortCounters {
    /// Counts packets that were received.
    #[inline]
    pub(crate) fn add_received(&mut self, packets: &[Frame]) {
        self.rx_packets += packets.len() as u64;
        self.rx_bytes += packets.iter().map(|packet| packet.len() as u64).sum::<u64>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_help_and_values_go_together() {
        let counters = PortCounters { rx_packets: 3, tx_too_big: 2, ..Default::default() };
        let all: Vec<_> = counters.iter().collect();
        assert_eq!(all[0], ("rx_packets", "Packets handed to the pipeline.", 3));
        assert!(counters.losses().any(|l| l == ("tx_too_big", 2)));
        assert!(counters.losses().all(|(name, _)| name != "rx_packets"));
        let mut sum = counters;
        sum += counters;
        assert_eq!((sum.rx_packets, sum.tx_too_big), (6, 4));
    }
}
