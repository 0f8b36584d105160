//! Adversaries: peers that send what costs most, and strangers that are not on the path.

use signalbox_core::mri::PathCoupled;
use signalbox_core::service::{
    AddressValidation, Indication, RecvMessage, Security, SendError, SiiHandle, StateHandle,
    TransferAttributes,
};
use signalbox_core::{IfIndex, Mri, NslpId, SessionId};
use signalbox_qos::engine::{Config, Input, ReverseDirection};
use signalbox_qos::wire::{
    BindingCode, BoundSession, Carried, Info, Message, MessageFlags, MessageType, RsnList, SessionIds,
};
use signalbox_wire::Writer;

use crate::rig::{
    BEFORE, BEHIND, EPOCH, OTHER, Rig, SESSION, addr, flow, octets, qspec, query_qspec, reserve,
};

fn session(number: u32) -> SessionId {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&number.to_be_bytes());
    SessionId(id)
}

fn flow_to(port: u16) -> Mri {
    Mri::PathCoupled(PathCoupled {
        protocol: Some(17),
        dst_port: Some(port),
        ..PathCoupled::between(addr("192.0.2.1"), addr("203.0.113.9"))
    })
}

fn depends_on(on: SessionId) -> Vec<u8> {
    let mut bound = Vec::new();
    let binding = BoundSession { code: BindingCode::DEPENDENT, session: on };
    binding.write(&mut Writer::new(&mut bound)).unwrap();
    bound
}

/// A rig whose link has room for `sessions` of the least rate.
fn wide() -> Rig {
    Rig::with_rules(Config::default(), |rules| {
        rules.links.iter_mut().for_each(|link| link.capacity = Some("10gbit".parse().unwrap()));
    })
}

#[test]
fn a_chain_of_dependent_sessions_ends_in_parts_and_without_recursion() {
    const CHAIN: u32 = 16_000;
    let mut rig = wide();
    let some = qspec(1);
    for number in 0..CHAIN {
        let bound = number.checked_sub(1).map(|before| depends_on(session(before))).unwrap_or_default();
        let message = Message { bound_sessions: Carried::bound_sessions(&bound), ..reserve(1, &some) };
        let port = u16::try_from(number + 1).unwrap();
        rig.receive_octets(BEFORE, flow_to(port), session(number), &octets(&message));
    }
    assert_eq!(rig.qos.sessions(), CHAIN);

    let tear = Message { flags: MessageFlags::TEAR, ..reserve(2, &[]) };
    let sent = rig.receive_octets(BEFORE, flow_to(1), session(0), &octets(&tear));
    assert!(sent.len() < 1000, "one tear sends {} messages at once", sent.len());
    assert!(rig.qos.sessions() > CHAIN - 1000, "one input handles a bounded part");
    let now = rig.now;
    rig.until(now);
    assert_eq!((rig.qos.sessions(), rig.held()), (0, 0), "in the end all of them are gone");
}

#[test]
fn ten_thousand_sessions_bound_to_one_are_handled_in_parts() {
    const MANY: u32 = 10_000;
    let mut rig = wide();
    let some = qspec(1);
    rig.receive_octets(BEFORE, flow_to(1), session(0), &octets(&reserve(1, &some)));
    let bound = depends_on(session(0));
    for number in 1..=MANY {
        let message = Message { bound_sessions: Carried::bound_sessions(&bound), ..reserve(1, &some) };
        let port = u16::try_from(number + 1).unwrap();
        rig.receive_octets(BEFORE, flow_to(port), session(number), &octets(&message));
    }
    let tear = Message { flags: MessageFlags::TEAR, ..reserve(2, &[]) };
    rig.receive_octets(BEFORE, flow_to(1), session(0), &octets(&tear));
    assert!(rig.qos.sessions() > MANY - 1000);
    let now = rig.now;
    rig.until(now);
    assert_eq!((rig.qos.sessions(), rig.held()), (0, 0));
}

#[test]
fn a_session_reserved_again_keeps_those_that_depend_on_it() {
    let mut rig = wide();
    let some = qspec(1);
    // The dependents of session 0 are more than one input handles.
    rig.receive_octets(BEFORE, flow_to(1), session(0), &octets(&reserve(1, &some)));
    let bound = depends_on(session(0));
    for number in 1..=200 {
        let message = Message { bound_sessions: Carried::bound_sessions(&bound), ..reserve(1, &some) };
        let port = u16::try_from(number + 1).unwrap();
        rig.receive_octets(BEFORE, flow_to(port), session(number), &octets(&message));
    }
    let tear = Message { flags: MessageFlags::TEAR, ..reserve(2, &[]) };
    rig.receive_octets(BEFORE, flow_to(1), session(0), &octets(&tear));
    let left = rig.qos.sessions();
    rig.receive_octets(BEFORE, flow_to(1), session(0), &octets(&reserve(3, &some)));
    let now = rig.now;
    rig.until(now);
    assert!(rig.qos.sessions() > left / 2, "{} of {left}", rig.qos.sessions());
}

/// How a message of a stranger arrives.
struct Stranger {
    state: Option<StateHandle>,
    sii: Option<SiiHandle>,
    stateless: bool,
    unchecked: bool,
}

const Q_MODE: Stranger = Stranger { state: None, sii: None, stateless: true, unchecked: true };
const EXPLICIT: Stranger = Stranger { state: None, sii: None, stateless: false, unchecked: true };
/// It claims the identity of a peer that the node has.
const EXPLICIT_AS_PEER: Stranger =
    Stranger { state: None, sii: Some(BEFORE), stateless: false, unchecked: true };
/// It names a session with routing state, but is sent from an address that no peer has.
const FROM_ELSEWHERE: Stranger =
    Stranger { state: Some(StateHandle(1)), sii: None, stateless: false, unchecked: false };
/// The payload of a Query for a session that has routing state.
const QUERY: Stranger =
    Stranger { state: Some(StateHandle(1)), sii: Some(BEFORE), stateless: true, unchecked: false };

fn arrives(rig: &mut Rig, how: &Stranger, session: SessionId, message: &Message<'_>, secure: bool) -> usize {
    arrives_along(rig, flow(), how, session, message, secure)
}

fn arrives_along(
    rig: &mut Rig,
    mri: Mri,
    how: &Stranger,
    session: SessionId,
    message: &Message<'_>,
    secure: bool,
) -> usize {
    let octets = octets(message);
    let security = if secure { Security::Channel } else { Security::None };
    let received = RecvMessage {
        data: &octets[..],
        nslp: NslpId::QOS,
        session,
        mri,
        check: None,
        state: how.state,
        sii: how.sii,
        peer: None,
        peer_address: None,
        attributes: TransferAttributes {
            stateless: how.stateless,
            security,
            ..TransferAttributes::default()
        },
        validation: AddressValidation { unchecked_route: how.unchecked, ..AddressValidation::default() },
        ip_ttl: 64,
        ip_distance: 0,
        hops: 60,
        ifindex: IfIndex(1),
        at_flow_end: false,
    };
    rig.input(Input::Indication(Indication::RecvMessage(received))).len()
}

#[test]
fn a_message_without_verified_routing_state_reserves_nothing() {
    let some = qspec(10_000);
    for how in [Q_MODE, EXPLICIT, EXPLICIT_AS_PEER, QUERY, FROM_ELSEWHERE] {
        let mut rig = Rig::new();
        let sent = arrives(&mut rig, &how, SESSION, &reserve(1, &some), false);
        assert_eq!((sent, rig.held(), rig.qos.sessions()), (0, 0, 0));
        assert_eq!(rig.qos.counters().unverified, 1);
    }
}

#[test]
fn a_message_without_verified_routing_state_tears_nothing_down() {
    let some = qspec(10_000);
    for how in [Q_MODE, EXPLICIT, QUERY, FROM_ELSEWHERE] {
        let mut rig = Rig::new();
        rig.receive(&reserve(1, &some));
        let held = rig.held();
        assert!(held > 0);
        let tear = Message { flags: MessageFlags::TEAR, ..reserve(2, &[]) };
        arrives(&mut rig, &how, SESSION, &tear, false);
        assert_eq!(rig.held(), held);
    }
}

#[test]
fn accept_stateless_allows_what_rfc_5974_allows() {
    let some = qspec(10_000);
    let mut rig = Rig::with(Config { accept_stateless: true, ..Config::default() });
    arrives(&mut rig, &Q_MODE, SESSION, &reserve(1, &some), false);
    assert!(rig.held() > 0);
}

#[test]
fn secure_holds_for_messages_that_arrive() {
    let some = qspec(10_000);
    let mut rig = Rig::with(Config { secure: true, ..Config::default() });
    rig.receive(&reserve(1, &some));
    assert_eq!((rig.held(), rig.qos.counters().insecure), (0, 1));
    let routed =
        Stranger { state: Some(StateHandle(1)), sii: Some(BEFORE), stateless: false, unchecked: false };
    arrives(&mut rig, &routed, SESSION, &reserve(1, &some), true);
    assert!(rig.held() > 0, "over an authenticated channel it is accepted");
}

/// A NOTIFY "Route change" makes a node of the path ask its previous peer. One of a stranger does nothing, and one that is forged or
/// sent again and again in the name of the next peer costs few messages: only the silence of the previous peer ends anything.
#[test]
fn a_report_of_a_route_change_ends_nothing_by_itself() {
    let change = Message { info: Some(Info::ROUTE_CHANGE.into()), ..Message::new(MessageType::NOTIFY) };
    let (some, report) = (qspec(10_000), octets(&change));
    let reserved = || {
        let mut rig = Rig::new();
        let onward = rig.reserved(3, 10_000);
        rig.back(&Message {
            rii: onward.message().rii,
            info: Some(Info::RESERVED.into()),
            ..Message::new(MessageType::RESPONSE)
        });
        rig
    };
    // The previous peer is silent in each case.
    let mut rig = reserved();
    for how in [Q_MODE, EXPLICIT, EXPLICIT_AS_PEER, FROM_ELSEWHERE, QUERY] {
        arrives_along(&mut rig, flow().inverted(), &how, SESSION, &change, false);
    }
    for from in [OTHER, BEFORE] {
        assert_eq!(rig.receive_octets(from, flow().inverted(), SESSION, &report), []);
    }
    rig.until(rig.now + core::time::Duration::from_secs(30));
    assert_eq!(rig.held(), 10_000);
    // Before a RESPONSE has shown which peer is the next one, the next peer is not known.
    let mut rig = Rig::new();
    rig.reserved(3, 10_000);
    rig.receive_octets(OTHER, flow().inverted(), SESSION, &report);
    rig.until(rig.now + core::time::Duration::from_secs(30));
    assert_eq!(rig.held(), 10_000);
    // Sent a thousand times within some seconds, it costs what it costs once: each question goes with a copy of the report.
    let mut rig = reserved();
    let mut sent = 0;
    for _ in 0..1000 {
        sent += rig.back(&change).len();
        sent += rig.until(rig.now + core::time::Duration::from_millis(6)).len();
    }
    assert_eq!(sent, 1 + 2 * 3);
    rig.receive(&Message { rii: Some(70), ..reserve(3, &some) });
    rig.until(rig.now + core::time::Duration::from_secs(30));
    assert_eq!(rig.held(), 10_000);
}

/// A peer chooses its refresh period, but not for how long a node keeps state that is never refreshed.
#[test]
fn a_reservation_without_refreshes_ends_within_ten_minutes() {
    let some = qspec(10_000);
    let mut rig = Rig::new();
    rig.receive(&Message { refresh_period: Some(u32::MAX), ..reserve(1, &some) });
    assert_eq!((rig.qos.sessions(), rig.held()), (1, 10_000));
    let almost = rig.now + core::time::Duration::from_secs(599);
    rig.until(almost);
    assert_eq!(rig.qos.sessions(), 1);
    rig.until(almost + core::time::Duration::from_secs(2));
    assert_eq!((rig.qos.sessions(), rig.held()), (0, 0));
}

/// A peer that floods the table of sessions, with RESERVEs or with QUERYs, leaves a quarter of it to others, and so do all peers
/// together that did not prove their address. What ends is given back.
#[test]
fn a_peer_that_floods_leaves_sessions_to_others() {
    for flood in [Some("10.0.0.1"), None] {
        leaves_sessions_to_others(flood);
    }
}

/// A peer whose requests wait for next nodes that do not answer: this node answers those of others, if it is the last one.
#[test]
fn a_peer_whose_requests_find_no_node_leaves_answers_to_others() {
    let mut rig = Rig::with_rules(Config { max_watched: 64, ..Config::default() }, |rules| {
        rules.links.iter_mut().for_each(|link| link.capacity = Some("10gbit".parse().unwrap()));
    });
    let some = qspec(1);
    let ask = |rig: &mut Rig, from: &str, number: u32| {
        rig.peer_address = Some(addr(from));
        let message = Message { rii: Some(1), ..reserve(1, &some) };
        let port = u16::try_from(number + 1).unwrap();
        let mut sent = rig.receive_octets(BEFORE, flow_to(port), session(number), &octets(&message));
        sent.pop().unwrap()
    };
    let watched = (0..100).filter(|n| ask(&mut rig, "10.0.0.1", *n).handle.is_some()).count();
    assert_eq!((watched, rig.qos.counters().unwatched), (48, 52));
    let sent = ask(&mut rig, "10.0.0.2", 300);
    let answers = rig.failed(&sent, SendError::NoNextNode);
    let infos: Vec<Info> = answers.iter().map(super::rig::Sent::info).collect();
    assert_eq!(infos, [Info::RESERVED]);
}

/// What the initiator repeats goes on, although GIST does not report what became of the first copy.
#[test]
fn an_unwatched_request_is_forwarded_again() {
    let mut rig = Rig::with(Config { max_watched: 0, ..Config::default() });
    let some = qspec(1);
    let message = Message { rii: Some(1), ..reserve(1, &some) };
    for _ in 0..3 {
        let sent = rig.receive(&message);
        assert_eq!(sent.iter().map(|one| one.message().kind).collect::<Vec<_>>(), [MessageType::RESERVE]);
        let later = rig.now + core::time::Duration::from_secs(20);
        rig.until(later);
    }
}

/// An object of unknown type that is kept with the session (AB=11, RFC 5974 §5.1.3), of this number of octets with its header.
fn kept_object(octets: usize) -> Vec<u8> {
    let words = u16::try_from(octets / 4 - 1).unwrap();
    let mut object = [&0xc1f6u16.to_be_bytes()[..], &words.to_be_bytes()].concat();
    object.resize(octets, 0xcc);
    object
}

/// A peer that the policy trusts makes sessions with long objects: they take three quarters of what sessions may keep, and the sessions
/// of another peer, long or short, are set up. What ends is given back.
#[test]
fn a_peer_with_long_objects_leaves_room_to_others() {
    let config = Config { max_contents: 1 << 20, ..Config::default() };
    let mut rig = Rig::with_rules(config, |rules| {
        rules.links.iter_mut().for_each(|link| link.capacity = Some("10gbit".parse().unwrap()));
    });
    let (some, asked, long) = (qspec(1), query_qspec(1), kept_object(8192));
    let ask = |rig: &mut Rig, from: &str, number: u32, query: bool, objects: &[u8]| {
        rig.peer_address = Some(addr(from));
        let refreshed = Carried::refreshed(objects);
        let message = match query {
            true => Message { kind: MessageType::QUERY, rsn: None, refreshed, ..reserve(1, &asked) },
            false => Message { refreshed, ..reserve(1, &some) },
        };
        let message = Message { rii: Some(number + 1), ..message };
        let before = rig.qos.sessions();
        let port = u16::try_from(number + 1).unwrap();
        let sent = rig.receive_octets(BEFORE, flow_to(port), session(number), &octets(&message));
        let refused = sent.iter().any(|one| one.message().kind == MessageType::RESPONSE);
        if refused {
            assert_eq!(sent.last().map(super::rig::Sent::info), Some(Info::RESERVATION_FAILURE));
        }
        assert_eq!(rig.qos.sessions() > before, !refused);
        !refused
    };
    let long_ones = |rig: &mut Rig, first| {
        (first..first + 300).filter(|n| ask(rig, "10.0.0.1", *n, n % 2 == 1, &long)).count()
    };
    // 786,432 octets, and 7,752 of each message and its QSPEC count.
    assert_eq!(long_ones(&mut rig, 0), 101);
    assert_eq!(rig.qos.counters().contents_full, 199);
    assert!(ask(&mut rig, "10.0.0.1", 1000, false, &[]), "what is short needs no room");
    // What the others left, and a share of 4,096 octets.
    let shared = (1001..1010).filter(|n| ask(&mut rig, "10.0.0.2", *n, false, &kept_object(4096))).count();
    assert!((1..=2).contains(&shared), "another peer has its share, and no more: {shared}");
    assert!(ask(&mut rig, "10.0.0.3", 1010, true, &kept_object(4096)));
    // A reservation that stands gets no longer objects either, and stays.
    rig.peer_address = Some(addr("10.0.0.1"));
    let change = Message { rii: Some(7), refreshed: Carried::refreshed(&long), ..reserve(2, &some) };
    let sent = rig.receive_octets(BEFORE, flow_to(1001), session(1000), &octets(&change));
    assert_eq!(sent.iter().map(super::rig::Sent::info).collect::<Vec<_>>(), [Info::RESERVATION_FAILURE]);
    let end = rig.now + core::time::Duration::from_secs(1000);
    rig.until(end);
    assert_eq!(rig.qos.sessions(), 0);
    assert_eq!(rig.qos.tables().map(|table| table.size), [0, 0, 0]);
    assert_eq!(long_ones(&mut rig, 2000), 101);
}

/// What ends at one time ends in parts, so that messages have their turn in between.
#[test]
fn many_sessions_end_in_parts() {
    let mut rig = Rig::with_rules(Config::default(), |rules| {
        rules.links.iter_mut().for_each(|link| link.capacity = Some("10gbit".parse().unwrap()));
    });
    let some = qspec(1);
    for number in 0..600 {
        let port = u16::try_from(number + 1).unwrap();
        rig.receive_octets(BEFORE, flow_to(port), session(number), &octets(&reserve(1, &some)));
    }
    assert_eq!(rig.qos.sessions(), 600);
    rig.now = rig.now + core::time::Duration::from_secs(3600);
    rig.input(Input::Timer);
    let first = rig.qos.sessions();
    assert!((344..600).contains(&first), "{first}");
    assert!(rig.qos.next_deadline().is_some_and(|at| at <= rig.now));
    while rig.qos.next_deadline().is_some_and(|at| at <= rig.now) {
        rig.input(Input::Timer);
    }
    assert_eq!(rig.qos.sessions(), 0);
}

fn leaves_sessions_to_others(flood: Option<&str>) {
    let config = Config { max_sessions: 64, max_queries: 64, ..Config::default() };
    let mut rig = Rig::with_rules(config, |rules| {
        rules.links.iter_mut().for_each(|link| link.capacity = Some("10gbit".parse().unwrap()));
    });
    let (some, asked) = (qspec(1), query_qspec(1));
    let query = Message { kind: MessageType::QUERY, rsn: None, ..reserve(1, &asked) };
    for (first, message) in [(0, reserve(1, &some)), (1000, query)] {
        let before = rig.qos.sessions();
        let ask = |rig: &mut Rig, from: Option<&str>, number: u32| {
            rig.peer_address = from.map(addr);
            let port = u16::try_from(number + 1).unwrap();
            rig.receive_octets(BEFORE, flow_to(port), session(number), &octets(&message));
            rig.qos.sessions() - before
        };
        assert_eq!((0..200).map(|n| ask(&mut rig, flood, first + n)).max(), Some(48));
        assert_eq!(ask(&mut rig, Some("10.0.0.2"), first + 300), 49, "another peer finds its place");
        assert_eq!(ask(&mut rig, Some("10.0.0.2"), first + 301), 49, "and no more than its share");
    }
    let tear = Message { flags: MessageFlags::TEAR, ..reserve(2, &[]) };
    for number in 0..48 {
        let port = u16::try_from(number + 1).unwrap();
        rig.receive_octets(BEFORE, flow_to(port), session(number), &octets(&tear));
    }
    let now = rig.now + core::time::Duration::from_secs(60);
    rig.until(now);
    rig.peer_address = Some(addr("10.0.0.2"));
    for number in 400..440 {
        let port = u16::try_from(number + 1).unwrap();
        rig.receive_octets(BEFORE, flow_to(port), session(number), &octets(&reserve(1, &some)));
    }
    assert!(rig.qos.sessions() >= 40, "{}", rig.qos.sessions());
}

/// A peer names sessions twice in the list of a tear, and the session of the tear itself. The node crashed.
#[test]
fn a_session_that_a_tear_names_twice_ends_once() {
    for knows_next in [false, true] {
        let mut rig = wide();
        let some = qspec(1_000);
        for number in 1..=3 {
            let (mri, id) = (flow_to(u16::try_from(number).unwrap()), session(number));
            let message = Message { rii: Some(500), ..reserve(1, &some) };
            rig.receive_octets(BEFORE, mri, id, &octets(&message));
            if knows_next {
                let info = Some(Info::RESERVED.into());
                let answer = Message { rii: Some(500), info, ..Message::new(MessageType::RESPONSE) };
                rig.receive_octets(BEHIND, mri.inverted(), id, &octets(&answer));
            }
        }
        assert_eq!((rig.qos.sessions(), rig.held()), (3, 3_000));
        let ids: Vec<u8> = [2, 1, 3, 2, 3].iter().flat_map(|number| session(*number).0).collect();
        let numbers: Vec<u8> = [2u32, 2, 2, 2, 3].iter().flat_map(|number| number.to_be_bytes()).collect();
        let tear = Message {
            flags: MessageFlags::TEAR,
            session_ids: SessionIds::from_octets(&ids),
            rsns: RsnList::from_octets(EPOCH, &numbers),
            ..reserve(2, &[])
        };
        let sent = rig.receive_octets(BEFORE, flow_to(1), session(1), &octets(&tear));
        let listed = |sent: &crate::rig::Sent| {
            let ids = sent.message().session_ids.map(|ids| ids.iter().collect::<Vec<_>>());
            (sent.session, ids.unwrap_or_default())
        };
        let torn: Vec<_> = sent.iter().map(listed).collect();
        let together = vec![(session(1), vec![session(2), session(3)])];
        let each = vec![(session(1), vec![]), (session(2), vec![]), (session(3), vec![])];
        assert_eq!(torn, if knows_next { together } else { each });
        assert_eq!((rig.qos.sessions(), rig.held(), rig.qos.counters().torn_down), (0, 0, 3));
        assert_eq!(rig.qos.next_deadline(), None);
    }
}

/// A peer sends a QUERY for the session of a reverse direction, which this node has bound to the first one. The binding stayed in
/// the table after the end of the session.
#[test]
fn a_query_of_a_peer_leaves_the_bindings_of_this_node() {
    let mut rig = Rig::with(Config { way_back: ReverseDirection::Ask, ..Config::default() });
    rig.end = true;
    let (some, back) = (qspec(10_000), SessionId([8; 16]));
    let mut bound = Vec::new();
    let binding = BoundSession { code: BindingCode::BIDIRECTIONAL, session: back };
    binding.write(&mut Writer::new(&mut bound)).unwrap();
    let first = Message { bound_sessions: Carried::bound_sessions(&bound), ..reserve(1, &some) };
    let sent = rig.receive(&first);
    assert!(sent.iter().any(|sent| sent.session == back && sent.message().is_reserve_init()), "{sent:?}");
    let ours = |rig: &Rig| rig.qos.view_of(rig.now, back).map(|view| view.bound.len());
    assert_eq!(ours(&rig), Some(1));

    let wish = query_qspec(10_000);
    let flags = MessageFlags::RESERVE_INIT;
    let query = Message { flags, qspec: Some(&wish), ..Message::new(MessageType::QUERY) };
    rig.receive_octets(BEFORE, flow_to(7), back, &octets(&query));
    assert_eq!(ours(&rig), Some(1));
    // No RESERVE comes for it. Then the first one ends, too.
    rig.until(rig.now + std::time::Duration::from_secs(60));
    assert_eq!((ours(&rig), rig.qos.sessions()), (None, 1));
    rig.receive(&Message { flags: MessageFlags::TEAR, ..reserve(2, &[]) });
    assert_eq!((rig.qos.sessions(), rig.qos.next_deadline()), (0, None));
}
