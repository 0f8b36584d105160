//! Routes that change: what a node says to whom, and what it takes from whom (RFC 5974 §3.2.12, §5.2.5).

use std::time::Duration;

use signalbox_core::Direction;
use signalbox_core::service::{NetworkEvent, SiiHandle};
use signalbox_qos::wire::{Info, Message, MessageFlags, MessageType, Rsn};

use crate::rig::{BEFORE, BEHIND, OTHER, Rig, SESSION, Sent, flow, octets, qspec, reserve};

fn response(info: Info) -> Message<'static> {
    Message { info: Some(info.into()), ..Message::new(MessageType::RESPONSE) }
}

fn route_change() -> Message<'static> {
    Message { info: Some(Info::ROUTE_CHANGE.into()), ..Message::new(MessageType::NOTIFY) }
}

/// A reservation that the node behind confirmed.
fn confirmed() -> Rig {
    let mut rig = Rig::new();
    let onward = rig.reserved(3, 10_000);
    rig.network(flow().inverted(), NetworkEvent::Good(BEFORE));
    rig.network(flow(), NetworkEvent::Good(BEHIND));
    rig.back(&Message { rii: onward.message().rii, ..response(Info::RESERVED) });
    rig
}

/// The same, which comes from [`OTHER`] by now.
fn moved() -> Rig {
    let mut rig = confirmed();
    rig.network(flow().inverted(), NetworkEvent::Good(OTHER));
    let some = qspec(10_000);
    let new = Message { rsn: Some(Rsn { number: 9, epoch: 5 }), rii: Some(1), ..reserve(9, &some) };
    assert_eq!(rig.receive_octets(OTHER, flow(), SESSION, &octets(&new)).len(), 1);
    rig
}

fn tears(said: &[Sent]) -> Vec<(Option<SiiHandle>, u32)> {
    said.iter().filter(|s| s.message().is_tear()).map(|s| (s.sii, s.message().rsn.unwrap().number)).collect()
}

/// The next peer has another one before it: GIST's Query would take that one's place if this node is off the path, and
/// so it waits for what proves that it is not.
///
/// QOS-5.2.5.3-03
#[test]
fn a_change_that_the_next_peer_tells_is_looked_into_once_this_node_is_refreshed() {
    let mut rig = confirmed();
    let said = rig.back(&route_change());
    let [told] = &said[..] else { panic!("{said:?}") };
    assert_eq!((told.info(), told.mri), (Info::ROUTE_CHANGE, flow().inverted()));
    rig.until(rig.now + Duration::from_secs(50));
    assert_eq!(rig.checked, []);
    rig.receive(&reserve(3, &[]));
    assert_eq!(rig.checked, [Direction::Downstream]);
    rig.receive(&reserve(3, &[]));
    assert_eq!(rig.checked.len(), 1);
}

/// The branch that this node left tells it what it knows: it is the node that was looked for.
#[test]
fn a_change_that_an_old_branch_tells_goes_no_further() {
    let mut rig = confirmed();
    rig.network(flow(), NetworkEvent::Good(SiiHandle(4)));
    assert_eq!(rig.back(&route_change()), []);
    rig.receive(&reserve(3, &[]));
    assert_eq!(rig.checked, []);
}

/// QOS-5.2.5.3-01, QOS-5.2.5.3-02
#[test]
fn the_old_peer_is_told_once() {
    let mut rig = confirmed();
    let said = rig.network(flow().inverted(), NetworkEvent::Tentative);
    let [told] = &said[..] else { panic!("{said:?}") };
    assert_eq!((told.info(), told.sii), (Info::ROUTE_CHANGE, Some(BEFORE)));
    assert_eq!(rig.network(flow().inverted(), NetworkEvent::Good(OTHER)), []);
    // It was nothing; the next change is another one.
    rig.network(flow().inverted(), NetworkEvent::Good(BEFORE));
    assert_eq!(rig.network(flow().inverted(), NetworkEvent::Good(OTHER)).len(), 1);
}

/// As long as the old branch refreshes its routing state, GIST's way back leads there now and then.
///
/// QOS-5.2.5.4-01
#[test]
fn what_goes_back_finds_the_new_peer_when_gist_returns_to_the_old_one() {
    let mut rig = moved();
    assert_eq!(rig.network(flow().inverted(), NetworkEvent::Tentative), []);
    assert_eq!(rig.network(flow().inverted(), NetworkEvent::Good(BEFORE)), []);
    let notify = Message { info: Some(Info::CONGESTION.into()), ..Message::new(MessageType::NOTIFY) };
    let said = rig.back(&notify);
    assert_eq!(said.iter().map(|s| s.sii).collect::<Vec<_>>(), [Some(OTHER)]);
    rig.network(flow().inverted(), NetworkEvent::Good(OTHER));
    let said = rig.back(&notify);
    assert_eq!(said.iter().map(|s| s.sii).collect::<Vec<_>>(), [None], "by routing state again");
}

/// With its tear the old branch ends: who comes from there later is a new peer, and not the old one that goes on.
#[test]
fn the_tear_of_the_old_branch_ends_it() {
    let mut rig = moved();
    assert_eq!(rig.receive(&Message { flags: MessageFlags::TEAR, ..reserve(4, &[]) }), []);
    assert_eq!(rig.held(), 10_000);
    let some = qspec(10_000);
    let back = Message { rsn: Some(Rsn { number: 0, epoch: 6 }), ..reserve(0, &some) };
    assert_eq!(rig.receive(&back).len(), 1, "it goes on, as that of a new peer does");
    assert_eq!(rig.qos.counters().peer_changes, 2);
}

/// A node that a changed route left may find its way back to the one before it.
#[test]
fn nobody_turns_a_session_round() {
    let mut rig = confirmed();
    let some = qspec(10_000);
    let turned = Message { rsn: Some(Rsn { number: 2, epoch: 8 }), rii: Some(7), ..reserve(2, &some) };
    assert_eq!(rig.receive_octets(BEHIND, flow(), SESSION, &octets(&turned)), []);
    rig.network(flow(), NetworkEvent::Good(SiiHandle(4)));
    assert_eq!(rig.receive_octets(BEHIND, flow(), SESSION, &octets(&turned)), [], "the old branch's neither");
    assert_eq!((rig.qos.counters().old_peer, rig.held()), (2, 10_000));
    assert_eq!(rig.network(flow().inverted(), NetworkEvent::Good(BEHIND)), [], "nor is anybody told");
}

/// GIST goes on asking for the peer of a flow while the session lives, and is told when it does not: QOS-5.4.1-07.
#[test]
fn gist_is_told_how_long_the_way_is_wanted() {
    let mut rig = confirmed();
    rig.kept.clear();
    rig.network(flow(), NetworkEvent::Good(BEHIND));
    rig.network(flow().inverted(), NetworkEvent::Good(BEFORE));
    assert_eq!(rig.kept, [Direction::Downstream], "only who asked can be told");
    rig.forgotten.clear();
    rig.receive(&Message { flags: MessageFlags::TEAR, ..reserve(4, &[]) });
    assert_eq!(rig.forgotten, [Direction::Downstream, Direction::Upstream]);
}

/// Such a node keeps quiet until it is refreshed.
#[test]
fn a_node_whose_route_leads_back_is_off_the_path() {
    let mut rig = confirmed();
    assert_eq!(rig.network(flow(), NetworkEvent::Good(BEFORE)), []);
    assert_eq!(rig.forgotten, [Direction::Downstream]);
    assert_eq!(rig.until(rig.now + Duration::from_secs(100)), []);
    let said = rig.receive(&reserve(3, &[]));
    let [onward] = &said[..] else { panic!("{said:?}") };
    assert!(onward.message().qspec.is_some() && onward.message().rii.is_some() && onward.sii.is_none());
    rig.sent(onward);
    rig.back(&Message { rii: onward.message().rii, ..response(Info::REFRESHED) });
    assert!(!rig.until(rig.now + Duration::from_secs(50)).is_empty(), "it refreshes again");
    assert_eq!(rig.held(), 10_000);
}

/// QOS-5.2.5.2-05
#[test]
fn two_changes_in_a_row_leave_two_branches_to_tear_down() {
    let (second, third) = (SiiHandle(4), SiiHandle(5));
    let mut rig = confirmed();
    let said = rig.network(flow(), NetworkEvent::Good(second));
    assert_eq!(said[0].message().rsn.unwrap().number, 2);
    let said = rig.network(flow(), NetworkEvent::Good(third));
    let repair = &said[0];
    assert_eq!(repair.message().rsn.unwrap().number, 4);
    let back = Message { rii: repair.message().rii, ..response(Info::RESERVED) };
    let said = rig.receive_octets(third, flow().inverted(), SESSION, &octets(&back));
    assert_eq!(tears(&said), [(Some(BEHIND), 3), (Some(second), 3)]);
}

/// The reservation ends while its repair is under way: so does what the old branch holds.
#[test]
fn a_tear_goes_down_every_branch() {
    let mut rig = confirmed();
    rig.network(flow(), NetworkEvent::Good(SiiHandle(4)));
    let said = rig.receive(&Message { flags: MessageFlags::TEAR, ..reserve(4, &[]) });
    assert_eq!(tears(&said), [(None, 3), (Some(BEHIND), 1)]);
    assert_eq!((rig.held(), rig.qos.sessions()), (0, 0));
}

/// The answer of the old branch to what went before says nothing of the new one.
#[test]
fn the_old_branchs_answer_does_not_count() {
    let mut rig = confirmed();
    let some = qspec(10_000);
    rig.now = rig.now + Duration::from_secs(2);
    let forced = Message { rii: Some(44), ..reserve(3, &some) };
    assert_eq!(rig.receive(&forced).len(), 1);
    rig.network(flow(), NetworkEvent::Good(SiiHandle(4)));
    let late = Message { rii: Some(44), ..response(Info::REFRESHED) };
    let said = rig.back(&late);
    assert_eq!(said.len(), 1, "it is passed on");
    assert!(!rig.qos.view_of(rig.now, SESSION).unwrap().confirmed);
}

/// The tear of the old branch waits for the RESPONSE to the RESERVE along the new one: until then the old branch is the
/// only one that is known to hold the reservation.
///
/// QOS-5.2.5.2-04
#[test]
fn the_old_branch_is_torn_down_when_the_new_one_has_answered() {
    let second = SiiHandle(4);
    let mut rig = confirmed();
    let sent = rig.network(flow(), NetworkEvent::Good(second));
    let [repair] = &sent[..] else { panic!("{sent:?}") };
    assert!(!repair.message().is_tear() && repair.message().rii.is_some());
    rig.sent(repair);
    let later = rig.until(rig.now + Duration::from_secs(20));
    assert!(!later.is_empty(), "the RESERVE is sent again");
    assert!(later.iter().all(|(_, s)| !s.message().is_tear()));
    // Neither an acknowledgment nor a RESPONSE of the old branch to another request is the one that is awaited.
    rig.receive_octets(second, flow().inverted(), SESSION, &octets(&response(Info::ACKNOWLEDGED)));
    let stray = Message { rii: Some(12_345), ..response(Info::RESERVED) };
    assert_eq!(rig.back(&stray), []);
    let answer = Message { rii: repair.message().rii, ..response(Info::RESERVED) };
    let sent = rig.receive_octets(second, flow().inverted(), SESSION, &octets(&answer));
    assert_eq!(tears(&sent), [(Some(BEHIND), 1)]);
}
