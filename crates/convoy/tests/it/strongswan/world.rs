//! Two networks, and on each gateway a daemon on top of what carries its packets.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use convoy_host::IpNet;
use convoy_lab::libreswan::Libreswan;
use convoy_lab::strongswan::{Child, Connection, DataPlane, StrongSwan, StrongSwanConfig, missing};
use convoy_lab::traffic::{Ping, Watch};
use convoy_lab::{
    Capture, CaptureConfig, Family, Namespace, Topology, TopologyConfig, WIRE_LINK, wire_report,
};
use tempfile::TempDir;

use crate::common::{
    Gateway, by_sockets, can_make_namespaces, convoy, ip, libreswan, preload, text,
};

/// A guard against hanging: daemons take long on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
pub(crate) const NAMES: [&str; 2] = ["left", "right"];
pub(crate) const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
/// A flag nobody sets.
pub(crate) static NEVER: AtomicBool = AtomicBool::new(false);
static ALONE: Mutex<()> = Mutex::new(());

/// The daemon of a side, and what carries its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plane {
    /// charon on a gateway.
    Convoy,
    /// charon with ESP of its own.
    Libipsec,
    /// pluto on a gateway.
    Pluto,
}

/// Dropping it ends the daemons first, then the gateways, then the networks.
pub(crate) struct World {
    pub(crate) daemons: [Option<StrongSwan>; 2],
    pub(crate) plutos: [Option<Libreswan>; 2],
    pub(crate) gateways: [Option<Gateway>; 2],
    capture: Option<Capture>,
    pub(crate) lab: Topology,
    pub(crate) sites: [PathBuf; 2],
    folder: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl World {
    /// Gateways and daemons, with everything but ESP captured; none, said loudly, where they cannot
    /// run.
    pub(crate) fn start(planes: [Plane; 2]) -> Option<Self> {
        Self::start_with(planes, "")
    }

    /// The same with ciphers of old peers.
    pub(crate) fn start_legacy(planes: [Plane; 2]) -> Option<Self> {
        Self::start_from(planes, TempDir::new().unwrap(), ("legacy = true\n", ""), |_| ())
    }

    /// The same with more in the section `[xfrm]` of the site files, where `NAME` stands for the side's.
    pub(crate) fn start_with(planes: [Plane; 2], more: &str) -> Option<Self> {
        Self::start_as(planes, TempDir::new().unwrap(), more, |_| ())
    }

    /// The same in a folder, with daemons that are not as the laboratory would have them.
    pub(crate) fn start_as(
        planes: [Plane; 2],
        folder: TempDir,
        more: &str,
        change: impl Fn(&mut StrongSwanConfig),
    ) -> Option<Self> {
        Self::start_from(planes, folder, ("", more), change)
    }

    /// The same with more at the top of the site files, too.
    fn start_from(
        planes: [Plane; 2],
        folder: TempDir,
        (top, more): (&str, &str),
        change: impl Fn(&mut StrongSwanConfig),
    ) -> Option<Self> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        if !can_make_namespaces() {
            return None;
        }
        let absent = missing(&DataPlane::Libipsec);
        if !absent.is_empty() {
            say(&format!("SKIPPED: not installed: {}", absent.join(", ")));
            return None;
        }
        if planes.contains(&Plane::Pluto) && libreswan().is_none() {
            return None;
        }
        let lab = Topology::build(&TopologyConfig { named: false, ..TopologyConfig::default() });
        let lab = lab.unwrap();
        let config = CaptureConfig { except_esp: true, ..CaptureConfig::default() };
        let file = folder.path().join("wire.pcap");
        let capture = Capture::start(&lab.a.gateway, WIRE_LINK, &file, config).unwrap();
        let sites = NAMES.map(|name| {
            write_site(&folder.path().join(name), name, (top, &more.replace("NAME", name)))
        });
        let mut world = Self {
            daemons: [None, None],
            plutos: [None, None],
            gateways: [None, None],
            capture: Some(capture),
            lab,
            sites,
            folder,
            _alone: alone,
        };
        for (side, plane) in planes.into_iter().enumerate() {
            if plane != Plane::Libipsec {
                world.start_gateway(side);
            }
            world.start_daemon(side, plane, &change);
        }
        Some(world)
    }

    pub(crate) fn start_gateway(&mut self, side: usize) {
        let gateway = Gateway::start(self.gateway(side), &self.sites[side]);
        self.gateways[side] = Some(gateway);
    }

    fn start_daemon(&mut self, side: usize, plane: Plane, change: impl Fn(&mut StrongSwanConfig)) {
        let folder = self.folder.path().join(NAMES[side]);
        let launcher = launcher(&folder.join("xfrm.sock"));
        let plane = match plane {
            Plane::Libipsec => DataPlane::Libipsec,
            Plane::Convoy => DataPlane::Xfrm { launcher },
            Plane::Pluto => {
                let (namespace, folder) = (self.gateway(side), folder.join("pluto"));
                let unpacked = libreswan().unwrap();
                let pluto = Libreswan::start(namespace, &folder, &unpacked, &launcher, &[]);
                return self.plutos[side] = Some(pluto.unwrap());
            }
        };
        let mut config = StrongSwanConfig::new(&folder, plane);
        change(&mut config);
        self.daemons[side] = Some(StrongSwan::start(self.gateway(side), config).unwrap());
    }

    pub(crate) fn daemon(&self, side: usize) -> &StrongSwan {
        self.daemons[side].as_ref().unwrap()
    }

    pub(crate) fn gateway(&self, side: usize) -> &Namespace {
        &self.site(side).gateway
    }

    pub(crate) fn site(&self, side: usize) -> &convoy_lab::Site {
        if side == 0 { &self.lab.a } else { &self.lab.b }
    }

    /// A connection between the gateways, and a child for both families of the networks, as one side
    /// sees it.
    pub(crate) fn connection(&self, side: usize, outer: Family) -> Connection {
        let (near, far) = (self.site(side), self.site(1 - side));
        let both = |site: &convoy_lab::Site| {
            FAMILIES.map(|family| site.network(family).to_string()).to_vec()
        };
        let mut child = Child::new("net", "", "");
        (child.local_ts, child.remote_ts) = (both(near), both(far));
        Connection::psk("peers", NAMES[side], NAMES[1 - side], "of this test only")
            .between(near.wire_address(outer), far.wire_address(outer))
            .child(child)
    }

    /// Both sides get their connections.
    pub(crate) fn load(&mut self, connection: impl Fn(&Self, usize) -> Connection) {
        for side in 0..2 {
            let connection = connection(self, side);
            self.daemons[side].as_mut().unwrap().reload(vec![connection]).unwrap();
        }
    }

    /// Number of answers to so many pings from one side to an address.
    pub(crate) fn ping(from: &Namespace, to: IpAddr, count: u16) -> u64 {
        let ping = Ping {
            count,
            interval: Duration::from_millis(10),
            timeout: Duration::from_secs(2),
            ..Ping::new(to)
        };
        ping.run(from, &mut Watch::new(&NEVER)).unwrap().received
    }

    /// True if so many pings, the first of which make a tunnel, are all answered, sooner or later.
    pub(crate) fn ping_makes_tunnel(from: &Namespace, to: IpAddr, count: u16) -> bool {
        let interval = Duration::from_millis(10);
        let ping = Ping { count, interval, timeout: LIMIT, ..Ping::new(to) };
        ping.run(from, &mut Watch::new(&NEVER)).unwrap().received == u64::from(count)
    }

    /// True if one ping is answered soon.
    pub(crate) fn try_ping(from: &Namespace, to: IpAddr) -> bool {
        let ping = Ping { count: 1, timeout: Duration::from_millis(300), ..Ping::new(to) };
        ping.run(from, &mut Watch::new(&NEVER)).is_ok_and(|report| report.received > 0)
    }

    /// Logs of a gateway and its daemon, to be put behind a message.
    pub(crate) fn logs(&self, side: usize) -> String {
        let tail = |text: String| {
            let lines: Vec<_> = text.lines().collect();
            lines[lines.len().saturating_sub(30)..].join("\n")
        };
        let gateway = self.gateways[side].as_ref().map(Gateway::log).unwrap_or_default();
        let name = NAMES[side];
        let daemon = self.daemons[side].as_ref().map(StrongSwan::log);
        let daemon = daemon.or_else(|| self.plutos[side].as_ref().map(Libreswan::log));
        let asked = |verb: &str| text(&convoy(&[verb, self.sites[side].to_str().unwrap()]).stdout);
        let kernel = ["-4 rule", "-6 rule", "-4 route show table all", "-6 route show table all"]
            .map(|what| ip(self.gateway(side), what));
        format!(
            "\n== convoy {name}\n{}\n{}\n{}\n== kernel {name}\n{}\n== IKE daemon {name}\n{}\n",
            asked("status"),
            asked("policy"),
            tail(gateway),
            kernel.join("\n"),
            tail(daemon.unwrap_or_default())
        )
    }

    /// Ends the capture: nothing may have crossed the wire in the clear. Addresses of the wire itself
    /// in transport mode are told apart by what they carry.
    pub(crate) fn assert_nothing_in_the_clear(&mut self) {
        let inner = FAMILIES.map(|family| [0, 1].map(|side| self.site(side).network(family)));
        self.assert_not_in_the_clear(inner.as_flattened());
    }

    /// The same of what has an address of these networks.
    pub(crate) fn assert_not_in_the_clear(&mut self, inner: &[IpNet]) {
        let report = self.capture.take().unwrap().stop().unwrap();
        assert_eq!(report.dropped, 0);
        let report = wire_report(&self.folder.path().join("wire.pcap"), inner).unwrap();
        assert!(report.ike > 0, "{report:?}");
        assert_eq!(report.clear, 0, "{}", report.clear_in_words());
    }
}

/// Past the harness, which would keep it from being seen.
pub(crate) fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// Command that leads a daemon to a gateway.
pub(crate) fn launcher(socket: &Path) -> Vec<OsString> {
    let (variable, library) = preload();
    let library = format!("{variable}={}", library.display());
    let words = ["env", &library, env!("CARGO_BIN_EXE_convoy"), "exec", "--socket"];
    let end = [socket.into(), "--".into()];
    words.into_iter().map(OsString::from).chain(end).collect()
}

/// The site file of a gateway whose SAs a daemon brings.
fn write_site(folder: &Path, name: &str, (top, more): (&str, &str)) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    let text = format!(
        "{top}name = \"{name}\"\ncontrol_socket = \"{0}/control.sock\"\n\
         [plain]\ninterface = \"convoy0\"\n\
         [xfrm]\nsocket = \"{0}/xfrm.sock\"\n{1}",
        folder.display(),
        by_sockets(more),
    );
    let path = folder.join("site.toml");
    fs::write(&path, text).unwrap();
    path
}
