//! Answers and reactions to requests that cannot be granted.

use std::sync::Arc;
use std::time::Duration;

use signalbox_core::SessionId;
use signalbox_core::security::{Fingerprint, Identity};
use signalbox_qos::engine::{
    Command, Config, Flow, Input, QosEvent, QosRequest, ReserveRequest, StateKeeping,
};
use signalbox_qos::wire::qspec::{ParameterId, Qspec};
use signalbox_qos::wire::{BindingCode, BoundSession, Carried, Info, Message, MessageFlags, MessageType};
use signalbox_resources::config::{Action, RuleConfig};
use signalbox_wire::Writer;

use crate::rig::{BEFORE, BEHIND, Rig, SESSION, Sent, addr, flow, octets, qspec, query_qspec, reserve};

fn response(info: Info) -> Message<'static> {
    Message { info: Some(info.into()), ..Message::new(MessageType::RESPONSE) }
}

fn one(sent: Vec<Sent>) -> Sent {
    let [sent] = <[Sent; 1]>::try_from(sent).unwrap();
    sent
}

/// Whether the E flag is set on the traffic parameter of a QSPEC.
fn blames_traffic(qspec: &[u8]) -> bool {
    let qspec = Qspec::frame(qspec).unwrap();
    let traffic = qspec.desired().and_then(|desired| desired.parameter(ParameterId::TMOD_1)).unwrap();
    traffic.flags.error
}

/// A rate of more than the link's share, in octets a second.
const MUCH: u16 = 60_000;

fn full() -> Rig {
    let mut rig = Rig::new();
    let some = qspec(50_000);
    rig.receive_octets(BEFORE, flow(), SessionId([8; 16]), &octets(&reserve(0, &some)));
    assert_eq!(rig.held(), 50_000);
    rig
}

fn second_flow() -> signalbox_core::Mri {
    signalbox_core::Mri::PathCoupled(signalbox_core::PathCoupled::between(flow().src(), flow().dst()))
}

/// QSPEC-4.2.4-01
#[test]
fn a_refusal_shows_which_parameter_was_too_much() {
    let mut rig = full();
    let much = qspec(MUCH);
    let answer = one(rig.receive_octets(BEFORE, second_flow(), SESSION, &octets(&reserve(0, &much))));
    assert_eq!((answer.message().kind, answer.info()), (MessageType::RESPONSE, Info::RESERVATION_FAILURE));
    assert!(blames_traffic(answer.message().qspec.unwrap()));
    assert!(!blames_traffic(&much), "which came without");
}

/// Policy rules use the authenticated identity of the previous peer.
#[test]
fn a_rule_may_ask_who_the_peer_is() {
    let mut rig = Rig::with_rules(Config::default(), |config| {
        let mut rule = RuleConfig::new("friends", Action::Allow);
        rule.peer = vec!["dns:r1.example".parse().unwrap()];
        config.rules = vec![rule];
        config.default = Action::Deny;
    });
    let named = |name: &str| {
        let identity = Identity { dns: vec![name.to_owned()], ..Identity::of_key(Fingerprint([1; 32])) };
        Some(Arc::new(identity))
    };
    let wanted = qspec(1000);
    for stranger in [None, named("r2.example")] {
        rig.peer = stranger;
        let refused = one(rig.receive(&reserve(1, &wanted)));
        assert_eq!((refused.info(), rig.held()), (Info::AUTHORISATION, 0));
    }
    rig.peer = named("r1.example");
    let passed = one(rig.receive(&reserve(2, &wanted)));
    assert_eq!((passed.message().kind, rig.held()), (MessageType::RESERVE, 1000));
}

/// Threats T02: where the default is to deny, a neighbor that answered a handshake at a configured address may reserve, and
/// the same request without that proof may not.
#[test]
fn a_neighbor_is_trusted_by_the_address_at_which_it_answered() {
    let mut rig = Rig::with_rules(Config::default(), |config| {
        config.default = Action::Deny;
        config.trusted = vec!["10.0.1.0/24".parse().unwrap()];
    });
    let wanted = qspec(1000);
    for stranger in [None, Some("10.0.2.1".parse().unwrap())] {
        rig.peer_address = stranger;
        let refused = one(rig.receive(&reserve(1, &wanted)));
        assert_eq!((refused.info(), rig.held()), (Info::AUTHORISATION, 0));
    }
    rig.peer_address = Some("10.0.1.1".parse().unwrap());
    let passed = one(rig.receive(&reserve(2, &wanted)));
    assert_eq!((passed.message().kind, rig.held()), (MessageType::RESERVE, 1000));
}

/// QSPEC-4.2.3-04
#[test]
fn a_node_before_the_one_that_refused_gives_back_what_it_holds() {
    let mut rig = Rig::new();
    let onward = rig.reserved(0, 10_000);
    assert_eq!(rig.held(), 10_000);
    let refused = Message { rii: onward.message().rii, ..response(Info::RESERVATION_FAILURE) };
    let passed = one(rig.back(&refused));
    assert_eq!(passed.info(), Info::RESERVATION_FAILURE);
    assert_eq!(rig.held(), 0);
    assert!(!rig.qos.view_of(rig.now, SESSION).unwrap().reserved);
}

/// QSPEC-4.2.4-02
#[test]
fn a_node_without_state_passes_on_that_there_is_not_enough() {
    let mut rig = Rig::with(Config { state: StateKeeping::Stateless, ..Config::default() });
    // The rate exceeds the whole link: the node has no other limit.
    rig.resources = {
        let mut config = signalbox_resources::Config::of_link("eth2", "100kbit".parse().unwrap());
        config.preemption = false;
        let mut resources = signalbox_resources::Resources::new(config, 0, [1; 32]).unwrap();
        resources.interfaces(&rig.interfaces);
        resources
    };
    let much = qspec(MUCH);
    let onward = one(rig.receive(&reserve(3, &much)));
    assert_eq!((onward.message().kind, onward.mri), (MessageType::RESERVE, flow()));
    assert!(blames_traffic(onward.message().qspec.unwrap()));
    let little = qspec(1000);
    let onward = one(rig.receive(&reserve(4, &little)));
    assert!(!blames_traffic(onward.message().qspec.unwrap()));
    assert_eq!((rig.held(), rig.qos.sessions()), (0, 0));
}

/// QSPEC-4.2.4-05, QOS-5.3.5-10
#[test]
fn a_node_without_state_passes_on_what_is_wrong() {
    for state in [StateKeeping::Stateless, StateKeeping::Reduced] {
        let mut rig = Rig::with(Config { state, ..Config::default() });
        // A bucket that is not a number: the parameter is wrong.
        let mut bad = qspec(10_000);
        let rate = bad.windows(4).position(|w| w == 10_000f32.to_be_bytes()).unwrap();
        bad[rate..rate + 4].copy_from_slice(&f32::NAN.to_be_bytes());
        let onward = one(rig.receive(&reserve(0, &bad)));
        assert_eq!(onward.message().kind, MessageType::RESERVE);
        assert!(blames_traffic(onward.message().qspec.unwrap()), "{state:?}");
        // A message that breaks the grammar is forwarded unchanged: it has an unknown object that must be understood.
        let good = qspec(10_000);
        let mut text = octets(&reserve(0, &good));
        text.extend([0x01, 0xf4, 0x00, 0x01, 0, 0, 0, 0]);
        let onward = one(rig.receive_octets(BEFORE, flow(), SESSION, &text));
        assert_eq!(onward.octets, text, "{state:?}");
        assert_eq!((rig.held(), rig.qos.sessions()), (0, 0));
    }
}

/// QOS-5.1.2.4-03
#[test]
fn a_notify_may_bring_a_qspec_and_keeps_it_on_the_way() {
    let mut rig = Rig::new();
    rig.reserved(0, 10_000);
    let shown = qspec(10_000);
    let notify = Message {
        info: Some(Info::CONGESTION.into()),
        qspec: Some(&shown),
        ..Message::new(MessageType::NOTIFY)
    };
    let passed = one(rig.back(&notify));
    assert_eq!((passed.message().kind, passed.message().qspec), (MessageType::NOTIFY, Some(&shown[..])));
}

/// QOS-5.4.1-17
#[test]
fn a_session_that_is_bound_to_one_that_ended_is_informed_if_so_configured() {
    for notify_bound in [true, false] {
        for code in [BindingCode::TUNNEL, BindingCode::BIDIRECTIONAL, BindingCode::AGGREGATE] {
            let mut rig = Rig::with(Config { notify_bound, ..Config::default() });
            let some = qspec(10_000);
            let other = SessionId([9; 16]);
            rig.receive_octets(BEFORE, flow(), other, &octets(&reserve(0, &some)));
            let mut bound = Vec::new();
            BoundSession { code, session: other }.write(&mut Writer::new(&mut bound)).unwrap();
            let message = Message { bound_sessions: Carried::bound_sessions(&bound), ..reserve(0, &some) };
            rig.receive_octets(BEFORE, second_flow(), SESSION, &octets(&message));
            let tear = octets(&Message { flags: MessageFlags::TEAR, ..reserve(1, &[]) });
            let sent = rig.receive_octets(BEFORE, flow(), other, &tear);
            let informed = sent.iter().any(|s| {
                s.session == SESSION
                    && s.message().kind == MessageType::NOTIFY
                    && s.info() == Info::UNKNOWN_BOUND_SESSION
            });
            assert_eq!((informed, rig.held()), (notify_bound, 10_000), "{code:?}");
        }
    }
}

/// QOS-3.2.8-01, QOS-3.2.8-02: the BOUND-SESSION-ID came with a QUERY first, and with the RESERVE again.
#[test]
fn a_session_that_was_asked_for_ends_with_the_one_it_depends_on() {
    let mut rig = Rig::new();
    let (some, asked) = (qspec(10_000), query_qspec(10_000));
    let other = SessionId([9; 16]);
    rig.receive_octets(BEFORE, flow(), other, &octets(&reserve(0, &some)));
    let mut bound = Vec::new();
    let binding = BoundSession { code: BindingCode::DEPENDENT, session: other };
    binding.write(&mut Writer::new(&mut bound)).unwrap();
    let reserve_bound = Message { bound_sessions: Carried::bound_sessions(&bound), ..reserve(0, &some) };
    let query = Message {
        rii: Some(5),
        qspec: Some(&asked),
        bound_sessions: reserve_bound.bound_sessions,
        ..Message::new(MessageType::QUERY)
    };
    for message in [query, reserve_bound] {
        rig.receive_octets(BEFORE, second_flow(), SESSION, &octets(&message));
    }
    assert_eq!((rig.held(), rig.qos.sessions()), (20_000, 2));
    let tear = octets(&Message { flags: MessageFlags::TEAR, ..reserve(1, &[]) });
    rig.receive_octets(BEFORE, flow(), other, &tear);
    assert_eq!((rig.held(), rig.qos.sessions()), (0, 0));
}

fn begin(rig: &mut Rig) -> Sent {
    let to = Flow { src: Some(addr("10.0.2.1")), ..Flow::to(addr("203.0.113.9")) };
    let request = Box::new(ReserveRequest::new(to, QosRequest::rate(10_000)));
    let first = one(rig.input(Input::Command { id: 1, command: Command::Reserve(request) }));
    rig.sent(&first);
    first
}

fn answer(rig: &mut Rig, to: &Sent, info: Info) -> Vec<Sent> {
    let answer = Message { rii: to.message().rii, ..response(info) };
    rig.receive_octets(BEHIND, to.mri.inverted(), to.session, &octets(&answer))
}

/// QOS-5.3.5-04
#[test]
fn what_is_only_news_starts_nothing() {
    let mut rig = Rig::new();
    let first = begin(&mut rig);
    assert_eq!(answer(&mut rig, &first, Info::RESERVED), []);
    let events = rig.events.len();
    for info in [Info::CONGESTION, Info::UNKNOWN_BOUND_SESSION] {
        let notify = Message { kind: MessageType::NOTIFY, ..response(info) };
        let sent = rig.receive_octets(BEHIND, first.mri.inverted(), first.session, &octets(&notify));
        assert_eq!(sent, [], "{info}");
    }
    assert_eq!((rig.held(), rig.events.len()), (10_000, events));
}

/// QOS-5.3.5-12
#[test]
fn what_fails_for_the_moment_is_asked_for_again_as_often_as_configured() {
    let mut rig = Rig::with(Config { transient_retries: 2, ..Config::default() });
    let mut asked = begin(&mut rig);
    let numbers: Vec<_> = [2, 4]
        .into_iter()
        .map(|wait| {
            assert_eq!(answer(&mut rig, &asked, Info::RESERVATION_FAILURE), []);
            assert!(matches!(rig.events.as_slice(), [QosEvent::Started { .. }]), "no user has a report yet");
            let end = rig.now + Duration::from_secs(wait);
            let again = rig.until(end);
            let [(at, sent)] = again.as_slice() else { panic!("{again:?}") };
            assert_eq!((*at, sent.message().kind), (end, MessageType::RESERVE));
            assert_ne!(sent.message().rii, asked.message().rii);
            asked = sent.clone();
            asked.message().rsn.unwrap().number
        })
        .collect();
    assert_eq!(numbers, [1, 2], "a new request each time");
    answer(&mut rig, &asked, Info::RESERVATION_FAILURE);
    assert!(matches!(rig.events.last(), Some(QosEvent::Failed(_))));
    assert_eq!((rig.held(), rig.qos.sessions()), (0, 0));
    // The second request is granted and stays.
    let mut rig = Rig::with(Config { transient_retries: 2, ..Config::default() });
    let first = begin(&mut rig);
    answer(&mut rig, &first, Info::RESERVATION_FAILURE);
    let end = rig.now + Duration::from_secs(2);
    let again = rig.until(end);
    answer(&mut rig, &again[0].1, Info::RESERVED);
    assert!(matches!(rig.events.last(), Some(QosEvent::Granted(_))));
    // A permanent error is not retried.
    let mut rig = Rig::with(Config { transient_retries: 2, ..Config::default() });
    let first = begin(&mut rig);
    answer(&mut rig, &first, Info::AUTHORISATION);
    assert!(matches!(rig.events.last(), Some(QosEvent::Failed(_))));
}
