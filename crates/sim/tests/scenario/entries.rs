//! Ports of entry that no protocol of the suite uses: the simulator carries them without code of their own.

use std::net::SocketAddr;

use signalbox_core::metrics::Subsystem;
use signalbox_core::node::{Input, NodeEngine, Output};
use signalbox_core::packet::{Transmit, router_alert_v4};
use signalbox_core::{AlertRule, Entry, EntryRequest, Intercept, Match, Time};
use signalbox_sim::{Family, LinkConfig, Sim, topology};

use crate::SECOND;

const MAGIC: u32 = 0x5342_4f58;
const ENTRY: Entry = Entry::IcmpEcho(MAGIC);

/// An engine that sends Echo Requests and reports each received packet by its entry.
#[derive(Default)]
struct Pinger {
    to_send: Vec<(SocketAddr, Vec<u8>)>,
    sending: Vec<u8>,
    received: Vec<Vec<u8>>,
}

impl NodeEngine for Pinger {
    type Command = (SocketAddr, Vec<u8>);
    type Event = Vec<u8>;

    fn handle(&mut self, _: Time, input: Input<'_, Self::Command>) {
        match input {
            Input::Packet(packet) => {
                assert_eq!(packet.entry, ENTRY);
                self.received.push(packet.payload.to_vec());
            }
            Input::Command(send) => self.to_send.push(send),
            _ => {}
        }
    }

    fn poll(&mut self) -> Option<Output<'_, Vec<u8>>> {
        const ALERT: [u8; 4] = router_alert_v4(0);
        if let Some(payload) = self.received.pop() {
            return Some(Output::Event(payload));
        }
        let (dst, payload) = self.to_send.pop()?;
        self.sending = payload;
        Some(Output::Transmit(Transmit {
            gateway: None,
            entry: ENTRY,
            src: SocketAddr::new([0, 0, 0, 0].into(), 0),
            dst,
            ifindex: None,
            ttl: 64,
            tos: 0,
            dont_fragment: false,
            flow_label: 0,
            unproved: false,
            options: &ALERT,
            payload: &self.sending,
        }))
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn entries(&self) -> Vec<EntryRequest> {
        // The protocol's message follows the magic number; version 1 is intercepted.
        let version = Match { offset: 12, mask: 0xff00_0000, value: 0x0100_0000 };
        let intercept = Intercept::passing(AlertRule::Any, vec![version]);
        vec![EntryRequest::local(ENTRY, Subsystem::protocol("echo")).with_intercept(intercept)]
    }
}

fn echo(magic: u32, version: u8) -> Vec<u8> {
    [&[8, 0, 0, 0, 0, 1, 0, 1][..], &magic.to_be_bytes(), &[version, 0, 0, 0]].concat()
}

#[test]
fn echo_messages_with_a_magic_number_are_an_entry() {
    let mut sim = Sim::new(5);
    let nodes = sim.add_engines(3, |_| Pinger::default());
    topology::chain(&mut sim, &nodes, &LinkConfig::default());
    let dst = SocketAddr::new(sim.address(nodes[2], Family::V4), 0);
    let mut receivers = |payload: Vec<u8>| {
        sim.command(nodes[0], (dst, payload));
        sim.run_for(SECOND);
        sim.take_events().iter().map(|happened| happened.node).collect::<Vec<_>>()
    };
    assert_eq!(receivers(echo(MAGIC, 1)), [nodes[1]], "the rule intercepts it");
    assert_eq!(receivers(echo(MAGIC, 2)), [nodes[2]], "the rule does not intercept it");
    assert_eq!(receivers(echo(MAGIC + 1, 1)), [], "another magic number is another entry");
}

/// A host answers the pings that no engine takes: with a valid checksum, and without the options of the request.
#[test]
fn hosts_answer_pings() {
    let mut sim = Sim::new(5);
    let ends = sim.add_engines(2, |_| Pinger::default());
    let host = sim.add_router("host");
    topology::chain(&mut sim, &[ends[0], host], &LinkConfig::default());
    topology::chain(&mut sim, &[host, ends[1]], &LinkConfig::default());
    sim.capture_all();
    for (family, request, reply) in [
        (Family::V4, [8, 0, 0xf1, 0xff], [0, 0, 0xf9, 0xff]),
        (Family::V6, [128, 0, 0xff, 0xff], [129, 0, 0xfe, 0xff]),
    ] {
        let dst = SocketAddr::new(sim.address(host, family), 0);
        let rest = [[0, 1, 0, 1], MAGIC.to_be_bytes()].concat();
        sim.command(ends[0], (dst, [&request[..], &rest].concat()));
        sim.run_for(SECOND);
        let answers: Vec<_> = sim.take_events().into_iter().map(|happened| happened.event).collect();
        assert_eq!(answers, [[&reply[..], &rest].concat()]);
        let last = sim.captured().last().unwrap();
        assert_eq!((last.from, last.packet.src, last.packet.options.len()), (host, dst, 0));
    }
    assert_eq!(sim.counters().echoed, 2);
    sim.power_off(host);
    let dst = SocketAddr::new(sim.address(host, Family::V4), 0);
    sim.command(ends[0], (dst, echo(MAGIC, 1)));
    sim.run_for(SECOND);
    assert!(sim.events().is_empty());
}
