//! Every fuzz target over its committed seeds, and over mutations of these that are the same each time.

#![allow(clippy::unwrap_used)]

mod mutate;
mod openssl;

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use convoy_fuzz_targets::{TARGETS, Target};
use mutate::Mutator;

/// Longest mutation: that of seeds, whatever is spliced to them.
const LENGTH_MAX: usize = 8192;

/// A test for each target, so that they run side by side, with the number of its mutations.
macro_rules! tests {
    ($($name:ident: $mutations:expr;)*) => {
        const TESTED: &[&str] = &[$(stringify!($name)),*];

        mod holds_for_seeds_and_their_mutations {
            $(
                #[test]
                fn $name() {
                    super::seeds_and_mutations(stringify!($name), $mutations);
                }
            )*
        }
    };
}

tests! {
    captures: 2000;
    crypto_suites: 5000;
    inbound_path: 6000;
    job_manager: 5000;
    journals: 20_000;
    kernel_answers: 50_000;
    lease_images: 50_000;
    tls_records: 8000;
    wire_parse: 200_000;
    xfrm_messages: 100_000;
}

#[test]
fn every_fuzz_target_has_a_module_a_test_and_a_program() {
    let programs: BTreeSet<String> = files(&root().join("fuzz/fuzz_targets"))
        .iter()
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    let modules = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(programs, modules, "fuzz/fuzz_targets and TARGETS name the same targets");
    let tested = TESTED.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(programs, tested, "fuzz/fuzz_targets and tests! name the same targets");
    let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
    for name in programs {
        assert!(
            manifest.contains(&format!("name = \"{name}\"")),
            "fuzz/Cargo.toml has no [[bin]] for {name}"
        );
    }
}

#[test]
fn failure_names_the_file_and_the_bytes() {
    let target = Target { name: "failing", run: |bytes, _| panic!("{} bytes", bytes.len()) };
    let seed = Path::new("fuzz/seeds/failing/some-seed");
    let failure = catch_unwind(|| run(&target, seed, Some(7), &[0xde, 0xad])).unwrap_err();
    let text = failure.downcast_ref::<String>().unwrap();
    for part in ["failing", "fuzz/seeds/failing/some-seed", "mutation 7", "dead"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

fn seeds_and_mutations(name: &str, mutations: u64) {
    let target = TARGETS.iter().find(|target| target.name == name).unwrap();
    let folder = root().join("fuzz/seeds").join(name);
    let seeds: Vec<(PathBuf, Vec<u8>)> = files(&folder)
        .into_iter()
        .map(|path| (path.strip_prefix(root()).unwrap().to_owned(), fs::read(path).unwrap()))
        .collect();
    assert!(!seeds.is_empty(), "{} has no seeds; fuzz/README.md says how to make them", name);
    for (path, bytes) in &seeds {
        let is_input = run(target, path, None, bytes);
        assert!(is_input, "{} is too short to be an input of {name}", path.display());
    }
    for number in 0..mutations {
        let mut mutator = Mutator::new(number);
        let (path, bytes) = mutator.pick(&seeds);
        let (_, other) = mutator.pick(&seeds);
        let mut bytes = bytes.clone();
        mutator.mutate(&mut bytes, other);
        bytes.truncate(LENGTH_MAX);
        run(target, path, Some(number), &bytes);
    }
}

/// Runs one input. If it fails, leaves the bytes where they can become a seed, and says where they are
/// from.
fn run(target: &Target, seed: &Path, mutation: Option<u64>, bytes: &[u8]) -> bool {
    let oracle = openssl::oracle();
    catch_unwind(AssertUnwindSafe(|| (target.run)(bytes, oracle))).unwrap_or_else(|_| {
        let name = target.name;
        let from = mutation.map_or(String::new(), |number| format!("mutation {number} of "));
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-failed"));
        let kept = match fs::write(&kept, bytes) {
            Ok(()) => kept.display().to_string(),
            Err(error) => format!("not written: {error}"),
        };
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        panic!("{name} failed for {from}{}\nbytes: {hex}\nfile: {kept}", seed.display());
    })
}

/// The files of a folder in the order of their names; none if there is no such folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.is_file());
    files.sort();
    files
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
