//! Our table: its sets, maps, chains and rules, and the elements that make a pinhole.
//!
//! A packet is classified before routing, behind connection tracking and before any translation. One lookup serves both
//! directions of a flow, because the key is the flow's first packet as connection tracking stores it. The first packet of
//! a flow that a pinhole lets in gives the flow our bit of its mark. A flow that has the bit and no pinhole any more is
//! dropped here, so that it ends with its pinhole even where another ruleset accepts all established flows.

use signalbox_core::pinhole::{Endpoint, Verdict};

use super::config::PinholeConfig;
use super::flow::{Action, Flow, Shape};
use crate::netlink::Batch;
use crate::netlink::nftables::expression::{drop, go_to, leaves_by};
use crate::netlink::nftables::flow::{self, Part, Translation};
use crate::netlink::nftables::set::{self, Element, Form, Set, Value};
use crate::netlink::nftables::{self, Hook, MANGLE, NFPROTO_INET};

/// Name of our table, in family `inet`.
pub(crate) const TABLE: &str = "signalbox_pinholes";
/// Most elements of a set of ranges. The cost of a change grows with their number.
pub(super) const MOST_RANGES: u32 = 1024;

const PREROUTING: &str = "prerouting";
const DESTINATIONS: &str = "destinations";
const SOURCES: &str = "sources";
const LET_IN: &str = "let_in";
const FAMILIES: [(bool, &str); 2] = [(false, "ipv4"), (true, "ipv6")];
/// Behind the operator's rules that set marks (mangle).
const CLASSIFY: i32 = MANGLE + 1;
/// Directly before the operator's translation of destinations (dstnat) and of sources (srcnat).
const BEFORE_DSTNAT: i32 = -101;
const BEFORE_SRCNAT: i32 = 99;

/// What a set or map is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Deny,
    Allow,
    /// Translation to an address and a port.
    Port(Translation),
    /// Translation to an address; ports stay.
    Address(Translation),
}

/// The sets and maps of each family, in the order of lookups. Translations that have no map in their shape use ranges.
const SETS: [(Use, Shape); 18] = [
    (Use::Deny, Shape::Flow),
    (Use::Deny, Shape::AnyPort),
    (Use::Deny, Shape::AnySender),
    (Use::Deny, Shape::Ranges),
    (Use::Allow, Shape::Flow),
    (Use::Allow, Shape::AnyPort),
    (Use::Allow, Shape::AnySender),
    (Use::Allow, Shape::Ranges),
    (Use::Port(Translation::Destination), Shape::Flow),
    (Use::Port(Translation::Destination), Shape::AnyPort),
    (Use::Port(Translation::Destination), Shape::AnySender),
    (Use::Port(Translation::Destination), Shape::Ranges),
    (Use::Address(Translation::Destination), Shape::Ranges),
    (Use::Port(Translation::Source), Shape::Flow),
    (Use::Port(Translation::Source), Shape::Ranges),
    (Use::Port(Translation::Source), Shape::Beginner),
    (Use::Address(Translation::Source), Shape::AnyPort),
    (Use::Address(Translation::Source), Shape::Ranges),
];

/// A place in one of the sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// The set.
    pub(super) set: String,
    /// What is in it.
    pub(super) element: Element,
}

/// The entry that lets the packets pass or drops them. The kernel counts its packets.
pub(super) fn verdict_of(flow: &Flow, action: &Action) -> Entry {
    entry(flow, if action.verdict == Verdict::Deny { Use::Deny } else { Use::Allow }, None)
}

/// All entries of a part of a pinhole.
pub(super) fn entries(flow: &Flow, action: &Action) -> Vec<Entry> {
    let mut entries = vec![verdict_of(flow, action)];
    for (what, to, port) in [
        (Translation::Destination, action.destination, flow.dst_port()),
        (Translation::Source, action.source, flow.src_port()),
    ] {
        let Some(Endpoint { address, port: given }) = to else { continue };
        let port = given.or(port);
        let purpose = if port.is_some() { Use::Port(what) } else { Use::Address(what) };
        entries.push(entry(flow, purpose, Some(value(Endpoint { address, port }))));
    }
    if let Some((begun, outside)) =
        action.destination.filter(|_| action.mirrored).and_then(|inside| flow.mirrored(inside))
    {
        entries.push(place(&begun, Shape::Beginner, Use::Port(Translation::Source), Some(value(outside))));
    }
    entries
}

/// What a map has for a translation to this place.
fn value(Endpoint { address, port }: Endpoint) -> Vec<u8> {
    let mut value = match address {
        std::net::IpAddr::V4(address) => address.octets().to_vec(),
        std::net::IpAddr::V6(address) => address.octets().to_vec(),
    };
    value.extend(port.iter().flat_map(|port| port.to_be_bytes()));
    value.resize(value.len().next_multiple_of(4), 0);
    value
}

/// The places where a former process may have had something for the same packets, except these.
pub(super) fn elsewhere(flow: &Flow, except: &[Entry]) -> Vec<Entry> {
    let shapes = [flow.shape(), Shape::Ranges];
    let purposes = SETS.into_iter().filter(|(_, shape)| shapes.contains(shape)).map(|(purpose, _)| purpose);
    let mut places: Vec<Entry> = Vec::new();
    for purpose in purposes {
        let place = entry(flow, purpose, None);
        if !places.contains(&place) && except.iter().all(|entry| entry.set != place.set) {
            places.push(place);
        }
    }
    places
}

fn entry(flow: &Flow, purpose: Use, value: Option<Vec<u8>>) -> Entry {
    let shape = flow.shape();
    let shape = if SETS.contains(&(purpose, shape)) { shape } else { Shape::Ranges };
    place(flow, shape, purpose, value)
}

fn place(flow: &Flow, shape: Shape, purpose: Use, value: Option<Vec<u8>>) -> Entry {
    let mut keys = flow.keys(shape);
    if purpose == Use::Deny && flow.has_icmp_type() {
        // Connection tracking has the type as a destination port. In the packet it is where other protocols have the source port.
        for key in &mut keys {
            let ports = key.len().saturating_sub(8);
            key[ports..].rotate_left(4);
        }
    }
    let [key, end] = keys;
    let end = (shape == Shape::Ranges).then_some(end);
    Entry {
        set: name(purpose, shape, flow.is_ipv6()),
        element: Element { key, end, value: value.map(Value::Octets) },
    }
}

/// The sets for a use, with the form of their keys.
pub(super) fn sets_for(wanted: Use) -> impl Iterator<Item = (String, Shape, bool)> {
    FAMILIES.into_iter().flat_map(move |(ipv6, _)| {
        let sets = SETS.into_iter().filter(move |(purpose, _)| *purpose == wanted);
        sets.map(move |(purpose, shape)| (name(purpose, shape, ipv6), shape, ipv6))
    })
}

/// Appends the sets, chains and rules of our table, which is there. Sets that exist keep their elements.
pub(super) fn compose(requests: &mut Batch, config: &PinholeConfig) {
    let PinholeConfig { mark, max, translate, ref outside, .. } = *config;
    let mut id = 0;
    for (ipv6, _) in FAMILIES {
        for (purpose, shape) in SETS.into_iter().filter(|(purpose, _)| translate || !translates(*purpose)) {
            id += 1;
            let ranges = shape == Shape::Ranges;
            set::set(
                requests,
                TABLE,
                id,
                &Set {
                    name: &name(purpose, shape, ipv6),
                    ipv6,
                    key: Form::Parts(shape.parts()),
                    value: value_of(purpose),
                    ranges,
                    timeouts: true,
                    // A pinhole may have a second port.
                    size: if ranges { MOST_RANGES } else { max.saturating_mul(2) },
                },
            );
        }
    }
    chains(requests, translate);
    rules(requests, mark, translate, outside);
}

fn chains(requests: &mut Batch, translate: bool) {
    let mut all = vec![LET_IN];
    all.extend(FAMILIES.map(|(_, chain)| chain));
    for chain in &all {
        nftables::inner_chain(requests, NFPROTO_INET, (TABLE, chain));
    }
    let base = |requests: &mut Batch, chain, kind, at| {
        nftables::base_chain(requests, NFPROTO_INET, (TABLE, chain), kind, at);
    };
    base(requests, PREROUTING, "filter", (Hook::Prerouting, CLASSIFY));
    all.push(PREROUTING);
    if translate {
        base(requests, DESTINATIONS, "nat", (Hook::Prerouting, BEFORE_DSTNAT));
        base(requests, SOURCES, "nat", (Hook::Postrouting, BEFORE_SRCNAT));
        all.extend([DESTINATIONS, SOURCES]);
    }
    // The rules of a former process.
    for chain in all {
        nftables::empty_chain(requests, NFPROTO_INET, (TABLE, chain));
    }
}

fn rules(requests: &mut Batch, mark: u32, translate: bool, outside: &[String]) {
    let rule = |requests: &mut Batch, chain: &str, expressions: &dyn Fn(&mut Batch)| {
        nftables::rule(requests, NFPROTO_INET, (TABLE, chain), expressions);
    };
    rule(requests, LET_IN, &|rule| {
        // A flow that stood before the pinhole is not ours, and does not end with it.
        flow::is_new(rule);
        flow::set_mark(rule, mark);
    });
    for (ipv6, chain) in FAMILIES {
        rule(requests, PREROUTING, &|rule| {
            flow::family(rule, ipv6);
            go_to(rule, chain);
        });
        for (purpose, shape) in SETS {
            let name = name(purpose, shape, ipv6);
            match purpose {
                Use::Deny => rule(requests, chain, &|rule| {
                    flow::load_packet(rule, ipv6, shape.parts());
                    flow::is_in(rule, &name);
                    drop(rule);
                }),
                Use::Allow => rule(requests, chain, &|rule| {
                    flow::load_flow(rule, ipv6, shape.parts());
                    flow::is_in(rule, &name);
                    go_to(rule, LET_IN);
                }),
                Use::Port(_) | Use::Address(_) if !translate => {}
                Use::Port(what) | Use::Address(what) => {
                    let chain = if what == Translation::Source { SOURCES } else { DESTINATIONS };
                    let translate = |rule: &mut Batch| {
                        flow::load_flow(rule, ipv6, shape.parts());
                        flow::translate(rule, &name, what, ipv6, matches!(purpose, Use::Port(_)));
                    };
                    if shape != Shape::Beginner || outside.is_empty() {
                        rule(requests, chain, &translate);
                        continue;
                    }
                    for interface in outside {
                        rule(requests, chain, &|rule| {
                            leaves_by(rule, interface);
                            translate(rule);
                        });
                    }
                }
            }
        }
        rule(requests, chain, &|rule| {
            flow::has_mark(rule, mark);
            drop(rule);
        });
    }
}

const fn translates(purpose: Use) -> bool {
    matches!(purpose, Use::Port(_) | Use::Address(_))
}

const fn value_of(purpose: Use) -> Option<Form<'static>> {
    match purpose {
        Use::Deny | Use::Allow => None,
        Use::Port(_) => Some(Form::Parts(&[Part::Destination, Part::DestinationPort])),
        Use::Address(_) => Some(Form::Parts(&[Part::Destination])),
    }
}

fn name(purpose: Use, shape: Shape, ipv6: bool) -> String {
    let purpose = match purpose {
        Use::Deny => "deny",
        Use::Allow => "allow",
        Use::Port(Translation::Destination) => "dnat",
        Use::Port(Translation::Source) => "snat",
        Use::Address(Translation::Destination) => "dnat_address",
        Use::Address(Translation::Source) => "snat_address",
    };
    let shape = match shape {
        Shape::Flow => "flow",
        Shape::AnyPort => "any_port",
        Shape::AnySender => "any_sender",
        Shape::Beginner => "beginner",
        Shape::Ranges => "ranges",
    };
    format!("{purpose}{}_{shape}", if ipv6 { 6 } else { 4 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use signalbox_core::node::Prefix;
    use signalbox_core::pinhole::Pinhole;
    use signalbox_core::traffic::FlowFilter;

    fn pinhole(src_port: Option<u16>) -> Pinhole {
        let prefix = |text: &str| Prefix::host(text.parse().unwrap());
        let packets = FlowFilter::between(prefix("10.0.0.1"), prefix("10.0.0.2"));
        Pinhole::allow(FlowFilter { protocol: Some(17), src_port, dst_port: Some(7), ..packets })
    }

    fn places(pinhole: &Pinhole) -> Vec<(String, Option<Value>)> {
        let (flow, action) = Flow::of(pinhole).unwrap()[0];
        entries(&flow, &action).into_iter().map(|entry| (entry.set, entry.element.value)).collect()
    }

    #[test]
    fn a_binding_has_an_element_for_each_translation() {
        let end = |port| Some(Endpoint { address: "1.2.3.4".parse().unwrap(), port });
        let place = |name: &str, value: Option<&[u8]>| {
            (name.to_owned(), value.map(|octets| Value::Octets(octets.to_vec())))
        };
        let allow = pinhole(Some(9));
        assert_eq!(places(&allow), [place("allow4_flow", None)]);
        let both = Pinhole { source: end(Some(600)), destination: end(None), ..allow };
        let expected = [
            place("allow4_flow", None),
            place("dnat4_flow", Some(&[1, 2, 3, 4, 0, 7, 0, 0])),
            place("snat4_flow", Some(&[1, 2, 3, 4, 2, 88, 0, 0])),
        ];
        assert_eq!(places(&both), expected);
        let any_port = Pinhole { source: end(None), ..pinhole(None) };
        let expected = [place("allow4_any_port", None), place("snat_address4_any_port", Some(&[1, 2, 3, 4]))];
        assert_eq!(places(&any_port), expected);
        let fixed = Pinhole { source: end(Some(600)), ..pinhole(None) };
        assert_eq!(places(&fixed)[1].0, "snat4_ranges");
        let icmp = FlowFilter { protocol: Some(1), src_port: None, dst_port: None, ..both.packets };
        let echo = Pinhole { icmp_types: vec![8], verdict: Verdict::Deny, ..Pinhole::allow(icmp) };
        let (flow, action) = Flow::of(&echo).unwrap()[0];
        let element = entries(&flow, &action).remove(0).element;
        assert_eq!(element.key[12..], [8, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(element.end.unwrap()[12..], [8, 0xff, 0, 0, 0xff, 0xff, 0, 0]);
        let deny = Pinhole { verdict: Verdict::Deny, ..both };
        assert_eq!(places(&deny), [place("deny4_flow", None)]);
        let any = FlowFilter { src: Prefix::all_like("0.0.0.0".parse().unwrap()), ..pinhole(None).packets };
        let mirrored = Pinhole { destination: end(Some(600)), mirrored: true, ..Pinhole::allow(any) };
        let expected = [
            place("allow4_any_sender", None),
            place("dnat4_any_sender", Some(&[1, 2, 3, 4, 2, 88, 0, 0])),
            place("snat4_beginner", Some(&[10, 0, 0, 2, 0, 7, 0, 0])),
        ];
        assert_eq!(places(&mirrored), expected);
        let (flow, action) = Flow::of(&mirrored).unwrap()[0];
        assert_eq!(entries(&flow, &action)[2].element.key, [1, 2, 3, 4, 17, 0, 0, 0, 2, 88, 0, 0]);
        assert_eq!(places(&Pinhole { destination: None, ..mirrored }).len(), 1, "nothing is translated");
    }
}
