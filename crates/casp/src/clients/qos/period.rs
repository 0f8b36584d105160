//! Reservations in advance (object TIME). A node decides with the first message, and reserves from the start time to the end time. The
//! flow has the resources in that time, and the reservation ends with it.

use core::time::Duration;

use signalbox_core::{Key, Time, invariant};
use signalbox_resources::{During, Resources};

use super::node::Failure;
use super::record::Stage;
use super::{NO_USER, QosClient};
use crate::wire::qos::QosErrorCode;

/// The farthest start. Requests without an end have to leave room for what is to start.
const LATEST: Duration = Duration::from_secs(24 * 3600);

/// When a flow has its resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Period {
    /// Start and end as messages contain them.
    pub(super) stamps: (u64, u64),
    /// The start; [`Time::ZERO`]: it was past when this node started.
    pub(super) from: Time,
    /// The start; `None`: it is past.
    pub(super) start: Option<Time>,
    pub(super) end: Time,
}

impl Period {
    /// The time in which admission control counts the reservation.
    pub(super) const fn during(&self) -> During {
        During { from: self.from, until: self.end }
    }

    /// When something is due.
    pub(super) fn next(&self) -> Time {
        self.start.unwrap_or(self.end)
    }
}

impl QosClient {
    /// The time that a request asks for.
    pub(super) fn period(&self, time: Option<(u64, u64)>) -> Result<Option<Period>, Failure> {
        const NOT_POSSIBLE: Failure = (QosErrorCode::TIME, 0);
        let Some(stamps) = time else { return Ok(None) };
        let at = |stamp| self.clock.time_of(stamp).unwrap_or(Time::ZERO);
        let later = |at: Time| Some(at).filter(|at| *at > self.now);
        let (from, until) = (at(stamps.0), at(stamps.1));
        let start = later(from);
        let end = later(until).filter(|end| start.is_none_or(|start| start < *end)).ok_or(NOT_POSSIBLE)?;
        match start {
            Some(start) if start > self.now + LATEST => Err(NOT_POSSIBLE),
            start => Ok(Some(Period { stamps, from, start, end })),
        }
    }

    /// A request says when the session has its resources.
    pub(super) fn set_period(&mut self, key: Key, period: Option<Period>) {
        let Some(record) = invariant!(self.records.get_mut(key), "a time has a record") else { return };
        let former = record.period.as_ref().map(|period| period.end);
        record.set_period(period);
        let end = period.map(|period| period.end);
        if former != end {
            former.into_iter().for_each(|end| _ = self.periods.remove(&(end, key)));
            self.periods.extend(end.map(|end| (end, key)));
        }
    }

    /// Ends reservations whose time is over, `most` of them, before anything else is done: another one may begin at that moment. Many that
    /// end together keep their resources for some turns of the driver.
    pub(super) fn end_periods(&mut self, most: u32, resources: &mut Resources) {
        for _ in 0..most {
            let due = self.periods.first().filter(|(end, _)| *end <= self.now);
            let Some((_, key)) = due.copied() else {
                return;
            };
            self.periods.pop_first();
            self.period_due(key, resources);
            self.arm(key);
        }
    }

    /// Gives the flow its resources at the start, and ends the reservation at the end.
    pub(super) fn period_due(&mut self, key: Key, resources: &mut Resources) {
        let now = self.now;
        let Some(record) = invariant!(self.records.get_mut(key), "what is due has a record") else { return };
        let Some(period) = record.period.as_deref_mut() else { return };
        let end = period.end;
        if end <= now {
            record.period = None;
            self.periods.remove(&(end, key));
            match &record.own {
                Some(own) if own.stage == Stage::Release => {}
                Some(own) if own.id != NO_USER => self.begin_release(key, resources),
                Some(_) | None => {
                    self.counters.expired += 1;
                    self.end(key, None, resources);
                }
            }
        } else if period.start.take_if(|start| *start <= now).is_some()
            && record.has_state()
            && !self.replace(key, resources)
        {
            self.counters.lost += 1;
            self.report_lost(key, QosErrorCode::BELOW_MINIMUM);
            self.end(key, Some(QosErrorCode::BELOW_MINIMUM), resources);
        }
    }
}
