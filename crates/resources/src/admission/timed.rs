//! Reservations of a link that count in their own time only. All others count from the request on and have no end, so that they need
//! room at each moment that is to come.

use core::net::IpAddr;
use std::collections::BTreeMap;

use signalbox_core::traffic::ServiceClass;
use signalbox_core::{Key, Time};

use super::link::{Charge, Entry};
use crate::request::During;

/// Most reservations of a link that count in their time only. A request that finds no place here counts from now on.
const MOST: usize = 64;
/// Most of them that one source has.
const MOST_OF_SOURCE: usize = 16;

#[derive(Debug, Clone, Copy)]
struct TimedEntry {
    group: Key,
    during: During,
    service: ServiceClass,
    charge: Charge,
    holder: IpAddr,
}

impl TimedEntry {
    /// Whether it has its resources at a moment. One whose end is past has them until it is released.
    fn counts(&self, at: Time, now: Time) -> bool {
        self.during.from <= at && (at < self.during.until || self.during.until <= now)
    }
}

/// What such reservations take at the moment at which they take most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Peak {
    pub(crate) charge: Charge,
    /// The rate of one service, at the moment at which that is largest.
    pub(crate) service_rate: u64,
}

/// The reservations of a link that count in their time only.
#[derive(Debug, Default)]
pub(crate) struct Timed {
    list: Vec<TimedEntry>,
    most: Charge,
    services: BTreeMap<ServiceClass, u64>,
}

impl Timed {
    /// Whether a source finds a place for one more.
    pub(crate) fn has_place(&self, holder: &IpAddr) -> bool {
        let of_source = self.list.iter().filter(|one| one.holder == *holder).count();
        self.list.len() < MOST && of_source < MOST_OF_SOURCE
    }

    pub(crate) fn insert(&mut self, group: Key, during: During, entry: &Entry, holder: IpAddr) {
        let Entry { service, charge, .. } = *entry;
        self.list.push(TimedEntry { group, during, service, charge, holder });
        self.count();
    }

    pub(crate) fn remove(&mut self, group: Key) {
        self.list.retain(|one| one.group != group);
        self.count();
    }

    /// The most that these reservations take together.
    pub(crate) const fn most(&self) -> Charge {
        self.most
    }

    /// The most that those of a service take together.
    pub(crate) fn most_of(&self, service: ServiceClass) -> u64 {
        self.services.get(&service).copied().unwrap_or(0)
    }

    fn count(&mut self) {
        self.services.clear();
        for service in self.list.iter().map(|one| one.service) {
            self.services.insert(service, 0);
        }
        let mut services = core::mem::take(&mut self.services);
        for (service, rate) in &mut services {
            *rate = self.peak(Time::ZERO, None, *service, &[]).service_rate;
        }
        self.most = self.peak(Time::ZERO, None, ServiceClass::ControlledLoad, &[]).charge;
        self.services = services;
    }

    /// The most that they take from now on, or in a time, without some of them. The work grows with the square of their number,
    /// which is small.
    pub(crate) fn peak(
        &self,
        now: Time,
        during: Option<During>,
        service: ServiceClass,
        without: &[Key],
    ) -> Peak {
        let mut peak = Peak::default();
        // What is to end is asked for as long as it stands.
        let end = during.map(|during| during.until).filter(|until| *until > now);
        let start = during.map_or(now, |during| during.from.max(now));
        // The sum grows at starts only.
        let starts = self.list.iter().map(|one| one.during.from);
        let later = starts.filter(|from| *from > start && end.is_none_or(|end| *from < end));
        for at in later.chain([start]) {
            let (mut sum, mut of_service) = (Charge::default(), 0u64);
            for one in self.list.iter().filter(|one| one.counts(at, now) && !without.contains(&one.group)) {
                sum.rate = sum.rate.saturating_add(one.charge.rate);
                sum.buffer = sum.buffer.saturating_add(one.charge.buffer);
                if one.service == service {
                    of_service = of_service.saturating_add(one.charge.rate);
                }
            }
            peak.charge = peak.charge.max(sum);
            peak.service_rate = peak.service_rate.max(of_service);
        }
        peak
    }
}
