//! What the path answers, and what happens to mappings that stand.

use core::net::SocketAddr;
use core::time::Duration;

use signalbox_core::Time;
use signalbox_core::slab::Key;

use super::Mapper;
use super::io::{Change, Failure, MappingId};
use super::map::{differs, wanted};
use super::record::{Asked, Holder, Record, Stage, Updates};
use crate::wire::ResultCode;

/// Time between two questions for a lost mapping.
const AGAIN: Duration = Duration::from_secs(5);

/// Mapping Updates for one change, and the time between the first two (RFC 6887 §14.2).
const UPDATES: u8 = 3;
const UPDATE_GAP: Duration = Duration::from_millis(250);

impl Mapper {
    /// Takes the answer of the path to what it was asked for.
    pub(super) fn opened(&mut self, id: MappingId, result: Result<SocketAddr, Failure>) {
        // The mapping may have ended meanwhile: it was closed then.
        let Some(key) = self.mappings.of(id) else { return };
        let Some(record) = self.mappings.get(key) else { return };
        match (&record.stage, result) {
            (Stage::Asking { .. }, Ok(place)) if record.wish.exactly && differs(record.wish.place, place) => {
                let Some(record) = self.end(key) else { return };
                self.fail(&record, Failure::Taken);
            }
            (Stage::Asking { .. } | Stage::Changing { .. }, Ok(place)) => self.stand(key, place),
            (Stage::Asking { .. }, Err(failure)) => {
                if let Some(record) = self.mappings.remove(key) {
                    self.fail(&record, failure);
                }
            }
            (Stage::Changing { .. }, Err(failure)) => self.take_back(key, failure),
            (Stage::Repairing { again: None, stale: true, .. }, _) => self.ask_again(key),
            (Stage::Repairing { again: None, .. }, Ok(place)) => self.repaired(key, place),
            (Stage::Repairing { again: None, .. }, Err(_)) => {
                let at = self.now + AGAIN;
                self.mappings.change(key, |record| {
                    if let Stage::Repairing { again, .. } = &mut record.stage {
                        *again = Some(at);
                    }
                });
            }
            // Nothing was asked.
            (Stage::Standing { .. } | Stage::Repairing { .. }, _) => {}
        }
    }

    /// The path granted a first request, or other filters.
    fn stand(&mut self, key: Key, place: SocketAddr) {
        let now = self.now;
        let before = self.mappings.change(key, |record| {
            let standing = Stage::Standing { place, ends: now, updates: None };
            let before = core::mem::replace(&mut record.stage, standing);
            let (Stage::Asking { asked, .. } | Stage::Changing { asked, .. }) = before else { return None };
            if let Stage::Standing { ends, .. } = &mut record.stage {
                *ends = now + Duration::from_secs(asked.lifetime.into());
            }
            Some(asked)
        });
        let Some(asked) = before.flatten() else { return };
        self.counters.opened += 1;
        self.answer(key, &asked, Ok(place));
    }

    /// Answers the request that waited for the path.
    fn answer(&mut self, key: Key, asked: &Asked, result: Result<SocketAddr, Failure>) {
        let Some(record) = self.mappings.get(key) else { return };
        let answered = (record.back, record.inside, record.description.clone());
        self.answer_asked(answered, asked, result);
    }

    /// Answers the first request of a mapping that there will not be.
    fn fail(&mut self, record: &Record, failure: Failure) {
        let Stage::Asking { asked, .. } = &record.stage else { return };
        self.counters.refused += 1;
        self.answer_asked((record.back, record.inside, None), asked, Err(failure));
    }

    /// The path refused other filters. The nodes of the path have ended the mapping (RFC 5973 §3.7.2), so it is asked for as it was.
    fn take_back(&mut self, key: Key, failure: Failure) {
        self.refuse_change(key, failure, false);
        self.ask_again(key);
    }

    /// Tells the host that a change was refused, and keeps the filters of before. `stale`: the answer of the path is still to come.
    fn refuse_change(&mut self, key: Key, failure: Failure, stale: bool) {
        let until = self.now + self.config.repair;
        let asked = self.mappings.change(key, |record| {
            let (place, ends) = record.told()?;
            let repairing = Stage::Repairing { place, ends, until, again: None, stale };
            let Stage::Changing { asked, before, .. } = core::mem::replace(&mut record.stage, repairing)
            else {
                return None;
            };
            record.filters = before;
            Some(asked)
        });
        let Some(asked) = asked.flatten() else { return };
        self.counters.refused += 1;
        self.answer(key, &asked, Err(failure));
    }

    /// Asks the path for a lost mapping, with the old place as wish.
    fn ask_again(&mut self, key: Key) {
        let now = self.now;
        let asked = self.mappings.change(key, |record| {
            let Stage::Repairing { place, again, stale, .. } = &mut record.stage else { return None };
            (*again, *stale) = (None, false);
            let place = *place;
            record.asked_again = Some(now);
            let mut wanted = wanted(record);
            // Another place is better than none; the host is told.
            (wanted.wish, wanted.exactly) = (place, false);
            Some(wanted)
        });
        if let Some(wanted) = asked.flatten() {
            self.out.open(MappingId(key.to_u64()), wanted);
        }
    }

    /// The path granted a lost mapping again.
    fn repaired(&mut self, key: Key, place: SocketAddr) {
        let before = self.mappings.change(key, |record| {
            let (before, ends) = record.told()?;
            record.stage = Stage::Standing { place, ends, updates: None };
            Some(before)
        });
        self.counters.repaired += 1;
        if before.flatten().is_some_and(|before| before != place) {
            self.tell_of(key, place);
        }
    }

    /// Takes what happened to a mapping that stands.
    pub(super) fn changed(&mut self, id: MappingId, change: Change) {
        let Some(key) = self.mappings.of(id) else { return };
        match change {
            Change::Moved(to) => {
                let moved = self.mappings.change(key, |record| match &mut record.stage {
                    Stage::Standing { place, .. } | Stage::Changing { place, .. } if *place != to => {
                        *place = to;
                        true
                    }
                    Stage::Asking { .. }
                    | Stage::Standing { .. }
                    | Stage::Changing { .. }
                    | Stage::Repairing { .. } => false,
                });
                if moved == Some(true) {
                    self.tell_of(key, to);
                }
            }
            Change::Lost => {
                let (now, until) = (self.now, self.now + self.config.repair);
                let lost = self.mappings.change(key, |record| match record.stage {
                    Stage::Standing { place, ends, .. } => {
                        // A path that loses it again and again does not set the pace.
                        let again = record.asked_again.map(|at| at + AGAIN).filter(|again| *again > now);
                        record.stage = Stage::Repairing { place, ends, until, again, stale: false };
                        again.is_none()
                    }
                    // What the path was asked for last decides.
                    Stage::Asking { .. } | Stage::Changing { .. } | Stage::Repairing { .. } => false,
                });
                if lost == Some(true) {
                    self.ask_again(key);
                }
            }
        }
    }

    /// Tells the host of a mapping that it has another place. A host of NAT-PMP learns it by asking again, for which the epoch begins anew
    /// (RFC 6886 §3.6).
    fn tell_of(&mut self, key: Key, place: SocketAddr) {
        self.counters.moved += 1;
        let Some(record) = self.mappings.get(key) else { return };
        if record.holder == Holder::NatPmp {
            return self.restart_epoch();
        }
        // Another place than the only one that would do is none (RFC 6887 §14.2).
        if record.wish.exactly && differs(record.wish.place, place) {
            self.update(key, Err(ResultCode::CANNOT_PROVIDE_EXTERNAL));
            self.end(key);
            return;
        }
        self.update(key, Ok(()));
        let next = self.now + UPDATE_GAP;
        self.mappings.change(key, |record| {
            if let Stage::Standing { updates, .. } = &mut record.stage {
                *updates = Some(Updates { left: UPDATES - 1, next, gap: UPDATE_GAP });
            }
        });
    }

    /// Does what is due for a mapping.
    pub(super) fn due(&mut self, key: Key) {
        let now = self.now;
        let Some(record) = self.mappings.get(key) else { return };
        match record.stage {
            Stage::Asking { until, .. } if until <= now => {
                if let Some(record) = self.end(key) {
                    self.fail(&record, Failure::NoPath);
                }
            }
            Stage::Standing { ends, .. } | Stage::Repairing { ends, .. } if ends <= now => {
                self.counters.expired += 1;
                self.end(key);
            }
            Stage::Standing { updates: Some(updates), .. } if updates.next <= now => {
                self.send_update(key, updates)
            }
            // The path did not answer in time. When its answer comes, it is asked for the mapping as it was.
            Stage::Changing { until, .. } if until <= now => self.refuse_change(key, Failure::NoPath, true),
            Stage::Repairing { until, .. } if until <= now => self.give_up(key),
            Stage::Repairing { again: Some(again), .. } if again <= now => self.ask_again(key),
            // The timer came early, by less than a tick.
            Stage::Asking { .. }
            | Stage::Standing { .. }
            | Stage::Changing { .. }
            | Stage::Repairing { .. } => {
                self.mappings.change(key, |_| ());
            }
        }
    }

    fn send_update(&mut self, key: Key, updates: Updates) {
        self.update(key, Ok(()));
        let gap = updates.gap * 2;
        let more = (updates.left > 1).then(|| Updates { left: updates.left - 1, next: self.now + gap, gap });
        self.mappings.change(key, |record| {
            if let Stage::Standing { updates, .. } = &mut record.stage {
                *updates = more;
            }
        });
    }

    /// A lost mapping could not be had again.
    fn give_up(&mut self, key: Key) {
        self.counters.lost += 1;
        self.update(key, Err(ResultCode::NETWORK_FAILURE));
        let record = self.end(key);
        if record.is_some_and(|record| record.holder == Holder::NatPmp) {
            self.restart_epoch();
        }
    }

    /// Seconds since mappings were lost last (RFC 6887 §8.5).
    pub(super) fn epoch(&self) -> u32 {
        self.epoch_at(self.now)
    }

    pub(super) fn epoch_at(&self, now: Time) -> u32 {
        let since = u32::try_from(now.since(self.epoch_from).as_secs()).unwrap_or(u32::MAX);
        self.epoch_base.saturating_add(since)
    }

    /// Serves the timers that are due, a portion for each input.
    pub(super) fn run_timers(&mut self, timer: bool) {
        for _ in 0..signalbox_core::wheel::portion(timer) {
            let Some(key) = self.mappings.pop_due(self.now) else { break };
            self.due(key);
        }
    }
}
