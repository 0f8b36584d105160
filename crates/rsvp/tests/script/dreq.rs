//! Requests of diagnostics (RFC 2745) for the scripts, and the replies of a node.

use std::net::IpAddr;

use signalbox_rsvp::wire::{
    DiagErrors, DiagResponse, Diagnostic, Message, MessageType, ObjectType, RsvpHop, Session, Writer,
};

use super::rig::{Reply, Rig, Sent, addr, at, compose, handle, sender, session};

/// A DREQ; the fields are there to be changed.
#[derive(Clone)]
pub(super) struct Dreq {
    pub(super) session: Session,
    pub(super) hop: RsvpHop,
    pub(super) asked: Diagnostic,
    pub(super) select: Option<Vec<ObjectType>>,
    pub(super) route: Option<Vec<IpAddr>>,
    /// Whole DIAG_RESPONSEs of other nodes.
    pub(super) responses: Vec<u8>,
    /// TTLs of the common header and on arrival.
    pub(super) ttl: [u8; 2],
    pub(super) iif: u32,
}

impl Dreq {
    /// A DREQ to this node as LAST-HOP, from a requester behind eth2.
    pub(super) fn begin() -> Self {
        Self {
            session: session(),
            hop: RsvpHop { addr: at(2, 7), lih: 0 },
            asked: Diagnostic {
                max_hops: 0,
                hops: 0,
                more: false,
                request_id: 0x1234_5678,
                path_mtu: 1500,
                offset: 0,
                last_hop: at(2, 1),
                sender: sender(1),
                requester: "10.0.2.7:40000".parse().unwrap(),
            },
            select: None,
            route: None,
            responses: Vec::new(),
            ttl: [64, 64],
            iif: 2,
        }
    }

    /// A DREQ from the next hop downstream, which was the LAST-HOP.
    pub(super) fn further() -> Self {
        let mut dreq = Self::begin();
        dreq.hop = RsvpHop { addr: at(2, 9), lih: handle(2) };
        (dreq.asked.last_hop, dreq.asked.hops) = (at(2, 9), 1);
        dreq.responses = response(&[]);
        dreq.ttl = [255, 255];
        dreq
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) {
        w.session(&self.session, false).hop(&self.hop).diagnostic(&self.asked);
        if let Some(select) = &self.select {
            w.diag_select(select.iter().copied());
        }
        if let Some(route) = &self.route {
            w.route(false, u8::try_from(route.len()).unwrap(), route.iter().copied());
        }
        w.body(&self.responses);
    }

    pub(super) fn octets(&self) -> Vec<u8> {
        compose(MessageType::DREQ, self.ttl[0], |w| self.write(w))
    }
}

/// A DIAG_RESPONSE of another node with these objects.
pub(super) fn response(objects: &[u8]) -> Vec<u8> {
    let zero = addr("0.0.0.0");
    let found = DiagResponse {
        arrival: 1,
        incoming: zero,
        outgoing: at(2, 9),
        previous: at(2, 1),
        d_ttl: 0,
        merged: false,
        errors: DiagErrors::default(),
        cleanup: 3,
        refresh: 30,
        objects,
    };
    compose(MessageType::DREP, 1, |w| _ = w.diag_response(&found))[8..].to_vec()
}

pub(super) trait Asked {
    fn ask(&mut self, dreq: &Dreq) -> Vec<Sent>;
    fn replies(&mut self) -> Vec<Reply>;
}

impl Asked for Rig {
    fn ask(&mut self, dreq: &Dreq) -> Vec<Sent> {
        let dst = if self.interfaces.iter().any(|one| one.addresses.contains(&dreq.asked.last_hop)) {
            dreq.asked.last_hop
        } else {
            at(dreq.iif, 1)
        };
        self.packet(dreq.iif, dreq.hop.addr, dst, dreq.ttl[1], &dreq.octets())
    }

    fn replies(&mut self) -> Vec<Reply> {
        core::mem::take(&mut self.replies)
    }
}

/// The only reply; nothing else was sent.
#[track_caller]
pub(super) fn only_reply(rig: &mut Rig, sent: &[Sent]) -> Reply {
    assert_eq!(sent, []);
    let mut replies = rig.replies();
    assert_eq!(replies.len(), 1, "{replies:?}");
    replies.remove(0)
}

pub(super) fn drep(octets: &[u8]) -> Message<'_> {
    let message = Message::parse(octets).unwrap();
    assert_eq!(message.kind, MessageType::DREP);
    message
}
