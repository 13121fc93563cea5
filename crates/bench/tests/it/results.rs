//! Results are written and read back, files of earlier versions as well; what is no results is refused.

use std::fs;
use std::path::Path;

use convoy_bench::results::build::Draft;
use convoy_bench::results::fields::Fields;
use convoy_bench::results::head::Head;
use convoy_bench::results::read::ReadError;
use convoy_bench::results::{
    About, Better, Bound, LeftOut, Name, Results, SCHEMA_VERSION, Statistic,
};

/// Results with everything that there can be.
fn results() -> Results {
    let mut results = Results::new("crypto", &Head::now());
    results.machine.add_peer("ipsec-mb", "1.5.0, avx512-t2", Some("vaes512"));
    results.facts.set("load_processes", 2_usize);
    let place = Fields::default().with("suite", "aes-128-gcm-16").with("size", 64_usize);
    let (convoy, peer) = (Name::new("convoy", "vaes512"), Name::new("ipsec-mb", "burst"));
    let rounds: Vec<f64> = (0..40).map(|i| 60.0 + f64::from(i * 7 % 11) / 3.0).collect();
    let slower: Vec<f64> = rounds.iter().map(|round| 1.3 * round + 1.0).collect();
    let about = About::Ratio { of: peer.clone(), to: convoy.clone() };
    let class = results.machine.class;
    let draft = Draft::new("cycles per packet", "cycles", Better::Less, place)
        .fact("text_bytes", 64.0)
        .series(&convoy, &rounds)
        .series_with(&peer, &slower, Fields::default().with("note", "\"quoted\"\nµs"))
        .ratio(&peer, &convoy, Better::More)
        .difference(&peer, &convoy, Better::Less)
        .goal("faster", about, Statistic::Median, Bound::AtLeast(1.2), class)
        .goal("quick", About::Series(convoy), Statistic::Mean, Bound::AtMost(50.0), None);
    results.add(draft);
    results.left_out.push(LeftOut::new("openssl", "it is not here"));
    results.errors.push("a packet is missing".to_owned());
    results.complete = false;
    results
}

fn error(text: &str) -> ReadError {
    Results::parse(text.as_bytes()).unwrap_err()
}

#[test]
fn what_is_written_is_read_back() {
    let mut written = results();
    written.machine.look_again();
    let text = written.to_json().unwrap();
    assert_eq!(Results::parse(text.as_bytes()).unwrap(), written);
    let goals: Vec<_> = written.points[0].goals.iter().map(|goal| goal.reached).collect();
    assert_eq!(goals, [true, false]);
    // Rounds stand in one line, points in many.
    let line = text.lines().find(|line| line.contains("\"rounds\"")).unwrap();
    assert_eq!(line.matches(',').count(), 40, "{line}");
    assert!(text.lines().count() > 60 && text.ends_with("}\n"), "{text}");
    // Any other layout means the same.
    let compact = serde_json::to_vec(&serde_json::from_str::<serde_json::Value>(&text).unwrap());
    assert_eq!(Results::parse(&compact.unwrap()).unwrap(), written);
}

#[test]
fn files_of_the_first_version_are_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/results-1.json");
    let results = Results::read(&path).unwrap();
    assert_eq!((&*results.bench, results.schema_version), ("crypto", 1));
    assert_eq!(results.started, "2026-11-29T05:52:21Z");
    let point = &results.points[0];
    assert_eq!(point.place.get("suite"), Some(&"aes-128-gcm-16".into()));
    assert!(point.series.len() >= 3 && !point.ratios.is_empty() && !point.goals.is_empty());
    assert!(!results.left_out.is_empty() && !results.machine.peers.is_empty());
    // It is written as it was, but for fields that came later.
    let again = Results::parse(results.to_json().unwrap().as_bytes()).unwrap();
    assert_eq!(again, results);
}

#[test]
fn fields_that_came_later_are_passed_over() {
    let text = results().to_json().unwrap();
    let more = text
        .replacen("\"schema\":", "\"mood\": {\"a\": [1, null]},\n  \"schema\":", 1)
        .replacen("\"rounds\":", "\"voided\": 3,\n          \"rounds\":", 1)
        .replacen("\"kernel\":", "\"microcode\": \"0x1\",\n    \"kernel\":", 1);
    assert_eq!(Results::parse(more.as_bytes()).unwrap(), results_like(&text));
}

fn results_like(text: &str) -> Results {
    Results::parse(text.as_bytes()).unwrap()
}

#[test]
fn a_file_that_is_cut_off_is_told_from_one_that_is_no_json() {
    let text = results().to_json().unwrap();
    // Without its last brace, or less.
    for length in (0..text.len() - 1).filter(|at| text.is_char_boundary(*at)) {
        let found = error(&text[..length]);
        assert!(matches!(found, ReadError::Cut(_)), "{length}: {found}");
        assert!(found.to_string().starts_with("the file is cut off: "), "{found}");
    }
    for text in ["convoy 0.1.0: convoy bench crypto\n", "{,}", &format!("{text}{text}")] {
        assert!(matches!(error(text), ReadError::NotJson(_)), "{}", error(text));
    }
}

#[test]
fn other_json_and_newer_versions_are_refused() {
    let text = results().to_json().unwrap();
    let foreign = text.replacen("convoy-bench", "iperf3", 1);
    for text in [&*foreign, "{}", "[1]", "3", r#"{"schema": 1, "points": []}"#] {
        let found = error(text);
        assert!(matches!(found, ReadError::Foreign), "{text}: {found}");
    }
    assert_eq!(
        error("{}").to_string(),
        "not results of convoy bench: no \"schema\": \"convoy-bench\""
    );
    let next = SCHEMA_VERSION + 1;
    let version = |version: &str| {
        let now = format!("\"schema_version\": {SCHEMA_VERSION}");
        text.replacen(&now, &format!("\"schema_version\": {version}"), 1)
    };
    // Whatever else it holds.
    let newer = version(&next.to_string()).replacen("\"points\"", "\"measured\"", 1);
    let told =
        format!("written by a newer convoy, schema {next}; this one reads up to {SCHEMA_VERSION}");
    assert_eq!(error(&newer).to_string(), told);
    assert!(matches!(error(&version("0")), ReadError::Foreign));
}

#[test]
fn numbers_that_are_not_finite_or_do_not_agree_are_refused() {
    let text = results().to_json().unwrap();
    let first = "\"rounds\": [60.0,";
    assert!(text.contains(first), "{text}");
    for (number, said) in [("null", "a round is null"), ("1e999", "number out of range")] {
        let found = error(&text.replacen(first, &format!("\"rounds\": [{number},"), 1));
        assert!(matches!(found, ReadError::NotFinite(_)), "{found}");
        let found = found.to_string();
        assert!(found.starts_with("a number is not finite: ") && found.contains(said), "{found}");
    }
    assert!(matches!(error(&text.replacen(first, "\"rounds\": [NaN,", 1)), ReadError::NotJson(_)));
    assert!(matches!(error(&text.replacen(first, "\"rounds\": [\"a\",", 1)), ReadError::Form(_)));
    for (from, to, said) in [
        (first, "\"rounds\": [61.0,", "its rounds come to"),
        ("\"measured\": ", "\"measured\": 1", "but what it is about is"),
        ("\"reached\": true", "\"reached\": false", "which its numbers do not"),
        ("\"by\": \"burst\",", "\"by\": \"job\",", "not two series of the point"),
        ("\"by\": \"burst\",", "\"by\": \"vaes512\",", "not two series of the point"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        let found = error(&changed);
        assert!(matches!(found, ReadError::Disagreement(_)), "{from}: {found}");
        let found = found.to_string();
        assert!(found.starts_with("the numbers do not agree: cycles per packet (suite"), "{found}");
        assert!(found.contains(said), "{from}: {found}");
    }
}

#[test]
fn what_could_not_be_read_back_is_not_written() {
    let mut results = results();
    results.points[0].series[0].summary.mean = f64::NAN;
    assert!(results.to_json().unwrap_err().to_string().contains("summary.mean is NaN"));
}

#[test]
fn files_are_told_with_their_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    let told = Results::read(&path).unwrap_err().to_string();
    assert!(told.contains("a.json: No such file"), "{told}");
    fs::write(&path, results().to_json().unwrap()).unwrap();
    assert_eq!(Results::read(&path).unwrap().errors, ["a packet is missing"]);
    fs::write(&path, "{").unwrap();
    assert!(Results::read(&path).unwrap_err().to_string().contains("a.json: the file is cut off"));
    let told = Results::read(folder.path()).unwrap_err().to_string();
    assert!(told.contains("Is a directory"), "{told}");
}
