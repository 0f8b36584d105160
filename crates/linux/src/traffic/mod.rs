//! Enforcement of reservations: the kernel gives each reservation its share of an outgoing link, and no more.
//!
//! * `htb` makes the queues: best effort, signaling, one for each service, a pool of own ones.
//! * `signaling` defines the share of signaling messages at a link.
//! * `bpf` finds a packet's reservation by hashing (`filter`), polices and marks the packet, and selects its queue. The
//!   program is `bpf/traffic.c`; `object` reads its compiled form.
//! * `nft` finds the queue by nftables where eBPF is not allowed, with fewer capabilities.
//! * `kept` leaves the queues in force at a planned end, and adopts those of the process before.
//! * `link` holds the state of one interface, [`Enforcer`] all links and reservations; `links` opens the links.
//! * `room` raises the limit of locked memory where the kernel counts maps as such.
//! * `ahead` makes own queues before reservations need them.
//!
//! Everything depends on one qdisc at the interface, which has a fixed number, and is removed with it: see
//! docs/enforcement.md.

mod ahead;
mod bpf;
mod config;
mod filter;
mod htb;
mod kept;
mod link;
mod links;
mod nft;
mod object;
mod rates;
mod restore;
mod room;
mod signaling;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;
use signalbox_core::IfIndex;
use signalbox_core::metrics::Family;
use signalbox_core::traffic::{Reservation, ReservationId, ReserveError, TrafficSpec};

use ahead::Ahead;
use bpf::Loaded;
pub use config::{Capabilities, Enforcement, LinkConfig, Policing, TrafficConfig};
use kept::Adopted;
pub use kept::{Kept, KeptLink};
use link::{Link, Missing, Place};
use room::Room;
pub use signaling::Signaling;

use crate::error::OpenError;
use crate::netlink::Batch;
use crate::netlink::codec::Connection;
use crate::process::raise_locked_memory;

/// Whether the kernel takes the classifier from this process. It is loaded, and removed at once.
#[must_use]
pub fn can_classify() -> bool {
    let config = LinkConfig { max_reservations: 1, ..LinkConfig::new("", 1_000_000) };
    let mut room = Room::here(std::slice::from_ref(&config));
    load(&config, &mut room).is_ok()
}

/// Loads the classifier of a link, and makes room for it where the kernel demands that.
fn load(link: &LinkConfig, room: &mut Room) -> io::Result<Loaded> {
    loop {
        match Loaded::load(link) {
            Err(error) if room.grow(&error, raise_locked_memory) => {}
            result => {
                room.settle();
                return result;
            }
        }
    }
}

/// The counters of one reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Packets that conformed and went to their queue.
    pub packets: u64,
    /// Their octets, IP headers included.
    pub octets: u64,
    /// Packets that did not conform.
    pub policed_packets: u64,
    /// Their octets; `None` where the kernel does not count them.
    pub policed_octets: Option<u64>,
}

/// The treatment of a flow by the classifier.
#[derive(Clone, Copy)]
struct Flow<'a> {
    traffic: &'a TrafficSpec,
    queue: u16,
    /// The class of packets that do not conform; 0: they are dropped.
    excess: u16,
    mark_dscp: Option<u8>,
}

/// Reservations in the kernel.
const ENFORCEMENT_EVENTS: Family = Family::counter(
    "enforcement_events",
    &["event"],
    "Changes of the reservations that the kernel enforces.",
);

signalbox_core::counters! {
    /// The counters of reservations in the kernel.
    pub struct TrafficCounters {
        /// Reservations installed or changed.
        reserved: u64 => ENFORCEMENT_EVENTS { event: "reserved" },
        /// Reservations removed.
        released: u64 => ENFORCEMENT_EVENTS { event: "released" },
        /// Reservations refused because a limit of the kernel's queues is reached.
        full: u64 => ENFORCEMENT_EVENTS { event: "full" },
        /// Reservations that the kernel refused.
        failed: u64 => ENFORCEMENT_EVENTS { event: "failed" },
        /// Reservations granted without enforcement, as configured.
        unenforced: u64 => ENFORCEMENT_EVENTS { event: "unenforced" },
        /// Links whose queues or filters were made again, because another program had removed a part of them.
        restored: u64 => ENFORCEMENT_EVENTS { event: "restored" },
        /// Reservations that the process before this one left in force, and that this one adopted.
        adopted: u64 => ENFORCEMENT_EVENTS { event: "adopted" },
        /// Adopted reservations that ended because they were not asked for again in time.
        abandoned: u64 => ENFORCEMENT_EVENTS { event: "abandoned" },
        /// Reservations that share a queue because no free queue was left.
        spilled: u64 => ENFORCEMENT_EVENTS { event: "spilled" },
    }
}

/// Loads the classifier of each link, as long as this process may.
fn classifiers(config: &TrafficConfig) -> Vec<Result<Loaded, Missing>> {
    let wanted = config.ebpf && config.enforcement != Enforcement::Off;
    let mut room = Room::here(&config.links);
    let one = |link: &LinkConfig| {
        if !wanted {
            return Err(Missing::Off);
        }
        load(link, &mut room).map_err(|error| Missing::Refused(error.to_string()))
    };
    config.links.iter().map(one).collect()
}

/// Removes the queues that an earlier process of ours left, and returns the names of their interfaces.
pub(crate) fn remove_left(config: &TrafficConfig) -> Result<Vec<String>, OpenError> {
    let mut connection =
        Connection::open().map_err(|error| OpenError::system("opening a netlink socket", &error))?;
    links::remove_queues(&mut connection, config, |_| false).map(|found| found.removed)
}

enum Operation {
    Reserve(ReservationId, Reservation),
    Release(ReservationId),
}

impl Operation {
    const fn id(&self) -> ReservationId {
        match self {
            Self::Reserve(id, _) | Self::Release(id) => *id,
        }
    }
}

/// A reservation in the kernel.
struct Held {
    reservation: Reservation,
    place: Place,
}

/// A reservation that has a place and waits for its queue.
struct Planned {
    id: ReservationId,
    reservation: Reservation,
    place: Place,
    /// The previous place, if it was on the same link.
    old: Option<Place>,
}

/// The enforcer of reservations in the kernel. [`Enforcer::reserve`] and [`Enforcer::release`] only queue requests;
/// [`Enforcer::flush`] carries them out, many at once.
pub struct Enforcer {
    config: TrafficConfig,
    connection: Connection,
    requests: Batch,
    /// The classifiers of all configured links, in the order of the configuration.
    classifiers: Vec<Result<Loaded, Missing>>,
    /// The open links by interface number.
    links: BTreeMap<u32, Link>,
    /// The links that could not be opened, with the reason.
    closed: BTreeMap<String, String>,
    wanted: Vec<Operation>,
    /// Reservations that are granted as they are, because enforcement is off.
    granted: Vec<ReservationId>,
    /// Those in the kernel. One that is granted without enforcement takes no memory here.
    held: HashMap<ReservationId, Held>,
    adopted: Adopted,
    ahead: Ahead,
    counters: TrafficCounters,
}

impl Enforcer {
    /// Opens every configured link that exists in this thread's network namespace. What an earlier process of ours left
    /// at any interface is removed first.
    ///
    /// # Errors
    /// See [`Self::open_with`].
    pub fn open(config: &TrafficConfig) -> Result<Self, OpenError> {
        Self::open_with(config, None)
    }

    /// The same, but links that the process before left in force are adopted, if they are configured as before.
    ///
    /// # Errors
    /// A fault of the configuration. Under [`Enforcement::Required`], what is missing at the first link that cannot be
    /// opened; everything made before is removed then.
    pub fn open_with(config: &TrafficConfig, kept: Option<Kept>) -> Result<Self, OpenError> {
        let mut names = BTreeSet::new();
        for link in &config.links {
            let twice = || (!names.insert(&link.name)).then(|| format!("{}: configured twice", link.name));
            if let Some(fault) = link.fault().or_else(twice) {
                return Err(OpenError::new("bad-link", fault, "correct the configuration"));
            }
        }
        let system = |error| OpenError::system("opening a netlink socket", &error);
        let mut enforcer = Self {
            config: config.clone(),
            connection: Connection::open().map_err(system)?,
            requests: Batch::open(NETLINK_ROUTE).map_err(system)?,
            classifiers: classifiers(config),
            links: BTreeMap::new(),
            closed: BTreeMap::new(),
            wanted: Vec::new(),
            granted: Vec::new(),
            held: HashMap::new(),
            adopted: Adopted::default(),
            ahead: Ahead::default(),
            counters: TrafficCounters::default(),
        };
        let kept = enforcer.usable(kept);
        enforcer.sweep(&kept)?;
        let opened = enforcer.open_links(kept);
        if let (Enforcement::Required, Some((_, error))) = (config.enforcement, opened.into_iter().next()) {
            return Err(error); // dropping the value closes the open links
        }
        Ok(enforcer)
    }

    /// Queues a new or changed reservation; [`Self::flush`] returns the result.
    pub fn reserve(&mut self, id: ReservationId, reservation: &Reservation) {
        if self.config.enforcement == Enforcement::Off {
            self.granted.push(id);
        } else {
            self.wanted.push(Operation::Reserve(id, reservation.clone()));
        }
    }

    /// Queues the removal of a reservation; an unknown reservation is ignored.
    pub fn release(&mut self, id: ReservationId) {
        if self.config.enforcement != Enforcement::Off {
            self.wanted.push(Operation::Release(id));
        }
    }

    /// Whether there are queued requests.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.wanted.is_empty() && self.granted.is_empty() && !self.adopted.is_due()
    }

    /// Carries out the queued requests in order, and returns one result for each [`Self::reserve`]. A change that
    /// failed leaves the previous state.
    pub fn flush(&mut self) -> Vec<(ReservationId, Result<(), ReserveError>)> {
        self.end_adopted();
        self.counters.unenforced += self.granted.len() as u64;
        let mut results: Vec<_> = self.granted.drain(..).map(|id| (id, Ok(()))).collect();
        let mut wanted = std::mem::take(&mut self.wanted).into_iter().peekable();
        let mut seen = HashSet::new();
        while wanted.peek().is_some() {
            // Two requests for one reservation are carried out one after the other.
            seen.clear();
            let group: Vec<Operation> =
                std::iter::from_fn(|| wanted.next_if(|operation| seen.insert(operation.id()))).collect();
            self.carry_out(group, &mut results);
        }
        self.end_failed(&results);
        for (_, result) in &results {
            match result {
                Ok(()) => self.counters.reserved += 1,
                Err(ReserveError::Full) => self.counters.full += 1,
                Err(_) => self.counters.failed += 1,
            }
        }
        results
    }

    fn carry_out(
        &mut self,
        group: Vec<Operation>,
        results: &mut Vec<(ReservationId, Result<(), ReserveError>)>,
    ) {
        let mut planned = Vec::new();
        // The reservation of each request; common classes are identified by link and number.
        let mut own: HashMap<usize, usize> = HashMap::new();
        let mut shared = BTreeSet::new();
        for operation in group {
            match operation {
                Operation::Release(id) => {
                    if let Some(held) = self.held.remove(&id) {
                        self.counters.released += 1;
                        shared.extend(self.give_back(&held));
                    }
                }
                Operation::Reserve(id, reservation) => {
                    self.take_adopted(id, &reservation);
                    let before = self.requests.len();
                    match self.plan(id, &reservation) {
                        Ok(Some((place, old))) => {
                            shared.extend(place.shared().map(|queue| (reservation.ifindex.0, queue)));
                            if self.requests.len() > before {
                                own.insert(before, planned.len());
                            }
                            planned.push(Planned { id, reservation, place, old });
                        }
                        Ok(None) => {
                            self.counters.unenforced += 1;
                            let held = self.held.remove(&id);
                            shared.extend(held.and_then(|held| self.give_back(&held)));
                            results.push((id, Ok(())));
                        }
                        Err(error) => results.push((id, Err(error))),
                    }
                }
            }
        }
        let first_shared = self.requests.len();
        let shared: Vec<(u32, u16)> = shared.into_iter().collect();
        for (ifindex, queue) in &shared {
            if let Some(link) = self.links.get(ifindex) {
                link.share(*queue, &mut self.requests);
            }
        }
        let mut failed: HashSet<usize> = HashSet::new();
        let mut failed_shared: HashSet<(u32, u16)> = HashSet::new();
        match self.requests.send() {
            Ok(refused) => {
                for (number, error) in refused {
                    tracing::debug!(%error, "a class was not changed");
                    failed.extend(own.get(&number));
                    failed_shared.extend(number.checked_sub(first_shared).and_then(|at| shared.get(at)));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "classes were not changed");
                failed.extend(0..planned.len());
            }
        }
        let mut less = BTreeSet::new();
        for (at, planned) in planned.into_iter().enumerate() {
            let share = planned.place.shared().map(|queue| (planned.reservation.ifindex.0, queue));
            let refused = failed.contains(&at) || share.is_some_and(|share| failed_shared.contains(&share));
            let (id, result) = (planned.id, self.settle(planned, refused, &mut less));
            results.push((id, result));
        }
        for (ifindex, queue) in less {
            if let Some(link) = self.links.get(&ifindex) {
                link.share(queue, &mut self.requests);
            }
        }
        // If a request to reduce a rate fails, the class only keeps more than it needs.
        match self.requests.send() {
            Ok(refused) if refused.is_empty() => {}
            Ok(refused) => tracing::debug!(?refused, "classes keep more than they need"),
            Err(error) => tracing::warn!(%error, "classes keep more than they need"),
        }
    }

    /// Allocates a place for a reservation; `None` if the reservation is granted without enforcement.
    fn plan(
        &mut self,
        id: ReservationId,
        reservation: &Reservation,
    ) -> Result<Option<(Place, Option<Place>)>, ReserveError> {
        let enforcement = self.config.enforcement;
        let Some(link) = self.links.get_mut(&reservation.ifindex.0) else {
            let lenient = enforcement != Enforcement::Required;
            return if lenient { Ok(None) } else { Err(ReserveError::NoInterface) };
        };
        let held = self.held.get(&id).filter(|held| held.reservation.ifindex == reservation.ifindex);
        let old = held.map(|held| &held.place);
        match link.plan(reservation, old, &mut self.requests) {
            Ok(place) => Ok(Some((place, old.cloned()))),
            Err(ReserveError::Unsupported) if enforcement == Enforcement::BestEffort => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Installs what was planned, or undoes the plan.
    fn settle(
        &mut self,
        planned: Planned,
        refused: bool,
        less: &mut BTreeSet<(u32, u16)>,
    ) -> Result<(), ReserveError> {
        let Planned { id, reservation, place, old } = planned;
        let ifindex = reservation.ifindex.0;
        let Some(link) = self.links.get_mut(&ifindex) else { return Err(ReserveError::Failed) };
        let installed = if refused { None } else { Some(link.install(&reservation, &place, old.as_ref())) };
        if !matches!(installed, Some(Ok(()))) {
            if let Some(Err(error)) = installed {
                tracing::debug!(%error, "a filter was not installed");
            }
            match (&old, self.held.get(&id)) {
                (Some(old), Some(held)) if old.shared().is_none() => {
                    link.restore(&held.reservation, old, &mut self.requests);
                }
                _ => {}
            }
            if old.as_ref().is_none_or(|old| !old.has_queue_of(&place)) {
                link.idle(&place, &mut self.requests);
            }
            less.extend(link.free(&place, old.as_ref()).map(|queue| (ifindex, queue)));
            return Err(ReserveError::Failed);
        }
        if place.shared().is_some() && reservation.treatment == signalbox_core::traffic::Treatment::OwnQueue {
            self.counters.spilled += 1;
        }
        if let Some(old) = &old {
            if !place.has_queue_of(old) {
                link.idle(old, &mut self.requests);
            }
            less.extend(link.free(old, Some(&place)).map(|queue| (ifindex, queue)));
        }
        let before = self.held.insert(id, Held { reservation, place });
        if let (Some(before), None) = (before, old) {
            less.extend(self.give_back(&before)); // its previous place was at another link
        }
        Ok(())
    }

    /// Removes a reservation from the kernel and returns the common class that lost a share.
    fn give_back(&mut self, held: &Held) -> Option<(u32, u16)> {
        let ifindex = held.reservation.ifindex.0;
        let (link, place) = (self.links.get_mut(&ifindex)?, &held.place);
        if let Err(error) = link.uninstall(place) {
            tracing::warn!(%error, "a filter stays behind");
        }
        link.idle(place, &mut self.requests);
        link.free(place, None).map(|queue| (ifindex, queue))
    }

    /// The counters of a reservation; `None` if it does not exist or is not enforced.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn statistics(&mut self, id: ReservationId) -> io::Result<Option<Statistics>> {
        let Some(held) = self.held.get(&id) else { return Ok(None) };
        let Some(link) = self.links.get(&held.reservation.ifindex.0) else { return Ok(None) };
        link.statistics(&mut self.connection, &held.place).map(Some)
    }

    /// Whether a reservation is in the kernel.
    #[must_use]
    pub fn is_enforced(&self, id: ReservationId) -> bool {
        self.held.contains_key(&id)
    }

    /// The enforcement at each configured link.
    pub fn capabilities(&self) -> impl Iterator<Item = Capabilities> {
        self.config.links.iter().map(|config| {
            let link = self.links.values().find(|link| link.name() == config.name);
            let why = match self.config.enforcement {
                Enforcement::Off => Some("enforcement is off".to_owned()),
                _ => self.closed.get(&config.name).cloned(),
            };
            link.map_or_else(
                || Capabilities {
                    name: config.name.clone(),
                    ifindex: IfIndex::NONE,
                    queues: false,
                    policing: Policing::None,
                    marking: false,
                    classes: (0, 0),
                    reservations: (0, 0),
                    lacking: why.into_iter().collect(),
                },
                Link::capabilities,
            )
        })
    }

    /// Whether a link classifies by nftables.
    fn uses_nft(&self) -> bool {
        self.links.values().any(Link::uses_nft)
    }

    /// The counters so far.
    #[must_use]
    pub const fn counters(&self) -> &TrafficCounters {
        &self.counters
    }

    /// Removes everything that is ours from the kernel.
    ///
    /// # Errors
    /// The kernel's first error. The rest is removed all the same.
    pub fn close(mut self) -> Result<(), OpenError> {
        self.take_away().map_err(|error| OpenError::system("removing the queues", &error))
    }

    fn take_away(&mut self) -> io::Result<()> {
        let uses_nft = self.uses_nft();
        let links = std::mem::take(&mut self.links);
        let mut result = Ok(());
        for mut link in links.into_values() {
            result = result.and(link.close(&mut self.connection));
        }
        if uses_nft { result.and(nft::remove(&self.config.scope.name(nft::TABLE))) } else { result }
    }
}

impl Drop for Enforcer {
    fn drop(&mut self) {
        if let Err(error) = self.take_away() {
            tracing::warn!(%error, "queues stay behind; the next start replaces them, or signalboxd --clean removes them");
        }
    }
}
