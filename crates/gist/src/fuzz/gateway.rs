//! A NAT gateway that hosts inside, strangers and the kernel drive in any order.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeSet;

use signalbox_core::mri::PathCoupled;
use signalbox_core::node::Interface;
use signalbox_core::packet::{Received, router_alert_v4};
use signalbox_core::pinhole::{PinholeError, Translation};
use signalbox_core::{Direction, Entry, IfIndex, Mri, NslpId, SessionId, Time};
use signalbox_wire::Writer;

use crate::gateway::{Config, Forward, Gateway, Input, Output};
use crate::wire::{Encapsulation, Header, MAGIC, Message, MessageType, Nli, PORT, strip_magic};

/// Operations of one run.
const OPERATIONS: usize = 256;
const GATE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const EXTERNAL: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1));
const LIMIT: u32 = 16;

/// A host inside or outside.
fn host(number: u8) -> (IpAddr, IfIndex) {
    let last = 2 + (number >> 1 & 3);
    match number & 1 {
        0 => (Ipv4Addr::new(10, 0, 0, last).into(), IfIndex(1)),
        _ => (Ipv4Addr::new(198, 51, 100, last).into(), IfIndex(2)),
    }
}

struct Run {
    gateway: Gateway,
    now: Time,
    /// The kernel refuses bindings.
    refuses: bool,
    /// The kernel translates all flows already.
    translates: bool,
    standing: BTreeSet<u64>,
    /// The message that was sent last, with its source and destination.
    last: Option<(SocketAddr, SocketAddr, Vec<u8>)>,
}

impl Run {
    fn packet(&mut self, (src, dst, ifindex): (SocketAddr, SocketAddr, IfIndex), payload: &[u8]) {
        let options = router_alert_v4(7);
        let packet = Received {
            entry: Entry::Udp(PORT),
            src,
            dst,
            ifindex,
            ttl: 64,
            tos: 0,
            options: &options,
            payload,
        };
        self.gateway.handle(self.now, Input::Datagram(packet));
        self.drain(Some(payload));
    }

    /// Takes all outputs. What is sent parses if what was received did.
    fn drain(&mut self, received: Option<&[u8]>) {
        let parses = |payload: &[u8]| {
            let octets = strip_magic(payload).unwrap_or_default();
            Header::parse(octets)
                .is_ok_and(|header| Message::parse(octets, Encapsulation::of(&header, true)).is_ok())
        };
        for _ in 0..64 {
            let (mut asked, mut sought) = (Vec::new(), Vec::new());
            while let Some(output) = self.gateway.poll() {
                match output {
                    Output::Transmit(transmit) => {
                        let faulty = received.is_some_and(parses) && !parses(transmit.payload);
                        assert!(!faulty, "a message that does not parse: {transmit:?}");
                        assert!(transmit.ttl < 64 || transmit.options.is_empty(), "{transmit:?}");
                        self.last = Some((transmit.src, transmit.dst, transmit.payload.to_vec()));
                    }
                    Output::Open { id, lifetime, .. } => {
                        assert!(lifetime > Duration::ZERO && lifetime <= Duration::from_secs(3600));
                        asked.push(id);
                    }
                    Output::Close { id } => {
                        self.standing.remove(&id.key);
                    }
                    Output::Find { id, packets } => sought.push((id, packets)),
                }
            }
            if asked.is_empty() && sought.is_empty() {
                break;
            }
            for (id, packets) in sought {
                let [src, dst] = [packets.src_port, packets.dst_port].map(Option::unwrap_or_default);
                let translation = self.translates.then(|| Translation {
                    source: (EXTERNAL, src.saturating_add(1)).into(),
                    destination: (host(4).0, dst).into(),
                    by_pinhole: dst & 2 != 0,
                });
                self.gateway.handle(self.now, Input::Found { id, translation });
            }
            for id in asked {
                let result = if self.refuses { Err(PinholeError::Failed) } else { Ok(()) };
                if !self.refuses {
                    self.standing.insert(id.key);
                }
                self.gateway.handle(self.now, Input::Opened { id, result });
            }
        }
        assert!(!self.gateway.has_output(), "outputs without end");
        let [bindings, ports] = self.gateway.tables();
        assert!(bindings.size <= LIMIT && ports.size <= bindings.size, "{bindings:?} {ports:?}");
        assert!(self.standing.len() <= bindings.size as usize, "the kernel has more than the table");
    }

    /// A Query of a host to another one, or to the external address.
    fn query(&mut self, from: u8, to: u8, kind: u8) {
        let (sender, ifindex) = host(from);
        let (far, _) = host(to);
        let target = if kind & 1 == 0 { far } else { EXTERNAL };
        let flow = PathCoupled {
            protocol: Some(if kind & 2 == 0 { 17 } else { 6 }),
            src_port: (kind & 4 == 0).then_some(5000 + u16::from(from)),
            dst_port: Some(7000 + u16::from(to & 3)),
            ..PathCoupled::between(sender, target)
        };
        let flow = if kind & 8 == 0 {
            flow
        } else {
            let (src, dst) = (flow.dst, flow.src);
            PathCoupled {
                src,
                dst,
                src_port: flow.dst_port,
                dst_port: flow.src_port,
                direction: Direction::Upstream,
                ..flow
            }
        };
        let mut message = Message::new(MessageType::QUERY, NslpId::PING, 16);
        message.header.s = kind & 16 == 0;
        (message.mri, message.session) = (Some(Mri::PathCoupled(flow).into()), Some(SessionId([to; 16])));
        let nli = Nli { peer_identity: b"host", ip_ttl: 64, validity_ms: 30_000, interface: sender };
        let cookie = [from; 8];
        (message.nli, message.query_cookie) = (Some(nli), Some(&cookie[..]));
        let mut octets = Vec::new();
        if message.encode_datagram(&mut Writer::new(&mut octets)).is_ok() {
            self.packet(((sender, PORT).into(), (target, PORT).into(), ifindex), &octets);
        }
    }

    /// Answers the Query that was sent last; `change` says at which octet the answer is changed.
    fn answer(&mut self, from: u8, change: u8, value: u8) {
        let Some((src, dst, payload)) = self.last.clone() else { return };
        let Some(octets) = strip_magic(&payload) else { return };
        let Ok(query) = Message::parse(octets, Encapsulation::QMode) else { return };
        let mut message = Message::new(MessageType::RESPONSE, query.header.nslp, 16);
        (message.nat_traversal, message.session) = (query.nat_traversal, query.session);
        (message.mri, message.query_cookie) = (query.mri.map(|mri| mri.inverted()), query.query_cookie);
        let (responder, ifindex) = host(from);
        message.nli =
            Some(Nli { peer_identity: b"far", ip_ttl: 64, validity_ms: u32::MAX, interface: dst.ip() });
        let mut octets = Vec::new();
        if message.encode_datagram(&mut Writer::new(&mut octets)).is_err() {
            return;
        }
        if let Some(octet) = octets.get_mut(usize::from(change)).filter(|_| change > 0) {
            *octet = value;
        }
        self.packet(((responder, PORT).into(), src, ifindex), &octets);
    }

    fn wait(&mut self, duration: Duration) {
        let end = self.now + duration;
        let mut deadlines = 0;
        while let Some(deadline) = self.gateway.next_deadline().filter(|deadline| *deadline <= end) {
            deadlines += 1;
            assert!(deadlines < 20_000, "an endless loop of deadlines");
            self.now = self.now.max(deadline);
            self.gateway.handle(self.now, Input::Timer);
            self.drain(None);
        }
        self.now = end;
    }
}

/// Whatever hosts, strangers and the kernel do: messages that were well-formed leave well-formed, the tables keep their
/// limits, and bindings and ports are all given back at the end.
///
/// # Panics
/// If that does not hold.
pub fn gist_gateway(octets: &[u8]) {
    let forward = Forward {
        protocol: 17,
        first_port: 7000,
        last_port: 7001,
        address: Ipv4Addr::new(10, 0, 0, 2),
        port: 5000,
    };
    let config = Config {
        inside: vec!["eth1".to_owned()],
        outside: vec!["eth2".to_owned()],
        forwards: vec![forward],
        max_bindings: LIMIT,
        first_port: 5000,
        last_port: 5015,
        ..Config::default()
    };
    let Ok(gateway) = Gateway::new(config, [7; 32]) else { return };
    let mut run = Run {
        gateway,
        now: Time::ZERO,
        refuses: false,
        translates: false,
        standing: BTreeSet::new(),
        last: None,
    };
    let interface = |number, address| Interface {
        ifindex: IfIndex(number),
        name: format!("eth{number}"),
        up: true,
        mtu: 1500,
        tunnel: false,
        addresses: vec![address],
    };
    run.gateway.handle(run.now, Input::Interfaces(&[interface(1, GATE), interface(2, EXTERNAL)]));
    let mut rest = octets;
    for _ in 0..OPERATIONS {
        let Some((&[operation, a, b, c], tail)) = rest.split_first_chunk::<4>() else { break };
        rest = tail;
        match operation % 6 {
            0 => run.query(a, b, c),
            1 => run.answer(a, b, c),
            2 => run.wait(Duration::from_millis(u64::from(a) * 1000 + u64::from(b))),
            3 => (run.refuses, run.translates) = (a & 1 == 1, a & 2 == 2),
            4 => {
                // Octets as they are, with the magic number before them.
                let (raw, tail) = rest.split_at(usize::from(c).min(rest.len()));
                rest = tail;
                let ((src, ifindex), (dst, _)) = (host(a), host(b));
                let dst = if b & 64 == 0 { dst } else { EXTERNAL };
                let payload = [&MAGIC[..], raw].concat();
                run.packet(((src, PORT).into(), (dst, u16::from(b) << 6).into(), ifindex), &payload);
            }
            _ => {
                // The last message once more, changed, from another place.
                let Some((src, dst, mut payload)) = run.last.clone() else { continue };
                if let Some(octet) = payload.get_mut(usize::from(b)) {
                    *octet = c;
                }
                run.packet((src, dst, IfIndex(1 + u32::from(a & 1))), &payload);
            }
        }
    }
    run.wait(Duration::from_secs(2 * 3600));
    assert!(run.standing.is_empty(), "bindings stay in the kernel");
    assert_eq!(run.gateway.tables().map(|table| table.size), [0, 0], "bindings or ports stay");
}
