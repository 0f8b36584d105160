//! The resources of one outgoing link.

use core::cmp::Reverse;
use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use signalbox_core::shares::{Refused, Shares};
use signalbox_core::traffic::{ServiceClass, TrafficSpec};
use signalbox_core::{Key, ReserverId, Time, invariant};

use super::timed::Timed;
use crate::config::LinkConfig;
use crate::intserv::{Latency, LocalTerms};
use crate::refusal::LinkWhy;
use crate::request::During;
use crate::units::Span;

/// The resources that a reservation takes of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Charge {
    /// Octets a second, headers included.
    pub(crate) rate: u64,
    /// Octets.
    pub(crate) buffer: u64,
}

impl Charge {
    /// The larger of each.
    pub(crate) fn max(self, other: Self) -> Self {
        Self { rate: self.rate.max(other.rate), buffer: self.buffer.max(other.buffer) }
    }
}

/// Order of preemption: the weakest first, then the smallest, then the youngest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) defending: u16,
    pub(crate) rate: u64,
    pub(crate) age: Reverse<u64>,
    pub(crate) group: Key,
}

/// A reservation as its link books it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) service: ServiceClass,
    pub(crate) protocol: ReserverId,
    pub(crate) charge: Charge,
    pub(crate) own_queue: bool,
    /// The time in which it counts; `None`: from now on.
    pub(crate) during: Option<During>,
}

#[derive(Debug, Default)]
pub(crate) struct ServiceUse {
    /// That of the reservations without a time.
    pub(crate) rate: u64,
    pub(crate) reservations: u32,
    pub(crate) ranks: BTreeSet<Rank>,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) name: Arc<str>,
    pub(crate) up: bool,
    pub(crate) mtu: u32,
    pub(crate) tunnel: bool,
    pub(crate) config: Option<LinkConfig>,
    pub(crate) measured: Option<u64>,
    /// What the reservations without a time take.
    pub(crate) used: Charge,
    pub(crate) timed: Timed,
    /// The largest [`Link::reserved`] so far.
    pub(crate) peak: u64,
    pub(crate) reservations: u32,
    /// The places for reservations, by the sources that have them.
    pub(crate) places: Shares<IpAddr>,
    pub(crate) own_queues: u32,
    pub(crate) services: BTreeMap<ServiceClass, ServiceUse>,
    /// Number of reservations of each protocol that ever reserved here.
    pub(crate) protocols: BTreeMap<ReserverId, u32>,
}

/// The resources that would be freed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Freed {
    /// The reservations with a time, whose charge is not in the sums.
    pub(crate) timed: Vec<Key>,
    pub(crate) charge: Charge,
    /// The part of `charge.rate` that belongs to the requested service.
    pub(crate) service_rate: u64,
    pub(crate) reservations: u32,
    pub(crate) own_queues: u32,
}

impl Freed {
    pub(crate) fn add(&mut self, key: Key, entry: &Entry, asked: ServiceClass) {
        if entry.during.is_some() {
            self.timed.push(key);
        } else {
            self.charge.rate = self.charge.rate.saturating_add(entry.charge.rate);
            self.charge.buffer = self.charge.buffer.saturating_add(entry.charge.buffer);
            if entry.service == asked {
                self.service_rate = self.service_rate.saturating_add(entry.charge.rate);
            }
        }
        self.reservations = self.reservations.saturating_add(1);
        self.own_queues = self.own_queues.saturating_add(u32::from(entry.own_queue));
    }

    pub(crate) fn subtract(&mut self, key: Key, entry: &Entry, asked: ServiceClass) {
        if entry.during.is_some() {
            self.timed.retain(|one| *one != key);
        } else {
            self.charge.rate = self.charge.rate.saturating_sub(entry.charge.rate);
            self.charge.buffer = self.charge.buffer.saturating_sub(entry.charge.buffer);
            if entry.service == asked {
                self.service_rate = self.service_rate.saturating_sub(entry.charge.rate);
            }
        }
        self.reservations = self.reservations.saturating_sub(1);
        self.own_queues = self.own_queues.saturating_sub(u32::from(entry.own_queue));
    }
}

impl Link {
    /// Octets a second; 0: neither declared nor measured.
    pub(crate) fn capacity(&self) -> u64 {
        let declared = self.config.as_ref().and_then(|config| config.capacity).map(|rate| rate.0);
        if self.config.is_none() { 0 } else { declared.or(self.measured).unwrap_or(0) }
    }

    /// Rate that can be reserved, octets a second.
    pub(crate) fn share(&self) -> u64 {
        self.config.as_ref().map_or(0, |config| config.reservable.of(self.capacity()))
    }

    /// Rate that a service can have, octets a second.
    pub(crate) fn service_share(&self, service: ServiceClass) -> u64 {
        let config = self.config.as_ref().and_then(|config| config.service(service).max_share);
        let share = self.share();
        config.map_or(share, |part| part.of(self.capacity()).min(share))
    }

    /// Largest IP packet of a service, octets.
    pub(crate) fn service_mtu(&self, service: ServiceClass) -> u32 {
        let config = self.config.as_ref().and_then(|config| config.service(service).max_packet);
        config.map_or(self.mtu, |most| most.min(self.mtu))
    }

    pub(crate) fn latency(&self) -> Latency {
        let known = self.config.as_ref().and_then(|config| config.latency);
        let us = known.and_then(|Span(latency)| u32::try_from(latency.as_micros()).ok());
        us.map_or(Latency::INDETERMINATE, Latency)
    }

    pub(crate) fn terms(&self) -> LocalTerms {
        LocalTerms::fair_queue(self.capacity(), self.mtu)
    }

    fn service_rate(&self, service: ServiceClass) -> u64 {
        self.services.get(&service).map_or(0, |used| used.rate)
    }

    /// The rate that is reserved at the moment at which that is most.
    pub(crate) fn reserved(&self) -> u64 {
        self.used.rate.saturating_add(self.timed.most().rate)
    }

    /// The rate that is reserved for a service at the moment at which that is most.
    pub(crate) fn reserved_for(&self, service: ServiceClass) -> u64 {
        self.service_rate(service).saturating_add(self.timed.most_of(service))
    }

    /// The buffer that is reserved at the moment at which that is most, octets.
    pub(crate) fn buffered(&self) -> u64 {
        self.used.buffer.saturating_add(self.timed.most().buffer)
    }

    /// Rate that a service could still get in a time, or from now on, after `freed` is freed.
    pub(crate) fn room(
        &self,
        service: ServiceClass,
        freed: &Freed,
        now: Time,
        during: Option<During>,
    ) -> u64 {
        let peak = self.timed.peak(now, during, service, &freed.timed);
        let used = self.used.rate.saturating_sub(freed.charge.rate).saturating_add(peak.charge.rate);
        let all = self.share().saturating_sub(used);
        let used = self.service_rate(service).saturating_sub(freed.service_rate);
        all.min(self.service_share(service).saturating_sub(used.saturating_add(peak.service_rate)))
    }

    /// Rate with link headers: every packet may be as small as *m*.
    pub(crate) fn with_headers(&self, rate: u64, traffic: &TrafficSpec) -> u64 {
        let overhead = u64::from(self.config.as_ref().map_or(0, |config| config.overhead));
        if overhead == 0 {
            return rate;
        }
        rate.saturating_add(rate.div_ceil(u64::from(traffic.min_policed.max(1))).saturating_mul(overhead))
    }

    /// The largest rate that, with link headers, fits into `room`.
    pub(crate) fn without_headers(&self, room: u64, traffic: &TrafficSpec) -> u64 {
        let overhead = u128::from(self.config.as_ref().map_or(0, |config| config.overhead));
        let unit = u128::from(traffic.min_policed.max(1));
        let rate = u128::from(room).saturating_sub(if overhead == 0 { 0 } else { overhead }) * unit
            / (unit + overhead);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    /// Whether `entry` fits after `freed` is freed.
    pub(crate) fn check(&self, entry: &Entry, freed: &Freed, now: Time) -> Result<(), LinkWhy> {
        let Some(config) = &self.config else { return Err(LinkWhy::NoCapacity) };
        let (service, asked) = (entry.service, entry.charge.rate);
        let peak = self.timed.peak(now, entry.during, service, &freed.timed);
        let used = self.service_rate(service).saturating_sub(freed.service_rate);
        let used = used.saturating_add(peak.service_rate);
        let limit = self.service_share(service);
        let share = self.share();
        if limit < share && used.saturating_add(asked) > limit {
            return Err(LinkWhy::Service { service, used, asked, limit });
        }
        let used = self.used.rate.saturating_sub(freed.charge.rate).saturating_add(peak.charge.rate);
        if used.saturating_add(asked) > share {
            return Err(LinkWhy::Share { used, asked, limit: share });
        }
        if let Some(limit) = config.buffer {
            let used = self.used.buffer.saturating_sub(freed.charge.buffer);
            let (used, asked) = (used.saturating_add(peak.charge.buffer), entry.charge.buffer);
            if used.saturating_add(asked) > limit {
                return Err(LinkWhy::Buffer { used, asked, limit });
            }
        }
        if let Some(limit) = config.max_reservations
            && self.reservations.saturating_sub(freed.reservations) >= limit
        {
            return Err(LinkWhy::Count { limit });
        }
        let limit = config.own_queues;
        if entry.own_queue && self.own_queues.saturating_sub(freed.own_queues) >= limit {
            return Err(LinkWhy::Queues { limit });
        }
        Ok(())
    }

    /// Whether a source finds a place for one more reservation. Only the share of the places is a reason here:
    /// [`Self::check`] counts them.
    pub(crate) fn has_place(&self, holder: &IpAddr) -> Result<(), LinkWhy> {
        match self.places.check(holder, 1) {
            Err(Refused::Share) => {
                Err(LinkWhy::Places { held: self.places.held(holder), limit: self.places.limit() })
            }
            Ok(()) | Err(Refused::Full) => Ok(()),
        }
    }

    /// Takes the limits of its configuration.
    pub(crate) fn configure(&mut self, config: Option<LinkConfig>) {
        self.places.set_limit(config.as_ref().and_then(|config| config.max_reservations).unwrap_or(0));
        self.config = config;
    }

    /// Books a reservation, and its rank where preemption is allowed.
    pub(crate) fn book(&mut self, key: Key, entry: &Entry, rank: Option<Rank>, holder: IpAddr) {
        self.places.hold(holder);
        let always = if let Some(during) = entry.during {
            self.timed.insert(key, during, entry, holder);
            Charge::default()
        } else {
            entry.charge
        };
        self.used.rate = self.used.rate.saturating_add(always.rate);
        self.used.buffer = self.used.buffer.saturating_add(always.buffer);
        self.peak = self.peak.max(self.reserved());
        self.reservations = self.reservations.saturating_add(1);
        self.own_queues = self.own_queues.saturating_add(u32::from(entry.own_queue));
        let service = self.services.entry(entry.service).or_default();
        service.rate = service.rate.saturating_add(always.rate);
        service.reservations = service.reservations.saturating_add(1);
        if let Some(rank) = rank {
            service.ranks.insert(rank);
        }
        *self.protocols.entry(entry.protocol).or_default() += 1;
        debug_assert!(self.used.rate <= self.share(), "{}: more reserved than the share", self.name);
    }

    /// Removes a reservation; the inverse of [`Self::book`].
    pub(crate) fn unbook(&mut self, key: Key, entry: &Entry, rank: Option<Rank>, holder: IpAddr) {
        self.places.release(holder);
        let always = if entry.during.is_some() {
            self.timed.remove(key);
            Charge::default()
        } else {
            entry.charge
        };
        self.used.rate = self.used.rate.saturating_sub(always.rate);
        self.used.buffer = self.used.buffer.saturating_sub(always.buffer);
        self.reservations = self.reservations.saturating_sub(1);
        self.own_queues = self.own_queues.saturating_sub(u32::from(entry.own_queue));
        if let Some(service) =
            invariant!(self.services.get_mut(&entry.service), "a booked service is counted")
        {
            service.rate = service.rate.saturating_sub(always.rate);
            service.reservations = service.reservations.saturating_sub(1);
            if let Some(rank) = rank {
                service.ranks.remove(&rank);
            }
        }
        if let Some(reservations) =
            invariant!(self.protocols.get_mut(&entry.protocol), "a booked protocol is counted")
        {
            *reservations = reservations.saturating_sub(1);
        }
    }
}
