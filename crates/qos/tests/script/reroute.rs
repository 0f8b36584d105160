//! Route changes: the messages that a node sends and accepts (RFC 5974 §3.2.12, §5.2.5).

use std::time::Duration;

use signalbox_core::service::{NetworkEvent, SiiHandle};
use signalbox_core::{Direction, IfIndex};
use signalbox_qos::engine::Config;
use signalbox_qos::wire::{Hop, Hops, Info, Message, MessageFlags, MessageType, Part, Rsn};
use signalbox_wire::Writer;

use crate::rig::{
    BEFORE, BEHIND, EPOCH, OTHER, Rig, SESSION, Sent, addr, flow, octets, qspec, query_qspec, reserve,
};

fn response(info: Info) -> Message<'static> {
    Message { info: Some(info.into()), ..Message::new(MessageType::RESPONSE) }
}

pub(crate) fn route_change() -> Message<'static> {
    Message { info: Some(Info::ROUTE_CHANGE.into()), ..Message::new(MessageType::NOTIFY) }
}

/// A reservation that the next peer confirmed.
pub(crate) fn confirmed() -> Rig {
    let mut rig = Rig::new();
    let onward = rig.reserved(3, 10_000);
    rig.network(flow().inverted(), NetworkEvent::Good(BEFORE));
    rig.network(flow(), NetworkEvent::Good(BEHIND));
    rig.back(&Message { rii: onward.message().rii, ..response(Info::RESERVED) });
    rig
}

/// The same reservation, after [`OTHER`] became the previous peer.
pub(crate) fn moved() -> Rig {
    let mut rig = confirmed();
    rig.network(flow().inverted(), NetworkEvent::Good(OTHER));
    let some = qspec(10_000);
    let new = Message { rsn: Some(Rsn { number: 9, epoch: 5 }), rii: Some(1), ..reserve(9, &some) };
    assert_eq!(rig.receive_octets(OTHER, flow(), SESSION, &octets(&new)).len(), 1);
    rig
}

/// The previous peer was asked for a RESERVE. It sends one, and this node sends the repair, which is returned.
fn asked(rig: &mut Rig, sent: &[Sent]) -> Sent {
    let [question] = sent else { panic!("{sent:?}") };
    assert_eq!((question.info(), question.mri), (Info::FULL_QSPEC_REQUIRED, flow().inverted()));
    assert_eq!(question.message().rsn, Some(Rsn { number: 3, epoch: EPOCH }));
    let some = qspec(10_000);
    let sent = rig.receive(&Message { rii: Some(70), ..reserve(3, &some) });
    let [answer, repair] = <[Sent; 2]>::try_from(sent).unwrap();
    assert_eq!((answer.info(), answer.message().rii), (Info::RESERVED, Some(70)));
    repair
}

/// A relay that is cut off from its previous peer may be a stale branch: it sends nothing along its route, and asks again
/// less and less often.
#[test]
fn a_relay_reserves_along_a_new_route_when_its_previous_peer_has_answered() {
    for event in [NetworkEvent::Good(SiiHandle(4)), NetworkEvent::Bad, NetworkEvent::CommunicationFailure] {
        let mut rig = confirmed();
        let mut sent = rig.network(flow(), event);
        sent.extend(rig.until(rig.now + Duration::from_secs(130)).into_iter().map(|(_, sent)| sent));
        assert_eq!(sent.len(), 7, "2, 4, 8, … s after each other");
        assert!(
            sent.iter().all(|one| one.info() == Info::FULL_QSPEC_REQUIRED && one.mri == flow().inverted())
        );
        // Without an answer the state expires.
        rig.until(rig.now + Duration::from_secs(60));
        assert_eq!((rig.held(), rig.qos.sessions()), (0, 0));
    }
    // The RESERVE itself is what the next peer needs.
    let mut rig = confirmed();
    rig.network(flow(), NetworkEvent::CommunicationFailure);
    let some = qspec(10_000);
    let sent = rig.receive(&Message { rii: Some(71), ..reserve(3, &some) });
    let [onward] = &sent[..] else { panic!("{sent:?}") };
    assert!(onward.message().rii == Some(71) && onward.message().qspec.is_some());
}

/// The route changes while a request is on its way. The previous peer sends it again, because this node asks for it. A node
/// of the path may still refuse it: the answer of the path is the answer, with the nodes that granted it.
#[test]
fn a_relay_does_not_answer_for_a_path_that_has_not_answered() {
    let (second, some) = (SiiHandle(4), qspec(10_000));
    let mut rig = Rig::new();
    rig.reserved(3, 10_000);
    rig.network(flow().inverted(), NetworkEvent::Good(BEFORE));
    rig.network(flow(), NetworkEvent::Good(BEHIND));
    let request = reserve(3, &some);
    let sent = rig.network(flow(), NetworkEvent::Good(second));
    assert!(matches!(&sent[..], [question] if question.info() == Info::FULL_QSPEC_REQUIRED), "{sent:?}");
    let octets_of_hops = octets_of(&[Hop::new(addr("10.0.1.9"), Part::Rate(5))]);
    let hops = Hops::from_octets(&octets_of_hops);
    let sent = rig.receive(&Message { rii: Some(70), hops, ..request });
    let [onward] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((onward.message().kind, onward.message().rii), (MessageType::RESERVE, Some(70)));
    assert_eq!(onward.message().hops.unwrap().iter().count(), 2, "with the own grant");
    // The peer repeats its request: it does not come back in a circle.
    let again = rig.receive(&Message { rii: Some(70), hops, ..request });
    assert!(again.iter().all(|one| one.message().kind == MessageType::RESERVE), "{again:?}");
    let back = Message { rii: Some(70), ..response(Info::RESERVED) };
    let sent = rig.receive_octets(second, flow().inverted(), SESSION, &octets(&back));
    let answered = sent.iter().any(|one| one.message().rii == Some(70) && one.info() == Info::RESERVED);
    assert!(answered, "{sent:?}");
    assert!(tears(&sent).iter().any(|(to, _)| *to == Some(BEHIND)), "the old branch ends: {sent:?}");
}

/// The same for a change: what the path answered before is something else. After the answer this node has it, whatever a peer asks for
/// meanwhile.
#[test]
fn a_relay_does_not_answer_for_a_path_that_has_not_answered_the_change() {
    for answered in [false, true] {
        let (second, more) = (SiiHandle(4), qspec(20_000));
        let mut rig = confirmed();
        let [onward] =
            <[Sent; 1]>::try_from(rig.receive(&Message { rii: Some(60), ..reserve(4, &more) })).unwrap();
        rig.sent(&onward);
        if answered {
            rig.back(&Message { rii: Some(60), ..response(Info::RESERVED) });
            let lost = Message { rsn: onward.message().rsn, ..response(Info::FULL_QSPEC_REQUIRED) };
            assert_eq!(rig.back(&lost).len(), 1, "it asks its previous peer");
        }
        let asked = rig.network(flow(), NetworkEvent::Good(second));
        assert_eq!(asked.len(), usize::from(!answered), "{asked:?}");
        let sent = rig.receive(&Message { rii: Some(70), ..reserve(4, &more) });
        let kinds: Vec<_> =
            sent.iter().map(|one| (one.message().kind, one.message().rii == Some(70))).collect();
        if answered {
            assert_eq!(kinds, [(MessageType::RESPONSE, true), (MessageType::RESERVE, false)]);
        } else {
            assert_eq!(kinds, [(MessageType::RESERVE, true)]);
        }
    }
}

/// The same where the receiver reserves, and the path on its side changes.
#[test]
fn a_relay_does_not_answer_the_receiver_for_a_path_that_has_not_answered() {
    for answered in [true, false] {
        let mut rig = Rig::new();
        let (init, some) = (query_qspec(10_000), qspec(10_000));
        let query = Message {
            flags: MessageFlags::RESERVE_INIT,
            qspec: Some(&init),
            ..Message::new(MessageType::QUERY)
        };
        assert_eq!(rig.receive(&query).len(), 1);
        let [onward] =
            <[Sent; 1]>::try_from(rig.back(&Message { rii: Some(60), ..reserve(3, &some) })).unwrap();
        rig.sent(&onward);
        if answered {
            rig.receive(&Message { rii: Some(60), ..response(Info::RESERVED) });
        }
        let sent = rig.network(flow(), NetworkEvent::Good(SiiHandle(4)));
        assert!(matches!(&sent[..], [again] if again.message().is_reserve_init()), "{sent:?}");
        let new = Message { rsn: Some(Rsn { number: 0, epoch: 5 }), rii: Some(70), ..reserve(0, &some) };
        let sent = rig.receive_octets(SiiHandle(4), flow().inverted(), SESSION, &octets(&new));
        let [old, one] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!((old.info(), old.sii), (Info::ROUTE_CHANGE, Some(BEHIND)));
        let kind = if answered { MessageType::RESPONSE } else { MessageType::RESERVE };
        assert_eq!((one.message().kind, one.message().rii), (kind, Some(70)));
    }
}

pub(crate) fn octets_of(hops: &[Hop]) -> Vec<u8> {
    let mut octets = Vec::new();
    hops.iter().for_each(|hop| {
        hop.write(&mut Writer::new(&mut octets));
    });
    octets
}

fn tears(sent: &[Sent]) -> Vec<(Option<SiiHandle>, u32)> {
    sent.iter().filter(|s| s.message().is_tear()).map(|s| (s.sii, s.message().rsn.unwrap().number)).collect()
}

/// The next peer has another previous peer now. If this node is off the path, a Query of GIST would replace that peer.
/// Therefore the node waits for a refresh, which shows that it is on the path.
///
/// QOS-5.2.5.3-03
#[test]
fn a_route_change_of_the_next_peer_is_verified_after_a_refresh() {
    let mut rig = confirmed();
    let sent = rig.back(&route_change());
    let [informed] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((informed.info(), informed.mri), (Info::ROUTE_CHANGE, flow().inverted()));
    rig.until(rig.now + Duration::from_secs(6));
    assert_eq!(rig.checked, []);
    rig.receive(&reserve(3, &[]));
    assert_eq!(rig.checked, [Direction::Downstream]);
    rig.receive(&reserve(3, &[]));
    assert_eq!(rig.checked.len(), 1);
}

/// An old branch reports the route change that was repaired.
#[test]
fn a_route_change_of_an_old_branch_is_not_forwarded() {
    let mut rig = confirmed();
    rig.network(flow(), NetworkEvent::Good(SiiHandle(4)));
    assert_eq!(rig.back(&route_change()), []);
    rig.receive(&reserve(3, &[]));
    assert_eq!(rig.checked, []);
}

/// QOS-5.2.5.3-01, QOS-5.2.5.3-02
#[test]
fn the_old_peer_is_notified_once() {
    let mut rig = confirmed();
    let sent = rig.network(flow().inverted(), NetworkEvent::Tentative);
    let [informed] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((informed.info(), informed.sii), (Info::ROUTE_CHANGE, Some(BEFORE)));
    assert_eq!(rig.network(flow().inverted(), NetworkEvent::Good(OTHER)), []);
    // The route did not change; the next notification is a new one.
    rig.network(flow().inverted(), NetworkEvent::Good(BEFORE));
    assert_eq!(rig.network(flow().inverted(), NetworkEvent::Good(OTHER)).len(), 1);
}

/// While the old branch refreshes its routing state, upstream routing state of GIST may lead to it again.
///
/// QOS-5.2.5.4-01
#[test]
fn upstream_messages_reach_the_new_peer_when_gist_returns_to_the_old_one() {
    let mut rig = moved();
    assert_eq!(rig.network(flow().inverted(), NetworkEvent::Tentative), []);
    assert_eq!(rig.network(flow().inverted(), NetworkEvent::Good(BEFORE)), []);
    let notify = Message { info: Some(Info::CONGESTION.into()), ..Message::new(MessageType::NOTIFY) };
    let sent = rig.back(&notify);
    assert_eq!(sent.iter().map(|s| s.sii).collect::<Vec<_>>(), [Some(OTHER)]);
    rig.network(flow().inverted(), NetworkEvent::Good(OTHER));
    let sent = rig.back(&notify);
    assert_eq!(sent.iter().map(|s| s.sii).collect::<Vec<_>>(), [None], "by routing state again");
}

/// The tear ends the old branch: a later RESERVE from it comes from a new peer.
#[test]
fn the_tear_of_the_old_branch_ends_it() {
    let mut rig = moved();
    assert_eq!(rig.receive(&Message { flags: MessageFlags::TEAR, ..reserve(4, &[]) }), []);
    assert_eq!(rig.held(), 10_000);
    let some = qspec(10_000);
    let back = Message { rsn: Some(Rsn { number: 0, epoch: 6 }), ..reserve(0, &some) };
    let sent = rig.receive(&back);
    let to: Vec<_> = sent.iter().map(|one| (one.sii, one.message().kind)).collect();
    assert_eq!(
        to,
        [(Some(OTHER), MessageType::NOTIFY), (None, MessageType::RESERVE)],
        "it goes on, as that of a new peer does"
    );
    assert_eq!(rig.qos.counters().peer_changes, 2);
}

/// A node that is off the path after a route change may find a path to its old previous node.
#[test]
fn a_session_is_never_reversed() {
    let mut rig = confirmed();
    let some = qspec(10_000);
    let turned = Message { rsn: Some(Rsn { number: 2, epoch: 8 }), rii: Some(7), ..reserve(2, &some) };
    assert_eq!(rig.receive_octets(BEHIND, flow(), SESSION, &octets(&turned)), []);
    rig.network(flow(), NetworkEvent::Good(SiiHandle(4)));
    assert_eq!(rig.receive_octets(BEHIND, flow(), SESSION, &octets(&turned)), [], "the old branch's neither");
    assert_eq!((rig.qos.counters().old_peer, rig.held()), (2, 10_000));
    assert_eq!(rig.network(flow().inverted(), NetworkEvent::Good(BEHIND)), [], "and no report leaves");
}

/// GIST keeps the routing state while the session lives, and is informed of its end: QOS-5.4.1-07.
#[test]
fn gist_gets_the_lifetime_of_the_routing_state() {
    let mut rig = confirmed();
    rig.kept.clear();
    rig.network(flow(), NetworkEvent::Good(BEHIND));
    rig.network(flow().inverted(), NetworkEvent::Good(BEFORE));
    assert_eq!(rig.kept, [Direction::Downstream], "only who asked can be informed");
    rig.released.clear();
    rig.receive(&Message { flags: MessageFlags::TEAR, ..reserve(4, &[]) });
    assert_eq!(rig.released, [Direction::Downstream, Direction::Upstream]);
}

/// A node that is off the path sends no message until it is refreshed.
#[test]
fn a_node_whose_route_leads_back_is_off_the_path() {
    let mut rig = confirmed();
    assert_eq!(rig.network(flow(), NetworkEvent::Good(BEFORE)), []);
    assert_eq!(rig.released, [Direction::Downstream]);
    assert_eq!(rig.until(rig.now + Duration::from_secs(100)), []);
    let sent = rig.receive(&reserve(3, &[]));
    let [onward] = &sent[..] else { panic!("{sent:?}") };
    assert!(onward.message().qspec.is_some() && onward.message().rii.is_some() && onward.sii.is_none());
    rig.sent(onward);
    rig.back(&Message { rii: onward.message().rii, ..response(Info::REFRESHED) });
    assert!(!rig.until(rig.now + Duration::from_secs(50)).is_empty(), "it refreshes again");
    assert_eq!(rig.held(), 10_000);
}

/// The route of a node that is off the path leads back. Its tear goes to the next peer all the same.
#[test]
fn the_tear_of_a_node_that_is_off_the_path_reaches_the_next_peer() {
    let mut rig = confirmed();
    rig.network(flow(), NetworkEvent::Good(BEFORE));
    let sent = rig.receive(&Message { flags: MessageFlags::TEAR, ..reserve(4, &[]) });
    assert_eq!(tears(&sent), [(Some(BEHIND), 1)]);
}

/// QOS-5.2.5.2-05
#[test]
fn two_changes_in_a_row_leave_two_branches_to_tear_down() {
    let (second, third) = (SiiHandle(4), SiiHandle(5));
    let mut rig = confirmed();
    let sent = rig.network(flow(), NetworkEvent::Good(second));
    let repair = asked(&mut rig, &sent);
    assert_eq!(repair.message().rsn.unwrap().number, 2);
    let sent = rig.network(flow(), NetworkEvent::Good(third));
    let repair = asked(&mut rig, &sent);
    assert_eq!(repair.message().rsn.unwrap().number, 4);
    let back = Message { rii: repair.message().rii, ..response(Info::RESERVED) };
    let sent = rig.receive_octets(third, flow().inverted(), SESSION, &octets(&back));
    assert_eq!(tears(&sent), [(Some(BEHIND), 3), (Some(second), 3)]);
}

/// The reservation ends while its repair is in progress, and so does that of the old branch.
#[test]
fn a_tear_goes_down_every_branch() {
    let mut rig = confirmed();
    rig.network(flow(), NetworkEvent::Good(SiiHandle(4)));
    let sent = rig.receive(&Message { flags: MessageFlags::TEAR, ..reserve(4, &[]) });
    assert_eq!(tears(&sent), [(None, 3), (Some(BEHIND), 1)]);
    assert_eq!((rig.held(), rig.qos.sessions()), (0, 0));
}

/// A RESPONSE of the old branch does not confirm the new one.
#[test]
fn a_response_of_the_old_branch_does_not_confirm_the_new_one() {
    let mut rig = confirmed();
    let some = qspec(10_000);
    rig.now = rig.now + Duration::from_secs(2);
    let forced = Message { rii: Some(44), ..reserve(3, &some) };
    assert_eq!(rig.receive(&forced).len(), 1);
    rig.network(flow(), NetworkEvent::Good(SiiHandle(4)));
    let late = Message { rii: Some(44), ..response(Info::REFRESHED) };
    let sent = rig.back(&late);
    assert_eq!(sent.len(), 1, "it is passed on");
    assert!(!rig.qos.view_of(rig.now, SESSION).unwrap().confirmed);
}

/// The tear of the old branch waits for the RESPONSE to the RESERVE along the new one: until then only the old branch
/// is known to have the reservation.
///
/// QOS-5.2.5.2-04
#[test]
fn the_old_branch_is_torn_down_when_the_new_one_has_answered() {
    let second = SiiHandle(4);
    let mut rig = confirmed();
    let sent = rig.network(flow(), NetworkEvent::Good(second));
    let repair = asked(&mut rig, &sent);
    assert!(!repair.message().is_tear() && repair.message().rii.is_some());
    rig.sent(&repair);
    let later = rig.until(rig.now + Duration::from_secs(20));
    assert!(!later.is_empty(), "the RESERVE is sent again");
    assert!(later.iter().all(|(_, s)| !s.message().is_tear()));
    // Neither an acknowledgment nor a RESPONSE of the old branch to another request starts the tear.
    rig.receive_octets(second, flow().inverted(), SESSION, &octets(&response(Info::ACKNOWLEDGED)));
    let stray = Message { rii: Some(12_345), ..response(Info::RESERVED) };
    assert_eq!(rig.back(&stray), []);
    let answer = Message { rii: repair.message().rii, ..response(Info::RESERVED) };
    let sent = rig.receive_octets(second, flow().inverted(), SESSION, &octets(&answer));
    assert_eq!(tears(&sent), [(Some(BEHIND), 1)]);
}

/// "Refresh successful" shows that the new peer had the reservation already: no branch is torn down.
///
/// QOS-5.2.5.2-06
#[test]
fn a_repair_that_meets_the_reservation_tears_nothing_down() {
    let second = SiiHandle(4);
    for (info, torn) in [(Info::RESERVED, vec![(Some(BEHIND), 1)]), (Info::REFRESHED, vec![])] {
        let mut rig = confirmed();
        let sent = rig.network(flow(), NetworkEvent::Good(second));
        let repair = asked(&mut rig, &sent);
        let answer = Message { rii: repair.message().rii, ..response(info) };
        let sent = rig.receive_octets(second, flow().inverted(), SESSION, &octets(&answer));
        assert_eq!(tears(&sent), torn, "{info}");
        let later = rig.until(rig.now + Duration::from_secs(20));
        assert!(later.iter().all(|(_, sent)| !sent.message().is_tear()), "{info}");
    }
}

/// A reservation that is not to be replaced stands on the old branch too.
///
/// QOS-5.4.1-20
#[test]
fn a_branch_that_is_to_be_kept_is_not_torn_down() {
    let second = SiiHandle(4);
    let mut rig = Rig::new();
    let some = qspec(10_000);
    let keep = Message { flags: MessageFlags(0), rii: Some(1), ..reserve(3, &some) };
    let [onward] = <[Sent; 1]>::try_from(rig.receive(&keep)).unwrap();
    rig.sent(&onward);
    rig.network(flow().inverted(), NetworkEvent::Good(BEFORE));
    rig.network(flow(), NetworkEvent::Good(BEHIND));
    rig.back(&Message { rii: onward.message().rii, ..response(Info::RESERVED) });
    let sent = rig.network(flow(), NetworkEvent::Good(second));
    let repair = asked(&mut rig, &sent);
    let answer = Message { rii: repair.message().rii, ..response(Info::RESERVED) };
    let sent = rig.receive_octets(second, flow().inverted(), SESSION, &octets(&answer));
    assert_eq!(tears(&sent), []);
    let later = rig.until(rig.now + Duration::from_secs(20));
    assert!(later.iter().all(|(_, sent)| !sent.message().is_tear()));
    assert_eq!(rig.held(), 10_000);
}

/// The next peer has another previous peer, and the link to the own one is lost: no message of this node can find out more.
#[test]
fn a_router_that_the_route_has_left_gives_its_part_back() {
    let mut rig = confirmed();
    assert_eq!(rig.back(&route_change()).len(), 1, "it is passed on");
    let sent = rig.until(rig.now + Duration::from_secs(8));
    let questions = sent.iter().filter(|(_, one)| one.info() == Info::FULL_QSPEC_REQUIRED).count();
    assert_eq!((questions, sent.len()), (3, 6), "each with a copy of the report: {sent:?}");
    assert_eq!((rig.held(), rig.qos.sessions(), rig.qos.counters().left), (0, 0, 1));
    assert_eq!(
        rig.released[..2],
        [Direction::Downstream, Direction::Upstream],
        "GIST gives the session back, too"
    );
    // The path returns: this node is a new one.
    let some = qspec(10_000);
    assert_eq!(rig.receive(&reserve(3, &[]))[0].info(), Info::FULL_QSPEC_REQUIRED);
    assert_eq!(rig.receive(&Message { rii: Some(90), ..reserve(3, &some) }).len(), 1);
    assert_eq!(rig.held(), 10_000);
}

/// A report of the next peer is perhaps about nothing. A node whose previous peer is there stays on the path, for however many reports.
#[test]
fn a_router_whose_previous_peer_answers_stays() {
    for full in [false, true] {
        let mut rig = confirmed();
        let some = qspec(10_000);
        for rii in 70..90 {
            assert_eq!(rig.back(&route_change()).len(), 1);
            let sent = rig.until(rig.now + Duration::from_millis(5500));
            assert_eq!(sent.len(), 6, "{sent:?}");
            let contents = if full { &some[..] } else { &[] };
            let sent = rig.receive(&Message { rii: full.then_some(rii), ..reserve(3, contents) });
            assert_eq!(sent.len(), usize::from(full), "a request goes on to the end of the path");
            sent.iter().for_each(|one| rig.sent(one));
            rig.until(rig.now + Duration::from_secs(10));
            assert_eq!((rig.held(), rig.qos.counters().left), (10_000, 0));
        }
    }
}

/// The route behind this node changes after the report of the former next peer: that report is about another route.
#[test]
fn a_report_of_the_former_next_peer_ends_nothing() {
    let mut rig = confirmed();
    rig.back(&route_change());
    let sent = rig.network(flow(), NetworkEvent::Good(SiiHandle(4)));
    assert_eq!(sent.iter().map(Sent::info).collect::<Vec<_>>(), [Info::FULL_QSPEC_REQUIRED], "at once");
    rig.until(rig.now + Duration::from_secs(60));
    assert_eq!(rig.held(), 10_000);
}

/// Where the link to the former peer is lost, only this node reaches it. GIST has perhaps reported nothing before.
#[test]
fn the_former_peer_is_told_when_the_new_one_is_accepted() {
    let some = qspec(10_000);
    let told = |rig: &mut Rig, message: &Message<'_>| {
        let sent = rig.receive_octets(OTHER, flow(), SESSION, &octets(message));
        let notify = |one: &&Sent| one.message().kind == MessageType::NOTIFY;
        sent.iter().filter(notify).map(|one| (one.sii, one.info())).collect::<Vec<_>>()
    };
    let new = Message { rsn: Some(Rsn { number: 9, epoch: 5 }), rii: Some(1), ..reserve(9, &some) };
    let mut rig = confirmed();
    assert_eq!(told(&mut rig, &new), [(Some(BEFORE), Info::ROUTE_CHANGE)]);
    assert_eq!(told(&mut rig, &new), [], "once");
    let mut rig = confirmed();
    rig.network(flow().inverted(), NetworkEvent::Good(OTHER));
    assert_eq!(told(&mut rig, &new), [], "it was told when GIST reported the change");
    // The same node by another link, a branch that is to be kept, and a RESERVE that is refused.
    for other in [
        Message { rsn: Some(Rsn { number: 9, epoch: EPOCH }), ..new },
        Message { flags: MessageFlags(0), ..new },
    ] {
        assert_eq!(told(&mut confirmed(), &other), []);
    }
    let large = qspec(u16::MAX);
    let mut rig = Rig::with_rules(Config::default(), |rules| {
        *rules = signalbox_resources::Config::of_link("eth2", "200kbit".parse().unwrap());
    });
    rig.reserved(3, 10_000);
    assert_eq!(told(&mut rig, &Message { qspec: Some(&large), ..new }), []);
    assert_eq!(rig.qos.counters().refused, 1);
}

/// REPLACE is clear: the branch is to be kept, whichever way the route takes.
#[test]
fn a_branch_that_is_to_be_kept_is_not_given_back() {
    let mut rig = Rig::new();
    let some = qspec(10_000);
    let keep = Message { flags: MessageFlags(0), rii: Some(1), ..reserve(3, &some) };
    let [onward] = <[Sent; 1]>::try_from(rig.receive(&keep)).unwrap();
    rig.sent(&onward);
    rig.back(&Message { rii: onward.message().rii, ..response(Info::RESERVED) });
    rig.back(&route_change());
    rig.until(rig.now + Duration::from_secs(20));
    assert_eq!(rig.held(), 10_000);
}

/// Rules of the kernel and multipath routes can depend on the interface by which a flow comes in: the request comes in where its
/// packets do, and the route of a repair and of a confirmed peer is asked for likewise. What comes against the flow says nothing of it.
#[test]
fn a_route_is_asked_for_with_the_interface_by_which_the_flow_comes_in() {
    let mut rig = Rig::new();
    rig.reserved(3, 10_000);
    assert_eq!(rig.incoming, [Some(IfIndex(1))]);
    rig.network(flow().inverted(), NetworkEvent::Good(BEFORE));
    rig.network(flow(), NetworkEvent::Good(BEHIND));
    rig.network(flow(), NetworkEvent::Good(OTHER));
    assert!(rig.incoming.len() > 1);
    assert!(rig.incoming.iter().all(|from| *from == Some(IfIndex(1))), "{:?}", rig.incoming);
    let mut rig = Rig::new();
    let query = query_qspec(10_000);
    let asked = Message { rii: Some(7), qspec: Some(&query), ..Message::new(MessageType::QUERY) };
    rig.receive_octets(BEHIND, flow().inverted(), SESSION, &octets(&asked));
    assert!(rig.incoming.iter().all(Option::is_none), "{:?}", rig.incoming);
}
