//! The maps, chains and rules of one link.
//!
//! The chain of the link compares a packet first with the signaling that has a share, then with the reservations. The more specific
//! lookup comes last, so that it overrides the other; the code points of the classes follow.

use crate::netlink::Batch;
use crate::netlink::nftables::expression::{self, Compare, Header};
use crate::netlink::nftables::flow::{self, Part};
use crate::netlink::nftables::set::{self, Form, Set};
use crate::netlink::nftables::{self, Hook, NFPROTO_INET};
use crate::traffic::htb::{BEST_EFFORT, class_id};
use crate::traffic::signaling::{Kind, Signaling};

/// Most elements of a hash, and of a map of ranges.
pub(super) const MOST_EXACT: u32 = 65_536;
pub(super) const MOST_RANGES: u32 = 256;
/// Behind all rules of the administrator that change addresses or marks.
const LAST: i32 = 300;
const CODE_POINTS: u8 = 64;
/// A key has these parts of a packet.
const KEY: Form<'static> = Form::Parts(PARTS);
const PARTS: &[Part] =
    &[Part::Source, Part::Destination, Part::Protocol, Part::SourcePort, Part::DestinationPort];
/// The places of the maps of reservations: whether the family is IPv6, and whether the map is of ranges. The kernel looks a packet up in this
/// order, and a later result overrides an earlier one.
const PLACES: [(bool, bool); 4] = [(false, true), (false, false), (true, true), (true, false)];
/// The protocols that have ports.
const WITH_PORTS: [u8; 3] = [6, 17, 132];
const RSVP: u8 = 46;
const ICMPV6: u8 = 58;
/// The first and the last type of the messages of neighbor discovery (RFC 4861 §4), whose hop limit is 255.
const DISCOVERY: [u8; 2] = [133, 137];
const HOP_LIMIT: (u32, u32) = (7, 1);
const ICMP_TYPE: (u32, u32) = (0, 1);
const SOURCE_PORT: (u32, u32) = (0, 2);
const DESTINATION_PORT: (u32, u32) = (2, 2);

/// The names of what the link with this number has in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Names(pub(super) u32);

impl Names {
    /// The chain at the hook.
    pub(super) fn link(self) -> String {
        format!("link{}", self.0)
    }

    /// The map of the reservations of a family: a hash, or ranges.
    pub(super) fn map(self, ipv6: bool, ranges: bool) -> String {
        let (family, kind) = (if ipv6 { 6 } else { 4 }, if ranges { "ranges" } else { "flows" });
        format!("link{}_{kind}{family}", self.0)
    }

    /// The map from classes to the chains of their code points.
    pub(super) fn marks(self) -> String {
        format!("link{}_marks", self.0)
    }

    /// The chain that writes a code point.
    pub(super) fn mark_chain(self, dscp: u8) -> String {
        format!("link{}_dscp{}", self.0, dscp & 0x3f)
    }

    fn signaling(self, kind: Kind) -> String {
        let kind = match kind {
            Kind::Own => "own",
            Kind::Passing => "passing",
            Kind::Neighbors => "neighbors",
        };
        format!("link{}_{kind}", self.0)
    }
}

/// Appends what a link has, with empty maps. `share` is the rate of its signaling, in octets a second.
pub(super) fn compose(requests: &mut Batch, table: &str, names: Names, share: u64, signaling: Signaling) {
    nftables::table(requests, NFPROTO_INET, table, 0, false);
    maps(requests, table, names);
    let kinds: &[Kind] = if share == 0 { &[] } else { &Kind::ALL };
    chains(requests, table, names, kinds);
    for kind in kinds {
        limit(requests, (table, &names.signaling(*kind)), *kind, share);
    }
    for dscp in 0..CODE_POINTS {
        for ipv6 in [false, true] {
            let chain = names.mark_chain(dscp);
            nftables::rule(requests, NFPROTO_INET, (table, &chain), |rule| {
                flow::family(rule, ipv6);
                expression::write_dscp(rule, ipv6, dscp);
            });
        }
    }
    let chain = names.link();
    let mut rule = |expressions: &dyn Fn(&mut Batch)| {
        nftables::rule(requests, NFPROTO_INET, (table, &chain), expressions);
    };
    rule(&|rule| {
        expression::leaves_elsewhere(rule, names.0);
        expression::accept(rule);
    });
    for kind in kinds {
        let to = names.signaling(*kind);
        recognise(*kind, signaling, &mut |conditions| {
            rule(&|rule| {
                conditions(rule);
                expression::go_to(rule, &to);
            });
        });
    }
    for (ipv6, ranges) in PLACES {
        rule(&|rule| {
            flow::family(rule, ipv6);
            flow::load_packet(rule, ipv6, PARTS);
            flow::classify(rule, &names.map(ipv6, ranges));
        });
    }
    rule(&|rule| flow::go_by_class(rule, &names.marks()));
}

/// Appends the deletion of what a link has, which is all made first: what is missing is no error then.
pub(super) fn remove(requests: &mut Batch, table: &str, names: Names) {
    nftables::table(requests, NFPROTO_INET, table, 0, false);
    maps(requests, table, names);
    chains(requests, table, names, &Kind::ALL);
    nftables::delete_chain(requests, NFPROTO_INET, (table, &names.link()));
    let by_flow = PLACES.map(|(ipv6, ranges)| names.map(ipv6, ranges));
    for map in by_flow.iter().chain([&names.marks()]) {
        set::delete(requests, (table, map));
    }
    for chain in inner_chains(names, &Kind::ALL) {
        nftables::delete_chain(requests, NFPROTO_INET, (table, &chain));
    }
}

/// The chains to which the link's chain leads.
fn inner_chains(names: Names, kinds: &[Kind]) -> Vec<String> {
    let to_signaling = kinds.iter().map(|kind| names.signaling(*kind));
    to_signaling.chain((0..CODE_POINTS).map(|dscp| names.mark_chain(dscp))).collect()
}

/// The maps. An interface that was away may come back with its number: then its former elements are there.
fn maps(requests: &mut Batch, table: &str, names: Names) {
    let by_flow = PLACES.map(|(ipv6, ranges)| {
        let size = if ranges { MOST_RANGES } else { MOST_EXACT };
        (names.map(ipv6, ranges), ipv6, KEY, Form::Class, ranges, size)
    });
    let marks = (names.marks(), false, Form::Class, Form::Verdict, false, MOST_EXACT);
    for (id, (name, ipv6, key, value, ranges, size)) in (1..).zip(by_flow.into_iter().chain([marks])) {
        let map = Set { name: &name, ipv6, key, value: Some(value), ranges, timeouts: false, size };
        set::set(requests, table, id, &map);
        set::empty(requests, (table, &name));
    }
}

/// The chains, without the rules that they may have had.
fn chains(requests: &mut Batch, table: &str, names: Names, kinds: &[Kind]) {
    let inner = inner_chains(names, kinds);
    for chain in &inner {
        nftables::inner_chain(requests, NFPROTO_INET, (table, chain));
    }
    let link = names.link();
    nftables::base_chain(requests, NFPROTO_INET, (table, &link), "filter", (Hook::Postrouting, LAST));
    for chain in inner.iter().chain([&link]) {
        nftables::empty_chain(requests, NFPROTO_INET, (table, chain));
    }
}

/// The rules of the chain of a kind of signaling: its class, and best effort for what exceeds its bucket.
fn limit(requests: &mut Batch, place: (&str, &str), kind: Kind, share: u64) {
    let bucket = kind.bucket(share);
    // nftables adds the octets of one second at the rate to the burst.
    let burst = u64::from(bucket.burst).saturating_sub(bucket.rate);
    let burst = u32::try_from(burst).unwrap_or(u32::MAX);
    nftables::rule(requests, NFPROTO_INET, place, |rule| {
        expression::within_rate(rule, bucket.rate, burst);
        expression::priority(rule, class_id(kind.class()));
        expression::accept(rule);
    });
    nftables::rule(requests, NFPROTO_INET, place, |rule| {
        expression::priority(rule, class_id(BEST_EFFORT));
        expression::accept(rule);
    });
}

/// What appends the conditions of a rule.
type Conditions<'a> = dyn Fn(&mut Batch) + 'a;

/// Gives `rule` the conditions by which packets of a kind of signaling are recognised, once for each rule. ARP has no IP packets.
fn recognise(kind: Kind, signaling: Signaling, rule: &mut dyn FnMut(&Conditions<'_>)) {
    match kind {
        Kind::Own => rule(&|rule| expression::has_mark(rule, signaling.mark)),
        Kind::Neighbors => rule(&|rule| {
            flow::family(rule, true);
            expression::load(rule, Header::Network, HOP_LIMIT);
            expression::compare(rule, Compare::Equal, &[u8::MAX]);
            expression::protocol(rule, ICMPV6);
            expression::load(rule, Header::Transport, ICMP_TYPE);
            expression::compare(rule, Compare::AtLeast, &[DISCOVERY[0]]);
            expression::compare(rule, Compare::AtMost, &[DISCOVERY[1]]);
        }),
        Kind::Passing => {
            for end in [DESTINATION_PORT, SOURCE_PORT] {
                for protocol in WITH_PORTS {
                    rule(&|rule| {
                        expression::protocol(rule, protocol);
                        expression::load(rule, Header::Transport, end);
                        expression::compare(rule, Compare::Equal, &signaling.port.to_be_bytes());
                    });
                }
            }
            rule(&|rule| expression::protocol(rule, RSVP));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::codec::{Attributes, find};
    use crate::netlink::nftables::tests::{composed, expressions};
    use crate::traffic::htb::{OWN_SIGNALING, PASSING_SIGNALING};

    const RULE: u16 = 0xa06;

    /// Name and data.
    type Expression = (String, Vec<u8>);

    /// The expressions of each rule, with the chain of the rule.
    fn composed_rules(share: u64, signaling: Signaling) -> Vec<(String, Vec<Expression>)> {
        let requests = composed(|requests| compose(requests, "t", Names(7), share, signaling));
        let rules = requests.iter().filter(|(kind, _)| *kind == RULE);
        let chain = |rule| String::from_utf8(find(Attributes(rule), 2).unwrap().to_vec()).unwrap();
        rules.map(|(_, rule)| (chain(rule).trim_end_matches('\0').to_owned(), expressions(rule))).collect()
    }

    fn rules(share: u64) -> Vec<Vec<String>> {
        let rules = composed_rules(share, Signaling::default());
        rules.into_iter().map(|(_, rule)| rule.into_iter().map(|(name, _)| name).collect()).collect()
    }

    /// The expressions that `append` makes.
    fn made(append: impl Fn(&mut Batch)) -> Vec<Expression> {
        let requests = composed(|requests| nftables::rule(requests, NFPROTO_INET, ("t", "c"), &append));
        expressions(&requests[0].1)
    }

    /// The value with which a comparison compares.
    fn compared(expression: &Expression) -> (u8, Vec<u8>) {
        let (name, data) = expression;
        assert_eq!(name, "cmp");
        let how = find(Attributes(data), 2).unwrap()[3];
        let value = find(Attributes(find(Attributes(data), 3).unwrap()), 1).unwrap();
        (how, value.to_vec())
    }

    /// Linux 6.12 refuses a conversion of the one octet of a protocol before a lookup.
    #[test]
    fn a_key_is_looked_up_as_it_was_loaded() {
        let rules = rules(0);
        let [.., first, second, third, fourth, by_class] = &rules[..] else { panic!("{rules:?}") };
        for lookup in [first, second, third, fourth] {
            let expected =
                ["meta", "cmp", "payload", "payload", "meta", "payload", "payload", "lookup", "meta"];
            assert_eq!(*lookup, expected);
        }
        assert_eq!(*by_class, ["meta", "lookup"]);
        assert!(!rules.iter().flatten().any(|name| name == "byteorder"));
    }

    #[test]
    fn signaling_has_rules_if_it_has_a_share() {
        // Those of the code points, the interface, the four lookups and the classes.
        let without = 2 * usize::from(CODE_POINTS) + 6;
        assert_eq!(rules(0).len(), without);
        // Two for each kind, and what is recognised: the mark, neighbors, three protocols at two ends, RSVP.
        assert_eq!(rules(8000).len(), without + 2 * 3 + 9);
    }

    /// The values by which the link's chain recognises signaling, the chains to which it leads, and what these chains do with it.
    #[test]
    fn signaling_is_recognised_by_these_values() {
        let signaling = Signaling { mark: 0x0102_0304, port: 271 };
        let rules = composed_rules(80_000, signaling);
        let leading_to = |chain: &str| -> Vec<Vec<Expression>> {
            let verdict = made(|rule| expression::go_to(rule, chain));
            rules
                .iter()
                .filter_map(|(of, rule)| {
                    let conditions = rule.strip_suffix(&verdict[..])?;
                    (of == "link7").then(|| conditions.to_vec())
                })
                .collect()
        };
        let equal = Compare::Equal as u8;

        let own = leading_to("link7_own");
        let [own] = &own[..] else { panic!("{own:?}") };
        assert_eq!(compared(&own[1]), (equal, 0x0102_0304_u32.to_ne_bytes().to_vec()));

        // RFC 4861: ICMPv6 with hop limit 255, from Router Solicitation to Redirect.
        let neighbors = leading_to("link7_neighbors");
        let [neighbors] = &neighbors[..] else { panic!("{neighbors:?}") };
        let values: Vec<_> = neighbors.iter().filter(|(name, _)| name == "cmp").map(compared).collect();
        let expected = [
            (equal, libc::NFPROTO_IPV6 as u8),
            (equal, 255),
            (equal, 58),
            (Compare::AtLeast as u8, 133),
            (Compare::AtMost as u8, 137),
        ];
        assert_eq!(values, expected.map(|(how, value)| (how, vec![value])));

        // UDP, TCP and SCTP with the port at either end, and RSVP.
        let passing = leading_to("link7_passing");
        let mut found: Vec<_> = passing
            .iter()
            .map(|rule| {
                let (_, protocol) = compared(&rule[1]);
                let port = rule.get(2..).filter(|rest| !rest.is_empty()).map(|rest| {
                    let [(_, payload), value] = rest else { panic!("{rest:?}") };
                    let offset = find(Attributes(payload), 3).unwrap()[3];
                    (offset, compared(value))
                });
                (protocol[0], port)
            })
            .collect();
        found.sort();
        let at = |offset| Some((offset, (equal, vec![1, 15])));
        let expected =
            [(6, at(0)), (6, at(2)), (17, at(0)), (17, at(2)), (46, None), (132, at(0)), (132, at(2))];
        assert_eq!(found, expected);
    }

    #[test]
    fn signaling_has_its_class_within_its_bucket_and_best_effort_beyond() {
        let rules = composed_rules(80_000, Signaling::default());
        // A half and a quarter of the share; the octets of a second are in the burst already.
        for (chain, rate, class) in [
            ("link7_own", 40_000, OWN_SIGNALING),
            ("link7_passing", 20_000, PASSING_SIGNALING),
            ("link7_neighbors", 20_000, PASSING_SIGNALING),
        ] {
            let in_chain = rules.iter().filter(|(of, _)| of == chain).map(|(_, rule)| rule.clone());
            let within = made(|rule| {
                expression::within_rate(rule, rate, 0);
                expression::priority(rule, class_id(class));
                expression::accept(rule);
            });
            let beyond = made(|rule| {
                expression::priority(rule, class_id(BEST_EFFORT));
                expression::accept(rule);
            });
            assert_eq!(in_chain.collect::<Vec<_>>(), [within, beyond], "{chain}");
        }
        // A bucket that is larger than a second's octets keeps the rest as its burst.
        let small = composed_rules(8000, Signaling::default());
        let (_, first) = small.iter().find(|(of, _)| of == "link7_own").unwrap();
        assert_eq!(first[..1], made(|rule| expression::within_rate(rule, 4000, 12_000)));
    }

    /// A hash overrides ranges of its family: the more specific lookup comes last.
    #[test]
    fn the_more_specific_lookup_comes_last() {
        let rules = composed_rules(0, Signaling::default());
        let map = |rule: &[Expression]| {
            let (_, lookup) = rule.iter().find(|(name, _)| name == "lookup")?;
            let name = String::from_utf8_lossy(find(Attributes(lookup), 1)?).into_owned();
            Some(name.trim_end_matches('\0').to_owned())
        };
        let maps: Vec<String> = rules.iter().filter_map(|(_, rule)| map(rule)).collect();
        assert_eq!(maps, ["link7_ranges4", "link7_flows4", "link7_ranges6", "link7_flows6", "link7_marks"]);
    }

    /// One send carries all of it: the kernel takes no more than the buffer of the socket.
    #[test]
    fn a_link_fits_one_transaction() {
        let requests = composed(|requests| {
            compose(
                requests,
                "signalbox_traffic_vrf_123456789012345",
                Names(u32::MAX),
                8000,
                Signaling::default(),
            );
        });
        let length: usize = requests.iter().map(|(_, attributes)| 20 + attributes.len()).sum();
        assert!(length < 128 * 1024, "{length}");
    }
}
