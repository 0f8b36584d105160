//! Pinholes in the simulated kernel: it opens or refuses them, ends them at their time, and lets packets of other nodes
//! pass by them only.

use core::net::SocketAddr;

use signalbox_core::Time;
use signalbox_core::node::{NodeEngine, Prefix};
use signalbox_core::pinhole::{Endpoint, Pinhole, PinholeError, PinholeId, Verdict};
use signalbox_core::traffic::FlowFilter;

use super::{Occurrence, Sim};
use crate::config::NodeId;
use crate::packet::Packet;

/// IP protocols with ports. ICMP has types instead.
const WITH_PORTS: [u8; 4] = [6, 17, 132, 33];

/// A pinhole in the kernel.
struct Standing {
    /// `None`: a former engine of the node opened it.
    id: Option<PinholeId>,
    pinhole: Pinhole,
    until: Time,
}

/// The pinholes of one node. They survive a crash of the engine and the start of the next one, until their time.
#[derive(Default)]
pub(super) struct Pinholes {
    standing: Vec<Standing>,
    /// Packets of other nodes pass by a pinhole only.
    drops: bool,
    /// Result of the kernel for requests to open.
    refusal: Option<PinholeError>,
}

impl Pinholes {
    /// Another engine starts: the ids of the former one mean nothing.
    pub(super) fn clear_ids(&mut self) {
        self.standing.iter_mut().for_each(|standing| standing.id = None);
    }

    fn open(&mut self, now: Time, id: PinholeId, pinhole: Pinhole, until: Time) -> Result<(), PinholeError> {
        if let Some(error) = self.refusal {
            return Err(error);
        }
        let open = |standing: &Standing| standing.until > now;
        let same = |of: &Pinhole| {
            let key = |of: &Pinhole| (of.packets, of.senders.clone(), of.second_port, of.icmp_types.clone());
            key(of) == key(&pinhole)
        };
        let other = |one: &Standing| one.id.is_some_and(|of| of != id) && one.pinhole != pinhole;
        if self.standing.iter().any(|one| open(one) && same(&one.pinhole) && other(one)) {
            return Err(PinholeError::Conflict);
        }
        let replaced = |one: &Standing| one.id == Some(id) || (one.id.is_none() && same(&one.pinhole));
        self.standing.retain(|one| open(one) && !replaced(one));
        self.standing.push(Standing { id: Some(id), pinhole, until });
        Ok(())
    }

    /// Changes a packet of another node as the pinholes say; false: none lets it pass.
    fn pass(&self, now: Time, packet: &mut Packet) -> bool {
        if !self.drops {
            return true;
        }
        let standing = self.standing.iter().filter(|standing| standing.until > now);
        let open: Vec<Pinhole> = standing.flat_map(|one| of_each_sender(&one.pinhole)).collect();
        if open.iter().any(|one| one.verdict == Verdict::Deny && offset(one, packet).is_some()) {
            return false;
        }
        let allowed = || open.iter().filter(|one| one.verdict == Verdict::Allow);
        // Connection tracking: the answers go the same way back. What a pinhole is for itself comes first.
        for pinhole in allowed().cloned().chain(allowed().filter_map(answers)) {
            if let Some(offset) = offset(&pinhole, packet) {
                translate(&mut packet.src, pinhole.source, offset);
                translate(&mut packet.dst, pinhole.destination, offset);
                return true;
            }
        }
        false
    }
}

/// The pinhole for each sender alone.
fn of_each_sender(pinhole: &Pinhole) -> Vec<Pinhole> {
    let alone = |packets| Pinhole { packets, senders: Vec::new(), ..pinhole.clone() };
    let packets = pinhole.packets;
    let others = pinhole.senders.iter();
    let others = others.map(|sender| FlowFilter { src: sender.from, src_port: sender.port, ..packets });
    core::iter::once(packets).chain(others).map(alone).collect()
}

/// Whether a packet is meant, and the distance of its ports from those of the pinhole.
fn offset(pinhole: &Pinhole, packet: &Packet) -> Option<u16> {
    let FlowFilter { src, dst, protocol, src_port, dst_port, .. } = pinhole.packets;
    let ports = WITH_PORTS.contains(&packet.protocol) || (src_port, dst_port) == (None, None);
    let ends = src.contains(packet.src.ip()) && dst.contains(packet.dst.ip()) && ports;
    if !ends || protocol.is_some_and(|protocol| protocol != packet.protocol) {
        return None;
    }
    (0..=u16::from(pinhole.second_port)).find(|more| {
        let is = |port: Option<u16>, of: SocketAddr| {
            port.is_none_or(|port| port.checked_add(*more) == Some(of.port()))
        };
        is(src_port, packet.src) && is(dst_port, packet.dst)
    })
}

/// The passage of the packets that answer those of a pinhole; `None`: a range is translated, which has no inverse.
fn answers(pinhole: &Pinhole) -> Option<Pinhole> {
    let FlowFilter { src, dst, src_port, dst_port, .. } = pinhole.packets;
    let inverse = |prefix: Prefix, port: Option<u16>, to: Option<Endpoint>| match to {
        None => Some((prefix, port, None)),
        Some(_) if prefix != Prefix::host(prefix.addr) => None,
        Some(to) => {
            let here = Prefix::host(to.address);
            Some((here, to.port.or(port), Some(Endpoint { address: prefix.addr, port })))
        }
    };
    let (from, from_port, source) = inverse(dst, dst_port, pinhole.destination)?;
    let (to, to_port, destination) = inverse(src, src_port, pinhole.source)?;
    let packets =
        FlowFilter { src: from, dst: to, src_port: from_port, dst_port: to_port, ..pinhole.packets };
    Some(Pinhole { packets, source, destination, ..pinhole.clone() })
}

fn translate(end: &mut SocketAddr, to: Option<Endpoint>, offset: u16) {
    if let Some(Endpoint { address, port }) = to {
        *end = SocketAddr::new(address, port.map_or(end.port(), |port| port.wrapping_add(offset)));
    }
}

impl<N: NodeEngine> Sim<N> {
    /// Sets whether the node drops packets of other nodes for which it has no pinhole. At first it drops none, and translates
    /// none. Packets of the ports of entry of its engine always pass, as an operator's rules let signaling pass.
    pub fn set_drops(&mut self, node: NodeId, on: bool) {
        self.nodes[node.at()].pinholes.drops = on;
    }

    /// Pinholes in the node's kernel whose time has not come. The id is `None` if a former engine opened it.
    pub fn pinholes(&self, node: NodeId) -> impl Iterator<Item = (Option<PinholeId>, &Pinhole)> {
        let standing = self.nodes[node.at()].pinholes.standing.iter();
        standing.filter(|one| one.until > self.now).map(|one| (one.id, &one.pinhole))
    }

    /// Removes all pinholes of a node, as its reboot does. Its engine is not notified.
    pub fn lose_pinholes(&mut self, node: NodeId) {
        self.nodes[node.at()].pinholes.standing.clear();
    }

    /// Sets the kernel's answer to later requests to open; `None`: they succeed, unless they conflict with others.
    pub fn set_open_refusal(&mut self, node: NodeId, refusal: Option<PinholeError>) {
        self.nodes[node.at()].pinholes.refusal = refusal;
    }

    /// Handles requests in order: `None` closes a pinhole, otherwise it is opened for the time given.
    pub(super) fn open_pinholes(&mut self, node: NodeId, asked: Vec<(PinholeId, Option<(Pinhole, Time)>)>) {
        for (id, pinhole) in asked {
            let (now, state) = (self.now, &mut self.nodes[node.at()]);
            let Some((pinhole, until)) = pinhole else {
                state.pinholes.standing.retain(|standing| standing.id != Some(id));
                continue;
            };
            let result = state.pinholes.open(now, id, pinhole, until);
            let incarnation = state.incarnation;
            self.enqueue(now, Occurrence::PinholeOpened { node, incarnation, id, result });
        }
    }

    /// Changes a packet of another node as the node's firewall and NAT do; false: they drop it.
    pub(super) fn pass(&self, node: NodeId, packet: &mut Packet) -> bool {
        let state = &self.nodes[node.at()];
        let signaling = state.entries.iter().any(|request| request.entry == packet.entry());
        state.pinholes.pass(self.now, packet) || signaling
    }
}
