//! Reception of messages: they are cut out of the stream by their length, and given to their state machine (RFC 5971
//! §4.3.1, §5.4).

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use signalbox_core::shares::source;
use signalbox_core::slab::Key;
use signalbox_core::{Mri, NslpId, SessionId, invariant};

use super::machine::End;
use super::{Associations, Transport};
use crate::engine::Gist;
use crate::engine::io::ChannelId;
use crate::engine::receive::{Arrival, Subject};
use crate::engine::routing::State;
use crate::wire::{
    Encapsulation, GistError, HEADER_LENGTH, Header, Infos, Message, MessageType, Nli, PORT, error_object_for,
};

/// Whether the channel is read further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    On,
    /// The next message is for a blocked application.
    Stopped,
    /// The association was removed.
    Ended,
}

/// Treatment of data for a blocked application (RFC 5971 §4.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blocked {
    /// It stays in the association, and reading stops.
    Wait,
    /// It is delivered, because the association ends.
    Deliver,
}

impl Gist {
    /// Takes octets of a channel (RFC 5971 §5.4). GIST-4.3.1-01, GIST-5.4-01, GIST-5.4-04.
    pub(in crate::engine) fn channel_octets(&mut self, channel: ChannelId, octets: &[u8]) {
        let Some(key) = self.associations.of_channel(channel) else { return };
        let association =
            invariant!(self.associations.live_mut(key), "the association of a channel has not ended");
        let Some(association) = association else { return };
        if !association.is_up() {
            return; // a channel is connected before it has octets
        }
        if association.transport == Transport::Sctp {
            let whole = octets.first_chunk().is_some_and(|header| length(header) == octets.len());
            if !whole {
                // SCTP keeps message boundaries, so anything else than one whole message is malformed.
                self.rx_associated(key, octets);
                return;
            }
        }
        if association.incoming.is_empty() {
            let (used, flow) = self.read_messages(key, octets, Blocked::Wait);
            self.keep_unread(key, octets.get(used..).unwrap_or_default(), flow);
            return;
        }
        let mut incoming = core::mem::take(&mut association.incoming);
        let remote = association.remote;
        self.associations.release_unread(remote, incoming.len());
        incoming.extend_from_slice(octets);
        let stopped = self.associations.live(key).is_some_and(|a| !a.reading);
        let (used, flow) =
            if stopped { (0, Reading::Stopped) } else { self.read_messages(key, &incoming, Blocked::Wait) };
        incoming.drain(..used);
        self.put_back(key, incoming, flow);
    }

    /// Processes all whole messages at the start of `octets`; returns the number of their octets.
    fn read_messages(&mut self, key: Key, octets: &[u8], blocked: Blocked) -> (usize, Reading) {
        let mut used = 0;
        loop {
            let rest = octets.get(used..).unwrap_or_default();
            let Some(header) = rest.first_chunk() else { return (used, Reading::On) };
            if Header::parse(header).is_err() {
                // Its length is not valid, so the start of the next message is not known.
                self.rx_associated(key, rest);
                self.close_channel(key.index(), false);
                self.end_association(key, End::Failure, true);
                return (octets.len(), Reading::Ended);
            }
            let Some(message) = rest.get(..length(header)) else { return (used, Reading::On) };
            if blocked == Blocked::Wait && self.is_blocked(header) {
                return (used, Reading::Stopped);
            }
            used += message.len();
            self.rx_associated(key, message);
            if self.associations.live(key).is_none() {
                return (octets.len(), Reading::Ended);
            }
        }
    }

    /// Whether a message is data for a blocked application.
    fn is_blocked(&self, header: &[u8; HEADER_LENGTH]) -> bool {
        let [.., n1, n0, kind, _] = *header;
        kind & 0x7f == MessageType::DATA.0
            && self.associations.is_blocked(NslpId(u16::from_be_bytes([n1, n0])))
    }

    fn keep_unread(&mut self, key: Key, rest: &[u8], flow: Reading) {
        if flow == Reading::Stopped || !rest.is_empty() {
            self.put_back(key, rest.to_vec(), flow);
        }
    }

    /// Stores octets that were not processed, within the share of their source in the limit for all associations. Those that were
    /// may have ended the association.
    fn put_back(&mut self, key: Key, rest: Vec<u8>, flow: Reading) {
        let Some(association) = self.associations.live_mut(key) else { return };
        if flow == Reading::Stopped && association.reading {
            association.reading = false;
            self.out.read_channel(association.channel, false);
        }
        let (remote, length) = (association.remote, super::octets(rest.len()));
        if self.associations.unread.take_many(source(remote), length).is_err() {
            let association =
                invariant!(self.associations.live(key), "an association stands until it is given up");
            let Some(association) = association else { return };
            self.counters.associations_overrun += 1;
            tracing::debug!(channel = association.channel.0, peer = %association.remote, reason = "limit of incomplete messages", "messaging association given up");
            self.close_channel(key.index(), true);
            return self.end_association(key, End::Failure, true);
        }
        if let Some(association) =
            invariant!(self.associations.live_mut(key), "octets are stored in an association that stands")
        {
            association.incoming = rest;
        }
    }

    /// Blocks or unblocks an application (RFC 5971 §4.1.1). Associations with messages for a blocked application are not
    /// read, so that flow control stops the sender. GIST-4.1.1-01,
    /// GIST-4.1.1-03.
    pub(in crate::engine) fn block(&mut self, nslp: NslpId, blocked: bool) {
        let all = &mut self.associations.blocked;
        all.retain(|other| *other != nslp);
        if blocked {
            all.push(nslp);
            return;
        }
        let stopped = self.associations.slab.iter().filter(|(_, a)| !a.reading);
        for key in stopped.map(|(key, _)| key).collect::<Vec<_>>() {
            // A message of another one may have ended it.
            let Some(association) = self.associations.live_mut(key) else { continue };
            association.reading = true;
            let incoming = core::mem::take(&mut association.incoming);
            let (channel, remote) = (association.channel, association.remote);
            self.associations.release_unread(remote, incoming.len());
            let (used, flow) = self.read_messages(key, &incoming, Blocked::Wait);
            if flow == Reading::On {
                self.out.read_channel(channel, true);
            } else if let Some(association) = self.associations.live_mut(key) {
                association.reading = false;
            }
            self.keep_unread(key, incoming.get(used..).unwrap_or_default(), flow);
        }
    }

    /// Delivers messages that wait for a blocked application, before their association is removed.
    pub(super) fn deliver_waiting(&mut self, key: Key) {
        let Some(association) = self.associations.live_mut(key).filter(|a| !a.reading) else { return };
        let incoming = core::mem::take(&mut association.incoming);
        let remote = association.remote;
        self.associations.release_unread(remote, incoming.len());
        self.read_messages(key, &incoming, Blocked::Deliver);
    }

    /// Takes one message of an association (RFC 5971 §6.4 rule 2): the same checks as for datagrams, then the state machine of
    /// its type. GIST-6.4-06, GIST-5.5-03.
    pub(super) fn rx_associated(&mut self, key: Key, octets: &[u8]) {
        let index = key.index();
        let association =
            invariant!(self.associations.live(key), "a message is taken of an association that stands");
        let Some(association) = association else { return };
        let a = Arrival {
            src: SocketAddr::new(association.remote, PORT),
            dst: SocketAddr::new(association.local, PORT),
            ifindex: association.ifindex,
            ttl: 0,
            tos: 0,
            options: &[],
            octets,
            local: true,
            encapsulation: Encapsulation::Association,
            association: index,
        };
        let header = match Header::parse(octets) {
            Ok(header) => header,
            Err(error) => return self.malformed(&a, &error),
        };
        // GIST-4.3.1-08
        if header.hops == 0 {
            self.counters.hops_exceeded += 1;
            dropped!(a, "GIST hop count is 0");
            return self.refuse(&a, GistError::HOP_LIMIT_EXCEEDED, Infos::NONE);
        }
        let of_application = !matches!(header.kind, MessageType::ERROR | MessageType::MA_HELLO);
        // GIST-4.3.4-03
        if of_application && self.applications.registration(header.nslp).is_none() {
            self.counters.unknown_nslp += 1;
            dropped!(a, "unknown NSLPID");
            if header.kind != MessageType::RESPONSE {
                self.refuse(&a, GistError::UNKNOWN_NSLPID, Infos::NONE);
            }
            return;
        }
        let message = match Message::parse(octets, Encapsulation::Association) {
            Ok(message) => message,
            Err(error) => return self.malformed(&a, &error),
        };
        self.counters.associated_received += 1;
        self.peer_answered(index);
        if message.header.kind == MessageType::MA_HELLO {
            return self.ma_rx_hello(index, message.hello_id.unwrap_or(0), message.header.r);
        }
        self.ma_rx_message(index);
        if let Some(error) = &message.error {
            return self.rx_error(&a, error, message.nat_traversal.as_ref());
        }
        let (Some(mri), Some(session)) = (message.mri, message.session) else { return };
        self.dispatch_associated(key, &a, &message, &mri.mri, session);
    }

    fn malformed(&mut self, a: &Arrival<'_>, error: &crate::error::DecodeError) {
        self.counters.malformed += 1;
        tracing::debug!(peer = %a.src, reason = %error, "message dropped");
        if let Some(object) = error_object_for(error, a.octets, a.encapsulation) {
            self.send_error(a, object);
        }
    }

    fn dispatch_associated(
        &mut self,
        key: Key,
        a: &Arrival<'_>,
        message: &Message<'_>,
        mri: &Mri,
        session: SessionId,
    ) {
        // Data has no NLI; only the address of the peer is needed (GIST-5.1-17).
        let address = self.associations.get(key.index()).and_then(|a| Some(a.peer()?.interface));
        let unnamed = Nli {
            peer_identity: &[],
            ip_ttl: 0,
            validity_ms: 1,
            interface: address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        };
        let nli = message.nli.unwrap_or(unnamed);
        let mut subject = Subject { mri: *mri, session, nslp: message.header.nslp, nli, foreign: None };
        let mut a = *a;
        if self.may_be_foreign(message) {
            self.translate(&mut a, message, &mut subject);
        }
        if message.nli.is_some() && !self.is_possible_peer(subject.nli.interface) {
            self.counters.malformed += 1;
            dropped!(a, subject, "NLI address cannot be a peer's");
            return;
        }
        tracing::trace!(
            session = %subject.session, peer = %a.src, kind = %message.header.kind, "message received"
        );
        match message.header.kind {
            MessageType::RESPONSE => self.rx_response(&a, message, &subject),
            MessageType::CONFIRM => self.rx_confirm_associated(key, &a, message, &subject),
            _ => self.rx_data_associated(&a, message, &subject),
        }
    }

    /// Data over an association: the delivery checks of RFC 5971 §4.3.2 in their order. GIST-4.3.2-11.
    fn rx_data_associated(&mut self, a: &Arrival<'_>, message: &Message<'_>, subject: &Subject<'_>) {
        let Some(data) = message.nslp_data else { return };
        // Check 1: explicitly routed. GIST-4.3.2-12.
        if message.header.e {
            self.counters.data_unchecked += 1;
            return self.deliver_unchecked(a, message, subject, data);
        }
        // Check 3 is before check 2: of a session without state there is no association that the message could have. "No
        // Routing State" (§4.4.6) makes the peer query again, "Incorrectly Delivered" does not. While a handshake of this node
        // starts again, Data of the former peer is still delivered.
        let direction = subject.mri.direction().inverted();
        let found = self.records.find(&subject.mri, subject.session, subject.nslp);
        let Some(key) = found.filter(|key| self.records.state(*key, direction) != State::None) else {
            self.counters.data_without_state += 1;
            dropped!(a, subject, "no routing state");
            return self.refuse_without_state(a);
        };
        // Check 2: not of this association. GIST-4.3.2-13, GIST-A.4.4.4-01.
        if !self.may_arrive_over(key, direction, a.association) {
            self.counters.data_misdelivered += 1;
            dropped!(a, subject, "association is not that of the session");
            return self.refuse(a, GistError::INCORRECTLY_DELIVERED, Infos::NONE);
        }
        self.counters.data_received += 1;
        self.deliver(a, message, subject, data, Some((key, direction)));
        if self.records.state(key, direction).is_querying() {
            self.restart_inactivity(key, direction);
        }
    }
}

impl Associations {
    fn release_unread(&mut self, remote: IpAddr, count: usize) {
        self.unread.release_many(source(remote), super::octets(count));
    }
}

/// Octets of the message that begins with this header. The version was checked, or will be.
const fn length(header: &[u8; HEADER_LENGTH]) -> usize {
    let [_, _, l1, l0, ..] = *header;
    HEADER_LENGTH + u16::from_be_bytes([l1, l0]) as usize * 4
}
