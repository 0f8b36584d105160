//! One outgoing interface: its queues, its classifier, and the places of its reservations.

use std::collections::BTreeMap;

use signalbox_core::IfIndex;
use signalbox_core::traffic::{Excess, Reservation, ReserveError, ServiceClass, Treatment};

use super::bpf::{Encoded, Program};
use super::config::{Capabilities, Enforcement, LinkConfig, Policing};
use super::htb::{self, Queues, Root};
use super::nft::{self, Maps};
use super::signaling::Signaling;
use super::{Flow, Statistics};
use crate::error::OpenError;
use crate::netlink::Batch;
use crate::netlink::codec::Connection;

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
    filters: Filters,
}

#[derive(Debug, Clone)]
enum Filters {
    Bpf(Vec<Encoded>),
    Nft(Vec<nft::Element>),
}

/// An interface with queues of ours.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) name: String,
    pub(super) ifindex: u32,
    queues: Queues,
    classifier: Classifier,
    strict: bool,
    free_queues: Vec<u16>,
    classes: u16,
    free_slots: Vec<u32>,
    /// The first slot that was never used; all later ones are unused, too.
    fresh: u32,
    most: u32,
    /// Rates reserved in common classes, octets a second.
    shares: BTreeMap<u16, u64>,
    lacking: Vec<String>,
}

impl Link {
    /// Makes the queues of an interface, after the removal of those that an earlier process of ours left.
    pub(super) fn open(
        connection: &mut Connection,
        config: &LinkConfig,
        interface: (u32, u32),
        (enforcement, ebpf): (Enforcement, bool),
        signaling: Signaling,
    ) -> Result<Self, OpenError> {
        let (ifindex, link_header) = interface;
        let system = |what: &str, error| match &error {
            error if std::io::Error::raw_os_error(error) == Some(libc::EPERM) => {
                OpenError::net_admin(what, error)
            }
            error => OpenError::system(what, error),
        };
        match htb::root(connection, ifindex)
            .map_err(|error| system("reading the queueing disciplines", error))?
        {
            Root::Default => {}
            Root::Ours => {
                htb::remove(connection, ifindex).map_err(|error| system("removing old queues", error))?;
            }
            Root::Foreign(qdisc) => {
                let name = &config.name;
                return Err(OpenError::new(
                    "foreign-qdisc",
                    format!("{name} has a queueing discipline that is not ours ({qdisc})"),
                    format!(
                        "remove it (tc qdisc del dev {name} root), or take {name} out of the configuration's links"
                    ),
                ));
            }
        }
        let mut lacking = Vec::new();
        let program = if ebpf {
            Program::load(config, link_header, signaling).map_err(|error| error.to_string())
        } else {
            Err("switched off in the configuration".to_owned())
        };
        let missing = program.as_ref().err().map(|why| {
            format!(
                "no eBPF ({why}): no strict policing, no marking, at most {} reservations",
                config.classes
            )
        });
        if let Some(missing) = missing {
            if enforcement == Enforcement::Required && ebpf {
                return Err(OpenError::new(
                    "missing-ebpf",
                    missing,
                    "give the program CAP_BPF and CAP_PERFMON on a kernel from 5.11, or set enforcement.mode = \
                     \"best-effort\"",
                ));
            }
            lacking.push(missing);
        }
        let queues = Queues::new(ifindex, config.rate);
        queues.make(config, link_header).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT | libc::EOPNOTSUPP) => OpenError::new(
                "missing-htb",
                format!("the kernel makes no HTB queues at {} ({error})", config.name),
                "load the modules sch_htb and sch_fifo, or set enforcement.mode = \"best-effort\" or \"off\"",
            ),
            _ => system("making the queues", error),
        })?;
        let classifier = match program {
            Ok(program) => queues
                .classify(connection, program.raw())
                .map(|()| Classifier::Bpf(program))
                .map_err(|error| system("hanging the eBPF program on the queues", error)),
            Err(_) => Maps::open(ifindex, config, signaling).map(Classifier::Nft),
        };
        let classifier = classifier.inspect_err(|_| {
            // The first error is the one to report.
            let _ = htb::remove(connection, ifindex);
        })?;
        Ok(Self {
            name: config.name.clone(),
            ifindex,
            queues,
            classifier,
            strict: enforcement == Enforcement::Required,
            free_queues: (0..config.classes).rev().map(htb::own).collect(),
            classes: config.classes,
            free_slots: Vec::new(),
            fresh: 0,
            most: config.max_reservations,
            shares: BTreeMap::new(),
            lacking,
        })
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
                if self.strict && (mark_dscp.is_some() || *treatment != Treatment::OwnQueue) {
                    return Err(ReserveError::Unsupported);
                }
                Filters::Nft(maps.encode(filters)?)
            }
        };
        let slot = match old {
            Some(old) => old.slot,
            None => self
                .free_slots
                .pop()
                .or_else(|| (self.fresh < self.most).then_some(self.fresh))
                .ok_or(ReserveError::Full)?,
        };
        let policed = matches!(self.classifier, Classifier::Bpf(_));
        let own = old.map(|old| old.queue).filter(|queue| is_own(*queue));
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
        let share = if is_own(queue) {
            self.serve(reservation, queue, requests);
            0
        } else {
            let share = self.shares.entry(queue).or_default();
            *share = share.saturating_add(reservation.rate());
            reservation.rate()
        };
        Ok(Place { slot, queue, share, filters })
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
                maps.change(new_filters, new.queue, &[], new.queue)
            }
            _ => Ok(()),
        }
    }

    /// Stops the classification of a reservation's packets.
    pub(super) fn uninstall(&mut self, place: &Place) -> std::io::Result<()> {
        match (&mut self.classifier, &place.filters) {
            (Classifier::Bpf(program), Filters::Bpf(filters)) => program.remove(place.slot, filters),
            (Classifier::Nft(maps), Filters::Nft(filters)) => {
                maps.change(&[], place.queue, filters, place.queue)
            }
            _ => Ok(()),
        }
    }

    /// Frees the parts of a place that `kept` does not have, and returns the common class whose share became less.
    pub(super) fn free(&mut self, place: &Place, kept: Option<&Place>) -> Option<u16> {
        if kept.is_none_or(|kept| kept.slot != place.slot) {
            self.free_slots.push(place.slot);
        }
        if is_own(place.queue) {
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
        if is_own(place.queue) {
            self.queues.change(requests, place.queue, 0, None, false);
        }
    }

    /// Appends a request that restores a queue after a failed change.
    pub(super) fn restore(&self, reservation: &Reservation, place: &Place, requests: &mut Batch) {
        self.serve(reservation, place.queue, requests);
    }

    fn serve(&self, reservation: &Reservation, queue: u16, requests: &mut Batch) {
        let Reservation { traffic, excess, .. } = reservation;
        let unpoliced = matches!(self.classifier, Classifier::Nft(_));
        let ceiling = (unpoliced && *excess == Excess::Drop).then_some(traffic.rate);
        self.queues.change(
            requests,
            queue,
            reservation.rate(),
            ceiling,
            unpoliced && *excess == Excess::BestEffort,
        );
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
        Capabilities {
            name: self.name.clone(),
            ifindex: IfIndex(self.ifindex),
            queues: true,
            policing: if bpf { Policing::TokenBucket } else { Policing::ClassCeiling },
            marking: bpf,
            classes: (self.classes, self.classes.saturating_sub(free)),
            reservations: (if bpf { self.most } else { self.most.min(self.classes.into()) }, taken),
            lacking: self.lacking.clone(),
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

    /// The common class of which the place has a share, if any.
    pub(super) fn shared(&self) -> Option<u16> {
        (!is_own(self.queue)).then_some(self.queue)
    }
}

/// Whether a class belongs to one reservation.
const fn is_own(queue: u16) -> bool {
    queue >= htb::own(0)
}
