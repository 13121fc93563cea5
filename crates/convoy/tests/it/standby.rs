//! The second node of a pair: it has the SAs, and the address of the pair comes to it later.

use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{Gateway, PATIENCE, can_make_namespaces, exec, ip, status, text};
use convoy_lab::Namespace;
use tempfile::TempDir;

const SHARED: &str = "198.51.100.9";
const PEER: &str = "198.51.100.7";

/// A gateway in a namespace whose only address on the wire is another one than [`SHARED`].
struct Node {
    _gateway: Gateway,
    namespace: Namespace,
    site: PathBuf,
    _folders: [TempDir; 2],
}

impl Node {
    fn start() -> Self {
        let namespace = Namespace::anonymous().unwrap();
        ip(&namespace, "link add wire type veth peer name far");
        ip(&namespace, "link add lan type veth peer name far-lan");
        for link in ["lo", "wire", "far", "lan", "far-lan"] {
            ip(&namespace, &format!("link set {link} up"));
        }
        ip(&namespace, "address add 198.51.100.1/24 dev wire");
        ip(&namespace, "address add 10.1.0.1/24 dev lan");
        // As nodes of a pair are set, so that daemons may bind to the shared address.
        let binds = || std::fs::write("/proc/sys/net/ipv4/ip_nonlocal_bind", "1").unwrap();
        namespace.run(binds).unwrap();
        let [folder, memory] =
            [tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap()];
        let site = folder.path().join("site.toml");
        let place = folder.path().display();
        let file = format!(
            "name = \"node\"\ncontrol_socket = \"{place}/control.sock\"\n\
             [plain]\ninterface = \"convoy0\"\n\
             [xfrm]\nsocket = \"{place}/xfrm.sock\"\nstate = \"{}/state\"\n",
            memory.path().display()
        );
        std::fs::write(&site, file).unwrap();
        let gateway = Gateway::start(&namespace, &site);
        Self { _gateway: gateway, namespace, site, _folders: [folder, memory] }
    }

    fn ip_xfrm(&self, arguments: &str) {
        let mut command = exec(self.site.with_file_name("xfrm.sock"));
        command.args(["ip", "xfrm"]).args(arguments.split_whitespace()).stderr(Stdio::piped());
        let output = self.namespace.spawn(&mut command).unwrap().wait_with_output().unwrap();
        assert!(output.status.success(), "ip xfrm {arguments}: {}", text(&output.stderr));
    }

    /// As a passive charon makes an SA.
    fn make_sa(&self, from: &str, to: &str, spi: u32) {
        let key = format!("{spi:08x}").repeat(5);
        self.ip_xfrm(&format!(
            "state add src {from} dst {to} proto esp spi {spi} reqid 1 mode tunnel replay-window 32 \
             aead rfc4106(gcm(aes)) 0x{key} 128"
        ));
    }

    fn reasons(&self) -> String {
        status(&self.site)["health"]["reasons"].to_string()
    }

    #[track_caller]
    fn wait_for(&self, what: &str, is_there: impl Fn(&str) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_there(&self.reasons()) {
            assert!(Instant::now() < until, "{what}: {}", self.reasons());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Sends a datagram to the far network; how many packets SAs have sent since the start.
    fn send(&self) -> u64 {
        let send = || {
            let socket = UdpSocket::bind(("10.1.0.1", 0)).unwrap();
            socket.send_to(b"?", ("10.2.0.2", 9))
        };
        let _ = self.namespace.run(send).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let sas = &status(&self.site)["sas"];
        let out = sas.as_array().unwrap().iter().filter(|sa| sa["direction"] == "outbound");
        out.map(|sa| sa["flow"]["packets"].as_u64().unwrap()).sum()
    }
}

#[test]
fn a_passive_node_sends_nothing_and_needs_no_rekey_when_the_address_comes() {
    if !can_make_namespaces() {
        return;
    }
    let node = Node::start();
    node.make_sa(PEER, SHARED, 0x101);
    node.make_sa(SHARED, PEER, 0x201);
    node.wait_for("directions", |told| told.contains("no policy names it"));
    let template = format!("tmpl src {SHARED} dst {PEER} proto esp reqid 1 mode tunnel");
    node.ip_xfrm(&format!("policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir out {template}"));
    node.wait_for("the source", |told| {
        told.contains("198.51.100.9 is not an address of this host")
            && !told.contains("no policy names it")
    });
    assert_eq!(node.send(), 0);
    let drops = status(&node.site)["drops"].to_string();
    assert!(drops.contains("source-absent"), "{drops}");
    ip(&node.namespace, &format!("address add {SHARED}/24 dev wire"));
    node.wait_for("the address", |told| !told.contains("198.51.100.9 is not an address"));
    assert!(node.send() > 0);
    ip(&node.namespace, &format!("address del {SHARED}/24 dev wire"));
    node.wait_for("no address", |told| told.contains("198.51.100.9 is not an address"));
    let sent = node.send();
    assert_eq!(node.send(), sent, "and nothing is sent again");
}
