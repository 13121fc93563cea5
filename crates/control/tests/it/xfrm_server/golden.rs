//! `ip xfrm`, told the same, shows the same of Convoy's databases as of the kernel's.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use convoy_control::xfrm::{
    Answer, Client, Cursor, Host, Kernel, Moment, Multicast, Server, Service, Setting,
};
use convoy_crypto::Cpu;
use convoy_engine::registry::Drivers;
use convoy_ipsec::clock::Now;
use convoy_ipsec::snapshot::{Snapshot, Writer};
use convoy_ipsec::spd::SpdId;
use convoy_xfrm::{Address, Datagram, Errno, Refusal, Request};

use super::programs::{has_ip, preloaded};

struct Nowhere;

impl Host for Nowhere {
    fn is_local(&self, address: IpAddr) -> bool {
        address == IpAddr::from([192, 0, 2, 1])
    }

    fn source_for(&self, _: IpAddr) -> Option<IpAddr> {
        None
    }
}

/// Service of a gateway without its workers.
pub(crate) struct Whole(Mutex<(Kernel, Writer)>);

const AT: Moment = Moment { unix_ns: 1_700_000_000_000_000_000, worker: Now(1) };

impl Service for Whole {
    fn answer(&self, client: &Client, request: Request, to: Address) -> Result<Answer, Refusal> {
        let (kernel, writer) = &mut *self.0.lock().unwrap();
        Ok(kernel.execute(writer, client, request, to, AT)?.answer)
    }

    fn dump(&self, cursor: &mut Cursor, to: Address, room: usize) -> Vec<Datagram> {
        self.0.lock().unwrap().0.dump(cursor, to, room, AT)
    }

    fn steer(&self, _: &Client, _: OwnedFd, _: u32) -> Result<(), Refusal> {
        Err(Refusal::bare(Errno::ENOPROTOOPT))
    }
}

pub(crate) fn whole() -> Arc<Whole> {
    let setting = Setting {
        interfaces: Vec::new(),
        drivers: Drivers::new(&Cpu::detect().unwrap()),
        spd: SpdId::default(),
        workers: 1,
        worker_rules: Vec::new(),
        udp_port: 4500,
        wire_mtu: 1500,
        legacy: false,
    };
    let writer = Writer::new(Snapshot::default());
    let kernel = Kernel::new(setting, writer.published(), Box::new(Nowhere)).unwrap();
    Arc::new(Whole(Mutex::new((kernel, writer))))
}

/// Arguments of `ip xfrm` that both can serve: the kernel under this machine may have no ESP, so SAs have SPIs and no keys.
const COMMANDS: &str = "\
policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir out tmpl src 192.0.2.1 dst 192.0.2.2 proto esp reqid 1 mode tunnel
policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir out tmpl src 192.0.2.1 dst 192.0.2.2 proto esp reqid 1 mode tunnel
policy update src 10.1.0.0/24 dst 10.2.0.0/24 dir out priority 7 tmpl src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x77 reqid 1 mode tunnel
policy add src 10.2.0.0/24 dst 10.1.0.0/24 dir in priority 5 tmpl src 192.0.2.2 dst 192.0.2.1 proto esp reqid 1 mode tunnel
policy add src 10.2.0.0/24 dst 10.1.0.0/24 dir fwd priority 5 tmpl src 192.0.2.2 dst 192.0.2.1 proto esp reqid 1 mode tunnel
policy add src 192.0.2.1/32 dst 192.0.2.2/32 proto udp sport 1000 dport 2000 dir out action block
policy add src 192.0.2.1/32 dst 192.0.2.2/32 proto icmp type 8 code 0 dir out action allow priority 3
policy add src 2001:db8::/64 dst 2001:db8:1::/64 dir out ptype main tmpl src 192.0.2.1 dst 192.0.2.2 proto ah reqid 9 mode transport
policy add src 2001:db8::1 dst 2001:db8::2 proto ipv6-icmp type 135 dir in
policy add src 0.0.0.0/0 dst 0.0.0.0/0 dir out flag localok
policy add src 10.9.0.0/16 dst 10.8.0.0/16 dir out index 100 tmpl proto esp mode tunnel
policy list
policy list dir in
policy get src 10.1.0.0/24 dst 10.2.0.0/24 dir out
policy get dir out index 100
policy get src 10.7.0.0/24 dst 10.2.0.0/24 dir out
policy delete src 10.7.0.0/24 dst 10.2.0.0/24 dir out
policy delete dir out index 100
policy delete src 192.0.2.1/32 dst 192.0.2.2/32 proto udp sport 1000 dport 2000 dir out
policy count
policy list
policy getdefault
state allocspi src 192.0.2.2 dst 192.0.2.1 proto esp reqid 3 mode tunnel min 0x100 max 0x100
state allocspi src 192.0.2.2 dst 192.0.2.1 proto ah reqid 4 mode transport min 0x200 max 0x200
state allocspi src 192.0.2.2 dst 192.0.2.1 proto esp reqid 5 mode tunnel min 0x100 max 0x100
state allocspi src 192.0.2.2 dst 192.0.2.1 proto esp reqid 5 mode tunnel min 9 max 8
state list
state get src 192.0.2.2 dst 192.0.2.1 proto esp spi 0x100
state get src 192.0.2.2 dst 192.0.2.1 proto esp spi 0x999
state delete src 192.0.2.2 dst 192.0.2.1 proto esp spi 0x999
state delete src 192.0.2.2 dst 192.0.2.1 proto ah spi 0x200
state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x300 mode tunnel enc cbc(no-such) 0x00 auth hmac(sha1) 0x00
state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x300 mode tunnel
state flush
state list
policy flush
policy list";

fn said(output: &Output) -> (bool, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

/// The kernel's answers, all in one namespace of its own; none without privileges.
fn kernels() -> Option<Vec<(bool, String, String)>> {
    let folder = tempfile::tempdir().unwrap();
    let mut script = String::new();
    for (n, command) in COMMANDS.lines().enumerate() {
        let command = command.replace('(', "\\(").replace(')', "\\)");
        script += &format!("ip xfrm {command} >{n}.out 2>{n}.err; echo $? >{n}.status\n");
    }
    let mut unshare = Command::new("unshare");
    let done = unshare.args(["-n", "sh", "-c", &script]).current_dir(folder.path()).status();
    if !done.is_ok_and(|status| status.success()) {
        println!("SKIPPED: no namespace to ask the kernel in");
        return None;
    }
    let read = |name: String| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let all = (0..COMMANDS.lines().count()).map(|n| {
        (read(format!("{n}.status")) == "0\n", read(format!("{n}.out")), read(format!("{n}.err")))
    });
    Some(all.collect())
}

#[test]
fn ip_shows_of_a_gateway_what_it_shows_of_a_kernel() {
    if !has_ip() {
        return;
    }
    let Some(theirs) = kernels() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("xfrm.sock");
    let server = Server::start(&path, whole(), Multicast::new().unwrap()).unwrap();
    for (command, theirs) in COMMANDS.lines().zip(theirs) {
        let mut ip = preloaded("ip", server.path());
        let output = ip.arg("xfrm").args(command.split_whitespace()).output().unwrap();
        assert_eq!(said(&output), theirs, "{command}");
    }
}
