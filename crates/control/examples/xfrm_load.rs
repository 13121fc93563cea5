//! Loads tunnels into a running gateway as charon did it, or pluto, one request after another, and says how long
//! that took. `xfrm_load SOCKET TUNNELS [pluto] [flush]`; each tunnel is two SAs and three policies.
//!
//! Run it against a gateway of its own: `flush` takes all SAs and policies away again.

#[path = "../tests/it/replay/trace.rs"]
mod trace;

use std::error::Error;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use convoy_xfrm::{Flags, FlushPolicy, FlushSa, Messages, Reply, Request};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, socket,
};

use trace::{CHARON, PLUTO, Trace, Tunnel};

/// Part of the tunnels, one in so many, that come at the end.
const LAST: u32 = 20;

/// The mean of some times.
#[derive(Default)]
struct Mean {
    sum: Duration,
    count: u32,
}

impl Mean {
    fn add(&mut self, time: Duration) {
        self.sum += time;
        self.count += 1;
    }

    fn microseconds(&self) -> f64 {
        self.sum.as_secs_f64() * 1e6 / f64::from(self.count.max(1))
    }
}

struct Daemon(OwnedFd);

impl Daemon {
    fn connect(path: &str) -> Result<Self, Box<dyn Error>> {
        let socket =
            socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
        connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(Self(socket))
    }

    /// Sends a datagram and waits for the one that answers.
    fn send(&self, asked: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
        send(self.0.as_raw_fd(), asked, MsgFlags::MSG_NOSIGNAL)?;
        let mut answer = vec![0; 4096];
        let count = recv(self.0.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        answer.truncate(count);
        Ok(answer)
    }

    fn flush(&self, request: &Request) -> Result<(), Box<dyn Error>> {
        let answer = self.send(request.build(1, Flags::ACK).as_bytes())?;
        let message = Messages::new(&answer).next().ok_or("no answer")?;
        match Reply::parse(&message)? {
            Reply::Acknowledgement(done) => done.refusal.map_or(Ok(()), |why| Err(why.into())),
            other => Err(format!("{other:?}").into()),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: xfrm_load SOCKET TUNNELS [pluto] [flush]";
    let path = arguments.next().ok_or(usage)?;
    let tunnels: u32 = arguments.next().ok_or(usage)?.parse()?;
    let more: Vec<String> = arguments.collect();
    let has = |word: &str| more.iter().any(|other| other == word);
    let recorded = if has("pluto") { PLUTO } else { CHARON };
    let (daemon, trace) = (Daemon::connect(&path)?, Trace::read(recorded)?);
    println!("as asked of the gateway with the address {}", trace.here);
    let [start, comes] = [trace.part("start")?, trace.part("tunnel 1 comes")?];
    let begin = Instant::now();
    let mut slowest = Duration::ZERO;
    // What one more costs beside all the others.
    let (mut last, mut last_out) = (Mean::default(), Mean::default());
    for number in 0..tunnels {
        let before = Instant::now();
        let mut tunnel = Tunnel::new(&trace, number)?;
        let part = if number == 0 { start } else { &[] };
        for exchange in part.iter().chain(comes) {
            let asked = Instant::now();
            tunnel.ask(exchange, |asked| daemon.send(asked))?;
            let took = asked.elapsed();
            if number >= tunnels - tunnels.div_ceil(LAST) {
                last.add(took);
                if exchange.is_out_policy()? {
                    last_out.add(took);
                }
            }
        }
        slowest = slowest.max(before.elapsed());
    }
    let took = begin.elapsed();
    println!(
        "{} SAs and {} policies in {:.2} s: {:.0} us a request, the slowest tunnel {:.1} ms; at the end {:.0} us a \
         request, {:.0} us a policy out",
        2 * tunnels,
        3 * tunnels,
        took.as_secs_f64(),
        took.as_secs_f64() * 1e6 / f64::from(tunnels) / comes.len() as f64,
        slowest.as_secs_f64() * 1e3,
        last.microseconds(),
        last_out.microseconds(),
    );
    if has("flush") {
        let begin = Instant::now();
        daemon.flush(&Request::FlushPolicy(FlushPolicy::default()))?;
        daemon.flush(&Request::FlushSa(FlushSa::default()))?;
        println!("flushed in {:.2} s", begin.elapsed().as_secs_f64());
    }
    Ok(())
}
