//! Speed of this machine without any tunnel: TCP and UDP through two gateways that forward in
//! the clear. `cargo run --release -p convoy-lab --example baseline [seconds]`

use std::{sync::atomic::AtomicBool, time::Duration};

use convoy_lab::{
    Family, LabError, Topology, TopologyConfig,
    traffic::{Direction, Ping, Rate, TcpBulk, UdpPaced, Watch},
};

fn main() -> Result<(), LabError> {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(3);
    let duration = Duration::from_secs(seconds);
    let never = AtomicBool::new(false);
    let lab = Topology::build(&TopologyConfig { named: false, ..TopologyConfig::default() })?;
    let _routes = lab.direct_routes()?;
    let (a, b) = (&lab.a.host, &lab.b.host);
    for family in [Family::V4, Family::V6] {
        let to = lab.b.host_address(family);
        let ping = Ping::new(to).run(a, &mut Watch::new(&never))?;
        println!("{family:?} ping: {} of {} {:?}", ping.received, ping.sent, ping.min_mean_max());
        for (direction, streams, verify) in [
            (Direction::Forward, 1, false),
            (Direction::Forward, 1, true),
            (Direction::Forward, 4, false),
            (Direction::Both, 1, false),
        ] {
            let bulk = TcpBulk { streams, direction, verify, ..TcpBulk::new(to, duration) };
            let report = bulk.run(a, b, &mut Watch::new(&never))?;
            println!(
                "{family:?} TCP {direction:?}, {streams} streams, verified: {verify}: \
                 {:.2} + {:.2} Gb/s, {} retransmits",
                report.forward.bits_per_second() / 1e9,
                report.backward.bits_per_second() / 1e9,
                report.forward.retransmits + report.backward.retransmits,
            );
        }
        for rate in [100_000_000, 1_000_000_000, 2_000_000_000] {
            let udp = UdpPaced::new(to, Rate::BitsPerSecond(rate), duration);
            let report = udp.run(a, b, &mut Watch::new(&never))?;
            let flow = report.forward;
            println!(
                "{family:?} UDP at {:.1} Gb/s: {:.3} Gb/s, {} sent, {} lost, {} socket drops, {} backlog drops",
                rate as f64 / 1e9,
                flow.bits_per_second() / 1e9,
                flow.sent,
                flow.lost(),
                flow.kernel_drops,
                report.backlog_drops,
            );
        }
    }
    Ok(())
}
