//! The commands of the documentation, pasted as they stand there, between two gateways with network, mount and process
//! namespaces of their own.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{can_make_namespaces, libreswan, preload};

/// Joins two sides by a cable and waits for the left one. A side runs `side.sh` with its name.
const LAB: &str = r#"
set -e
cd "$1"
ip link set lo up
for side in left right; do
    unshare --net --mount bash side.sh $side > $side.log 2>&1 &
    pids="$pids $!"
done
set -- $pids
for pid in $1 $2; do
    until [ "$(readlink /proc/$pid/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.1; done
done
ip link add left0 type veth peer name right0
ip link set left0 netns $1
ip link set right0 netns $2
wait $1
"#;

/// Addresses of a side as the documentation has them, and an `/etc` and a `/run` of its own.
const SIDE: &str = r#"
set -e
side=$1
case $side in left) n=1; other=right;; right) n=2; other=left;; esac
until ip link set ${side}0 up 2> /dev/null; do sleep 0.1; done
ip link set lo up
ip address add 192.0.2.$n/24 dev ${side}0
ip link add lan type veth peer name behind
ip link set behind up
ip address add 10.$n.0.1/24 dev lan
ip link set lan up
sysctl -qw net.ipv4.ip_forward=1
mount -t tmpfs none /run
cp -a /etc etc-$side
mount --bind etc-$side /etc
mkdir -p /etc/convoy
cp convoy.toml /etc/convoy/convoy.toml
chmod 0600 /etc/convoy/convoy.toml
[ -e packages.sh ] && . ./packages.sh
[ -e $side.etc ] && cp -r $side.etc/. /etc
export PATH=$PWD/bin:$PATH
. ./$side.sh
touch $side.ready
until [ -e $other.ready ] && [ -e left.done ]; do
    [ $side = right ] || { . ./look.sh; touch left.done; }
    sleep 0.2
done
"#;

/// Puts Libreswan where its package would, from the folder that it was unpacked to, and in sight of this side alone.
const LIBRESWAN: &str = r#"
mount -t tmpfs none /usr/libexec
mkdir /usr/libexec/ipsec
mount --bind "$unpacked/usr/libexec/ipsec" /usr/libexec/ipsec
cp -r "$unpacked/etc/." /etc
mkdir lib-$side
mount --rbind /var/lib lib-$side
mount -t tmpfs none /var/lib
ln -s "$PWD/lib-$side"/* /var/lib
rm -f /var/lib/ipsec
mkdir -p /var/lib/ipsec/nss /run/pluto
"#;

pub(crate) fn page(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(name)).unwrap()
}

/// The first block of code behind a text of a page.
pub(crate) fn block(page: &str, behind: &str) -> String {
    let (_, rest) = page.split_once(behind).unwrap_or_else(|| panic!("no text {behind:?}"));
    let (_, block) = rest.split_once("```").unwrap();
    let (_, block) = block.split_once('\n').unwrap();
    block.split_once("```").unwrap().0.to_owned()
}

/// The lines of a block that begin with one of these words, with more behind them.
fn lines(block: &str, beginnings: &[(&str, &str)]) -> String {
    let mut out = String::new();
    for (beginning, more) in beginnings {
        let line = block.lines().find(|line| line.starts_with(beginning));
        let line = line.unwrap_or_else(|| panic!("no line {beginning:?} in\n{block}"));
        let command = line.split("  #").next().unwrap().trim_end();
        writeln!(out, "{command} {more}").unwrap();
    }
    out
}

/// What changes places on the right side.
fn on_the_right(text: &str) -> String {
    let pairs = [("192.0.2.1", "192.0.2.2"), ("left", "right"), ("10.1.0.", "10.2.0.")];
    pairs.iter().fold(text.to_owned(), |text, (left, right)| {
        text.replace(left, "\0").replace(right, left).replace('\0', right)
    })
}

struct Lab(tempfile::TempDir);

impl Lab {
    /// A folder with the programs as `make install` lays them out, outside of a checkout.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let lab = Self(folder);
        fs::create_dir(lab.path("bin")).unwrap();
        let convoy = env!("CARGO_BIN_EXE_convoy");
        std::os::unix::fs::symlink(convoy, lab.path("bin/convoy")).unwrap();
        lab.write("convoy.toml", &page("systemd/convoy.toml"));
        lab.write("side.sh", SIDE);
        lab.write("lab.sh", LAB);
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn run(&self) -> Output {
        let mut command = Command::new("timeout");
        command.args(["120", "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]);
        command.args(["--mount-proc", "bash"]).arg(self.path("lab.sh")).arg(self.0.path());
        let (variable, library) = preload();
        command.env(variable, library).output().unwrap()
    }

    #[track_caller]
    fn run_well(&self) {
        let output = self.run();
        let said = ["left.log", "right.log"].map(|log| self.read(log)).join("\n---\n");
        assert!(output.status.success(), "{}\n{said}", String::from_utf8_lossy(&output.stderr));
    }
}

fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    found.is_ok_and(|found| found.status.success())
}

/// Two gateways with an IKE daemon, started by the commands of a section of `docs/ike-daemons.md`.
fn daemons(lab: &Lab, section: &str, with_systemd: &str) {
    // `make install` was done by hand: `install.rs` tests it.
    let commands = block(section, "Without systemd").replace("make install", "true");
    lab.write("left.sh", &commands);
    lab.write("right.sh", &commands);
    let ping = lines(with_systemd, &[("ping ", "-c 1 -W 2 && touch answered && break")]);
    let look = format!(
        "until [ -e right.ready ]; do sleep 0.2; done\nfor i in $(seq 20); do\n{ping}done\n{}",
        lines(with_systemd, &[("convoy status", "> status")])
    );
    lab.write("look.sh", &look);
    lab.run_well();
    assert!(lab.path("answered").exists(), "{}", lab.read("left.log"));
}

#[test]
fn a_tunnel_by_strongswan_comes_up_with_the_commands_of_the_page() {
    if !can_make_namespaces() {
        return;
    }
    if !has("charon-systemd") || !has("swanctl") {
        return println!("SKIPPED: charon-systemd or swanctl is not installed");
    }
    let page = page("docs/ike-daemons.md");
    let configuration = block(&page, "`/etc/swanctl/swanctl.conf` on `left`");
    let lab = Lab::new();
    lab.write("left.etc/swanctl/swanctl.conf", &configuration);
    lab.write("right.etc/swanctl/swanctl.conf", &on_the_right(&configuration));
    daemons(&lab, &page, &block(&page, "with systemd:"));
    let status = lab.read("status");
    assert!(status.starts_with("convoy: ok, "), "{status}");
    assert!(status.contains("charon-systemd (pid "), "{status}");
}

#[test]
fn a_tunnel_by_libreswan_comes_up_with_the_commands_of_the_page() {
    if !can_make_namespaces() {
        return;
    }
    let Some(unpacked) = libreswan() else { return };
    let page = page("docs/ike-daemons.md");
    let (_, section) = page.split_once("## Libreswan").unwrap();
    let lab = Lab::new();
    std::os::unix::fs::symlink(unpacked.join("usr/sbin/ipsec"), lab.path("bin/ipsec")).unwrap();
    lab.write("packages.sh", &format!("unpacked='{}'{LIBRESWAN}", unpacked.display()));
    for side in ["left", "right"] {
        for name in ["site.conf", "site.secrets"] {
            let text = block(section, &format!("`/etc/ipsec.d/{name}`"));
            lab.write(&format!("{side}.etc/ipsec.d/{name}"), &text);
        }
    }
    daemons(&lab, section, &block(&page, "with systemd:"));
    let status = lab.read("status");
    assert!(status.starts_with("convoy: ok, "), "{status}");
    assert!(status.contains("pluto (pid "), "{status}");
}

#[test]
fn a_first_tunnel_comes_up_with_the_commands_of_the_page() {
    if !can_make_namespaces() {
        return;
    }
    let page = page("docs/getting-started.md");
    let init = block(&page, "## 1. Make the site files");
    let check = block(&page, "## 2. Check them");
    let run = block(&page, "## 3. Run the gateways");
    let ping = block(&page, "## 4. See it work");
    let (_, behind) = page.split_once("## 4. See it work").unwrap();
    let see = block(behind, "On `left`:");
    let lab = Lab::new();
    // On one host, before the other's files are moved there.
    let made = Command::new("bash")
        .args(["-ec", &init])
        .current_dir(lab.0.path())
        .env("PATH", format!("{}:{}", lab.path("bin").display(), std::env::var("PATH").unwrap()))
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let side = format!(
        "folder=$PWD\ncd tunnel\n{}({run}) > $folder/$side.run 2>&1 &\ncd $folder\n\
         until grep -q ready $side.run; do sleep 0.1; done\n",
        lines(&check, &[("convoy check", "|| [ $? = 1 ]"), ("convoy run", "")]),
    );
    lab.write("left.sh", &side);
    lab.write("right.sh", &on_the_right(&side));
    let commands = [
        ("convoy status ", "> ../status"),
        ("convoy trace", "> ../trace"),
        ("convoy doctor", "> ../doctor || true"),
    ];
    let look = format!(
        "until [ -e right.ready ]; do sleep 0.2; done\n{}cd tunnel\n{}cd ..\n",
        lines(&ping, &[("ping ", "-c 3")]),
        lines(&see, &commands),
    );
    lab.write("look.sh", &look);
    lab.run_well();
    let (status, trace) = (lab.read("status"), lab.read("trace"));
    assert!(status.starts_with("left: ok, "), "{status}");
    assert!(trace.contains("verdict") && trace.contains("protected, and sent"), "{trace}");
    assert!(lab.read("doctor").contains("routes"), "{}", lab.read("doctor"));
}
