//! Many SAs in a few lines: how many there are, and those that somebody should look at.

use super::{DirectionStatus, LifetimeState, SaStatus};

/// SAs that are listed one by one; of more, those that need attention are.
pub(super) const LISTED_MAX: usize = 32;

/// SAs of a gateway that has many, in words, and those among them that need attention.
pub(super) struct Summary {
    /// Number of SAs of each direction, and of those that pass packets.
    pub(super) line: String,
    /// SAs whose lifetime or numbers end, that drop packets or meet forged ones, as many as are listed.
    pub(super) noticed: Vec<SaStatus>,
    /// Number of SAs that need attention and are not among them.
    pub(super) more: usize,
}

impl Summary {
    pub(super) fn of(sas: &[SaStatus]) -> Self {
        let outbound = sas.iter().filter(|sa| is_outbound(sa)).count();
        let inbound = sas.len().saturating_sub(outbound);
        let active = sas.iter().filter(|sa| sa.flow.last_packet_s.is_some_and(|age| age < 60.0));
        let noticed: Vec<_> = sas.iter().filter(|sa| needs_attention(sa)).collect();
        let attention = match noticed.len() {
            0 => "none needs attention".to_owned(),
            1 => "1 needs attention".to_owned(),
            many => format!("{many} need attention"),
        };
        Self {
            line: format!(
                "{outbound} outbound and {inbound} inbound SAs, of which {} passed packets in the last minute; {attention} \
                 (`--all` lists every SA)",
                active.count()
            ),
            more: noticed.len().saturating_sub(LISTED_MAX),
            noticed: noticed.into_iter().take(LISTED_MAX).cloned().collect(),
        }
    }
}

fn is_outbound(sa: &SaStatus) -> bool {
    matches!(sa.direction, DirectionStatus::Outbound { .. })
}

fn needs_attention(sa: &SaStatus) -> bool {
    let ends = sa.lifetime.is_some_and(|lifetime| lifetime.state != LifetimeState::Live);
    let fails = match sa.direction {
        DirectionStatus::Outbound { left, .. } => left == 0,
        DirectionStatus::Inbound { icv_failures, .. } => icv_failures > 0,
    };
    ends || fails || sa.dropped > 0 || sa.refused_by_engine
}
