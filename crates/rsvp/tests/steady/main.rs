//! Refreshes allocate nothing in steady state.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use signalbox_core::node::{Interface, Route};
use signalbox_core::{IfIndex, Time};
use signalbox_resources::intserv::TSpec;
use signalbox_resources::{ResourceOutput, Resources};
use signalbox_rsvp::engine::IpReceived;
use signalbox_rsvp::engine::{Config, Input, Output, Rsvp};
use signalbox_rsvp::wire::{
    Filter, FlowSpec, HeaderFlags, ListedId, MessageId, MessageType, RsvpHop, Selector, Session, SessionKind,
    Style, Writer,
};

const SESSIONS: u8 = 50;
const UP: IfIndex = IfIndex(1);
const DOWN: IfIndex = IfIndex(2);
const EPOCH: u32 = 5;

fn address(third: u8, last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, third, last).into()
}

/// The MESSAGE_ID of both messages of a session; each neighbor has its own.
fn id_of(number: u8) -> u32 {
    u32::from(number) + 1
}

struct Node {
    rsvp: Rsvp,
    resources: Resources,
    now: Time,
    /// Number of Paths and Resvs sent.
    sent: [u32; 2],
}

impl Node {
    fn new(reduction: bool) -> Self {
        let interface = |ifindex: IfIndex, third| Interface {
            ifindex,
            name: format!("eth{}", ifindex.0),
            up: true,
            mtu: 1500,
            tunnel: false,
            addresses: vec![address(third, 1)],
        };
        let interfaces = [interface(UP, 1), interface(DOWN, 2)];
        let links = signalbox_resources::Config::of_link("*", "1gbit".parse().unwrap());
        let mut resources = Resources::new(links, 0, [1; 32]).unwrap();
        resources.interfaces(&interfaces);
        let mut config = Config::default();
        config.neighbors.interface.reduction.reliable = reduction;
        let rsvp = Rsvp::new(config, [9; 32]).unwrap();
        let mut node = Self { rsvp, resources, now: Time::from_secs(1), sent: [0; 2] };
        node.input(Input::Interfaces(&interfaces));
        node
    }

    fn input(&mut self, input: Input<'_>) {
        let mut next = Some(input);
        while let Some(input) = next.take() {
            self.rsvp.handle(self.now, input, &mut self.resources);
            while let Some(output) = self.rsvp.poll() {
                match output {
                    Output::Send(packet) if packet.payload[1] == MessageType::PATH.0 => self.sent[0] += 1,
                    Output::Send(packet) if packet.payload[1] == MessageType::RESV.0 => self.sent[1] += 1,
                    Output::RouteLookup { id, .. } => {
                        let (src, gateway) = (address(2, 1), Some(address(2, 2)));
                        let route = Route { ifindex: DOWN, src, gateway, mtu: 1500, local: false };
                        next = Some(Input::Route { id, result: Ok(route) });
                    }
                    Output::Send(_) => {}
                    other => panic!("{other:?}"),
                }
            }
            while let Some(output) = self.resources.poll() {
                if let ResourceOutput::Install { id, .. } = output {
                    self.resources.installed(id, Ok(()));
                }
            }
        }
    }

    /// Receives all messages of the neighbors once.
    fn receive_all(&mut self, messages: &[(IfIndex, IpAddr, IpAddr, Vec<u8>)]) {
        for (ifindex, src, dst, payload) in messages {
            let (ifindex, src, dst) = (*ifindex, *src, *dst);
            let packet = IpReceived { src, dst, ifindex, ttl: 60, tos: 0, router_alert: true, payload };
            self.input(Input::Packet(packet));
        }
    }

    /// Lets time pass and handles what is due.
    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.rsvp.next_deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.input(Input::Timer);
        }
        self.now = end;
    }
}

/// A Path and a Resv of each session, with a MESSAGE_ID if the neighbors have refresh reduction.
fn messages(handle: u32, reduction: bool) -> Vec<(IfIndex, IpAddr, IpAddr, Vec<u8>)> {
    let tspec = TSpec::new(10_000.0, 3000.0, f32::INFINITY, 64, 1500).unwrap();
    let sender = Filter { src: address(1, 9), selector: Selector::Port(4000) };
    let flags = if reduction { HeaderFlags::REFRESH_REDUCTION } else { HeaderFlags::default() };
    let mut all = Vec::new();
    for number in 0..SESSIONS {
        let id = reduction.then(|| MessageId { ack_desired: false, epoch: EPOCH, id: id_of(number) });
        let session =
            Session { dest: address(9, number), protocol: 17, kind: SessionKind::Ports, port: 5004 };
        let mut path = Vec::new();
        let mut w = Writer::new(&mut path, MessageType::PATH, flags, 60);
        id.iter().for_each(|id| _ = w.message_id(id));
        w.session(&session, false).hop(&RsvpHop { addr: address(1, 2), lih: 7 }).time_values(30_000);
        w.sender_template(&sender).sender_tspec(&tspec);
        w.finish().unwrap();
        all.push((UP, sender.src, session.dest, path));
        let mut resv = Vec::new();
        let mut w = Writer::new(&mut resv, MessageType::RESV, flags, 60);
        id.iter().for_each(|id| _ = w.message_id(id));
        w.session(&session, false).hop(&RsvpHop { addr: address(2, 2), lih: handle }).time_values(30_000);
        w.style(Style::Ff).flowspec(&FlowSpec { tspec, rspec: None }).filter_spec(&sender);
        w.finish().unwrap();
        all.push((DOWN, address(2, 2), address(2, 1), resv));
    }
    all
}

#[test]
fn refreshes_allocate_nothing() {
    let mut node = Node::new(false);
    let messages = messages(node.rsvp.handle_of(DOWN).unwrap(), false);
    let set_up = allocation_counter::measure(|| node.receive_all(&messages));
    assert!(set_up.count_total > 0, "they are counted");
    assert_eq!(node.rsvp.reservations(), u32::from(SESSIONS));
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
    assert_eq!(node.rsvp.reservations(), u32::from(SESSIONS));
    assert_eq!(counted.count_total, 0, "{counted:?}");
}

/// Srefreshes keep the state of both neighbors, and a state that is refreshed by its MESSAGE_ID allocates nothing.
#[test]
fn summary_refreshes_allocate_nothing() {
    let mut node = Node::new(true);
    let messages = messages(node.rsvp.handle_of(DOWN).unwrap(), true);
    node.receive_all(&messages);
    assert_eq!(node.rsvp.reservations(), u32::from(SESSIONS));
    let ids: Vec<_> =
        (0..SESSIONS).map(|number| ListedId { id: id_of(number), source: None, group: None }).collect();
    let summary = |ifindex, src, dst| {
        let mut octets = Vec::new();
        let mut w = Writer::new(&mut octets, MessageType::SREFRESH, HeaderFlags::REFRESH_REDUCTION, 60);
        w.id_list(EPOCH, &ids);
        w.finish().unwrap();
        (ifindex, src, dst, octets)
    };
    let summaries = [summary(UP, address(1, 2), address(1, 1)), summary(DOWN, address(2, 2), address(2, 1))];
    // Longer than the lifetime of a state, 157.5 s.
    for _ in 0..10 {
        node.wait(Duration::from_secs(30));
        let counted = allocation_counter::measure(|| node.receive_all(&summaries));
        assert_eq!(counted.count_total, 0, "{counted:?}");
    }
    assert_eq!(node.rsvp.reservations(), u32::from(SESSIONS));
    node.wait(Duration::from_secs(160));
    assert_eq!(node.rsvp.reservations(), 0, "only the summaries kept the state");
}
