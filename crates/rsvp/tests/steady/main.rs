//! Refreshes allocate nothing in steady state.

use std::net::IpAddr;
use std::time::Duration;

use signalbox_rsvp::engine::{Config, Input};
use signalbox_rsvp::kit::{B, Path, Resv, World, at, load, packet, sender, to};
use signalbox_rsvp::wire::{HeaderFlags, ListedId, MessageId, MessageType, Session, Writer};

const SESSIONS: u8 = 50;
/// Interfaces of the node.
const UP: u32 = 1;
const DOWN: u32 = 2;
const EPOCH: u32 = 5;
/// TTL of all messages.
const TTL: u8 = 60;

fn session(number: u8) -> Session {
    to(&format!("10.9.0.{number}"))
}

/// The MESSAGE_ID of both messages of a session; each neighbor has its own.
fn id_of(number: u8) -> u32 {
    u32::from(number) + 1
}

struct Node {
    world: World,
    /// Number of Paths and Resvs sent.
    sent: [u32; 2],
}

impl Node {
    fn new(reduction: bool) -> Self {
        let mut config = Config::default();
        config.neighbors.interface.reduction.reliable = reduction;
        Self { world: World::with_neighbors(config, "1gbit"), sent: [0; 2] }
    }

    fn input(&mut self, input: Input<'_>) {
        let Self { world, sent: [paths, resvs] } = self;
        world.give(input, |_, packet| match MessageType(packet.payload[1]) {
            MessageType::PATH => *paths += 1,
            MessageType::RESV => *resvs += 1,
            _ => {}
        });
        assert!(world.replies.is_empty() && world.events.is_empty(), "only messages");
    }

    /// Receives all messages of the neighbors once.
    fn receive_all(&mut self, messages: &[(u32, IpAddr, IpAddr, Vec<u8>)]) {
        for (iif, src, dst, payload) in messages {
            self.input(Input::Packet(packet(*iif, *src, *dst, TTL, payload)));
        }
    }

    fn reservations(&self) -> u32 {
        self.world.rsvp.reservations()
    }

    /// Lets time pass and handles what is due.
    fn wait(&mut self, time: Duration) {
        let end = self.world.now + time;
        while let Some(at) = self.world.rsvp.next_deadline().filter(|at| *at <= end) {
            self.world.now = self.world.now.max(at);
            self.input(Input::Timer);
        }
        self.world.now = end;
    }
}

/// A Path and a Resv of each session, with a MESSAGE_ID if the neighbors have refresh reduction.
fn messages(reduction: bool) -> Vec<(u32, IpAddr, IpAddr, Vec<u8>)> {
    let flags = if reduction { HeaderFlags::REFRESH_REDUCTION } else { HeaderFlags::default() };
    let of = |number| {
        let id = reduction.then(|| MessageId { ack_desired: false, epoch: EPOCH, id: id_of(number) });
        let session = session(number);
        let path = Path { flags, id, send_ttl: TTL, ..Path::of(session, 1, UP) };
        let resv = Resv { flags, id, session, send_ttl: TTL, ..Resv::ff(&[(load(B), 1)]) };
        let path = (UP, sender(1).src, session.dest, path.octets());
        [path, (DOWN, resv.hop.addr, at(DOWN, 1), resv.octets())]
    };
    (0..SESSIONS).flat_map(of).collect()
}

#[test]
fn refreshes_allocate_nothing() {
    let mut node = Node::new(false);
    let messages = messages(false);
    let set_up = allocation_counter::measure(|| node.receive_all(&messages));
    assert!(set_up.count_total > 0, "they are counted");
    assert_eq!(node.reservations(), u32::from(SESSIONS));
    // Queues and buffers grow to their size.
    for _ in 0..4 {
        node.wait(Duration::from_secs(30));
        node.receive_all(&messages);
    }
    node.sent = [0; 2];
    let counted = allocation_counter::measure(|| {
        for _ in 0..10 {
            node.wait(Duration::from_secs(30));
            node.receive_all(&messages);
        }
    });
    let least = u32::from(SESSIONS) * 6; // in 300 s, each after 45 s at the latest
    assert!(node.sent.iter().all(|sent| *sent >= least), "{:?}", node.sent);
    assert_eq!(node.reservations(), u32::from(SESSIONS));
    assert_eq!(counted.count_total, 0, "{counted:?}");
}

/// Srefreshes keep the state of both neighbors, and a state that is refreshed by its MESSAGE_ID allocates nothing.
#[test]
fn summary_refreshes_allocate_nothing() {
    let mut node = Node::new(true);
    let messages = messages(true);
    node.receive_all(&messages);
    assert_eq!(node.reservations(), u32::from(SESSIONS));
    let ids: Vec<_> =
        (0..SESSIONS).map(|number| ListedId { id: id_of(number), source: None, group: None }).collect();
    let summary = |ifindex, src, dst| {
        let mut octets = Vec::new();
        let mut w = Writer::new(&mut octets, MessageType::SREFRESH, HeaderFlags::REFRESH_REDUCTION, TTL);
        w.id_list(EPOCH, &ids);
        w.finish().unwrap();
        (ifindex, src, dst, octets)
    };
    let summaries = [summary(UP, at(UP, 9), at(UP, 1)), summary(DOWN, at(DOWN, 9), at(DOWN, 1))];
    // Longer than the lifetime of a state, 157.5 s.
    for _ in 0..10 {
        node.wait(Duration::from_secs(30));
        let counted = allocation_counter::measure(|| node.receive_all(&summaries));
        assert_eq!(counted.count_total, 0, "{counted:?}");
    }
    assert_eq!(node.reservations(), u32::from(SESSIONS));
    node.wait(Duration::from_secs(160));
    assert_eq!(node.reservations(), 0, "only the summaries kept the state");
}
