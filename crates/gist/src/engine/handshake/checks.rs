//! Peering decisions that an application has not answered yet (RFC 5971 §4.3.2, B.2).

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;

use signalbox_core::index::KeyedHasher;
use signalbox_core::service::{CheckId, Peering};
use signalbox_core::shares::{Shares, source};
use signalbox_core::{IfIndex, NslpId, Time, invariant};

use crate::engine::Gist;
use crate::engine::receive::{Arrival, Subject};
use crate::engine::routing::NONE;
use crate::wire::{Encapsulation, GistError, Header, Infos, Message};

/// A Query that waits for the peering decision.
#[derive(Debug)]
struct Check {
    id: CheckId,
    until: Time,
    src: SocketAddr,
    dst: SocketAddr,
    ifindex: IfIndex,
    ttl: u8,
    tos: u8,
    local: bool,
    options: Box<[u8]>,
    octets: Box<[u8]>,
    /// The source that gets the Response.
    source: IpAddr,
}

/// All Queries that wait. A quarter of their number is for sources and for interfaces with few of them: an application that
/// is slow would otherwise be asked by who floods it only. By interface too, because the sender of a Query can be forged.
#[derive(Debug)]
pub(super) struct Checks {
    queue: VecDeque<Check>,
    by_source: Shares<IpAddr>,
    by_interface: Shares<IfIndex>,
    /// The id of the next Query that waits.
    next: u64,
}

impl Checks {
    /// At most `limit` Queries; 0: no Query waits.
    pub(super) fn new(limit: usize, hasher: KeyedHasher) -> Self {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        Self {
            queue: VecDeque::new(),
            by_source: Shares::new(limit, hasher),
            by_interface: Shares::new(limit, hasher),
            next: 0,
        }
    }

    /// The id of one more Query that waits.
    const fn take_id(&mut self) -> CheckId {
        let id = CheckId(self.next);
        self.next += 1;
        id
    }

    /// When the next timeout of a decision is due.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.queue.front().map(|check| check.until)
    }

    /// Whether one more Query of a source can wait.
    fn has_place(&self, source: IpAddr, ifindex: IfIndex) -> bool {
        // Shares take a limit of 0 as no limit.
        self.by_source.limit() > 0
            && self.by_source.check(&source, 1).is_ok()
            && self.by_interface.check(&ifindex, 1).is_ok()
    }

    fn push(&mut self, check: Check) {
        self.by_source.hold(check.source);
        self.by_interface.hold(check.ifindex);
        self.queue.push_back(check);
    }

    fn remove(&mut self, at: usize) -> Option<Check> {
        let check = self.queue.remove(at)?;
        self.by_source.release(check.source);
        self.by_interface.release(check.ifindex);
        Some(check)
    }

    fn position(&self, id: CheckId) -> Option<usize> {
        self.queue.iter().position(|check| check.id == id)
    }

    fn is_due(&self, now: Time) -> bool {
        self.queue.front().is_some_and(|check| check.until <= now)
    }
}

impl Check {
    fn arrival(&self) -> Arrival<'_> {
        Arrival {
            src: self.src,
            dst: self.dst,
            ifindex: self.ifindex,
            ttl: self.ttl,
            tos: self.tos,
            options: &self.options,
            octets: &self.octets,
            local: self.local,
            encapsulation: Encapsulation::QMode,
            association: NONE,
        }
    }
}

impl Gist {
    /// Requests the peering decision of the application (RFC 5971 §4.3.2). If too many Queries wait for one, the node
    /// forwards the Query without it (overload protection, §8.4), unless the Query is addressed to this node.
    pub(in crate::engine) fn ask_application(
        &mut self,
        a: &Arrival<'_>,
        message: &Message<'_>,
        subject: &Subject<'_>,
    ) {
        let source = source(subject.nli.interface);
        if !self.handshakes.checks.has_place(source, a.ifindex) {
            self.counters.checks_full += 1;
            dropped!(a, subject, "too many peering decisions pending");
            if a.local {
                self.accept_query(a, message, subject, None);
            } else {
                self.forward(a, &message.header, None);
            }
            return;
        }
        let id = self.handshakes.checks.take_id();
        self.deliver_query(a, message, subject, message.nslp_data.unwrap_or_default(), Some(id));
        self.handshakes.checks.push(Check {
            id,
            source,
            until: self.now + self.config.check_timeout,
            src: a.src,
            dst: a.dst,
            ifindex: a.ifindex,
            ttl: a.ttl,
            tos: a.tos,
            local: a.local,
            options: a.options.into(),
            octets: a.octets.into(),
        });
    }

    /// Takes the peering decision of the application (RFC 5971 B.2).
    pub(in crate::engine) fn decide(&mut self, id: CheckId, decision: Peering<'_>) {
        let Some(check) =
            self.handshakes.checks.position(id).and_then(|at| self.handshakes.checks.remove(at))
        else {
            self.counters.checks_stale += 1;
            return;
        };
        self.carry_out(&check, decision);
    }

    fn carry_out(&mut self, check: &Check, decision: Peering<'_>) {
        let a = check.arrival();
        let fits = |data: &&[u8]| data.len().is_multiple_of(4);
        match decision {
            // GIST-4.3.2-04, GIST-4.3.2-05: the Query is forwarded, perhaps with another payload.
            Peering::Decline(data) if !check.local => {
                let header = Header::parse(a.octets).ok();
                if let Some(header) =
                    invariant!(header, "the header of a Query is as valid as when it came in")
                {
                    self.forward(&a, &header, data.filter(fits));
                }
            }
            // GIST-4.3.2-01: a node that is addressed must peer.
            Peering::Decline(_) => self.accept_checked(&a, None),
            // GIST-4.3.2-03, GIST-B.2-02
            Peering::Accept(data) => self.accept_checked(&a, data.filter(fits)),
        }
    }

    /// Queries that wait for the decision of an unregistered application are forwarded, like all messages of applications
    /// that this node does not have (RFC 5971 §4.3.4).
    pub(in crate::engine) fn abandon_checks(&mut self, nslp: NslpId) {
        for _ in 0..self.handshakes.checks.queue.len() {
            let Some(check) = self.handshakes.checks.remove(0) else { return };
            let header = Header::parse(&check.octets).ok();
            match header.filter(|header| header.nslp == nslp) {
                None => self.handshakes.checks.push(check),
                Some(_) if check.local => {
                    self.refuse(&check.arrival(), GistError::ENDPOINT_FOUND, Infos::NONE);
                }
                Some(header) => self.forward(&check.arrival(), &header, None),
            }
        }
    }

    /// Parses the Query again, which was valid when it was received, and accepts it.
    fn accept_checked(&mut self, a: &Arrival<'_>, payload: Option<&[u8]>) {
        let message = Message::parse(a.octets, a.encapsulation).ok();
        let Some(message) = invariant!(message, "a Query that waited can be parsed again") else { return };
        let (Some(mri), Some(session), Some(nli)) = (message.mri, message.session, message.nli) else {
            return;
        };
        let mut subject = Subject { mri: mri.mri, session, nslp: message.header.nslp, nli, foreign: None };
        let mut a = *a;
        self.translate(&mut a, &message, &mut subject);
        self.accept_query(&a, &message, &subject, payload);
    }

    /// The timeout of a decision means that the application declines.
    pub(in crate::engine) fn expire_checks(&mut self, most: u32) {
        for _ in 0..most {
            if !self.handshakes.checks.is_due(self.now) {
                return;
            }
            if let Some(check) = self.handshakes.checks.remove(0) {
                self.carry_out(&check, Peering::Decline(None));
            }
        }
    }
}
