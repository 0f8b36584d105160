//! Tests of TCP connections and SCTP packets.

use std::net::SocketAddr;
use std::time::Duration;

use signalbox_core::Time;
use signalbox_core::node::{StreamError, StreamId};
use signalbox_sim::{Family, Happened, Impairment, LinkConfig, LinkId, NodeId, Sim, StreamConfig, topology};

use crate::SECOND;
use crate::streamer::{Command, Event, Streamer};

const OURS: StreamId = StreamId(1);

/// A chain whose first node opens streams to its last.
struct Stage {
    sim: Sim<Streamer>,
    nodes: Vec<NodeId>,
    links: Vec<LinkId>,
}

impl Stage {
    fn new(seed: u64, nodes: u32, impairment: Impairment) -> Self {
        let mut sim = Sim::new(seed);
        let nodes = sim.add_engines(nodes, Streamer::new);
        let links = topology::chain(&mut sim, &nodes, &LinkConfig::impaired(impairment));
        sim.run_for(SECOND);
        Self { sim, nodes, links }
    }

    fn first(&self) -> NodeId {
        self.nodes[0]
    }

    fn last(&self) -> NodeId {
        self.nodes[self.nodes.len() - 1]
    }

    fn open(&mut self, port: u16) {
        let local = self.sim.address(self.first(), Family::V4);
        let peer = SocketAddr::new(self.sim.address(self.last(), Family::V4), port);
        self.sim.command(self.first(), Command::Open(OURS, local, peer));
    }

    /// Opens the stream. Returns its id at the acceptor.
    fn connect(&mut self) -> StreamId {
        self.open(270);
        let last = self.last();
        let accepted = |h: &Happened<Event>| match h.event {
            Event::Accepted(stream, ..) if h.node == last => Some(stream),
            _ => None,
        };
        self.sim.expect("an accepted stream", 60 * SECOND, |sim| {
            sim.events().iter().any(|h| accepted(h).is_some())
        });
        self.sim.take_events().iter().find_map(accepted).unwrap()
    }

    fn write(&mut self, octets: impl Into<Vec<u8>>) {
        self.sim.command(self.first(), Command::Write(OURS, octets.into()));
    }

    /// The events of a node for the end of streams, with their times.
    fn ends(&self, node: NodeId) -> Vec<(Time, Event)> {
        let of_node = self.sim.events().iter().filter(|h| h.node == node);
        of_node.filter(|h| matches!(h.event, Event::Closed(..))).map(|h| (h.at, h.event.clone())).collect()
    }

    fn last_end(&self, node: NodeId) -> Event {
        let ends = self.ends(node);
        assert_eq!(ends.len(), 1, "a stream ends once");
        ends[0].1.clone()
    }

    /// All octets that a node has read.
    fn octets(&self, node: NodeId) -> Vec<u8> {
        let of_node = self.sim.events().iter().filter(|h| h.node == node);
        of_node
            .filter_map(|h| if let Event::Octets(_, o) = &h.event { Some(o) } else { None })
            .flatten()
            .copied()
            .collect()
    }

    fn drained(&self) -> Vec<usize> {
        let drained = |h: &Happened<Event>| if let Event::Drained(_, n) = h.event { Some(n) } else { None };
        self.sim.events().iter().filter_map(drained).collect()
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

#[test]
fn a_stream_comes_up_after_a_round_trip_and_carries_octets_both_ways() {
    let mut stage = Stage::new(1, 4, Impairment::default());
    stage.open(270);
    stage.sim.run_for(SECOND);
    let events = stage.sim.take_events();
    // 3 ms there, 3 ms back, 3 ms for the acknowledgement.
    let [up, accepted] = &events[..] else { panic!("{events:?}") };
    assert_eq!((up.at, up.node), (Time::from_millis(1006), stage.first()));
    assert_eq!((accepted.at, accepted.node), (Time::from_millis(1009), stage.last()));
    let (Event::Connected(OURS, ours), Event::Accepted(theirs, local, peer)) = (&up.event, &accepted.event)
    else {
        panic!("{events:?}")
    };
    assert_eq!((ours, local.port(), theirs.0 % 2), (peer, 270, 0));

    stage.write(pattern(100_000));
    stage.sim.command(stage.last(), Command::Write(*theirs, b"back".to_vec()));
    stage.sim.run_for(SECOND);
    assert_eq!(stage.octets(stage.last()), pattern(100_000));
    assert_eq!(stage.octets(stage.first()), b"back");
    let pieces = stage.sim.events().iter().filter(|h| h.node == stage.last()).count();
    assert!(pieces > 80, "split into {pieces}");
}

#[test]
fn loss_makes_octets_late_but_loses_none() {
    let impairment = Impairment { loss: 0.08, jitter: Duration::from_millis(20), ..Impairment::default() };
    let run = |seed| {
        let mut stage = Stage::new(seed, 4, impairment);
        stage.connect();
        for piece in pattern(60_000).chunks(777) {
            stage.write(piece);
            stage.sim.run_for(Duration::from_millis(3));
        }
        let last = stage.last();
        let whole = |sim: &Sim<Streamer>| {
            let octets = sim.events().iter().filter(|h| h.node == last);
            octets.map(|h| if let Event::Octets(_, o) = &h.event { o.len() } else { 0 }).sum::<usize>()
                == 60_000
        };
        stage.sim.expect("all octets", 600 * SECOND, whole);
        assert_eq!(stage.octets(last), pattern(60_000));
        assert!(stage.sim.counters().stream_retransmissions > 10);
        (stage.sim.now(), stage.sim.events().to_vec())
    };
    let once = run(3);
    assert_eq!(once, run(3));
    if std::env::var_os("SIGNALBOX_SEED").is_none() {
        assert_ne!(once, run(4));
    }
}

#[test]
fn streams_to_closed_ports_are_refused_and_those_without_a_route_unreachable() {
    let mut stage = Stage::new(1, 3, Impairment::default());
    stage.open(271);
    stage.sim.run_for(SECOND);
    assert_eq!(
        stage.ends(stage.first()),
        [(Time::from_millis(1004), Event::Closed(OURS, Some(StreamError::Refused), false))]
    );
    stage.sim.take_events();
    stage.sim.crash(stage.last());
    stage.open(270);
    stage.sim.run_for(SECOND);
    assert_eq!(stage.last_end(stage.first()), Event::Closed(OURS, Some(StreamError::Refused), false));
    stage.sim.take_events();
    stage.sim.set_link_up(stage.links[1], false);
    stage.open(270);
    stage.sim.run_for(SECOND);
    assert_eq!(stage.last_end(stage.first()), Event::Closed(OURS, Some(StreamError::Unreachable), false));
    assert_eq!(stage.sim.streams(), 0);
}

#[test]
fn silence_makes_streams_time_out() {
    let mut stage = Stage::new(1, 3, Impairment::default());
    stage.connect();
    stage.sim.power_off(stage.nodes[1]);
    let from = stage.sim.now();
    stage.write("lost");
    stage.sim.run_for(60 * SECOND);
    let end = Event::Closed(OURS, Some(StreamError::TimedOut), true);
    assert_eq!(stage.ends(stage.first()), [(from + 20 * SECOND, end)]);
    assert!(stage.ends(stage.last()).is_empty(), "who sends nothing gets nothing");
    stage.sim.take_events();
    let from = stage.sim.now();
    stage.open(270);
    stage.sim.run_for(60 * SECOND);
    let end = Event::Closed(OURS, Some(StreamError::TimedOut), false);
    assert_eq!(stage.ends(stage.first()), [(from + 10 * SECOND, end)]);
}

#[test]
fn a_broken_link_stalls_a_stream_until_it_is_mended_or_time_is_up() {
    let mut stage = Stage::new(1, 3, Impairment::default());
    stage.connect();
    stage.sim.set_link_up(stage.links[1], false);
    stage.write("late");
    stage.sim.run_for(5 * SECOND);
    assert!(stage.octets(stage.last()).is_empty() && stage.ends(stage.first()).is_empty());
    stage.sim.set_link_up(stage.links[1], true);
    stage.sim.run_for(10 * SECOND);
    assert_eq!(stage.octets(stage.last()), b"late");

    let config = StreamConfig { give_up: 3 * SECOND, ..StreamConfig::default() };
    stage.sim.set_stream_config(config);
    stage.sim.set_link_up(stage.links[1], false);
    stage.write("never");
    stage.sim.run_for(5 * SECOND);
    assert_eq!(stage.last_end(stage.first()), Event::Closed(OURS, Some(StreamError::TimedOut), true));
}

#[test]
fn the_peer_of_a_dead_engine_is_reset_when_it_sends() {
    let mut stage = Stage::new(1, 3, Impairment::default());
    stage.connect();
    stage.sim.restart(stage.last());
    stage.sim.run_for(5 * SECOND);
    assert!(stage.ends(stage.first()).is_empty());
    stage.write("anybody there?");
    stage.sim.run_for(SECOND);
    assert_eq!(stage.last_end(stage.first()), Event::Closed(OURS, Some(StreamError::Reset), true));
    assert_eq!(stage.sim.streams(), 0);
    stage.connect();
}

#[test]
fn an_orderly_end_comes_after_all_octets_and_an_abort_at_once() {
    let mut stage = Stage::new(1, 3, Impairment::default());
    let theirs = stage.connect();
    stage.write(pattern(300_000));
    stage.sim.command(stage.first(), Command::Close(OURS));
    stage.sim.command(stage.last(), Command::Write(theirs, b"too late".to_vec()));
    stage.sim.run_for(10 * SECOND);
    assert_eq!(stage.octets(stage.last()), pattern(300_000));
    assert_eq!(stage.last_end(stage.last()), Event::Closed(theirs, None, false));
    assert!(stage.sim.events().iter().all(|h| h.node == stage.last()), "the closer gets nothing more");
    assert_eq!(stage.sim.streams(), 0);

    stage.sim.take_events();
    let theirs = stage.connect();
    stage.sim.command(stage.last(), Command::Write(theirs, pattern(300_000)));
    stage.write(pattern(300_000));
    stage.sim.command(stage.first(), Command::Abort(OURS));
    stage.sim.run_for(10 * SECOND);
    assert_eq!(stage.last_end(stage.last()), Event::Closed(theirs, Some(StreamError::Reset), true));
    assert!(stage.octets(stage.last()).len() < 300_000);
    assert_eq!(stage.sim.streams(), 0);
}

#[test]
fn a_reader_that_pauses_slows_the_writer() {
    let mut stage = Stage::new(1, 2, Impairment::default());
    let theirs = stage.connect();
    stage.sim.command(stage.last(), Command::Read(theirs, false));
    stage.write(pattern(100_000));
    stage.sim.run_for(SECOND);
    assert_eq!((stage.octets(stage.last()).len(), stage.drained()), (0, vec![0]), "the kernels hold it");
    stage.write(pattern(100_000));
    stage.sim.run_for(60 * SECOND);
    let held = 200_000 - 2 * 65_536;
    assert_eq!(
        (stage.octets(stage.last()).len(), stage.drained()),
        (0, vec![0, held]),
        "the driver holds the rest"
    );
    stage.sim.command(stage.last(), Command::Read(theirs, true));
    stage.sim.run_for(SECOND);
    assert_eq!(stage.octets(stage.last()), [pattern(100_000), pattern(100_000)].concat());
    assert_eq!(stage.drained().last(), Some(&0));
    assert!(stage.drained()[1..].is_sorted_by(|a, b| a >= b), "{:?}", stage.drained());
}

#[test]
fn an_end_waits_until_what_was_before_it_is_read() {
    let mut stage = Stage::new(1, 2, Impairment::default());
    let theirs = stage.connect();
    stage.sim.command(stage.last(), Command::Read(theirs, false));
    stage.write("last words");
    stage.sim.command(stage.first(), Command::Close(OURS));
    stage.sim.run_for(60 * SECOND);
    assert!(stage.sim.events().is_empty());
    stage.sim.command(stage.last(), Command::Read(theirs, true));
    stage.sim.run_for(SECOND);
    assert_eq!(stage.octets(stage.last()), b"last words");
    assert_eq!(stage.last_end(stage.last()), Event::Closed(theirs, None, false));
}

#[test]
fn giving_up_an_opening_leaves_nothing() {
    for after in [0, 1, 2, 3] {
        let mut stage = Stage::new(1, 2, Impairment::default());
        stage.open(270);
        stage.sim.run_for(Duration::from_millis(after));
        stage.sim.command(stage.first(), Command::Close(OURS));
        stage.sim.run_for(SECOND);
        assert_eq!(stage.sim.streams(), 0, "closed after {after} ms");
        assert!(stage.ends(stage.first()).is_empty());
    }
}

#[test]
fn a_port_that_somebody_has_cannot_be_listened_at() {
    let mut sim = Sim::new(1);
    let node = sim.add_engine("n", Streamer::new);
    sim.occupy_port(node, 270);
    sim.run_for(SECOND);
    let seen: Vec<_> = sim.events().iter().map(|h| h.event.clone()).collect();
    assert_eq!(seen, [Event::ListenFailed(270, StreamError::AddressInUse)]);
}

#[test]
fn sctp_packets_are_routed_and_lost_like_others() {
    let mut stage = Stage::new(1, 3, Impairment::default());
    let ends = [stage.first(), stage.last()].map(|n| stage.sim.address(n, Family::V6));
    let packet = pattern(64);
    stage.sim.command(stage.first(), Command::Sctp(ends[0], ends[1], packet.clone()));
    stage.sim.run_for(SECOND);
    let seen: Vec<_> = stage.sim.take_events().into_iter().map(|h| (h.at, h.node, h.event)).collect();
    assert_eq!(
        seen,
        [(Time::from_millis(1002), stage.last(), Event::Sctp(ends[0], ends[1], packet.clone()))]
    );
    for link in stage.links.clone() {
        stage.sim.set_impairment(link, Impairment { loss: 0.3, ..Impairment::default() });
    }
    for _ in 0..200 {
        stage.sim.command(stage.first(), Command::Sctp(ends[0], ends[1], packet.clone()));
    }
    stage.sim.run_for(SECOND);
    // 200 * 0.7 * 0.7 = 98.
    assert!((70..130).contains(&stage.sim.events().len()), "{}", stage.sim.events().len());
}
