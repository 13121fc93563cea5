//! Texts and files that hold keys, read into wiped memory.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use convoy_crypto::SecretBytes;
use zeroize::Zeroize;

/// Largest key file that is read, in bytes.
const MAX_KEY_FILE: u64 = 4096;

/// Error of a refused key; says nothing of its content.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum KeyTextError {
    #[error("has an odd number of hexadecimal digits ({0})")]
    OddDigits(usize),
    #[error("has a character at position {0} that is no hexadecimal digit")]
    NotHex(usize),
    #[error("is all zeros, which is no key")]
    Zeros,
}

/// Decodes hexadecimal digits, with or without `0x` in front, into wiped memory.
pub(super) fn decode_hex(text: &str) -> Result<SecretBytes, KeyTextError> {
    let skipped = if text.starts_with("0x") || text.starts_with("0X") { 2 } else { 0 };
    let digits = text.get(skipped..).unwrap_or_default().as_bytes();
    if let Some(at) = digits.iter().position(|d| !d.is_ascii_hexdigit()) {
        return Err(KeyTextError::NotHex(skipped + at + 1));
    }
    if !digits.len().is_multiple_of(2) {
        return Err(KeyTextError::OddDigits(digits.len()));
    }
    let mut bytes = Vec::with_capacity(digits.len() / 2);
    for pair in digits.chunks_exact(2) {
        let byte = pair.iter().fold(0, |byte: u8, digit| byte << 4 | nibble(*digit));
        bytes.push(byte);
    }
    if !bytes.is_empty() && bytes.iter().all(|byte| *byte == 0) {
        return Err(KeyTextError::Zeros);
    }
    Ok(SecretBytes::from(bytes))
}

fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.wrapping_sub(b'A').wrapping_add(10),
    }
}

/// Error of a refused key file.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeyFileError {
    #[error("cannot be read: {}", convoy_host::describe_io(.0))]
    Unreadable(std::io::Error),
    #[error("is not a regular file")]
    NotAFile,
    #[error("is readable by others (mode {0:04o})")]
    Mode(u32),
    #[error("belongs to user {0}, who could change it")]
    Owner(u32),
    #[error("has {0} bytes; a key has at most a few dozen")]
    TooLong(u64),
    #[error("is empty")]
    Empty,
    #[error("{0}")]
    Text(KeyTextError),
}

/// Reads a key file: hexadecimal digits and white space around them.
pub(super) fn read_key_file(path: &Path) -> Result<SecretBytes, KeyFileError> {
    // Looked at before it is opened, because opening a pipe would wait for its other end.
    let meta = std::fs::metadata(path).map_err(KeyFileError::Unreadable)?;
    if !meta.is_file() {
        return Err(KeyFileError::NotAFile);
    }
    let file = std::fs::File::open(path).map_err(KeyFileError::Unreadable)?;
    let meta = file.metadata().map_err(KeyFileError::Unreadable)?;
    if !meta.is_file() {
        return Err(KeyFileError::NotAFile);
    }
    if meta.uid() != 0 && meta.uid() != nix::unistd::geteuid().as_raw() {
        return Err(KeyFileError::Owner(meta.uid()));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(KeyFileError::Mode(meta.mode() & 0o7777));
    }
    if meta.len() > MAX_KEY_FILE {
        return Err(KeyFileError::TooLong(meta.len()));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(MAX_KEY_FILE).unwrap_or(0) + 1);
    let read = file.take(MAX_KEY_FILE).read_to_end(&mut bytes).map_err(KeyFileError::Unreadable);
    let key = read.and_then(|_| {
        let text = bytes.trim_ascii();
        if text.is_empty() {
            return Err(KeyFileError::Empty);
        }
        let bad_text = |error: std::str::Utf8Error| KeyTextError::NotHex(error.valid_up_to() + 1);
        std::str::from_utf8(text).map_err(bad_text).and_then(decode_hex).map_err(KeyFileError::Text)
    });
    bytes.zeroize();
    key
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn hex_is_decoded_with_and_without_a_prefix() {
        for text in ["00ffA1b2", "0x00ffA1b2"] {
            assert_eq!(decode_hex(text).unwrap().expose(), [0, 0xff, 0xa1, 0xb2]);
        }
    }

    #[test]
    fn bad_hex_is_refused_by_position_only() {
        assert_eq!(decode_hex("0x12g4").unwrap_err(), KeyTextError::NotHex(5));
        assert_eq!(decode_hex("123").unwrap_err(), KeyTextError::OddDigits(3));
        assert_eq!(decode_hex("é1").unwrap_err(), KeyTextError::NotHex(1));
    }

    #[test]
    fn key_files_that_others_can_read_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k");
        std::fs::write(&path, "0011\n").unwrap();
        let set =
            |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        set(0o640);
        assert!(matches!(read_key_file(&path), Err(KeyFileError::Mode(0o640))));
        set(0o600);
        assert_eq!(read_key_file(&path).unwrap().expose(), [0, 0x11]);
        assert!(matches!(read_key_file(dir.path()), Err(KeyFileError::NotAFile)));
        std::fs::write(&path, " \n").unwrap();
        assert!(matches!(read_key_file(&path), Err(KeyFileError::Empty)));
    }
}
