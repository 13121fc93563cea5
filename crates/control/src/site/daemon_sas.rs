//! The SAs of IKE daemons that a rule is for.

use convoy_engine::registry::DaemonSas;
use convoy_wire::Prefix;

use super::fields::transposed;
use super::model::Xfrm;
use super::reader::{At, Report, Table};

/// The SAs that a rule is for, as it says.
pub(super) struct Wanted {
    pub(super) sas: DaemonSas,
    /// Identifier of the interface, and its position in the file.
    if_id: Option<At<u32>>,
}

/// Reads `peer` and `if_id` of a rule.
pub(super) fn wanted(table: &mut Table<'_>, report: &mut Report<'_>) -> Option<Wanted> {
    let peer = table.take("peer").map(|field| {
        field.parsed::<Prefix>(report, "a network or an address such as \"192.0.2.0/24\"")
    });
    let if_id = table.take("if_id").map(|field| {
        let help = "use the SA's if_id; 0 for SAs without one";
        let At { value, place } = field.integer(report, 0..=u32::MAX.into(), help)?;
        Some(At { value: u32::try_from(value).ok()?, place })
    });
    let if_id = transposed(if_id)?;
    let peer = transposed(peer)?.map(|at| at.value);
    Some(Wanted { sas: DaemonSas { peer, if_id: if_id.as_ref().map(|at| at.value) }, if_id })
}

impl Wanted {
    /// Checks that the section `[xfrm]` names the interface that is wanted: SAs of others are
    /// refused.
    pub(super) fn has_interface(&self, xfrm: &Xfrm, report: &mut Report<'_>) -> Option<()> {
        let Some(At { value, place }) = &self.if_id else { return Some(()) };
        if *value == 0 || xfrm.interfaces.iter().any(|interface| interface.if_id == *value) {
            return Some(());
        }
        report.error(
            place,
            format!("no [[xfrm.interface]] has if_id {value}"),
            "use one that has an interface, or 0 for SAs without one",
        );
        None
    }
}
