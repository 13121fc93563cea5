//! Results of `convoy bench crypto --stream`.

use super::StreamPoint;
use crate::results::build::Draft;
use crate::results::fields::Fields;
use crate::results::head::Head;
use crate::results::{Better, Name, Results};

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
    let [whole, one, two] = names.map(|by| Name::new(crate::results::CONVOY, by));
    let mut draft = Draft::new("cycles per message", "cycles", Better::Less, place);
    for (name, rounds) in [&whole, &one, &two].into_iter().zip(&point.samples) {
        draft = draft.series(name, rounds);
    }
    draft.ratio(&one, &whole, Better::Less).ratio(&two, &whole, Better::Less)
}
