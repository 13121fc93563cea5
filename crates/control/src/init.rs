//! A commented pair of site files with fresh keys, to begin with.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use convoy_crypto::KeyBits;
use convoy_ipsec::key::SALT_BYTES;
use convoy_wire::{Prefix, Spi};

use crate::new_key::NewKey;
use crate::site::Backend;

/// Properties of the pair.
#[derive(Clone, Debug)]
pub struct PairOptions {
    /// The gateways, named `left` and `right` unless changed.
    pub left: SideOptions,
    /// The other one.
    pub right: SideOptions,
    /// Size of the AES keys.
    pub key_bits: KeyBits,
    /// Carry ESP in UDP, as through a NAT (RFC 3948).
    pub udp_encap: bool,
    /// Extended sequence numbers (RFC 4303 section 2.2.1).
    pub esn: bool,
}

/// One of the two gateways.
#[derive(Clone, Debug)]
pub struct SideOptions {
    /// Name; also of its file and its state folder.
    pub name: String,
    /// Outer address.
    pub address: IpAddr,
    /// Networks behind it.
    pub networks: Vec<Prefix>,
    /// Name of its TUN interface.
    pub interface: String,
    /// Addresses of its TUN interface, such as `10.1.0.1/24`; may be empty.
    pub interface_addresses: Vec<String>,
    /// Go through interfaces that are there already instead of a TUN interface and sockets.
    pub direct: Option<DirectOptions>,
    /// Network namespace it runs in, if any.
    pub namespace: Option<String>,
}

/// The interfaces of a gateway that forwards between them.
#[derive(Clone, Debug)]
pub struct DirectOptions {
    /// Input and output of packets on both sides.
    pub backend: Backend,
    /// Name of the interface on the wire side. On the plain side it is
    /// [`SideOptions::interface`].
    pub wire: String,
}

impl SideOptions {
    /// A side with its own name, and `convoy0` as its interface.
    #[must_use]
    pub fn new(name: &str, address: IpAddr, networks: Vec<Prefix>) -> Self {
        Self {
            name: name.to_owned(),
            address,
            networks,
            interface: "convoy0".to_owned(),
            interface_addresses: Vec::new(),
            direct: None,
            namespace: None,
        }
    }
}

/// A pair of site files with their key files, left first.
#[derive(Debug)]
pub struct Pair {
    gateways: [GatewayFiles; 2],
}

/// Files of one gateway.
#[derive(Debug)]
pub struct GatewayFiles {
    /// Name of the gateway.
    pub name: String,
    /// Text of its site file, which names key files and holds no keys.
    pub site: String,
    /// Names of the key files in their folder, and their keys.
    keys: [(String, Arc<NewKey>); 2],
}

/// Files that were written, left first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Site files.
    pub sites: Vec<PathBuf>,
    /// Key files.
    pub keys: Vec<PathBuf>,
}

/// A pair was not made or not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// The two outer addresses cannot be joined by a tunnel.
    #[error(
        "{left} and {right} cannot be the two ends of a tunnel: use two addresses of one IP version"
    )]
    Addresses {
        /// Address of the left gateway.
        left: IpAddr,
        /// Address of the right gateway.
        right: IpAddr,
    },
    /// The protected networks have no IP version in common, or none was given.
    #[error("the networks behind the gateways need an IP version in common")]
    Networks,
    /// A network has none of its IP version on the other side, so nothing could be protected.
    #[error(
        "{0} has no network of its IP version behind the other gateway: give that one too, or leave it \
         out"
    )]
    Alone(Prefix),
    /// Both gateways have one network behind them.
    #[error("{0} is behind both gateways: give each its own networks")]
    Shared(Prefix),
    /// The two gateways have one name.
    #[error("both gateways are called '{0}': give each its own name")]
    Names(String),
    /// A name cannot be used.
    #[error("'{0}' cannot be a name: use letters, digits, '-', '_' and '.'")]
    Name(String),
    /// The file or folder is there; its keys would be lost.
    #[error("{} exists and is not overwritten: its keys may be in use", .0.display())]
    Exists(PathBuf),
    /// The operating system refused.
    #[error("cannot write {}: {}", .path.display(), convoy_host::describe_io(.source))]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// No random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(getrandom::Error),
}

/// Makes a pair with keys and SPIs from the system's random numbers.
///
/// # Errors
/// Fails if the options do not fit together, or there are no random numbers.
pub fn pair(options: &PairOptions) -> Result<Pair, InitError> {
    let (left, right) = (&options.left, &options.right);
    for side in [left, right] {
        if !crate::site::is_name(&side.name) {
            return Err(InitError::Name(side.name.clone()));
        }
    }
    if left.name == right.name {
        return Err(InitError::Names(left.name.clone()));
    }
    if left.address.is_ipv4() != right.address.is_ipv4() || left.address == right.address {
        return Err(InitError::Addresses { left: left.address, right: right.address });
    }
    if common_networks(left, right).is_none() {
        return Err(InitError::Networks);
    }
    for (mine, theirs) in [(left, right), (right, left)] {
        let has_partner = |n: &Prefix| theirs.networks.iter().any(|o| o.version() == n.version());
        if let Some(alone) = mine.networks.iter().find(|network| !has_partner(network)) {
            return Err(InitError::Alone(*alone));
        }
    }
    if let Some(shared) = left.networks.iter().find(|network| right.networks.contains(network)) {
        return Err(InitError::Shared(*shared));
    }
    // One SA, so one key and SPI, for each direction.
    let (to_right, to_left) = (Sa::random(options.key_bits)?, Sa::random(options.key_bits)?);
    Ok(Pair {
        gateways: [
            gateway(options, left, right, &to_right, &to_left),
            gateway(options, right, left, &to_left, &to_right),
        ],
    })
}

fn gateway(
    options: &PairOptions,
    mine: &SideOptions,
    theirs: &SideOptions,
    out: &Sa,
    inward: &Sa,
) -> GatewayFiles {
    let file = |way: &str, sa: &Sa| (key_file(&theirs.name, way), Arc::clone(&sa.key));
    GatewayFiles {
        name: mine.name.clone(),
        site: text(options, mine, theirs, out, inward),
        keys: [file(OUT, out), file(IN, inward)],
    }
}

impl Pair {
    /// The files of both gateways, left first.
    pub fn gateways(&self) -> impl Iterator<Item = &GatewayFiles> {
        self.gateways.iter()
    }

    /// Writes both site files into a folder, mode 0600, with their key files, and makes their state folders. The
    /// folder is made if it is missing. Nothing that exists is overwritten.
    ///
    /// # Errors
    /// [`InitError::Exists`] before anything was written; [`InitError::Write`].
    pub fn write(&self, folder: &Path) -> Result<Written, InitError> {
        for gateway in &self.gateways {
            for path in [site_file(&gateway.name), keys_folder(&gateway.name)] {
                let path = folder.join(path);
                if std::fs::symlink_metadata(&path).is_ok() {
                    return Err(InitError::Exists(path));
                }
            }
        }
        crate::folder::make(folder).map_err(failed(folder))?;
        let mut written = Written::default();
        for gateway in &self.gateways {
            let state = folder.join(state_folder(&gateway.name));
            match std::fs::DirBuilder::new().mode(0o700).create(&state) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(failed(&state)(error));
                }
                _ => {}
            }
            written.keys.extend(gateway.write_keys(folder)?);
            let path = folder.join(site_file(&gateway.name));
            let mut options = std::fs::OpenOptions::new();
            let file = options.write(true).create_new(true).mode(0o600).open(&path);
            file.and_then(|mut file| {
                file.write_all(gateway.site.as_bytes()).and_then(|()| file.sync_all())
            })
            .map_err(failed(&path))?;
            written.sites.push(path);
        }
        Ok(written)
    }
}

impl GatewayFiles {
    /// Makes the folder of the key files, mode 0700, beside where the site file will be, and writes them, mode 0600.
    ///
    /// # Errors
    /// [`InitError::Write`], also if the folder is there.
    pub fn write_keys(&self, folder: &Path) -> Result<Vec<PathBuf>, InitError> {
        let keys = folder.join(keys_folder(&self.name));
        std::fs::DirBuilder::new().mode(0o700).create(&keys).map_err(failed(&keys))?;
        let write = |(name, key): &(String, Arc<NewKey>)| {
            let path = keys.join(name);
            key.write_new(&path).map_err(failed(&path)).map(|()| path)
        };
        self.keys.iter().map(write).collect()
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> InitError {
    let path = path.to_owned();
    move |source| InitError::Write { path, source }
}

fn site_file(name: &str) -> String {
    format!("{name}.toml")
}

/// Name of the folder of key files beside a site file.
#[must_use]
pub fn keys_folder(name: &str) -> String {
    format!("{name}.keys")
}

/// Ends of the names of SAs and key files.
const OUT: &str = "out";
const IN: &str = "in";

/// Name of the file with the key of the SA to or from a peer.
fn key_file(peer: &str, way: &str) -> String {
    format!("{peer}-{way}.key")
}

/// Name of the state folder beside a site file.
fn state_folder(name: &str) -> String {
    format!("{name}.state")
}

/// SPI and key of one direction, for both gateways.
struct Sa {
    spi: u32,
    key: Arc<NewKey>,
}

impl Sa {
    fn random(bits: KeyBits) -> Result<Self, InitError> {
        let key = NewKey::random(bits.bytes() + SALT_BYTES).map_err(InitError::Random)?;
        let mut spi = getrandom::u32().map_err(InitError::Random)?;
        while spi < Spi::MIN_ASSIGNABLE {
            spi = getrandom::u32().map_err(InitError::Random)?;
        }
        Ok(Self { spi, key: Arc::new(key) })
    }
}

/// The networks of both sides whose IP version the other side has too.
fn common_networks(mine: &SideOptions, theirs: &SideOptions) -> Option<(String, String)> {
    let of = |a: &SideOptions, b: &SideOptions| -> Vec<String> {
        let common =
            a.networks.iter().filter(|n| b.networks.iter().any(|o| o.version() == n.version()));
        common.map(|network| format!("\"{network}\"")).collect()
    };
    let list = |networks: Vec<String>| match networks.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    };
    Some((list(of(mine, theirs))?, list(of(theirs, mine))?))
}

/// The file of `mine`.
fn text(
    options: &PairOptions,
    mine: &SideOptions,
    theirs: &SideOptions,
    out: &Sa,
    inward: &Sa,
) -> String {
    let mut text = String::new();
    let (me, peer) = (&mine.name, &theirs.name);
    let keys = keys_folder(me);
    let mut line = |args: std::fmt::Arguments<'_>| {
        // Writing to a String does not fail.
        let _ = text.write_fmt(args);
        text.push('\n');
    };
    line(format_args!(
        "# Gateway \"{me}\": an ESP tunnel to \"{peer}\".\n\
         #\n\
         # Check this file with   convoy check {me}.toml\n\
         # Run the gateway with   convoy run {me}.toml\n\
         #\n\
         # Its keys are in the folder {keys}: keep that readable by its owner alone, and bring the\n\
         # peer's folder to the peer by a safe way.\n\
         \n\
         name = \"{me}\""
    ));
    match &mine.namespace {
        Some(namespace) => line(format_args!(
            "# The network namespace the gateway runs in.\nnamespace = \"{namespace}\""
        )),
        None => {
            line(format_args!("# Run in a network namespace of `ip netns`:\n#namespace = \"{me}\""))
        }
    }
    line(format_args!(
        "\n# Remembers across restarts which sequence numbers of the keys below were used, because two\n\
         # packets under one number would reveal the authentication key. Never restore it from a\n\
         # backup; rather make new keys. A relative path begins at this file's folder.\n\
         state_dir = \"{}\"\n",
        state_folder(me),
    ));
    match &mine.direct {
        Some(direct) => direct_sides(&mut line, mine, direct),
        None => tun_side(&mut line, mine),
    }
    line(format_args!(
        "\n# Worker threads; name CPUs to pin them.\n\
         [workers]\n\
         count = 1\n\
         #pin = [2]\n\
         \n\
         # Packets to \"{peer}\": its file has the same SPI and key as inbound.\n\
         [[sa]]"
    ));
    sa(&mut line, options, mine, theirs, out.spi, "outbound");
    line(format_args!("\n# Packets from \"{peer}\".\n[[sa]]"));
    sa(&mut line, options, mine, theirs, inward.spi, "inbound");
    // Checked by `pair`.
    let (local, remote) = common_networks(mine, theirs).unwrap_or_default();
    line(format_args!(
        "\n# Which packets are protected: those from the networks here to the networks there, and back.\n\
         # Everything else that reaches the interface is dropped.\n\
         [[policy]]\n\
         name = \"to-{peer}\"\n\
         action = \"protect\"\n\
         local = {local}\n\
         remote = {remote}\n\
         sa_out = \"{peer}-out\"\n\
         sa_in = \"{peer}-in\""
    ));
    text
}

/// The plain side as a TUN interface; the wire side needs nothing said.
fn tun_side(line: &mut dyn FnMut(std::fmt::Arguments<'_>), mine: &SideOptions) {
    line(format_args!(
        "# The side of the protected networks: a TUN interface. What the policies protect on the far\n\
         # side is routed into it. (With `backend = \"af_packet\"` or `\"af_xdp\"` it is an interface\n\
         # that is there already, from which the gateway itself forwards.)\n\
         [plain]\n\
         interface = \"{}\"",
        mine.interface
    ));
    let addresses: Vec<_> = mine.interface_addresses.iter().map(|a| format!("\"{a}\"")).collect();
    match addresses.as_slice() {
        [] => line(format_args!(
            "# Addresses of the interface, if it needs any:\n#addresses = [\"10.255.0.1/32\"]"
        )),
        some => line(format_args!("addresses = [{}]", some.join(", "))),
    }
}

/// Both sides as interfaces that are there already.
fn direct_sides(
    line: &mut dyn FnMut(std::fmt::Arguments<'_>),
    mine: &SideOptions,
    direct: &DirectOptions,
) {
    line(format_args!(
        "# The side of the protected networks: an interface from which the gateway itself forwards.\n\
         # The kernel keeps ARP, Neighbour Discovery and all that is for this host.\n\
         [plain]\n\
         backend = \"{0}\"\n\
         interface = \"{1}\"\n\
         \n\
         # The side of the peers.\n\
         [wire]\n\
         backend = \"{0}\"\n\
         interface = \"{2}\"",
        direct.backend.word(),
        mine.interface,
        direct.wire
    ));
}

/// The lines of one SA below its header.
fn sa(
    line: &mut dyn FnMut(std::fmt::Arguments<'_>),
    options: &PairOptions,
    mine: &SideOptions,
    theirs: &SideOptions,
    spi: u32,
    direction: &str,
) {
    let way = if direction == "outbound" { OUT } else { IN };
    line(format_args!(
        "name = \"{}-{way}\"\n\
         direction = \"{direction}\"\n\
         spi = {:#010x}\n\
         local = \"{}\"\n\
         remote = \"{}\"\n\
         algorithm = \"aes-{}-gcm\"",
        theirs.name,
        spi,
        mine.address,
        theirs.address,
        options.key_bits.bits(),
    ));
    line(format_args!(
        "# Key, then 4 bytes of salt; the peer has the same file. `convoy genkey` makes another one. Used in\n\
         # no other SA, and never put back after a change.\n\
         key_file = \"{}/{}\"",
        keys_folder(&mine.name),
        key_file(&theirs.name, way),
    ));
    if options.udp_encap {
        line(format_args!("# Inside UDP port 4500, as through a NAT.\nencap = \"udp\""));
    }
    if !options.esn {
        line(format_args!(
            "# Sequence numbers of 32 bits: the key ends after 4 billion packets.\nesn = false"
        ));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::site::Site;

    fn options() -> PairOptions {
        let side = |name, address: &str, networks: &[&str]| {
            let networks = networks.iter().map(|n| n.parse().unwrap()).collect();
            SideOptions::new(name, address.parse().unwrap(), networks)
        };
        PairOptions {
            left: side("left", "192.0.2.1", &["10.1.0.0/24", "fd01::/64"]),
            right: side("right", "198.51.100.1", &["10.2.0.0/24", "fd02::/64"]),
            key_bits: KeyBits::Aes128,
            udp_encap: false,
            esn: true,
        }
    }

    /// Writes a pair and loads both files, which must be without errors and warnings.
    fn load(options: &PairOptions) -> [Site; 2] {
        let dir = tempfile::tempdir().unwrap();
        let written = pair(options).unwrap().write(dir.path()).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(written.keys.len(), 4);
        for key in &written.keys {
            assert_eq!((mode(key), mode(key.parent().unwrap())), (0o600, 0o700));
        }
        let sites: Vec<_> = written
            .sites
            .iter()
            .map(|file| {
                assert_eq!(mode(file), 0o600);
                let text = std::fs::read_to_string(file).unwrap();
                for key in &written.keys {
                    let key = std::fs::read_to_string(key).unwrap();
                    assert!(!text.contains(key.trim_end()), "{text}");
                }
                let (site, warnings) = Site::load(file).unwrap_or_else(|errors| panic!("{errors}"));
                // Where tests run in memory, so does the state folder.
                let warnings: Vec<_> = warnings
                    .iter()
                    .map(ToString::to_string)
                    .filter(|w| !w.contains("forgotten at the next boot"))
                    .collect();
                assert_eq!(warnings, [""; 0]);
                site
            })
            .collect();
        sites.try_into().unwrap()
    }

    #[test]
    fn a_pair_that_forwards_between_interfaces_loads() {
        let mut options = options();
        let direct = DirectOptions { backend: Backend::AfPacket, wire: "eth0".into() };
        options.left.direct = Some(direct.clone());
        options.right.direct = Some(direct);
        for site in load(&options) {
            assert_eq!(
                (site.plain.backend, site.wire.backend),
                (Backend::AfPacket, Backend::AfPacket)
            );
            assert_eq!(site.wire.interface.as_deref(), Some("eth0"));
            assert_eq!(site.plain.routes, crate::site::Routes::Explicit(Vec::new()));
        }
    }

    #[test]
    fn a_pair_loads_without_warnings_and_fits_together() {
        for key_bits in KeyBits::ALL {
            for (udp_encap, esn) in [(false, true), (true, true), (true, false)] {
                let options = PairOptions { key_bits, udp_encap, esn, ..options() };
                let [left, right] = load(&options);
                for (a, b) in [(&left, &right), (&right, &left)] {
                    let (out, inward) = (&a.outbound[0].association, &b.inbound[0].association);
                    assert!(out.key.same_nonces(&inward.key));
                    assert_eq!(
                        (out.spi, out.esn, out.key.suite()),
                        (inward.spi, inward.esn, inward.key.suite())
                    );
                    assert_eq!(out.endpoints.local, inward.endpoints.remote);
                    assert_eq!(out.encap.is_some(), udp_encap);
                    assert_eq!(a.policies[0].local, b.policies[0].remote);
                }
                assert!(
                    !left.outbound[0].association.key.same_nonces(&left.inbound[0].association.key)
                );
            }
        }
    }

    #[test]
    fn every_pair_has_its_own_keys() {
        let [a, _] = load(&options());
        let [b, _] = load(&options());
        assert!(!a.outbound[0].association.key.same_nonces(&b.outbound[0].association.key));
    }

    #[test]
    fn nothing_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("right.toml"), "mine").unwrap();
        let error = pair(&options()).unwrap().write(dir.path()).unwrap_err();
        assert!(error.to_string().contains("right.toml exists and is not overwritten"), "{error}");
        assert!(!dir.path().join("left.toml").exists());
        assert_eq!(std::fs::read(dir.path().join("right.toml")).unwrap(), b"mine");
        std::fs::remove_file(dir.path().join("right.toml")).unwrap();
        std::fs::create_dir(dir.path().join("right.keys")).unwrap();
        let error = pair(&options()).unwrap().write(dir.path()).unwrap_err();
        assert!(error.to_string().contains("right.keys exists and is not overwritten"), "{error}");
        assert!(!dir.path().join("left.keys").exists() && !dir.path().join("left.toml").exists());
    }

    #[test]
    fn options_that_do_not_fit_are_refused() {
        let mut mixed = options();
        mixed.right.address = "2001:db8::1".parse().unwrap();
        assert!(matches!(pair(&mixed), Err(InitError::Addresses { .. })));
        let mut apart = options();
        apart.left.networks.truncate(1);
        apart.right.networks.remove(0);
        assert!(matches!(pair(&apart), Err(InitError::Networks)));
        let mut alone = options();
        alone.left.networks.truncate(1);
        let refused = pair(&alone).unwrap_err();
        assert!(
            matches!(refused, InitError::Alone(n) if n == alone.right.networks[1]),
            "{refused}"
        );
        let mut twins = options();
        twins.right.name = "left".into();
        assert!(matches!(pair(&twins), Err(InitError::Names(_))));
        let mut shared = options();
        shared.right.networks.push("10.1.0.0/24".parse().unwrap());
        assert!(matches!(pair(&shared), Err(InitError::Shared(_))));
    }
}
