//! Sessions that a node ends by itself: for an administrator, by other rules, because its address changed.

use signalbox_core::{Mri, SessionId};
use signalbox_natfw::engine::{Code, Command, Failure, NatfwEvent, OpenRequest, Options};
use signalbox_natfw::wire::{Info, MessageType};
use signalbox_resources::config::{Action, Opening, RuleConfig};

use crate::rig::{
    BEFORE, BEHIND, EDGE, FAR, HOST, INSIDE, Kernel, Rig, SESSION, Sent, addr, create, error, external, flow,
    loose, notify, only, success, udp,
};

const ELSEWHERE: &str = "192.0.2.80";

/// The NOTIFY to each side: towards the responder, then towards the initiator.
fn notified(sent: &[Sent], inbound: Info, outbound: Info) {
    let has = |info, sii| sent.iter().any(|sent| sent.message() == notify(info) && sent.sii == sii);
    assert!(has(outbound, Some(BEHIND)) && has(inbound, None), "{sent:?}");
    assert_eq!(sent.len(), 2);
}

#[test]
fn an_administrator_ends_a_session_on_both_sides() {
    let mut rig = Rig::firewall();
    rig.established(100);
    assert_eq!(rig.command(Command::Delete(SessionId([9; 16]))), [], "no such session");
    let sent = rig.command(Command::Delete(SESSION));
    notified(&sent, Info::TERMINATED, Info::TERMINATED);
    assert_eq!((rig.kernel.as_slice(), rig.holes.len()), ([Kernel::Close].as_slice(), 0));
    assert_eq!((rig.natfw.session_count(), rig.resources.passage_count()), (0, 0));
    assert_eq!(rig.events, []);
}

#[test]
fn a_user_is_informed_that_an_administrator_ended_the_session() {
    let mut rig = Rig::host();
    let open = OpenRequest {
        src: Some(addr(HOST)),
        dst: addr(FAR),
        protocol: Some(17),
        src_port: Some(5000),
        dst_port: Some(6000),
        options: Options::default(),
    };
    let sent = only(rig.command(Command::Open(open)));
    let deletion = only(rig.command(Command::Delete(sent.session)));
    assert_eq!((deletion.message().kind, deletion.message().lifetime), (MessageType::CREATE, Some(0)));
    let code = Code { class: 1, code: 5 };
    assert_eq!(rig.events.last(), Some(&NatfwEvent::Failed(Failure::Code(code))));
    assert_eq!(rig.natfw.session_count(), 0);
}

/// A firewall whose rules change while a session stands. Returns the messages that follow from that.
fn reloaded(action: Action) -> (Rig, Vec<Sent>) {
    let rule = |action| RuleConfig { opens: vec![Opening::Outward], ..RuleConfig::new("calls", action) };
    let rules = |action| signalbox_resources::Config { rules: vec![rule(action)], ..Default::default() };
    let mut rig =
        Rig::with_rules(crate::rig::boxed(signalbox_natfw::engine::Middlebox::Firewall), |config| {
            *config = rules(Action::Allow);
        });
    rig.established(100);
    rig.resources.reload(rig.now, rules(action)).unwrap();
    let sent = rig.judge();
    (rig, sent)
}

#[test]
fn what_other_rules_refuse_ends_at_once() {
    let (mut rig, sent) = reloaded(Action::Deny);
    let ends = |sent: &&Sent| sent.message() == notify(Info::TERMINATED);
    assert_eq!((sent.iter().filter(ends).count(), sent.len()), (2, 2), "both sides get a report: {sent:?}");
    assert_eq!(rig.kernel.as_slice(), [Kernel::Close].as_slice());
    assert_eq!((rig.natfw.session_count(), rig.resources.passage_count()), (0, 0));
    assert_eq!(rig.pass_secs(200), []);
    assert!(
        rig.by_inside(flow(), &create(2, 100))
            .iter()
            .any(|sent| sent.message() == error(2, Info::AUTHORIZATION))
    );
}

#[test]
fn a_session_that_other_rules_allow_stands_without_an_interruption() {
    let (mut rig, sent) = reloaded(Action::Allow);
    assert_eq!((sent, rig.resources.passage_count()), (vec![], 1));
    let sent = only(rig.by_inside(flow(), &create(2, 100)));
    let answer = only(rig.answer(&sent, &success(2, 100)));
    assert_eq!(answer.message(), success(2, 100));
    let rule = "allow 10.0.1.2 port 5000 > 203.0.113.9 port 6000 proto 17".to_owned();
    assert_eq!(rig.kernel, [Kernel::Open(rule, 100)], "prolonged, not closed");
    assert_eq!((rig.natfw.session_count(), rig.resources.passage_count()), (1, 1));
}

/// A table of many sessions is judged in parts, which peers cannot delay.
#[test]
fn many_passages_are_judged_in_parts() {
    let mut rig = Rig::firewall();
    for n in 0..600_u16 {
        let mri = Mri::PathCoupled(udp(HOST, 5000 + n, "203.0.113.9", 6000));
        let [high, low] = n.to_be_bytes();
        let mut id = [1; 16];
        (id[0], id[1]) = (high, low);
        rig.in_session(SessionId(id), BEFORE, INSIDE, mri, &create(1, 100));
    }
    assert_eq!(rig.resources.passage_count(), 600);
    let deny = RuleConfig { opens: vec![Opening::Outward], ..RuleConfig::new("nothing", Action::Deny) };
    let rules = signalbox_resources::Config { rules: vec![deny], ..Default::default() };
    rig.resources.reload(rig.now, rules).unwrap();
    rig.judge_one_part();
    assert!((300..=400).contains(&rig.resources.passage_count()), "{}", rig.resources.passage_count());
    rig.pass_secs(0);
    assert_eq!((rig.resources.passage_count(), rig.natfw.session_count()), (0, 0));
}

#[test]
fn bindings_end_with_the_address_of_the_nat_and_are_made_again() {
    let mut rig = Rig::nat();
    rig.established(100);
    let other = SessionId([8; 16]);
    let plain = Mri::PathCoupled(udp(HOST, 5000, "203.0.113.10", 6000));
    rig.end = true;
    let to_us = Mri::PathCoupled(udp(HOST, 5001, "10.0.1.1", 6000));
    rig.in_session(other, BEFORE, INSIDE, to_us, &create(1, 100));
    rig.end = false;
    assert_eq!(rig.moved(EDGE), [], "the same address");
    let sent = rig.moved(ELSEWHERE);
    notified(&sent, Info::ROUTE_CHANGE, Info::TERMINATED);
    assert_eq!((rig.kernel.as_slice(), rig.natfw.session_count()), ([Kernel::Close].as_slice(), 1));
    // The initiator asks again, with the same session.
    let Mri::PathCoupled(onward) = only(rig.by_inside(plain, &create(2, 100))).mri else { panic!("a flow") };
    assert_eq!(onward.src, addr(ELSEWHERE));
}

#[test]
fn a_reservation_ends_with_the_address_that_it_is_of() {
    let mut rig = Rig::edge_nat();
    only(rig.by_inside(loose(HOST, "198.51.100.1"), &external(1, 100, 20230)));
    let sent = only(rig.moved(ELSEWHERE));
    assert_eq!((sent.message(), rig.natfw.session_count()), (notify(Info::ROUTE_CHANGE), 0));
    let answer = only(rig.by_inside(loose(HOST, "198.51.100.1"), &external(2, 100, 20230)));
    assert_eq!(answer.message().external.unwrap().address.to_string(), ELSEWHERE);
}
