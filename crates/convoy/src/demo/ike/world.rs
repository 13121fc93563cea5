//! Two networks, two daemons, and what carries their packets.

use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use convoy_control::folder::make;
use convoy_lab::strongswan::{
    self, Child, Connection, DataPlane, Identity, StrongSwan, StrongSwanConfig,
};
use convoy_lab::{
    Capture, CaptureConfig, Family, HOST_LINK, IpNet, LAN_LINK, Topology, WIRE_LINK, WireReport,
    wire_report,
};
use tempfile::TempDir;

use super::args::{IkeArgs, Peers};
use crate::demo::engine;
use crate::demo::folder::Folder;
use crate::demo::gateways::Gateway;
use crate::demo::lab;
use crate::interrupt::Interrupt;

/// Both sides, the initiator first.
pub(super) const SIDES: [&str; 2] = ["left", "right"];
/// Files in memory, on every Linux distribution.
const MEMORY: &str = "/dev/shm";
/// Pre-shared key of both daemons. It belongs to a demonstration, and is gone with it.
const SECRET: &str = "of this demonstration only";
/// Longest time in which a daemon makes a tunnel: a guard against hanging; a busy machine takes long.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// MTU of the wire in bytes.
const MTU: u16 = 1500;
/// Second byte of the first network that a tunnel of many leads to.
const FIRST_NETWORK: u8 = 101;

/// Packages that are not installed.
pub(super) fn missing(peers: Peers) -> Vec<&'static str> {
    let plane = match peers {
        Peers::Convoy => DataPlane::Xfrm { launcher: Vec::new() },
        Peers::Mixed | Peers::Libipsec => DataPlane::Libipsec,
    };
    strongswan::missing(&plane)
}

/// Proof of identity of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    SharedKey,
    Certificate,
}

/// A tunnel: an IKE SA and its child of the same name.
#[derive(Clone, Debug)]
pub(super) struct Tunnel {
    pub(super) name: String,
    /// Network that it protects behind the right gateway.
    right: IpNet,
    /// The address of host B that it leads to.
    pub(super) to: IpAddr,
}

/// One gateway with its daemon.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) daemon: Option<StrongSwan>,
    pub(super) gateway: Option<Gateway>,
    /// The site file of Convoy, where it carries the packets.
    site: Option<PathBuf>,
    plane: DataPlane,
    folder: PathBuf,
    identity: Identity,
}

#[derive(Debug)]
pub(super) struct World {
    // In this order: the processes, the namespaces they are in, their files.
    pub(super) sides: [Side; 2],
    /// Everything but ESP, to the end.
    capture: Option<Capture>,
    /// Everything, until there is much of it.
    sample: Option<Capture>,
    pub(super) topology: Topology,
    pub(super) tunnels: Vec<Tunnel>,
    pub(super) seconds: u32,
    peers: Peers,
    pub(super) folder: Folder,
    /// Folder in which gateways keep what daemons negotiated; never on a disk.
    _memory: Option<TempDir>,
    /// The left gateway's address on the wire; it moves.
    pub(super) left_address: IpNet,
}

impl World {
    pub(super) fn build(args: &IkeArgs, folder: Folder) -> anyhow::Result<Self> {
        let topology = lab::build(MTU).map_err(anyhow::Error::msg)?;
        let home = std::path::absolute(folder.path())?;
        let sides = SIDES.map(|name| home.join(name));
        for side in &sides {
            clear(side)?;
            make(side)?;
        }
        let identities = strongswan::identities(&home.join(SIDES[0]), &SIDES)?;
        let with_convoy = match args.peers {
            Peers::Convoy => [true, true],
            Peers::Mixed => [true, false],
            Peers::Libipsec => [false, false],
        };
        // Without such a folder a gateway forgets when it ends, and says so.
        let memory = tempfile::Builder::new().prefix("convoy-demo-ike-").tempdir_in(MEMORY).ok();
        let workers = format!("\n[workers]\ncount = {}\n", args.worker_count());
        let more = workers + &engine::section(&args.engine, &args.fault);
        let mut made = Vec::new();
        for ((folder, identity), with_convoy) in sides.into_iter().zip(identities).zip(with_convoy)
        {
            let more = with_convoy.then_some(&*more);
            made.push(Side::new(folder, identity, more, memory.as_ref())?);
        }
        let sides: [Side; 2] =
            made.try_into().map_err(|_| anyhow::anyhow!("there are two sides"))?;
        let tunnels = tunnels(&topology, args.tunnels)?;
        let left_address = IpNet::new(topology.a.wire_address(Family::V4), 24)?;
        let (peers, seconds) = (args.peers, args.seconds);
        let (capture, sample) = (None, None);
        Ok(Self {
            sides,
            capture,
            sample,
            topology,
            tunnels,
            seconds,
            peers,
            folder,
            _memory: memory,
            left_address,
        })
    }

    pub(super) fn peers_in_words(&self) -> &'static str {
        match self.peers {
            Peers::Convoy => "strongSwan on Convoy, both sides",
            Peers::Mixed => "strongSwan on Convoy, and strongSwan with its own ESP",
            Peers::Libipsec => "strongSwan with its own ESP on both sides, no Convoy",
        }
    }

    /// Starts the capture, the gateways and the daemons, with pre-shared keys.
    pub(super) fn start(&mut self, interrupt: &Interrupt) -> anyhow::Result<()> {
        let wire = &self.topology.a.gateway;
        let whole = CaptureConfig::default();
        self.sample = Some(Capture::start(wire, WIRE_LINK, &self.folder.capture(), whole)?);
        let config = CaptureConfig { except_esp: true, ..whole };
        self.capture = Some(Capture::start(wire, WIRE_LINK, &self.capture_file(), config)?);
        for side in 0..2 {
            self.start_gateway(side, interrupt)?;
            self.start_daemon(side)?;
        }
        Ok(())
    }

    /// Starts Convoy on a side that has it.
    pub(super) fn start_gateway(
        &mut self,
        side: usize,
        interrupt: &Interrupt,
    ) -> anyhow::Result<()> {
        let it = &self.sides[side];
        let Some(site) = &it.site else { return Ok(()) };
        let log = it.folder.join("convoy.log");
        let namespace = &self.site(side).gateway;
        let (mut gateway, ready) = Gateway::launch(SIDES[side], namespace, site, log)?;
        gateway.wait_ready(&ready, interrupt)?;
        self.sides[side].gateway = Some(gateway);
        Ok(())
    }

    fn start_daemon(&mut self, side: usize) -> anyhow::Result<()> {
        let connections = self.connections(side, Proof::SharedKey);
        let it = &self.sides[side];
        let mut config = StrongSwanConfig::new(&it.folder, it.plane.clone());
        config.identity = Some(it.identity.clone());
        config.connections = connections;
        self.restart_daemon(side, config)
    }

    /// Starts a daemon as it was.
    pub(super) fn restart_daemon(
        &mut self,
        side: usize,
        config: StrongSwanConfig,
    ) -> anyhow::Result<()> {
        let daemon = StrongSwan::start(&self.site(side).gateway, config)?;
        self.sides[side].daemon = Some(daemon);
        Ok(())
    }

    /// Certificates instead of pre-shared keys on both sides, for connections to come.
    pub(super) fn use_certificates(&mut self) -> anyhow::Result<()> {
        for side in 0..2 {
            let connections = self.connections(side, Proof::Certificate);
            self.daemon_mut(side)?.reload(connections)?;
        }
        Ok(())
    }

    fn connections(&self, side: usize, proof: Proof) -> Vec<Connection> {
        self.tunnels.iter().map(|tunnel| self.connection(tunnel, side, proof)).collect()
    }

    fn connection(&self, tunnel: &Tunnel, side: usize, proof: Proof) -> Connection {
        let (own, peer) = (SIDES[side], SIDES[1 - side]);
        let left = self.topology.a.network(Family::V4);
        let (near, far) = if side == 0 { (left, tunnel.right) } else { (tunnel.right, left) };
        let mut connection = match proof {
            Proof::Certificate => Connection::certificates(&tunnel.name, own, peer),
            Proof::SharedKey => {
                // Tunnels of many are told apart by who asks for them.
                let id = |name: &str| format!("{name}-{}", tunnel.name);
                Connection::psk(&tunnel.name, &id(own), &id(peer), SECRET)
            }
        };
        // The left side has any address, for it moves.
        let right = self.topology.b.wire_address(Family::V4);
        if side == 0 { &mut connection.remote } else { &mut connection.local }.push(right);
        connection.mobike = true;
        connection.child(Child::new(&tunnel.name, near, far))
    }

    fn site(&self, side: usize) -> &convoy_lab::Site {
        if side == 0 { &self.topology.a } else { &self.topology.b }
    }

    pub(super) fn daemon(&self, side: usize) -> anyhow::Result<&StrongSwan> {
        self.sides[side].daemon.as_ref().with_context(|| format!("no daemon {}", SIDES[side]))
    }

    fn daemon_mut(&mut self, side: usize) -> anyhow::Result<&mut StrongSwan> {
        self.sides[side].daemon.as_mut().with_context(|| format!("no daemon {}", SIDES[side]))
    }

    /// Makes every tunnel that is not there.
    pub(super) fn ensure_tunnels(&self) -> anyhow::Result<()> {
        let left = self.daemon(0)?;
        for tunnel in &self.tunnels {
            if left.installed(&tunnel.name)?.is_empty() {
                left.initiate(&tunnel.name, LIMIT)?;
            }
            // The initiator has its SAs a moment before the responder.
            self.daemon(1)?.wait_installed(&tunnel.name, LIMIT)?;
        }
        Ok(())
    }

    /// Makes every tunnel anew.
    pub(super) fn renew_tunnels(&self) -> anyhow::Result<()> {
        let left = self.daemon(0)?;
        let sas = left.sas()?;
        for tunnel in &self.tunnels {
            if sas.iter().any(|sa| sa.connection == tunnel.name) {
                left.terminate_ike(&tunnel.name)?;
            }
        }
        self.ensure_tunnels()
    }

    /// True if Convoy carries the packets of the left side.
    pub(super) fn left_is_convoy(&self) -> bool {
        self.sides[0].site.is_some()
    }

    fn capture_file(&self) -> PathBuf {
        self.folder.path().join("not-esp.pcap")
    }

    /// Ends the capture of everything, before there is much of it.
    pub(super) fn end_sample(&mut self) -> anyhow::Result<()> {
        match self.sample.take() {
            Some(capture) => complete(capture),
            None => Ok(()),
        }
    }

    /// Ends both captures, and tells what the wire carried: a sample, and of all but ESP all.
    pub(super) fn wire(&mut self) -> anyhow::Result<[WireReport; 2]> {
        self.end_sample()?;
        if let Some(capture) = self.capture.take() {
            complete(capture)?;
        }
        let mut inner =
            vec![self.topology.a.network(Family::V4), self.topology.a.network(Family::V6)];
        inner.extend([self.topology.b.network(Family::V4), self.topology.b.network(Family::V6)]);
        inner.extend(self.tunnels.iter().map(|tunnel| tunnel.right));
        let sample = wire_report(&self.folder.capture(), &inner)?;
        Ok([sample, wire_report(&self.capture_file(), &inner)?])
    }

    /// Ends daemons and gateways in good order.
    pub(super) fn end(mut self) -> anyhow::Result<()> {
        for side in &mut self.sides {
            if let Some(daemon) = side.daemon.take() {
                daemon.stop()?;
            }
        }
        for side in &mut self.sides {
            if let Some(gateway) = side.gateway.take() {
                gateway.end()?;
            }
        }
        self.topology.delete()?;
        Ok(())
    }
}

impl Side {
    fn new(
        folder: PathBuf,
        identity: Identity,
        more: Option<&str>,
        memory: Option<&TempDir>,
    ) -> anyhow::Result<Self> {
        let (site, plane) = if let Some(more) = more {
            let socket = folder.join("xfrm.sock");
            let own = std::env::current_exe().context("cannot find the own program")?;
            let words = ["exec".into(), "--socket".into(), socket.clone().into(), "--".into()];
            let launcher = [own.into()].into_iter().chain(words).collect();
            (Some(write_site(&folder, &socket, memory, more)?), DataPlane::Xfrm { launcher })
        } else {
            (None, DataPlane::Libipsec)
        };
        Ok(Self { daemon: None, gateway: None, site, plane, folder, identity })
    }
}

/// The site file of a gateway whose tunnels a daemon makes; `more` are further sections.
fn write_site(
    folder: &Path,
    socket: &Path,
    memory: Option<&TempDir>,
    more: &str,
) -> anyhow::Result<PathBuf> {
    let name = folder.file_name().and_then(|name| name.to_str()).context("a folder's name")?;
    let mut text = String::from("# Written by `convoy demo ike`, to learn from.\n");
    let _ = writeln!(text, "name = \"{name}\"");
    let _ = writeln!(text, "control_socket = \"{}\"", folder.join("control.sock").display());
    let _ = writeln!(text, "\n[plain]\ninterface = \"convoy0\"");
    let _ = writeln!(text, "\n[xfrm]\nsocket = \"{}\"", socket.display());
    if let Some(memory) = memory {
        let _ = writeln!(text, "state = \"{}\"", memory.path().join(name).display());
    }
    text.push_str(more);
    let file = folder.join("site.toml");
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

fn complete(capture: Capture) -> anyhow::Result<()> {
    let report = capture.stop()?;
    anyhow::ensure!(report.dropped == 0, "a capture missed {} packets", report.dropped);
    Ok(())
}

/// One tunnel between the networks, or many, each to a network of its own behind the right gateway.
fn tunnels(topology: &Topology, count: u16) -> anyhow::Result<Vec<Tunnel>> {
    let site = &topology.b;
    if count == 1 {
        let (right, to) = (site.network(Family::V4), site.host_address(Family::V4));
        return Ok(vec![Tunnel { name: "net".into(), right, to }]);
    }
    let mut made = Vec::new();
    for (number, octet) in (1..=count).zip(FIRST_NETWORK..) {
        let address = |host| IpNet::new([10, octet, 0, host].into(), 24);
        site.gateway.add_address(LAN_LINK, address(1)?)?;
        site.host.add_address(HOST_LINK, address(2)?)?;
        let (right, to) = (address(0)?, address(2)?.addr());
        made.push(Tunnel { name: format!("net{number}"), right, to });
    }
    Ok(made)
}

/// Takes away what an earlier demonstration left, and nothing else.
fn clear(side: &Path) -> anyhow::Result<()> {
    if !side.exists() {
        return Ok(());
    }
    let written = ["swanctl.conf", "site.toml", "authority.key"];
    let is_empty = fs::read_dir(side)?.next().is_none();
    let ours = is_empty || written.iter().any(|file| side.join(file).exists());
    anyhow::ensure!(ours, "{} exists, and was not made by a demonstration", side.display());
    fs::remove_dir_all(side).with_context(|| format!("cannot remove {}", side.display()))
}
