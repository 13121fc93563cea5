//! Two sites whose gateways lead everything to each other in clear, if nothing holds it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use convoy_lab::{Family, LAN_LINK, Site, Topology, TopologyConfig, WIRE_LINK};
use tempfile::TempDir;

use crate::common::{Gateway, Plan, PolicyText, by_sockets, can_make_namespaces, exec, ip, text};

/// Whose policies they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Site,
    Daemons,
}

pub(crate) const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
/// UDP port of the second site that all may reach in clear.
pub(crate) const FREE: u16 = 9;
const SPIS: [u32; 2] = [0x1001, 0x1002];

pub(crate) struct World {
    pub(crate) kind: Kind,
    pub(crate) gateways: [Option<Gateway>; 2],
    pub(crate) lab: Topology,
    pub(crate) sites: [PathBuf; 2],
    pub(crate) folder: TempDir,
    memory: TempDir,
}

impl World {
    pub(crate) fn start(kind: Kind) -> Option<Self> {
        if !can_make_namespaces() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let memory = tempfile::tempdir_in("/dev/shm").unwrap();
        let lab = Topology::build(&TopologyConfig { named: false, ..Default::default() }).unwrap();
        let sites = ['a', 'b'].map(|side| folder.path().join(format!("{side}.toml")));
        let mut world = Self { kind, gateways: [None, None], lab, sites, folder, memory };
        world.keep_the_way_to_the_lan();
        for side in 0..2 {
            world.lead_all_to_the_other(side);
            world.write(side);
            world.start_gateway(side);
        }
        if kind == Kind::Daemons {
            (0..2).for_each(|side| world.make_tunnel(side));
        }
        Some(world)
    }

    pub(crate) fn site(&self, side: usize) -> &Site {
        if side == 0 { &self.lab.a } else { &self.lab.b }
    }

    /// The ordinary routes of a gateway, as far as some are missing.
    pub(crate) fn lead_all_to_the_other(&self, side: usize) {
        let gateway = &self.site(side).gateway;
        for family in FAMILIES {
            let version = if family == Family::V4 { "-4" } else { "-6" };
            let via = self.site(1 - side).wire_address(family);
            ip(gateway, &format!("{version} route replace default via {via} dev {WIRE_LINK}"));
        }
    }

    /// Lays the route to the LAN in a table that nobody empties: what came out of a tunnel goes where routes lead.
    fn keep_the_way_to_the_lan(&self) {
        let site = &self.lab.a;
        for family in FAMILIES {
            let version = if family == Family::V4 { "-4" } else { "-6" };
            let network = site.network(family);
            ip(&site.gateway, &format!("{version} route add {network} dev {LAN_LINK} table 78"));
            ip(&site.gateway, &format!("{version} rule add priority 4 to {network} lookup 78"));
        }
    }

    fn write(&self, side: usize) {
        if self.kind == Kind::Site {
            let mut plan = Plan::simple();
            plan.policies.push(PolicyText {
                name: "all6",
                local: "2001:db8:1::/64",
                remote: "2001:db8:2::/64",
                ..plan.policies[0].clone()
            });
            let path = plan.write(['a', 'b'][side], self.folder.path());
            let all = by_sockets(&fs::read_to_string(&path).unwrap()) + &self.free_ports(side);
            return fs::write(path, all).unwrap();
        }
        let folder = self.folder.path().join(["a", "b"][side]);
        fs::create_dir_all(&folder).unwrap();
        let text = format!(
            "name = \"{side}\"\ncontrol_socket = \"{0}/control.sock\"\n\
             [plain]\ninterface = \"convoy0\"\n\
             [xfrm]\nsocket = \"{0}/xfrm.sock\"\nstate = \"{1}/{side}\"\n{2}",
            folder.display(),
            self.memory.path().display(),
            by_sockets(""),
        );
        fs::write(&self.sites[side], text).unwrap();
    }

    /// Policies of a site file that pass a port.
    fn free_ports(&self, side: usize) -> String {
        let port = if side == 0 { "remote_port" } else { "local_port" };
        let of = |family| {
            let [local, remote] = [side, 1 - side].map(|side| self.site(side).network(family));
            format!(
                "[[policy]]\nname = \"free-{family:?}\"\naction = \"bypass\"\nlocal = \"{local}\"\n\
                 remote = \"{remote}\"\nprotocol = \"udp\"\n{port} = {FREE}\npriority = 10\n"
            )
        };
        FAMILIES.map(of).concat()
    }

    pub(crate) fn start_gateway(&mut self, side: usize) {
        let gateway = Gateway::start(&self.site(side).gateway, &self.sites[side]);
        self.gateways[side] = Some(gateway);
    }

    /// The kernel closes files of who is killed from the highest number down. A packet that waits in a queue may hold the
    /// TUN interface, whose end waits for that: so queues end first, or none of them ever does.
    pub(crate) fn queues_end_before_tun_interfaces(&self) {
        for gateway in self.gateways.iter().flatten() {
            let files = fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap().flatten();
            let files: Vec<_> = files
                .filter_map(|file| {
                    let number: u32 = file.file_name().to_str()?.parse().ok()?;
                    Some((number, fs::read_link(file.path()).ok()?.display().to_string()))
                })
                .collect();
            let path = format!("/proc/{}/net/", gateway.pid());
            let [queues, sockets] = ["netfilter/nfnetlink_queue", "netlink"]
                .map(|name| fs::read_to_string(path.clone() + name).unwrap());
            let column = |line: &str, at: usize| line.split_whitespace().nth(at).map(str::to_owned);
            let ports: Vec<_> = queues.lines().map(|line| column(line, 1).unwrap()).collect();
            assert_eq!(ports.len(), 5, "{queues}");
            let highest = |name: &str| {
                let named = files.iter().filter(|(_, file)| file == name);
                named.map(|(number, _)| *number).max().unwrap()
            };
            let of_queues = sockets.lines().filter(|line| {
                column(line, 1).as_deref() == Some("12")
                    && ports.contains(&column(line, 2).unwrap())
            });
            let inodes = of_queues.map(|line| format!("socket:[{}]", column(line, 9).unwrap()));
            let first = inodes.map(|name| highest(&name)).min().unwrap();
            assert!(first > highest("/dev/net/tun"), "{files:?}");
        }
    }

    pub(crate) fn kill(&mut self) {
        self.gateways[0].take().unwrap().kill();
    }

    pub(crate) fn log(&self) -> String {
        self.gateways[0].as_ref().map(Gateway::log).unwrap_or_default()
    }

    /// Lines for ip(8) on the first gateway; what fails is left.
    pub(crate) fn ip(&self, family: Family, lines: &str) {
        let file = self.folder.path().join("lines");
        fs::write(&file, format!("{lines}\n")).unwrap();
        let version = if family == Family::V4 { "-4" } else { "-6" };
        let _ = self.command(&format!("ip {version} -force -batch {}", file.display()));
    }

    /// Runs a program on the first gateway.
    pub(crate) fn command(&self, words: &str) -> Result<String, String> {
        let mut words = words.split_whitespace();
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        let output = self.lab.a.gateway.run(|| command.output()).unwrap();
        let output = output.map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
    }

    /// `ip xfrm` on a side, led to its gateway.
    fn ip_xfrm(&self, side: usize, arguments: &str) {
        let mut command = exec(self.folder.path().join(["a", "b"][side]).join("xfrm.sock"));
        command.args(["ip", "xfrm"]).args(arguments.split_whitespace());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.site(side).gateway.spawn(&mut command).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "ip xfrm {arguments}: {}", text(&output.stderr));
    }

    /// As `ip xfrm` makes a tunnel, and policies that pass a port.
    fn make_tunnel(&self, side: usize) {
        let [a, b] = [0, 1].map(|side| self.site(side).wire_address(Family::V4));
        for (way, spi) in SPIS.into_iter().enumerate() {
            let (from, to) = if way == 0 { (a, b) } else { (b, a) };
            let key = format!("{:02x}", 0x11 + way).repeat(20);
            self.ip_xfrm(
                side,
                &format!(
                    "state add src {from} dst {to} proto esp spi {spi} reqid 1 mode tunnel \
                     replay-window 64 flag esn aead rfc4106(gcm(aes)) 0x{key} 128"
                ),
            );
        }
        for (direction, inwards) in [("out", false), ("in", true), ("fwd", true)] {
            let (from, to) = if inwards { (1 - side, side) } else { (side, 1 - side) };
            let ends = [from, to].map(|side| self.site(side).wire_address(Family::V4));
            let port = if to == 1 { "dport" } else { "sport" };
            for family in FAMILIES {
                let [src, dst] = [from, to].map(|side| self.site(side).network(family));
                let selector = format!("policy add src {src} dst {dst}");
                self.ip_xfrm(
                    side,
                    &format!("{selector} proto udp {port} {FREE} dir {direction} priority 10"),
                );
                self.ip_xfrm(
                    side,
                    &format!(
                        "{selector} dir {direction} priority 100 tmpl src {} dst {} proto esp \
                         reqid 1 mode tunnel",
                        ends[0], ends[1],
                    ),
                );
            }
        }
    }
}
