//! Results of `convoy bench tls-records`.

use super::measure::Point;
use super::report::{NotOffered, Report};
use crate::results::build::Draft;
use crate::results::fields::Fields;
use crate::results::{Better, CONVOY, LeftOut, Name, Results};

impl Report {
    /// In the form of all benches.
    #[must_use]
    pub fn results(&self) -> Results {
        let mut results = Results::new("tls-records", &self.head);
        results.machine.add_peer("openssl", &self.openssl, None);
        results.facts = Fields::default()
            .with("class", self.class.name())
            .with("tier", self.tier)
            .with("sha_extensions", self.sha_extensions)
            .with("provider", self.provider.display().to_string());
        self.points.iter().for_each(|point| results.add(draft(point, self.tier)));
        results.left_out.extend(self.not_offered.iter().map(left_out));
        results.left_out.extend_from_slice(&self.failed);
        results
    }
}

fn left_out(missing: &NotOffered) -> LeftOut {
    let NotOffered { cipher, call, by, why } = missing;
    let what = call.map_or_else(|| (*cipher).to_owned(), |call| format!("{cipher} {call}"));
    let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    LeftOut::new(what, format!("not offered by {by}{why}"))
}

/// A call of both providers.
pub(crate) fn draft(point: &Point, tier: &str) -> Draft {
    let place = Fields::default()
        .with("cipher", point.cipher)
        .with("call", point.call)
        .with("size", point.size)
        .with("tier", tier);
    let [default, convoy] = providers();
    let [default_ns, convoy_ns] = &point.times;
    Draft::new("time per call", "ns", Better::Less, place)
        .fact("records", point.records)
        .fact("calls_per_round", point.calls)
        .fact("offered", point.offered)
        .series(&convoy, convoy_ns)
        .series(&default, default_ns)
        .ratio(&default, &convoy, Better::More)
}

/// OpenSSL's own provider, and Convoy's.
pub(crate) fn providers() -> [Name; 2] {
    [Name::new("openssl", "default provider"), Name::new(CONVOY, "provider")]
}
