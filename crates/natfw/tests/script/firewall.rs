//! CREATE through a firewall.

use signalbox_core::service::{RecvMessage, SendError};
use signalbox_core::{Mri, PathCoupled};
use signalbox_natfw::engine::{Config, Middlebox, State};
use signalbox_natfw::wire::{FlowInfo, Info, Message, RuleAction};

use crate::rig::{
    BEFORE, BEHIND, INSIDE, Kernel, OTHER, Rig, SESSION, addr, boxed, create, error, flow, inward, notify,
    octets, only, success, udp,
};

const RULE: &str = "allow 10.0.1.2 port 5000 > 203.0.113.9 port 6000 proto 17";

/// NATFW-3.7.1-07, NATFW-3.7.1-11, NATFW-3.1-01, NATFW-D.2-01, NATFW-3.5-02, NATFW-4.3.3-02
#[test]
fn a_rule_is_remembered_and_becomes_active_with_the_response() {
    let mut rig = Rig::firewall();
    let sent = only(rig.by_inside(flow(), &create(7, 100)));
    assert_eq!((sent.message(), sent.mri, sent.session), (create(7, 100), flow(), SESSION));
    assert_eq!(rig.kernel, [], "remembered only");
    let answer = only(rig.answer(&sent, &success(7, 60)));
    assert_eq!((answer.message(), answer.mri), (success(7, 60), flow().inverted()));
    assert_eq!(rig.kernel, [Kernel::Open(RULE.to_owned(), 60)]);
    let view = rig.natfw.view_of(rig.now, SESSION).unwrap();
    assert_eq!((view.state, view.active), (State::Established, true));
}

/// The RESPONSE leaves when the rule is in the kernel, not before.
#[test]
fn the_response_waits_for_the_kernel() {
    let mut rig = Rig::firewall();
    rig.slow = true;
    let sent = only(rig.by_inside(flow(), &create(7, 100)));
    assert_eq!(rig.answer(&sent, &success(7, 60)), []);
    assert_eq!(only(rig.opened()).message(), success(7, 60));
}

/// NATFW-3.2.5-01, NATFW-3.7.1-15, NATFW-3.7.5-10: a rule that the kernel refuses is a failure for both sides.
#[test]
fn a_rule_that_the_kernel_refuses_ends_the_session() {
    let mut rig = Rig::firewall();
    rig.answer = Err(signalbox_core::pinhole::PinholeError::Failed);
    let sent = only(rig.by_inside(flow(), &create(7, 100)));
    let sent = rig.answer(&sent, &success(7, 60));
    let [outbound, inbound] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!((outbound.message(), outbound.sii), (notify(Info::TERMINATED), Some(BEHIND)));
    assert_eq!(inbound.message(), error(7, Info::INTERNAL));
    assert_eq!(rig.natfw.session_count(), 0);
}

/// NATFW-3.7.1-12, NATFW-3.2.8-04
#[test]
fn an_error_response_drops_the_remembered_rule() {
    let mut rig = Rig::firewall();
    let sent = only(rig.by_inside(flow(), &create(7, 100)));
    let answer = only(rig.answer(&sent, &error(7, Info::AUTHORIZATION)));
    assert_eq!(answer.message(), error(7, Info::AUTHORIZATION));
    assert_eq!((rig.natfw.session_count(), rig.kernel.len()), (0, 0));
}

/// NATFW-3.7.1-12: also of a rule that is active.
#[test]
fn an_error_response_to_a_refresh_ends_the_rule() {
    let mut rig = Rig::firewall();
    rig.established(100);
    let sent = only(rig.by_inside(flow(), &create(2, 100)));
    only(rig.answer(&sent, &error(2, Info::POLICY_CONFLICT)));
    assert_eq!((rig.kernel.as_slice(), rig.holes.len()), (&[Kernel::Close][..], 0));
}

/// NATFW-3.4-01, NATFW-3.2.8-03
#[test]
fn a_session_without_refresh_ends_with_its_rule() {
    let mut rig = Rig::firewall();
    rig.established(100);
    assert_eq!(rig.pass_secs(99), []);
    assert_eq!(rig.holes.len(), 1);
    rig.pass_secs(1);
    assert_eq!((rig.holes.len(), rig.natfw.session_count(), rig.resources.passage_count()), (0, 0, 0));
    assert_eq!(rig.kernel, [Kernel::Close]);
}

/// NATFW-3.2.8-02
#[test]
fn a_pending_session_without_response_ends() {
    let mut rig = Rig::firewall();
    only(rig.by_inside(flow(), &create(7, 100)));
    rig.pass_secs(99);
    assert_eq!(rig.natfw.session_count(), 1);
    rig.pass_secs(1);
    assert_eq!((rig.natfw.session_count(), rig.kernel.len()), (0, 0));
}

/// NATFW-3.7.3-01, NATFW-3.7.3-03, NATFW-3.4-02
#[test]
fn a_refresh_prolongs_and_nothing_else_does() {
    let mut rig = Rig::firewall();
    rig.established(100);
    rig.pass_secs(90);
    let sent = only(rig.by_inside(flow(), &create(2, 100)));
    assert_eq!(sent.message(), create(2, 100));
    only(rig.answer(&sent, &success(2, 100)));
    assert_eq!(rig.kernel, [Kernel::Open(RULE.to_owned(), 100)]);
    assert_eq!(rig.pass_secs(99), [], "a forwarder sends no refresh");
    assert_eq!(rig.holes.len(), 1);
    assert_eq!(rig.pass_secs(1), []);
    assert_eq!(rig.holes.len(), 0);
}

/// The life does not stop while a RESPONSE to a refresh is awaited.
#[test]
fn a_refresh_without_response_does_not_make_the_rule_eternal() {
    let mut rig = Rig::firewall();
    rig.established(100);
    rig.pass_secs(50);
    only(rig.by_inside(flow(), &create(2, 100)));
    rig.pass_secs(100);
    assert_eq!((rig.holes.len(), rig.natfw.session_count()), (0, 0));
}

/// NATFW-3.7.4-01, NATFW-3.7.4-02, NATFW-3.7.4-03
#[test]
fn a_deletion_closes_at_once_and_goes_on_without_answer() {
    let mut rig = Rig::firewall();
    rig.established(100);
    let sent = only(rig.by_inside(flow(), &create(2, 0)));
    assert_eq!((sent.message(), sent.mri), (create(2, 0), flow()));
    assert_eq!((rig.kernel.as_slice(), rig.natfw.session_count()), (&[Kernel::Close][..], 0));
    // The first one may have been lost on its way.
    assert_eq!(only(rig.by_inside(flow(), &create(3, 0))).message(), create(3, 0));
    assert_eq!(rig.by_inside(flow(), &create(3, 0)), []);
}

/// NATFW-3.4-07, NATFW-3.4-08, NATFW-3.4-13
#[test]
fn a_long_lifetime_is_lowered() {
    let config = Config { max_lifetime: core::time::Duration::from_secs(50), ..boxed(Middlebox::Firewall) };
    let mut rig = Rig::with(config);
    let sent = only(rig.by_inside(flow(), &create(7, 100)));
    assert_eq!(sent.message().lifetime, Some(50));
    let mut rig = Rig::firewall();
    assert_eq!(only(rig.by_inside(flow(), &create(7, 30))).message().lifetime, Some(30), "never raised");
}

/// NATFW-3.4-09, NATFW-3.4-10, NATFW-3.4-11, NATFW-3.4-12
#[test]
fn lifetimes_out_of_range_are_refused() {
    let seconds = core::time::Duration::from_secs;
    let config = Config {
        max_lifetime: seconds(50),
        min_lifetime: seconds(20),
        refuse_long: true,
        ..boxed(Middlebox::Firewall)
    };
    let mut rig = Rig::with(config);
    for (lifetime, info, limit) in [(51, Info::LIFETIME_TOO_BIG, 50), (19, Info::LIFETIME_TOO_SMALL, 20)] {
        let answer = only(rig.by_inside(flow(), &create(7, lifetime)));
        assert_eq!((answer.info(), answer.message().lifetime), (info, Some(limit)));
        assert_eq!((answer.message().msn, answer.mri), (Some(7), flow().inverted()));
    }
    assert_eq!(rig.natfw.session_count(), 0);
}

/// NATFW-3.4-15, NATFW-3.4-16, NATFW-3.4-17, NATFW-3.4-18
#[test]
fn a_granted_lifetime_out_of_range_ends_the_session_on_both_sides() {
    for (granted, info, limit) in [(101, Info::MODIFIED_TOO_BIG, 100), (9, Info::MODIFIED_TOO_SMALL, 10)] {
        let mut rig = Rig::firewall();
        let sent = only(rig.by_inside(flow(), &create(7, 100)));
        let sent = rig.answer(&sent, &success(7, granted));
        let [outbound, inbound] = sent.as_slice() else { panic!("{sent:?}") };
        assert_eq!((outbound.message(), outbound.mri), (notify(Info::TERMINATED), flow()));
        assert_eq!(inbound.message(), Message { lifetime: Some(limit), ..error(7, info) });
        assert_eq!((rig.natfw.session_count(), rig.kernel.len()), (0, 0));
    }
    let mut rig = Rig::firewall();
    rig.established(100);
}

/// NATFW-3.5-05, NATFW-3.5-08, NATFW-3.5-09
#[test]
fn an_old_number_is_discarded() {
    let mut rig = Rig::firewall();
    let sent = only(rig.by_inside(flow(), &create(u32::MAX, 100)));
    for msn in [u32::MAX, u32::MAX - 1, u32::MAX - 1000] {
        assert_eq!(rig.by_inside(flow(), &create(msn, 100)), [], "{msn}");
        assert_eq!(rig.by_inside(flow(), &create(msn, 0)), [], "{msn}");
    }
    assert_eq!(rig.natfw.counters().old_msn, 6);
    only(rig.answer(&sent, &success(u32::MAX, 100)));
    // The highest number wraps to 0.
    assert_eq!(only(rig.by_inside(flow(), &create(0, 100))).message().msn, Some(0));
    assert_eq!(rig.natfw.view_of(rig.now, SESSION).unwrap().msn, 0);
}

/// NATFW-3.5-07: a RESPONSE to any request that is not answered yet counts, one to another does not.
#[test]
fn responses_match_the_requests_that_wait() {
    let mut rig = Rig::firewall();
    let first = only(rig.by_inside(flow(), &create(7, 100)));
    only(rig.by_inside(flow(), &create(8, 100)));
    for msn in [6, 9] {
        assert_eq!(rig.answer(&first, &success(msn, 100)), []);
    }
    assert_eq!(only(rig.answer(&first, &success(7, 100))).message().msn, Some(7));
    assert_eq!(rig.answer(&first, &success(7, 100)), [], "twice");
    assert_eq!(only(rig.answer(&first, &success(8, 100))).message().msn, Some(8));
    assert_eq!(rig.natfw.counters().stray_responses, 3);
}

/// A RESPONSE of a node that is not the next peer opens nothing.
#[test]
fn responses_of_others_are_dropped() {
    let mut rig = Rig::firewall();
    let sent = only(rig.by_inside(flow(), &create(7, 100)));
    let response = success(7, 100);
    // Along the request's direction, or for another flow.
    assert_eq!(rig.receive(OTHER, INSIDE, flow(), &response), []);
    let other = Mri::PathCoupled(udp("10.0.1.3", 1, "203.0.113.9", 2)).inverted();
    assert_eq!(rig.receive(OTHER, INSIDE, other, &response), []);
    assert_eq!(rig.kernel, []);
    only(rig.answer(&sent, &response));
    // The peer is known now.
    let sent = only(rig.by_inside(flow(), &create(8, 100)));
    assert_eq!(rig.receive(OTHER, INSIDE, sent.mri.inverted(), &error(8, Info::INTERNAL)), []);
    assert_eq!((rig.holes.len(), rig.natfw.counters().stray_responses), (1, 3));
}

/// NATFW-3.7.3-04, NATFW-3.10-01, NATFW-3.10-02
#[test]
fn another_flow_in_the_same_session_replaces_the_rule() {
    let mut rig = Rig::firewall();
    rig.established(100);
    let other = Mri::PathCoupled(udp("10.0.1.2", 5000, "203.0.113.9", 7000));
    let sent = only(rig.by_inside(other, &create(2, 100)));
    assert_eq!(sent.mri, other);
    only(rig.answer(&sent, &success(2, 100)));
    let expected = "allow 10.0.1.2 port 5000 > 203.0.113.9 port 7000 proto 17";
    assert_eq!(rig.kernel, [Kernel::Close, Kernel::Open(expected.to_owned(), 100)]);
    assert_eq!((rig.holes.len(), rig.resources.passage_count()), (1, 1));
}

/// NATFW-3.10-01, NATFW-3.10-02: an update is judged like an initial request, and a refused one changes nothing here.
#[test]
fn an_update_that_is_not_allowed_changes_nothing() {
    let mut rig = Rig::firewall();
    rig.established(100);
    let wild = PathCoupled { dst_port: None, ..udp("10.0.1.2", 5000, "203.0.113.9", 7000) };
    let answer = only(rig.by_inside(Mri::PathCoupled(wild), &create(2, 100)));
    assert_eq!(answer.info(), Info::DESTINATION_PORTS);
    assert_eq!((rig.kernel.len(), rig.holes.len()), (0, 1));
}

/// NATFW-4.2.4-04, NATFW-4.2.4-05, NATFW-4.2.4-06, NATFW-4.2.4-07
#[test]
fn the_action_and_the_second_port() {
    let with = |action: u16, sub_ports| {
        let efi = FlowInfo { action: RuleAction(action), sub_ports };
        let mut rig = Rig::firewall();
        let sent = only(rig.by_inside(flow(), &Message { efi: Some(efi), ..create(7, 100) }));
        if sent.message().info.is_some() {
            return sent.info().to_string();
        }
        only(rig.answer(&sent, &success(7, 100)));
        rig.holes[0].1.to_string()
    };
    assert_eq!(with(3, 0), Info::UNKNOWN_ACTION.to_string());
    assert_eq!(with(0, 0), Info::UNKNOWN_ACTION.to_string());
    assert_eq!(with(1, 2), Info::SUB_PORTS.to_string());
    assert_eq!(with(1, 0), RULE);
    assert_eq!(with(1, 1), format!("{RULE} and next port"));
    assert_eq!(with(2, 0), Info::ACTION_NOT_APPLICABLE.to_string(), "blocking is for receivers");
}

/// NATFW-D.1-01, NATFW-4.2.5-14, NATFW-4.2.5-15
#[test]
fn wildcards_are_refused_unless_allowed() {
    let base = udp("10.0.1.2", 5000, "203.0.113.9", 6000);
    let plain = PathCoupled { protocol: None, src_port: None, dst_port: None, ..base };
    let cases = [
        (PathCoupled { src_prefix: 31, ..base }, Info::SOURCE_RANGE),
        (PathCoupled { dst_prefix: 24, ..base }, Info::DESTINATION_RANGE),
        (PathCoupled { dst_port: None, ..base }, Info::DESTINATION_PORTS),
        (plain, Info::PLAIN_IP),
        (PathCoupled { protocol: Some(89), ..plain }, Info::PROTOCOL_NOT_SUPPORTED),
    ];
    for (flow, info) in cases {
        let mut rig = Rig::firewall();
        assert_eq!(only(rig.by_inside(Mri::PathCoupled(flow), &create(7, 100))).info(), info, "{flow:?}");
        assert_eq!(rig.natfw.session_count(), 0);
    }
    let open_bits = signalbox_natfw::engine::OpenBits { source: 1, destination: 8 };
    let config = Config { open_bits, any_port: true, any_protocol: true, ..boxed(Middlebox::Firewall) };
    for (flow, _) in &cases[..4] {
        let mut rig = Rig::with(config.clone());
        assert_eq!(only(rig.by_inside(Mri::PathCoupled(*flow), &create(7, 100))).message(), create(7, 100));
    }
}

/// NATFW-4.2.5-14: types of ICMP messages.
#[test]
fn icmp_types_can_be_limited() {
    let types = [8, 0];
    let ping = Mri::PathCoupled(PathCoupled {
        protocol: Some(1),
        src_port: None,
        dst_port: None,
        ..udp("10.0.1.2", 0, "203.0.113.9", 0)
    });
    let request =
        Message { icmp_types: Some(signalbox_natfw::wire::IcmpTypes::of(&types)), ..create(7, 100) };
    let mut rig = Rig::with(Config { icmp_types: vec![8], ..boxed(Middlebox::Firewall) });
    assert_eq!(only(rig.by_inside(ping, &request)).info(), Info::ICMP_TYPE);
    // A request without types would be for all of them, and so would one without a protocol.
    assert_eq!(only(rig.by_inside(ping, &create(7, 100))).info(), Info::ICMP_TYPE);
    rig = Rig::with(Config { icmp_types: vec![8], any_protocol: true, ..boxed(Middlebox::Firewall) });
    let all = Mri::PathCoupled(PathCoupled::between(addr("10.0.1.2"), addr("203.0.113.9")));
    assert_eq!(only(rig.by_inside(all, &create(7, 100))).info(), Info::ICMP_TYPE);
    let echo = Message { icmp_types: Some(signalbox_natfw::wire::IcmpTypes::of(&[8])), ..create(8, 100) };
    assert_eq!(only(rig.by_inside(ping, &echo)).message(), echo);
    let mut rig = Rig::firewall();
    let sent = only(rig.by_inside(ping, &request));
    assert_eq!(sent.message(), request);
    only(rig.answer(&sent, &success(7, 100)));
    assert_eq!(rig.holes[0].1.icmp_types, [8, 0]);
}

/// NATFW-3.7.1-02: no next node.
#[test]
fn a_create_that_cannot_be_sent_on_is_refused() {
    let mut rig = Rig::firewall();
    let sent = only(rig.by_inside(flow(), &create(7, 100)));
    let answer = only(rig.failed(&sent, SendError::NoNextNode));
    assert_eq!((answer.message(), answer.mri), (error(7, Info::NR_NOT_REACHED), flow().inverted()));
    assert_eq!(rig.natfw.session_count(), 0);
}

/// NATFW-3.7.6.2-02: in proxy mode the last node answers.
#[test]
fn in_proxy_mode_the_last_node_answers_for_the_receiver() {
    let mut rig = Rig::firewall();
    let request = Message { proxy: true, nonce: Some(1), ..create(7, 100) };
    let sent = only(rig.by_inside(flow(), &request));
    assert_eq!(only(rig.failed(&sent, SendError::NoNextNode)).message(), success(7, 100));
    assert_eq!(rig.holes.len(), 1);
}

/// NATFW-3.7.6.2-01, NATFW-3.7.6.3-01, NATFW-3.7.6.3-02
#[test]
fn an_edge_answers_in_proxy_mode() {
    let mut rig = Rig::edge_firewall();
    let request = Message { proxy: true, nonce: Some(1), ..create(7, 100) };
    assert_eq!(only(rig.by_inside(flow(), &request)).message(), success(7, 100));
    assert_eq!(rig.kernel, [Kernel::Open(RULE.to_owned(), 100)]);
    // With E it also sends the message on. What happens there does not matter.
    let mut rig = Rig::edge_firewall();
    let request = Message { extend: true, ..request };
    let sent = rig.by_inside(flow(), &request);
    let [on, answer] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!((on.message(), on.mri, answer.message()), (request, flow(), success(7, 100)));
    assert_eq!(rig.failed(on, SendError::NoNextNode), []);
    assert_eq!(rig.holes.len(), 1);
    // A request from the outside goes on to the receiver.
    let mut rig = Rig::edge_firewall();
    let sent = only(rig.by_outside(inward(), &request));
    assert_eq!((sent.message(), sent.mri), (request, inward()));
}

/// A rule towards the inside needs a rule of the operator, or a reservation of the host inside.
#[test]
fn nothing_opens_towards_the_inside_by_itself() {
    let mut rig = Rig::with_rules(boxed(Middlebox::Firewall), |_| {});
    let answer = only(rig.by_outside(inward(), &create(7, 100)));
    assert_eq!(answer.message(), error(7, Info::AUTHORIZATION));
    // Its own flow a host inside may open.
    let sent = only(rig.by_inside(flow(), &create(7, 100)));
    assert_eq!(sent.message(), create(7, 100));
    // That of another host it may not.
    let mut rig = Rig::with_rules(boxed(Middlebox::Firewall), |_| {});
    let other = Mri::PathCoupled(udp("10.0.1.3", 5000, "203.0.113.9", 6000));
    assert_eq!(only(rig.by_inside(other, &create(7, 100))).info(), Info::AUTHORIZATION);
    assert_eq!((rig.natfw.session_count(), rig.resources.passage_count()), (0, 0));
}

/// P11: a peer that sends each message with GIST hop count 1. The request goes on with a count of GIST. One that comes back is
/// answered, and so is one whose count is used up: no rule waits for an answer that cannot come.
#[test]
fn a_request_without_a_preserved_hop_count_goes_on_once() {
    let mut rig = Rig::firewall();
    let data = octets(&create(7, 100));
    let received = RecvMessage { hops: 0, ..rig.received(BEFORE, INSIDE, flow(), &data) };
    let sent = only(rig.indicate(received));
    assert_eq!((sent.mri, sent.hops), (flow(), None));
    let returned = RecvMessage { hops: 0, ..rig.received(OTHER, INSIDE, flow(), &data) };
    let answer = only(rig.indicate(returned));
    assert_eq!((answer.info(), answer.mri), (Info::NR_NOT_REACHED, flow().inverted()));
    assert_eq!(rig.natfw.counters().returned, 1);

    let mut rig = Rig::firewall();
    let worn = RecvMessage { hops: 1, ..rig.received(BEFORE, INSIDE, flow(), &data) };
    let answer = only(rig.indicate(worn));
    assert_eq!((answer.info(), answer.mri), (Info::NR_NOT_REACHED, flow().inverted()));
    assert_eq!((rig.natfw.counters().hop_limit, rig.natfw.session_count()), (1, 0));
}
