//! Reservations in advance (object TIME). A node reserves with the first message. The flow uses the reservation from the start
//! time on. The reservation ends at the end time.

use core::time::Duration;

use signalbox_core::{Key, Time};
use signalbox_resources::Resources;

use super::node::Failure;
use super::record::Stage;
use super::{NO_USER, QosClient};
use crate::clients::ntp;
use crate::wire::qos::QosErrorCode;

/// The farthest start. What is reserved is taken from others until then.
const LATEST: Duration = Duration::from_secs(24 * 3600);

/// When a flow has its resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Period {
    /// Start and end as messages contain them.
    pub(super) stamps: (u64, u64),
    /// The start; `None`: it is past.
    pub(super) start: Option<Time>,
    pub(super) end: Time,
}

impl Period {
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
        let later = |stamp| {
            let us = ntp::micros(stamp)?.checked_sub(self.config.wall_clock_us)?;
            Some(Time::from_micros(us)).filter(|at| *at > self.now)
        };
        let start = later(stamps.0);
        let end = later(stamps.1).filter(|end| start.is_none_or(|start| start < *end)).ok_or(NOT_POSSIBLE)?;
        match start {
            Some(start) if start > self.now + LATEST => Err(NOT_POSSIBLE),
            start => Ok(Some(Period { stamps, start, end })),
        }
    }

    /// Gives the flow its resources at the start, and ends the reservation at the end.
    pub(super) fn period_due(&mut self, key: Key, resources: &mut Resources) {
        let now = self.now;
        let Some(record) = self.records.get_mut(key) else { return };
        let Some(period) = record.period.as_deref_mut() else { return };
        if period.end <= now {
            record.period = None;
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
