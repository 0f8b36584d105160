//! A node with state that receives any octets from its neighbors at any time.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use signalbox_core::node::Prefix;

use crate::engine::{Config, Input};
use crate::kit::{Path, Resv, World, at, compose, handle, load, sender, session, to, tspec};
use crate::wire::{
    Diagnostic, ErrorCode, Filter, Hello, ListedId, MessageId, MessageType, RsvpHop, Session, Style, Writer,
    checksum_is_valid,
};

/// The part of a link of 10 Mbit/s that reservations may have by default, octets a second.
const SHARE: u64 = 1_250_000 * 3 / 4;
/// TTL of all messages.
const TTL: u8 = 60;
/// Packets of one run.
const PACKETS: usize = 64;
const SETTINGS: [u32; 3] = [40, 10, 40];

fn session_of(number: u8) -> Session {
    if number & 1 != 0 { to("232.1.1.1") } else { session() }
}

fn sender_of(number: u8) -> Filter {
    sender(u32::from(number & 3))
}

/// A DREQ for this node as LAST-HOP; with even numbers it has a ROUTE.
fn diagnosis(number: u8, interface: u32) -> (Vec<u8>, IpAddr) {
    let asked = Diagnostic {
        max_hops: number & 2,
        hops: 0,
        more: false,
        request_id: u32::from(number),
        path_mtu: 1500,
        offset: 0,
        last_hop: at(interface, 1),
        sender: sender_of(number),
        requester: (at(interface, 7), 4000).into(),
    };
    let hop = RsvpHop { addr: at(interface, 9), lih: handle(interface) };
    let octets = compose(MessageType::DREQ, TTL, |w| {
        w.session(&session_of(number), false).hop(&hop).diagnostic(&asked);
        if number & 1 == 0 {
            w.route(false, 0, core::iter::empty());
        }
    });
    (octets, asked.last_hop)
}

/// A message of a neighbor at an interface, and its destination.
fn template(number: u8, interface: u32) -> (Vec<u8>, IpAddr) {
    if number & 0x18 == 0x18 {
        return diagnosis(number, interface);
    }
    let session = session_of(number);
    let id = Some(MessageId { ack_desired: true, epoch: 7, id: u32::from(number) });
    let hop = RsvpHop { addr: at(interface, 9), lih: handle(interface) };
    let rate = 10_000.0 * f32::from(number) + 1.0;
    let tspec = tspec(rate);
    let path = Path { id, session, sender: sender_of(number), hop, tspec, send_ttl: TTL, ..Path::new() };
    let style = match number % 3 {
        0 => Style::Ff,
        1 => Style::Se,
        _ => Style::Wf,
    };
    let filters = if style.is_explicit() { vec![sender(0), sender(1)] } else { Vec::new() };
    let resv = Resv { id, session, hop, send_ttl: TTL, ..Resv::of(style, vec![(Some(load(rate)), filters)]) };
    let (octets, to_all) = match number >> 1 & 7 {
        0 => (path.octets(), true),
        1 => (path.tear_octets(), true),
        2..5 => (resv.octets(), false),
        5 => (resv.tear_octets(), false),
        6 => (resv.error_octets(interface, ErrorCode::ADMISSION, 2, false), false),
        _ => {
            let one = |id| ListedId { id, source: None, group: None };
            let hello = Hello { ack: false, src_instance: 1, dst_instance: 0 };
            let summary = |w: &mut Writer<'_>| _ = w.id_list(7, &[one(1), one(2)]).hello(&hello);
            (compose(MessageType::SREFRESH, TTL, summary), false)
        }
    };
    (octets, if to_all { session.dest } else { at(interface, 1) })
}

struct Node(World);

impl Node {
    fn new(reduction: bool) -> Self {
        let [max_senders, max_sessions, max_reservations] = SETTINGS;
        let mut config = Config { max_senders, max_sessions, max_reservations, ..Config::default() };
        config.neighbors.interface.reduction.reliable = reduction;
        let mut world = World::with_neighbors(config, "10mbit");
        world.routes = vec![(Prefix { addr: Ipv4Addr::UNSPECIFIED.into(), len: 0 }, 2)];
        world.other_tree = (1, vec![2, 3]);
        Self(world)
    }

    fn packet(&mut self, interface: u32, dst: IpAddr, number: u8, octets: &[u8]) {
        let src = if dst == at(interface, 1) { at(interface, 9) } else { sender_of(number).src };
        for sent in self.0.packet(interface, src, dst, TTL, octets) {
            assert!(sent.octets.len() >= 8, "a whole message");
        }
    }

    fn wait(&mut self, time: Duration) {
        self.0.wait(time);
        self.0.input(Input::Timer);
    }

    /// Checks the properties that always hold.
    fn check(&mut self) {
        let [max_senders, max_sessions, max_reservations] = SETTINGS;
        let Self(world) = self;
        assert!(world.replies.drain(..).all(|reply| checksum_is_valid(&reply.octets)), "whole messages");
        let rsvp = &world.rsvp;
        assert!(rsvp.senders() <= max_senders && rsvp.sessions() <= max_sessions);
        assert!(rsvp.reservations() <= max_reservations);
        for link in 1..=4 {
            let granted = world.resources.reservations().filter(|one| one.ifindex.0 == link);
            let sum: u64 = granted.map(|one| one.traffic.rate).sum();
            assert!(sum <= SHARE, "more than the share of a link");
        }
        assert!(world.reservations() <= rsvp.reservations() as usize, "more grants than reservations");
    }
}

/// A node with path and reservation state handles all messages of its neighbors and stays within its limits. Input:
/// the first octet selects the node's settings. Then packets follow: an octet with the interface (low two bits),
/// whether time passes (next bit; the next octet is how much) and the template of the message (the rest; from 24 on
/// DREQs; 31: none, the next octet is the number of octets to use), and an octet with the number of changes (low three
/// bits), each an offset and a value. Lengths and checksums are corrected.
pub fn rsvp_engine(octets: &[u8]) {
    let mut octets = octets.iter().copied();
    let Some(setup) = octets.next() else { return };
    let mut node = Node::new(setup & 1 != 0);
    for (number, interface) in [(0, 1), (2, 1), (1, 1), (3, 1), (4 + (setup >> 1 & 7), 2), (5, 3), (9, 2)] {
        let (message, dst) = template(number, interface);
        node.packet(interface, dst, number, &message);
    }
    node.check();
    for _ in 0..PACKETS {
        let (Some(control), Some(more)) = (octets.next(), octets.next()) else { break };
        if control & 4 != 0 {
            node.wait(Duration::from_millis(u64::from(more) * 200));
            node.check();
            continue;
        }
        let (number, interface) = (control >> 3, 1 + u32::from(control & 3));
        let (mut message, dst) = template(number, interface);
        if number == 31 {
            message = octets.by_ref().take(usize::from(more)).collect();
        } else {
            for _ in 0..more & 7 {
                let (Some(at), Some(value)) = (octets.next(), octets.next()) else { break };
                if let Some(octet) = message.get_mut(usize::from(at)) {
                    *octet = value;
                }
            }
        }
        if let (Ok(length), Some(header)) = (u16::try_from(message.len()), message.first_chunk_mut::<8>()) {
            let [l1, l0] = length.to_be_bytes();
            [header[2], header[3], header[6], header[7]] = [0, 0, l1, l0];
        }
        node.packet(interface, dst, number, &message);
        node.check();
    }
    // After ten minutes it still works and stays within its limits.
    node.wait(Duration::from_secs(600));
    node.check();
}
