//! The engine that does the cryptography of a running gateway, where that is not the workers.

use convoy_control::status::Status;

use super::check::Check;

const ABOUT: &str = "engine";

/// Looks at its counters since the gateway's start.
pub(super) fn look(status: &Status) -> Option<Check> {
    let name = status.engine.as_deref()?;
    let count = |wanted: &str| {
        status.counters.iter().find(|count| count.name == wanted).map_or(0, |count| count.value)
    };
    let (losses, restarts) = (count("engine.losses"), count("engine.restarts"));
    Some(if count("engine.wrong") > 0 {
        Check::problem(
            ABOUT,
            format!(
                "{name} gave {} wrong results among {} that workers repeated: check it for a fault, or use \
                 `engine = \"inline\"` in [crypto]",
                count("engine.wrong"),
                count("engine.checked"),
            ),
        )
    } else if losses > restarts {
        Check::problem(
            ABOUT,
            format!(
                "{name} is lost, and workers do its work at their own cost: the log says since when; to do \
                 without it: `engine = \"inline\"` in [crypto]"
            ),
        )
    } else if losses > 0 {
        Check::note(
            ABOUT,
            format!("{name} was lost {losses} times and is back; workers did its work meanwhile"),
        )
    } else {
        Check::ok(ABOUT, format!("{name} has done {} packets", count("engine.jobs")))
    })
}

#[cfg(test)]
mod tests {
    use convoy_control::status::SCHEMA;

    use super::*;
    use crate::doctor::check::Level;

    fn status(engine: Option<&str>, counters: &[(&str, u64)]) -> Status {
        let counters: Vec<_> = counters
            .iter()
            .map(|(name, value)| serde_json::json!({"name": name, "value": value}))
            .collect();
        serde_json::from_value(serde_json::json!({
            "schema": SCHEMA, "version": "1", "name": "left", "pid": 7, "uptime_s": 1.5,
            "site_file": "left.toml", "namespace": null, "health": {"level": "ok", "reasons": []},
            "tier": "portable", "engine": engine, "generation": 1,
            "outbound": {"packets": 1, "bytes": 2}, "inbound": {"packets": 0, "bytes": 0},
            "drops": [], "kernel_drops": 0, "counters": counters, "workers": 1,
            "leases": {"state_dir": null, "failure": null}, "sas": [],
        }))
        .unwrap()
    }

    #[test]
    fn losses_and_wrong_results_are_told() {
        assert_eq!(look(&status(None, &[])), None);
        for (counters, level, words) in [
            (&[("engine.jobs", 12)][..], Level::Ok, "model has done 12 packets"),
            (&[("engine.losses", 2), ("engine.restarts", 2)], Level::Note, "was lost 2 times"),
            (&[("engine.losses", 2), ("engine.restarts", 1)], Level::Problem, "model is lost"),
            (
                &[("engine.losses", 2), ("engine.restarts", 2), ("engine.wrong", 1)],
                Level::Problem,
                "1 wrong results",
            ),
        ] {
            let check = look(&status(Some("model"), counters)).unwrap();
            assert!(check.level == level && check.found.contains(words), "{check:?}");
        }
    }
}
