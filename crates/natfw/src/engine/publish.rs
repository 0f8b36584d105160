//! Receivers that senders reach without a CREATE: what RFC 5973 does not have ([`Publication`]).
//!
//! Each NAT and firewall plans an EXTERNAL with a publication as any other. Its rule becomes active when the success RESPONSE passes, so that
//! a refusal on the way leaves nothing open. Only a rule of the policy allows it.
//!
//! The external port outlives its session for a time (RFC 6887 §15): packets for the former holder shall not reach another host. And a node
//! that has lost its sessions finds its ports again by the lease key of the publication.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::node::Prefix;
use signalbox_core::pinhole::{Endpoint, Sender};
use signalbox_core::ports::Binding;
use signalbox_core::slab::Key;
use signalbox_core::{PathCoupled, invariant};
use signalbox_resources::{End, Resources};

use super::Natfw;
use super::check::{Refused, TCP};
use super::create::Arrived;
use super::external::Receiver;
use super::plan::Plan;
use super::session::{Request, Session};
use crate::wire::{DataTerminal, Filter, Info, PUBLICATION, Publication, RuleAction};

/// How long a port is kept for the end inside that had it: the time that flows of it may pause (RFC 4787 REQ-5, RFC 5382 REQ-5).
const KEPT: Duration = Duration::from_secs(120);
const KEPT_TCP: Duration = Duration::from_secs(124 * 60);
/// One part in so many of the ports is kept for former holders at most.
const KEPT_PART: u32 = 4;

/// The initiator of a publication, and its lease key.
pub(super) type Lessee = (IpAddr, [u8; 8]);

impl From<Filter> for Sender {
    fn from(filter: Filter) -> Self {
        Self { from: Prefix { addr: filter.address, len: filter.prefix }, port: filter.port }
    }
}

/// The refusal of a publication.
pub(super) fn refused() -> Refused {
    Refused::of(Info::POLICY_CONFLICT, PUBLICATION)
}

/// Whether a publication can be one for this receiver.
pub(super) fn check(request: &Request, receiver: &Receiver, terminal: &DataTerminal) -> Result<(), Refused> {
    let Some(publication) = request.publication() else { return Ok(()) };
    let mut filters = publication.filters().peekable();
    let filtered = filters.peek().is_some();
    let of_family = filters.all(|filter| filter.address.is_ipv4() == receiver.address.is_ipv4());
    let named = receiver.senders.len > 0 || terminal.ports().sender.is_some();
    let wrong = request.efi.action == RuleAction::DENY
        || request.proxy
        || !of_family
        || filtered && (named || !request.icmp_types().is_empty())
        || terminal.spi().is_some();
    if wrong { Err(refused()) } else { Ok(()) }
}

/// Whether an edge may grant this place.
pub(super) fn takes(publication: &Publication<'_>, place: Endpoint) -> bool {
    let address = publication.address().is_none_or(|wish| place.address == IpAddr::V4(wish));
    let port = publication.port().is_none_or(|wish| place.port == Some(wish));
    !publication.exactly() || address && port
}

impl Request {
    /// Whether the packets of a CREATE come from senders that its publication names, if it names any.
    pub(super) fn admits(&self, flow: &PathCoupled) -> bool {
        let Some(publication) = self.publication() else { return true };
        let mut senders = publication.filters().map(Sender::from).peekable();
        let names = |sender: Sender| {
            sender.from.len <= flow.src_prefix
                && sender.from.contains(flow.src)
                && sender.port.is_none_or(|port| flow.src_port == Some(port))
        };
        senders.peek().is_none() || senders.any(names)
    }
}

impl Session {
    /// What a later session of the same peer may take it over by.
    pub(super) fn lessee(&self) -> Option<Lessee> {
        let key = self.request.publication()?.key()?;
        (!self.begins_here()).then_some((self.source, key))
    }
}

impl Natfw {
    /// The external port of the session that a request takes over, which becomes free for it, and that session. `None`: there is none.
    pub(super) fn take_lease_over(
        &mut self,
        from: &Arrived<'_, '_>,
        publication: Option<&Publication<'_>>,
        (inside, protocol): (Endpoint, Option<u8>),
        resources: &mut Resources,
    ) -> Option<(u16, Option<Key>)> {
        let lessee = (from.received.peer_address?, publication?.key()?);
        let former = self.lessees.get(&lessee).copied().filter(|_| from.former.is_none())?;
        let session = invariant!(self.sessions.get(former), "a lessee has a session")?;
        let reserved = session.plan.reserved().filter(|reserved| reserved.protocol == protocol)?;
        if session.id == from.received.session {
            return None;
        }
        let port = self.ports.port(session.plan.lease?)?;
        // The same end inside has the same lease. The former session goes when this one is granted, so that flows go on.
        if reserved.inside == inside {
            return Some((port, Some(former)));
        }
        resources.because(End::Replaced);
        self.close(former, resources);
        let end = (reserved.inside.address, protocol?, reserved.inside.port?);
        if let Some(lease) = self.left.take(&end) {
            self.ports.release(lease);
        }
        Some((port, None))
    }

    /// A session was granted: the one that it replaces ends.
    pub(super) fn end_replaced(&mut self, key: Key, resources: &mut Resources) {
        let external = self.sessions.get_mut(key).and_then(|session| session.plan.external.as_mut());
        let replaced = external.and_then(|external| external.replaces.take());
        // It may have ended meanwhile.
        if let Some(replaced) = replaced.filter(|replaced| self.sessions.get(*replaced).is_some()) {
            resources.because(End::Replaced);
            self.close(replaced, resources);
        }
    }

    /// Keeps the port of a publication that ends for the end inside that had it.
    pub(super) fn hold_back(&mut self, plan: &Plan) {
        let Some((lease, published)) = plan.lease.zip(plan.published()) else { return };
        let (Some(protocol), Some(port), false) =
            (published.protocol, published.inside.port, published.second)
        else {
            return;
        };
        let Some(external) = invariant!(self.ports.port(lease), "a lease has a port") else { return };
        if self.left.len() >= (self.ports.limit() / KEPT_PART) as usize {
            tracing::debug!(
                port,
                external,
                reason = "too many are kept",
                "port of a former publication not kept"
            );
            return;
        }
        let binding = Binding { address: published.inside.address, protocol, port, external };
        let time = if protocol == TCP { KEPT_TCP } else { KEPT };
        self.ports.hold(lease);
        if let Some(former) = self.left.keep(self.now, time, &binding, lease) {
            self.ports.release(former);
        }
    }
}
