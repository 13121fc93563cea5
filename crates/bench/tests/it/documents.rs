//! Tables of SPECIFICATION.md are those of the result files that they name.
//!
//! `WRITE_TABLES=1 cargo test -p convoy-bench --test it documents::` writes them.

use std::fs;
use std::path::{Path, PathBuf};

use convoy_bench::results::Results;

const BEGIN: &str = "<!-- table of ";
const BEGIN_END: &str = " -->\n";
const END: &str = "<!-- end of table -->";
const DOCUMENT: &str = "SPECIFICATION.md";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The document with every table made anew, and the files that tables name.
fn with_tables(document: &str) -> (String, Vec<String>) {
    let (mut made, mut rest, mut files) = (String::new(), document, Vec::new());
    while let Some((before, behind)) = rest.split_once(BEGIN) {
        let (file, behind) = behind.split_once(BEGIN_END).expect("a mark has an end");
        let (_, behind) = behind.split_once(END).expect("a table has an end");
        let results = Results::read(&root().join(file)).unwrap();
        made += &format!("{before}{BEGIN}{file}{BEGIN_END}{}{END}", results.ratio_tables());
        files.push(file.to_owned());
        rest = behind;
    }
    (made + rest, files)
}

#[test]
fn tables_are_those_of_their_files() {
    let path = root().join(DOCUMENT);
    let document = fs::read_to_string(&path).unwrap();
    let (made, files) = with_tables(&document);
    if std::env::var_os("WRITE_TABLES").is_some() {
        fs::write(&path, &made).unwrap();
    } else {
        let differs = made.lines().zip(document.lines()).find(|(made, stands)| made != stands);
        assert!(
            made == document,
            "WRITE_TABLES=1 makes them anew; the first that differs: {differs:?}"
        );
    }
    // A file that no table names says nothing.
    let kept = fs::read_dir(root().join("docs/results")).into_iter().flatten();
    for file in kept.map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
        assert!(files.contains(&format!("docs/results/{file}")), "{file}: no table is made of it");
    }
}

#[test]
fn a_table_is_made_anew_from_its_file() {
    let file = "crates/bench/tests/data/results-1.json";
    let document = format!("before\n{BEGIN}{file}{BEGIN_END}an old table\n{END}\nbehind\n");
    let (made, files) = with_tables(&document);
    assert_eq!(files, [file]);
    assert!(made.starts_with("before\n") && made.ends_with(&format!("{END}\nbehind\n")), "{made}");
    assert!(
        !made.contains("old") && made.contains("| aes-128-gcm-16 seal | 0.72 (1.40) |"),
        "{made}"
    );
    // Twice makes no difference.
    assert_eq!(with_tables(&made), (made.clone(), files));
}

#[test]
fn the_class_of_a_table_is_that_of_its_file() {
    let document = fs::read_to_string(root().join(DOCUMENT)).unwrap();
    for (before, behind) in document.match_indices(BEGIN).map(|(at, mark)| {
        let (before, behind) = document.split_at(at);
        (before, &behind[mark.len()..])
    }) {
        let (file, _) = behind.split_once(BEGIN_END).unwrap();
        let heading = before.lines().rev().find_map(|line| line.strip_prefix("#### ")).unwrap();
        let class = Results::read(&root().join(file)).unwrap().machine.class.unwrap();
        assert_eq!(heading.trim(), class.name(), "{file}");
    }
}
