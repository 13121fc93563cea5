//! Configuration of a daemon: typed here, text in its own files.

use std::{ffi::OsString, fmt::Write as _, net::IpAddr, path::Path, time::Duration};

use super::{Identity, StrongSwanConfig};

/// Carries the packets of a daemon's SAs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataPlane {
    /// strongSwan's own ESP in userspace (plugin `kernel-libipsec`): always in UDP before version
    /// 5.9.11, without extended sequence numbers.
    Libipsec,
    /// Whatever answers the daemon's XFRM socket.
    Xfrm {
        /// Words before the daemon's command, such as `convoy exec --socket PATH --`; it has to be
        /// run in the launcher's place, so that its process is the daemon's.
        launcher: Vec<OsString>,
    },
}

/// Proof of an end's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Auth {
    /// A pre-shared key.
    Psk(String),
    /// A certificate, the daemon's [`Identity`].
    Certificate,
}

/// Tunnel or transport mode (RFC 4301 section 3.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// A tunnel between gateways.
    #[default]
    Tunnel,
    /// Between two hosts.
    Transport,
}

/// Effect that loading has on a child.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StartAction {
    /// Nothing until it is asked for.
    #[default]
    None,
    /// The first packet makes it.
    Trap,
    /// It is made at once.
    Start,
}

/// An IKE connection. Texts go into strongSwan's files as they are: no quotes, no line ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// Its name.
    pub name: String,
    /// Own addresses; empty for any.
    pub local: Vec<IpAddr>,
    /// The peer's addresses; empty for any.
    pub remote: Vec<IpAddr>,
    /// Own identity, such as `left.test`.
    pub local_id: String,
    /// The peer's identity.
    pub remote_id: String,
    /// Proof of both ends' identities.
    pub auth: Auth,
    /// Algorithms of the IKE SA.
    pub proposals: String,
    /// ESP in UDP even where there is no NAT.
    pub encap: bool,
    /// Addresses may change (RFC 4555).
    pub mobike: bool,
    /// Time of silence after which the peer is asked whether it lives.
    pub dpd_delay: Option<Duration>,
    /// Its tunnels.
    pub children: Vec<Child>,
    /// Further options, by their names in `swanctl.conf`.
    pub more: Vec<(String, String)>,
}

impl Connection {
    /// A connection with a pre-shared key between two identities, from and to any address.
    #[must_use]
    pub fn psk(name: &str, local_id: &str, remote_id: &str, secret: &str) -> Self {
        Self {
            name: name.into(),
            local: Vec::new(),
            remote: Vec::new(),
            local_id: local_id.into(),
            remote_id: remote_id.into(),
            auth: Auth::Psk(secret.into()),
            proposals: "aes128-sha256-x25519".into(),
            encap: false,
            mobike: false,
            dpd_delay: None,
            children: Vec::new(),
            more: Vec::new(),
        }
    }

    /// The same with certificates.
    #[must_use]
    pub fn certificates(name: &str, local_id: &str, remote_id: &str) -> Self {
        Self { auth: Auth::Certificate, ..Self::psk(name, local_id, remote_id, "") }
    }

    /// Between two addresses.
    #[must_use]
    pub fn between(mut self, local: IpAddr, remote: IpAddr) -> Self {
        self.local = vec![local];
        self.remote = vec![remote];
        self
    }

    /// With one tunnel more.
    #[must_use]
    pub fn child(mut self, child: Child) -> Self {
        self.children.push(child);
        self
    }

    fn write(&self, text: &mut String) {
        let auth = match self.auth {
            Auth::Psk(_) => "psk",
            Auth::Certificate => "pubkey",
        };
        let mut block = Block::open(text, 1, &self.name);
        block.line("version", "2");
        block.line("local_addrs", addresses(&self.local));
        block.line("remote_addrs", addresses(&self.remote));
        block.line("proposals", &self.proposals);
        block.line("encap", yes(self.encap));
        block.line("mobike", yes(self.mobike));
        if let Some(delay) = self.dpd_delay {
            block.line("dpd_delay", seconds(delay));
        }
        if self.auth == Auth::Certificate {
            // A daemon whose end moves is asked for its certificate again otherwise.
            block.line("send_cert", "always");
        }
        block.all(&self.more);
        for (end, id) in [("local", &self.local_id), ("remote", &self.remote_id)] {
            let mut end = block.inner(end);
            end.line("auth", auth);
            end.line("id", id);
        }
        let mut children = block.inner("children");
        for child in &self.children {
            child.write(&mut children);
        }
    }
}

/// A tunnel of a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Child {
    /// Its name.
    pub name: String,
    /// Traffic selectors of the own side, such as `10.1.0.0/24` or `dynamic`.
    pub local_ts: Vec<String>,
    /// Traffic selectors of the peer's side.
    pub remote_ts: Vec<String>,
    /// Algorithms of ESP, such as `aes128gcm16-x25519-esn`; empty for the daemon's own choice.
    pub proposals: String,
    /// Tunnel or transport mode.
    pub mode: Mode,
    /// Effect of loading it.
    pub start: StartAction,
    /// Age at which it is made anew, and no random part of the time is taken off; never if not given.
    pub rekey_time: Option<Duration>,
    /// The same, in bytes of an SA.
    pub rekey_bytes: Option<u64>,
    /// The same, in packets of an SA.
    pub rekey_packets: Option<u64>,
    /// Further options, by their names in `swanctl.conf`.
    pub more: Vec<(String, String)>,
}

impl Child {
    /// A tunnel between two networks with AES-128-GCM.
    #[must_use]
    pub fn new(name: &str, local_ts: impl ToString, remote_ts: impl ToString) -> Self {
        Self {
            name: name.into(),
            local_ts: vec![local_ts.to_string()],
            remote_ts: vec![remote_ts.to_string()],
            proposals: "aes128gcm16-x25519".into(),
            ..Self::default()
        }
    }

    fn write(&self, children: &mut Block<'_>) {
        let mut block = children.inner(&self.name);
        block.line("local_ts", self.local_ts.join(","));
        block.line("remote_ts", self.remote_ts.join(","));
        if !self.proposals.is_empty() {
            block.line("esp_proposals", &self.proposals);
        }
        block.line("mode", if self.mode == Mode::Tunnel { "tunnel" } else { "transport" });
        let start = match self.start {
            StartAction::None => "none",
            StartAction::Trap => "trap",
            StartAction::Start => "start",
        };
        block.line("start_action", start);
        // One clock in the file and none behind it: what is not asked for does not happen.
        block.line("rekey_time", self.rekey_time.map_or_else(|| "0".into(), seconds));
        block.line("rand_time", "0");
        for (unit, limit) in [("bytes", self.rekey_bytes), ("packets", self.rekey_packets)] {
            if let Some(limit) = limit {
                block.line(&format!("rekey_{unit}"), limit);
                // Hard limits far behind, or traffic at full speed meets them while IKE talks.
                block.line(&format!("life_{unit}"), limit.saturating_mul(1000));
                block.line(&format!("rand_{unit}"), 0);
            }
        }
        block.all(&self.more);
    }
}

/// `swanctl.conf`: connections and their keys.
pub(super) fn swanctl(connections: &[Connection]) -> String {
    let mut text = String::from("connections {\n");
    for connection in connections {
        connection.write(&mut text);
    }
    text.push_str("}\nsecrets {\n");
    for connection in connections {
        let Auth::Psk(secret) = &connection.auth else { continue };
        let mut block = Block::open(&mut text, 1, &format!("ike-{}", connection.name));
        block.line("id-local", &connection.local_id);
        block.line("id-remote", &connection.remote_id);
        block.line("secret", format_args!("\"{secret}\""));
    }
    text.push_str("}\n");
    text
}

/// Plugins of every daemon here; one that a version does not have is passed over.
const PLUGINS: &str = "random nonce openssl aes sha1 sha2 hmac kdf gcm ccm ctr chapoly cmac xcbc \
                       curve25519 pem pkcs1 x509 revocation constraints pubkey";

/// `strongswan.conf`: the daemon itself.
pub(super) fn strongswan(config: &StrongSwanConfig) -> String {
    let folder: &Path = &config.folder;
    let vici = format!("unix://{}", folder.join(super::SOCKET).display());
    let kernel = match config.plane {
        // The first one has its way; the second still speaks of routes and addresses.
        DataPlane::Libipsec => "kernel-libipsec kernel-netlink",
        DataPlane::Xfrm { .. } => "kernel-netlink",
    };
    let mut text = String::new();
    {
        let mut daemon = Block::open(&mut text, 0, "charon-systemd");
        daemon.line("load", format_args!("{PLUGINS} {kernel} socket-default vici updown counters"));
        if !config.own_routes {
            daemon.line("install_routes", "no");
        }
        daemon.all(&config.more);
        let mut files = daemon.inner("filelog");
        let mut file = files.inner("all");
        file.line("path", folder.join(super::LOG).display());
        file.line("time_format", "%H:%M:%S");
        file.line("time_add_ms", "yes");
        file.line("default", "1");
        file.line("flush_line", "yes");
        drop(file);
        drop(files);
        let mut system = daemon.inner("syslog");
        system.inner("daemon").line("default", "-1");
        drop(system);
        let mut plugins = daemon.inner("plugins");
        plugins.inner("vici").line("socket", &vici);
        plugins.inner("kernel-libipsec").line("allow_peer_ts", "yes");
    }
    let mut client = Block::open(&mut text, 0, "swanctl");
    client.inner("plugins").inner("vici").line("socket", &vici);
    drop(client);
    text
}

/// Folders below the one of `swanctl.conf`, and what each is to hold.
pub(super) fn credentials(identity: Option<&Identity>) -> [(&'static str, Option<&[u8]>); 3] {
    [
        ("x509ca", identity.map(|its| its.authority.as_slice())),
        ("x509", identity.map(|its| its.certificate.as_slice())),
        ("private", identity.map(|its| its.key.as_slice())),
    ]
}

/// A block in braces, closed when it goes.
struct Block<'a> {
    text: &'a mut String,
    depth: usize,
}

impl<'a> Block<'a> {
    fn open(text: &'a mut String, depth: usize, name: &str) -> Self {
        let _ = writeln!(text, "{:1$}{name} {{", "", depth * 2);
        Self { text, depth: depth + 1 }
    }

    fn inner(&mut self, name: &str) -> Block<'_> {
        Block::open(self.text, self.depth, name)
    }

    fn line(&mut self, key: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.text, "{:1$}{key} = {value}", "", self.depth * 2);
    }

    fn all(&mut self, options: &[(String, String)]) {
        for (key, value) in options {
            self.line(key, value);
        }
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        let _ = writeln!(self.text, "{:1$}}}", "", (self.depth - 1) * 2);
    }
}

fn addresses(list: &[IpAddr]) -> String {
    if list.is_empty() {
        return "%any".into();
    }
    list.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(",")
}

fn seconds(time: Duration) -> String {
    format!("{}s", time.as_secs())
}

fn yes(condition: bool) -> &'static str {
    if condition { "yes" } else { "no" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_nest_and_close() {
        let address = |n| IpAddr::from([192, 0, 2, n]);
        let connection = Connection::psk("c", "a.test", "b.test", "a secret")
            .between(address(1), address(2))
            .child(Child {
                rekey_packets: Some(10),
                ..Child::new("net", "10.1.0.0/24", "dynamic")
            });
        let text = swanctl(&[connection]);
        assert_eq!(text.matches('{').count(), text.matches('}').count());
        for line in [
            "    local_addrs = 192.0.2.1",
            "      id = b.test",
            "        local_ts = 10.1.0.0/24",
            "        rekey_time = 0",
            "        life_packets = 10000",
            "    secret = \"a secret\"",
        ] {
            assert!(text.lines().any(|its| its == line), "no {line:?} in\n{text}");
        }
    }

    #[test]
    fn only_who_carries_packets_itself_installs_routes_without_being_asked() {
        let launcher = vec![];
        for (plane, routes) in [(DataPlane::Libipsec, true), (DataPlane::Xfrm { launcher }, false)]
        {
            let mut config = StrongSwanConfig::new(Path::new("/x"), plane);
            let text = strongswan(&config);
            assert_eq!(text.matches('{').count(), text.matches('}').count());
            assert_eq!(!text.contains("  install_routes = no\n"), routes, "{text}");
            assert_eq!(text.contains("kernel-libipsec kernel-netlink"), routes);
            config.own_routes = true;
            assert!(!strongswan(&config).contains("install_routes"));
        }
    }
}
