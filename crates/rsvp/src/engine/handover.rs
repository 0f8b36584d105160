//! A planned restart: what this node leaves to its successor, and what it does with what its predecessor left.
//!
//! It leaves the last Path of each sender, as its previous hop sent it. The successor handles it like a Path that arrives
//! now. Its own Paths then have another handle in their RSVP_HOP, so that each next hop sends a Resv at once (RFC 2205 §3.7:
//! state changes are sent at once; RFC 2209, PATH MESSAGE ARRIVES). That needs no extension of RSVP at any neighbor.
//! Reservations are not handed over: only the next hop can refresh them. State that the neighbors have
//! torn down meanwhile expires at the time when it would have expired without the restart.

use signalbox_core::handover::Entries;
use signalbox_core::{IfIndex, Time};
use signalbox_wire::Reader;

use super::interfaces::Iface;
use super::neighbor::Incoming;
use super::output::carry;
use super::path::{E_POLICE, LOCAL, LOCAL_ONLY, NON_RSVP, Sender};
use super::{Admission, Rsvp};
use crate::engine::packet::IpReceived;
use crate::wire::{HeaderFlags, Message, MessageType, Writer};

/// Paths that one call handles.
const STEP: usize = 32;

impl Rsvp {
    /// Writes the Paths of all senders that are not applications of this node. It walks over all senders, so it is for a
    /// node that ends.
    pub fn hand_over(&self, now: Time, to: &mut Entries) {
        let mut octets = Vec::new();
        for (_, sender) in
            self.senders.iter().filter(|(_, sender)| !sender.has(LOCAL) && !sender.has(LOCAL_ONLY))
        {
            octets.clear();
            if self.write_path(sender, now, &mut octets).is_some() && !to.push(&octets) {
                return;
            }
        }
    }

    /// Writes interface and TTL of a sender's last Path, and the Path as its previous hop sent it.
    fn write_path(&self, sender: &Sender, now: Time, to: &mut Vec<u8>) -> Option<()> {
        let session = self.sessions.get_index(sender.session)?;
        let hop = self.previous_hop(sender)?;
        let known = self.interfaces.get(sender.iif)?;
        to.extend_from_slice(&known.ifindex.0.to_be_bytes());
        to.push(sender.ttl);
        // A packet whose TTL differs from that of its header passed nodes without RSVP (RFC 2205 §3.8).
        let send_ttl = if sender.has(NON_RSVP) { sender.ttl.wrapping_add(1) } else { sender.ttl };
        let mut w = Writer::new(to, MessageType::PATH, HeaderFlags(0), send_ttl);
        w.session(&self.session_of(session), sender.has(E_POLICE))
            .hop(&hop)
            .time_values(self.interfaces.period_of(sender.iif, sender.expires.left(now)));
        carry(&mut w, sender.carried());
        w.sender_template(&self.filter_of(sender)).sender_tspec(&sender.tspec);
        if let Some(adspec) = self.adspecs.lookup(sender.adspec) {
            w.raw(adspec);
        }
        w.finish().ok()
    }

    /// Takes what [`Rsvp::hand_over`] of the predecessor wrote.
    pub(super) fn inherit(&mut self, entries: Entries) {
        self.inherited = entries;
    }

    /// Handles some of the Paths. The time when the next ones are due is [`Rsvp::next_inherited`].
    pub(super) fn run_inherited(&mut self, resources: &mut dyn Admission) {
        if self.inherited.is_empty() {
            return;
        }
        let mut inherited = core::mem::take(&mut self.inherited);
        for _ in 0..STEP {
            let Some(entry) = inherited.take() else { break };
            if self.restore_path(entry, resources).is_none() {
                tracing::debug!(reason = "not usable here", "Path of the predecessor dropped");
            }
        }
        self.inherited = inherited;
    }

    /// When Paths of the predecessor are due.
    pub(super) fn next_inherited(&self) -> Option<Time> {
        (!self.inherited.is_empty()).then_some(self.now)
    }

    /// Handles a Path that arrived at the predecessor. A neighbor may have refreshed the state meanwhile: what is there is
    /// newer.
    fn restore_path(&mut self, entry: &[u8], resources: &mut dyn Admission) -> Option<()> {
        let mut r = Reader::new(entry);
        let (ifindex, ttl) = (IfIndex(r.u32().ok()?), r.u8().ok()?);
        let payload = r.take_rest();
        let message = Message::parse(payload).ok()?;
        let (session, sender, hop) = (message.session?, message.sender?, message.hop?);
        let iface: Iface = self.interfaces.iface(ifindex);
        let enabled = self.interfaces.get(iface).is_some_and(|known| known.up && known.config.enabled);
        if !enabled || message.kind != MessageType::PATH || self.interfaces.is_local(hop.addr) {
            return None;
        }
        if self.find_session(&session).is_some_and(|known| self.find_sender(known, &sender).is_some()) {
            return Some(());
        }
        let (src, dst) = (sender.src, session.dest);
        let packet = IpReceived { src, dst, ifindex, ttl, tos: 0, router_alert: true, payload };
        let mut incoming = Incoming::none(packet);
        (incoming.message, incoming.neighbor) = (message, hop.addr);
        self.counters.paths_restored += u64::from(self.on_path(&incoming, iface, resources).is_some());
        Some(())
    }
}
