//! Requests of an IKE daemon to a running Convoy for one tunnel, made again for as many as one likes: with other
//! SPIs, keys, reqids, peers and networks.

use std::collections::HashMap;
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};

use convoy_wire::Spi;
use convoy_xfrm::{
    Addresses, Flags, Key, Messages, Network, Policy, PolicyDirection, PolicyName, Reply, Request,
    Sa, SaInfo, Selector, Transform,
};

/// strongSwan's charon. `recorded/record_daemon.py` of `convoy-xfrm` says how both were made.
pub(crate) const CHARON: &str =
    include_str!("../../../../xfrm/tests/recorded/charon-on-convoy.txt");
/// Libreswan's pluto.
pub(crate) const PLUTO: &str = include_str!("../../../../xfrm/tests/recorded/pluto-on-convoy.txt");

/// Number of tunnels that there are networks for.
const TUNNELS_MAX: u32 = 1 << 15;

type Failure = Box<dyn Error>;

/// A request of the daemon, and the first message that answered it.
#[derive(Debug)]
pub(crate) struct Exchange {
    asked: Vec<u8>,
    answer: Vec<u8>,
}

impl Exchange {
    /// True if it asks for a policy of packets that leave.
    ///
    /// # Errors
    /// Fails if it is damaged.
    #[allow(dead_code, reason = "tests use a part of it")]
    pub(crate) fn is_out_policy(&self) -> Result<bool, Failure> {
        Ok(out_policy(request(&self.asked)?).is_some())
    }
}

/// The policy that a request adds or updates, if it is of packets that leave.
fn out_policy(request: Request) -> Option<Policy> {
    let (Request::NewPolicy(policy) | Request::UpdPolicy(policy)) = request else { return None };
    (policy.info.direction == PolicyDirection::Out).then_some(*policy)
}

/// Parts of a trace by name.
#[derive(Debug)]
pub(crate) struct Trace {
    parts: Vec<(&'static str, Vec<Exchange>)>,
    /// The network behind the peer.
    far: Network,
    /// The peer.
    peer: IpAddr,
    /// The gateway that was asked.
    pub(crate) here: IpAddr,
}

fn bytes(hex: &str) -> Result<Vec<u8>, Failure> {
    let digit = |byte: u8| char::from(byte).to_digit(16).ok_or("not a hexadecimal digit");
    let pairs = hex.as_bytes().chunks_exact(2);
    pairs.map(|pair| Ok((digit(pair[0])? << 4 | digit(pair[1])?) as u8)).collect()
}

fn request(bytes: &[u8]) -> Result<Request, Failure> {
    let message = Messages::new(bytes).next().ok_or("no message")?;
    Ok(Request::parse(&message)?.ok_or("no request")?)
}

fn reply(bytes: &[u8]) -> Result<Reply, Failure> {
    let message = Messages::new(bytes).next().ok_or("no answer")?;
    Ok(Reply::parse(&message)?)
}

/// Part of an answer that two answers to the same question share: its kind, and the reason of a refusal.
fn kind(reply: &Reply) -> String {
    match reply {
        Reply::Acknowledgement(done) => format!("{:?}", done.refusal),
        other => format!("{:?}", std::mem::discriminant(other)),
    }
}

impl Trace {
    /// Reads what is recorded.
    ///
    /// # Errors
    /// Fails if it is damaged.
    pub(crate) fn read(recorded: &'static str) -> Result<Self, Failure> {
        let mut parts: Vec<(&'static str, Vec<Exchange>)> = Vec::new();
        for line in recorded.lines() {
            let (mark, rest) = line.split_once(' ').ok_or("a line without a mark")?;
            let part = parts.last_mut();
            match (mark, part) {
                ("#", _) => {}
                ("$", _) => parts.push((rest, Vec::new())),
                (">", Some((_, part))) => {
                    part.push(Exchange { asked: bytes(rest)?, answer: Vec::new() });
                }
                ("<", Some((_, part))) => {
                    part.last_mut().ok_or("an answer to nothing")?.answer = bytes(rest)?;
                }
                _ => return Err("an unknown mark".into()),
            }
        }
        let asked = parts.iter().flat_map(|(_, part)| part).map(|one| request(&one.asked));
        for request in asked {
            if let Some(policy) = out_policy(request?)
                && let Addresses::Networks { destination: far, .. } = policy.info.selector.addresses
                && let Some(template) = policy.templates.first()
            {
                let (here, peer) = (template.source, template.destination);
                return Ok(Self { parts, far, peer, here });
            }
        }
        Err("no policy out".into())
    }

    /// A part by its name.
    ///
    /// # Errors
    /// Fails if there is none.
    pub(crate) fn part(&self, name: &str) -> Result<&[Exchange], Failure> {
        let found = self.parts.iter().find(|(other, _)| *other == name);
        Ok(found.map(|(_, part)| &part[..]).ok_or_else(|| format!("no part '{name}'"))?)
    }
}

/// One of many tunnels, each as the one that was recorded.
#[derive(Debug)]
pub(crate) struct Tunnel<'a> {
    trace: &'a Trace,
    number: u32,
    /// The SPIs of this one by those of the trace.
    spis: HashMap<Spi, Spi>,
}

impl<'a> Tunnel<'a> {
    /// The tunnel of a number.
    ///
    /// # Errors
    /// Fails if there is no network for it.
    pub(crate) fn new(trace: &'a Trace, number: u32) -> Result<Self, Failure> {
        if number >= TUNNELS_MAX {
            return Err(format!("no more than {TUNNELS_MAX} tunnels").into());
        }
        Ok(Self { trace, number, spis: HashMap::new() })
    }

    /// Asks what the daemon asked. `send` takes a datagram and gives the first message of the answer.
    ///
    /// # Errors
    /// Fails if the answer is of another kind than the daemon's was.
    pub(crate) fn ask(
        &mut self,
        exchange: &Exchange,
        send: impl FnOnce(&[u8]) -> Result<Vec<u8>, Failure>,
    ) -> Result<(), Failure> {
        let message = Messages::new(&exchange.asked).next().ok_or("no message")?;
        let (seq, flags) = (message.header().seq, message.header().flags);
        let asked = self.another(request(&exchange.asked)?)?;
        let answer = reply(&send(asked.build(seq, Flags(flags.0)).as_bytes())?)?;
        let recorded = reply(&exchange.answer)?;
        if kind(&answer) != kind(&recorded) {
            return Err(format!("{asked:?}: {answer:?} instead of {recorded:?}").into());
        }
        if let (Request::AllocSpi(_), Reply::NewSa(then), Reply::NewSa(now)) =
            (&asked, &recorded, &answer)
        {
            self.spis.extend(then.info.spi.zip(now.info.spi));
        }
        Ok(())
    }

    /// The SPI in the place of one of the trace: what was allocated, or one for each of the peer's.
    fn spi(&mut self, then: Option<Spi>) -> Option<Spi> {
        let then = then?;
        let next = (self.number << 8 | self.spis.len() as u32) + 256;
        Some(*self.spis.entry(then).or_insert(Spi::new(next)?))
    }

    fn address(&self, then: IpAddr) -> IpAddr {
        const PEERS: u32 = u32::from_be_bytes([100, 64, 0, 1]);
        if then == self.trace.peer { Ipv4Addr::from(PEERS + self.number).into() } else { then }
    }

    fn network(&self, then: Network) -> Network {
        const NETWORKS: u32 = u32::from_be_bytes([10, 128, 0, 0]);
        if then != self.trace.far {
            return then;
        }
        Network { address: Ipv4Addr::from(NETWORKS + (self.number << 8)).into(), ..then }
    }

    const fn reqid(&self, then: u32) -> u32 {
        // Those of daemons are below 2^16.
        if then == 0 { 0 } else { self.number << 16 | then }
    }

    fn selector(&self, selector: &mut Selector) {
        if let Addresses::Networks { source, destination } = &mut selector.addresses {
            (*source, *destination) = (self.network(*source), self.network(*destination));
        }
    }

    fn sa_info(&mut self, info: &mut SaInfo) {
        info.spi = self.spi(info.spi);
        info.reqid = self.reqid(info.reqid);
        (info.source, info.destination) =
            (self.address(info.source), self.address(info.destination));
    }

    fn sa(&mut self, sa: &mut Sa) -> Result<(), Failure> {
        self.sa_info(&mut sa.info);
        let Transform::Aead(aead) = &mut sa.transform else { return Err("no AEAD".into()) };
        let mut key = aead.key.expose().to_vec();
        // No two tunnels have one key.
        key.iter_mut().zip(self.number.to_be_bytes()).for_each(|(to, from)| *to ^= from);
        aead.key = Key::new(&key).ok_or("a key that is too long")?;
        Ok(())
    }

    fn policy(&mut self, policy: &mut Policy) {
        self.selector(&mut policy.info.selector);
        for template in &mut policy.templates {
            template.spi = self.spi(template.spi);
            template.reqid = self.reqid(template.reqid);
            template.source = self.address(template.source);
            template.destination = self.address(template.destination);
        }
    }

    /// A request of the trace as this tunnel's.
    fn another(&mut self, mut request: Request) -> Result<Request, Failure> {
        match &mut request {
            Request::AllocSpi(alloc) => {
                alloc.reqid = self.reqid(alloc.reqid);
                (alloc.source, alloc.destination) =
                    (self.address(alloc.source), self.address(alloc.destination));
            }
            Request::NewSa(sa) | Request::UpdSa(sa) => self.sa(sa)?,
            Request::DelSa(query) | Request::GetSa(query) => {
                query.key.spi = self.spi(query.key.spi);
                query.key.destination = self.address(query.key.destination);
                query.key.source = query.key.source.map(|source| self.address(source));
            }
            Request::NewPolicy(policy) | Request::UpdPolicy(policy) => self.policy(policy),
            Request::DelPolicy(key) | Request::GetPolicy(key) => {
                if let PolicyName::Selector(selector) = &mut key.name {
                    self.selector(selector);
                }
            }
            _ => {}
        }
        Ok(request)
    }
}
