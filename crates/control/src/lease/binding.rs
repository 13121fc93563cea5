//! Ties of images to one machine and one folder, so that copies are told from the original.

use std::path::Path;
use std::time::SystemTime;

use super::hash::HashKey;

/// Identifiers of this machine, as far as they can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Of the installed system: `machine-id(5)`.
    machine_id: Option<String>,
    /// Of the hardware or the virtual machine: the product UUID of DMI.
    board: Option<String>,
}

impl Machine {
    /// The machine that this process runs on.
    #[must_use]
    pub fn current() -> Self {
        let board = "/sys/class/dmi/id/product_uuid";
        Self::read(Path::new("/etc/machine-id"), Path::new(board))
    }

    /// Name of the identifier that can be read, if only one of both can, and then of the other.
    #[must_use]
    pub fn only(&self) -> Option<[&'static str; 2]> {
        let [id, board, ..] = NAMES;
        match (&self.machine_id, &self.board) {
            (Some(_), None) => Some([id, board]),
            (None, Some(_)) => Some([board, id]),
            _ => None,
        }
    }

    /// Reads the identifiers from two files.
    #[must_use]
    pub fn read(machine_id: &Path, board: &Path) -> Self {
        Self { machine_id: identifier(machine_id), board: identifier(board) }
    }
}

/// 128 bits in hexadecimal digits, which are not all the same: firmware without a UUID says zeros or ones,
/// and an image that was never started says `uninitialized`.
fn identifier(file: &Path) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let digits: String =
        text.trim().chars().filter(|c| *c != '-').map(|c| c.to_ascii_lowercase()).collect();
    let is_one = digits.len() == 32 && digits.chars().all(|c| c.is_ascii_hexdigit());
    let first = digits.chars().next();
    (is_one && digits.chars().any(|c| Some(c) != first)).then_some(digits)
}

/// Identifiers that an image is tied to. Values are keyed hashes, which say nothing of what they
/// are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Binding {
    parts: [Option<[u8; 16]>; PARTS],
}

/// Number of identifiers.
const PARTS: usize = 4;
/// Bytes of a binding.
pub(super) const BINDING: usize = PARTS * 16;
/// Names of the identifiers: two of the machine and two of the folder.
const NAMES: [&str; PARTS] =
    ["machine-id", "DMI product UUID", "inode of hash-key", "birth of hash-key"];
const OF_MACHINE: usize = 2;

/// Error of an image that is not for here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Foreign {
    /// This differs.
    Machine(&'static str),
    /// The identifier that it is tied to cannot be read here.
    Unknown(&'static str),
    /// The folder is a copy.
    Copied,
}

impl Binding {
    /// Ties to this machine, and to a folder by its key's file.
    pub(super) fn new(key: &HashKey, machine: &Machine, file: Option<&std::fs::Metadata>) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        let hash = |name: &str, value: &[u8]| {
            let mac = key.mac(b"convoy binding", &[name.as_bytes(), &[0], value]);
            mac.first_chunk().copied()
        };
        let born = file.and_then(|meta| meta.created().ok());
        let born = born.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        let values = [
            machine.machine_id.as_ref().map(|id| id.as_bytes().to_vec()),
            machine.board.as_ref().map(|id| id.as_bytes().to_vec()),
            file.map(|meta| meta.ino().to_le_bytes().to_vec()),
            born.map(|since| since.as_nanos().to_le_bytes().to_vec()),
        ];
        let mut parts = [None; PARTS];
        for ((part, value), name) in parts.iter_mut().zip(values).zip(NAMES) {
            *part = value.and_then(|value| hash(name, &value));
        }
        Self { parts }
    }

    /// Checks that an image tied to this is for `here`, and returns its ties from now on: all that is
    /// known here, and what could be read before and cannot now.
    pub(super) fn judge(&self, here: &Self) -> Result<Self, Foreign> {
        let both = || self.parts.iter().zip(&here.parts).zip(NAMES).enumerate();
        for (at, ((then, now), name)) in both() {
            match (then, now) {
                (Some(then), Some(now)) if then != now && at < OF_MACHINE => {
                    return Err(Foreign::Machine(name));
                }
                (Some(then), Some(now)) if then != now => return Err(Foreign::Copied),
                _ => {}
            }
        }
        let of_machine =
            || both().take(OF_MACHINE).map(|(_, ((then, now), name))| (then, now, name));
        let tied = of_machine().find(|(then, ..)| then.is_some());
        let shared = of_machine().any(|(then, now, _)| then.is_some() && now.is_some());
        if let (Some((.., name)), false) = (tied, shared) {
            return Err(Foreign::Unknown(name));
        }
        let mut parts = here.parts;
        parts.iter_mut().zip(self.parts).for_each(|(part, then)| *part = part.or(then));
        Ok(Self { parts })
    }

    /// True if anything tells the machine from others.
    pub(super) fn knows_machine(&self) -> bool {
        self.parts.iter().take(OF_MACHINE).any(Option::is_some)
    }

    /// Names of the machine's identifiers that are known.
    pub(super) fn machine_in_words(&self) -> String {
        let known = self.parts.iter().zip(NAMES).take(OF_MACHINE);
        let known: Vec<_> =
            known.filter(|(part, _)| part.is_some()).map(|(_, name)| name).collect();
        known.join(" and ")
    }

    pub(super) fn to_bytes(self) -> [u8; BINDING] {
        let mut bytes = [0; BINDING];
        for (into, part) in bytes.as_chunks_mut::<16>().0.iter_mut().zip(self.parts) {
            *into = part.unwrap_or_default();
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; BINDING]) -> Self {
        let mut parts = [None; PARTS];
        for (part, bytes) in parts.iter_mut().zip(bytes.as_chunks::<16>().0) {
            *part = Some(*bytes).filter(|bytes| *bytes != [0; 16]);
        }
        Self { parts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: [&str; 2] =
        ["0123456789abcdef0123456789abcdef", "11111111-2222-3333-4444-555555555555"];

    fn machine(id: Option<&str>, board: Option<&str>) -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["id", "board"].map(|name| folder.path().join(name));
        for (path, text) in paths.iter().zip([id, board]) {
            if let Some(text) = text {
                std::fs::write(path, format!("{text}\n")).unwrap();
            }
        }
        Machine::read(&paths[0], &paths[1])
    }

    fn binding(id: Option<&str>, board: Option<&str>) -> Binding {
        Binding::new(&HashKey::for_tests([3; 32]), &machine(id, board), None)
    }

    #[test]
    fn what_is_no_identifier_is_none() {
        for text in ["", "uninitialized", "0", "Not Settable", &"0".repeat(32), &"F".repeat(32)] {
            assert_eq!(machine(Some(text), Some(text)), Machine::default(), "{text}");
        }
        let upper = IDS[1].to_uppercase();
        assert_eq!(machine(None, Some(&upper)), machine(None, Some(IDS[1])));
        assert_ne!(machine(None, Some(IDS[1])), Machine::default());
        let [id, board] = ["machine-id", "DMI product UUID"];
        assert_eq!(machine(Some(IDS[0]), None).only(), Some([id, board]));
        assert_eq!(machine(Some("0"), Some(IDS[1])).only(), Some([board, id]));
        assert_eq!(machine(Some(IDS[0]), Some(IDS[1])).only(), None);
        assert_eq!(Machine::default().only(), None);
    }

    #[test]
    fn a_difference_in_what_both_know_is_another_machine() {
        let [id, board] = IDS.map(Some);
        let (both, turned) = (binding(id, board), binding(board, id));
        assert_eq!(both.judge(&both), Ok(both));
        assert_eq!(both.judge(&turned), Err(Foreign::Machine("machine-id")));
        // A clone keeps its machine-id unless somebody resets it.
        let clone = binding(id, id);
        assert_eq!(both.judge(&clone), Err(Foreign::Machine("DMI product UUID")));
        assert_eq!(clone.judge(&both), Err(Foreign::Machine("DMI product UUID")));
    }

    #[test]
    fn what_cannot_be_read_now_is_kept_and_one_part_must_be_known_then_and_now() {
        let [id, board] = IDS.map(Some);
        let (both, first, second) = (binding(id, board), binding(id, None), binding(None, board));
        for one in [first, second] {
            assert_eq!(both.judge(&one), Ok(both));
            assert_eq!(one.judge(&both), Ok(both));
        }
        assert_eq!(first.judge(&second), Err(Foreign::Unknown("machine-id")));
        assert_eq!(second.judge(&first), Err(Foreign::Unknown("DMI product UUID")));
        assert_eq!(first.judge(&binding(None, None)), Err(Foreign::Unknown("machine-id")));
        // What was written where nothing could be read is tied to the first machine that says something.
        assert_eq!(Binding::default().judge(&first), Ok(first));
    }

    #[test]
    fn bindings_are_read_back_and_show_no_identifier() {
        let both = binding(Some(IDS[0]), Some(IDS[1]));
        let bytes = both.to_bytes();
        assert_eq!(Binding::from_bytes(&bytes), both);
        assert_eq!(both.machine_in_words(), "machine-id and DMI product UUID");
        let digits = 0x0123_4567_89ab_cdef_u64.to_be_bytes();
        assert!(!bytes.windows(8).any(|part| part == digits || part == &IDS[0].as_bytes()[..8]));
        let other = Binding::new(&HashKey::for_tests([4; 32]), &machine(Some(IDS[0]), None), None);
        assert_ne!(other.parts[0], both.parts[0], "it depends on the folder's key");
    }
}
