//! Every broken site file gives one error, at the right line, that says what would be right.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use convoy_control::site::{Finding, Site};

/// Pieces of the keys in the broken files; none may ever be printed.
const KEY_PIECES: [&str; 4] = ["00010203", "20212223", "40414243", "2d2e2f"];

fn broken_files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/broken");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|ext| ext == "toml"));
    files.sort();
    files
}

/// Copies a file into a folder of its own: modes of a checkout are not in our hand.
fn copied(from: &Path) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
    let to = dir.path().join(from.file_name().unwrap());
    std::fs::copy(from, &to).unwrap();
    std::fs::set_permissions(&to, PermissionsExt::from_mode(0o600)).unwrap();
    (dir, to)
}

/// Reads `# line N: fragment` in the first line.
fn expectation(path: &Path) -> (usize, String) {
    let text = std::fs::read_to_string(path).unwrap();
    let first = text.lines().next().unwrap();
    let (line, fragment) = first.strip_prefix("# line ").unwrap().split_once(": ").unwrap();
    (line.parse().unwrap(), fragment.to_owned())
}

#[test]
fn every_broken_file_gives_one_error_with_place_and_remedy() {
    let files = broken_files();
    assert!(files.len() >= 25, "{}", files.len());
    let complaints: Vec<_> = files.iter().filter_map(|file| complaint(file)).collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
}

/// Fault in the error message about a broken file; `None` if there is none.
fn complaint(file: &Path) -> Option<String> {
    let (line, fragment) = expectation(file);
    let (_dir, copy) = copied(file);
    let name = file.file_name().unwrap().to_str().unwrap();
    let Err(errors) = Site::load(&copy) else { return Some(format!("{name} was accepted")) };
    let text = errors.to_string();
    let first = &errors.errors[0];
    let complaint = match () {
        () if errors.errors.len() != 1 => "not one error",
        () if !text.contains(&fragment) => "the expected fragment is missing",
        () if first.line != line => "wrong line",
        () if !text.contains(name) => "the file is not named",
        () if first.help.is_none() && !text.contains("expected") => "no remedy",
        () if KEY_PIECES.iter().any(|piece| text.contains(piece)) => "shows key material",
        () if KEY_PIECES.iter().any(|piece| format!("{errors:?}").contains(piece)) => {
            "holds key material"
        }
        () => return None,
    };
    Some(format!("{name}: {complaint} (line {line}: {fragment})\n{text}"))
}

#[test]
fn all_errors_of_a_file_are_reported_in_its_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("many.toml");
    std::fs::write(
        &path,
        "name = \"no good\"\nstate_dir = \"nowhere\"\n[plain]\ninterface = 7\nmtu = 5\n",
    )
    .unwrap();
    let errors = Site::load(&path).unwrap_err().errors;
    let lines: Vec<_> = errors.iter().map(|e| e.line).collect();
    assert_eq!(lines, [1, 2, 4, 5], "{errors:#?}");
}

#[test]
fn unreadable_files_are_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let missing = Site::load(&dir.path().join("no.toml")).unwrap_err().to_string();
    assert!(missing.contains("no.toml: cannot be read: no such file or directory"), "{missing}");
    let folder = Site::load(dir.path()).unwrap_err().to_string();
    assert!(folder.contains("is not a regular file"), "{folder}");
    let latin = dir.path().join("latin.toml");
    // The column counts characters, of which one has two bytes here.
    std::fs::write(&latin, b"name = \"a\"\n# \xc3\xa9 caf\xe9\n").unwrap();
    let text = Site::load(&latin).unwrap_err().to_string();
    assert!(text.contains("latin.toml:2:8: is not UTF-8 text: byte 0xe9"), "{text}");
    std::fs::write(&latin, b"\xff\xfen\0a\0").unwrap();
    let text = Site::load(&latin).unwrap_err().to_string();
    assert!(text.contains("latin.toml:1:1: is UTF-16"), "{text}");
}

/// A site file with sockets and a state folder in a folder of its own, whose mode is set.
fn in_folder(mode: u32) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    std::fs::set_permissions(&inner, PermissionsExt::from_mode(mode)).unwrap();
    let path = dir.path().join("d.toml");
    let text = "name = \"d\"\ncontrol_socket = \"inner/d.sock\"\n[plain]\ninterface = \"convoy0\"\n\
        [xfrm]\nsocket = \"inner/x.sock\"\nstate = \"inner\"\n";
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    (dir, path)
}

#[test]
fn sockets_and_state_where_other_users_can_write_are_refused() {
    for mode in [0o700, 0o750, 0o755] {
        let (_dir, path) = in_folder(mode);
        Site::load(&path).unwrap();
    }
    for mode in [0o777, 0o1777] {
        let (dir, path) = in_folder(mode);
        let errors = Site::load(&path).unwrap_err().errors;
        let lines: Vec<_> = errors.iter().map(|error| error.line).collect();
        assert_eq!(lines, [2, 6, 7], "{errors:?}");
        let inner = dir.path().join("inner");
        for error in &errors {
            let said = format!("other users can write to folder {} (owner ", inner.display());
            assert!(error.what.contains(&said), "{}", error.what);
            assert!(error.what.ends_with(&format!("mode {mode:04o})")), "{}", error.what);
            let help = error.help.as_ref().unwrap();
            assert!(help.contains("a folder that only the gateway's user can write to"), "{help}");
            assert_eq!(help.starts_with("chmod go-w "), mode == 0o777, "{help}");
        }
    }
}

#[test]
fn a_folder_in_which_others_can_rename_the_state_folder_is_refused() {
    let (dir, path) = in_folder(0o700);
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let text = "name = \"d\"\nstate_dir = \"inner\"\n[plain]\ninterface = \"convoy0\"\n";
    std::fs::write(&path, text).unwrap();
    let errors = Site::load(&path).unwrap_err().errors;
    // They can put another site file there, too.
    let lines: Vec<_> = errors.iter().map(|error| error.line).collect();
    assert_eq!(lines, [1, 2], "{errors:?}");
    let is_told = |error: &Finding| error.what.contains("can rename what is in folder");
    assert!(errors.iter().all(is_told), "{errors:?}");
}

#[test]
fn sockets_in_a_folder_of_another_user_are_warned_of_and_its_state_is_refused() {
    if !nix::unistd::geteuid().is_root() {
        return println!("SKIPPED: only root can give folders away");
    }
    let (dir, path) = in_folder(0o755);
    std::os::unix::fs::chown(dir.path().join("inner"), Some(54_321), None).unwrap();
    let errors = Site::load(&path).unwrap_err().errors;
    assert!(errors.len() == 1 && errors[0].line == 7, "{errors:?}");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("state = \"inner\"\n", "")).unwrap();
    let warnings = Site::load(&path).unwrap().1;
    let lines: Vec<_> = warnings.iter().map(|warning| warning.0.line).collect();
    assert_eq!(lines, [2, 6], "{warnings:?}");
    for warning in &warnings {
        let said = format!("folder {} belongs to another user", dir.path().join("inner").display());
        assert!(warning.0.what.contains(&said), "{warning}");
    }
}
