//! A NAT gateway that hosts inside, strangers and the kernel drive in any order.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;

use signalbox_core::mri::PathCoupled;
use signalbox_core::pinhole::{PinholeError, Translation};
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{Direction, IfIndex, Mri, SessionId};

use crate::gateway::{Config, Forward, Input};
use crate::kit::{Gate, Packet, Peer, Via, datagram, interface, read};
use crate::wire::{MAGIC, PORT};

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

/// How the kernel translates all flows, if it does.
fn translated(packets: &FlowFilter) -> Option<Translation> {
    let [src, dst] = [packets.src_port, packets.dst_port].map(Option::unwrap_or_default);
    Some(Translation {
        source: (EXTERNAL, src.saturating_add(1)).into(),
        destination: (host(4).0, dst).into(),
        by_pinhole: dst & 2 != 0,
    })
}

fn peer(identity: &[u8], address: IpAddr) -> Peer<'_> {
    Peer { hops: 16, ..Peer::new(identity, address) }
}

struct Run {
    gate: Gate,
    /// The packet that was sent last.
    last: Option<Packet>,
}

impl Run {
    fn packet(&mut self, (src, dst, ifindex): (SocketAddr, SocketAddr, IfIndex), payload: &[u8]) {
        self.gate.packet(&Via::q_mode(ifindex, src, dst), payload);
        self.check(Some(payload));
    }

    /// Takes all outputs. What is sent parses if what was received did.
    fn check(&mut self, received: Option<&[u8]>) {
        for sent in self.gate.sent.drain(..) {
            let faulty =
                received.is_some_and(|octets| read(octets).is_some()) && read(&sent.payload).is_none();
            assert!(!faulty, "a message that does not parse: {sent:?}");
            assert!(sent.ttl < 64 || sent.options.is_empty(), "{sent:?}");
            self.last = Some(sent);
        }
        for open in self.gate.opened.drain(..) {
            assert!(open.lifetime > Duration::ZERO && open.lifetime <= Duration::from_secs(3600));
        }
        let [bindings, ports] = self.gate.gateway.tables();
        assert!(bindings.size <= LIMIT && ports.size <= bindings.size, "{bindings:?} {ports:?}");
        assert!(self.gate.standing.len() <= bindings.size as usize, "the kernel has more than the table");
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
        let cookie = [from; 8];
        let mut message = peer(b"host", sender).query(Mri::PathCoupled(flow), SessionId([to; 16]), &cookie);
        message.header.s = kind & 16 == 0;
        if let Ok(octets) = datagram(&message) {
            self.packet(((sender, PORT).into(), (target, PORT).into(), ifindex), &octets);
        }
    }

    /// Answers the Query that was sent last; `change` says at which octet the answer is changed.
    fn answer(&mut self, from: u8, change: u8, value: u8) {
        let Some(sent) = self.last.clone() else { return };
        let Some(query) = read(&sent.payload).filter(|message| message.header.c) else { return };
        let mut far = peer(b"far", sent.dst.ip());
        far.nli.validity_ms = u32::MAX;
        let Ok(mut octets) = datagram(&far.response(&query)) else { return };
        if let Some(octet) = octets.get_mut(usize::from(change)).filter(|_| change > 0) {
            *octet = value;
        }
        let (responder, ifindex) = host(from);
        self.packet(((responder, PORT).into(), sent.src, ifindex), &octets);
    }

    fn wait(&mut self, duration: Duration) {
        self.gate.until(self.gate.now + duration);
        self.check(None);
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
    let Ok(gate) = Gate::new(config, [7; 32]) else { return };
    let mut run = Run { gate, last: None };
    run.gate.handle(Input::Interfaces(&[interface(1, vec![GATE]), interface(2, vec![EXTERNAL])]));
    let mut rest = octets;
    for _ in 0..OPERATIONS {
        let Some((&[operation, a, b, c], tail)) = rest.split_first_chunk::<4>() else { break };
        rest = tail;
        match operation % 6 {
            0 => run.query(a, b, c),
            1 => run.answer(a, b, c),
            2 => run.wait(Duration::from_millis(u64::from(a) * 1000 + u64::from(b))),
            3 => {
                run.gate.refusal = (a & 1 == 1).then_some(PinholeError::Failed);
                run.gate.translation = if a & 2 == 2 { Box::new(translated) } else { Box::new(|_| None) };
            }
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
                let Some(mut sent) = run.last.clone() else { continue };
                if let Some(octet) = sent.payload.get_mut(usize::from(b)) {
                    *octet = c;
                }
                run.packet((sent.src, sent.dst, IfIndex(1 + u32::from(a & 1))), &sent.payload);
            }
        }
    }
    run.wait(Duration::from_secs(2 * 3600));
    assert!(run.gate.standing.is_empty(), "bindings stay in the kernel");
    assert_eq!(run.gate.gateway.tables().map(|table| table.size), [0, 0], "bindings or ports stay");
}
