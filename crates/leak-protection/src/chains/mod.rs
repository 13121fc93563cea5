//! The chains of the table, one file each kind.

mod admitted;
pub(crate) mod discarded;
mod inbound;
pub(crate) mod marking;
mod neighbours;
mod outbound;
mod parts;
pub(crate) mod questions;
pub(crate) mod quoting;
pub(crate) mod rewritten;
pub(crate) mod tracking;

use crate::{
    config::{Config, Lead},
    questions::Asking,
    tracked::Tracked,
};

pub(crate) use self::parts::{Chain, Counted, drops_unanswered};

/// All chains; those that others jump to come before these.
pub(crate) fn all(
    config: &Config,
    asking: Option<&Asking>,
    rewriting: Option<&Asking>,
    tracked: Tracked,
) -> Vec<Chain> {
    let tracking = asking.map(|_| tracking::chains(config, tracked)).into_iter().flatten();
    let discarded = asking.map(|_| discarded::chains()).into_iter().flatten();
    let questions = asking.into_iter().flat_map(|asking| questions::chains(config, asking));
    let questions = discarded.chain(questions);
    let marks = asking.is_some() || config.leads == Lead::ByMark;
    let marking = marks.then(|| marking::chains(config, asking, rewriting)).into_iter().flatten();
    let rewritten = rewriting
        .into_iter()
        .flat_map(|queues| rewritten::chains(config, asking.is_some(), queues));
    let others = outbound::chains(config, asking, rewriting)
        .into_iter()
        .chain(inbound::chains(config, asking));
    core::iter::once(neighbours::chain())
        .chain(questions)
        .chain(tracking)
        .chain(rewritten)
        .chain(marking)
        .chain(others)
        .collect()
}
