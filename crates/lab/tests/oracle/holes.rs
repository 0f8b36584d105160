//! Random pinholes and packets, and what the documentation says about both: docs/natfw.md and `signalbox_core::pinhole`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use signalbox_core::node::Prefix;
use signalbox_core::pinhole::{Endpoint, OpenerId, Pinhole, PinholeId, Verdict};
use signalbox_core::traffic::FlowFilter;
use signalbox_linux::pinhole::Pinholes;

use crate::draw::Draw;
use crate::kernel::{Fate, ICMP, ICMPV6, Packet, TCP, Tuple, UDP, has_ports};

const LONG: Duration = Duration::from_secs(600);
/// A protocol without ports.
const PLAIN: u8 = 253;
/// The address of the router towards `b`.
pub(crate) const EXTERNAL: [&str; 2] = ["10.2.0.2", "fd02::2"];
/// The hosts at each side, by family.
pub(crate) const HOSTS: [[[&str; 3]; 2]; 2] = [
    [["10.1.0.1", "10.1.0.3", "10.1.0.4"], ["10.2.0.1", "10.2.0.3", "10.2.0.4"]],
    [["fd01::1", "fd01::3", "fd01::4"], ["fd02::1", "fd02::3", "fd02::4"]],
];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn host(draw: &mut Draw, ipv6: bool, side: usize) -> IpAddr {
    ip(draw.one(&HOSTS[usize::from(ipv6)][side]))
}

fn port(draw: &mut Draw) -> u16 {
    5000 + u16::try_from(draw.below(4)).unwrap()
}

/// A host, or a few addresses around it.
fn prefix(draw: &mut Draw, addr: IpAddr) -> Prefix {
    let host = Prefix::host(addr);
    let open = if draw.percent(75) { 0 } else { 1 + u8::try_from(draw.below(3)).unwrap() };
    Prefix { addr, len: host.len - open }
}

/// A pinhole of any kind, which the kernel may refuse.
pub(crate) fn pinhole(draw: &mut Draw) -> Pinhole {
    let (ipv6, towards_b) = (draw.percent(30), draw.percent(70));
    let [src_side, dst_side] = if towards_b { [0, 1] } else { [1, 0] };
    let (src, dst) = (host(draw, ipv6, src_side), host(draw, ipv6, dst_side));
    let any = draw.percent(10);
    let src = if any { Prefix::all_like(src) } else { prefix(draw, src) };
    let dst = prefix(draw, dst);
    let icmp = if ipv6 { ICMPV6 } else { ICMP };
    // Whether connection tracking knows the ports of SCTP, DCCP and UDP-Lite depends on how the kernel was built.
    let kinds =
        [Some(UDP), Some(UDP), Some(UDP), Some(UDP), Some(TCP), Some(icmp), Some(icmp), Some(PLAIN), None];
    let protocol = draw.one(&kinds);
    let ported = protocol.is_some_and(has_ports);
    let src_port = (ported && draw.percent(60)).then(|| port(draw));
    let dst_port = (ported && draw.percent(80)).then(|| port(draw));
    let packets = FlowFilter { protocol, src_port, dst_port, ..FlowFilter::between(src, dst) };
    let mut pinhole = Pinhole::allow(packets);
    pinhole.second_port = dst_port.is_some() && draw.percent(25);
    if protocol == Some(icmp) && draw.percent(60) {
        let types = if ipv6 { [128, 139, 129, 1] } else { [8, 13, 0, 3] };
        pinhole.icmp_types = (0..=draw.below(2)).map(|_| draw.one(&types)).collect();
    }
    if draw.percent(15) {
        pinhole.verdict = Verdict::Deny;
    } else if ported && draw.percent(30) {
        let port = draw.percent(60).then(|| 40_000 + u16::try_from(draw.below(4)).unwrap());
        if towards_b {
            pinhole.source = Some(Endpoint { address: ip(EXTERNAL[usize::from(ipv6)]), port });
        } else {
            let inside = Endpoint { address: pinhole.packets.dst.addr, port };
            pinhole.packets.dst = Prefix::host(ip(EXTERNAL[usize::from(ipv6)]));
            pinhole.destination = Some(inside);
        }
    }
    pinhole
}

/// A packet from one side to the other or to the router, near what pinholes are for. The result has the side that sends it.
pub(crate) fn packet(draw: &mut Draw, near: &[Pinhole], mark: [u8; 8]) -> (usize, Packet) {
    let near = if near.is_empty() || draw.percent(10) { None } else { Some(draw.one(near)) };
    let ipv6 = near.as_ref().map_or_else(|| draw.percent(30), |hole| !hole.packets.is_ipv4());
    let icmp = if ipv6 { ICMPV6 } else { ICMP };
    let mut side = usize::from(draw.percent(30));
    let (mut src, mut dst) = (host(draw, ipv6, side), host(draw, ipv6, 1 - side));
    let mut protocol = draw.one(&[UDP, TCP, icmp, PLAIN]);
    let (mut src_port, mut dst_port) = (port(draw), port(draw));
    if let Some(hole) = near {
        let FlowFilter { src: from, dst: to, protocol: given, .. } = hole.packets;
        side = usize::from(
            HOSTS[usize::from(ipv6)][0].contains(&&to.addr.to_string()[..]) || hole.destination.is_some(),
        );
        let like = |draw: &mut Draw, prefix: Prefix, side: usize| {
            if prefix == Prefix::host(prefix.addr) && draw.percent(85) {
                prefix.addr
            } else {
                host(draw, ipv6, side)
            }
        };
        src = like(draw, from, side);
        dst = like(draw, to, 1 - side);
        protocol = given.filter(|_| draw.percent(90)).unwrap_or(protocol);
        let next = |draw: &mut Draw, given: Option<u16>, other: u16| match given {
            Some(given) if draw.percent(85) => given + u16::from(draw.percent(35)),
            _ => other,
        };
        src_port = next(draw, hole.packets.src_port, src_port);
        dst_port = next(draw, hole.packets.dst_port, dst_port);
        // An answer.
        if draw.percent(20) && protocol != TCP {
            side = 1 - side;
            (src, dst, src_port, dst_port) = (dst, src, dst_port, src_port);
            if let Some(source) = hole.source {
                dst = source.address;
                dst_port = source.port.unwrap_or(dst_port);
            }
            if let Some(destination) = hole.destination {
                src = destination.address;
                src_port = destination.port.unwrap_or(src_port);
            }
        }
    }
    if protocol == icmp {
        let kinds: &[u8] = if ipv6 { &[128, 128, 139, 129] } else { &[8, 8, 13, 0] };
        (src_port, dst_port) = (7 + src_port % 2, u16::from_be_bytes([draw.one(kinds), 0]));
    } else if !has_ports(protocol) {
        (src_port, dst_port) = (0, 0);
    }
    // The router is a host of neither side; it sends nothing here.
    if src == ip(EXTERNAL[usize::from(ipv6)]) {
        src = host(draw, ipv6, side);
    }
    (side, Packet::new(Tuple { src, dst, protocol, src_port, dst_port }, mark))
}

/// Whether a pinhole is for a packet, as the packet arrives.
pub(crate) fn is_for(pinhole: &Pinhole, packet: &Tuple) -> bool {
    let filter = &pinhole.packets;
    let port = |given: Option<u16>, is: u16, up: u16| given.is_none_or(|given| given + up == is);
    let ports = |up| port(filter.src_port, packet.src_port, up) && port(filter.dst_port, packet.dst_port, up);
    let kind = packet.dst_port.to_be_bytes()[0];
    filter.src.contains(packet.src)
        && filter.dst.contains(packet.dst)
        && filter.protocol.is_none_or(|protocol| protocol == packet.protocol)
        && (ports(0) || pinhole.second_port && ports(1))
        && (pinhole.icmp_types.is_empty() || pinhole.icmp_types.contains(&kind))
}

/// The pinholes that are open, and the flows that they let in.
#[derive(Default)]
pub(crate) struct Open {
    pub(crate) holes: BTreeMap<PinholeId, Pinhole>,
    /// The first packet of each flow as it arrived, and as it left.
    flows: Vec<(Tuple, Tuple)>,
    /// Whether the kernel refused a change: where ranges overlap, it cannot always restore what was there.
    refused: bool,
}

impl Open {
    /// Opens, changes or closes pinholes at random, by the real code. Returns what was asked for and refused.
    pub(crate) fn change(&mut self, draw: &mut Draw, pinholes: &mut Pinholes) {
        let mut asked = BTreeMap::new();
        for _ in 0..=draw.below(4) {
            let id = OpenerId::NATFW.pinhole(draw.below(6));
            if asked.contains_key(&id) {
                self.settle(pinholes, &mut asked);
            }
            if draw.percent(25) {
                pinholes.release(id);
                self.holes.remove(&id);
            } else {
                let new = match self.holes.get(&id) {
                    Some(same) if draw.percent(30) => same.clone(),
                    _ => pinhole(draw),
                };
                pinholes.request(id, new.clone(), LONG);
                asked.insert(id, new);
            }
            if draw.percent(50) {
                self.settle(pinholes, &mut asked);
            }
        }
        self.settle(pinholes, &mut asked);
    }

    fn settle(&mut self, pinholes: &mut Pinholes, asked: &mut BTreeMap<PinholeId, Pinhole>) {
        for (id, result) in pinholes.flush() {
            self.refused |= result.is_err();
            if let (Ok(()), Some(hole)) = (result, asked.remove(&id)) {
                self.holes.insert(id, hole);
            }
        }
        asked.clear();
    }

    fn any(&self, verdict: Verdict, packet: &Tuple) -> bool {
        self.holes.values().any(|hole| hole.verdict == verdict && is_for(hole, packet))
    }

    /// Compares what became of a packet with what the open pinholes say about it.
    pub(crate) fn judge(&mut self, packet: &Packet, fate: &Fate) -> Result<(), String> {
        let tuple = packet.tuple();
        let denied = self.any(Verdict::Deny, &tuple);
        let first = self.any(Verdict::Allow, &tuple) && packet.begins_flow();
        let answered = self.flows.iter().find(|(_, left)| left.answer() == tuple);
        let answers = answered.is_some_and(|(arrived, _)| self.any(Verdict::Allow, arrived));
        let fault = |what: &str| Err(format!("{tuple:?} {what}: {fate:?}, with {:#?}", self.holes));
        let Fate::Passed(left) = fate else {
            let plain = self.holes.values().all(|hole| hole.source.is_none() && hole.destination.is_none());
            let must =
                !self.refused && !denied && first && plain && answered.is_none() && *fate == Fate::Dropped;
            return if must { fault("is allowed and does not pass") } else { Ok(()) };
        };
        if denied {
            return fault("is denied and passes");
        }
        if !first && !answers {
            return fault("is not allowed and passes");
        }
        let left = left.tuple();
        if let Some((arrived, _)) = answered.filter(|_| answers)
            && left == arrived.answer()
        {
            return Ok(());
        }
        if !self.becomes(&tuple, &left) {
            return fault("is not translated as a pinhole says");
        }
        self.flows.push((tuple, left));
        Ok(())
    }

    /// Whether open pinholes for the packet, or an earlier packet of its flow, translate it to this one.
    fn becomes(&self, packet: &Tuple, left: &Tuple) -> bool {
        let end = |end: Option<Endpoint>, address: IpAddr, port: u16, up: u16| {
            end.map_or((address, port), |end| (end.address, end.port.map_or(port, |port| port + up)))
        };
        let second =
            |hole: &Pinhole| u16::from(hole.packets.dst_port.is_some_and(|port| port != packet.dst_port));
        let mut sources = vec![(packet.src, packet.src_port)];
        let mut destinations = vec![(packet.dst, packet.dst_port)];
        for hole in self.holes.values().filter(|hole| is_for(hole, packet)) {
            sources.push(end(hole.source, packet.src, packet.src_port, second(hole)));
            destinations.push(end(hole.destination, packet.dst, packet.dst_port, second(hole)));
        }
        self.flows.contains(&(*packet, *left))
            || sources.contains(&(left.src, left.src_port))
                && destinations.contains(&(left.dst, left.dst_port))
    }
}
