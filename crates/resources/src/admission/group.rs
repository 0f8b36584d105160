//! Records: a grant is what one owner holds, a group what the kernel has: one reservation for all grants of a session.

use core::cmp::Reverse;
use core::time::Duration;

use signalbox_core::traffic::{FlowFilter, Reservation, ServiceClass, TrafficSpec, Treatment};
use signalbox_core::{Key, ReserverId, Time};

use smallvec::SmallVec;

use super::link::{Charge, Entry, Rank};
use crate::ask::{Asker, GuaranteedAsk, Owner, Policing, Priority, Session};
use crate::intserv::RSpec;
use crate::policy::AccountId;

/// The grants of a reservation: hardly ever more than one or two.
pub(crate) type Members = SmallVec<[Key; 2]>;

#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) owner: Owner,
    pub(crate) asker: Asker,
    pub(crate) group: Key,
    pub(crate) traffic: TrafficSpec,
    pub(crate) charge: Charge,
    /// As asked, and what was given.
    pub(crate) guaranteed: Option<(GuaranteedAsk, RSpec)>,
    pub(crate) priority: Priority,
    pub(crate) reducible: bool,
    pub(crate) lifetime: Option<Duration>,
    pub(crate) rule: Option<u32>,
    pub(crate) since: Time,
    pub(crate) policing: Policing,
    /// Of a session with several grants; a single grant's filters are the reservation's.
    pub(crate) filters: Vec<FlowFilter>,
}

impl Grant {
    /// What conforms here. Packets of guaranteed service are held to the token bucket itself where they enter only. Further
    /// in, queues have pushed them together, and what was right there is right still: the bucket has room for Csum +
    /// Dsum·r more, the buffer that would be needed to shape them anew, and the peak rate cannot be told (RFC 2212
    /// "Policing"). Of controlled load each node looks after itself (RFC 2211 §7).
    pub(crate) fn conforming(&self) -> TrafficSpec {
        let Some((asked, _)) = self.guaranteed.filter(|_| !self.policing.entry || self.policing.merge) else {
            return self.traffic;
        };
        let micro = u128::from(asked.terms.d_sum) * u128::from(self.traffic.rate);
        let pushed = micro.div_ceil(1_000_000) + u128::from(asked.terms.c_sum);
        let burst = u32::try_from(pushed.saturating_add(self.traffic.burst.into())).unwrap_or(u32::MAX);
        TrafficSpec { burst, peak: self.traffic.peak.filter(|_| pushed == 0), ..self.traffic }
    }

    /// The rate that its queue is served with if that is not the token rate: R of guaranteed service, octets a second.
    pub(crate) fn served(&self) -> Option<u64> {
        let rate = self.guaranteed.map(|(_, given)| crate::intserv::whole(given.rate()));
        rate.filter(|rate| *rate > self.traffic.rate)
    }
}

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) reservation: Reservation,
    pub(crate) service: ServiceClass,
    /// Under which it is found by others of its session: few have one.
    pub(crate) session: Option<Box<(ReserverId, Session)>>,
    /// The newest last; never empty.
    pub(crate) members: Members,
    /// Which of all reservations ever made.
    pub(crate) age: u64,
    /// Its charge is on its link and its account.
    pub(crate) booked: bool,
    pub(crate) charge: Charge,
    pub(crate) account: Option<AccountId>,
    /// Defending priority of its strongest grant.
    pub(crate) defending: u16,
    /// The kernel was told of it.
    pub(crate) announced: bool,
    /// The kernel's last answer was that it has it.
    pub(crate) standing: bool,
    /// Answers that are due.
    pub(crate) pending: u32,
    /// Place in the queue of outputs of an installation that was not polled yet.
    pub(crate) queued: Option<u64>,
}

impl Group {
    pub(crate) fn entry(&self) -> Entry {
        Entry {
            service: self.service,
            charge: self.charge,
            own_queue: self.reservation.treatment == Treatment::OwnQueue,
        }
    }

    /// Its place among those that may be taken from.
    pub(crate) fn rank(&self, key: Key) -> Rank {
        Rank { defending: self.defending, rate: self.charge.rate, age: Reverse(self.age), group: key }
    }
}

/// Suffices for either of two flows of one session, in whole octets: the least common TSpec of RFC 2212.
pub(crate) fn least_common(a: &TrafficSpec, b: &TrafficSpec) -> TrafficSpec {
    TrafficSpec {
        rate: a.rate.max(b.rate),
        burst: a.burst.max(b.burst),
        peak: a.peak.zip(b.peak).map(|(a, b)| a.max(b)),
        min_policed: a.min_policed.min(b.min_policed),
        max_packet: a.max_packet.max(b.max_packet),
    }
}

/// Whether `a` asks for no more than `b` in any respect.
pub(crate) fn is_within(a: &TrafficSpec, b: &TrafficSpec) -> bool {
    let peak = match (a.peak, b.peak) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(a), Some(b)) => a <= b,
    };
    peak && a.rate <= b.rate
        && a.burst <= b.burst
        && a.min_policed >= b.min_policed
        && a.max_packet <= b.max_packet
}
