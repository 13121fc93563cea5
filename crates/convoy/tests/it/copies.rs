//! State folders that are locked, emptied or of another machine, and a machine that turns out to be a
//! copy: no nonce is used twice.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Gateway, PATIENCE, Plan, can_make_namespaces, dropped, status, text};
use convoy_lab::{Family, Namespace, Topology, TopologyConfig};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, sendto, socket,
};

/// A gateway that sends to a peer which does not exist, and what records its packets.
struct World {
    lab: Topology,
    folder: tempfile::TempDir,
    site: PathBuf,
}

impl World {
    fn new() -> Option<Self> {
        if !can_make_namespaces() {
            return None;
        }
        let lab = Topology::build(&TopologyConfig { named: false, ..Default::default() }).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let site = Plan { lease_block: 64, ..Plan::simple() }.write('a', folder.path());
        Some(Self { lab, folder, site })
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("a.state")
    }

    fn start(&self) -> Gateway {
        Gateway::start(&self.lab.a.gateway, &self.site)
    }

    /// The end of a start that is refused, and what it says.
    fn refused(&self, site: &Path) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_convoy"));
        command.arg("run").arg(site).stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        let output = self.lab.a.gateway.spawn(&mut command).unwrap().wait_with_output().unwrap();
        assert!(!output.status.success(), "{}", text(&output.stdout));
        assert!(!text(&output.stdout).contains("ready"));
        text(&output.stderr)
    }

    /// Has the gateway protect so many packets.
    fn send(&self, packets: u64) {
        let to = SocketAddr::new(self.lab.b.host_address(Family::V4), 9);
        let host = &self.lab.a.host;
        host.run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            (0..packets).for_each(|_| drop(socket.send_to(&[0; 64], to)));
        })
        .unwrap();
    }

    fn sent(&self) -> u64 {
        let status = status(&self.site);
        let sas = status["sas"].as_array().unwrap();
        let outbound = sas.iter().find(|sa| sa["direction"] == "outbound");
        outbound.map_or(0, |sa| sa["flow"]["packets"].as_u64().unwrap())
    }
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < until, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A uevent as a kernel sends it: one that root hands to the kernel is sent on, as the kernel's own, to
/// all that listen in the same network namespace.
fn make_up_uevent(namespace: &Namespace, body: &[u8]) {
    namespace
        .run(|| {
            let socket = socket(
                AddressFamily::Netlink,
                SockType::Datagram,
                SockFlag::SOCK_CLOEXEC,
                SockProtocol::NetlinkKObjectUEvent,
            )
            .unwrap();
            let len = u32::try_from(16 + body.len()).unwrap();
            // `struct nlmsghdr`, with NLM_F_REQUEST and the first type that is no control message.
            let mut message = len.to_ne_bytes().to_vec();
            message.extend_from_slice(&0x10_u16.to_ne_bytes());
            message.extend_from_slice(&1_u16.to_ne_bytes());
            message.extend_from_slice(&[0; 8]);
            message.extend_from_slice(body);
            let kernel = NetlinkAddr::new(0, 0);
            sendto(socket.as_raw_fd(), &message, &kernel, MsgFlags::empty()).unwrap();
        })
        .unwrap();
}

const NEW_GENERATION: &[u8] = b"change@/devices/platform/VMGENCTR:00\0ACTION=change\0\
    DEVPATH=/devices/platform/VMGENCTR:00\0SUBSYSTEM=platform\0NEW_VMGENID=1\0";

/// Seen before: 221 of 600 IVs of two gateways came twice.
#[test]
fn who_deletes_the_lock_file_cannot_start_a_second_gateway() {
    let Some(world) = World::new() else { return };
    let gateway = world.start();
    fs::remove_file(world.state().join("lock")).unwrap();
    let other = world.folder.path().join("other.toml");
    let site = fs::read_to_string(&world.site).unwrap();
    fs::copy(&world.site, &other).unwrap();
    fs::write(&other, site.replace("/a.sock", "/other.sock").replace("tun0", "tun1")).unwrap();
    let said = world.refused(&other);
    assert!(said.contains("is in use by") && said.contains("stop that gateway first"), "{said}");
    assert!(gateway.terminate().success());
}

/// Seen before: after a kill and a start on the emptied folder, 4,043 IVs came again.
#[test]
fn a_state_folder_that_is_emptied_under_a_gateway_is_told_and_not_used_again() {
    let Some(world) = World::new() else { return };
    let gateway = world.start();
    wait_for("packets", || {
        world.send(10);
        world.sent() > 0
    });
    for entry in fs::read_dir(world.state()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    wait_for("the loss to be told", || !status(&world.site)["leases"]["failure"].is_null());
    let why = status(&world.site)["leases"]["failure"].as_str().unwrap().to_owned();
    assert!(why.contains("is gone") && why.contains("write new keys on both sides"), "{why}");
    // What was leased before is used up, and no more.
    wait_for("the end of leased numbers", || {
        world.send(64);
        dropped(&status(&world.site), "lease-exhausted") > 0
    });
    gateway.kill();
    let said = world.refused(&world.site);
    assert!(said.contains("was in use, but its files are gone"), "{said}");
    assert!(said.contains("write new keys on both sides"), "{said}");
}

/// Seen before: a gateway of root that had given up its other rights took the path of its folder below
/// another user's, which it could not follow any more, for the loss of the folder.
#[test]
fn a_state_folder_below_a_closed_one_of_another_user_serves_root() {
    use std::os::unix::fs::PermissionsExt as _;
    let Some(world) = World::new() else { return };
    if !nix::unistd::geteuid().is_root() {
        return println!("SKIPPED: only root can make folders of other users");
    }
    std::os::unix::fs::chown(world.folder.path(), Some(54_321), None).unwrap();
    fs::set_permissions(world.folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let gateway = world.start();
    let log = gateway.log();
    assert!(log.contains("a.state cannot be reached by its path from now on"), "{log}");
    // Many more than are leased at a time.
    wait_for("packets", || {
        world.send(64);
        world.sent() > 2000
    });
    assert!(status(&world.site)["leases"]["failure"].is_null());
    assert!(gateway.terminate().success());
}

/// An image of a machine that was cloned, with another machine-id mounted over the one of this machine.
#[test]
fn a_state_folder_of_another_machine_is_refused() {
    let Some(world) = World::new() else { return };
    let ids = ["1", "2"].map(|digit| {
        let file = world.folder.path().join(digit);
        fs::write(&file, format!("{}{digit}\n", "5".repeat(31))).unwrap();
        file
    });
    if !Path::new("/etc/machine-id").exists() {
        return println!("SKIPPED: there is no machine-id here to mount another one over");
    }
    let run = |id: &Path| {
        let script = format!(
            "mount --make-rprivate / && mount --bind {} /etc/machine-id && exec \"$0\" run \"$1\"",
            id.display()
        );
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_convoy")]).arg(&world.site);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        world.lab.a.gateway.spawn(&mut command).unwrap()
    };
    let mut first = run(&ids[0]);
    let mut lines = BufReader::new(first.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line == "ready")), "it starts");
    first.kill().unwrap();
    first.wait().unwrap();
    let said = run(&ids[1]).wait_with_output().unwrap();
    assert!(!said.status.success() && !text(&said.stdout).contains("ready"));
    let said = text(&said.stderr);
    assert!(said.contains("its machine-id is not the one of this machine"), "{said}");
    assert!(said.contains("write new keys on both sides"), "{said}");
}

#[test]
fn a_new_generation_of_the_machine_ends_all_sas_and_their_keys_for_good() {
    let Some(world) = World::new() else { return };
    let gateway = world.start();
    wait_for("packets", || {
        world.send(10);
        world.sent() > 0
    });
    make_up_uevent(&world.lab.a.gateway, b"change@/devices/x\0ACTION=change\0SEQ=1\0");
    make_up_uevent(&world.lab.a.gateway, NEW_GENERATION);
    wait_for("the end of SAs", || status(&world.site)["sas"].as_array().unwrap().is_empty());
    wait_for("the reason in the log", || {
        gateway.log().contains("resumed from a snapshot or cloned")
    });
    let told = status(&world.site)["health"].to_string();
    assert!(told.contains("resumed from a snapshot or cloned"), "{told}");
    wait_for("packets to be dropped", || {
        world.send(10);
        dropped(&status(&world.site), "no-sa") > 0
    });
    // A reload with the same keys is refused, and one with others is not.
    let reload = || crate::common::convoy(&["reload", world.site.to_str().unwrap()]);
    let said = reload();
    assert!(!said.status.success());
    assert!(text(&said.stderr).contains("write new keys on both sides"), "{}", text(&said.stderr));
    let site = fs::read_to_string(&world.site).unwrap();
    fs::write(
        &world.site,
        site.replace(&"03".repeat(20), &"07".repeat(20))
            .replace(&"02".repeat(20), &"08".repeat(20)),
    )
    .unwrap();
    let said = reload();
    assert!(said.status.success(), "{}", text(&said.stderr));
    wait_for("packets under a new key", || {
        world.send(10);
        world.sent() > 0
    });
    gateway.kill();
    // Nor are they there for a later life.
    fs::write(&world.site, site).unwrap();
    let said = world.refused(&world.site);
    assert!(said.contains("was in use when this virtual machine was resumed"), "{said}");
}
