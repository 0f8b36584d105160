//! The pinholes that are open, by their identifiers and by their packets.

use std::collections::HashMap;
use std::time::Instant;

use signalbox_core::pinhole::{PinholeId, Verdict};

use super::flow::{Action, Flow, Shape, Tuple};

/// Most pinholes for the same packets.
const MOST_SHARED: usize = 16;

/// An open pinhole.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) parts: Vec<(Flow, Action)>,
    pub(super) until: Instant,
}

/// The pinholes for the same packets, which all do the same.
#[derive(Debug)]
struct Holders {
    action: Action,
    ids: Vec<PinholeId>,
}

/// Values by flow. Those for ranges are apart, because a packet is compared with each of them.
#[derive(Debug)]
struct ByFlow<T> {
    exact: HashMap<Flow, T>,
    ranges: HashMap<Flow, T>,
}

impl<T> Default for ByFlow<T> {
    fn default() -> Self {
        Self { exact: HashMap::new(), ranges: HashMap::new() }
    }
}

impl<T> ByFlow<T> {
    fn get(&self, flow: &Flow) -> Option<&T> {
        if flow.shape() == Shape::Ranges { &self.ranges } else { &self.exact }.get(flow)
    }

    fn map(&mut self, flow: &Flow) -> &mut HashMap<Flow, T> {
        if flow.shape() == Shape::Ranges { &mut self.ranges } else { &mut self.exact }
    }

    /// Whether a flow whose value is `right` has this packet.
    fn has(&self, packet: &Tuple, right: impl Fn(&T) -> bool) -> bool {
        Flow::candidates(packet).iter().any(|flow| self.exact.get(flow).is_some_and(&right))
            || self.ranges.iter().any(|(flow, value)| right(value) && flow.contains(packet))
    }
}

/// All open pinholes.
#[derive(Debug, Default)]
pub(super) struct Index {
    held: HashMap<PinholeId, Held>,
    open: ByFlow<Holders>,
    /// What a former process left in the kernel.
    inherited: ByFlow<Left>,
}

/// What a former process left in the kernel for some packets: whether they pass, and until when.
#[derive(Debug)]
struct Left {
    verdict: Verdict,
    until: Instant,
}

impl Index {
    /// The pinhole of an identifier.
    pub(super) fn get(&self, id: PinholeId) -> Option<&Held> {
        self.held.get(&id)
    }

    /// The number of pinholes.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Sets or removes a pinhole, and returns the former one.
    pub(super) fn put(&mut self, id: PinholeId, new: Option<Held>) -> Option<Held> {
        let former = self.held.remove(&id);
        for (flow, _) in former.iter().flat_map(|held| &held.parts) {
            let map = self.open.map(flow);
            if let Some(holders) = map.get_mut(flow) {
                holders.ids.retain(|holder| *holder != id);
                if holders.ids.is_empty() {
                    map.remove(flow);
                }
            }
        }
        if let Some(held) = new {
            for (flow, action) in &held.parts {
                let holders = Holders { action: *action, ids: Vec::new() };
                self.open.map(flow).entry(*flow).or_insert(holders).ids.push(id);
            }
            self.held.insert(id, held);
        }
        former
    }

    /// Whether a pinhole with another identifier does something else with the same packets, or too many do the same.
    pub(super) fn conflicts(&self, id: PinholeId, flow: &Flow, action: &Action) -> bool {
        self.open.get(flow).is_some_and(|holders| {
            let others = holders.ids.iter().filter(|holder| **holder != id).count();
            others >= MOST_SHARED || others > 0 && holders.action != *action
        })
    }

    /// Whether several pinholes are for these packets.
    pub(super) fn is_shared(&self, flow: &Flow) -> bool {
        self.open.get(flow).is_some_and(|holders| holders.ids.len() > 1)
    }

    /// What is done with these packets.
    pub(super) fn action(&self, flow: &Flow) -> Option<Action> {
        self.open.get(flow).map(|holders| holders.action)
    }

    /// The end of the pinhole for these packets that stays longest.
    pub(super) fn until(&self, flow: &Flow) -> Option<Instant> {
        let holders = self.open.get(flow)?;
        holders.ids.iter().filter_map(|id| self.held.get(id)).map(|held| held.until).max()
    }

    /// All flows, with what is done with them and until when.
    pub(super) fn flows(&self) -> impl Iterator<Item = (&Flow, &Action, Instant)> {
        let all = self.open.exact.iter().chain(&self.open.ranges);
        all.filter_map(|(flow, holders)| Some((flow, &holders.action, self.until(flow)?)))
    }

    /// Whether a pinhole is open for a flow that begins with this packet and has this answer: one that translates otherwise
    /// has taken the place of the one that let the flow in.
    pub(super) fn lets_in(&self, packet: &Tuple, answer: &Tuple) -> bool {
        self.open
            .has(packet, |Holders { action, .. }| action.verdict == Verdict::Allow && action.agrees(answer))
            || self.inherited.has(packet, |left| left.verdict == Verdict::Allow)
    }

    /// Notes what a former process left.
    pub(super) fn inherit(&mut self, flow: Flow, verdict: Verdict, until: Instant) {
        self.inherited.map(&flow).insert(flow, Left { verdict, until });
    }

    /// Whether a former process left something that no pinhole of this process has replaced.
    pub(super) fn inherits(&self) -> bool {
        !self.inherited.exact.is_empty() || !self.inherited.ranges.is_empty()
    }

    /// Takes some of what a former process left.
    pub(super) fn take_inherited(&mut self, most: usize) -> Vec<Flow> {
        let all = self.inherited.exact.keys().chain(self.inherited.ranges.keys());
        let some: Vec<Flow> = all.take(most).copied().collect();
        some.iter().for_each(|flow| self.disinherit(flow));
        some
    }

    /// The identifiers of all pinholes.
    pub(super) fn ids(&self) -> impl Iterator<Item = PinholeId> {
        self.held.keys().copied()
    }

    /// Whether a former process left something for these packets.
    pub(super) fn is_inherited(&self, flow: &Flow) -> bool {
        self.inherited.get(flow).is_some()
    }

    /// A pinhole of this process takes the place of a former one.
    pub(super) fn disinherit(&mut self, flow: &Flow) {
        self.inherited.map(flow).remove(flow);
    }

    /// Removes what a former process left and the kernel has closed by now.
    pub(super) fn remove_expired(&mut self, now: Instant) {
        for map in [&mut self.inherited.exact, &mut self.inherited.ranges] {
            map.retain(|_, left| left.until > now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use signalbox_core::node::Prefix;
    use signalbox_core::pinhole::OpenerId;
    use signalbox_core::pinhole::{Endpoint, Pinhole};
    use signalbox_core::traffic::FlowFilter;

    fn parts(dst: &str, len: u8) -> Vec<(Flow, Action)> {
        let (src, dst) = ("10.0.0.1".parse().unwrap(), dst.parse().unwrap());
        let packets = FlowFilter::between(Prefix::host(src), Prefix { addr: dst, len });
        Flow::of(&Pinhole::allow(FlowFilter { protocol: Some(17), dst_port: Some(7), ..packets })).unwrap()
    }

    /// Whether a flow to this address goes on that is not translated.
    fn goes_on(index: &Index, dst: &str) -> bool {
        let packet = packet(dst);
        let Tuple { src, dst, protocol, src_port, dst_port } = packet;
        index
            .lets_in(&packet, &Tuple { src: dst, dst: src, protocol, src_port: dst_port, dst_port: src_port })
    }

    fn packet(dst: &str) -> Tuple {
        let (src, dst) = ("10.0.0.1".parse().unwrap(), dst.parse().unwrap());
        Tuple { src, dst, protocol: 17, src_port: 9, dst_port: 7 }
    }

    #[test]
    fn pinholes_for_the_same_packets_are_one() {
        let (mut index, now) = (Index::default(), Instant::now());
        let parts = parts("10.0.0.2", 32);
        let (flow, action) = parts[0];
        let held = |seconds| Some(Held { parts: parts.clone(), until: now + Duration::from_secs(seconds) });
        assert!(index.put(OpenerId::NATFW.pinhole(1), held(20)).is_none());
        assert!(!index.is_shared(&flow));
        index.put(OpenerId::NATFW.pinhole(2), held(10));
        assert!(index.is_shared(&flow));
        assert_eq!(index.until(&flow), Some(now + Duration::from_secs(20)));
        let end = Endpoint { address: "10.0.0.9".parse().unwrap(), port: None };
        let other = Action { destination: Some(end), ..action };
        assert!(!index.conflicts(OpenerId::NATFW.pinhole(3), &flow, &action));
        assert!(index.conflicts(OpenerId::NATFW.pinhole(3), &flow, &other));
        assert_eq!(index.put(OpenerId::NATFW.pinhole(1), None).map(|held| held.parts), Some(parts.clone()));
        assert_eq!(index.until(&flow), Some(now + Duration::from_secs(10)));
        // The only one may change what it does.
        assert!(!index.conflicts(OpenerId::NATFW.pinhole(2), &flow, &other));
        index.put(OpenerId::NATFW.pinhole(2), None);
        assert_eq!((index.len(), index.flows().count(), index.until(&flow)), (0, 0, None));
        let many = u64::try_from(MOST_SHARED).unwrap();
        (0..many).for_each(|id| drop(index.put(OpenerId::NATFW.pinhole(id), held(20))));
        assert!(index.conflicts(OpenerId::NATFW.pinhole(many), &flow, &action));
        assert!(!index.conflicts(OpenerId::NATFW.pinhole(0), &flow, &action));
    }

    #[test]
    fn a_packet_finds_its_pinhole() {
        let (mut index, now) = (Index::default(), Instant::now());
        assert!(!goes_on(&index, "10.0.0.2"));
        index.put(OpenerId::NATFW.pinhole(1), Some(Held { parts: parts("10.0.0.2", 32), until: now }));
        index.put(OpenerId::NATFW.pinhole(2), Some(Held { parts: parts("10.1.0.0", 16), until: now }));
        index.inherit(parts("10.0.0.4", 32)[0].0, Verdict::Allow, now);
        index.inherit(parts("10.2.0.0", 16)[0].0, Verdict::Allow, now + Duration::from_secs(1));
        index.inherit(parts("10.3.0.0", 16)[0].0, Verdict::Deny, now + Duration::from_secs(1));
        let seen = |index: &Index| {
            ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.1.2.3", "10.2.3.4"].map(|dst| goes_on(index, dst))
        };
        assert_eq!(seen(&index), [true, false, true, true, true]);
        index.remove_expired(now);
        assert_eq!(seen(&index), [true, false, false, true, true]);
        assert!(!goes_on(&index, "10.3.3.4"), "it was blocked");
        index.put(OpenerId::NATFW.pinhole(2), None);
        index.disinherit(&parts("10.2.0.0", 16)[0].0);
        assert_eq!(seen(&index), [true, false, false, false, false]);
        assert_eq!((index.take_inherited(9), index.inherits()), (vec![parts("10.3.0.0", 16)[0].0], false));
    }

    /// The port of a binding was given to another host inside: the flow to the former one does not go on.
    #[test]
    fn a_flow_of_a_former_binding_finds_no_pinhole() {
        let (mut index, now) = (Index::default(), Instant::now());
        let (flow, action) = parts("10.0.0.2", 32)[0];
        let inside = |host: &str, port| Endpoint { address: host.parse().unwrap(), port: Some(port) };
        let packet = packet("10.0.0.2");
        let lets = |index: &Index, host: &str, port| {
            let Tuple { src, protocol, src_port, .. } = packet;
            let src_of_answer = host.parse().unwrap();
            let answer = Tuple { src: src_of_answer, dst: src, protocol, src_port: port, dst_port: src_port };
            index.lets_in(&packet, &answer)
        };
        for (host, port) in [("10.9.0.1", 70), ("10.9.0.2", 70), ("10.9.0.2", 71)] {
            let action = Action { destination: Some(inside(host, port)), ..action };
            index.put(OpenerId::NATFW.pinhole(1), Some(Held { parts: vec![(flow, action)], until: now }));
            let all = [("10.9.0.1", 70), ("10.9.0.2", 70), ("10.9.0.2", 71)];
            assert_eq!(all.map(|(host, port)| lets(&index, host, port)), all.map(|one| one == (host, port)));
        }
        assert!(!goes_on(&index, "10.0.0.2"), "it is not translated");
    }
}
