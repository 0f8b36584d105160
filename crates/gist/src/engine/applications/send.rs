//! Sending for applications (RFC 5971 §4.3.3, B.1).

use core::net::IpAddr;

use signalbox_core::node::{NoRoute, Route};
use signalbox_core::service::{
    MessageHandle, MessageStatus, Security, SendError, SendMessage, StateHandle, TransferAttributes,
};
use signalbox_core::shares::source;
use signalbox_core::slab::Key;
use signalbox_core::stamp::Stamp;
use signalbox_core::{Causer, Direction, Mri, NslpId, SessionId, Time, invariant};

use crate::engine::Gist;
use crate::engine::association::{MAX_DATA, Need, Outcome};
use crate::engine::config::Config;
use crate::engine::outbox::{Envelope, Unsent};
use crate::engine::output::{
    Cause, flow_label, limit, nli, nli_ttl, normal, of_user, overhead, router_alert,
};
use crate::engine::routes::{Waiting, route_query};
use crate::engine::routing::{Egress, Queued, State};
use crate::wire::{Message, MessageType, PORT};

/// Octets of a Query's Stack-Proposal and Stack-Configuration-Data at most.
const MAX_STACKS: usize = 20 + 20;

/// A stateless message that waits for its route.
#[derive(Debug)]
pub(in crate::engine) struct Stateless {
    nslp: NslpId,
    session: SessionId,
    mri: Mri,
    data: Box<[u8]>,
    handle: Option<MessageHandle>,
    ip_ttl: Option<u8>,
    hops: Option<u8>,
}

/// Payload and attributes of one Data message.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct Outgoing<'a> {
    pub(in crate::engine) data: &'a [u8],
    pub(in crate::engine) handle: Option<MessageHandle>,
    pub(in crate::engine) ip_ttl: Option<u8>,
    pub(in crate::engine) hops: Option<u8>,
    /// Over an association: its loss is reported.
    pub(in crate::engine) reliable: bool,
    /// Over an association: the end of its timeout.
    pub(in crate::engine) deadline: Option<Time>,
}

impl Gist {
    /// `SendMessage` (RFC 5971 B.1). If the message cannot be sent, its status is reported at once, if it has a handle.
    pub(in crate::engine) fn send_message(&mut self, m: &SendMessage<'_>) {
        if let Err(error) = self.try_send(m) {
            self.counters.requests_refused += 1;
            tracing::debug!(session = %m.session, reason = ?error, "request to send refused");
            self.out.status((m.nslp, m.session), m.handle, MessageStatus::Failed(error));
        }
    }

    fn try_send(&mut self, m: &SendMessage<'_>) -> Result<(), SendError> {
        // GIST-4.3.3-02, GIST-B.1-06: hop count 0 is refused.
        let sane = m.hops != Some(0) && m.ip_ttl != Some(0) && m.data.len().is_multiple_of(4);
        if !sane || self.applications.registration(m.nslp).is_none() {
            return Err(SendError::Refused);
        }
        let need = self.need(m)?;
        let outgoing = Outgoing {
            data: m.data,
            handle: m.handle,
            ip_ttl: m.ip_ttl,
            hops: m.hops,
            reliable: m.attributes.reliable,
            deadline: m.timeout.map(|timeout| self.now + timeout),
        };
        if let Some(sii) = m.sii {
            let peer = self.peers.by_sii(sii).ok_or(SendError::NoNextNode)?;
            return self.send_explicitly(peer, m, &outgoing, need);
        }
        if m.attributes.stateless {
            if need > Need::Preferred {
                return Err(SendError::Refused);
            }
            return self.send_stateless(m);
        }
        let direction = m.mri.direction();
        let key = self.key_of(m);
        match key.map_or(State::None, |key| self.records.state(key, direction)) {
            State::None => self.tg_data_without_state(key, m, need),
            State::Established
            | State::AwaitingRefresh
            | State::RespondingEstablished
            | State::RespondingAwaitingRefresh => {
                let key = invariant!(key, "established state is that of a session");
                key.map_or(Ok(()), |key| self.send_along(key, direction, m, &outgoing, need))
            }
            State::Resolving | State::AwaitingResponse | State::RespondingAwaitingConfirm => {
                let key = invariant!(key, "a running handshake is that of a session");
                key.map_or(Ok(()), |key| self.store(key, direction, m, need))
            }
        }
    }

    /// The record of a message: by its state handle, or by a search.
    fn key_of(&self, m: &SendMessage<'_>) -> Option<Key> {
        m.state
            .map(|StateHandle(handle)| Key::from_u64(handle))
            .filter(|key| {
                self.records
                    .get(*key)
                    .is_some_and(|r| r.session == m.session && r.nslp == m.nslp && r.flow.is_of(&m.mri))
            })
            .or_else(|| self.records.find(&m.mri, m.session, m.nslp))
    }

    /// Node-SM, Idle, `tg_NSLPData` (RFC 5971 §6.1 rule 5): a Querying-SM is created. The message is refused if the flow ends
    /// at this node (GIST-4.2.1-03, GIST-4.3.3-01) or Q-mode is not possible (GIST-6.1-10, GIST-4.3.3-16). GIST-6.1-12.
    fn tg_data_without_state(
        &mut self,
        key: Option<Key>,
        m: &SendMessage<'_>,
        need: Need,
    ) -> Result<(), SendError> {
        if m.mri.direction() == Direction::Upstream {
            // GIST-5.8.1.3-01: upstream Queries are sent if the configuration and the routing method allow them.
            let may_ask = self.config.upstream_queries && matches!(m.mri, Mri::PathCoupled(_));
            if !may_ask && !self.interfaces.is_local(m.mri.src()) {
                return Err(SendError::NoStateUpstream);
            }
        }
        if self.interfaces.is_local(m.mri.target()) {
            return Err(SendError::FlowEndsHere);
        }
        if !has_real_addresses(&m.mri) {
            return Err(SendError::Refused);
        }
        let need = self.need_of_size(m, need)?;
        let key = match key {
            Some(key) => key,
            None => self.create(&m.mri, m.session, m.nslp).map_err(|_| SendError::Overload)?,
        };
        let direction = m.mri.direction();
        self.birth(key, direction);
        let stored = self.store(key, direction, m, need);
        if let Err(error) = stored {
            self.remove_half(key, direction, error);
            return Err(error);
        }
        if self.config.piggyback
            && let Some(pending) = self.records.pending(key)
        {
            // GIST-6.2-03: a message that needs an association is queued for it.
            pending.query_mut(direction).piggybacked = !m.data.is_empty() && need <= Need::Preferred;
        }
        Ok(())
    }

    /// The transport that a message needs, without regard to its size (RFC 5971 §4.1.2). GIST-4.1.1-04, GIST-4.1.2-05,
    /// GIST-4.1.2-10.
    fn need(&self, m: &SendMessage<'_>) -> Result<Need, SendError> {
        let enabled = self.associations.enabled();
        let need = if m.attributes.security != Security::None {
            // Only TLS protects messages; without a port for TLS they are refused.
            if !self.associations.can_be_secure() {
                return Err(SendError::Refused);
            }
            Need::Secure
        } else if m.attributes.reliable {
            Need::Association
        } else if self.associations.are_preferred() {
            Need::Preferred
        } else {
            Need::Datagram
        };
        if need > Need::Preferred && !enabled {
            return Err(SendError::Refused);
        }
        if enabled && m.data.len() > MAX_DATA {
            return Err(SendError::TooLarge { max: MAX_DATA });
        }
        Ok(need)
    }

    /// The transport that a message needs by its size, if the path MTU is not known (RFC 5971 §4.3.3). GIST-4.3.3-05.
    fn need_of_size(&self, m: &SendMessage<'_>, need: Need) -> Result<Need, SendError> {
        if need > Need::Preferred {
            return Ok(need);
        }
        match self.check_size(m) {
            Ok(()) => Ok(need),
            Err(_) if self.associations.enabled() => Ok(Need::Association),
            Err(error) => Err(error),
        }
    }

    /// Whether the message fits into a datagram (RFC 5971 §4.3.3). GIST-4.3.3-07.
    fn check_size(&self, m: &SendMessage<'_>) -> Result<(), SendError> {
        let limit = usize::from(self.config.max_datagram);
        // A Query also has a cookie.
        let stacks = if self.associations.enabled() { MAX_STACKS } else { 0 };
        let cookie = if self.config.piggyback { 20 + stacks } else { 0 };
        let max = limit.saturating_sub(overhead(&m.mri, self.config.identity.len()) + cookie) & !3;
        if m.data.len() > max { Err(SendError::TooLarge { max }) } else { Ok(()) }
    }

    /// Queues a message until the handshake is complete: Querying-SM rule 1 (GIST-6.2-04), Responding-SM rule 7
    /// (GIST-6.3-07).
    pub(in crate::engine) fn store(
        &mut self,
        key: Key,
        direction: Direction,
        m: &SendMessage<'_>,
        need: Need,
    ) -> Result<(), SendError> {
        let need = self.need_of_size(m, need)?;
        let (now, most) = (self.now, self.config.max_queued_session);
        let from = self.source_of_messages(key, direction);
        let has_room = self.handshakes.has_room(from, m.data.len());
        let Some(pending) = self.records.pending(key) else { return Err(SendError::Overload) };
        let queue = pending.queue(direction);
        if queue.len() >= most || !has_room {
            self.counters.queue_full += 1;
            return Err(SendError::Overload);
        }
        queue.push_back(Queued {
            data: m.data.into(),
            handle: m.handle,
            deadline: m.timeout.map(|timeout| Stamp::after(now + timeout)),
            ip_ttl: m.ip_ttl,
            hops: m.hops,
            need,
            reliable: m.attributes.reliable,
            source: from,
        });
        self.handshakes.hold(from, m.data.len());
        self.arm(key);
        Ok(())
    }

    /// The source that causes messages of a session in a direction: the peer on its other side; `None`: this node.
    ///
    /// A peer with many sessions to nodes that do not answer would otherwise fill the queues of all handshakes.
    fn source_of_messages(&self, key: Key, direction: Direction) -> Option<IpAddr> {
        let record = invariant!(self.records.get(key), "a message is queued in a session that stands")?;
        let behind = record.half(direction.inverted()).peer;
        Some(source(self.peers.peer(behind)?.address.ip()))
    }

    /// Sends the queued messages of a direction in order (Querying-SM rule 4, Responding-SM rule 8). Returns whether
    /// messages are left that need another transport than the session has.
    pub(in crate::engine) fn send_stored(&mut self, key: Key, direction: Direction) -> bool {
        if self.waits_for_drain(key, direction) {
            return false;
        }
        let Some(record) =
            invariant!(self.records.get_mut(key), "queued messages are sent in a session that stands")
        else {
            return false;
        };
        let app_session = (record.nslp, record.session);
        let Some(pending) = &mut record.pending else { return false };
        let mut queue = core::mem::take(pending.queue(direction));
        let mut answered = core::mem::take(&mut pending.query_mut(direction).piggybacked);
        while let Some(mut queued) = queue.pop_front() {
            let (from, size) = (queued.source, queued.data.len());
            if core::mem::take(&mut answered) {
                // It was the payload of the Queries, and one of them was answered.
                self.handshakes.release(from, size);
                self.out.status(
                    app_session,
                    queued.handle,
                    MessageStatus::Sent(TransferAttributes::default()),
                );
                continue;
            }
            let outgoing = Outgoing {
                data: &queued.data,
                handle: queued.handle,
                ip_ttl: queued.ip_ttl,
                hops: queued.hops,
                reliable: queued.reliable,
                deadline: queued.deadline.map(|at| at.time(self.now)),
            };
            match self.send_established(key, direction, &outgoing, queued.need) {
                Outcome::Sent(Ok(())) => self.handshakes.release(from, size),
                Outcome::Sent(Err(error)) => {
                    self.fail_messages(app_session, [queued], error);
                    // The session may have ended with its association, and the messages behind end with it.
                    if self.records.state(key, direction) == State::None {
                        self.fail_messages(app_session, queue, error);
                        return false;
                    }
                }
                Outcome::Needs(need, _) => {
                    // Later messages stay behind it.
                    queued.need = need;
                    queue.push_front(queued);
                    if let Some(pending) = self.records.pending(key) {
                        *pending.queue(direction) = queue;
                    }
                    return true;
                }
            }
        }
        false
    }

    /// Sends Data along established state: Querying-SM rule 5 (GIST-6.2-10, GIST-6.2-13), Responding-SM rule 3
    /// (GIST-6.3-16, GIST-6.3-21). GIST-4.3.3-14: the destination is the peer's address and port.
    pub(in crate::engine) fn send_data(
        &mut self,
        key: Key,
        direction: Direction,
        outgoing: &Outgoing<'_>,
    ) -> Result<(), SendError> {
        if !self.may_send_for(key) {
            return Err(SendError::Overload); // GIST-5.3.3-22
        }
        let (now, validity) = (self.now, self.validity());
        let record = invariant!(self.records.get_mut(key), "Data is sent in a session that stands");
        let Some(record) = record else { return Err(SendError::NoNextNode) };
        let (nslp, session, mri) = (record.nslp, record.session, record.flow.mri(direction));
        let mri = self.nat.mri_for_peer(key, direction, mri);
        let half = record.half(direction);
        let peer = invariant!(self.peers.peer(half.peer), "established state has a peer");
        let egress = invariant!(self.peers.egress(half.egress), "established state has an egress");
        let (Some(peer), Some(egress)) = (peer, egress) else { return Err(SendError::NoNextNode) };
        let ttl = outgoing.ip_ttl.unwrap_or(self.config.ip_ttl);
        let ttl_in_nli = nli_ttl(direction, ttl, half.distance_or_zero());
        let hops = outgoing.hops.unwrap_or(self.config.hops);
        let mut message = Message::new(MessageType::DATA, nslp, hops);
        // GIST-5.3.1-07: behind a NAT the address in the NLI is another one.
        message.header.s = !self.nat.has(key, direction);
        message.mri = Some(mri.into());
        message.session = Some(session);
        message.nli = Some(nli(&self.config, validity, egress.address, ttl_in_nli));
        message.nslp_data = Some(outgoing.data);
        let limit = limit(&self.config, egress.mtu);
        let envelope = normal(&self.config, egress.address, peer.address, ttl);
        self.out
            .compose(envelope, &[], &message, limit)
            .map_err(|e| unsent(e, outgoing.data.len(), limit))?;
        self.counters.data_sent += 1;
        if half.state.is_querying() {
            record.start_inactive(direction, now);
        }
        let sent = MessageStatus::Sent(TransferAttributes::default());
        self.out.status((nslp, session), outgoing.handle, sent);
        Ok(())
    }

    /// Sends explicitly routed Data to the peer of an SII handle (RFC 5971 §7.1.4). It does not use routing state, and its
    /// E-flag is set. GIST-7.1.4-03, GIST-7.1.4-04.
    fn send_explicitly(
        &mut self,
        peer: u32,
        m: &SendMessage<'_>,
        outgoing: &Outgoing<'_>,
        need: Need,
    ) -> Result<(), SendError> {
        if need > Need::Preferred {
            return self.send_explicitly_over(peer, m, outgoing, need);
        }
        // What goes to a peer by its handle is mostly an answer to that peer.
        let causer = self.peers.peer(peer).map(|peer| Causer {
            ifindex: peer.ifindex,
            neighbor: peer.address.ip(),
            party: m.mri.src(),
        });
        if !self.may_send(Cause::Known(causer.unwrap_or_else(|| of_user(None)))) {
            return Err(SendError::Overload);
        }
        let validity = self.validity();
        let (mri, crosses_nat) = self.mri_for_explicit_peer(peer, m);
        // The peer has received this address in a handshake.
        let own_address = self.peers.own_address(peer).filter(|own| self.interfaces.is_local(*own));
        let peer = invariant!(self.peers.peer(peer), "a valid handle is that of a peer");
        let Some(peer) = peer else { return Err(SendError::NoNextNode) };
        let source = own_address.or_else(|| self.interfaces.address(peer.ifindex, peer.address.is_ipv6()));
        let source = source.ok_or(SendError::NoRoute)?;
        let ttl = outgoing.ip_ttl.unwrap_or(self.config.ip_ttl);
        let mut message = Message::new(MessageType::DATA, m.nslp, outgoing.hops.unwrap_or(self.config.hops));
        message.header.e = true;
        // GIST-5.3.1-07
        message.header.s = !crosses_nat;
        message.mri = Some(mri.into());
        message.session = Some(m.session);
        message.nli = Some(nli(&self.config, validity, source, nli_ttl(m.mri.direction(), ttl, 0)));
        message.nslp_data = Some(outgoing.data);
        let limit = limit(&self.config, self.interfaces.mtu(peer.ifindex));
        let envelope = normal(&self.config, source, peer.address, ttl);
        self.out
            .compose(envelope, &[], &message, limit)
            .map_err(|e| unsent(e, outgoing.data.len(), limit))?;
        self.counters.data_sent += 1;
        let sent = MessageStatus::Sent(m.attributes);
        self.out.status((m.nslp, m.session), outgoing.handle, sent);
        Ok(())
    }

    /// The MRI of an explicitly routed message: that of the message, or the MRI of a peer behind a NAT; and whether there is a
    /// NAT.
    pub(in crate::engine) fn mri_for_explicit_peer(&self, peer: u32, m: &SendMessage<'_>) -> (Mri, bool) {
        let direction = m.mri.direction();
        let key = self.records.find(&m.mri, m.session, m.nslp);
        let key = key.filter(|key| self.records.get(*key).is_some_and(|r| r.half(direction).peer == peer));
        key.map_or((m.mri, false), |key| {
            (self.nat.mri_for_peer(key, direction, m.mri), self.nat.has(key, direction))
        })
    }

    /// Q-mode Data (RFC 5971 §6.1 rule 5, §4.3.3): downstream only. GIST-6.1-11, GIST-4.3.3-15.
    fn send_stateless(&mut self, m: &SendMessage<'_>) -> Result<(), SendError> {
        if m.mri.direction() == Direction::Upstream {
            return Err(SendError::NoStateUpstream);
        }
        if self.interfaces.is_local(m.mri.dst()) {
            return Err(SendError::FlowEndsHere);
        }
        if !has_real_addresses(&m.mri) {
            return Err(SendError::Refused);
        }
        self.check_size(m)?;
        let waiting = Waiting::Stateless(Stateless {
            nslp: m.nslp,
            session: m.session,
            mri: m.mri,
            data: m.data.into(),
            handle: m.handle,
            ip_ttl: m.ip_ttl,
            hops: m.hops,
        });
        match self.lookup(waiting, route_query(Some(&m.mri), m.mri.dst(), self.config.dscp << 2)) {
            None => Ok(()),
            Some(_) => Err(SendError::Overload),
        }
    }

    /// Sends Q-mode Data when its route is known (RFC 5971 §4.3.3).
    pub(in crate::engine) fn send_stateless_along(&mut self, m: Stateless, result: Result<Route, NoRoute>) {
        let status = match self.q_mode_data(&m, result) {
            Ok(()) => MessageStatus::Sent(TransferAttributes { stateless: true, ..Default::default() }),
            Err(error) => MessageStatus::Failed(error),
        };
        self.out.status((m.nslp, m.session), m.handle, status);
    }

    fn q_mode_data(&mut self, m: &Stateless, result: Result<Route, NoRoute>) -> Result<(), SendError> {
        let route = result.map_err(|_| SendError::NoRoute)?;
        let egress = self.egress_of(&route, &m.mri).ok_or(SendError::NoRoute)?;
        if !self.may_send(Cause::Known(of_user(Some(m.mri.src())))) {
            return Err(SendError::Overload);
        }
        let ttl = m.ip_ttl.unwrap_or(self.config.ip_ttl);
        let validity = self.validity();
        let mut message = Message::new(MessageType::DATA, m.nslp, m.hops.unwrap_or(self.config.hops));
        message.header.c = true;
        let envelope = q_mode(&self.config, &egress, &m.mri, false, ttl);
        message.header.s = envelope.src.ip() == egress.address;
        message.mri = Some(m.mri.into());
        message.session = Some(m.session);
        message.nli = Some(nli(&self.config, validity, egress.address, ttl));
        message.nslp_data = Some(&m.data);
        let alert = self.applications.registration(m.nslp).unwrap_or_default().router_alert_to(m.mri.dst());
        let (options, length) = router_alert(&self.config, m.mri.dst(), alert);
        let options = options.get(..length).unwrap_or_default();
        let limit = limit(&self.config, egress.mtu);
        self.out.compose(envelope, options, &message, limit).map_err(|e| unsent(e, m.data.len(), limit))?;
        self.counters.data_sent += 1;
        Ok(())
    }
}

/// Addressing of a Q-mode packet. Downstream (RFC 5971 §5.8.1.2): from the flow's source, or from the signaling source if
/// `own_source` is set, to the flow's destination, with DSCP and flow label of the flow. Upstream (§5.8.1.3): from the
/// signaling source to the flow's source, with the same fields. GIST-5.8.1.3-05, GIST-5.8.1.3-07, GIST-5.8.1.3-08. The
/// loose-end method has the same addresses, without DSCP and flow label (§5.8.2.2). GIST-5.8.1.2-02, GIST-5.8.1.2-03, GIST-5.8.1.2-05, GIST-5.8.2-02, GIST-5.8.2-03.
pub(in crate::engine) fn q_mode(
    config: &Config,
    egress: &Egress,
    mri: &Mri,
    own_source: bool,
    ttl: u8,
) -> Envelope {
    let dscp = match mri {
        Mri::PathCoupled(p) => p.dscp.unwrap_or(config.dscp),
        Mri::LooseEnd(_) => config.dscp,
    };
    let own_source = own_source || mri.direction() == Direction::Upstream;
    Envelope {
        src: (if own_source { egress.address } else { mri.src() }, PORT).into(),
        dst: (mri.target(), PORT).into(),
        ifindex: Some(egress.ifindex),
        gateway: egress.gateway,
        ttl,
        tos: dscp << 2,
        dont_fragment: mri.dst().is_ipv4(),
        flow_label: flow_label(mri),
        unproved: false,
    }
}

/// Whether the addresses of a flow are addresses of hosts, also with a prefix length (RFC 5971 §5.8.1.1).
/// GIST-5.8.1.1-02.
fn has_real_addresses(mri: &Mri) -> bool {
    let (src_prefix, dst_prefix) = match mri {
        Mri::PathCoupled(p) => (p.src_prefix, p.dst_prefix),
        Mri::LooseEnd(l) => (if l.src.is_ipv6() { 128 } else { 32 }, if l.dst.is_ipv6() { 128 } else { 32 }),
    };
    let real = |address: IpAddr, prefix: u8| {
        let (bits, width) = match address {
            IpAddr::V4(a) => (u128::from(a.to_bits()) << 96, 32),
            IpAddr::V6(a) => (a.to_bits(), 128),
        };
        let host = bits.checked_shl(u32::from(prefix)).unwrap_or(0);
        !address.is_unspecified()
            && !address.is_multicast()
            && (prefix == width || prefix < width && host != 0)
    };
    let (src, dst) = (mri.src(), mri.dst());
    real(src, src_prefix) && real(dst, dst_prefix) && src.is_ipv4() == dst.is_ipv4()
}

/// The status of a message that was not composed.
pub(in crate::engine) const fn unsent(error: Unsent, data: usize, limit: usize) -> SendError {
    match error {
        Unsent::TooLarge(size) => {
            SendError::TooLarge { max: limit.saturating_sub(size.saturating_sub(data)) & !3 }
        }
        Unsent::Encode(_) => SendError::Refused,
    }
}
