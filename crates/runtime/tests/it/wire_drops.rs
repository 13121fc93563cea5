//! Packets that a port refuses, that no wire port carries or that a port cannot send end under their
//! own reasons.

use std::time::Duration;

use crate::common::{Side, arena, cable, frame, settle, snapshot, surroundings};
use convoy_io::{IoError, Port, PortCounters, mem};
use convoy_ipsec::drop_reason::DropReason;
use convoy_ipsec::selector::Selector;
use convoy_ipsec::snapshot::{Published, Snapshot};
use convoy_ipsec::spd::{Direction, Policy, PolicyAction, Spd};
use convoy_packet::{Burst, Pool};
use convoy_runtime::{WireMatch, WirePort, Worker, WorkerPorts};

const CONFIG: mem::Config = mem::Config { depth: 512, send_timeout: Duration::from_millis(1) };

/// Refuses packets above 1,000 bytes as too long, and fails on all others. Whenever it is asked, it
/// has just received a packet with a wrong checksum.
struct Refusing(PortCounters);

impl Port for Refusing {
    fn rx(&mut self, _: &mut Pool, _: &mut Burst) -> Result<usize, IoError> {
        self.0.rx_checksum += 1;
        Ok(0)
    }
    fn tx(&mut self, pool: &mut Pool, from: &mut Burst) -> Result<(), IoError> {
        for frame in from.drain() {
            if frame.len() > 1000 {
                self.0.tx_too_big += 1;
            } else if frame.len() > 500 {
                self.0.tx_not_forwardable += 1;
            } else {
                self.0.tx_error += 1;
            }
            pool.free(frame);
        }
        Ok(())
    }
    fn counters(&self) -> PortCounters {
        self.0
    }
}

/// Sends packets of these lengths into a gateway with this wire port and returns the worker.
fn send(snapshot: Snapshot, wire: WirePort, lengths: &[usize], protocol: Option<u8>) -> Worker {
    let arena = arena(4096);
    let mut pool = arena.pool();
    let mut cabling = cable(1, &CONFIG);
    let plain = cabling.ports_a.remove(0).plain;
    let ports = vec![WorkerPorts { plain, interfaces: Vec::new(), wire: vec![wire] }];
    let published = Published::new(snapshot);
    let mut team = Worker::team(&surroundings(arena), ports, &published).unwrap();
    let mut burst = Burst::new();
    for (number, &len) in (0..).zip(lengths) {
        let mut frame = frame(&mut pool, Side::A, 0, number, len);
        if let Some(protocol) = protocol {
            frame.data_mut()[9] = protocol;
        }
        burst.push(frame).unwrap();
    }
    cabling.hosts_a[0].tx(&mut pool, &mut burst).unwrap();
    settle(&mut team);
    let mut worker = team.remove(0);
    worker.publish();
    worker
}

fn refusing() -> WirePort {
    WirePort { carries: WireMatch::default(), port: Box::new(Refusing(PortCounters::default())) }
}

fn udp_only() -> WirePort {
    let (port, _) = mem::pair(&CONFIG);
    let carries = WireMatch { protocol: Some(17), ..WireMatch::default() };
    WirePort { carries, port: Box::new(port) }
}

#[test]
fn what_a_port_cannot_send_is_counted_by_cause() {
    let worker =
        send(snapshot(Side::A, 1, |_| 0), refusing(), &[100, 1200, 1300, 200, 300, 600], None);
    let drops = &worker.stats().pipeline.drops;
    assert_eq!(drops.get(DropReason::IoTxTooBig), 2);
    assert_eq!(drops.get(DropReason::IoTxFailed), 3);
    assert_eq!(drops.get(DropReason::NotForwardable), 1);
    // Each packet once, however often the counters are published.
    let received = worker.stats().wire().value("rx_checksum");
    assert!(received > 0);
    assert_eq!(drops.get(DropReason::IpChecksum), received);
}

#[test]
fn esp_that_no_port_carries_is_a_failure_to_send() {
    let worker = send(snapshot(Side::A, 1, |_| 0), udp_only(), &[100; 4], None);
    assert_eq!(worker.stats().pipeline.drops.get(DropReason::IoTxFailed), 4);
}

#[test]
fn a_bypassed_packet_that_no_port_carries_is_named_so() {
    let policy = Policy {
        name: "in the clear".into(),
        priority: 0,
        direction: Direction::Outbound,
        selector: Selector::default(),
        action: PolicyAction::Bypass,
    };
    let snapshot = Snapshot::new(Spd::new([policy]).unwrap());
    let worker = send(snapshot, udp_only(), &[100; 4], Some(6));
    assert_eq!(worker.stats().pipeline.drops.get(DropReason::BypassImpossible), 4);
    assert_eq!(worker.stats().pipeline.bypassed.get(), 4);
}
