//! Packets against the flow of a request: TRIGGER, and NEXT CREATE at the border of a scope.

use std::time::Duration;

use signalbox_casp::clients::natfw::{
    Config, NatfwEvent, NatfwPackets, NatfwRequest, NatfwScope, NatfwTerms,
};
use signalbox_casp::engine::Indication;
use signalbox_casp::wire::natfw::{NatfwFilter, NatfwObject, NatfwStatus, NatfwType, NatfwValue, Tlvs};

use super::rig::{FIRST, Packet, Rig, at, back, filter, flow, moved, open_policy, wants_response};

/// Firewalls of the first node's network; node `border` is its border.
fn network(nodes: usize, border: usize) -> Rig {
    let set = |n, config| Config { border: n == border, inside: vec!["left".to_owned()], ..config };
    Rig::with(nodes, &|_| open_policy(), &set)
}

/// CASPMID-10.6-02: NEXT CREATE at the border of a scope: each firewall of the network opens both directions, the answer is a
/// CREATE for the packets to the inside, and nothing leaves the network.
#[test]
fn a_border_opens_both_directions() {
    let mut rig = network(4, 2);
    let mut nested = Vec::new();
    NatfwValue::Filter(back(4)).encode(&mut nested).unwrap();
    let values = [
        NatfwValue::MsgId(5),
        NatfwValue::Age(1),
        NatfwValue::Filter(filter(4)),
        NatfwValue::Next(NatfwType::CREATE, Tlvs::of(&nested)),
        NatfwValue::Scope(1, b""),
    ];
    rig.inject(0, 1, NatfwType::CREATE, &values);
    let both = [flow(4).filter(), flow(4).reversed().filter()];
    assert_eq!((rig.passes(1), rig.passes(2)), (both.to_vec(), both.to_vec()));
    let answer = rig.last(0, NatfwType::CREATE);
    assert_eq!((answer.session, answer.flow, answer.reverse), (FIRST, flow(4), true));
    assert_eq!(answer.filters(), [back(4)]);
    assert!(!rig.kinds(3).contains(&NatfwType::CREATE));
    // The host ends both.
    rig.inject(0, 1, NatfwType::RELEASE, &[NatfwValue::MsgId(6), NatfwValue::Scope(1, b"")]);
    assert_eq!((rig.passes(1).len(), rig.passes(2).len()), (0, 0));
}

/// The packets of NEXT are limited like those of the request itself: a firewall keeps them until the border answers.
#[test]
fn packets_of_next_are_few_and_those_against_the_flow() {
    let refused = |filters: Vec<NatfwFilter>| {
        let (mut rig, mut nested) = (network(4, 2), Vec::new());
        filters.into_iter().for_each(|one| NatfwValue::Filter(one).encode(&mut nested).unwrap());
        let next = NatfwValue::Next(NatfwType::CREATE, Tlvs::of(&nested));
        let values = [NatfwValue::MsgId(5), NatfwValue::Age(1), next, NatfwValue::Scope(1, b"")];
        rig.inject(0, 1, NatfwType::CREATE, &values);
        assert!(rig.passes(1).is_empty() && rig.kinds(2).is_empty());
        rig.status(0)
    };
    assert_eq!(refused(vec![back(4); 17]), NatfwStatus::RESOURCES);
    assert_eq!(refused(vec![filter(4)]), NatfwStatus::FILTER);
}

/// A CREATE that comes from outside opens nothing, unless a request of the inner side asked for its packets.
#[test]
fn an_unasked_answer_opens_nothing() {
    let mut rig = network(4, 3);
    let create = [NatfwValue::MsgId(5), NatfwValue::Age(1), NatfwValue::Filter(filter(4))];
    rig.inject(0, 1, NatfwType::CREATE, &create);
    let answer = [NatfwValue::MsgId(7), NatfwValue::Age(2), NatfwValue::Filter(back(4))];
    rig.inject(2, 1, NatfwType::CREATE, &answer);
    assert_eq!(rig.passes(1), [flow(4).filter()]);
}

/// CASPMID-10.7-01: a request that a NAT changed is answered at the border of its scope with the packets as they leave.
#[test]
fn a_border_reports_what_a_nat_changed() {
    let mut rig = network(3, 1);
    let values = [
        NatfwValue::MsgId(5),
        NatfwValue::Age(1),
        NatfwValue::Filter(filter(3)),
        NatfwValue::Nat(None),
        NatfwValue::Scope(1, b""),
        wants_response(),
    ];
    rig.inject(0, 1, NatfwType::CREATE, &values);
    let response = rig.last(0, NatfwType::RESPONSE);
    let result = response.results()[0];
    let found = result.nested.iter().find(|tlv| tlv.kind == NatfwObject::NAT_OBJECT);
    let found = found.and_then(|tlv| NatfwValue::of(&tlv));
    assert_eq!((result.status, found), (NatfwStatus::DONE, Some(NatfwValue::Nat(Some(filter(3))))));
}

/// CASPMID-10.7-02: TRIGGER with a scope makes the border open itself for the packets and send CREATE for them to the host that
/// asked. The same TRIGGER again does nothing.
#[test]
fn a_border_sends_create_because_of_trigger() {
    let mut rig = network(3, 1);
    let values = [NatfwValue::MsgId(5), NatfwValue::Filter(back(3)), NatfwValue::Scope(1, b"")];
    for _ in 0..2 {
        rig.inject(0, 1, NatfwType::TRIGGER, &values);
        assert_eq!(rig.passes(1), [flow(3).reversed().filter()]);
        assert_eq!(rig.kinds(0), [NatfwType::CREATE]);
    }
    let create = rig.last(0, NatfwType::CREATE);
    assert_eq!((create.flow, create.reverse), (flow(3).reversed(), false));
    assert_eq!(create.filters(), [back(3)]);
    assert!(rig.kinds(2).is_empty());
}

/// CASPMID-7-24: the target of TRIGGER sends CREATE, unless NEXT names another request, with the filter of TRIGGER, if a user of
/// it accepts the peer.
#[test]
fn a_host_sends_create_because_of_trigger() {
    let mut rig = Rig::open(3);
    rig.accept();
    rig.inject(0, 1, NatfwType::TRIGGER, &[NatfwValue::MsgId(5), NatfwValue::Filter(back(3))]);
    let create = rig.last(1, NatfwType::CREATE);
    assert_eq!((create.flow, create.reverse, create.from), (flow(3).reversed(), false, 2));
    assert_eq!(create.filters(), [back(3)]);
    assert!(matches!(rig.events(2)[..], [NatfwEvent::Accepted { .. }]));
    let next = NatfwValue::Next(NatfwType::PATH, Tlvs::of(&[]));
    rig.inject(0, 1, NatfwType::TRIGGER, &[NatfwValue::MsgId(6), NatfwValue::Filter(back(3)), next]);
    assert_eq!(rig.last(1, NatfwType::PATH).filters(), [back(3)]);
}

/// A TRIGGER for packets that are not those against its flow is refused.
#[test]
fn trigger_is_for_its_own_flow() {
    let mut rig = network(3, 1);
    let values = [NatfwValue::MsgId(5), NatfwValue::Filter(filter(3)), NatfwValue::Scope(1, b"")];
    rig.inject(0, 1, NatfwType::TRIGGER, &values);
    assert_eq!((rig.status(0), rig.passes(1).len()), (NatfwStatus::FILTER, 0));
}

/// Asks for packets within the network of the first node.
fn ask(rig: &mut Rig, packets: NatfwPackets) {
    let terms = NatfwTerms { scope: Some(NatfwScope::Local), packets, ..NatfwTerms::default() };
    let request = NatfwRequest { terms, ..rig.request(false) };
    let now = rig.now;
    rig.nodes[0].client.open(now, 1, &request);
    rig.run();
}

/// CASPMID-10.6-02: a host gets both directions by one request, which the border answers, keeps them by refreshes, and closes
/// them.
#[test]
fn a_host_opens_both_directions_of_its_network() {
    let mut rig = network(4, 2);
    ask(&mut rig, NatfwPackets::Both);
    assert!(
        matches!(rig.events(0)[..], [NatfwEvent::Named { .. }, NatfwEvent::Opened { .. }]),
        "{:?}",
        rig.events(0)
    );
    let both = [flow(4).filter(), flow(4).reversed().filter()];
    rig.wait(Duration::from_secs(300));
    assert_eq!((rig.passes(1), rig.passes(2)), (both.to_vec(), both.to_vec()));
    assert_eq!(rig.events(0).len(), 2, "{:?}", rig.events(0));
    rig.close();
    assert_eq!((rig.passes(1).len(), rig.passes(2).len()), (0, 0));
    assert_eq!(rig.events(0).last(), Some(&NatfwEvent::Closed));
    assert!(rig.kinds(3).is_empty(), "nothing leaves the network");
}

/// CASPMID-10.7-02: a host that receives makes the border of its network open itself, repeats TRIGGER to keep that, and ends it.
#[test]
fn a_host_triggers_the_border_of_its_network() {
    let mut rig = network(3, 1);
    ask(&mut rig, NatfwPackets::Against);
    assert!(
        matches!(rig.events(0)[..], [NatfwEvent::Named { .. }, NatfwEvent::Opened { .. }]),
        "{:?}",
        rig.events(0)
    );
    rig.wait(Duration::from_secs(300));
    assert_eq!(rig.passes(1), [flow(3).reversed().filter()]);
    let now = rig.now;
    let border = &mut rig.nodes[1];
    border.client.delete(now, FIRST, &mut border.resources);
    rig.run();
    let lost =
        |event: &NatfwEvent| matches!(event, NatfwEvent::Lost { status: NatfwStatus::ADMINISTRATOR, .. });
    assert!(rig.events(0).last().is_some_and(lost), "{:?}", rig.events(0));
    ask(&mut rig, NatfwPackets::Against);
    rig.close();
    assert_eq!((rig.passes(1).len(), rig.events(0).last()), (0, Some(&NatfwEvent::Closed)));
    assert!(rig.kinds(2).is_empty(), "nothing leaves the network");
}

/// A network with a firewall inside of its border, whose host had them opened by TRIGGER.
fn triggered() -> Rig {
    let mut rig = network(4, 2);
    ask(&mut rig, NatfwPackets::Against);
    let opened = matches!(rig.events(0)[..], [NatfwEvent::Named { .. }, NatfwEvent::Opened { .. }]);
    assert!(opened, "{:?}", rig.events(0));
    let packets = [flow(4).reversed().filter()];
    assert_eq!((rig.passes(1), rig.passes(2)), (packets.to_vec(), packets.to_vec()));
    rig
}

fn delete(rig: &mut Rig, node: usize) {
    let now = rig.now;
    let firewall = &mut rig.nodes[node];
    firewall.client.delete(now, FIRST, &mut firewall.resources);
    rig.run();
}

/// The border asked for the rules of the firewalls inside. It releases them when the host that sent
/// TRIGGER ends the session.
#[test]
fn the_end_of_trigger_closes_the_firewalls_inside() {
    let mut rig = triggered();
    rig.wait(Duration::from_secs(300));
    rig.close();
    assert_eq!((rig.passes(1).len(), rig.passes(2).len()), (0, 0));
    assert_eq!(rig.events(0).last(), Some(&NatfwEvent::Closed));
    assert!(rig.kinds(3).is_empty(), "nothing leaves the network");
    rig.wait(Duration::from_secs(100));
    assert!(rig.nodes.iter().all(|node| node.client.sessions() == 0 && node.resources.passage_count() == 0));
}

/// What the border withdraws is closed inside too, and what a firewall inside withdraws at the border. The host that sent
/// TRIGGER learns which node it was.
#[test]
fn a_firewall_that_withdraws_ends_what_trigger_asked_for() {
    for wall in [1, 2] {
        let mut rig = triggered();
        delete(&mut rig, wall);
        assert_eq!((rig.passes(1).len(), rig.passes(2).len()), (0, 0), "{wall}");
        let lost = NatfwEvent::Lost { status: NatfwStatus::ADMINISTRATOR, node: Some(at(wall)) };
        assert_eq!(rig.events(0).last(), Some(&lost));
    }
}

/// O09: a host that has crashed asks again in the session that the border and the firewall inside have. Each has one rule, and the host ends it.
#[test]
fn what_trigger_asked_for_before_a_crash_is_replaced() {
    let mut rig = network(4, 2);
    let packets = [flow(4).reversed().filter()];
    for round in 0..3 {
        let terms = NatfwTerms {
            scope: Some(NatfwScope::Local),
            packets: NatfwPackets::Against,
            ..NatfwTerms::default()
        };
        let request = NatfwRequest { terms, kept: Some(FIRST), ..rig.request(false) };
        rig.nodes[0].client.open(rig.now, 1, &request);
        rig.run();
        assert!(matches!(rig.events(0).last(), Some(NatfwEvent::Opened { .. })), "{:?}", rig.events(0));
        assert_eq!((rig.passes(1), rig.passes(2)), (packets.to_vec(), packets.to_vec()), "{round}");
        rig.wait(Duration::from_secs(1));
        if round < 2 {
            rig.restart(0);
        }
    }
    rig.wait(Duration::from_secs(300));
    assert_eq!((rig.passes(1), rig.passes(2)), (packets.to_vec(), packets.to_vec()));
    rig.close();
    assert_eq!((rig.passes(1).len(), rig.passes(2).len()), (0, 0));
}

/// CASPMID-4.1-07: the host gets another address. Border and firewall inside open for that one first; the end of the former flow in the
/// messaging layer closes both for the former one, and leaves the rest.
#[test]
fn what_trigger_asked_for_follows_the_host() {
    let mut rig = triggered();
    let new = moved(4);
    let now = rig.now;
    assert!(rig.nodes[0].client.move_to(now, 1, new));
    rig.run();
    let both = [flow(4).reversed().filter(), new.reversed().filter()];
    assert_eq!((rig.passes(1), rig.passes(2)), (both.to_vec(), both.to_vec()));
    assert!(matches!(rig.events(0).last(), Some(NatfwEvent::Opened { .. })), "{:?}", rig.events(0));
    assert_eq!((rig.nodes[0].torn_down, rig.nodes[2].torn_down), (1, 0));
    for (wall, flow) in [(2, flow(4)), (1, flow(4).reversed())] {
        rig.indicate(wall, &Indication::Ended { session: FIRST, flow, torn_down: true });
        assert_eq!(rig.passes(wall), [new.reversed().filter()]);
    }
    assert_eq!(rig.nodes[2].torn_down, 1, "the border tears down what it asked for");
    rig.wait(Duration::from_secs(300));
    assert_eq!((rig.passes(1), rig.passes(2)), (both[1..].to_vec(), both[1..].to_vec()));
    rig.close();
    assert_eq!((rig.passes(1).len(), rig.passes(2).len()), (0, 0));
}

/// CASPMID-A-14: the packets against a flow go with the end of its session in the messaging layer, at all firewalls.
#[test]
fn both_directions_end_with_the_session() {
    let mut rig = network(4, 2);
    ask(&mut rig, NatfwPackets::Both);
    for wall in [1, 2] {
        assert_eq!(rig.passes(wall).len(), 2);
        rig.indicate(wall, &Indication::Ended { session: FIRST, flow: flow(4), torn_down: true });
        assert!(rig.passes(wall).is_empty());
    }
    assert!(rig.nodes[1..3].iter().all(|node| node.torn_down == 0 && node.client.sessions() == 0));
}

/// A firewall inside that refuses the CREATE of the border refuses the TRIGGER.
#[test]
fn a_firewall_inside_refuses_what_trigger_asks_for() {
    let set = |n, config| Config { border: n == 2, inside: vec!["left".to_owned()], ..config };
    let policy = |n| if n == 1 { signalbox_resources::Config::default() } else { open_policy() };
    let mut rig = Rig::with(4, &policy, &set);
    ask(&mut rig, NatfwPackets::Against);
    let refused = NatfwEvent::Refused { status: NatfwStatus::POLICY, node: Some(at(1)), note: None };
    assert_eq!(rig.events(0).last(), Some(&refused));
    assert!(rig.passes(2).is_empty());
}

/// A RELEASE along the opposite flow of a session does not end what another node asked for.
#[test]
fn a_release_leaves_the_rules_of_the_opposite_flow() {
    let mut rig = Rig::standing(4, false);
    let mut data = Vec::new();
    let values = [NatfwValue::MsgId(9), wants_response()];
    signalbox_casp::wire::natfw::NatfwMessage::compose(NatfwType::RELEASE, &values, &mut data).unwrap();
    let flow = flow(4).reversed();
    rig.carry(Packet { session: FIRST, flow, reverse: false, to: 2, from: 3, hops: 1, data });
    assert_eq!((rig.passes(1).len(), rig.passes(2).len()), (1, 1));
    assert_eq!(rig.status(3), NatfwStatus::NO_STATE);
}

/// Packets against the flow need a scope, and PATH has none. Tokens are AUTH_TOKEN objects.
#[test]
fn terms_that_contradict_each_other_are_refused() {
    let against = NatfwTerms { packets: NatfwPackets::Against, ..NatfwTerms::default() };
    let scoped = NatfwTerms { scope: Some(NatfwScope::Local), ..NatfwTerms::default() };
    let token = NatfwTerms { tokens: vec![0, 0x14, 0, 2, 1, 2, 3, 4], ..NatfwTerms::default() };
    for (terms, by_receiver, status) in [
        (against, false, NatfwStatus::SCOPE),
        (scoped, true, NatfwStatus::SCOPE),
        (token, false, NatfwStatus::TOKEN),
    ] {
        let mut rig = network(3, 1);
        let request = NatfwRequest { terms, ..rig.request(by_receiver) };
        let now = rig.now;
        rig.nodes[0].client.open(now, 1, &request);
        rig.run();
        assert_eq!(rig.events(0), [NatfwEvent::Refused { status, node: None, note: None }]);
    }
}
