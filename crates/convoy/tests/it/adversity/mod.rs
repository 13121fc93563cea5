//! Nothing that a policy protects is seen in clear on the wire, whatever happens to a gateway and its host: 50 kills
//! under traffic, link and route flaps, emptied packet filters and tables of flows, full ones, foreign marks.
//!
//! `CONVOY_SOAK_SECONDS` has each test go on for so long, and `CONVOY_SEED` begins otherwise.

mod acts;
mod traffic;
mod wire;
mod world;

use std::io::Write as _;
use std::time::{Duration, Instant};

use acts::Acts;
use traffic::Traffic;
use wire::Watcher;
use world::{Kind, World};

/// Says so past the harness, which would keep it from being seen.
fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

fn chosen(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

/// With some kills, or with as many as shown where `CONVOY_LONG` is set.
fn nothing_is_seen_in_clear(kind: Kind, [some, many]: [u64; 2]) {
    let kills = if std::env::var_os("CONVOY_LONG").is_some() { many } else { some };
    let Some(mut world) = World::start(kind) else { return };
    let seed = chosen("CONVOY_SEED").unwrap_or(1);
    let soak = chosen("CONVOY_SOAK_SECONDS").unwrap_or(0);
    let until = Instant::now() + Duration::from_secs(soak);
    let mut watcher = Watcher::start(&world);
    let traffic = Traffic::start(&world);
    traffic.passes(&world, "at first");
    world.queues_end_before_tun_interfaces();
    let mut acts = Acts::new(seed);
    // Panics must not leave the senders running.
    let (mut done, mut told) = (0, Instant::now());
    while done < kills || Instant::now() < until {
        // A gateway of daemons registers conntrack anew, which with a full table takes the kernel seconds.
        if done % 500 == if kind == Kind::Site { 0 } else { 250 } {
            acts.fill_the_table_of_flows(&world);
            acts.kill_and_more(&mut world);
            acts.empty_the_table_of_flows(&world);
        }
        acts.kill_and_more(&mut world);
        done += 1;
        if done % 10 == 0 {
            let what = format!("{kind:?}, seed {seed}, {done} kills\n{}", acts.latest());
            watcher.look(&world, &what);
            traffic.passes(&world, &what);
        }
        if soak > 0 && told.elapsed() > Duration::from_secs(60) {
            told = Instant::now();
            let left = until.saturating_duration_since(told).as_secs();
            say(&format!("{kind:?}: {done} kills, {}, {left} s to go", watcher.seen()));
        }
    }
    traffic.passes(&world, "in the end");
    watcher.look(&world, &format!("{kind:?}, seed {seed}, in the end\n{}", acts.latest()));
    println!("{kind:?}: {done} kills, {}; {}", watcher.seen(), acts.counts());
    drop(traffic);
    watcher.has_seen_enough();
}

#[test]
fn a_gateway_of_a_site_file_lets_nothing_out_in_clear() {
    nothing_is_seen_in_clear(Kind::Site, [12, 50]);
}

#[test]
fn a_gateway_of_daemons_lets_nothing_out_in_clear() {
    nothing_is_seen_in_clear(Kind::Daemons, [5, 15]);
}
