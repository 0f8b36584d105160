//! Received Error messages (RFC 5971 §5.6, A.4).

use signalbox_core::service::{NetworkEvent, SendError};
use signalbox_core::slab::Key;
use signalbox_core::{Direction, Mri, invariant};

use super::Gist;
use super::association::Need;
use super::receive::Arrival;
use super::routing::{NONE, State};
use crate::wire::{ErrorCode, ErrorObject, Header, MessageType, NatTraversal};

impl Gist {
    /// Takes an Error (RFC 5971 §5.6). It contains the application (GIST-5.6-10), flow and session of the message that it is
    /// about. An Error that matches no state is discarded (GIST-4.4.6-04, GIST-4.4.6-07, GIST-6.1-09). An Error without
    /// flow and session is only counted. The reaction depends on the error, not on its class (GIST-A.4.3-02).
    ///
    /// Errors can end established state. Those about messages to the peer, and "No Routing State", must come from the peer. Each
    /// router on the path can refuse a Query, as long as this node waits for the Response.
    pub(super) fn rx_error(
        &mut self,
        a: &Arrival<'_>,
        error: &ErrorObject<'_>,
        nat: Option<&NatTraversal<'_>>,
    ) {
        let subject = error.original().zip(error.mri()).zip(error.session);
        let found = subject.and_then(|((header, mri), session)| {
            Some((header, self.find_in_error(nat, &mri, session, header.nslp)?))
        });
        let Some((header, (key, mri))) = found else {
            self.counters.errors_stray += 1;
            tracing::debug!(error = ?error.error, reason = "no such session", "Error dropped");
            return;
        };
        let counts = match header.kind {
            MessageType::QUERY => matches!(
                self.records.state(key, mri.direction()),
                State::Resolving | State::AwaitingResponse | State::AwaitingRefresh
            ),
            _ => self.is_of_peer(a, key, mri.direction()),
        };
        let handled = match error.error.code {
            ErrorCode::NO_ROUTING_STATE if !self.is_of_peer(a, key, mri.direction()) => {
                self.er_of_former_peer(a, key, mri.direction())
            }
            ErrorCode::NO_ROUTING_STATE => self.er_no_routing_state(key, mri.direction()),
            _ if !counts => false,
            // The peer has the association but not the session over it: its routing state is lost as well.
            ErrorCode::INCORRECTLY_DELIVERED
                if header.kind == MessageType::DATA
                    && self.records.state(key, mri.direction()).is_querying() =>
            {
                self.er_no_rsm(key, mri.direction());
                true
            }
            ErrorCode::MESSAGE_TOO_LARGE if self.er_message_too_large(key, mri.direction(), &header) => true,
            ErrorCode::ENDPOINT_FOUND => self.er_endpoint_found(key, mri.direction(), &header),
            _ => self.er_other(key, &header, &mri, error),
        };
        if handled {
            self.counters.errors_received += 1;
        } else {
            self.counters.errors_stray += 1;
            tracing::debug!(session = ?error.session, error = ?error.error, reason = "does not fit the state", "Error dropped");
        }
    }

    /// Whether an Error about established state comes from the peer: over the association of the session while there is one,
    /// otherwise from the address of the peer. The address of a peer behind a NAT is translated on the way.
    fn is_of_peer(&self, a: &Arrival<'_>, key: Key, direction: Direction) -> bool {
        if !self.records.state(key, direction).is_established() {
            return true;
        }
        match self.association_of(key, direction) {
            Some(_) => a.association != NONE && self.may_arrive_over(key, direction, a.association),
            None if a.association != NONE || self.nat.has(key, direction) => true,
            None => {
                let peer =
                    self.records.get(key).and_then(|record| self.peers.peer(record.half(direction).peer));
                invariant!(peer, "established state has a peer")
                    .is_some_and(|peer| peer.address.ip() == a.src.ip())
            }
        }
    }

    /// "No Routing State" of another peer of this node. It may be back in the path after a restart, when the Queries passed it
    /// meanwhile and found the node behind it. The state stays, and a Query shows which node is the peer.
    fn er_of_former_peer(&mut self, a: &Arrival<'_>, key: Key, direction: Direction) -> bool {
        let known = a.association == NONE && self.peers.is_known(a.src.ip());
        if !known || self.records.state(key, direction) != State::Established {
            return false;
        }
        self.start_refresh(key, direction);
        true
    }

    /// `er_NoRSM` (RFC 5971 §6.2, §6.3) about a message of this node in `direction`.
    fn er_no_routing_state(&mut self, key: Key, direction: Direction) -> bool {
        let state = self.records.state(key, direction);
        if state.is_querying() {
            self.er_no_rsm(key, direction);
        } else if state.is_responding() {
            self.end_responding(key, direction);
        } else {
            return false;
        }
        true
    }

    /// A Query with payload is too large for the path: the payload is queued for an association, which a Query without
    /// payload requests (RFC 5971 §4.3.4). GIST-4.3.4-10.
    fn er_message_too_large(&mut self, key: Key, direction: Direction, header: &Header) -> bool {
        if header.kind != MessageType::QUERY || !self.associations.enabled() {
            return false;
        }
        let Some(pending) = self.records.get_mut(key).and_then(|r| r.pending.as_mut()) else { return false };
        if !core::mem::take(&mut pending.query_mut(direction).piggybacked) {
            return false;
        }
        let first = pending.queue(direction).front_mut();
        let Some(first) = invariant!(first, "the payload of Queries is the first queued message") else {
            return false;
        };
        first.need = first.need.max(Need::Association);
        if self.records.state(key, direction) == State::AwaitingResponse {
            self.timeout_no_response(key, direction);
        }
        true
    }

    /// The end of the flow does not have the application, so this node is the last one with it (RFC 5971 §4.3.4, B.4).
    /// GIST-B.4-01.
    fn er_endpoint_found(&mut self, key: Key, direction: Direction, header: &Header) -> bool {
        if header.kind != MessageType::QUERY || !self.records.state(key, direction).is_querying() {
            return false;
        }
        self.notify(key, direction, NetworkEvent::LastNode);
        self.end_handshake(key, direction, SendError::NoNextNode);
        true
    }

    /// Any other error. A refused Query ends its handshake, since the same Query would be refused again (for 9/4 RFC 5971
    /// §7.2.1 requires it: GIST-7.2.1-04). Refused Data is reported to the application.
    fn er_other(&mut self, key: Key, header: &Header, mri: &Mri, error: &ErrorObject<'_>) -> bool {
        let direction = mri.direction();
        let state = self.records.state(key, direction);
        let peer_error = SendError::Peer { code: error.error.code.0, subcode: error.error.subcode };
        match header.kind {
            MessageType::QUERY | MessageType::CONFIRM if state.is_querying() => {
                self.end_handshake(key, direction, peer_error);
            }
            MessageType::RESPONSE if state.is_responding() => self.end_responding(key, direction),
            MessageType::DATA if state != State::None => {
                self.notify(key, direction, NetworkEvent::CommunicationFailure);
            }
            _ => return false,
        }
        true
    }
}
