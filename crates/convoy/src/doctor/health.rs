//! Health that a running gateway tells of itself, as `convoy status` does.

use convoy_control::status::Health;

use super::check::Check;

const ABOUT: &str = "status";

/// A problem for each reason that the gateway gives.
pub(super) fn look(health: &Health) -> Vec<Check> {
    if health.reasons.is_empty() {
        return vec![Check::ok(ABOUT, "the gateway reports no problem")];
    }
    health.reasons.iter().map(|reason| Check::problem(ABOUT, reason.clone())).collect()
}
