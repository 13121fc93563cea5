//! The JSON of each verb is what `docs/json.md` shows.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::common::{Gateway, Plan, can_make_namespaces, convoy, text};

/// Example of each verb's JSON by its heading: the first block of JSON below a heading with a command.
fn examples() -> BTreeMap<String, Value> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let page = fs::read_to_string(page).unwrap();
    let mut examples = BTreeMap::new();
    for part in page.split("\n### `convoy ").skip(1) {
        let (command, rest) = part.split_once("`\n").unwrap();
        let Some((_, block)) = rest.split_once("```json\n") else { continue };
        let (block, _) = block.split_once("\n```").unwrap();
        let example = serde_json::from_str(block).unwrap_or_else(|e| panic!("{command}: {e}"));
        examples.insert(command.to_owned(), example);
    }
    examples
}

/// Kinds of values at each path; elements of a list stand at one path.
fn kinds(value: &Value, path: &str, into: &mut BTreeMap<String, Vec<&'static str>>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    };
    into.entry(path.to_owned()).or_default().push(kind);
    match value {
        Value::Array(items) => items.iter().for_each(|it| kinds(it, &format!("{path}[]"), into)),
        Value::Object(map) => {
            map.iter().for_each(|(key, it)| kinds(it, &format!("{path}.{key}"), into));
        }
        _ => {}
    }
}

/// Differences of a verb's JSON from its example: keys that it does not show, keys that it promises, other kinds.
fn differences(example: &Value, printed: &Value) -> Vec<String> {
    let (mut shown, mut found) = (BTreeMap::new(), BTreeMap::new());
    kinds(example, "", &mut shown);
    kinds(printed, "", &mut found);
    let mut all = Vec::new();
    // An object of names that are not known beforehand is shown empty.
    let is_of_names = |path: &str| {
        path.rsplit_once('.').is_some_and(|(parent, _)| {
            let below = format!("{parent}.");
            shown.contains_key(parent) && !shown.keys().any(|key| key.starts_with(&below))
        })
    };
    for (path, kinds) in found.iter().filter(|(path, _)| !is_of_names(path)) {
        match shown.get(path) {
            None => all.push(format!("{path} is not in the example")),
            Some(right) => {
                let fits = |kind: &&str| right.contains(kind) || *kind == "null";
                // A number that is too large is a string, and one that is not known is null.
                let is_open = right.iter().all(|kind| *kind == "null");
                if !is_open && !kinds.iter().all(fits) {
                    all.push(format!("{path} is {kinds:?} and not {right:?}"));
                }
            }
        }
    }
    // Where the object is there, so are its keys; elements of lists, and verdicts, have those of their kind alone.
    let may_lack = |path: &str| path.contains("[]") || path.contains(".verdict.");
    for path in shown.keys().filter(|path| !may_lack(path) && !found.contains_key(*path)) {
        let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
        if found.get(parent).is_some_and(|kinds| kinds.contains(&"object")) {
            all.push(format!("{path} is missing"));
        }
    }
    all
}

/// Runs a verb, and says how its JSON differs from the example below the heading.
fn judge(heading: &str, arguments: &[&str], complaints: &mut Vec<String>) {
    judge_output(heading, &convoy(arguments), complaints);
}

fn judge_output(heading: &str, output: &Output, complaints: &mut Vec<String>) {
    let printed: Value = match serde_json::from_slice(&output.stdout) {
        Ok(printed) => printed,
        Err(error) => {
            let said = text(&output.stderr);
            return complaints.push(format!("{heading}: {error}: {said}"));
        }
    };
    if printed["schema"] != 1 {
        complaints.push(format!("{heading}: its schema is {}", printed["schema"]));
    }
    match examples().get(heading) {
        None => complaints.push(format!("{heading} has no example:\n{printed:#}")),
        Some(example) => {
            let found = differences(example, &printed);
            complaints.extend(found.iter().map(|it| format!("{heading}: {it}")));
        }
    }
}

#[test]
fn verbs_without_a_gateway_print_what_the_page_shows() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let site = Plan::simple().write('a', folder.path()).to_str().unwrap().to_owned();
    let broken = path("broken.toml");
    let with_errors = fs::read_to_string(&site).unwrap().replace("spi = 4097", "spi = 1");
    fs::write(&broken, with_errors).unwrap();
    let mut complaints = Vec::new();
    let mut see = |heading: &str, arguments: &[&str]| judge(heading, arguments, &mut complaints);
    see("init", &["init", &path("new"), "--json"]);
    see("genkey", &["genkey", &path("one.key"), "--json"]);
    see("check", &["check", &site, &broken, "--json"]);
    see("run --dry-run", &["run", &site, "--dry-run", "--json"]);
    see("keys", &["keys", "--from-site", &site, "--json"]);
    see("keys --output", &["keys", "--from-site", &site, "--json", "-o", &path("esp_sa")]);
    see("crypto", &["crypto", "--json"]);
    see("doctor", &["doctor", "--json"]);
    let pid = std::process::id().to_string();
    see("crypto --pid", &["crypto", "--pid", &pid, "--json"]);
    let demo = path("demo");
    let demonstration = Command::new(env!("CARGO_BIN_EXE_convoy"))
        .args(["demo", "--seconds", "2", "--out", &demo, "--json"])
        .env("CONVOY_DEMO_IN_MEMORY", "1")
        .output();
    judge_output("demo", &demonstration.unwrap(), &mut complaints);
    let (capture, conf) = (path("in.pcap"), path("openssl.cnf"));
    let words = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101];
    fs::write(&capture, words.map(u32::to_le_bytes).concat()).unwrap();
    fs::write(&conf, "a = 1\n").unwrap();
    let mut see = |heading: &str, arguments: &[&str]| judge(heading, arguments, &mut complaints);
    see("replay", &["replay", &site, "--plain-in", &capture, "--json"]);
    see("openssl-conf --check", &["openssl-conf", "--check", &conf, "--json"]);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn verbs_that_ask_a_gateway_print_what_the_page_shows() {
    if !can_make_namespaces() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let lab = crate::live::lab();
    let site = Plan::simple().write('a', folder.path());
    let _gateway = Gateway::start(&lab.a.gateway, &site);
    let site = site.to_str().unwrap();
    let mut complaints = Vec::new();
    let mut see = |heading: &str, arguments: &[&str]| judge(heading, arguments, &mut complaints);
    see("status", &["status", site, "--json"]);
    see("sa", &["sa", site, "--json"]);
    see("policy", &["policy", site, "--json"]);
    see("trace", &["trace", site, "--from", "10.1.0.5", "--to", "10.2.0.7", "--json"]);
    see("reload", &["reload", site, "--json"]);
    see("crypto show", &["crypto", "show", site, "--json"]);
    let driver = "rfc4106-gcm-aes-convoy-portable";
    see("crypto set", &["crypto", "set", driver, "--priority", "101", site, "--json"]);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn every_verb_with_json_stands_on_the_page() {
    let examples = examples();
    for (heading, example) in &examples {
        assert_eq!(example["schema"], 1, "{heading}");
        let verb = heading.split(' ').next().unwrap();
        let help = text(&convoy(&[verb, "--help"]).stdout);
        assert!(help.contains("--json") || heading.contains(' '), "{heading}");
    }
    let all = text(&convoy(&["--help"]).stdout);
    let verbs = all.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    for verb in verbs.map_while(|line| line.split_whitespace().next()) {
        let help = text(&convoy(&[verb, "--help"]).stdout);
        if help.contains("--json") && verb != "bench" {
            let is_there = |heading: &String| heading.split(' ').next() == Some(verb);
            assert!(examples.keys().any(is_there), "{verb} has no example");
        }
    }
}
