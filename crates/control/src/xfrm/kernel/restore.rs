//! Restores what daemons negotiated with an earlier life of the gateway.

use convoy_ipsec::selector::Direction;
use convoy_ipsec::snapshot::Snapshot;
use convoy_xfrm::{Datagram, Group, Messages, Policy, Refusal, Reply, Sa};

use super::events::expiry;
use super::policies::covered;
use super::sas::describe;
use super::{Covered, Kernel};
use crate::xfrm::keep::{Earlier, Found, Keep, Kind, Past};
use crate::xfrm::plane::Course;
use crate::xfrm::{Added, Changed, Moment, Placed};

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
    pub fn keep(&mut self, mut keep: Keep, at: Moment) -> Restored {
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
            match self.restore_sa(&found, past, at) {
                Ok(()) => restored.sas += 1,
                Err(lost) => {
                    restored.lost.extend(lost);
                    keep.remove(Kind::Sa, found.id);
                }
            }
        }
        keep.keeper.bury_others();
        for found in std::mem::take(&mut keep.past.policies) {
            match self.restore_policy(&found) {
                Ok(covered) => {
                    restored.policies += 1;
                    restored.covered.extend(covered);
                }
                Err(why) => {
                    restored.is_closed |= is_closing(&found);
                    tracing::error!("a policy of an earlier life is gone: {why}");
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
        found: &Found,
        past: Option<&Past>,
        at: Moment,
    ) -> Result<(), Option<(Group, Datagram)>> {
        let Some(Reply::NewSa(mut sa)) = reply(found) else {
            tracing::error!("an SA of an earlier life is gone: this version cannot read it");
            return Err(None);
        };
        let lost = |sa: &Sa, why: &str| {
            tracing::warn!("{} of an earlier life is gone: {why}", describe(sa));
            Err(expiry(sa, true))
        };
        let Some(past) = past else { return lost(&sa, "its sequence numbers are not known") };
        // The database takes over what a daemon says of the time before.
        sa.state.usage = Some(sa.info.usage);
        match self.place_sa(&mut sa, past, at) {
            Ok((placed, picture)) => match self.associations.add(*sa, at.unix()) {
                Ok(Added { now, .. }) => {
                    self.by_slot.insert((placed.direction, placed.slot), now.number);
                    if placed.is_guess {
                        self.guesses.insert(now.number);
                    }
                    now.placed = Some(placed);
                    self.plane.publish(picture);
                    Ok(())
                }
                Err(why) => {
                    self.plane.give_back(&placed);
                    tracing::error!("an SA of an earlier life is gone: {why}");
                    Err(None)
                }
            },
            Err(why) => lost(&sa, &why.to_string()),
        }
    }

    fn place_sa(
        &mut self,
        sa: &mut Sa,
        past: &Past,
        at: Moment,
    ) -> Result<(Placed, Snapshot), Refusal> {
        let direction = past.cell.direction;
        // An earlier life may have guessed it.
        let now = self.course(sa, false);
        let is_guess = now.is_guess && direction == Direction::Inbound && past.cell.bound() == 0;
        let checked = self.plane.check(sa, Course { direction, is_guess, ..now })?;
        self.associations.is_free(sa)?;
        self.plane.place_sa(sa, &checked, Some(past), at)
    }

    fn restore_policy(&mut self, found: &Found) -> Result<Option<Covered>, String> {
        let Some(Reply::NewPolicy(policy)) = reply(found) else {
            return Err("this version cannot read it".to_owned());
        };
        let added = policy.info.usage.add_time;
        self.insert_policy(*policy, added).map_err(|refusal| refusal.to_string())
    }

    fn insert_policy(&mut self, policy: Policy, added: u64) -> Result<Option<Covered>, Refusal> {
        self.plane.check_policy(&policy)?;
        let Changed { policy, .. } = self.policies.insert(policy, true, added)?;
        let (index, covers) = (policy.info.index, covered(policy));
        if let Err(refusal) = self.plane.change_policy(None, policy) {
            self.policies.remove_index(index);
            return Err(refusal);
        }
        Ok(covers)
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
