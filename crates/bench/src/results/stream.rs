//! Results of `convoy bench crypto --stream`.

use super::build::Draft;
use super::fields::Fields;
use super::head::Head;
use super::{Better, Name, Results};
use crate::stream::StreamPoint;

impl Results {
    /// Of streams, in the form of all benches.
    #[must_use]
    pub fn of_streams(head: &Head, points: &[StreamPoint]) -> Self {
        let mut results = Self::new("crypto --stream", head);
        points.iter().for_each(|point| results.add(draft(point)));
        results
    }
}

fn draft(point: &StreamPoint) -> Draft {
    let place = Fields::default()
        .with("suite", format!("aes-{}-gcm-16", point.key_bits))
        .with("direction", point.direction.name())
        .with("size", point.size)
        .with("tier", point.tier);
    let names = ["one-shot", "stream of one part", "stream of two parts"];
    let [whole, one, two] = names.map(|by| Name::new(super::CONVOY, by));
    let mut draft = Draft::new("cycles per message", "cycles", Better::Less, place);
    for (name, rounds) in [&whole, &one, &two].into_iter().zip(&point.samples) {
        draft = draft.series(name, rounds);
    }
    draft.ratio(&one, &whole, Better::Less).ratio(&two, &whole, Better::Less)
}
