//! A vector of an AEAD, and the program that tries it.

use std::{fmt::Write as _, fs};

use crate::common::{Setup, run};

/// A vector as `tests/evp/vectors.c` reads it.
pub(crate) struct Vector<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) iv: &'a [u8],
    pub(crate) aad: &'a [u8],
    pub(crate) text: &'a [u8],
    pub(crate) sealed: &'a [u8],
    pub(crate) tag: &'a [u8],
    pub(crate) is_good: bool,
}

impl Vector<'_> {
    pub(crate) fn write(&self, name: &str, lines: &mut String) {
        lines.push_str(name);
        for bytes in [self.key, self.iv, self.aad, self.text, self.sealed, self.tag] {
            lines.push_str(if bytes.is_empty() { " -" } else { " " });
            bytes.iter().for_each(|byte| write!(lines, "{byte:02x}").unwrap());
        }
        lines.push_str(if self.is_good { " good\n" } else { " bad\n" });
    }
}

/// Runs vectors; gives what the program said in the end.
pub(crate) fn check(lines: &str, cipher: Option<&str>) -> Option<String> {
    let setup = Setup::new();
    let program = setup.compile("vectors.c")?;
    fs::write(setup.path("lines"), lines).unwrap();
    let output = run(setup.command(program).arg("lines").args(cipher));
    let text = String::from_utf8(output.stdout).unwrap();
    println!("{text}");
    text.lines().last().map(str::to_owned)
}

/// A field of a block of lines `Name = hexadecimal`.
pub(crate) fn field(block: &str, name: &str) -> Vec<u8> {
    let lines = block.lines().filter_map(|line| line.split_once('='));
    let (_, digits) = lines.into_iter().find(|(key, _)| key.trim() == name).unwrap_or((name, ""));
    let pairs = digits.trim().as_bytes().chunks(2);
    pairs.map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}
