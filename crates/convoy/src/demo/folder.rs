//! The folder with what a demonstration leaves to be read, and what it needs while it runs.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use convoy_control::folder::make;
use convoy_control::init::{DirectOptions, PairOptions, SideOptions, keys_folder, pair};
use convoy_control::site::{Backend, Site};
use convoy_control::wireshark;
use convoy_crypto::KeyBits;
use convoy_lab::{Family, LAN_LINK, Topology, WIRE_LINK};
use convoy_wire::Prefix;
use nix::fcntl::OFlag;

use crate::gateway;

/// Names of the two gateways, their files and their state folders.
pub(super) const NAMES: [&str; 2] = ["gwA", "gwB"];
/// Demonstrations that may run at once under one name of a folder.
const MOST: u32 = 100;
/// Size at which the capture ends, in MiB: some two thousand packets, no load for the rest.
const CAPTURE_MIB: u32 = 3;

/// A folder that no other demonstration uses meanwhile.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    lock: File,
}

/// Settings of the pair of gateways.
#[derive(Clone, Debug)]
pub(super) struct SiteOptions {
    /// Outer address and inner network of each.
    sides: [(IpAddr, String); 2],
    udp_encap: bool,
    backend: Backend,
    /// The section about cryptography, or nothing.
    crypto: String,
}

impl SiteOptions {
    /// For the gateways of a laboratory.
    pub(super) fn of_topology(
        lab: &Topology,
        family: Family,
        udp_encap: bool,
        backend: Backend,
    ) -> Self {
        let sides = [&lab.a, &lab.b]
            .map(|site| (site.wire_address(family), site.network(family).to_string()));
        Self { sides, udp_encap, backend, crypto: String::new() }
    }

    /// For gateways in this process: addresses for documentation.
    pub(super) fn in_memory(family: Family, udp_encap: bool) -> Self {
        let sides = [1, 2].map(|n| match family {
            Family::V4 => ([198, 51, 100, n].into(), format!("10.{n}.0.0/24")),
            Family::V6 => {
                let outer = [0x2001, 0xdb8, 0xf, 0, 0, 0, 0, u16::from(n)];
                (outer.into(), format!("2001:db8:{n}::/64"))
            }
        });
        Self { sides, udp_encap, backend: Backend::Host, crypto: String::new() }
    }

    /// The same with ESP in UDP instead of native ESP, or the other way round.
    pub(super) fn of_other_wire(&self) -> Self {
        Self { udp_encap: !self.udp_encap, ..self.clone() }
    }

    /// The same with a section about cryptography.
    pub(super) fn with_crypto(self, crypto: String) -> Self {
        Self { crypto, ..self }
    }

    fn pair(&self) -> anyhow::Result<PairOptions> {
        let side = |n: usize| -> anyhow::Result<SideOptions> {
            let (address, network) = &self.sides[n];
            let network: Prefix = network.parse()?;
            let mut side = SideOptions::new(NAMES[n], *address, vec![network]);
            if self.backend.is_direct() {
                side.interface = LAN_LINK.to_owned();
                let wire = WIRE_LINK.to_owned();
                side.direct = Some(DirectOptions { backend: self.backend, wire });
            }
            Ok(side)
        };
        Ok(PairOptions {
            left: side(0)?,
            right: side(1)?,
            key_bits: KeyBits::Aes128,
            udp_encap: self.udp_encap,
            // Versions of Wireshark before 4.4 cannot check the ICV of extended numbers.
            esn: false,
        })
    }
}

impl Folder {
    /// Makes the folder, or one with a number behind its name if another demonstration uses it,
    /// and removes what an earlier demonstration left there.
    pub(super) fn take(wanted: &Path) -> anyhow::Result<Self> {
        for number in 1..=MOST {
            let path = if number == 1 { wanted.to_owned() } else { numbered(wanted, number) };
            make(&path).with_context(|| format!("cannot make {}", path.display()))?;
            let Some(mut lock) = try_lock(&path)? else { continue };
            lock.set_len(0)?;
            write!(lock, "{}", std::process::id())?;
            let folder = Self { path, lock };
            folder.clear_files()?;
            return Ok(folder);
        }
        anyhow::bail!("{MOST} demonstrations use folders named {}", wanted.display())
    }

    /// The process that uses a folder now, if one does.
    pub(super) fn user_of(path: &Path) -> anyhow::Result<Option<i32>> {
        if !path.join(LOCK).exists() {
            return Ok(None);
        }
        if let Some(lock) = try_lock(path)? {
            // Processes that were just started may still have copies of the descriptor.
            lock.unlock()?;
            return Ok(None);
        }
        let mut text = String::new();
        open_lock(path)?.read_to_string(&mut text)?;
        Ok(Some(text.trim().parse().context("the lock names no process")?))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn capture(&self) -> PathBuf {
        self.path.join("wire.pcap")
    }

    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.log"))
    }

    /// Wireshark's configuration folder, with the keys.
    pub(super) fn wireshark(&self) -> PathBuf {
        self.path.join("wireshark")
    }

    pub(super) fn key_file(&self) -> PathBuf {
        self.wireshark().join("esp_sa")
    }

    /// Writes both site files with their key files, and Wireshark's; returns the site files.
    pub(super) fn write_sites(&self, options: &SiteOptions) -> anyhow::Result<[PathBuf; 2]> {
        let pair = pair(&options.pair()?)?;
        let sites = self.sites();
        for ((gateway, name), site) in pair.gateways().zip(NAMES).zip(&sites) {
            fs::DirBuilder::new().mode(0o700).create(self.state(name))?;
            gateway.write_keys(&self.path)?;
            private(site)?
                .write_all(self.site_text(name, &gateway.site, &options.crypto)?.as_bytes())?;
        }
        let (site, _) = gateway::load(&sites[0])?;
        self.write_keys(&site)?;
        Ok(sites)
    }

    fn write_keys(&self, site: &Site) -> anyhow::Result<()> {
        make(&self.wireshark())?;
        private(&self.key_file())?.write_all(wireshark::esp_sa(site).as_bytes())?;
        Ok(())
    }

    /// Text that `convoy init` would write, with what only a demonstration needs.
    fn site_text(&self, name: &str, text: &str, crypto: &str) -> anyhow::Result<String> {
        let state = format!("state_dir = \"{name}.state\"\n");
        let (head, tail) = text.split_once(&state).context("a site file without state folder")?;
        // Sections of tables may follow each other in any order, so the capture can come last.
        let capture = if name == NAMES[0] {
            format!(
                "\n# Records the wire: whole outer packets, up to a size.\n\
                 [capture]\n\
                 file = \"wire.pcap\"\n\
                 max_mib = {CAPTURE_MIB}\n"
            )
        } else {
            String::new()
        };
        Ok(format!(
            "# Written by `convoy demo`, to learn from. The state folder is deleted when the\n\
             # demonstration ends, so never use these keys again: `convoy init` makes your own.\n\
             #\n\
             {head}{state}\
             \n\
             # Where `convoy status` and the others reach this gateway.\n\
             control_socket = \"{name}.sock\"\n\
             {tail}{crypto}{capture}"
        ))
    }

    fn state(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.state"))
    }

    /// Removes what is of no use afterwards: state folders and sockets.
    pub(super) fn clear_state(&self) -> anyhow::Result<()> {
        for name in NAMES {
            remove(&self.state(name), |path| fs::remove_dir_all(path))?;
            // A gateway that was killed leaves the socket and its lock.
            for file in [format!("{name}.sock"), format!("{name}.sock.lock")] {
                remove(&self.path.join(file), |path| fs::remove_file(path))?;
            }
        }
        Ok(())
    }

    /// The site files of both gateways.
    pub(super) fn sites(&self) -> [PathBuf; 2] {
        NAMES.map(|name| self.path.join(format!("{name}.toml")))
    }

    /// Removes all that a demonstration leaves, but the lock.
    pub(super) fn clear_files(&self) -> anyhow::Result<()> {
        self.clear_state()?;
        let sites = self.sites();
        let logs = NAMES.map(|name| self.log(name));
        for file in sites.iter().chain(&logs).chain([&self.capture(), &self.key_file()]) {
            remove(file, |path| fs::remove_file(path))?;
        }
        for name in NAMES {
            remove(&self.path.join(keys_folder(name)), |path| fs::remove_dir_all(path))?;
        }
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Also after a failure; what cannot be removed then is removed by the next run.
        let _ = self.clear_state();
        let _ = self.lock.rewind();
        let _ = self.lock.set_len(0);
        // Processes that were just started may still have copies of the descriptor.
        let _ = self.lock.unlock();
    }
}

/// The file that is locked while a demonstration uses a folder. It stays, so that no two can hold
/// locks of different files under one name.
const LOCK: &str = "in-use";

fn numbered(wanted: &Path, number: u32) -> PathBuf {
    let mut name = wanted.file_name().unwrap_or_default().to_owned();
    name.push(format!("-{number}"));
    wanted.with_file_name(name)
}

/// The folder's lock, unless somebody else has it.
fn try_lock(folder: &Path) -> anyhow::Result<Option<File>> {
    let (path, file) = (folder.join(LOCK), open_lock(folder)?);
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(e)) => {
            Err(e).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

/// The file that is locked, made if it is not there. A link is not followed: the file would be emptied.
fn open_lock(folder: &Path) -> anyhow::Result<File> {
    let path = folder.join(LOCK);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(&path);
    file.with_context(|| {
        format!("cannot write {}, which must be a file and no link", path.display())
    })
}

/// A new file that only its owner can read.
fn private(path: &Path) -> anyhow::Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.with_context(|| format!("cannot write {}", path.display()))
}

fn remove(path: &Path, how: impl Fn(&Path) -> std::io::Result<()>) -> anyhow::Result<()> {
    match how(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.with_context(|| format!("cannot remove {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn taken(dir: &Path) -> Folder {
        Folder::take(&dir.join("demo")).unwrap()
    }

    #[test]
    fn the_site_files_are_good_and_name_socket_and_capture() {
        for family in [Family::V4, Family::V6] {
            for udp_encap in [false, true] {
                let dir = tempfile::tempdir().unwrap();
                let folder = taken(dir.path());
                let sites = folder.write_sites(&SiteOptions::in_memory(family, udp_encap)).unwrap();
                for (site, name) in sites.iter().zip(NAMES) {
                    let (site, _) = gateway::load(site).unwrap();
                    assert!(site.control_socket.ends_with(format!("demo/{name}.sock")));
                    assert_eq!(site.capture.is_some(), name == NAMES[0]);
                }
                let keys = fs::read_to_string(folder.key_file()).unwrap();
                assert_eq!(keys.lines().count(), 2);
            }
        }
    }

    #[test]
    fn a_folder_in_use_is_left_alone_and_the_next_number_taken() {
        let dir = tempfile::tempdir().unwrap();
        let first = taken(dir.path());
        let second = taken(dir.path());
        assert!(second.path().ends_with("demo-2"));
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(Folder::user_of(first.path()).unwrap(), Some(own));
        let path = first.path().to_owned();
        drop(first);
        assert_eq!(Folder::user_of(&path).unwrap(), None);
        assert!(taken(dir.path()).path().ends_with("demo"));
    }

    #[test]
    fn nobody_else_can_write_to_the_folder_whatever_the_umask_is() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("a/demo");
        let make = || {
            // A thread with a umask of its own.
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS).unwrap();
            nix::sys::stat::umask(nix::sys::stat::Mode::empty());
            let folder = Folder::take(&out).unwrap();
            folder.write_sites(&SiteOptions::in_memory(Family::V4, false)).unwrap();
        };
        std::thread::scope(|scope| scope.spawn(make).join().unwrap());
        for (name, right) in [("..", 0o755), (".", 0o755), ("wireshark", 0o755), (LOCK, 0o600)] {
            let mode = fs::metadata(out.join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, right, "{name}");
        }
    }

    #[test]
    fn a_link_in_the_place_of_the_lock_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (target, lock) = (dir.path().join("target"), dir.path().join("demo").join(LOCK));
        fs::write(&target, "of others").unwrap();
        drop(taken(dir.path()));
        fs::remove_file(&lock).unwrap();
        std::os::unix::fs::symlink(&target, &lock).unwrap();
        let out = dir.path().join("demo");
        for error in [Folder::take(&out).map(drop), Folder::user_of(&out).map(drop)] {
            let said = format!("{:#}", error.unwrap_err());
            assert!(said.contains("in-use, which must be a file and no link"), "{said}");
        }
        assert_eq!(fs::read_to_string(&target).unwrap(), "of others");
    }

    #[test]
    fn what_an_earlier_run_left_is_replaced_and_state_goes_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let options = SiteOptions::in_memory(Family::V4, false);
        let folder = taken(dir.path());
        let [site, _] = folder.write_sites(&options).unwrap();
        let first = fs::read_to_string(&site).unwrap();
        drop(folder);
        assert!(site.exists() && !dir.path().join("demo/gwA.state").exists());
        let folder = taken(dir.path());
        folder.write_sites(&options).unwrap();
        assert_ne!(fs::read_to_string(&site).unwrap(), first);
    }
}
