//! One outgoing interface: its queues, its classifier, and the places of its reservations.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use signalbox_core::IfIndex;
use signalbox_core::traffic::{
    Excess, FlowFilter, Reservation, ReserveError, ServiceClass, TrafficSpec, Treatment,
};

use super::bpf::{Encoded, Loaded, Program};
use super::config::{Capabilities, Enforcement, LinkConfig, Policing};
use super::htb::{self, Queues, Root};
use super::nft::{Elements, Maps};
use super::signaling::Signaling;
use super::{Flow, Statistics};
use crate::error::OpenError;
use crate::netlink::Batch;
use crate::netlink::codec::Connection;

/// The reason why a link has no classifier in eBPF.
#[derive(Debug, Clone)]
pub(super) enum Missing {
    /// The configuration does not want it.
    Off,
    /// The kernel did not accept it.
    Refused(String),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("switched off in the configuration"),
            Self::Refused(why) => f.write_str(why),
        }
    }
}

/// A bucket that each packet finds full.
const UNPOLICED: TrafficSpec =
    TrafficSpec { rate: u64::MAX, burst: u32::MAX, peak: None, min_policed: 0, max_packet: 0 };

/// The method by which packets find their class.
#[derive(Debug)]
enum Classifier {
    Bpf(Program),
    Nft(Maps),
}

/// The place of a reservation in the kernel.
#[derive(Debug, Clone)]
pub(super) struct Place {
    slot: u32,
    queue: u16,
    /// Share of a common class, octets a second; 0 where the queue is the reservation's own.
    share: u64,
    /// Its packets wait in a bounded queue, and are not policed.
    shaped: bool,
    filters: Filters,
}

#[derive(Debug, Clone)]
enum Filters {
    Bpf(Vec<Encoded>),
    Nft(Elements),
}

/// An interface with queues of ours.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) ifindex: u32,
    config: LinkConfig,
    /// Octets before the IP header of packets that leave.
    link_header: u32,
    signaling: Signaling,
    queues: Queues,
    classifier: Classifier,
    strict: bool,
    free_queues: Vec<u16>,
    /// The own queues below this number were made ahead of reservations.
    prepared: u16,
    free_slots: Vec<u32>,
    /// The first slot that was never used; all later ones are unused, too.
    fresh: u32,
    /// Rates reserved in common classes, octets a second.
    shares: BTreeMap<u16, u64>,
    lacking: Vec<String>,
    /// Why the queues are not there at the moment.
    fault: Option<String>,
}

impl Link {
    /// Makes the queues of an interface, after the removal of those that an earlier process of ours left. If it left them in
    /// force with the reservations `left`, and all are there, the link adopts them instead, and returns these reservations. `loaded`
    /// is the classifier of the link, or the reason why there is none; `table` is that of nftables for links without one.
    pub(super) fn open(
        connection: &mut Connection,
        config: &LinkConfig,
        interface: (u32, u32),
        enforcement: Enforcement,
        loaded: Result<&Loaded, &Missing>,
        (signaling, table): (Signaling, &str),
        left: Vec<(u16, Reservation)>,
    ) -> Result<(Self, Vec<(Reservation, Place)>), OpenError> {
        let (ifindex, link_header) = interface;
        let queues = Queues::new(ifindex, config.rate);
        let reading = |error| system("reading the queueing disciplines", error);
        let adopts = !left.is_empty()
            && loaded.is_ok()
            && queues.are_whole(connection, &own_queues(&left)).map_err(reading)?;
        match htb::root(connection, ifindex).map_err(reading)? {
            Root::Default => {}
            Root::Ours if adopts => {}
            Root::Ours => {
                htb::remove(connection, ifindex).map_err(|error| system("removing old queues", error))?;
            }
            Root::Foreign(qdisc) => return Err(foreign(&config.name, &qdisc)),
        }
        let mut lacking = Vec::new();
        let program = match loaded {
            Ok(loaded) => Program::new(loaded, config, link_header, signaling)
                .map_err(|error| Missing::Refused(error.to_string())),
            Err(missing) => Err(missing.clone()),
        };
        let refused = matches!(program, Err(Missing::Refused(_)));
        let missing = program.as_ref().err().map(|why| {
            format!("no eBPF ({why}): no strict policing, at most {} reservations", config.classes)
        });
        if let Some(missing) = missing {
            if enforcement == Enforcement::Required && refused {
                return Err(OpenError::new(
                    "missing-ebpf",
                    missing,
                    "give the program CAP_BPF and CAP_PERFMON, before Linux 5.11 also more locked memory \
                     (LimitMEMLOCK=, ulimit -l), or set enforcement.mode = \"best-effort\"",
                ));
            }
            lacking.push(missing);
        }
        let classifier = match program {
            Ok(program) => Some(program),
            Err(_) if adopts => {
                htb::remove(connection, ifindex).map_err(|error| system("removing old queues", error))?;
                None
            }
            Err(_) => None,
        };
        if !(adopts && classifier.is_some()) {
            queues.make(config, link_header).map_err(|error| match error.raw_os_error() {
                Some(libc::ENOENT | libc::EOPNOTSUPP) => OpenError::new(
                    "missing-htb",
                    format!("the kernel makes no HTB queues at {} ({error})", config.name),
                    "load the modules sch_htb and sch_fifo, or set enforcement.mode = \"best-effort\" or \"off\"",
                ),
                _ => system("making the queues", error),
            })?;
        }
        let link = |classifier| Self {
            ifindex,
            config: config.clone(),
            link_header,
            signaling,
            queues: queues.clone(),
            classifier,
            strict: enforcement == Enforcement::Required,
            free_queues: (0..config.classes).rev().map(htb::own).collect(),
            prepared: 0,
            free_slots: Vec::new(),
            fresh: 0,
            shares: BTreeMap::new(),
            lacking,
            fault: None,
        };
        let opened = match classifier {
            Some(program) => {
                let raw = program.raw();
                let mut link = link(Classifier::Bpf(program));
                let adopted = if adopts { link.adopt(left) } else { Vec::new() };
                let classified = queues.classify(connection, raw);
                classified
                    .map(|()| (link, adopted))
                    .map_err(|error| system("hanging the eBPF program on the queues", error))
            }
            None => Maps::open((table, ifindex), config, signaling)
                .map(|maps| (link(Classifier::Nft(maps)), Vec::new())),
        };
        opened.inspect_err(|_| {
            // The first error is the one to report.
            let _ = htb::remove(connection, ifindex);
        })
    }

    /// Installs the reservations of the process before in the classifier, at the queues that they have. What does not fit is
    /// left out: its queue is served until another reservation gets it.
    fn adopt(&mut self, left: Vec<(u16, Reservation)>) -> Vec<(Reservation, Place)> {
        let mut adopted = Vec::with_capacity(left.len());
        for (queue, reservation) in left {
            let own = htb::is_own(queue);
            let free = !own || self.free_queues.contains(&queue);
            let fits = htb::is_for_reservations(queue, self.config.classes)
                && free
                && self.fresh < self.config.max_reservations
                && reservation.ifindex.0 == self.ifindex;
            let Classifier::Bpf(program) = &self.classifier else { return adopted };
            let Some(filters) = fits.then(|| program.encode(&reservation.filters, &[]).ok()).flatten() else {
                continue;
            };
            let share = if own { 0 } else { reservation.rate() };
            let shaped = self.shapes(&reservation, queue);
            let place = Place { slot: self.fresh, queue, share, shaped, filters: Filters::Bpf(filters) };
            if self.install(&reservation, &place, None).is_err() {
                continue;
            }
            self.fresh += 1;
            if own {
                self.free_queues.retain(|one| *one != queue);
            } else {
                let sum = self.shares.entry(queue).or_default();
                *sum = sum.saturating_add(share);
            }
            adopted.push((reservation, place));
        }
        adopted
    }

    /// Makes the reservations end at a time of CLOCK_MONOTONIC, if the classifier can do that by itself.
    pub(super) fn end_at(&mut self, until: Duration) -> std::io::Result<bool> {
        match &mut self.classifier {
            Classifier::Bpf(program) => program.end_at(until).map(|()| true),
            Classifier::Nft(_) => Ok(false),
        }
    }

    /// The settings that the queues were made with.
    pub(super) const fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Allocates a place for a reservation, which replaces `old`, and appends the requests for its queue. The kernel is
    /// unchanged until the requests have been sent and [`Self::install`] was called.
    pub(super) fn plan(
        &mut self,
        reservation: &Reservation,
        old: Option<&Place>,
        requests: &mut Batch,
    ) -> Result<Place, ReserveError> {
        let Reservation { filters, treatment, mark_dscp, .. } = reservation;
        let filters = match &self.classifier {
            Classifier::Bpf(program) => {
                let old = match old.map(|old| &old.filters) {
                    Some(Filters::Bpf(old)) => old.as_slice(),
                    _ => &[],
                };
                Filters::Bpf(program.encode(filters, old)?)
            }
            Classifier::Nft(maps) => {
                if self.strict && *treatment != Treatment::OwnQueue {
                    return Err(ReserveError::Unsupported);
                }
                Filters::Nft(maps.encode(filters, *mark_dscp)?)
            }
        };
        let slot = match old {
            Some(old) => old.slot,
            None => self
                .free_slots
                .pop()
                .or_else(|| (self.fresh < self.config.max_reservations).then_some(self.fresh))
                .ok_or(ReserveError::Full)?,
        };
        let policed = matches!(self.classifier, Classifier::Bpf(_));
        let own = old.map(|old| old.queue).filter(|queue| htb::is_own(*queue));
        let queue = match treatment {
            // Without a policer, the reservations that share a queue are not protected from each other.
            Treatment::Aggregate(service) if policed => Some(htb::shared(*service)),
            Treatment::OwnQueue | Treatment::Aggregate(_) => {
                let own = own.or_else(|| self.free_queues.pop());
                own.or_else(|| policed.then(|| htb::shared(ServiceClass::ControlledLoad)))
            }
        };
        let Some(queue) = queue else {
            if old.is_none() && slot != self.fresh {
                self.free_slots.push(slot);
            }
            return Err(ReserveError::Full);
        };
        if old.is_none() && slot == self.fresh {
            self.fresh += 1;
        }
        let shaped = self.shapes(reservation, queue);
        let share = if htb::is_own(queue) {
            if old.is_some_and(|old| old.shaped && old.queue == queue) && !shaped {
                self.queues.unbound(requests, queue);
            }
            self.serve(reservation, queue, requests);
            0
        } else {
            let share = self.shares.entry(queue).or_default();
            *share = share.saturating_add(reservation.rate());
            reservation.rate()
        };
        Ok(Place { slot, queue, share, shaped, filters })
    }

    /// Appends a request to serve the common class `queue` at the sum of its reservations.
    pub(super) fn share(&self, queue: u16, requests: &mut Batch) {
        let rate = self.shares.get(&queue).copied().unwrap_or(0);
        self.queues.change(requests, queue, rate, None, false);
    }

    /// Directs the packets of a reservation to its queue.
    pub(super) fn install(
        &mut self,
        reservation: &Reservation,
        new: &Place,
        old: Option<&Place>,
    ) -> std::io::Result<()> {
        let Reservation { traffic, excess, mark_dscp, .. } = reservation;
        let excess = match excess {
            Excess::Drop => 0,
            Excess::BestEffort => htb::EXCESS,
        };
        let traffic = if new.shaped { &UNPOLICED } else { traffic };
        let flow = Flow { traffic, queue: new.queue, excess, mark_dscp: *mark_dscp };
        match (&mut self.classifier, &new.filters, old.map(|old| (&old.filters, old.queue))) {
            (Classifier::Bpf(program), Filters::Bpf(new_filters), None) => {
                program.install(new.slot, &flow, new_filters, &[])
            }
            (Classifier::Bpf(program), Filters::Bpf(new_filters), Some((Filters::Bpf(old), _))) => {
                program.install(new.slot, &flow, new_filters, old)
            }
            (Classifier::Nft(maps), Filters::Nft(new_filters), Some((Filters::Nft(old), queue))) => {
                maps.change(new_filters, new.queue, old, queue)
            }
            (Classifier::Nft(maps), Filters::Nft(new_filters), _) => {
                maps.change(new_filters, new.queue, &Elements::default(), new.queue)
            }
            _ => Ok(()),
        }
    }

    /// Stops the classification of a reservation's packets.
    pub(super) fn uninstall(&mut self, place: &Place) -> std::io::Result<()> {
        match (&mut self.classifier, &place.filters) {
            (Classifier::Bpf(program), Filters::Bpf(filters)) => program.remove(place.slot, filters),
            (Classifier::Nft(maps), Filters::Nft(filters)) => {
                maps.change(&Elements::default(), place.queue, filters, place.queue)
            }
            _ => Ok(()),
        }
    }

    /// Frees the parts of a place that `kept` does not have, and returns the common class whose share became less.
    pub(super) fn free(&mut self, place: &Place, kept: Option<&Place>) -> Option<u16> {
        if kept.is_none_or(|kept| kept.slot != place.slot) {
            self.free_slots.push(place.slot);
        }
        if htb::is_own(place.queue) {
            if kept.is_none_or(|kept| kept.queue != place.queue) {
                self.free_queues.push(place.queue);
            }
            return None;
        }
        if let Some(share) = self.shares.get_mut(&place.queue) {
            *share = share.saturating_sub(place.share);
        }
        Some(place.queue)
    }

    /// Appends a request that ends the service of an own queue.
    pub(super) fn idle(&self, place: &Place, requests: &mut Batch) {
        if place.shaped {
            self.queues.unbound(requests, place.queue);
        }
        if htb::is_own(place.queue) {
            self.queues.change(requests, place.queue, 0, None, false);
        }
    }

    /// Appends a request that restores a queue after a failed change.
    pub(super) fn restore(&self, reservation: &Reservation, place: &Place, requests: &mut Batch) {
        self.serve(reservation, place.queue, requests);
    }

    /// Whether the packets of a reservation wait in its queue for their time, instead of being policed: those of TCP, which takes a loss
    /// for congestion and then sends less than its rate. Where the queue is served faster than the tokens come (RFC 2212), packets would
    /// leave too early.
    fn shapes(&self, reservation: &Reservation, queue: u16) -> bool {
        let tcp = |filter: &FlowFilter| filter.protocol == Some(libc::IPPROTO_TCP as u8);
        matches!(self.classifier, Classifier::Bpf(_))
            && htb::is_own(queue)
            && reservation.rate() == reservation.traffic.rate
            && reservation.filters.iter().all(tcp)
    }

    fn serve(&self, reservation: &Reservation, queue: u16, requests: &mut Batch) {
        let Reservation { traffic, excess, mark_dscp, .. } = reservation;
        let shaped = self.shapes(reservation, queue);
        let unpoliced = shaped || matches!(self.classifier, Classifier::Nft(_));
        // The next nodes take all packets with the code point for conforming ones.
        let bounded = *excess == Excess::Drop || shaped && mark_dscp.is_some();
        let ceiling = (unpoliced && bounded).then_some(traffic.rate);
        self.queues.change(requests, queue, reservation.rate(), ceiling, unpoliced && !bounded);
        if shaped {
            self.queues.bound(requests, queue, traffic.rate, traffic.burst);
        }
    }

    /// Takes the rates of `new`, and appends requests for the link itself, best effort and signaling. Own queues without a
    /// reservation are not touched: each gets its rates with its next reservation.
    pub(super) fn set_rates(&mut self, new: &LinkConfig, requests: &mut Batch) {
        self.config.clone_from(new);
        self.queues.change_link(requests, new);
        if let Classifier::Bpf(program) = &self.classifier
            && let Err(error) = program.set_rates(new)
        {
            tracing::warn!(%error, "signaling is policed at the former rate");
        }
    }

    /// The name of the interface.
    pub(super) fn name(&self) -> &str {
        &self.config.name
    }

    /// Makes the queues and the eBPF filter again where another program removed a part of them, and returns whether one
    /// was missing. All new queues are idle. A queueing discipline of another program is not touched.
    pub(super) fn mend(&mut self, connection: &mut Connection) -> Result<bool, OpenError> {
        let mended = self.mend_queues(connection);
        self.fault = mended.as_ref().err().map(ToString::to_string);
        mended
    }

    fn mend_queues(&mut self, connection: &mut Connection) -> Result<bool, OpenError> {
        let reading = |error| system("reading the queueing disciplines", error);
        let whole = self.queues.are_whole(connection, &self.queues_in_use()).map_err(reading)?;
        if !whole {
            match htb::root(connection, self.ifindex).map_err(reading)? {
                Root::Ours => htb::remove(connection, self.ifindex)
                    .map_err(|error| system("removing damaged queues", error))?,
                Root::Default => {}
                Root::Foreign(qdisc) => return Err(foreign(self.name(), &qdisc)),
            }
            self.queues
                .make(&self.config, self.link_header)
                .map_err(|error| system("making the queues again", error))?;
            self.prepared = 0;
        }
        if let Classifier::Bpf(program) = &self.classifier
            && !(whole && self.queues.are_classified(connection).map_err(reading)?)
        {
            self.queues
                .classify(connection, program.raw())
                .map_err(|error| system("hanging the eBPF program on the queues again", error))?;
            return Ok(true);
        }
        Ok(!whole)
    }

    /// Whether own queues are left to make.
    pub(super) const fn lacks_queues(&self) -> bool {
        self.prepared < self.config.classes && self.fault.is_none()
    }

    /// Appends requests for the next own queues, `most` at most, which leave those that exist as they are.
    pub(super) fn prepare(&mut self, most: u16, requests: &mut Batch) {
        let next = self.prepared.saturating_add(most).min(self.config.classes);
        (self.prepared..next).for_each(|number| self.queues.make_idle(requests, htb::own(number)));
        self.prepared = next;
    }

    /// The queues of the pool that reservations have.
    fn queues_in_use(&self) -> BTreeSet<u16> {
        let free: BTreeSet<u16> = self.free_queues.iter().copied().collect();
        (0..self.config.classes).map(htb::own).filter(|queue| !free.contains(queue)).collect()
    }

    /// Appends requests that serve the common classes again, after their queues were made again.
    pub(super) fn share_all(&self, requests: &mut Batch) {
        self.shares.keys().for_each(|queue| self.share(*queue, requests));
    }

    /// Whether the nftables rules of this link are all there, if it has any.
    pub(super) fn has_rules(&self) -> std::io::Result<bool> {
        match &self.classifier {
            Classifier::Bpf(_) => Ok(true),
            Classifier::Nft(maps) => maps.are_whole(),
        }
    }

    /// Makes the nftables rules of this link again, if it has any, with empty maps.
    pub(super) fn make_rules(&mut self) -> Result<(), OpenError> {
        if let Classifier::Nft(maps) = &mut self.classifier {
            *maps = Maps::open((maps.table(), self.ifindex), &self.config, self.signaling)?;
        }
        Ok(())
    }

    /// Puts the filters of a reservation into the new, empty maps of nftables, if the link has any.
    pub(super) fn fill_maps(&mut self, place: &Place) -> std::io::Result<()> {
        match (&mut self.classifier, &place.filters) {
            (Classifier::Nft(maps), Filters::Nft(filters)) => {
                maps.change(filters, place.queue, &Elements::default(), place.queue)
            }
            _ => Ok(()),
        }
    }

    /// What the link has in nftables, if it has anything.
    pub(super) fn into_maps(self) -> Option<Maps> {
        match self.classifier {
            Classifier::Bpf(_) => None,
            Classifier::Nft(maps) => Some(maps),
        }
    }

    /// Whether the link classifies by nftables.
    pub(super) const fn uses_nft(&self) -> bool {
        matches!(self.classifier, Classifier::Nft(_))
    }

    /// The counters of a reservation. Without eBPF they are those of its class since the link was opened.
    pub(super) fn statistics(
        &self,
        connection: &mut Connection,
        place: &Place,
    ) -> std::io::Result<Statistics> {
        match &self.classifier {
            Classifier::Bpf(program) => program.statistics(place.slot),
            Classifier::Nft(_) => {
                let [packets, octets, policed_packets] = self.queues.sent(connection, place.queue)?;
                Ok(Statistics { packets, octets, policed_packets, policed_octets: None })
            }
        }
    }

    /// The enforcement at this link.
    pub(super) fn capabilities(&self) -> Capabilities {
        let bpf = matches!(self.classifier, Classifier::Bpf(_));
        let free = u16::try_from(self.free_queues.len()).unwrap_or(u16::MAX);
        let taken = self.fresh - u32::try_from(self.free_slots.len()).unwrap_or(0);
        let LinkConfig { name, classes, max_reservations: most, .. } = &self.config;
        Capabilities {
            name: name.clone(),
            ifindex: IfIndex(self.ifindex),
            queues: self.fault.is_none(),
            policing: if bpf { Policing::TokenBucket } else { Policing::ClassCeiling },
            marking: true,
            classes: (*classes, classes.saturating_sub(free)),
            reservations: (if bpf { *most } else { (*most).min((*classes).into()) }, taken),
            lacking: self.lacking.iter().chain(&self.fault).cloned().collect(),
        }
    }

    /// Removes everything that is ours at this interface.
    pub(super) fn close(&mut self, connection: &mut Connection) -> std::io::Result<()> {
        htb::remove(connection, self.ifindex)
    }
}

impl Place {
    /// Whether both are in the same queue.
    pub(super) const fn has_queue_of(&self, other: &Self) -> bool {
        self.queue == other.queue
    }

    /// The minor number of its class.
    pub(super) const fn queue(&self) -> u16 {
        self.queue
    }

    /// The common class of which the place has a share, if any.
    pub(super) fn shared(&self) -> Option<u16> {
        (!htb::is_own(self.queue)).then_some(self.queue)
    }
}

/// The queues of the pool among those of reservations.
fn own_queues(reservations: &[(u16, Reservation)]) -> BTreeSet<u16> {
    reservations.iter().map(|(queue, _)| *queue).filter(|queue| htb::is_own(*queue)).collect()
}

fn system(what: &str, error: std::io::Error) -> OpenError {
    match error.raw_os_error() {
        Some(libc::EPERM) => OpenError::net_admin(what, &error),
        _ => OpenError::system(what, &error),
    }
}

/// The error if another program's queueing discipline stands at an interface.
fn foreign(name: &str, qdisc: &str) -> OpenError {
    OpenError::new(
        "foreign-qdisc",
        format!("{name} has a queueing discipline that is not ours ({qdisc})"),
        format!("remove it (tc qdisc del dev {name} root), or take {name} out of the configuration's links"),
    )
}
