//! What hinders a start on this host is found by `check`, by a dry run and by a start, in the same words at the same line.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use convoy_lab::{Namespace, Topology, TopologyConfig};

use crate::common::{Gateway, Plan, can_make_namespaces, ip, text};

fn lab() -> Option<Topology> {
    let config = TopologyConfig { named: false, ..TopologyConfig::default() };
    can_make_namespaces().then(|| Topology::build(&config).unwrap())
}

fn run(namespace: &Namespace, arguments: &[&str], site: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_convoy"));
    command.args(arguments).arg(site).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    namespace.spawn(&mut command).unwrap().wait_with_output().unwrap()
}

/// Exit codes of `check` for what hinders a start on this host alone.
const NOTED: &[i32] = &[0, 1];

/// Asserts that all three verbs tell the same finding, at the first line that begins so, and that `check` ends with one of
/// these exit codes.
#[track_caller]
fn agree(namespace: &Namespace, site: &Path, (line, what): (&str, &str), checked: &[i32]) {
    let written = fs::read_to_string(site).unwrap();
    let at = written.lines().position(|it| it.starts_with(line)).unwrap() + 1;
    let begins = format!("{}:{at}:", site.display());
    let verbs: [(&[&str], &[i32]); 3] =
        [(&["check"], checked), (&["run", "--dry-run"], &[2]), (&["run"], &[2])];
    let told = verbs.map(|(arguments, codes)| {
        let output = run(namespace, arguments, site);
        let said = text(&output.stderr);
        let code = output.status.code().unwrap();
        assert!(codes.contains(&code), "{arguments:?} ended with {code}: {said}");
        let found = said.find(&begins).unwrap_or_else(|| panic!("{arguments:?}: {said}"));
        let found = &said[found..];
        let until = found.find("\n  help: ").unwrap();
        let help = found[until + 1..].lines().next().unwrap();
        format!("{}\n{help}", &found[..until])
    });
    assert!(told[0].contains(what), "{}", told[0]);
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0], told[2]);
}

#[test]
fn a_state_folder_that_was_emptied_or_copied_is_refused_by_all_verbs() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let site = Plan::simple().write('a', folder.path());
    let state = folder.path().join("a.state");
    let here = &lab.a.gateway;
    assert!(Gateway::start(here, &site).terminate().success());
    let checked = run(here, &["check"], &site);
    assert!(matches!(checked.status.code(), Some(0 | 1)), "{}", text(&checked.stderr));
    // A running gateway is no obstacle to a look.
    let gateway = Gateway::start(here, &site);
    let checked = run(here, &["check"], &site);
    assert!(matches!(checked.status.code(), Some(0 | 1)), "{}", text(&checked.stderr));
    assert!(gateway.terminate().success());

    let original = folder.path().join("original");
    fs::rename(&state, &original).unwrap();
    let mut copy = Command::new("cp");
    assert!(copy.arg("-a").arg(&original).arg(&state).status().unwrap().success());
    agree(here, &site, ("state_dir", "is a copy, or was restored from one"), &[2]);
    fs::remove_file(state.join("hash-key")).unwrap();
    agree(here, &site, ("state_dir", "without it used sequence numbers are unknown"), &[2]);
    fs::remove_dir_all(&state).unwrap();
    fs::rename(&original, &state).unwrap();
    for name in ["leases-a", "leases-b"] {
        fs::remove_file(state.join(name)).unwrap();
    }
    agree(here, &site, ("state_dir", "its records leases-a and leases-b are gone"), &[2]);
    for entry in fs::read_dir(&state).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    // Where the file system has no attributes, the gateway would have left this.
    fs::write(state.join("records-lost"), "").unwrap();
    agree(here, &site, ("state_dir", "was in use, but its files are gone"), &[2]);
}

#[test]
fn a_remote_network_that_is_one_of_this_host_is_found_by_all_verbs() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut plan = Plan::simple();
    (plan.policies[0].local, plan.policies[0].remote) = ("10.9.0.0/24", "10.1.0.0/24");
    let site = plan.write('a', folder.path());
    let here = &lab.a.gateway;
    let before = ip(here, "-4 route show table all");
    let what = "policy[all].remote: another route to 10.1.0.0/24 through lan is already there";
    let remote = "remote = \"10.1.0.0/24\"";
    agree(here, &site, (remote, what), NOTED);
    assert_eq!(ip(here, "-4 route show table all"), before);
    // Where the file lists routes, that line is at fault.
    let written = fs::read_to_string(&site).unwrap();
    let listed = "[plain]\nroutes = [\"10.8.0.0/24\", \"10.1.0.0/24\"]\n";
    fs::write(&site, written.replace("[plain]\n", listed)).unwrap();
    agree(here, &site, ("routes = ", "plain.routes: another route to 10.1.0.0/24"), NOTED);
    // Beside the other route there is room for one with another metric, and none is made.
    fs::write(&site, written.replace("[plain]\n", "[plain]\nroutes = \"none\"\n")).unwrap();
    let said = text(&run(here, &["run", "--dry-run"], &site).stderr);
    assert!(!said.contains("another route"), "{said}");
}
