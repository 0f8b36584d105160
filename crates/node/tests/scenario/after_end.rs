//! What waits to be sent for a state dies with the state (O18): after a node has sent the end of a state to a next hop, no message that
//! makes the state leaves the node to that hop, unless its user, or a message from the nodes before it, asked for the state after that.
//!
//! It is an observer of packets: it knows nothing of the engines. A campaign captures the packets of a run and gives them to [`check`].

use core::fmt::Debug;
use core::net::IpAddr;
use std::collections::BTreeMap;

use signalbox_boomerang::wire as boomerang;
use signalbox_casp::wire as casp;
use signalbox_core::{NslpId, SessionId, Time};
use signalbox_gist::wire::{Encapsulation, Header, MAGIC, Message as Gist, MessageType};
use signalbox_natfw::wire as natfw;
use signalbox_qos::wire as qos;
use signalbox_rsvp::wire as rsvp;
use signalbox_sim::{Captured, Family, LinkId, NodeId, Packet, Sim};

/// What a message does to a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It makes or refreshes the state. A number orders the messages about it, if they have one.
    Makes(Option<u32>),
    /// The node that gets it makes the state.
    AsksFor,
    /// It ends the state.
    Ends,
    /// It ends what messages up to this number have made: an old branch, while the state stands.
    EndsUpTo(u32),
}

/// A message about a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StateMessage<K> {
    pub(crate) state: K,
    pub(crate) effect: Effect,
}

/// The next hop of a packet: its address or, where messages go to the end of the flow, the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hop {
    Node(IpAddr),
    Link(LinkId),
}

/// When somebody asked a node for a state.
pub(crate) type StateRequests<K> = BTreeMap<(NodeId, K), Vec<Time>>;

/// What was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct EndCounts {
    /// Ends of states that left a node.
    pub(crate) ends: usize,
    /// Messages that made a state again that had ended, because somebody asked for it.
    pub(crate) again: usize,
}

impl EndCounts {
    pub(crate) const fn add(&mut self, other: Self) {
        self.ends += other.ends;
        self.again += other.again;
    }
}

/// Looks at the packets of a run, in their order. `requests`: when users asked for states. `messages_of`: the messages about states in a
/// packet, and the hop to which they go. `ends`: whether the node that put a packet on the link composed it, and whether it is for the
/// node at the other end; others only pass it on.
///
/// # Errors
/// A message that made a state again for which no request had come.
pub(crate) fn check<'a, K: Ord + Copy + Debug>(
    packets: impl Iterator<Item = &'a Captured>,
    mut requests: StateRequests<K>,
    messages_of: impl Fn(&Captured) -> Option<(Hop, Vec<StateMessage<K>>)>,
    ends: impl Fn(&Captured) -> [bool; 2],
) -> Result<EndCounts, String> {
    let mut ended: BTreeMap<(NodeId, Hop, K), (Time, Effect)> = BTreeMap::new();
    let mut counts = EndCounts::default();
    for packet in packets {
        let Some((hop, messages)) = messages_of(packet) else { continue };
        let [composed, arrives] = ends(packet);
        for StateMessage { state, effect } in messages {
            if arrives && matches!(effect, Effect::Makes(_) | Effect::AsksFor) {
                requests.entry((packet.to, state)).or_default().extend(packet.arrives.iter().flatten());
            }
            if !composed {
                continue;
            }
            let key = (packet.from, hop, state);
            let number = match effect {
                Effect::Makes(number) => number,
                Effect::AsksFor => continue,
                Effect::Ends | Effect::EndsUpTo(_) => {
                    counts.ends += 1;
                    // The end of the whole state counts, also if that of an old branch follows.
                    if effect == Effect::Ends || !matches!(ended.get(&key), Some((_, Effect::Ends))) {
                        ended.insert(key, (packet.at, effect));
                    }
                    continue;
                }
            };
            let Some((end, how)) = ended.get(&key).copied() else { continue };
            let since = |at: &Time| (end..=packet.at).contains(at);
            let is_requested =
                requests.get(&(packet.from, state)).is_some_and(|times| times.iter().any(since));
            let newer = match (how, number) {
                (Effect::EndsUpTo(last), Some(number)) => number.wrapping_sub(last).wrapping_sub(1) < 1 << 31,
                _ => false,
            };
            if !is_requested && !newer {
                return Err(format!(
                    "{state:?} ended at {end} for {hop:?}, and {} made it again at {}",
                    packet.from, packet.at
                ));
            }
            ended.remove(&key);
            counts.again += 1;
        }
    }
    Ok(counts)
}

/// Whether a datagram has an address of the node that put it on the link, and one of the node at the other end.
pub(crate) fn between<N: signalbox_core::node::NodeEngine>(sim: &Sim<N>, captured: &Captured) -> [bool; 2] {
    let Packet { src, dst, .. } = &captured.packet;
    let family = if dst.is_ipv6() { Family::V6 } else { Family::V4 };
    let is_of = |node, address| {
        sim.address(node, family) == address || sim.address_on(node, captured.link, family) == address
    };
    [is_of(captured.from, src.ip()), is_of(captured.to, dst.ip())]
}

/// A sender's path state.
pub(crate) type Path = (rsvp::Session, rsvp::Filter);

/// Path and PathTear, also in Bundles.
pub(crate) fn paths(captured: &Captured) -> Option<(Hop, Vec<StateMessage<Path>>)> {
    if captured.packet.protocol != 46 {
        return None;
    }
    let message = rsvp::Message::parse(&captured.packet.payload).ok()?;
    let mut messages = Vec::new();
    let mut read = |message: &rsvp::Message<'_>| {
        let effect = match message.kind {
            rsvp::MessageType::PATH => Effect::Makes(None),
            rsvp::MessageType::PATH_TEAR => Effect::Ends,
            _ => return,
        };
        if let (Some(session), Some(sender)) = (message.session, message.sender) {
            messages.push(StateMessage { state: (session, sender), effect });
        }
    };
    if message.kind == rsvp::MessageType::BUNDLE {
        for part in message.sub_messages() {
            rsvp::Message::parse(part).iter().for_each(&mut read);
        }
    } else {
        read(&message);
    }
    Some((Hop::Link(captured.link), messages))
}

/// The Data message of GIST in a packet.
fn gist_data(packet: &Packet) -> Option<(NslpId, SessionId, &[u8])> {
    let octets = packet.payload.strip_prefix(&MAGIC)?;
    let header = Header::parse(octets).ok().filter(|header| header.kind == MessageType::DATA)?;
    let encapsulation = if header.c { Encapsulation::QMode } else { Encapsulation::Normal };
    let message = Gist::parse(octets, encapsulation).ok()?;
    Some((header.nslp, message.session?, message.nslp_data?))
}

/// RESERVEs and tears of the QoS NSLP over datagrams, those of listed sessions too.
pub(crate) fn reservations(captured: &Captured) -> Option<(Hop, Vec<StateMessage<SessionId>>)> {
    let (nslp, session, data) = gist_data(&captured.packet)?;
    let message = qos::Message::parse(data).ok()?;
    let hop = Hop::Node(captured.packet.dst.ip());
    if nslp != NslpId::QOS {
        return None;
    }
    if message.is_reserve_init() && message.kind == qos::MessageType::QUERY {
        return Some((hop, vec![StateMessage { state: session, effect: Effect::AsksFor }]));
    }
    if message.kind != qos::MessageType::RESERVE {
        return None;
    }
    let rsn = message.rsn?;
    let effect = match (message.is_tear(), message.rii) {
        (false, _) => Effect::Makes(Some(rsn.number)),
        (true, Some(_)) => Effect::Ends,
        (true, None) => Effect::EndsUpTo(rsn.number),
    };
    let mut messages = vec![StateMessage { state: session, effect }];
    // The other direction of a bidirectional reservation begins where this one ends.
    let other = message.bound_sessions.sessions().filter(|_| !message.is_tear());
    let other = other.filter(|bound| bound.code == qos::BindingCode::BIDIRECTIONAL);
    messages.extend(other.map(|bound| StateMessage { state: bound.session, effect: Effect::AsksFor }));
    if let (Some(sessions), Some(numbers)) = (message.session_ids, message.rsns) {
        messages.extend(sessions.iter().zip(numbers.iter()).map(|(state, number)| {
            let effect =
                if message.is_tear() { Effect::EndsUpTo(number) } else { Effect::Makes(Some(number)) };
            StateMessage { state, effect }
        }));
    }
    Some((hop, messages))
}

/// CREATEs, EXTERNALs and their deletions over datagrams.
pub(crate) fn passages(captured: &Captured) -> Option<(Hop, Vec<StateMessage<SessionId>>)> {
    let (nslp, state, data) = gist_data(&captured.packet)?;
    let message = natfw::Message::parse(data).ok()?;
    let asks = matches!(message.kind, natfw::MessageType::CREATE | natfw::MessageType::EXTERNAL);
    if nslp != NslpId::NATFW || !asks {
        return None;
    }
    let effect = if message.deletes() { Effect::Ends } else { Effect::Makes(message.msn) };
    Some((Hop::Node(captured.packet.dst.ip()), vec![StateMessage { state, effect }]))
}

/// A flow of Boomerang: its ports, addresses and protocol.
pub(crate) type Flow = (IpAddr, IpAddr, [u16; 2], u8);

/// Requests of Boomerang on their way to the far end, and those that ask for nothing: releases, and requests that nodes lowered to nothing.
pub(crate) fn requests(captured: &Captured) -> Option<(Hop, Vec<StateMessage<Flow>>)> {
    let Packet { src, dst, payload, .. } = &captured.packet;
    let message = boomerang::Message::parse(payload, dst.is_ipv6()).ok()?;
    let body = message.body.as_ref()?;
    if message.pass != boomerang::Pass::Request || message.is_refused() || src.ip() == dst.ip() {
        return None;
    }
    let boomerang::Qos::BitRate(rates) = body.qos else { return None };
    let classifier = &body.flow.classifier;
    let state =
        (classifier.src, classifier.dst, [classifier.src_port, classifier.dst_port], classifier.protocol);
    let effect = if rates.is_zero() { Effect::Ends } else { Effect::Makes(None) };
    Some((Hop::Link(captured.link), vec![StateMessage { state, effect }]))
}

/// A session of CASP with one flow.
pub(crate) type CaspState = (SessionId, casp::FlowId);

/// Messages and tear-downs of CASP over UDP along the flow.
pub(crate) fn casp_sessions(captured: &Captured) -> Option<(Hop, Vec<StateMessage<CaspState>>)> {
    let casp::Message::Signaling(message) = casp::Message::parse(&captured.packet.payload).ok()? else {
        return None;
    };
    if message.flags.is_reverse() || message.route.is_some() {
        return None;
    }
    let effect =
        if message.flags.contains(casp::Flags::TEAR_DOWN) { Effect::Ends } else { Effect::Makes(None) };
    let state = (message.session, message.flow);
    Some((Hop::Node(captured.packet.dst.ip()), vec![StateMessage { state, effect }]))
}
