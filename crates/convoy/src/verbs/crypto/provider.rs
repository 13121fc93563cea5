//! `convoy crypto --provider-stats`: what the OpenSSL provider did.

use std::path::Path;

use convoy_openssl::stats::{Counter, Counts};
use serde_json::{Map, Value};

use crate::exit::{Exit, Stop};
use crate::output;

pub(super) fn run(file: &Path, is_json: bool) -> anyhow::Result<Exit> {
    let counts = Counts::read(file).map_err(|error| {
        Stop::usage(format!(
            "{}: {error}; the provider makes it where `stats` of its section in OpenSSL's \
             configuration, or CONVOY_PROVIDER_STATS, says so",
            file.display()
        ))
    })?;
    if is_json {
        let entry =
            |counter: Counter| (counter.name().to_owned(), Value::from(counts.get(counter)));
        output::json(&Counter::ALL.into_iter().map(entry).collect::<Map<_, _>>())?;
    } else {
        let row = |counter: Counter| {
            vec![
                counter.name().to_owned(),
                counts.get(counter).to_string(),
                counter.about().to_owned(),
            ]
        };
        let heading = ["COUNTER", "COUNT", "OF"].map(str::to_owned).to_vec();
        let rows: Vec<_> = std::iter::once(heading).chain(Counter::ALL.map(row)).collect();
        output::print(&output::table(&rows))?;
    }
    Ok(Exit::Ok)
}
