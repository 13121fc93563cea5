//! New keys, and files that hold one each.

use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use zeroize::Zeroizing;

/// A random key in hexadecimal digits; wiped on drop.
pub struct NewKey {
    /// The digits, and an end of the line.
    text: Zeroizing<String>,
}

impl std::fmt::Debug for NewKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NewKey(..)")
    }
}

impl NewKey {
    /// Takes so many bytes from the system's random numbers.
    ///
    /// # Errors
    /// The system's.
    pub fn random(bytes: usize) -> Result<Self, getrandom::Error> {
        let mut random = Zeroizing::new(vec![0; bytes]);
        getrandom::fill(&mut random)?;
        // In one piece, so that growing leaves no copies behind.
        let mut text = Zeroizing::new(String::with_capacity(bytes * 2 + 1));
        for byte in random.iter() {
            for nibble in [byte >> 4, byte & 0xf] {
                text.extend(char::from_digit(nibble.into(), 16));
            }
        }
        text.push('\n');
        Ok(Self { text })
    }

    /// Content of a key file: the digits and an end of the line.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Writes a new file of mode 0600.
    ///
    /// # Errors
    /// `AlreadyExists` if there is anything of that name, also a link to nothing; and the system's.
    pub fn write_new(&self, path: &Path) -> io::Result<()> {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(self.text.as_bytes())?;
        file.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_has_its_bytes_and_never_comes_twice() {
        let [a, b] = [20, 20].map(|bytes| NewKey::random(bytes).unwrap());
        assert_eq!(a.text().len(), 41);
        assert!(a.text().trim_end().bytes().all(|digit| digit.is_ascii_hexdigit()));
        assert_ne!(a.text(), b.text());
        assert!(!format!("{a:?}").contains(a.text().trim_end()));
    }

    #[test]
    fn a_file_is_private_and_nothing_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("k"), dir.path().join("link"));
        let key = NewKey::random(16).unwrap();
        key.write_new(&file).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), key.text());
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
        std::os::unix::fs::symlink(dir.path().join("nothing"), &link).unwrap();
        for there in [&file, &link] {
            let error = NewKey::random(16).unwrap().write_new(there).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{}", there.display());
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), key.text());
        assert!(!dir.path().join("nothing").exists());
    }
}
