//! The queue of outputs. An output keeps its position and, if its reservation changes before it is polled, its old
//! contents. So the kernel, which carries them out in order, never has more installed than was admitted at that
//! moment.

use core::num::NonZeroU64;
use std::collections::VecDeque;

use signalbox_core::traffic::{Reservation, ReservationId};
use signalbox_core::{Key, Slab, invariant};

use super::group::Group;
use crate::request::{GrantId, LostWhy, Owner, ResourceOutput};

#[derive(Debug)]
enum Queued {
    Install(Key),
    /// The contents of a reservation when the output was queued. It has changed or ended since.
    InstallOld(ReservationId, Box<Reservation>),
    Remove(ReservationId),
    Lost {
        owner: Owner,
        grant: GrantId,
        why: LostWhy,
    },
    Reduced {
        owner: Owner,
        grant: GrantId,
        rate: u64,
    },
    /// A cancelled output.
    Nothing,
}

#[derive(Debug, Default)]
pub(super) struct Outputs {
    queue: VecDeque<Queued>,
    /// Number of outputs taken out so far: the position of the first entry, less one.
    taken: u64,
    /// The reservation that the last poll returned.
    lent: Option<Reservation>,
}

pub(super) const fn id_of(group: Key) -> ReservationId {
    ReservationId(group.to_u64())
}

impl Outputs {
    /// Returns the position of the output, from 1.
    fn push(&mut self, queued: Queued) -> Option<NonZeroU64> {
        self.queue.push_back(queued);
        // The length of a queue is far below 2^64.
        NonZeroU64::new(self.taken.saturating_add(u64::try_from(self.queue.len()).unwrap_or(u64::MAX)))
    }

    /// Called before a reservation changes or ends. A queued output of it keeps its contents or, if the kernel does
    /// not have the reservation yet, is cancelled.
    pub(super) fn preserve(&mut self, key: Key, group: &mut Group) {
        let Some(place) = group.queued.take() else { return };
        let at = usize::try_from(place.get().saturating_sub(self.taken).saturating_sub(1)).ok();
        let Some(queued) =
            invariant!(at.and_then(|at| self.queue.get_mut(at)), "a queued installation has its place")
        else {
            return;
        };
        *queued = if group.in_kernel.is_announced() {
            Queued::InstallOld(id_of(key), Box::new(group.reservation(Vec::new())))
        } else {
            Queued::Nothing
        };
    }

    pub(super) fn install(&mut self, key: Key, group: &mut Group) {
        group.queued = self.push(Queued::Install(key));
    }

    pub(super) fn remove(&mut self, key: Key) {
        self.push(Queued::Remove(id_of(key)));
    }

    pub(super) fn lost(&mut self, owner: Owner, grant: GrantId, why: LostWhy) {
        self.push(Queued::Lost { owner, grant, why });
    }

    pub(super) fn reduced(&mut self, owner: Owner, grant: GrantId, rate: u64) {
        self.push(Queued::Reduced { owner, grant, rate });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn poll<'a>(&'a mut self, groups: &'a mut Slab<Group>) -> Option<ResourceOutput<'a>> {
        loop {
            let queued = self.queue.pop_front()?;
            self.taken = self.taken.saturating_add(1);
            match queued {
                Queued::Nothing => {}
                Queued::Remove(id) => return Some(ResourceOutput::Remove { id }),
                Queued::Lost { owner, grant, why } => {
                    return Some(ResourceOutput::Lost { owner, grant, why });
                }
                Queued::Reduced { owner, grant, rate } => {
                    return Some(ResourceOutput::Reduced { owner, grant, rate });
                }
                Queued::InstallOld(id, reservation) => {
                    if let Some(group) = groups.get_mut(Key::from_u64(id.0)) {
                        group.pending = group.pending.saturating_add(1);
                    }
                    let reservation = self.lent.insert(*reservation);
                    return Some(ResourceOutput::Install { id, reservation });
                }
                Queued::Install(key) => {
                    // A group that is removed has no queued installation: `preserve` was called before.
                    if invariant!(groups.get(key), "a queued installation is of a reservation").is_none() {
                        continue;
                    }
                    let group = groups.get_mut(key)?;
                    group.queued = None;
                    group.in_kernel.announce();
                    group.pending = group.pending.saturating_add(1);
                    let filters = self.lent.take().map(|lent| lent.filters).unwrap_or_default();
                    let reservation = self.lent.insert(group.reservation(filters));
                    return Some(ResourceOutput::Install { id: id_of(key), reservation });
                }
            }
        }
    }
}
