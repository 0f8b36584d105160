//! The node that asks.

use std::collections::BTreeSet;
use std::time::Duration;

use signalbox_core::mri::Direction;
use signalbox_core::node::Prefix;
use signalbox_core::service::{NetworkEvent, SendError, SiiHandle, Transports};
use signalbox_core::{LooseEnd, Mri, NslpId, PathCoupled};
use signalbox_natfw::engine::{
    Command, Config, ExposeRequest, Failure, Granted, NatfwEvent, OpenRequest, Options, Refusal,
};
use signalbox_natfw::wire::{
    Bindings, ExternalAddress, Info, Message, MessageType, Ports, RuleAction, sequence_number,
};

use crate::rig::{
    BEFORE, BEHIND, FAR, HOST, INSIDE, OUTSIDE, Rig, Sent, addr, create, error, external, flow, inward,
    loose, notify, octets, only, success,
};

fn open() -> OpenRequest {
    OpenRequest {
        src: Some(addr(HOST)),
        dst: addr(FAR),
        protocol: Some(17),
        src_port: Some(5000),
        dst_port: Some(6000),
        options: Options::default(),
    }
}

fn expose() -> ExposeRequest {
    ExposeRequest {
        address: Some(addr(HOST)),
        protocol: 17,
        port: 5000,
        from: None,
        from_port: None,
        towards: addr(FAR),
        path_coupled: false,
        block: false,
        publish: None,
        bindings: false,
        options: Options::default(),
    }
}

fn started(rig: &mut Rig, command: Command) -> Sent {
    let sent = only(rig.command(command));
    assert!(matches!(rig.events.remove(0), NatfwEvent::Started { session, .. } if session == sent.session));
    sent
}

fn msn(sent: &Sent) -> u32 {
    sequence_number(&sent.octets).unwrap()
}

/// NATFW-3.4-03, NATFW-3.4-04, NATFW-3.4-06, NATFW-4.3.1-02, NATFW-4.3.1-03, NATFW-4.3.1-04, NATFW-3.5-01
#[test]
fn a_create_is_for_the_flow_of_the_user() {
    let mut rig = Rig::host();
    let sent = started(&mut rig, Command::Open(open()));
    assert_eq!(sent.mri, flow());
    assert_eq!(sent.message(), create(msn(&sent), 1575));
    assert_eq!(Config::default().refresh, Duration::from_secs(300));
    assert_eq!(rig.answer(&sent, &success(msn(&sent), 600)), []);
    let granted = Granted {
        session: sent.session,
        lifetime: Duration::from_secs(600),
        external: None,
        bindings: Vec::new(),
        hops: Vec::new(),
        gaps: true,
        far_end: Some(true),
    };
    assert_eq!(rig.events, [NatfwEvent::Granted(granted)]);
}

/// With a proxy another node may answer in the place of the end of the flow, and an EXTERNAL is answered by the edge: the answer does not say by
/// whom.
#[test]
fn who_answered_for_the_end_of_the_flow_is_unknown() {
    let options = Options { proxy: true, ..Options::default() };
    for command in [Command::Open(OpenRequest { options, ..open() }), Command::Expose(expose())] {
        let mut rig = Rig::host();
        let sent = started(&mut rig, command);
        rig.answer(&sent, &success(msn(&sent), 600));
        let [NatfwEvent::Granted(granted)] = &rig.events[..] else { panic!("{:?}", rig.events) };
        assert_eq!(granted.far_end, None);
    }
}

fn proxied(from: Option<Prefix>) -> Command {
    let options = Options { proxy: true, ..Options::default() };
    Command::Expose(ExposeRequest { from, from_port: Some(6000), options, ..expose() })
}

/// O11: the CREATE of the edge names one sender. A request for all, or for a network, is refused before anything is sent.
#[test]
fn a_proxied_request_names_one_sender() {
    for from in [None, Some(Prefix { addr: addr(FAR), len: 24 }), Some(Prefix::all_like(addr(FAR)))] {
        let mut rig = Rig::host();
        assert_eq!(rig.command(proxied(from)), []);
        assert_eq!(rig.events, [NatfwEvent::Refused(Refusal::ProxySender)], "{from:?}");
        assert_eq!(rig.natfw.session_count(), 0);
    }
}

/// The CREATE of the edge arrives at the receiver.
fn create_arrives(rig: &mut Rig, nonce: u32) {
    rig.end = true;
    let flow = PathCoupled {
        protocol: Some(17),
        src_port: Some(6000),
        dst_port: Some(5000),
        ..PathCoupled::between(addr(FAR), addr(HOST))
    };
    let create = Message { nonce: Some(nonce), ..create(1, 600) };
    rig.by_outside(Mri::PathCoupled(flow), &create);
}

/// O11: the success of a proxied request is told when the CREATE of the edge has arrived, in whichever order the two arrive.
#[test]
fn a_proxied_success_is_told_when_the_create_is_through() {
    for (create_first, of_another) in [(false, false), (true, false), (true, true)] {
        let mut rig = Rig::host();
        let sent = started(&mut rig, proxied(Some(Prefix::host(addr(FAR)))));
        let nonce = sent.message().nonce.unwrap() ^ u32::from(of_another);
        if create_first {
            create_arrives(&mut rig, nonce);
        }
        assert_eq!(rig.events, []);
        rig.answer(&sent, &success(msn(&sent), 600));
        if !create_first {
            assert_eq!(rig.events, []);
            create_arrives(&mut rig, nonce);
        }
        let granted = matches!(rig.events.as_slice(), [NatfwEvent::Granted(_)]);
        assert_eq!(granted, !of_another, "{:?}", rig.events);
    }
}

/// NATFW-3.7.6.1-06, NATFW-3.7.6.1-10: the CREATE of the edge is known by its nonce, and ends with the EXTERNAL. One without a nonce, or
/// with that of another one, is a session by itself.
#[test]
fn the_create_of_an_edge_ends_with_its_external() {
    for (nonce, ends) in [(Some(0), true), (Some(1), false), (None, false)] {
        let mut rig = Rig::host();
        let sent = started(&mut rig, proxied(Some(Prefix::host(addr(FAR)))));
        let own = sent.message().nonce.unwrap();
        rig.answer(&sent, &success(msn(&sent), 600));
        rig.end = true;
        let of_edge = Message { nonce: nonce.map(|other| own ^ other), ..create(1, 600) };
        rig.by_outside(inward(), &of_edge);
        assert_eq!(rig.natfw.session_count(), 2);
        assert!(only(rig.command(Command::Close)).message().deletes());
        assert_eq!(rig.natfw.session_count(), u32::from(!ends), "{nonce:?}");
        // The deletion of the edge comes after that.
        rig.by_outside(inward(), &create(2, 0));
        assert_eq!(rig.natfw.session_count(), 0);
    }
}

/// O11: what the edge granted alone is nothing that a sender can use.
#[test]
fn a_proxied_request_without_a_create_fails() {
    let mut rig = Rig::host();
    let sent = started(&mut rig, proxied(Some(Prefix::host(addr(FAR)))));
    rig.answer(&sent, &success(msn(&sent), 600));
    let deletion = only(rig.pass_secs(17));
    assert!(deletion.message().deletes());
    assert_eq!(rig.events, [NatfwEvent::Failed(Failure::NoCreate)]);
    assert_eq!(rig.natfw.session_count(), 0);
}

/// NATFW-3.2.8-01, NATFW-3.5-03: both are drawn at random.
#[test]
fn identifiers_and_first_numbers_are_random() {
    let mut rig = Rig::host();
    let (mut sessions, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    for id in 0..1000 {
        let command = Command::Open(open());
        let sent = only(rig.input(signalbox_natfw::engine::Input::Command { id, command }));
        sessions.insert(sent.session);
        numbers.insert(msn(&sent));
    }
    assert_eq!(sessions.len(), 1000);
    assert!(numbers.len() > 990 && numbers.iter().max().unwrap() - numbers.iter().min().unwrap() > 1 << 31);
}

/// NATFW-3.4-05, NATFW-3.7.3-01
#[test]
fn refreshes_are_spread_over_half_to_one_and_a_half_periods() {
    let mut rig = Rig::host();
    let mut last = started(&mut rig, Command::Open(open()));
    rig.answer(&last, &success(msn(&last), 1575));
    let mut times = Vec::new();
    for _ in 0..200 {
        let before = rig.now;
        while rig.natfw.next_deadline().is_some() {
            rig.now = rig.natfw.next_deadline().unwrap();
            let sent = rig.input(signalbox_natfw::engine::Input::Timer);
            if let [sent] = sent.as_slice() {
                assert_eq!(msn(sent), msn(&last).wrapping_add(1), "NATFW-3.5-05");
                assert_eq!((sent.session, sent.message()), (last.session, create(msn(sent), 1575)));
                last = sent.clone();
                break;
            }
        }
        times.push(rig.now.since(before).as_secs_f64());
        rig.answer(&last, &success(msn(&last), 1575));
    }
    assert!(times.iter().all(|time| (150.0..=450.1).contains(time)), "{times:?}");
    assert!(times.iter().any(|time| *time < 200.0) && times.iter().any(|time| *time > 400.0));
    assert_eq!(rig.events.len(), 1, "what does not change is not reported again");
}

/// NATFW-3.5-04: a request without RESPONSE is repeated with the next number, and a RESPONSE to any of them counts.
#[test]
fn a_request_is_repeated_until_it_is_answered() {
    let mut rig = Rig::host();
    let first = started(&mut rig, Command::Open(open()));
    let mut times = Vec::new();
    for second in 1..=20 {
        for sent in rig.pass_secs(1) {
            times.push(second);
            assert_eq!(msn(&sent), msn(&first).wrapping_add(u32::try_from(times.len()).unwrap()));
        }
    }
    assert_eq!(times, [2, 6, 14], "at doubling intervals");
    assert_eq!(rig.natfw.counters().retransmissions, 3);
    assert_eq!(rig.answer(&first, &success(msn(&first), 1575)), []);
    assert!(matches!(rig.events[0], NatfwEvent::Granted(_)));
}

/// NATFW-3.2.8-02
#[test]
fn a_request_without_response_is_given_up_after_its_lifetime() {
    let mut rig = Rig::host();
    let options = Options { lifetime: Some(Duration::from_secs(100)), ..Options::default() };
    started(&mut rig, Command::Open(OpenRequest { options, ..open() }));
    rig.pass_secs(99);
    assert_eq!(rig.events, []);
    rig.pass_secs(1);
    assert_eq!(rig.events, [NatfwEvent::Failed(Failure::NoResponse)]);
    assert_eq!(rig.natfw.session_count(), 0);
}

/// NATFW-3.7.1-13, NATFW-3.7.2-24
#[test]
fn a_refusal_is_reported() {
    for command in [Command::Open(open()), Command::Expose(expose())] {
        let mut rig = Rig::host();
        let sent = started(&mut rig, command);
        rig.answer(&sent, &error(msn(&sent), Info::POLICY_CONFLICT));
        let failure = Failure::Code(Info::POLICY_CONFLICT.into());
        assert_eq!(rig.events, [NatfwEvent::Failed(failure)]);
        assert_eq!(rig.natfw.session_count(), 0);
    }
    let mut rig = Rig::host();
    let sent = started(&mut rig, Command::Open(open()));
    rig.failed(&sent, SendError::NoNextNode);
    assert_eq!(rig.events, [NatfwEvent::Failed(Failure::NoNextNode)]);
}

/// What GIST does not send is reported at once, with the reason and what to do.
#[test]
fn a_request_that_gist_refuses_is_reported_at_once() {
    let tcp = Transports { tcp: true, ..Transports::default() };
    let refusals = [
        (SendError::Overload, "a queue or table of GIST at this node is full: try later"),
        (SendError::TooLarge { max: 400 }, "too many octets, at most 400 fit"),
        (SendError::Refused, "reliable and secure need messaging associations"),
        (SendError::Unreached(tcp), "the next node answered, but could not be reached by tcp"),
        (SendError::NoStateUpstream, "set upstream_queries = true in [gist]"),
    ];
    for (error, text) in refusals {
        let mut rig = Rig::host();
        let sent = started(&mut rig, Command::Expose(ExposeRequest { path_coupled: true, ..expose() }));
        rig.failed(&sent, error);
        let [NatfwEvent::Failed(failure)] = &rig.events[..] else { panic!("{:?}", rig.events) };
        assert!(failure.to_string().contains(text), "{failure}");
        assert_eq!(rig.natfw.session_count(), 0);
    }
    // A granted request waits for its next repetition.
    let mut rig = Rig::host();
    let sent = started(&mut rig, Command::Open(open()));
    rig.answer(&sent, &success(msn(&sent), 1575));
    rig.events.clear();
    let refresh = rig.pass_secs(600).remove(0);
    rig.failed(&refresh, SendError::Overload);
    rig.failed(&refresh, SendError::Unreached(tcp));
    assert_eq!((rig.events.len(), rig.natfw.session_count()), (0, 1));
}

/// NATFW-3.7.2-03, NATFW-3.7.2-06, NATFW-3.7.2-07, NATFW-3.7.2-09
#[test]
fn an_external_travels_towards_the_edge() {
    let mut rig = Rig::host();
    let sent = started(&mut rig, Command::Expose(ExposeRequest { bindings: true, ..expose() }));
    assert_eq!(sent.mri, loose(HOST, FAR));
    let expected = Message { bindings: Some(Bindings::EMPTY), ..external(msn(&sent), 1575, 5000) };
    assert_eq!(sent.message(), expected);
    let address = ExternalAddress { address: [192, 0, 2, 79].into(), port: Some(45000) };
    let inner = [10, 0, 0, 1];
    let response = Message {
        external: Some(address),
        bindings: Some(Bindings::of(None, &inner)),
        ..success(msn(&sent), 1575)
    };
    rig.answer(&sent, &response);
    let NatfwEvent::Granted(granted) = &rig.events[0] else { panic!("{:?}", rig.events) };
    assert_eq!(granted.external, Some(([192, 0, 2, 79].into(), Some(45000))));
    assert_eq!(granted.bindings, [std::net::Ipv4Addr::from(inner)]);
}

/// NATFW-3.7.2-01, NATFW-3.7.2-02, NATFW-3.7.2-06, NATFW-3.7.2-08
#[test]
fn an_external_for_a_known_path_travels_upstream() {
    let mut rig = Rig::host();
    let from = Some(Prefix { addr: addr("203.0.113.0"), len: 24 });
    let request = ExposeRequest { from, from_port: Some(6000), path_coupled: true, ..expose() };
    let sent = started(&mut rig, Command::Expose(request));
    let Mri::PathCoupled(flow) = sent.mri else { panic!("{}", sent.mri) };
    assert_eq!((flow.direction, flow.src_prefix, flow.dst), (Direction::Upstream, 24, addr(HOST)));
    let terminal = sent.message().terminal.unwrap();
    assert_eq!(terminal.sender, ([203, 0, 113, 0].into(), 24));
    assert_eq!(terminal.ports(), Ports { receiver: Some(5000), sender: Some(6000) });
    let mut rig = Rig::host();
    let sent =
        started(&mut rig, Command::Expose(ExposeRequest { path_coupled: true, block: true, ..expose() }));
    let Mri::PathCoupled(PathCoupled { src, src_prefix: 0, .. }) = sent.mri else { panic!("{}", sent.mri) };
    assert!(src.is_unspecified());
    assert_eq!(sent.message().efi.unwrap().action, RuleAction::DENY);
    assert_eq!(sent.message().terminal.unwrap().sender, ([0; 4].into(), 0));
}

/// NATFW-3.7.6.1-01, NATFW-4.1-06
#[test]
fn the_nonce_of_proxy_mode_is_of_the_session() {
    let mut rig = Rig::host();
    let sent = started(&mut rig, proxied(Some(Prefix::host(addr(FAR)))));
    let message = sent.message();
    assert!(message.proxy && !message.extend);
    assert_eq!(message.nonce.unwrap().to_be_bytes(), sent.session.0[..4]);
}

/// NATFW-3.7.1-01, NATFW-3.7.2-10
#[test]
fn the_initiator_discards_requests() {
    for command in [Command::Open(open()), Command::Expose(expose())] {
        let mut rig = Rig::host();
        let sent = started(&mut rig, command);
        for message in [create(9, 100), external(9, 100, 1), create(9, 0)] {
            let answers = rig.in_session(sent.session, BEFORE, INSIDE, sent.mri, &message);
            assert_eq!(answers, []);
        }
        assert_eq!((rig.natfw.counters().misdirected, rig.natfw.session_count()), (3, 1));
    }
}

/// NATFW-3.7.4-01
#[test]
fn a_request_that_ends_deletes_its_session() {
    let mut rig = Rig::host();
    let first = started(&mut rig, Command::Expose(expose()));
    rig.answer(&first, &success(msn(&first), 1575));
    let sent = only(rig.command(Command::Close));
    assert_eq!(sent.message(), external(msn(&first).wrapping_add(1), 0, 5000));
    assert_eq!(rig.events.last(), Some(&NatfwEvent::Closed));
    assert_eq!(rig.natfw.session_count(), 0);
    assert_eq!(rig.command(Command::Close), []);
}

/// NATFW-3.9-02, NATFW-3.7.5-12
#[test]
fn a_changed_route_makes_the_initiator_ask_again() {
    let mut rig = Rig::host();
    let first = started(&mut rig, Command::Open(open()));
    rig.answer(&first, &success(msn(&first), 1575));
    let other = SiiHandle(9);
    let event = NetworkEvent::Good(other);
    let again = only(rig.input(signalbox_natfw::engine::Input::Indication(
        signalbox_core::service::Indication::NetworkNotification {
            nslp: NslpId::NATFW,
            mri: flow(),
            session: first.session,
            event,
        },
    )));
    assert_eq!((again.session, again.message().kind), (first.session, MessageType::CREATE));
    rig.answer(&again, &success(msn(&again), 1575));
    for info in [Info::ROUTE_CHANGE, Info::REAUTHENTICATE, Info::GOING_DOWN] {
        let octets = octets(&notify(info));
        let received = rig.received(BEHIND, OUTSIDE, flow().inverted(), &octets);
        let message = signalbox_core::service::RecvMessage { session: first.session, ..received };
        let again = only(rig.indicate(message));
        assert_eq!(again.message().kind, MessageType::CREATE, "no NOTIFY");
        assert_eq!(rig.events.last(), Some(&NatfwEvent::Notified(info.into())));
        rig.answer(&again, &success(msn(&again), 1575));
    }
}

#[test]
fn the_application_has_its_registered_number() {
    assert_eq!(Config::default().nslp, NslpId(33));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let refused = |command| {
        let mut rig = Rig::host();
        assert_eq!(rig.command(command), []);
        let [NatfwEvent::Refused(refusal)] = rig.events.as_slice() else { panic!("{:?}", rig.events) };
        *refusal
    };
    let with = |options| Command::Open(OpenRequest { options, ..open() });
    assert_eq!(refused(Command::Open(OpenRequest { dst: addr("fd00::1"), ..open() })), Refusal::Address);
    assert_eq!(refused(Command::Open(OpenRequest { dst: addr("224.0.0.1"), ..open() })), Refusal::Address);
    assert_eq!(refused(Command::Open(OpenRequest { protocol: None, ..open() })), Refusal::Ports);
    assert_eq!(refused(Command::Open(OpenRequest { protocol: Some(50), ..open() })), Refusal::Ports);
    assert_eq!(
        refused(with(Options { lifetime: Some(Duration::ZERO), ..Options::default() })),
        Refusal::Lifetime
    );
    assert_eq!(refused(with(Options { icmp_types: vec![0; 256], ..Options::default() })), Refusal::IcmpTypes);
    assert_eq!(refused(Command::Expose(ExposeRequest { protocol: 50, ..expose() })), Refusal::Ports);
    let senders = Prefix { addr: addr("2001:db8::"), len: 32 };
    let v6 = ExposeRequest { address: Some(addr("fd00::2")), towards: addr("fd00::1"), ..expose() };
    let named = ExposeRequest { from: Some(senders), ..v6 };
    assert_eq!(refused(Command::Expose(named.clone())), Refusal::Senders);
    let sent = started(&mut Rig::host(), Command::Expose(ExposeRequest { path_coupled: true, ..named }));
    assert!(matches!(sent.mri, Mri::PathCoupled(flow) if flow.src == senders.addr && flow.src_prefix == 32));
    let mut rig = Rig::host();
    started(&mut rig, Command::Open(open()));
    rig.command(Command::Open(open()));
    assert_eq!(rig.events, [NatfwEvent::Refused(Refusal::IdInUse)]);
}

/// Without an address of its own, a request takes the one of the route.
#[test]
fn a_request_without_address_takes_that_of_the_route() {
    let mut rig = Rig::host();
    let sent = started(&mut rig, Command::Open(OpenRequest { src: None, ..open() }));
    assert_eq!(sent.mri.src(), addr("10.0.1.1"));
    let mut rig = Rig::host();
    let sent = started(&mut rig, Command::Expose(ExposeRequest { address: None, ..expose() }));
    assert!(matches!(sent.mri, Mri::LooseEnd(LooseEnd { src, .. }) if src == addr("10.0.1.1")));
}
