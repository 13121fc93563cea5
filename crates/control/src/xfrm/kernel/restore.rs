//! Restores what daemons negotiated with an earlier life of the gateway.

use convoy_ipsec::selector::Direction;
use convoy_ipsec::snapshot::Writer;
use convoy_xfrm::{Datagram, Group, Messages, Policy, Refusal, Reply, Sa};

use super::events::expiry;
use super::policies::covered;
use super::sas::describe;
use super::transaction::{NewPolicy, NewSa};
use super::{Covered, Kernel};
use crate::xfrm::keep::{Earlier, Found, Keep, Kind, Past};
use crate::xfrm::plane::{Checked, Course};
use crate::xfrm::{Insertion, Moment};

/// Result of bringing back the state that an earlier life left.
#[derive(Debug)]
pub struct Restored {
    /// SAs that are there again.
    pub sas: usize,
    /// Policies that are.
    pub policies: usize,
    /// Networks that the policies cover.
    pub covered: Vec<Covered>,
    /// Events that daemons are to be told as soon as they listen: SAs that are gone.
    pub lost: Vec<(Group, Datagram)>,
    /// State that was found of an earlier life.
    pub earlier: Earlier,
    /// True if networks that it closed stay closed where no policy that is here again says so: it had no policies
    /// for them either, or not all of its policies are here.
    pub is_closed: bool,
}

fn reply(found: &Found) -> Option<Reply> {
    Messages::new(&found.message).next().and_then(|message| Reply::parse(&message).ok())
}

impl Kernel {
    /// Brings back what a folder keeps, and keeps there from now on what comes. To be called once, before
    /// the first request.
    pub fn keep(&mut self, writer: &mut Writer, mut keep: Keep, at: Moment) -> Restored {
        let hash = keep.past.hash.take();
        self.plane.keep(keep.keeper.clone(), hash, keep.past.cells.values());
        let mut restored = Restored {
            sas: 0,
            policies: 0,
            covered: Vec::new(),
            lost: Vec::new(),
            earlier: keep.past.earlier,
            is_closed: keep.past.is_closed || keep.past.earlier != Earlier::Whole,
        };
        for found in std::mem::take(&mut keep.past.sas) {
            let past = keep.past.cells.get(&found.id);
            match self.restore_sa(writer, &found, past, at) {
                Ok(()) => restored.sas += 1,
                Err(lost) => {
                    restored.lost.extend(lost);
                    keep.remove(Kind::Sa, found.id);
                }
            }
        }
        keep.keeper.bury_others();
        for found in std::mem::take(&mut keep.past.policies) {
            match self.restore_policy(writer, &found) {
                Ok(covered) => {
                    restored.policies += 1;
                    restored.covered.extend(covered);
                }
                Err(why) => {
                    restored.is_closed |= is_closing(&found);
                    tracing::error!("a policy of the previous run could not be restored: {why}");
                    keep.remove(Kind::Policy, found.id);
                }
            }
        }
        keep.past.cells.clear();
        self.keep = Some(keep);
        restored
    }

    /// Keeps in mind whether what lives before closed, and this one has no policies for, stays closed.
    pub fn stay_closed(&mut self, is_closed: bool) {
        if let Some(keep) = &mut self.keep {
            keep.put_closed(is_closed);
        }
    }

    /// Reason that the state of daemons cannot be kept at present, if there is one.
    #[must_use]
    pub fn keep_failure(&self) -> Option<String> {
        self.keep.as_ref().and_then(|keep| keep.keeper.failure())
    }

    /// Brings back an SA. The error has the event that daemons are to hear, if there is one.
    fn restore_sa(
        &mut self,
        writer: &mut Writer,
        found: &Found,
        past: Option<&Past>,
        at: Moment,
    ) -> Result<(), Option<(Group, Datagram)>> {
        let Some(Reply::NewSa(mut sa)) = reply(found) else {
            tracing::error!(
                "an SA of the previous run could not be restored: this version cannot read it"
            );
            return Err(None);
        };
        let lost = |sa: &Sa, why: &str| {
            tracing::warn!("{} of the previous run could not be restored: {why}", describe(sa));
            Err(expiry(sa, true))
        };
        let Some(past) = past else { return lost(&sa, "its sequence numbers are not known") };
        // The database takes over what a daemon says of the time before.
        sa.state.usage = Some(sa.info.usage);
        let checked = match self.check_restored(&sa, past) {
            Ok(checked) => checked,
            Err(why) => return lost(&sa, &why.to_string()),
        };
        let placed = match NewSa::new(self, writer).place(&sa, &checked, Some(past), at) {
            Ok(placed) => placed,
            Err(why) => return lost(&sa, &why.to_string()),
        };
        let recorded = placed.record(|sas| sas.add(*sa, at.unix())).map_err(|why| {
            tracing::error!("an SA of the previous run could not be restored: {why}");
            None
        })?;
        recorded.publish();
        Ok(())
    }

    fn check_restored(&self, sa: &Sa, past: &Past) -> Result<Checked, Refusal> {
        let direction = past.cell.direction;
        // An earlier life may have guessed it.
        let now = self.course(sa, false);
        let is_guess = now.is_guess && direction == Direction::Inbound && past.cell.bound() == 0;
        let checked = self.check(sa, Course { direction, is_guess, ..now })?;
        self.associations.is_free(sa)?;
        Ok(checked)
    }

    fn restore_policy(
        &mut self,
        writer: &mut Writer,
        found: &Found,
    ) -> Result<Option<Covered>, String> {
        let Some(Reply::NewPolicy(policy)) = reply(found) else {
            return Err("this version cannot read it".to_owned());
        };
        let added = policy.info.usage.add_time;
        self.insert_policy(writer, *policy, added).map_err(|refusal| refusal.to_string())
    }

    fn insert_policy(
        &mut self,
        writer: &mut Writer,
        policy: Policy,
        added: u64,
    ) -> Result<Option<Covered>, Refusal> {
        let checked = NewPolicy::check(self, &policy)?;
        let placed = checked.record(policy, Insertion::New, added)?.place(writer)?;
        Ok(placed.publish().and_then(|policy| covered(self.policies.by_index(policy.index)?)))
    }

    /// The orderly end, when no worker runs any more: what is kept is exact, and a folder that keeps
    /// nothing goes, unless it is to say that nothing was kept (`says_so`): leak protection stands for other
    /// policies, and the next life would take it for that of daemons' policies which it does not know.
    ///
    /// # Errors
    /// Fails if it cannot be written; what is kept is then as after a crash, which is safe.
    pub fn finish(&mut self, says_so: bool) -> std::io::Result<()> {
        self.keep.take().map_or(Ok(()), |keep| keep.finish(says_so))
    }
}

/// True if a policy that cannot be had again may have closed a network: all but those of interfaces.
fn is_closing(found: &Found) -> bool {
    !matches!(reply(found), Some(Reply::NewPolicy(policy)) if policy.if_id != 0)
}
