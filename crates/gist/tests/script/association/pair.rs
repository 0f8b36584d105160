//! Two nodes with a wire between them, whose tables agree.

use std::collections::{BTreeMap, VecDeque};

use signalbox_core::node::{REPORT_EVERY, Route};
use signalbox_core::rng::Random;
use signalbox_core::service::{NetworkEvent, Request, SendMessage};
use signalbox_core::{IfIndex, Mri, SessionId, Time};
use signalbox_gist::engine::{ChannelClosed, ChannelId, Config, Input, PeeringPolicy};
use signalbox_gist::kit::message;
use signalbox_gist::wire::MessageType;

use super::kit::*;
use crate::rig::*;

const ADDRESSES: [&str; 2] = ["10.0.0.1", "10.0.0.2"];

/// An event that is under way to a node.
enum Flying {
    Datagram(Packet),
    Accepted(ChannelId, signalbox_gist::engine::Transport, core::net::SocketAddr),
    Connected(ChannelId),
    Octets(ChannelId, Vec<u8>),
    /// A report of a channel to the node that wrote to it.
    Drained(ChannelId),
    Closed(ChannelId),
}

struct Pair {
    nodes: [Node; 2],
    now: Time,
    flying: VecDeque<(usize, Flying)>,
    /// Identifier of the same channel at the other node, by node and channel.
    ends: BTreeMap<(usize, u64), u64>,
    /// Octets written since the last report, by node and channel.
    written: BTreeMap<(usize, u64), usize>,
    received: [Vec<(SessionId, Vec<u8>)>; 2],
    events: Vec<NetworkEvent>,
    /// The datagrams so far: their types, and whether they had a Router Alert.
    datagrams: Vec<(MessageType, bool)>,
}

impl Pair {
    fn new(config: &Config) -> Self {
        let nodes = [0, 1].map(|at: usize| {
            let number = u8::try_from(at).unwrap();
            let config = Config { identity: vec![b'a' + number], ..config.clone() };
            let mut node = Node::new(config, PeeringPolicy::Always, [7 + number; 32]).unwrap();
            node.route = Some(Ok(Route { ifindex: IfIndex(1), src: ip(ADDRESSES[at]), ..ROUTE }));
            node.handle(Input::Interfaces(&[interface(1, &[ADDRESSES[at]])]));
            node
        });
        Self {
            nodes,
            now: Time::ZERO,
            flying: VecDeque::new(),
            ends: BTreeMap::new(),
            written: BTreeMap::new(),
            received: Default::default(),
            events: Vec::new(),
            datagrams: Vec::new(),
        }
    }

    fn handle(&mut self, at: usize, input: Input<'_>) {
        self.nodes[at].now = self.now;
        self.nodes[at].handle(input);
        for (_, out) in core::mem::take(&mut self.nodes[at].out) {
            let flying = match out {
                Out::Sent(packet) => {
                    self.datagrams.push((packet.message().header.kind, !packet.options.is_empty()));
                    Flying::Datagram(packet)
                }
                Out::Delivered(delivery) => {
                    self.received[at].push((delivery.session, delivery.data));
                    continue;
                }
                Out::Notified(_, event) => {
                    self.events.push(event);
                    continue;
                }
                Out::Status(..) | Out::Read(..) | Out::Lookup(..) => continue,
                Out::Opened(channel, transport, _, peer) => {
                    let there = 2 * (self.ends.len() as u64 + 1);
                    self.ends.insert((at, channel.0), there);
                    self.ends.insert((1 - at, there), channel.0);
                    self.flying.push_back((at, Flying::Connected(channel)));
                    Flying::Accepted(ChannelId(there), transport, peer)
                }
                Out::Over(Over { channel, octets, .. }) => {
                    let written = self.written.entry((at, channel.0)).or_default();
                    *written += octets.len();
                    if *written >= REPORT_EVERY {
                        *written = 0;
                        self.flying.push_back((at, Flying::Drained(channel)));
                    }
                    Flying::Octets(ChannelId(self.ends[&(at, channel.0)]), octets)
                }
                Out::Closed(channel, _) => Flying::Closed(ChannelId(self.ends[&(at, channel.0)])),
            };
            self.flying.push_back((1 - at, flying));
        }
    }

    fn settle(&mut self) {
        while let Some((at, flying)) = self.flying.pop_front() {
            match flying {
                Flying::Datagram(Packet { src, dst, options, payload, .. }) => {
                    let via = Via { options, ..Via::normal(IfIndex(1), src, dst) };
                    self.handle(at, Input::Datagram(via.packet(&payload)));
                }
                Flying::Accepted(channel, transport, local) => {
                    let peer = (ip(ADDRESSES[1 - at]), 40_000).into();
                    let accepted = Input::ChannelAccepted { channel, transport, local, peer, identity: None };
                    self.handle(at, accepted);
                }
                Flying::Connected(channel) => {
                    self.handle(at, Input::ChannelConnected { channel, identity: None });
                }
                Flying::Octets(channel, octets) => {
                    self.handle(at, Input::ChannelOctets { channel, octets: &octets });
                }
                Flying::Drained(channel) => {
                    self.handle(at, Input::ChannelDrained { channel, unsent: 0 });
                }
                Flying::Closed(channel) => {
                    let reason = ChannelClosed::Orderly;
                    self.handle(at, Input::ChannelClosed { channel, reason, unacknowledged: false });
                }
            }
        }
    }

    fn send(&mut self, at: usize, mri: Mri, session: SessionId, data: &[u8]) {
        let message = SendMessage { attributes: RELIABLE, ..message(data, mri, session) };
        self.handle(at, Input::Request(Request::SendMessage(message)));
    }

    fn until(&mut self, ms: u64) {
        let target = Time::from_millis(ms);
        self.settle();
        while let Some((due, at)) = [0, 1]
            .into_iter()
            .filter_map(|at| Some((self.nodes[at].gist.next_deadline()?, at)))
            .min()
            .filter(|(due, _)| *due <= target)
        {
            self.now = self.now.max(due);
            self.handle(at, Input::Timer);
            self.settle();
        }
        self.now = target;
    }
}

fn numbered(number: u32) -> SessionId {
    let mut session = [0; 16];
    session[..4].copy_from_slice(&number.to_be_bytes());
    SessionId(session)
}

/// GIST-4.4.3-04, GIST-3.7-04, GIST-4.1.2-02: a thousand sessions over one association, each with its own order, in
/// both directions.
#[test]
fn a_thousand_sessions_share_one_association() {
    let mut config = tcp_only();
    config.dmode_rate = 0;
    let mut pair = Pair::new(&config);
    let mri = flow(ADDRESSES[0], ADDRESSES[1]);
    for number in 0..1000 {
        // The first three messages of a session wait for its handshake.
        for round in 0..3 {
            pair.send(0, mri, numbered(number), &[round; 4]);
        }
        pair.settle();
    }
    for number in 0..1000 {
        pair.send(1, mri.inverted(), numbered(number), b"back");
    }
    pair.settle();
    for at in 0..2 {
        assert_eq!(pair.nodes[at].gist.associations().count(), 1);
        assert_eq!(pair.nodes[at].gist.associations().next().unwrap().sessions, 1000);
    }
    for number in 0..1000 {
        let of: Vec<_> = pair.received[1].iter().filter(|(s, _)| *s == numbered(number)).collect();
        assert_eq!(of.iter().map(|(_, data)| data[0]).collect::<Vec<_>>(), [0, 1, 2]);
    }
    assert_eq!(pair.received[0].len(), 1000);
}

/// GIST-6.4-17: a peer chooses how many sessions use an association. When it ends, they are informed in parts. A session that sends before its
/// turn gets another association.
#[test]
fn sessions_are_informed_of_the_end_of_their_association_in_parts() {
    const SESSIONS: u32 = 1000;
    let mut config = tcp_only();
    config.dmode_rate = 0;
    let mut pair = Pair::new(&config);
    let mri = flow(ADDRESSES[0], ADDRESSES[1]);
    let send = |pair: &mut Pair, numbers: core::ops::Range<u32>| {
        for number in numbers {
            pair.send(0, mri, numbered(number), b"data");
            pair.settle();
        }
    };
    send(&mut pair, 0..SESSIONS);
    let channel = pair.nodes[0].gist.associations().next().unwrap().channel;
    let there = ChannelId(pair.ends[&(0, channel.0)]);
    pair.events.clear();
    let (reason, unacknowledged) = (ChannelClosed::Reset, true);
    pair.handle(0, Input::ChannelClosed { channel, reason, unacknowledged });
    let informed = |pair: &Pair| {
        pair.events.iter().filter(|event| **event == NetworkEvent::CommunicationFailure).count()
    };
    // A part by the end itself, and a smaller one by the work beside each input.
    assert_eq!((informed(&pair), pair.nodes[0].gist.associations().count()), (256 + 16, 0));
    pair.handle(1, Input::ChannelClosed { channel: there, reason, unacknowledged: false });
    // The sessions that were bound first are informed last.
    pair.received[1].clear();
    send(&mut pair, 0..1);
    for turn in 0.. {
        let before = informed(&pair);
        if pair.nodes[0].gist.next_deadline().is_none_or(|due| due > pair.now) {
            break;
        }
        pair.handle(0, Input::Timer);
        assert!(informed(&pair) <= before + 256, "turn {turn}");
    }
    assert_eq!(informed(&pair), SESSIONS as usize);
    pair.until(60_000);
    send(&mut pair, 1..SESSIONS);
    pair.until(120_000);
    let arrived: std::collections::BTreeSet<_> =
        pair.received[1].iter().map(|(session, _)| *session).collect();
    assert_eq!(arrived.len(), SESSIONS as usize);
    assert_eq!(pair.nodes[0].gist.associations().count(), 1);
}

/// GIST-5.1-05, GIST-5.1-10: sessions in use are refreshed over the association, except for their Queries, which are in
/// Q-mode. The association is closed when no session uses it.
#[test]
fn a_session_is_refreshed_and_an_association_ends() {
    let mut pair = Pair::new(&tcp_only());
    let mri = flow(ADDRESSES[0], ADDRESSES[1]);
    for round in 0..10 {
        pair.send(0, mri, numbered(1), b"data");
        pair.until(round * 20_000);
    }
    assert_eq!(pair.received[1].len(), 10);
    assert!(pair.nodes[1].gist.counters().confirms_received > 5);
    assert_eq!(pair.nodes[0].gist.counters().associations_opened, 1);
    assert!(!pair.events.contains(&NetworkEvent::Bad), "{:?}", pair.events);
    let (response, rest) = pair.datagrams.split_at(2);
    assert_eq!(response, [(MessageType::QUERY, true), (MessageType::RESPONSE, false)]);
    assert!(
        rest.len() > 5 && rest.iter().all(|datagram| *datagram == (MessageType::QUERY, true)),
        "{rest:?}"
    );
    pair.until(400_000);
    for node in &pair.nodes {
        assert_eq!((node.gist.sessions().count(), node.gist.associations().count()), (0, 0));
        assert_eq!(node.gist.counters().associations_failed, 0);
    }
}

/// Both nodes open an association at the same time: both are set up, both sessions work, and later sessions of both
/// nodes use that of the node with the lower identity.
#[test]
fn simultaneous_opening_settles_on_one() {
    let mut pair = Pair::new(&tcp_only());
    let there = flow(ADDRESSES[0], ADDRESSES[1]);
    let back = flow(ADDRESSES[1], ADDRESSES[0]);
    pair.send(0, there, numbered(1), b"one1");
    pair.send(1, back, numbered(2), b"two2");
    pair.settle();
    assert_eq!((pair.received[0].len(), pair.received[1].len()), (1, 1));
    assert_eq!(pair.nodes[0].gist.associations().count(), 2);
    let sessions = |pair: &Pair, at: usize| -> Vec<_> {
        pair.nodes[at].gist.associations().map(|a| (a.opened, a.sessions)).collect()
    };
    assert_eq!(sessions(&pair, 0).len(), 2);
    for number in 10..20 {
        pair.send(0, there, numbered(number), b"more");
        pair.send(1, back, numbered(number + 100), b"more");
        pair.settle();
    }
    assert_eq!((pair.received[0].len(), pair.received[1].len()), (11, 11));
    // Node 0 has the identity "a": the association that it opened carries the twenty sessions.
    let carried = |at: usize, opened: bool| {
        sessions(&pair, at).iter().filter(|(o, _)| *o == opened).map(|(_, n)| *n).sum::<u32>()
    };
    assert_eq!((carried(0, true), carried(0, false)), (21, 1));
    assert_eq!((carried(1, false), carried(1, true)), (21, 1));
}

/// The peer restarts: its channels end and its state is lost. One handshake restores the session, and messages wait
/// meanwhile.
#[test]
fn a_restarted_peer_is_found_again() {
    let mut pair = Pair::new(&tcp_only());
    let mri = flow(ADDRESSES[0], ADDRESSES[1]);
    pair.send(0, mri, numbered(1), b"one1");
    pair.settle();
    pair.now = Time::from_secs(3); // long enough not to count as a refusal
    pair.nodes[1] = Pair::new(&tcp_only()).nodes.into_iter().nth(1).unwrap();
    let channel = pair.nodes[0].gist.associations().next().unwrap().channel;
    let reason = ChannelClosed::Reset;
    pair.handle(0, Input::ChannelClosed { channel, reason, unacknowledged: false });
    pair.send(0, mri, numbered(1), b"two2");
    pair.settle();
    assert_eq!(pair.received[1].last().unwrap().1, b"two2");
    assert_eq!(pair.nodes[1].gist.sessions().count(), 1);
}

/// Arbitrary messages, refreshes, losses and closes in any order: the tables of both nodes agree, and in the end no
/// state is left.
#[test]
fn storms_leave_nothing_behind() {
    for seed in 0..30 {
        let mut rng = Random::from_number(seed);
        let mut config = tcp_only();
        config.associations.always = rng.chance(0.5);
        let mut pair = Pair::new(&config);
        let flows = [flow(ADDRESSES[0], ADDRESSES[1]), flow(ADDRESSES[1], ADDRESSES[0])];
        let mut now = 0;
        for _ in 0..200 {
            let at = usize::from(rng.chance(0.5));
            match rng.range(0..10) {
                0..6 => {
                    let session = numbered(rng.u32() % 6);
                    let mri = if rng.chance(0.7) { flows[at] } else { flows[1 - at].inverted() };
                    pair.send(at, mri, session, b"data");
                }
                6 => {
                    let index = usize::try_from(rng.range(0..4)).unwrap();
                    let channel = pair.nodes[at].gist.associations().nth(index).map(|a| a.channel);
                    if let Some(channel) = channel {
                        let there = ChannelId(pair.ends[&(at, channel.0)]);
                        let reason = ChannelClosed::Reset;
                        pair.handle(at, Input::ChannelClosed { channel, reason, unacknowledged: true });
                        let closed = Input::ChannelClosed { channel: there, reason, unacknowledged: false };
                        pair.handle(1 - at, closed);
                    }
                }
                7 => {
                    let unsent = usize::try_from(rng.range(0..2)).unwrap() * 300_000;
                    for channel in pair.nodes[at].gist.associations().map(|a| a.channel).collect::<Vec<_>>() {
                        pair.handle(at, Input::ChannelDrained { channel, unsent });
                    }
                }
                8 => pair.settle(),
                _ => {
                    now += rng.range(0..20_000);
                    pair.until(now);
                }
            }
            pair.holds_together();
        }
        for at in 0..2 {
            for channel in pair.nodes[at].gist.associations().map(|a| a.channel).collect::<Vec<_>>() {
                pair.handle(at, Input::ChannelDrained { channel, unsent: 0 });
            }
        }
        pair.until(now + 400_000);
        for node in &pair.nodes {
            assert_eq!(
                (node.gist.sessions().count(), node.gist.associations().count()),
                (0, 0),
                "seed {seed}"
            );
        }
    }
}

impl Pair {
    /// The associations count as many sessions as point to them.
    fn holds_together(&self) {
        for node in &self.nodes {
            let used = node
                .gist
                .sessions()
                .flat_map(|s| [s.upstream, s.downstream])
                .flatten()
                .filter_map(|direction| direction.association);
            let mut counts = BTreeMap::new();
            for channel in used {
                *counts.entry(channel).or_insert(0) += 1;
            }
            for association in node.gist.associations() {
                assert_eq!(association.sessions, counts.remove(&association.channel).unwrap_or(0));
                assert_eq!(association.queued == 0, association.queued_octets == 0);
            }
            assert!(counts.is_empty(), "sessions of associations that are not there: {counts:?}");
        }
    }
}
