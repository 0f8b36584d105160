//! Deletions that arrive where the session has ended before.

use signalbox_core::service::RecvMessage;
use signalbox_core::{Mri, SessionId};
use signalbox_natfw::engine::{Command, Config, Mapping, Middlebox};
use signalbox_natfw::wire::Info;

use crate::rig::{
    BEFORE, BEHIND, FAR, HOST, INSIDE, OTHER, OUTSIDE, Rig, SESSION, addr, boxed, create, external, flow,
    inward, loose, notify, octets, only, success, udp,
};

/// A node whose session an administrator has ended.
fn ended(mut rig: Rig) -> Rig {
    let sent = only(rig.by_inside(flow(), &create(1, 100)));
    rig.answer(&sent, &success(1, 100));
    rig.command(Command::Delete(SESSION));
    assert_eq!((rig.natfw.session_count(), rig.holes.len()), (0, 0));
    rig
}

/// NATFW-3.7.4-09: a deletion goes on to the nodes that still have the session, although it ended here. It is not answered.
#[test]
fn a_deletion_goes_on_past_a_node_whose_session_has_ended() {
    for mut rig in [Rig::firewall(), Rig::host()].map(ended) {
        let sent = only(rig.by_inside(flow(), &create(2, 0)));
        assert_eq!((sent.message(), sent.mri, sent.session), (create(2, 0), flow(), SESSION));
        assert_eq!(sent.handle, None, "nothing is done if it does not arrive");
        assert_eq!(rig.by_inside(flow(), &create(2, 0)), [], "once");
        assert_eq!(rig.pass_secs(100), []);
    }
}

/// NATFW-3.7.4-09: a session that expired here is known too, for as long as its number is kept.
#[test]
fn a_deletion_goes_on_past_a_node_whose_session_has_expired() {
    for (seconds, goes_on) in [(699, true), (701, false)] {
        let mut rig = Rig::firewall();
        rig.established(100);
        rig.pass_secs(seconds);
        assert_eq!(rig.by_inside(flow(), &create(2, 0)).len(), usize::from(goes_on), "{seconds}");
    }
}

/// NATFW-3.7.4-09: a deletion that this node did not wait for opens no way through it: of a session that it never had, of another flow,
/// of another host. It does not use up the number that the deletion of the host itself has.
#[test]
fn only_the_deletion_of_an_own_session_goes_on() {
    let mut rig = ended(Rig::firewall());
    let other = SessionId([9; 16]);
    for msn in [5, 6] {
        assert_eq!(rig.in_session(other, BEFORE, INSIDE, flow(), &create(msn, 0)), []);
    }
    let elsewhere = Mri::PathCoupled(udp(HOST, 5000, "203.0.113.10", 6000));
    assert_eq!(rig.by_inside(elsewhere, &create(2, 0)), []);
    let data = octets(&create(2, 0));
    let received = rig.received(OTHER, INSIDE, flow(), &data);
    let stranger = RecvMessage { peer_address: Some(addr("10.0.1.66")), ..received };
    assert_eq!(rig.indicate(stranger), []);
    assert_eq!(rig.receive(BEFORE, OUTSIDE, inward(), &create(2, 0)), []);
    assert_eq!(rig.natfw.counters().unknown_session, 5);
    assert_eq!(only(rig.by_inside(flow(), &create(2, 0))).message(), create(2, 0), "the host itself");
}

/// NATFW-3.7.4-09: it ends at the end of the flow, and where the hop count of GIST is used up; a NAT does not know the translation any more.
#[test]
fn a_deletion_ends_where_its_request_ended() {
    let mut rig = ended(Rig::firewall());
    rig.end = true;
    assert_eq!(rig.by_inside(flow(), &create(2, 0)), []);
    rig.end = false;
    let mut rig = ended(Rig::firewall());
    let data = octets(&create(2, 0));
    let received = rig.received(BEFORE, INSIDE, flow(), &data);
    assert_eq!(rig.indicate(RecvMessage { hops: 1, ..received }), []);
    let mut rig = ended(Rig::nat());
    assert_eq!(rig.by_inside(flow(), &create(2, 0)), []);
}

/// An EXTERNAL does not leave the network.
#[test]
fn the_deletion_of_an_external_ends_at_the_edge() {
    for (mut rig, goes_on) in [(Rig::firewall(), true), (Rig::edge_firewall(), false)] {
        rig.by_inside(loose(HOST, FAR), &external(1, 100, 20230));
        rig.command(Command::Delete(SESSION));
        let sent = rig.by_inside(loose(HOST, FAR), &external(2, 0, 20230));
        assert_eq!(sent.len(), usize::from(goes_on), "{sent:?}");
        assert!(sent.iter().all(|sent| sent.message() == external(2, 0, 20230)));
    }
}

/// A twice-NAT has its mapping without a session.
#[test]
fn a_twice_nat_translates_what_it_sends_on() {
    let mapping = |inside: &str, outside: &str| Mapping { inside: addr(inside), outside: addr(outside) };
    let mappings = vec![mapping(HOST, "192.0.2.1"), mapping(FAR, "192.0.2.2")];
    let mut rig = ended(Rig::with(Config { mappings, ..boxed(Middlebox::TwiceNat) }));
    let mapped = Mri::PathCoupled(udp("192.0.2.1", 5000, "192.0.2.2", 6000));
    assert_eq!(only(rig.by_inside(flow(), &create(2, 0))).mri, mapped);
}

/// The receiver reported that its session ended, so that a host deletes what is between, and not the session of the receiver.
#[test]
fn a_deletion_crosses_a_report_of_the_end() {
    let mut rig = Rig::firewall();
    rig.established(100);
    only(rig.receive(BEHIND, OUTSIDE, flow().inverted(), &notify(Info::TERMINATED)));
    assert_eq!(only(rig.by_inside(flow(), &create(2, 0))).message(), create(2, 0));
}
