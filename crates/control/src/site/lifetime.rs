//! `lifetime` of an SA: when it should be replaced, and when it ends (RFC 4301 section 4.4.2.1).

use std::time::Duration;

use convoy_crypto::Suite;
use convoy_ipsec::lifetime::{Lifetime, Limits};

use super::reader::{At, Field, Report};

/// Longest time that can be asked for: a hundred years, in seconds.
const LONGEST_S: u64 = 100 * 366 * 24 * 3600;

/// A limit by the name of its key.
type Named = (&'static str, Option<At<u64>>);

/// Reads `{ soft = { … }, hard = { … } }`.
pub(super) fn read(
    field: Field<'_>,
    report: &mut Report<'_>,
    suite: Option<Suite>,
) -> Option<Lifetime> {
    let mut table = field.table(report, "a table such as { hard = { bytes = 1000000000 } }")?;
    let place = table.place.clone();
    let [soft, hard] = ["soft", "hard"].map(|kind| table.take(kind).map(|f| limits(f, report)));
    table.finish(report);
    if soft.is_none() && hard.is_none() {
        report.error(&place, "has no limits", "add `soft`, `hard` or both, or remove the line");
        return None;
    }
    let none = || Some(Default::default());
    let (soft, hard): ([Named; 4], [Named; 4]) =
        (soft.unwrap_or_else(none)?, hard.unwrap_or_else(none)?);
    let mut in_order = true;
    let most = suite.and_then(Lifetime::most_bytes).unwrap_or(u64::MAX);
    for (_, limit) in soft.iter().chain(&hard).filter(|(key, _)| *key == "bytes") {
        if let Some(limit) = limit.as_ref().filter(|limit| limit.value > most) {
            let what = format!(
                "{} is more than a key of 3DES may do: 2^20 blocks (NIST SP 800-67 revision 2)",
                limit.value
            );
            report.error(&limit.place, what, format!("use {most} at most, or leave it out"));
            in_order = false;
        }
    }
    for ((key, soft), (_, hard)) in soft.iter().zip(&hard) {
        if let (Some(soft), Some(hard)) = (soft, hard)
            && soft.value >= hard.value
        {
            report.error(
                &soft.place,
                format!("{} is not below the hard limit of {} {key}", soft.value, hard.value),
                "the soft limit is the warning before the hard one: make it lower",
            );
            in_order = false;
        }
    }
    in_order.then(|| Lifetime { soft: made(soft), hard: made(hard) })
}

/// With no more than the suite lets an SA have.
pub(super) fn capped(lifetime: Lifetime, suite: Option<Suite>) -> Lifetime {
    suite.map_or(lifetime, |suite| lifetime.capped(suite))
}

fn limits(field: Field<'_>, report: &mut Report<'_>) -> Option<[Named; 4]> {
    let mut table = field.table(report, "a table such as { packets = 1000000, age_s = 3600 }")?;
    let place = table.place.clone();
    let mut complete = true;
    let keys = [
        ("packets", u64::MAX >> 1, "use a number of packets, at least 1"),
        ("bytes", u64::MAX >> 1, "use a number of bytes, at least 1"),
        ("age_s", LONGEST_S, "use seconds since the SA was added, at least 1"),
        ("use_s", LONGEST_S, "use seconds since the SA's first packet, at least 1"),
    ];
    let found = keys.map(|(key, most, help)| {
        let given = table.take(key).map(|field| field.integer(report, 1..=most, help));
        complete &= !matches!(given, Some(None));
        (key, given.flatten())
    });
    // A misspelt key is an error of its own.
    let empty = table.is_empty() && complete && found.iter().all(|(_, limit)| limit.is_none());
    table.finish(report);
    if empty {
        let help = "add `packets`, `bytes`, `age_s` or `use_s`, or remove the line";
        report.error(&place, "has no limits", help);
        return None;
    }
    complete.then_some(found)
}

fn made([packets, bytes, age, used]: [Named; 4]) -> Limits {
    let number = |(_, limit): Named| limit.map(|at| at.value);
    let time = |limit: Named| number(limit).map(Duration::from_secs);
    Limits {
        packets: number(packets),
        bytes: number(bytes),
        since_add: time(age),
        since_use: time(used),
    }
}
