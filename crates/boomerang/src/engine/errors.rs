//! ICMP errors: those that this node sends about messages that it drops, and those about its own requests.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use signalbox_core::node::{NoRoute, Route};
use signalbox_core::packet::Received;
use signalbox_core::shares::source;
use signalbox_resources::Resources;

use super::Boomerang;
use super::io::{BoomerangEvent as Event, Unreachable};
use super::outbox::{Envelope, TTL};
use super::session::State;
use crate::wire::{Dropped, Ends, checksum_is_valid, edit, icmp_error};

/// Most errors to one receiver in a second, and to all of them: the sources of messages can be forged.
pub(super) const RATE: u32 = 1000;
pub(super) const TOTAL_RATE: u32 = 4000;

/// The report to the sender of a message for the answer to a route lookup; `None`: no report.
pub(super) const fn of_route(result: Result<Route, NoRoute>) -> Option<Dropped> {
    match result {
        Err(NoRoute::Prohibited) => Some(Dropped::Prohibited),
        Err(NoRoute::Unreachable) => Some(Dropped::NoRoute),
        // The lookup failed, or the interface is not known yet.
        Err(NoRoute::Failed) | Ok(_) => None,
    }
}

/// Whether an error may be sent about a packet with these addresses (RFC 1122 §3.2.2, RFC 4443 §2.4).
fn may_be_reported(ends: &Ends) -> bool {
    let one_host = match ends.src {
        IpAddr::V4(v4) => {
            !v4.is_broadcast() && !v4.is_multicast() && !v4.is_unspecified() && !v4.is_loopback()
        }
        IpAddr::V6(v6) => !v6.is_multicast() && !v6.is_unspecified() && !v6.is_loopback(),
    };
    one_host && !ends.dst.is_multicast()
}

impl Boomerang {
    /// Informs the sender of a passing message that this node drops it, as a router without Boomerang does.
    pub(super) fn report_dropped(&mut self, packet: &Received<'_>, dropped: Dropped) {
        let about = Ends { src: packet.src.ip(), dst: packet.dst.ip() };
        if !may_be_reported(&about) {
            return;
        }
        if !(self.errors.allow(self.now, &source(about.src)) && self.all_errors.allow(self.now)) {
            self.counters.errors_limited += 1;
            tracing::debug!(peer = %about.src, reason = "too many of its receiver", "ICMP error not sent");
            return;
        }
        // The kernel chooses the address of the interface towards the sender, and computes the checksum of ICMPv6.
        let src = match about.src {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let ends = Ends { src, dst: about.src };
        let mut octets = Vec::new();
        icmp_error::compose(dropped, packet, &mut octets);
        edit::set_checksum(&mut octets, &ends);
        self.counters.errors_sent += 1;
        self.out.send(Envelope { ends, ttl: TTL, tos: 0, own: false, by: None }, &[], &octets);
    }

    /// A Destination Unreachable came to this node. If it is about the set-up of a session, the session ends. A session
    /// that the path has granted repeats its message, because the error may be a short failure, and anybody can forge it: it names the
    /// router to its user if no reply comes at all. BOOM-G42-02.
    pub(super) fn on_unreachable(&mut self, packet: &Received<'_>, resources: &mut Resources) {
        let ends = Ends { src: packet.src.ip(), dst: packet.dst.ip() };
        if !checksum_is_valid(&ends, packet.payload) {
            self.counters.checksum += 1;
            tracing::debug!(peer = %ends.src, reason = "wrong checksum", "Destination Unreachable dropped");
            return;
        }
        let Some(error) = icmp_error::Unreachable::parse(packet.payload, ends.is_ipv6()) else { return };
        if error.identifier != self.identifier {
            return;
        }
        let Some(key) = self.by_transaction.get(&error.transaction).copied() else { return };
        let Some(session) = self.sessions.get(key).filter(|session| session.ends == error.ends) else {
            return;
        };
        self.counters.unreachable += 1;
        let report = Unreachable { node: ends.src, code: error.code };
        tracing::debug!(far_end = %session.ends.dst, node = %report.node, reason = %report, "request lost");
        if session.state == State::Closing {
            // The release went as far as it could.
            self.finish(key, Event::Closed { confirmed: false });
            self.drop_session(key);
        } else if session.granted.is_none() && session.id.is_some() {
            self.finish(key, Event::Unreachable(report));
            self.release(key, resources);
        } else if let Some(session) = self.sessions.get_mut(key) {
            session.unreachable = Some(report);
        }
    }
}
