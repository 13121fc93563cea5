//! `convoy doctor` on hosts with something wrong.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use socket2::{Domain, SockAddr, Socket, Type};

const CONVOY: &str = env!("CARGO_BIN_EXE_convoy");
/// A gateway's host: one interface, and a way to the peer of `convoy init`.
const HOST: &str = "ip link set lo up
    ip link add wire0 type veth peer name wire1
    ip link set wire1 up
    ip address add 192.0.2.1/24 dev wire0
    ip link set wire0 up
    ip route add default via 192.0.2.254
    for link in all wire0; do echo 0 > /proc/sys/net/ipv4/conf/$link/rp_filter; done
    echo 1 > /proc/sys/net/ipv4/ip_forward";

/// Output of the command for a host, in a network namespace of its own; none where there are none.
fn doctor(folder: &Path, illness: &str) -> Option<Output> {
    let made = Command::new("unshare").args(["--net", "true"]).status();
    if !made.is_ok_and(|status| status.success()) {
        let _ = writeln!(std::io::stderr(), "SKIPPED: cannot make a network namespace here");
        return None;
    }
    let script = format!("set -e; {HOST}\n{illness}\nexec \"$0\" doctor left.toml --json");
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", &script, CONVOY]).current_dir(folder);
    Some(command.output().unwrap())
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let status = Command::new(CONVOY).arg("init").arg(folder.path()).output().unwrap().status;
    assert!(status.success());
    folder
}

/// Level and text of each finding about one thing.
fn said(output: &Output, about: &str) -> Vec<(String, String)> {
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let checks = report["checks"].as_array().unwrap().iter().filter(|c| c["about"] == about);
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    checks.map(|check| (text(&check["level"]), text(&check["found"]))).collect()
}

#[test]
fn routes_past_the_gateway_are_problems_with_what_would_be_right() {
    let folder = folder();
    let Some(good) = doctor(folder.path(), "") else { return };
    assert_eq!(said(&good, "routes")[0].0, "ok", "{:?}", said(&good, "routes"));
    assert!(said(&good, "MTU")[0].1.starts_with("1500 bytes to 198.51.100.1"));
    let charon = "ip rule add priority 220 table 220
        ip route add 10.2.0.0/24 via 192.0.2.254 table 220";
    let pluto = "ip route add 10.2.0.0/24 via 192.0.2.254";
    let unreachable = "ip route del default";
    for (illness, cure) in [
        (charon, "give that rule a priority above 32766"),
        (pluto, "ip route del 10.2.0.0/24 dev wire0"),
        (unreachable, "no route leads to the peer 198.51.100.1"),
    ] {
        let ill = doctor(folder.path(), illness).unwrap();
        assert_eq!(ill.status.code(), Some(1));
        let routes = said(&ill, "routes");
        assert!(routes[0].0 == "problem" && routes[0].1.contains(cure), "{routes:?}");
    }
}

/// Without a site file it looks at the gateway that runs, not at a host for IKE daemons.
#[test]
fn without_a_file_it_looks_at_the_gateway_that_runs() {
    let folder = folder();
    // Its own /run: gateways of other tests are not to be found.
    let script = format!(
        "set -e; {HOST}
        mount -t tmpfs none /run
        \"$0\" run left.toml > ready 2> log & gateway=$!
        for i in $(seq 200); do grep -q ready ready && break; sleep 0.1; done
        \"$0\" doctor left.toml > named || true
        (cd / && \"$0\" doctor) > found || true
        kill $gateway; wait $gateway || true"
    );
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "sh", "-c", &script, CONVOY]).current_dir(folder.path());
    if !command.output().unwrap().status.success() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: cannot make namespaces here");
        return;
    }
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(read("ready").contains("ready"), "{}", read("log"));
    assert!(read("named").contains("routes: "), "{}", read("named"));
    assert_eq!(read("found"), read("named"));
}

#[test]
fn interfaces_that_share_the_device_of_the_wire_are_told() {
    let folder = folder();
    let Some(alone) = doctor(folder.path(), "") else { return };
    assert_eq!(said(&alone, "wire interface"), []);
    for (kind, illness) in [
        ("macvlan", "ip link add beside0 link wire0 type macvlan mode bridge"),
        ("ipvlan", "ip link add beside0 link wire0 type ipvlan"),
        // The wire may be one itself.
        (
            "macvlan",
            "ip link add beside0 link wire0 type macvlan mode bridge
            ip link add beside1 link wire0 type macvlan mode bridge
            ip link set beside1 up
            ip route replace default dev beside1",
        ),
    ] {
        let made = format!("({illness}) 2> refused || touch refused.{kind}");
        let _ = std::fs::remove_file(folder.path().join(format!("refused.{kind}")));
        let shared = doctor(folder.path(), &made).unwrap();
        if folder.path().join(format!("refused.{kind}")).exists() {
            let why = std::fs::read_to_string(folder.path().join("refused")).unwrap();
            println!("SKIPPED in part: no {kind}: {}", why.trim());
            continue;
        }
        let told = said(&shared, "wire interface");
        assert!(told[0].0 == "note" && told[0].1.starts_with("beside0 of kind"), "{told:?}");
    }
}

#[test]
fn who_holds_the_port_is_told() {
    let folder = folder();
    let illness = "python3 -c 'import socket,time
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)
s.bind((\"\",4500))
print(flush=True)
time.sleep(60)' > port & trap 'kill $!' EXIT
        while ! test -s port; do sleep 0.05; done
        \"$0\" doctor left.toml --json; exit $?";
    let Some(held) = doctor(folder.path(), illness) else { return };
    let ports = said(&held, "UDP ports");
    assert_eq!(ports.len(), 2);
    assert_eq!(ports[0].1, "500 is free");
    assert!(
        ports[1].0 == "problem" && ports[1].1.contains("4500 is in use by python3"),
        "{ports:?}"
    );
    assert_eq!(held.status.code(), Some(1));
}

#[test]
fn a_site_file_that_is_wrong_is_told_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("site.toml");
    std::fs::write(&path, "name = 7\n").unwrap();
    let output = Command::new(CONVOY).arg("doctor").arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty() && !output.stderr.is_empty());
}

#[test]
fn a_running_gateway_tells_once_of_routes_past_it_and_when_they_are_gone() {
    let folder = folder();
    // What daemons negotiate stays in memory.
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let site = format!(
        "name = \"d\"\ncontrol_socket = \"{0}/d.sock\"\n[plain]\ninterface = \"convoy0\"\n\
         [xfrm]\nsocket = \"{0}/x.sock\"\nstate = \"{1}\"\n",
        folder.path().display(),
        memory.path().join("state").display(),
    );
    std::fs::write(folder.path().join("d.toml"), site).unwrap();
    // An earlier life left a network closed.
    let illness = "command -v nft > /dev/null || { touch no-nft; exit 5; }
        nft 'add table inet convoy-convoy0
            add set inet convoy-convoy0 near4 { type ipv4_addr; flags interval; }
            add set inet convoy-convoy0 far4 { type ipv4_addr; flags interval; }
            add element inet convoy-convoy0 near4 { 10.1.0.0/24 }
            add element inet convoy-convoy0 far4 { 10.2.0.0/24 }'
        until_told() { n=0; until grep -q \"$1\" log; do
            n=$((n+1)); test $n -lt 400 || { cat log >&2; exit 9; }; sleep 0.05; done; }
        \"$0\" run d.toml 2> log & gateway=$!
        trap 'kill $gateway; wait $gateway' EXIT
        until_told 'stay blocked'
        n=0; until \"$0\" status d.toml > /dev/null 2>&1 || test $? -lt 3; do
            n=$((n+1)); test $n -lt 400 || { cat log >&2; exit 9; }; sleep 0.05; done
        ip route add 10.2.0.0/24 via 192.0.2.254 table 77
        ip rule add priority 100 table 77
        until_told 'ip rule 100 leads'
        \"$0\" status d.toml | grep -q 'ip rule 100 leads' || exit 8
        ip route add 10.7.0.0/24 via 192.0.2.254
        ip rule del priority 100
        until_told 'resolved: ip rule 100 leads'
        test \"$(grep -v 'resolved: ' log | grep -c 'ip rule 100 leads')\" = 1 || exit 7
        exit 5";
    let Some(told) = doctor(folder.path(), illness) else { return };
    assert_eq!(told.status.code(), Some(5), "{}", String::from_utf8_lossy(&told.stderr));
}

#[test]
fn a_daemon_of_another_namespace_is_not_this_ones() {
    let folder = folder();
    let daemon = |how: &str| {
        let illness = format!(
            "cp \"$(command -v sleep)\" charon\n        {how} ./charon 20 & daemon=$!\n        \
             until grep -q charon /proc/$daemon/comm; do sleep 0.02; done\n        \
             \"$0\" doctor left.toml --json || true; kill $daemon; exit 0"
        );
        let said = said(&doctor(folder.path(), &illness)?, "IKE daemon");
        Some(said.iter().any(|(level, found)| level == "problem" && found.contains("charon")))
    };
    let Some(own) = daemon("") else { return };
    assert!(own, "one that speaks to the kernel");
    assert_eq!(daemon("unshare --net"), Some(false));
}

#[test]
fn a_gateway_of_another_namespace_is_noted() {
    let folder = folder();
    let socket = folder.path().join("x.sock");
    let site = format!(
        "name = \"d\"\ncontrol_socket = \"{0}/d.sock\"\n[plain]\ninterface = \"convoy0\"\n\
         [xfrm]\nsocket = \"{0}/x.sock\"\nstate = \"/dev/shm/no-such-gateway\"\n",
        folder.path().display(),
    );
    std::fs::write(folder.path().join("d.toml"), site).unwrap();
    let listener = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    listener.bind(&SockAddr::unix(&socket).unwrap()).unwrap();
    listener.listen(8).unwrap();
    let illness = "\"$0\" doctor d.toml --json; exit $?";
    let Some(seen) = doctor(folder.path(), illness) else { return };
    let said = said(&seen, "XFRM socket");
    let is_noted = |(level, found): &(String, String)| {
        level == "note" && found.contains("runs in another network namespace")
    };
    assert!(said.iter().any(is_noted), "{said:?}");
}
