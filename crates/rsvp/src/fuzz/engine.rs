//! A node with state that receives any octets from its neighbors at any time.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use signalbox_core::node::{Interface, NoRoute, Route};
use signalbox_core::{IfIndex, Time};
use signalbox_resources::intserv::TSpec;
use signalbox_resources::{ResourceOutput, Resources, units::Rate};

use crate::engine::IpReceived;
use crate::engine::{Config, Input, Output, PROTOCOL, Rsvp};
use crate::wire::{
    Diagnostic, ErrorCode, ErrorFlags, ErrorSpec, Filter, FlowSpec, HeaderFlags, Hello, ListedId, MessageId,
    MessageType, RsvpHop, Selector, Session, SessionKind, Style, Writer, checksum_is_valid,
};

/// Capacity of each link, octets a second.
const CAPACITY: u64 = 1_250_000;
/// The part of it that reservations may have by default.
const SHARE: u64 = CAPACITY * 3 / 4;
/// Packets of one run.
const PACKETS: usize = 64;
/// Deadlines in one pause; more are an endless loop.
const DEADLINES: u32 = 20_000;
const SETTINGS: [u32; 3] = [40, 10, 40];

fn address(interface: u8, host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, interface, host))
}

fn sender(n: u8) -> Filter {
    Filter { src: IpAddr::V4(Ipv4Addr::new(10, 8, 0, n)), selector: Selector::Port(4000) }
}

fn session(multicast: bool) -> Session {
    let dest = if multicast { Ipv4Addr::new(232, 1, 1, 1) } else { Ipv4Addr::new(10, 9, 0, 1) };
    Session { dest: IpAddr::V4(dest), protocol: 17, kind: SessionKind::Ports, port: 5004 }
}

/// A DREQ for this node as LAST-HOP; with even numbers it has a ROUTE.
fn diagnosis(number: u8, interface: u8, handle: u32) -> (Vec<u8>, IpAddr) {
    let mut octets = Vec::new();
    let mut w = Writer::new(&mut octets, MessageType::DREQ, HeaderFlags::default(), 60);
    let asked = Diagnostic {
        max_hops: number & 2,
        hops: 0,
        more: false,
        request_id: u32::from(number),
        path_mtu: 1500,
        offset: 0,
        last_hop: address(interface, 1),
        sender: sender(number & 3),
        requester: (address(interface, 7), 4000).into(),
    };
    let hop = RsvpHop { addr: address(interface, 9), lih: handle };
    w.session(&session(number & 1 != 0), false).hop(&hop).diagnostic(&asked);
    if number & 1 == 0 {
        w.route(false, 0, core::iter::empty());
    }
    let finished = w.finish().is_ok();
    debug_assert!(finished, "a message of a few objects");
    (octets, asked.last_hop)
}

/// A message of a neighbor at an interface, and its destination.
fn template(number: u8, interface: u8, handle: u32) -> (Vec<u8>, IpAddr) {
    let session = session(number & 1 != 0);
    if number & 0x18 == 0x18 {
        return diagnosis(number, interface, handle);
    }
    let (kind, to_all) = match number >> 1 & 7 {
        0 => (MessageType::PATH, true),
        1 => (MessageType::PATH_TEAR, true),
        2..5 => (MessageType::RESV, false),
        5 => (MessageType::RESV_TEAR, false),
        6 => (MessageType::RESV_ERR, false),
        _ => (MessageType::SREFRESH, false),
    };
    let mut octets = Vec::new();
    let mut w = Writer::new(&mut octets, kind, HeaderFlags::default(), 60);
    let hop = RsvpHop { addr: address(interface, 9), lih: handle };
    let rate = 10_000.0 * f32::from(number);
    let flowspec = TSpec::new(rate + 1.0, 3000.0, f32::INFINITY, 64, 1500)
        .map(|tspec| FlowSpec { tspec, rspec: None })
        .ok();
    let Some(flowspec) = flowspec else { return (octets, session.dest) };
    if kind == MessageType::SREFRESH {
        let one = |id| ListedId { id, source: None, group: None };
        w.id_list(7, &[one(1), one(2)]).hello(&Hello { ack: false, src_instance: 1, dst_instance: 0 });
    } else {
        w.message_id(&MessageId { ack_desired: true, epoch: 7, id: u32::from(number) });
        w.session(&session, false).hop(&hop);
    }
    match kind {
        MessageType::PATH | MessageType::PATH_TEAR => {
            if kind == MessageType::PATH {
                w.time_values(30_000);
            }
            w.sender_template(&sender(number & 3)).sender_tspec(&flowspec.tspec);
        }
        MessageType::RESV | MessageType::RESV_TEAR | MessageType::RESV_ERR => {
            match kind {
                MessageType::RESV => drop(w.time_values(30_000)),
                MessageType::RESV_ERR => {
                    let (node, flags) = (hop.addr, ErrorFlags::default());
                    w.error_spec(&ErrorSpec { node, flags, code: ErrorCode::ADMISSION, value: 2 });
                }
                _ => {}
            }
            let style = match number % 3 {
                0 => Style::Ff,
                1 => Style::Se,
                _ => Style::Wf,
            };
            w.style(style).flowspec(&flowspec);
            if style.is_explicit() {
                w.filter_spec(&sender(0)).filter_spec(&sender(1));
            }
        }
        _ => {}
    }
    let finished = w.finish().is_ok();
    debug_assert!(finished, "a message of a few objects");
    (octets, if to_all { session.dest } else { address(interface, 1) })
}

struct Node {
    rsvp: Rsvp,
    resources: Resources,
    now: Time,
}

impl Node {
    /// The handle of an interface; 0 if it does not exist.
    fn handle(&self, interface: u8) -> u32 {
        self.rsvp.handle_of(IfIndex(u32::from(interface))).unwrap_or(0)
    }

    fn new(reduction: bool) -> Option<Self> {
        let [max_senders, max_sessions, max_reservations] = SETTINGS;
        let mut config = Config { max_senders, max_sessions, max_reservations, ..Config::default() };
        config.neighbors.interface.reduction.reliable = reduction;
        let links = signalbox_resources::Config::of_link("*", Rate(CAPACITY));
        let mut node = Self {
            rsvp: Rsvp::new(config, [1; 32]).ok()?,
            resources: Resources::new(links, 0, [2; 32]).ok()?,
            now: Time::from_secs(10),
        };
        let interfaces: Vec<Interface> = (1..=4)
            .map(|n| Interface {
                ifindex: IfIndex(u32::from(n)),
                name: format!("eth{n}"),
                up: true,
                tunnel: false,
                mtu: 1500,
                addresses: vec![address(n, 1)],
            })
            .collect();
        node.resources.interfaces(&interfaces);
        node.input(Input::Interfaces(&interfaces));
        Some(node)
    }

    fn input(&mut self, input: Input<'_>) {
        self.rsvp.handle(self.now, input, &mut self.resources);
        loop {
            let (mut routes, mut groups, mut lost) = (Vec::new(), Vec::new(), Vec::new());
            while let Some(output) = self.rsvp.poll() {
                match output {
                    Output::Send(packet) => assert!(packet.payload.len() >= 8, "a whole message"),
                    Output::Reply { payload, .. } => assert!(checksum_is_valid(payload), "a whole message"),
                    Output::RouteLookup { id, query } => routes.push((id, query.dst)),
                    Output::MulticastLookup { group, source } => groups.push((group, source)),
                    Output::MulticastRelease { .. } => {}
                    Output::Event { .. } => {}
                }
            }
            while let Some(output) = self.resources.poll() {
                match output {
                    ResourceOutput::Install { id, .. } => self.resources.installed(id, Ok(())),
                    ResourceOutput::Lost { owner, grant, why } if owner.protocol == PROTOCOL => {
                        lost.push(Input::Lost { key: owner.key, grant, why });
                    }
                    _ => {}
                }
            }
            if routes.is_empty() && groups.is_empty() && lost.is_empty() {
                return;
            }
            for (id, dst) in routes {
                let (ifindex, src, gateway) = (IfIndex(2), address(2, 1), Some(address(2, 9)));
                let known = dst.is_ipv4() && dst != address(1, 1);
                let route = Route { ifindex, src, gateway, mtu: 1500, local: false };
                let result = if known { Ok(route) } else { Err(NoRoute::Unreachable) };
                self.rsvp.handle(self.now, Input::Route { id, result }, &mut self.resources);
            }
            for (group, source) in groups {
                let oifs = [IfIndex(2), IfIndex(3)];
                let tree = Input::Multicast { group, source, iif: IfIndex(1), oifs: &oifs };
                self.rsvp.handle(self.now, tree, &mut self.resources);
            }
            for lost in lost {
                self.rsvp.handle(self.now, lost, &mut self.resources);
            }
        }
    }

    fn packet(&mut self, interface: u8, dst: IpAddr, number: u8, octets: &[u8]) {
        let src = if dst == address(interface, 1) { address(interface, 9) } else { sender(number & 3).src };
        let ifindex = IfIndex(u32::from(interface));
        let packet = IpReceived { src, dst, ifindex, ttl: 60, tos: 0, router_alert: true, payload: octets };
        self.input(Input::Packet(packet));
    }

    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..DEADLINES {
            let Some(next) = self.rsvp.next_deadline().filter(|next| *next <= end) else {
                self.now = end;
                return self.input(Input::Timer);
            };
            self.now = self.now.max(next);
            self.input(Input::Timer);
        }
        panic!("timers come again and again");
    }

    /// Checks the properties that always hold.
    fn check(&self) {
        let [max_senders, max_sessions, max_reservations] = SETTINGS;
        let rsvp = &self.rsvp;
        assert!(rsvp.senders() <= max_senders && rsvp.sessions() <= max_sessions);
        assert!(rsvp.reservations() <= max_reservations);
        let mut sums = [0; 5];
        let mut count = 0;
        for one in self.resources.reservations() {
            count += 1;
            if let Some(sum) = usize::try_from(one.ifindex.0).ok().and_then(|at| sums.get_mut(at)) {
                *sum += one.traffic.rate;
            }
        }
        assert!(sums.iter().all(|sum| *sum <= SHARE), "more than the share of a link");
        assert!(count <= rsvp.reservations(), "more grants than reservations");
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
    let Some(mut node) = Node::new(setup & 1 != 0) else { return };
    for (number, interface) in [(0, 1), (2, 1), (1, 1), (3, 1), (4 + (setup >> 1 & 7), 2), (5, 3), (9, 2)] {
        let (message, dst) = template(number, interface, node.handle(interface));
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
        let (number, interface) = (control >> 3, 1 + (control & 3));
        let (mut message, dst) = template(number, interface, node.handle(interface));
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
