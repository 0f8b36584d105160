//! Smaller packets, where a link of the path is smaller than the packets that were asked for.
//!
//! RSVP's ADSPEC brings the MTU of the path to the receiver before it reserves (RFC 2215 §3.6). A RESERVE of the QoS NSLP brings a size that
//! each node refuses which cannot carry it. A user who gives no size wants any packets of the path: a request for packets of 1500
//! octets is then repeated for smaller ones.
//!
//! If the receiver reserves, it gets the refusals, and repeats its RESERVE in the same way. It does not know whether the user at the
//! sender gave the size: that node refuses a RESERVE for smaller packets if the user did. The QUERY is not judged on its way.

use signalbox_core::invariant;
use signalbox_core::node::Route;
use signalbox_core::slab::Key;
use signalbox_resources::Resources;

use super::Qos;
use super::command::ReserveRequest;
use super::event::Failure;
use super::rmf::{self, CarriedBy};
use super::session::{Marks, Origin, RequestKind};
use crate::wire::{Info, Message};

/// Sizes that are tried where the refusal names no MTU: those of usual links and tunnels.
const USUAL: [u32; 7] = [1492, 1480, 1450, 1420, 1400, 1280, 576];
/// Most requests for smaller packets after one request of the user: a node that names an octet less each time ends here.
const MOST_TRIES: u8 = 8;
/// What stands before the MTU in the note of a refusal.
const NAMES: &str = " an MTU of ";

/// The note of a refusal because of the size of packets: the link, its MTU and the remedy.
pub(super) fn note(link: Option<&str>, mtu: u32) -> String {
    let link = link.unwrap_or("the link");
    format!("{link} has{NAMES}{mtu} octets: ask for packets of at most {mtu} octets (--max-packet {mtu})")
}

/// The MTU that a note names.
pub(super) fn mtu_of(note: &str) -> Option<u32> {
    let (_, rest) = note.split_once(NAMES)?;
    rest.split(' ').next()?.parse().ok()
}

/// What was asked for.
#[derive(Debug, Clone, Copy)]
struct Asked {
    rate: u64,
    min_policed: u32,
    max_packet: u32,
}

impl Asked {
    /// By a user; `None`: the user gave the size.
    fn by(request: &ReserveRequest) -> Option<Self> {
        let qos = &request.qos;
        let asked = Self { rate: qos.rate, min_policed: qos.min_policed, max_packet: qos.max_packet };
        (!qos.fixed_packet).then_some(asked)
    }

    /// By a QSPEC.
    fn in_qspec(qspec: &[u8]) -> Option<Self> {
        let traffic = rmf::desired(qspec)?;
        let (rate, min_policed, max_packet) = (traffic.rate, traffic.min_policed, traffic.max_packet);
        Some(Self { rate, min_policed, max_packet })
    }
}

/// The size for the next attempt after a refusal; `None`: the size is not the reason, or nothing smaller is left.
fn next_size(asked: Asked, failure: &Failure) -> Option<u32> {
    let refused =
        (failure.class, failure.code) == (Info::RESERVATION_FAILURE.class.0, Info::RESERVATION_FAILURE.code);
    if !refused {
        return None;
    }
    let least = asked.min_policed.max(1);
    let smaller = |size: &u32| *size < asked.max_packet && *size >= least;
    if let Some(mtu) = failure.rule.as_deref().and_then(mtu_of) {
        return Some(mtu).filter(smaller);
    }
    // A node of another make has the rate, refuses all the same, and gives no reason.
    let has_rate = failure.available.is_some_and(|available| available >= asked.rate);
    USUAL.into_iter().find(smaller).filter(|_| has_rate && failure.rule.is_none())
}

impl Qos {
    /// The QSPEC for smaller packets, after a refusal of a user's request, or of what this node asks for because the sender of the flow
    /// wants it; `None`: the refusal counts.
    pub(super) fn smaller_request(
        &mut self,
        key: Key,
        kind: RequestKind,
        failure: &Failure,
    ) -> Option<Vec<u8>> {
        if kind != RequestKind::Reserve || !self.has(key, Marks::QNI) {
            return None;
        }
        let session = invariant!(self.sessions.get_mut(key), "a QNI has a session")?;
        let local = session.local.as_mut().filter(|local| !local.releasing && local.smaller < MOST_TRIES)?;
        let (size, qspec) = match &mut local.origin {
            Origin::Reserve(request) => {
                let size = next_size(Asked::by(request)?, failure)?;
                request.qos.max_packet = size;
                (size, rmf::initial(&request.qos, request.priority, CarriedBy::Reserve))
            }
            Origin::ForSender => {
                // Before the first RESERVE left, there is only what the QUERY said.
                let first = session.rare.init_qspec.as_deref().and_then(rmf::reserve_for);
                let last = Some(session.qspec.to_vec()).filter(|qspec| !qspec.is_empty()).or(first)?;
                let size = next_size(Asked::in_qspec(&last)?, failure)?;
                (size, rmf::with_packets(&last, size)?)
            }
            Origin::Query | Origin::ReverseDirection(_) | Origin::Aggregate(_) => return None,
        };
        local.smaller += 1;
        tracing::debug!(session = %session.id, size, reason = %failure, "asks for smaller packets");
        Some(qspec)
    }

    /// Why a user of this node does not accept the RESERVE of the receiver: it is for smaller packets than the user wants. `None`: the
    /// user does.
    pub(super) fn wants_larger(&self, key: Key, message: &Message<'_>) -> Option<String> {
        let local = invariant!(self.sessions.get(key), "a RESERVE's key is valid")?.local.as_ref()?;
        let Origin::Reserve(request) = &local.origin else { return None };
        let size = message.qspec.and_then(Asked::in_qspec)?.max_packet;
        (request.qos.fixed_packet && size < request.qos.max_packet).then(|| note(Some("the path"), size))
    }

    /// Repeats a request that a node further on refused, for smaller packets. False: the user gets the refusal.
    pub(super) fn asks_for_smaller(
        &mut self,
        key: Key,
        kind: RequestKind,
        failure: &Failure,
        resources: &mut Resources,
    ) -> bool {
        let Some(qspec) = self.smaller_request(key, kind, failure) else { return false };
        let Some(session) = invariant!(self.sessions.get(key), "a smaller request has a session") else {
            return false;
        };
        let ifindex = session.ifindex.unwrap_or_default();
        let route = Route {
            ifindex,
            src: session.mri().src(),
            gateway: None,
            mtu: self.interfaces.mtu(ifindex),
            local: session.ifindex.is_none(),
        };
        self.reserve_from_here(key, &qspec, &route, resources);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Flow, QosRequest};
    use super::*;

    fn request() -> ReserveRequest {
        ReserveRequest::new(Flow::to("192.0.2.9".parse().unwrap()), QosRequest::rate(1000))
    }

    fn asked() -> Asked {
        Asked::by(&request()).unwrap()
    }

    fn refused(rule: Option<String>, available: Option<u64>) -> Failure {
        let mut failure = super::super::response::own_failure(Info::RESERVATION_FAILURE, rule.as_deref());
        failure.available = available;
        failure
    }

    /// O04: the MTU of the refusal is the next size; without one, a node that has the rate is asked for the usual sizes.
    #[test]
    fn sizes_follow_the_refusal() {
        let named = refused(Some(note(Some("eth1"), 1420)), Some(1));
        assert_eq!(next_size(asked(), &named), Some(1420));
        let (rich, poor) = (refused(None, Some(1000)), refused(None, Some(999)));
        assert_eq!((next_size(asked(), &rich), next_size(asked(), &poor)), (Some(1492), None));
        let mut fixed = request();
        fixed.qos.fixed_packet = true;
        assert!(Asked::by(&fixed).is_none(), "the user gave the size");
        let told = refused(Some("buffer: all in use".to_owned()), Some(1000));
        assert_eq!(next_size(asked(), &told), None, "the reason is another one");
        let small = Asked { max_packet: 576, ..asked() };
        assert_eq!(
            (next_size(small, &rich), next_size(small, &named)),
            (None, None),
            "nothing smaller is left"
        );
        let large = Asked { min_policed: 1450, ..asked() };
        assert_eq!(next_size(large, &named), None, "less than the minimum policed unit");
        let other = super::super::response::own_failure(Info::AUTHORISATION, named.rule.as_deref());
        assert_eq!(next_size(asked(), &other), None);
    }
}
