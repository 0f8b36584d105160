//! A planned restart: what this node leaves to its successor, and what it does with what its predecessor left.
//!
//! RFC 5971 §4.4.6 requires that nodes recover promptly from a restart of their peer, by a "No Routing State" Error. Without
//! more, that Error waits until the peer sends the next message of the session. The successor does not wait: it knows
//! flow, session and peer of each session and sends the Error that it would send then. A Querying node that receives it
//! starts its handshake again at once. Nothing else is restored: all state comes from the peers.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use signalbox_core::handover::Entries;
use signalbox_core::{Direction, Mri, NslpId, SessionId, Time, invariant};
use signalbox_wire::{Reader, Writer};

use super::Gist;
use super::outbox::Envelope;
use super::output::{Cause, limit, nli, normal, of_user};
use super::routing::{PROVEN, Record};
use crate::wire::{
    ErrorObject, GistError, Header, Infos, Message, MessageType, address, mri_encode, mri_parse,
    write_address,
};

/// Entries that one call handles.
const STEP: usize = 64;
/// Delay of the next Error when the rate limit does not allow it.
const HELD_BACK: Duration = Duration::from_millis(20);

/// What the predecessor left and this node has not handled yet.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    entries: Entries,
    /// When the rate limit may allow the next Error.
    after: Time,
}

impl Inherited {
    /// When the next entries are due.
    pub(super) fn deadline(&self) -> Option<Time> {
        (!self.entries.is_empty()).then_some(self.after)
    }
}

/// A session with a peer that queries this node.
struct Entry {
    nslp: NslpId,
    session: SessionId,
    peer: SocketAddr,
    /// The address of this node that the peer knows.
    own: IpAddr,
    /// The flow, with the direction of the peer's messages.
    mri: Mri,
}

impl Entry {
    fn of(record: &Record, direction: Direction, peer: SocketAddr, own: IpAddr) -> Self {
        let mri = record.flow.mri(direction.inverted());
        Self { nslp: record.nslp, session: record.session, peer, own, mri }
    }

    fn write(&self, to: &mut Vec<u8>) -> bool {
        let mut w = Writer::new(to);
        w.u16(self.nslp.0);
        w.bytes(&self.session.0);
        w.u8(if self.own.is_ipv6() { 6 } else { 4 });
        write_address(&mut w, self.own);
        write_address(&mut w, self.peer.ip());
        w.u16(self.peer.port());
        mri_encode(&self.mri, &mut w).is_ok()
    }

    fn parse(octets: &[u8]) -> Option<Self> {
        let mut r = Reader::new(octets);
        let (nslp, session) = (NslpId(r.u16().ok()?), SessionId(r.array().ok()?));
        let v6 = r.u8().ok()? == 6;
        let (own, peer) = (address(&mut r, v6).ok()?, address(&mut r, v6).ok()?);
        let peer = SocketAddr::new(peer, r.u16().ok()?);
        Some(Self { nslp, session, peer, own, mri: mri_parse(r.take_rest()).ok()? })
    }
}

impl Gist {
    /// Writes the sessions whose peers query this node: one entry for each that a handshake proved. It walks over all
    /// records, so it is for a node that ends.
    pub fn hand_over(&self, to: &mut Entries) {
        let mut octets = Vec::new();
        for (_, record) in self.records.iter() {
            for direction in [Direction::Upstream, Direction::Downstream] {
                let half = record.half(direction);
                if !half.state.is_responding() || !half.state.is_established() || !half.has(PROVEN) {
                    continue;
                }
                let peer = invariant!(self.peers.peer(half.peer), "a responding direction has a peer");
                let egress =
                    invariant!(self.peers.egress(half.egress), "a responding direction has an egress");
                let (Some(peer), Some(egress)) = (peer, egress) else { continue };
                octets.clear();
                let entry = Entry::of(record, direction, peer.address, egress.address);
                if entry.write(&mut octets) && !to.push(&octets) {
                    return;
                }
            }
        }
    }

    /// Takes what [`Gist::hand_over`] of the predecessor wrote.
    pub(super) fn inherit(&mut self, entries: Entries) {
        self.inherited = Inherited { entries, after: self.now };
    }

    /// Informs the peers of some entries, as fast as the rate limit of D-mode messages allows. GIST-5.6-04.
    pub(super) fn run_inherited(&mut self) {
        if self.inherited.deadline().is_none_or(|at| self.now < at) {
            return;
        }
        for _ in 0..STEP {
            if self.inherited.entries.is_empty() {
                return;
            }
            // They leave room for the handshakes that follow.
            if !self.may_send(Cause::Known(of_user(None))) {
                self.inherited.after = self.now + HELD_BACK;
                return;
            }
            let Some(entry) = self.inherited.entries.take().and_then(Entry::parse) else { continue };
            self.inform(&entry);
        }
    }

    /// Sends "No Routing State" about the next message of a session, unless the session is there again.
    /// GIST-4.4.6-06, GIST-5.6-02.
    fn inform(&mut self, Entry { nslp, session, peer, own, mri }: &Entry) {
        let known = self.records.find(mri, *session, *nslp).is_some();
        let usable = self.applications.registration(*nslp).is_some()
            && self.interfaces.is_local(*own)
            && self.is_possible_peer(peer.ip())
            && own.is_ipv6() == peer.is_ipv6();
        if known || !usable {
            return;
        }
        let mut flow = Vec::new();
        if mri_encode(mri, &mut Writer::new(&mut flow)).is_err() {
            return;
        }
        let mut message = Message::new(MessageType::ERROR, NslpId::NONE, self.config.hops);
        message.error = Some(ErrorObject {
            error: GistError::NO_ROUTING_STATE,
            d_mode: true,
            q_mode: false,
            header: Header::new(MessageType::DATA, *nslp, self.config.hops).octets(),
            session: Some(*session),
            mri_octets: Some(&flow),
            infos: Infos::NONE,
            comment: None,
        });
        message.nli = Some(nli(&self.config, self.config.validity, *own, 0));
        // The peer may have gone meanwhile: what waits for its link address does not delay others.
        let envelope = Envelope { unproved: true, ..normal(&self.config, *own, *peer, self.config.ip_ttl) };
        if self.out.compose(envelope, &[], &message, limit(&self.config, 0)).is_ok() {
            self.counters.errors_sent += 1;
            self.counters.peers_informed += 1;
        }
    }
}
