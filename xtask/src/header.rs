//! The header of the C library: generated from crates/capi, committed, and compared.

use std::fs;

use anyhow::{Context as _, Result};

use crate::report::Tally;
use crate::workspace::Workspace;

const CRATE: &str = "crates/capi";
/// The committed header.
const HEADER: &str = "crates/capi/include/convoy_crypto.h";

/// Writes the header.
pub(crate) fn write(workspace: &Workspace) -> Result<()> {
    let path = workspace.root.join(HEADER);
    fs::write(&path, generate(workspace)?).with_context(|| format!("cannot write {HEADER}"))
}

/// Compares the committed header with what the source says.
pub(crate) fn check(workspace: &Workspace) -> Result<Tally> {
    let committed = fs::read_to_string(workspace.root.join(HEADER)).unwrap_or_default();
    let expected = generate(workspace)?;
    if let Some((number, line)) = first_difference(&committed, &expected) {
        println!("{HEADER}:{number}: does not agree with {CRATE}, where it would be {line:?}");
        println!("    mend: cargo xtask header --write, and read the diff");
        return Ok(Tally::fail("header"));
    }
    println!("header: good");
    Ok(Tally::pass())
}

fn generate(workspace: &Workspace) -> Result<String> {
    let folder = workspace.root.join(CRATE);
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml"))
        .map_err(|error| anyhow::anyhow!("{CRATE}/cbindgen.toml: {error}"))?;
    let bindings = cbindgen::generate_with_config(&folder, config)
        .with_context(|| format!("cbindgen cannot read {CRATE}"))?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    Ok(for_c(&String::from_utf8(text)?))
}

/// Mends what cbindgen leaves as it is in Rust: headings, and negative numbers without parentheses; and its comments behind
/// `#endif`, which C of 1989 has not.
fn for_c(text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() == "# Safety" {
            out.push_str(&line.replace("# Safety", "The caller promises:"));
            lines.next();
        } else {
            let negative = line.starts_with("#define ").then(|| line.split_once(" -")).flatten();
            let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
            let end_of = line.strip_prefix("#endif").and_then(|rest| rest.split_once("// "));
            match (negative.filter(|(_, number)| is_number(number)), end_of) {
                (Some((define, number)), _) => out.push_str(&format!("{define} (-{number})")),
                (None, Some((_, what))) => out.push_str(&format!("#endif /* {} */", what.trim())),
                (None, None) => out.push_str(line),
            }
        }
        out.push('\n');
    }
    out
}

/// The first line of `expected` that `given` has otherwise, with its number; an end counts as a
/// line.
fn first_difference<'a>(given: &str, expected: &'a str) -> Option<(usize, &'a str)> {
    let mut given_lines = given.lines();
    for (index, line) in expected.lines().enumerate() {
        if given_lines.next() != Some(line) {
            return Some((index + 1, line));
        }
    }
    (given != expected).then_some((expected.lines().count() + 1, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_becomes_c() {
        let rust = "#define A -1\n#define B 2 - 1\n/*\n # Safety\n\n `a` - b.\n */\n#endif  // X\n";
        let c = "#define A (-1)\n#define B 2 - 1\n/*\n The caller promises:\n `a` - b.\n */\n#endif /* X */\n";
        assert_eq!(for_c(rust), c);
    }

    #[test]
    fn differences_are_found_up_to_the_last_byte() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nc\n", "a\nb\n"), Some((2, "b")));
        assert_eq!(first_difference("a\n", "a\nb\n"), Some((2, "b")));
        assert_eq!(first_difference("a\nb\nc\n", "a\nb\n"), Some((3, "")));
        assert_eq!(first_difference("a\nb", "a\nb\n"), Some((3, "")));
        assert_eq!(first_difference("", ""), None);
    }
}
