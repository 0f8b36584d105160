//! Receivers that strangers reach without a CREATE: the object that RFC 5973 does not have.

use std::net::IpAddr;
use std::time::Duration;

use signalbox_core::handover::Entries;
use signalbox_core::pinhole::PinholeError;
use signalbox_core::ports::Binding;
use signalbox_core::service::RecvMessage;
use signalbox_core::{Mri, SessionId};
use signalbox_natfw::engine::{
    Code, Command, Config, ExposeRequest, Failure, Input, Middlebox, NatfwEvent, Options, Publish, Refusal,
    left_binding,
};
use signalbox_natfw::wire::{
    DataTerminal, ExternalAddress, Filter, FlowInfo, Info, Message, MessageType, PUBLICATION, Part,
    Publication, Wish,
};
use signalbox_resources::config::{Action, Opening, RuleConfig};

use crate::rig::{
    BEFORE, EDGE, FAR, HOST, INSIDE, Kernel, OTHER, Rig, SESSION, Sent, addr, boxed, create, error, external,
    loose, notify, octets, only, success,
};

const TOWARDS: &str = "198.51.100.1";
/// The outer address of an inner NAT.
const INNER: &str = "10.64.2.2";
const TCP: u8 = 6;
const UDP: u8 = 17;

fn rules(rules: &mut signalbox_resources::Config) {
    rules.rules = vec![RuleConfig {
        opens: vec![Opening::Publish],
        from: vec!["10.0.0.0/8".parse().unwrap()],
        ..RuleConfig::new("servers", Action::Allow)
    }];
}

/// A node that lets hosts inside publish.
fn node(middlebox: Middlebox, edge: bool) -> Rig {
    Rig::with_rules(Config { edge, ..boxed(middlebox) }, rules)
}

fn inner_nat() -> Rig {
    let mut rig = node(Middlebox::Nat, false);
    rig.moved(INNER);
    rig
}

fn any() -> Wish {
    Wish { opens: true, ..Wish::default() }
}

fn at(port: u16) -> Wish {
    Wish { port: Some(port), ..any() }
}

/// A request with this wish for a port of a host.
fn ask(
    rig: &mut Rig,
    (session, host, msn): (u8, &str, u32),
    (protocol, port): (u8, u16),
    wish: &Wish,
) -> Vec<Sent> {
    let value = wish.octets();
    let terminal = Some(DataTerminal::receiver(protocol, port));
    let message = Message { terminal, publication: Publication::of(&value), ..external(msn, 100, port) };
    by(rig, (session, host), &message)
}

/// A message of a host inside, for itself.
fn by(rig: &mut Rig, (session, host): (u8, &str), message: &Message<'_>) -> Vec<Sent> {
    let octets = octets(message);
    let received = rig.received(BEFORE, INSIDE, loose(host, TOWARDS), &octets);
    let (session, peer_address) = (SessionId([session; 16]), Some(addr(host)));
    rig.indicate(RecvMessage { session, peer_address, ..received })
}

/// The answer of the next node, with the object.
fn granted(rig: &mut Rig, sent: &Sent, place: (&str, u16)) -> Vec<Sent> {
    let asked = sent.message();
    let IpAddr::V4(address) = addr(place.0) else { panic!("{place:?}") };
    let external = Some(ExternalAddress { address, port: Some(place.1) });
    let answer = Message { publication: asked.publication, external, ..success(asked.msn.unwrap(), 100) };
    rig.answer(sent, &answer)
}

fn place(sent: &Sent) -> (String, u16) {
    let external = sent.message().external.unwrap();
    (external.address.to_string(), external.port.unwrap())
}

fn rule(external: (&str, u16), inside: (&str, u16), protocol: u8) -> String {
    let (from, to) =
        (format!("{} port {}", external.0, external.1), format!("{} port {}", inside.0, inside.1));
    format!("allow 0.0.0.0/0 > {from} proto {protocol} to {to} and back")
}

fn conflict(msn: u32) -> Message<'static> {
    let info = Info::POLICY_CONFLICT.into();
    let info = signalbox_natfw::wire::Information { object: Some(PUBLICATION), ..info };
    Message { info: Some(info), ..error(msn, Info::POLICY_CONFLICT) }
}

/// A firewall that is not the edge opens, too, but only when the answer passes.
#[test]
fn a_firewall_opens_when_the_answer_passes() {
    let mut rig = node(Middlebox::Firewall, false);
    let sent = only(ask(&mut rig, (7, HOST, 1), (TCP, 443), &at(443)));
    assert_eq!((sent.message().publication.unwrap().wish(), sent.mri), (at(443), loose(HOST, TOWARDS)));
    assert_eq!(rig.kernel, []);
    rig.slow = true;
    assert_eq!(granted(&mut rig, &sent, (HOST, 443)), [], "the kernel has not answered");
    let answer = only(rig.opened());
    assert_eq!(answer.message().publication.unwrap().wish(), at(443), "it goes back unchanged");
    assert_eq!(rig.kernel, [Kernel::Open(format!("allow 0.0.0.0/0 > {HOST} port 443 proto 6"), 100)]);
}

/// An edge opens at once, and is told apart from a reservation in the list of nodes.
#[test]
fn an_edge_opens_with_the_wished_port() {
    let mut rig = node(Middlebox::Nat, true);
    let value = at(22000).octets();
    let publication = Publication::of(&value);
    let hops = Some(signalbox_natfw::wire::Hops::EMPTY);
    let answer = only(by(&mut rig, (7, HOST), &Message { publication, hops, ..external(1, 100, 5000) }));
    assert_eq!(place(&answer), (EDGE.to_owned(), 22000));
    assert_eq!(rig.kernel, [Kernel::Open(rule((EDGE, 22000), (HOST, 5000), UDP), 100)]);
    let parts: Vec<Part> = answer.whole().hops.unwrap().iter().map(|hop| hop.part).collect();
    assert_eq!(parts, [Part::Translated]);
    let view = rig.natfw.view_of(rig.now, SESSION).unwrap();
    assert_eq!((view.active, view.policy.as_deref()), (true, Some("rule 1 'servers'")));
    // A firewall is told apart, too.
    let mut wall = node(Middlebox::Firewall, true);
    let answer = only(by(&mut wall, (7, HOST), &Message { publication, hops, ..external(1, 100, 22000) }));
    assert_eq!((place(&answer), wall.holes.len()), ((HOST.to_owned(), 22000), 1));
    assert_eq!(answer.whole().hops.unwrap().iter().next().unwrap().part, Part::Opened);
}

/// Neither trust nor the own address nor a rule for reservations lets strangers in.
#[test]
fn only_a_rule_lets_strangers_in() {
    let reserves = |rules: &mut signalbox_resources::Config| {
        rules.trusted = vec!["10.0.0.0/8".parse().unwrap()];
        let opens = vec![Opening::Reserve, Opening::Inward, Opening::Outward];
        rules.rules = vec![RuleConfig { opens, ..RuleConfig::new("others", Action::Allow) }];
    };
    for middlebox in [Middlebox::Nat, Middlebox::Firewall] {
        let config = Config { edge: true, ..boxed(middlebox) };
        for mut rig in [Rig::with(config.clone()), Rig::with_rules(config.clone(), reserves)] {
            let answer = only(ask(&mut rig, (7, HOST, 1), (UDP, 5000), &any()));
            assert_eq!(answer.message(), error(1, Info::AUTHORIZATION));
            assert_eq!((rig.natfw.session_count(), rig.natfw.tables()[1].size), (0, 0));
            // The same request that opens nothing is a reservation.
            let answer = only(ask(&mut rig, (7, HOST, 1), (UDP, 5000), &Wish::default()));
            assert_eq!((answer.info(), rig.kernel.as_slice()), (Info::PROCESSED, &[][..]));
        }
    }
}

/// PCP-11-02: the way through two NATs: each has its rule for any sender, and the host learns the place at the outermost one.
#[test]
fn two_nats_open_on_the_way_back() {
    let (mut inner, mut outer) = (inner_nat(), node(Middlebox::Nat, true));
    let sent = only(ask(&mut inner, (7, HOST, 1), (TCP, 8080), &at(3074)));
    assert_eq!((sent.mri, inner.kernel.as_slice()), (loose(INNER, TOWARDS), &[][..]));
    assert_eq!(sent.message().terminal.unwrap().ports().receiver, Some(3074), "the inner one takes it, too");
    let answer = only(by(&mut outer, (7, INNER), &sent.message()));
    assert_eq!(place(&answer), (EDGE.to_owned(), 3074));
    assert_eq!(outer.kernel, [Kernel::Open(rule((EDGE, 3074), (INNER, 3074), TCP), 100)]);
    let told = only(inner.answer(&sent, &answer.message()));
    assert_eq!((place(&told), told.mri), ((EDGE.to_owned(), 3074), loose(HOST, TOWARDS).inverted()));
    assert_eq!(inner.kernel, [Kernel::Open(rule((INNER, 3074), (HOST, 8080), TCP), 100)]);
}

/// The outer NAT cannot grant the only port that will do: nothing is open at either, and the port of the inner one is free.
#[test]
fn a_refusal_further_on_leaves_nothing_open() {
    let (mut inner, mut outer) = (inner_nat(), node(Middlebox::Nat, true));
    only(ask(&mut outer, (1, "10.0.1.9", 1), (TCP, 80), &at(3074)));
    outer.kernel.clear();
    let exactly = Wish { exactly: true, ..at(3074) };
    let sent = only(ask(&mut inner, (7, HOST, 1), (TCP, 8080), &exactly));
    let answer = only(by(&mut outer, (7, INNER), &sent.message()));
    assert_eq!(answer.message(), conflict(1));
    let told = only(inner.answer(&sent, &answer.message()));
    assert_eq!(told.message(), conflict(1));
    assert_eq!((inner.kernel.len(), inner.natfw.session_count(), inner.natfw.tables()[1].size), (0, 0, 0));
    assert_eq!((outer.kernel.len(), outer.natfw.session_count(), outer.natfw.tables()[1].size), (0, 1, 1));
    // Any other port will do for who does not insist.
    let sent = only(ask(&mut inner, (8, HOST, 1), (TCP, 8080), &at(3074)));
    let answer = only(by(&mut outer, (8, INNER), &sent.message()));
    assert_ne!(place(&answer).1, 3074);
    // Another address than that of the edge is no place of it.
    let elsewhere = Wish { exactly: true, address: Some([192, 0, 2, 1].into()), ..any() };
    assert_eq!(only(ask(&mut outer, (9, HOST, 1), (UDP, 5000), &elsewhere)).message(), conflict(1));
    let here = Wish { address: Some([192, 0, 2, 79].into()), ..elsewhere };
    assert_eq!(only(ask(&mut outer, (9, HOST, 1), (UDP, 5000), &here)).info(), Info::PROCESSED);
}

/// The kernel of the inner NAT refuses after the outer one opened: the outer one closes, and the host is told.
#[test]
fn what_the_kernel_refuses_ends_further_on() {
    let (mut inner, mut outer) = (inner_nat(), node(Middlebox::Nat, true));
    let sent = only(ask(&mut inner, (7, HOST, 1), (TCP, 8080), &any()));
    let answer = only(by(&mut outer, (7, INNER), &sent.message()));
    assert_eq!(outer.holes.len(), 1);
    inner.answer = Err(PinholeError::Full);
    let told = inner.answer(&sent, &answer.message());
    assert_eq!(
        told.iter().map(|sent| sent.message().kind).collect::<Vec<_>>(),
        [MessageType::NOTIFY, MessageType::RESPONSE]
    );
    assert_eq!(told[1].message(), error(1, Info::NO_RESOURCES));
    by(&mut outer, (7, INNER), &notify(Info::TERMINATED));
    assert_eq!((outer.holes.len(), outer.natfw.session_count(), inner.natfw.session_count()), (0, 0, 0));
}

/// A success that does not carry the object may come from a node that opened nothing.
#[test]
fn an_answer_without_the_object_is_no_success() {
    let mut rig = inner_nat();
    let sent = only(ask(&mut rig, (7, HOST, 1), (TCP, 8080), &any()));
    let told = rig.answer(&sent, &success(1, 100));
    assert_eq!(told.iter().map(Sent::info).collect::<Vec<_>>(), [Info::TERMINATED, Info::MISSING_OBJECT]);
    assert_eq!((rig.kernel.len(), rig.natfw.session_count()), (0, 0));
}

/// A refresh prolongs the rule at each node; another wish or other filters are another request, which closes what stood.
#[test]
fn a_refresh_prolongs_and_another_wish_asks_anew() {
    let mut rig = node(Middlebox::Nat, true);
    let first = only(ask(&mut rig, (7, HOST, 1), (UDP, 5000), &at(3074)));
    rig.kernel.clear();
    rig.pass_secs(60);
    assert_eq!(place(&only(ask(&mut rig, (7, HOST, 2), (UDP, 5000), &at(3074)))), place(&first));
    let open = Kernel::Open(rule((EDGE, 3074), (HOST, 5000), UDP), 100);
    assert_eq!((core::mem::take(&mut rig.kernel), rig.natfw.counters().refreshed), (vec![open], 1));
    let sender = |text: &str, prefix, port| Filter { address: addr(text), prefix, port };
    let filters = vec![sender("203.0.113.0", 24, None), sender("198.51.100.7", 32, Some(9))];
    let answer = only(ask(&mut rig, (7, HOST, 3), (UDP, 5000), &Wish { filters, ..at(3074) }));
    assert_eq!(place(&answer), place(&first), "the port stays");
    let limited = format!(
        "allow 203.0.113.0/24 > {EDGE} port 3074 proto 17 or from 198.51.100.7/32 port 9 to {HOST} port 5000 and back"
    );
    assert_eq!(rig.kernel, [Kernel::Close, Kernel::Open(limited, 100)]);
    rig.pass_secs(100);
    assert_eq!((rig.holes.len(), rig.natfw.session_count()), (0, 0));
}

/// PCP-15-05, PCP-15-06: the port of a publication that ends is given to no other end inside for the time that a flow of it may pause,
/// and its former holder gets it again.
#[test]
fn a_port_is_kept_for_its_former_holder() {
    for (protocol, seconds) in [(UDP, 120), (TCP, 124 * 60)] {
        let mut rig = node(Middlebox::Nat, true);
        let given = |sent: Vec<Sent>| place(&only(sent)).1;
        assert_eq!(given(ask(&mut rig, (1, HOST, 1), (protocol, 5000), &at(3074))), 3074);
        let deletion =
            Message { terminal: Some(DataTerminal::receiver(protocol, 5000)), ..external(2, 0, 5000) };
        assert_eq!(by(&mut rig, (1, HOST), &deletion), []);
        assert_eq!((rig.holes.len(), rig.natfw.session_count()), (0, 0), "it closes at once");
        assert_ne!(given(ask(&mut rig, (2, "10.0.1.9", 1), (protocol, 80), &at(3074))), 3074);
        // Neither is it free for another port of the same host, nor does the time begin anew.
        assert_ne!(given(ask(&mut rig, (3, HOST, 1), (protocol, 5001), &at(3074))), 3074);
        rig.pass_secs(seconds / 2);
        assert_eq!(given(ask(&mut rig, (4, HOST, 1), (protocol, 5000), &any())), 3074);
        rig.pass_secs(101);
        assert_eq!(rig.natfw.session_count(), 0, "nothing was refreshed");
        rig.pass_secs(seconds - 10);
        assert_ne!(given(ask(&mut rig, (5, "10.0.1.9", 1), (protocol, 81), &at(3074))), 3074);
        rig.pass_secs(102);
        assert_eq!(given(ask(&mut rig, (6, "10.0.1.9", 1), (protocol, 82), &at(3074))), 3074);
    }
    // What was never granted keeps nothing.
    let mut rig = inner_nat();
    let sent = only(ask(&mut rig, (1, HOST, 1), (UDP, 5000), &at(3074)));
    rig.answer(&sent, &error(1, Info::NO_RESOURCES));
    assert_eq!(rig.natfw.tables()[1].size, 0);
}

/// One host cannot make the NAT keep all ports back.
#[test]
fn few_ports_are_kept_back() {
    let config = Config { first_port: 40000, last_port: 40015, edge: true, ..boxed(Middlebox::Nat) };
    let mut rig = Rig::with_rules(config, rules);
    for port in 1..=8 {
        only(ask(&mut rig, (port, HOST, 1), (TCP, port.into()), &any()));
        let terminal = Some(DataTerminal::receiver(TCP, port.into()));
        by(&mut rig, (port, HOST), &Message { terminal, ..external(2, 0, port.into()) });
    }
    assert_eq!((rig.natfw.session_count(), rig.natfw.tables()[1].size), (0, 4), "a quarter");
}

/// An inner NAT that crashed has lost its session and its own port. With the lease key, the outer one gives the old external port to the new
/// place, and the old session ends. Another peer with the same key, or another key, gets nothing.
#[test]
fn a_lease_key_takes_the_port_over() {
    let key = |key| Wish { key: [key; 8], ..any() };
    let mut outer = node(Middlebox::Nat, true);
    let place_of = |sent: Vec<Sent>| place(&only(sent)).1;
    let old = place_of(ask(&mut outer, (1, INNER, 1), (UDP, 5000), &Wish { port: Some(3074), ..key(9) }));
    assert_eq!(old, 3074);
    assert_ne!(place_of(ask(&mut outer, (2, "10.64.2.3", 1), (UDP, 5001), &key(9))), old);
    assert_ne!(place_of(ask(&mut outer, (3, INNER, 1), (UDP, 5002), &key(8))), old);
    assert_eq!(outer.natfw.session_count(), 3);
    outer.kernel.clear();
    assert_eq!(place_of(ask(&mut outer, (4, INNER, 1), (UDP, 5003), &key(9))), old);
    let open = Kernel::Open(rule((EDGE, 3074), (INNER, 5003), UDP), 100);
    assert_eq!(outer.kernel, [Kernel::Close, open]);
    assert!(!outer.natfw.has_session(SessionId([1; 16])));
    // With the same place inside the rule stays until the new session has it, so that its flows go on.
    outer.kernel.clear();
    assert_eq!(place_of(ask(&mut outer, (5, INNER, 1), (UDP, 5003), &key(9))), old);
    let open = Kernel::Open(rule((EDGE, 3074), (INNER, 5003), UDP), 100);
    assert_eq!((outer.kernel.as_slice(), outer.natfw.session_count()), (&[open, Kernel::Close][..], 3));
    assert!(outer.natfw.has_session(SessionId([5; 16])));
}

/// What cannot be published at all: no session is left, and the object is named.
#[test]
fn a_publication_that_contradicts_itself_is_refused() {
    let filter = |text: &str, prefix| Filter { address: addr(text), prefix, port: None };
    let (plain, one) = (any().octets(), Wish { filters: vec![filter(FAR, 32)], ..any() }.octets());
    let v6 = Wish { filters: vec![filter("2001:db8::", 32)], ..any() }.octets();
    let from = DataTerminal { sender: ([203, 0, 113, 9].into(), 32), ..DataTerminal::receiver(UDP, 5000) };
    let asked = external(1, 100, 5000);
    for (value, message) in [
        (&plain, Message { efi: Some(FlowInfo::DENY), ..asked }),
        (&plain, Message { proxy: true, nonce: Some(1), ..asked }),
        (&one, Message { terminal: Some(from), ..asked }),
        (&v6, asked),
    ] {
        let mut rig = node(Middlebox::Firewall, true);
        let publication = Publication::of(value);
        let answer = only(by(&mut rig, (7, HOST), &Message { publication, ..message }));
        assert_eq!(answer.message(), conflict(1), "{message:?}");
        assert_eq!((rig.natfw.session_count(), rig.kernel.len()), (0, 0));
    }
    let mut rig = node(Middlebox::Firewall, true);
    for (value, message) in [(&plain, Message { terminal: Some(from), ..asked }), (&one, asked)] {
        let publication = Publication::of(value);
        only(by(&mut rig, (7, HOST), &Message { publication, ..message }));
        let rule = format!("allow {FAR} > {HOST} port 5000 proto 17");
        assert_eq!(rig.holes[0].1.to_string(), rule);
        rig = node(Middlebox::Firewall, true);
    }
}

/// A CREATE to a published place opens a rule of its own, and a packet of a stranger needs none.
#[test]
fn a_published_place_is_reserved_as_well() {
    let mut rig = node(Middlebox::Nat, true);
    only(ask(&mut rig, (7, HOST, 1), (UDP, 5000), &at(3074)));
    let mri = Mri::PathCoupled(crate::rig::udp(FAR, 6000, EDGE, 3074));
    let sent = only(rig.in_session(SessionId([8; 16]), OTHER, crate::rig::OUTSIDE, mri, &create(7, 100)));
    assert_eq!(sent.mri.dst(), addr(HOST));
}

/// After a planned restart it stands with its place, and only where the rules still allow it.
#[test]
fn a_publication_stands_after_a_planned_restart() {
    let mut rig = node(Middlebox::Nat, true);
    let filters = vec![Filter { address: addr("203.0.113.0"), prefix: 24, port: None }];
    only(ask(&mut rig, (7, HOST, 1), (UDP, 5000), &Wish { filters, key: [7; 8], ..at(3074) }));
    let mut entries = Entries::default();
    rig.natfw.hand_over(rig.now, &mut entries);
    let mut next = node(Middlebox::Nat, true);
    assert_eq!(next.input(Input::Handover(entries.clone())), []);
    let rule = format!("allow 203.0.113.0/24 > {EDGE} port 3074 proto 17 to {HOST} port 5000 and back");
    assert_eq!(next.kernel, [Kernel::Open(rule, 100)]);
    let mut strict = Rig::edge_nat();
    strict.input(Input::Handover(entries));
    assert_eq!((strict.kernel.len(), strict.natfw.session_count()), (0, 0));
}

/// After a crash the kernel has the binding: the port is kept for its end, although it is none that the NAT gives out by itself.
#[test]
fn a_published_port_that_a_crash_left_is_kept() {
    let binding = Binding { address: addr(HOST), protocol: UDP, port: 5000, external: 22000 };
    let mut entries = Entries::default();
    assert!(entries.push(&left_binding(&binding, Duration::from_secs(60))));
    let mut rig = node(Middlebox::Nat, true);
    rig.input(Input::Handover(entries));
    assert_ne!(place(&only(ask(&mut rig, (1, "10.0.1.9", 1), (UDP, 80), &at(22000)))).1, 22000);
    assert_eq!(place(&only(ask(&mut rig, (2, HOST, 1), (UDP, 5000), &any()))).1, 22000);
}

fn expose(publish: Publish) -> ExposeRequest {
    ExposeRequest {
        address: Some(addr(HOST)),
        protocol: UDP,
        port: 5000,
        from: None,
        from_port: None,
        towards: addr(FAR),
        path_coupled: false,
        block: false,
        publish: Some(publish),
        bindings: false,
        options: Options::default(),
    }
}

/// A user of a host publishes a port of it, and learns the place.
#[test]
fn a_user_publishes() {
    let mut rig = Rig::host();
    let filter = Filter { address: addr("203.0.113.0"), prefix: 24, port: Some(5) };
    let publish = Publish { port: Some(22000), exactly: true, filters: vec![filter], ..Publish::default() };
    let sent = only(rig.command(Command::Expose(expose(publish.clone()))));
    let expected = Wish { exactly: true, filters: vec![filter], ..at(22000) };
    assert_eq!((sent.message().publication.unwrap().wish(), sent.message().proxy), (expected, false));
    only_answer(&mut rig, &sent);
    let Some(NatfwEvent::Granted(granted)) = rig.events.last() else { panic!("{:?}", rig.events) };
    assert_eq!(granted.external, Some(([192, 0, 2, 79].into(), Some(22000))));
    // A refresh asks for the same.
    let again = rig.pass_secs(300).into_iter().next().expect("refreshed");
    assert_eq!(again.message().publication, sent.message().publication);
    for wrong in [
        ExposeRequest { block: true, ..expose(publish.clone()) },
        ExposeRequest {
            options: Options { proxy: true, ..Options::default() },
            ..expose(Publish::default())
        },
        ExposeRequest { from_port: Some(1), ..expose(publish.clone()) },
        expose(Publish { filters: vec![filter; 9], ..Publish::default() }),
        expose(Publish { filters: vec![Filter { address: addr("::"), prefix: 0, port: None }], ..publish }),
    ] {
        let mut rig = Rig::host();
        assert_eq!(rig.command(Command::Expose(wrong)), []);
        let [NatfwEvent::Refused(refusal)] = rig.events.as_slice() else { panic!("{:?}", rig.events) };
        assert!(matches!(refusal, Refusal::Publication | Refusal::ProxySender), "{refusal:?}");
    }
}

fn only_answer(rig: &mut Rig, sent: &Sent) {
    assert_eq!(granted(rig, sent, (EDGE, 22000)), []);
}

/// A node of another make that grants all the same has opened nothing: the user is told, and what it keeps is deleted.
#[test]
fn a_user_is_not_told_of_a_success_without_the_object() {
    let mut rig = Rig::host();
    let sent = only(rig.command(Command::Expose(expose(Publish::default()))));
    let deletion = only(rig.answer(&sent, &success(sent.message().msn.unwrap(), 100)));
    assert!(deletion.message().deletes());
    let code = Code::from(Info::MISSING_OBJECT);
    assert_eq!(rig.events.last(), Some(&NatfwEvent::Failed(Failure::Code(code))));
    assert_eq!(rig.natfw.session_count(), 0);
}

/// What opens nothing needs no rule, so that it has no choice of its place.
#[test]
fn a_wish_needs_the_rule_as_well() {
    let mut rig = Rig::with(Config { edge: true, ..boxed(Middlebox::Nat) });
    let wish = Wish { port: Some(3074), ..Wish::default() };
    let answer = only(ask(&mut rig, (7, HOST, 1), (UDP, 5000), &wish));
    assert_eq!(answer.info(), Info::PROCESSED);
    assert_ne!(place(&answer).1, 3074);
}

/// A CREATE of a sender that the filters do not name asks for a flow that the host does not wait for.
#[test]
fn filters_hold_for_flows_with_a_create_too() {
    let filters = vec![Filter { address: addr("203.0.113.0"), prefix: 24, port: None }];
    for (sender, passes) in [("203.0.113.9", true), ("198.51.100.9", false)] {
        let mut rig = node(Middlebox::Nat, true);
        only(ask(&mut rig, (7, HOST, 1), (UDP, 5000), &Wish { filters: filters.clone(), ..at(3074) }));
        let mri = Mri::PathCoupled(crate::rig::udp(sender, 6000, EDGE, 3074));
        let sent = only(rig.in_session(SessionId([8; 16]), OTHER, crate::rig::OUTSIDE, mri, &create(7, 100)));
        assert_eq!(sent.mri.dst() == addr(HOST), passes, "{sender}");
    }
}

/// A rule for hosts lets each of them publish itself, and no other one.
#[test]
fn a_host_publishes_no_other_one() {
    for (peer, info) in [(HOST, Info::PROCESSED), ("10.0.1.77", Info::AUTHORIZATION)] {
        let mut rig = node(Middlebox::Nat, true);
        let value = any().octets();
        let octets = octets(&Message { publication: Publication::of(&value), ..external(1, 100, 5000) });
        let received = rig.received(BEFORE, INSIDE, loose(HOST, TOWARDS), &octets);
        let (session, peer_address) = (SessionId([7; 16]), Some(addr(peer)));
        let answer = only(rig.indicate(RecvMessage { session, peer_address, ..received }));
        assert_eq!(answer.info(), info, "{peer}");
    }
}

/// A rule about ports is about those of the host: it chooses those outside.
#[test]
fn a_wished_port_does_not_stand_for_that_of_the_host() {
    let web = |all: &mut signalbox_resources::Config| {
        rules(all);
        all.rules[0].protocol = vec![TCP];
        all.rules[0].ports = vec!["8080".parse().unwrap()];
    };
    for (port, wish, info) in [(22, at(8080), Info::AUTHORIZATION), (8080, at(22000), Info::PROCESSED)] {
        let mut rig = Rig::with_rules(Config { edge: true, ..boxed(Middlebox::Nat) }, web);
        let answer = only(ask(&mut rig, (7, HOST, 1), (TCP, port), &wish));
        assert_eq!(answer.info(), info, "{port}");
    }
}
