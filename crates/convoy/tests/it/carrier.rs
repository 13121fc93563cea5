//! Interfaces of a gateway that is killed, where a service manager keeps descriptors.

use std::fs;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Instant;

use convoy_lab::TopologyConfig;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixAddr, recvmsg};

use crate::common::{Gateway, PATIENCE, ip};
use crate::keep::World;

const NAMED: &str = "[[xfrm.interface]]\nname = \"ipsec0\"\nif_id = 1\n";

/// Message of a gateway, and the descriptor that it hands over.
fn told(manager: &UnixDatagram) -> (String, Option<OwnedFd>) {
    let mut bytes = [0; 256];
    let mut space = nix::cmsg_space!([RawFd; 4]);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let fd = manager.as_raw_fd();
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<UnixAddr>(fd, &mut parts, Some(&mut space), flags).unwrap();
    let count = message.bytes;
    let descriptor = message.cmsgs().unwrap().find_map(|it| match it {
        // SAFETY: it came with this message, and nobody else has this number.
        ControlMessageOwned::ScmRights(all) => Some(unsafe { OwnedFd::from_raw_fd(all[0]) }),
        _ => None,
    });
    (String::from_utf8(bytes[..count].to_vec()).unwrap(), descriptor)
}

#[test]
fn an_interface_keeps_its_carrier_when_its_gateway_is_killed() {
    let Some(mut world) = World::start_on(&TopologyConfig::default()) else { return };
    world.gateways[0].take().unwrap().kill();
    let folder = world.folder(0);
    let site = folder.join("site.toml");
    let text = fs::read_to_string(&site).unwrap();
    fs::write(&site, format!("{text}{NAMED}")).unwrap();
    let manager = UnixDatagram::bind(folder.join("notify")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let namespace = &world.lab.a.gateway;
    let convoy = env!("CARGO_BIN_EXE_convoy");
    let start = |mut command: Command| {
        command.env("NOTIFY_SOCKET", folder.join("notify"));
        let mut gateway = Gateway::launch_by(namespace, command, &site);
        assert!(gateway.wait_ready(), "{}", gateway.log());
        gateway
    };
    let has_carrier = || ip(namespace, "-o link show ipsec0").contains("LOWER_UP");
    let wait_for_carrier = |wanted: bool| {
        let begun = Instant::now();
        while has_carrier() != wanted {
            assert!(begun.elapsed() < PATIENCE);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    let first = start(Command::new(convoy));
    let (words, kept) = told(&manager);
    assert_eq!(words, "FDSTORE=1\nFDNAME=tun-ipsec0");
    let kept = kept.unwrap();
    assert_eq!(told(&manager).0, "READY=1");
    first.kill();
    assert!(has_carrier());
    // The next run gets it from whoever kept it, and hands over no other.
    fcntl(&kept, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let mut command = Command::new("bash");
    let script = format!(
        "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=tun-ipsec0 exec \"$0\" \"$@\" 3<&{}",
        kept.as_raw_fd()
    );
    command.args(["-c", &script, convoy]);
    let second = start(command);
    assert_eq!(told(&manager).0, "READY=1");
    assert!(has_carrier());
    second.kill();
    assert!(has_carrier());
    drop(kept);
    wait_for_carrier(false);
    // One that the site names no more is let go, and is gone.
    let third = start(Command::new(convoy));
    let (_, kept) = told(&manager);
    assert_eq!(told(&manager).0, "READY=1");
    third.kill();
    fs::write(&site, text).unwrap();
    let kept = kept.unwrap();
    fcntl(&kept, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let mut command = Command::new("bash");
    let script = format!(
        "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=tun-ipsec0 exec \"$0\" \"$@\" 3<&{0} {0}<&-",
        kept.as_raw_fd()
    );
    command.args(["-c", &script, convoy]);
    let number = kept.as_raw_fd();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            assert_eq!(told(&manager).0, "FDSTOREREMOVE=1\nFDNAME=tun-ipsec0");
            assert!(number > 0);
            drop(kept);
        });
        let _fourth = start(command);
    });
    assert!(!ip(namespace, "-o link show").contains("ipsec0"));
}
