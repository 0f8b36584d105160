//! Queues that a process leaves in force at its planned end, and that the next one adopts.
//!
//! Without them a reserved flow would be best effort until its reservation is there again. The queues, their rates and the
//! eBPF program of the process that ended stay. The program has a time at which it ends by itself: if no process comes,
//! everything is best effort from then on. The next process fills its own program with the reservations that it adopts, and
//! puts it in the place of the former one by one request: there is no packet between. An adopted reservation ends if it is
//! not asked for again in time.

use std::collections::HashMap;
use std::time::Duration;

use signalbox_core::IfIndex;
use signalbox_core::traffic::{FlowFilter, Reservation, ReservationId, ReserveError};

use super::config::LinkConfig;
use super::link::Place;
use super::{Enforcer, Held};
use crate::clock;
use crate::error::OpenError;

/// Adopted reservations that one call ends.
const STEP: usize = 256;

/// What a process left in force.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kept {
    /// The time at which it ends, by [`clock::monotonic`].
    pub until: Duration,
    /// The links.
    pub links: Vec<KeptLink>,
}

/// A link of [`Kept`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptLink {
    /// The number of the interface.
    pub ifindex: IfIndex,
    /// The settings that its queues were made with.
    pub config: LinkConfig,
    /// The reservations, each with the minor number of its class.
    pub reservations: Vec<(u16, Reservation)>,
}

/// The flow of a reservation, by which an adopted one is found.
type Flow = (IfIndex, Vec<FlowFilter>);

/// Adopted reservations that were not asked for yet.
#[derive(Debug, Default)]
pub(super) struct Adopted {
    pub(super) by_flow: HashMap<Flow, (Reservation, Place)>,
    /// When those that are left end.
    until: Duration,
    /// Reservations that took the place of an adopted one by a request that is being carried out.
    taking: Vec<ReservationId>,
}

impl Adopted {
    /// Whether those that are left have to end now.
    pub(super) fn is_due(&self) -> bool {
        !self.by_flow.is_empty() && clock::monotonic() >= self.until
    }
}

impl Enforcer {
    /// Ends this enforcer and leaves the queues in force for `time`. Links without eBPF, whose rules could not end by themselves,
    /// are closed. `None`: nothing is left.
    ///
    /// # Errors
    /// The kernel's first error. Where the time could not be set, the link is closed.
    pub fn keep(mut self, time: Duration) -> Result<Option<Kept>, OpenError> {
        let until = clock::monotonic() + time;
        let mut links: HashMap<u32, KeptLink> = HashMap::new();
        let mut result = Ok(());
        for (ifindex, link) in &mut self.links {
            match link.end_at(until) {
                Ok(true) => {
                    let config = link.config().clone();
                    let ifindex = IfIndex(*ifindex);
                    links.insert(ifindex.0, KeptLink { ifindex, config, reservations: Vec::new() });
                }
                Ok(false) => {}
                Err(error) => result = Err(OpenError::system("setting the end of the queues", &error)),
            }
        }
        for held in self.held.values() {
            if let Some(link) = links.get_mut(&held.reservation.ifindex.0) {
                link.reservations.push((held.place.queue(), held.reservation.clone()));
            }
        }
        links.retain(|_, link| !link.reservations.is_empty());
        self.links.retain(|ifindex, _| !links.contains_key(ifindex));
        // What is left in `self` is removed.
        let closed = self.take_away().map_err(|error| OpenError::system("removing the queues", &error));
        result.and(closed)?;
        let kept = Kept { until, links: links.into_values().collect() };
        Ok(Some(kept).filter(|kept| !kept.links.is_empty()))
    }

    /// What may be adopted of what the process before left: links that are configured as before.
    pub(super) fn usable(&self, kept: Option<Kept>) -> Kept {
        let mut kept = kept.unwrap_or_default();
        let config = &self.config;
        if !config.ebpf || clock::monotonic() >= kept.until {
            kept.links.clear();
        }
        kept.links.retain(|link| config.links.contains(&link.config));
        kept
    }

    /// Adopts the reservations of a link that was opened with them.
    pub(super) fn adopt(&mut self, reservations: Vec<(Reservation, Place)>, until: Duration) {
        self.counters.adopted += reservations.len() as u64;
        self.adopted.until = until;
        let flow = |reservation: &Reservation| (reservation.ifindex, reservation.filters.clone());
        self.adopted.by_flow.extend(reservations.into_iter().map(|one| (flow(&one.0), one)));
    }

    /// Gives a new reservation the place of an adopted one of the same flow, so that it changes that one.
    pub(super) fn take_adopted(&mut self, id: ReservationId, reservation: &Reservation) {
        if self.adopted.by_flow.is_empty() || self.held.contains_key(&id) {
            return;
        }
        let flow = (reservation.ifindex, reservation.filters.clone());
        if let Some((reservation, place)) = self.adopted.by_flow.remove(&flow) {
            self.adopted.taking.push(id);
            self.held.insert(id, Held { reservation, place });
        }
    }

    /// Ends reservations whose place was taken by a request that then failed: the node has no reservation there.
    pub(super) fn end_failed(&mut self, results: &[(ReservationId, Result<(), ReserveError>)]) {
        let taking = std::mem::take(&mut self.adopted.taking);
        let failed = |id: &ReservationId| results.iter().any(|(of, result)| of == id && result.is_err());
        for id in taking.into_iter().filter(failed) {
            self.release(id);
        }
    }

    /// Ends adopted reservations that were not asked for in time.
    pub(super) fn end_adopted(&mut self) {
        if !self.adopted.is_due() {
            return;
        }
        let flows: Vec<Flow> = self.adopted.by_flow.keys().take(STEP).cloned().collect();
        for flow in flows {
            if let Some((reservation, place)) = self.adopted.by_flow.remove(&flow) {
                self.counters.abandoned += 1;
                let held = Held { reservation, place };
                if let Some((ifindex, queue)) = self.give_back(&held)
                    && let Some(link) = self.links.get(&ifindex)
                {
                    link.share(queue, &mut self.requests);
                }
            }
        }
        match self.requests.send() {
            Ok(refused) if refused.is_empty() => {}
            Ok(refused) => tracing::debug!(?refused, "classes keep more than they need"),
            Err(error) => tracing::warn!(%error, "classes keep more than they need"),
        }
    }

    /// How long adopted reservations may still wait to be asked for; `None`: there are none.
    #[must_use]
    pub fn wait_time(&self) -> Option<Duration> {
        let waits = !self.adopted.by_flow.is_empty();
        waits.then(|| self.adopted.until.saturating_sub(clock::monotonic()))
    }
}
