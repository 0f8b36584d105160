//! The receiver of the data opens (PATH, answered by CREATE against the flow).

use std::time::Duration;

use signalbox_casp::clients::natfw::{Config, NatfwEnd, NatfwEvent, Role};
use signalbox_casp::wire::natfw::{NatfwFilter, NatfwStatus, NatfwType, NatfwValue};
use signalbox_core::pinhole::PinholeError;

use crate::rig::{FIRST, Rig, at, filter, flow};

/// CASPMID-4.4-01, CASPMID-10.1-04, CASPMID-10.1-09: PATH passes firewalls that let neither host open the other one's
/// firewall; CREATE opens them on the same way back. CASPMID-10.1-05: then data may flow.
#[test]
fn each_host_opens_its_own_firewall() {
    let mut rig = Rig::new(4);
    rig.accept();
    rig.ask(true);
    assert_eq!(rig.kinds(3), [NatfwType::PATH]);
    assert_eq!(rig.kinds(0), [NatfwType::CREATE]);
    assert!(rig.last(2, NatfwType::CREATE).reverse);
    assert_eq!(rig.passes(1), [flow(4).filter()]);
    assert_eq!(rig.passes(2), [flow(4).filter()]);
    assert!(matches!(rig.events(0).last(), Some(NatfwEvent::Opened { .. })));
    assert_eq!(rig.events(3), [NatfwEvent::Accepted { session: FIRST, flow: flow(4) }]);
}

/// The receiver may be a user of a firewall. Without a user who accepts the packets, a firewall refuses PATH as a host does.
#[test]
fn a_user_of_a_firewall_accepts() {
    let walls = |n, config| Config { role: if n == 0 { Role::Host } else { Role::Firewall }, ..config };
    for accepts in [true, false] {
        let mut rig = Rig::with(3, &|_| signalbox_resources::Config::default(), &walls);
        if accepts {
            rig.accept();
        }
        rig.ask(true);
        assert_eq!(rig.passes(1).len(), usize::from(accepts));
        let opened = matches!(rig.events(0).last(), Some(NatfwEvent::Opened { .. }));
        assert!(opened == accepts, "{:?}", rig.events(0));
        assert!(accepts || rig.status(0) == NatfwStatus::POLICY);
    }
}

/// CASPMID-7-02, CASPMID-10.1-02: PATH opens nothing. CASPMID-7-32: where no user accepts the packets, a RESPONSE takes the
/// place of the CREATE. CASPMID-10.1-07: nothing is left.
#[test]
fn a_path_alone_opens_nothing() {
    let mut rig = Rig::open(4);
    rig.ask(true);
    assert_eq!(rig.status(0), NatfwStatus::POLICY);
    assert!([1, 2].iter().all(|n| rig.passes(*n).is_empty()));
}

/// CASPMID-7-03, CASPMID-7-04, CASPMID-10.1-01, CASPMID-10.1-03: the CREATE has the objects of the PATH, with the filter in
/// the direction of the data.
#[test]
fn create_has_the_objects_of_path() {
    let mut rig = Rig::open(3);
    rig.accept();
    let values = [
        NatfwValue::MsgId(5),
        NatfwValue::Age(1),
        NatfwValue::Lifetime(45),
        NatfwValue::Filter(filter(3)),
        NatfwValue::ApplicationId(b"voice"),
    ];
    rig.inject(0, 1, NatfwType::PATH, &values);
    let create = rig.last(1, NatfwType::CREATE);
    assert_eq!(create.filters(), [filter(3)]);
    assert_eq!(create.lifetime(), Some(45));
    assert!(create.values().contains(&NatfwValue::ApplicationId(b"voice")));
    assert_ne!(create.age(), 1);
}

/// CASPMID-4.4-02, CASPMID-4.4-03: a CREATE against the flow opens nothing without a PATH of its session.
#[test]
fn create_needs_a_path() {
    let mut rig = Rig::open(3);
    rig.inject(2, 1, NatfwType::CREATE, &[NatfwValue::MsgId(5), NatfwValue::Age(1)]);
    assert_eq!(rig.status(2), NatfwStatus::NO_STATE);
    assert!(rig.passes(1).is_empty());
}

/// CASPMID-10.1-06: the CREATE must ask for what the PATH asked for.
#[test]
fn create_agrees_with_path() {
    let mut rig = Rig::open(3);
    rig.deaf = Some(2);
    rig.inject(0, 1, NatfwType::PATH, &[NatfwValue::MsgId(5), NatfwValue::Age(1)]);
    let mut other = filter(3);
    other.dst_ports = vec![(600, 601)];
    rig.deaf = Some(0);
    let values = [NatfwValue::MsgId(6), NatfwValue::Age(2), NatfwValue::Filter(other)];
    rig.inject(2, 1, NatfwType::CREATE, &values);
    assert_eq!(rig.status(2), NatfwStatus::POLICY);
    assert!(rig.passes(1).is_empty());
}

/// CASPMID-7-32: the kernel of a firewall refuses the CREATE: its sender gets a RESPONSE.
#[test]
fn a_refused_create_is_reported_to_the_receiver() {
    let mut rig = Rig::new(4);
    rig.accept();
    rig.nodes[1].kernel = Err(PinholeError::Failed);
    rig.ask(true);
    assert_eq!(rig.status(3), NatfwStatus::RESOURCES);
    assert_eq!(rig.kinds(0), []);
    let why = NatfwEnd::Removed { status: NatfwStatus::RESOURCES, node: Some(at(1)) };
    assert_eq!(rig.events(3).last(), Some(&ended(why)));
}

fn ended(why: NatfwEnd) -> NatfwEvent {
    NatfwEvent::Ended { session: FIRST, flow: flow(4), why }
}

/// The receiver is informed when its sender closes the passage, and when it does not refresh it.
#[test]
fn the_receiver_is_informed_of_the_end() {
    let mut rig = Rig::standing(4, true);
    rig.close();
    assert_eq!(rig.events(3), [ended(NatfwEnd::Closed)]);
    let mut rig = Rig::standing(4, true);
    rig.deaf = Some(1);
    rig.wait(Duration::from_secs(200));
    assert_eq!(rig.events(3), [ended(NatfwEnd::Expired)]);
}

fn leave(rig: &mut Rig, user: u64) {
    let now = rig.now;
    let last = &mut rig.nodes[3];
    last.client.close(now, user, &mut last.resources);
    rig.run();
}

/// CASPMID-12-02, CASPMID-7-09: the end of a receiver closes the firewalls at once, by a RELEASE against the flow. The sender is informed
/// and tears the session down; the receiver itself has no event.
#[test]
fn a_receiver_that_leaves_ends_what_it_accepted() {
    let mut rig = Rig::standing(4, true);
    leave(&mut rig, 8);
    assert_eq!(rig.passes(1).len(), 1, "another user");
    leave(&mut rig, 9);
    let release = rig.last(0, NatfwType::RELEASE);
    assert_eq!((release.session, release.flow, release.reverse), (FIRST, flow(4), true));
    assert_eq!((rig.passes(1).len(), rig.passes(2).len()), (0, 0));
    assert_eq!(rig.events(0), [NatfwEvent::Lost { status: NatfwStatus::RECEIVER, node: None }]);
    assert_eq!(rig.nodes[0].torn_down, 1);
    assert_eq!(rig.events(3), []);
    assert!(rig.nodes.iter().all(|node| node.client.sessions() == 0 && node.resources.passage_count() == 0));
}

/// The receiver leaves while the kernel of a firewall has not answered its CREATE: the passage does not open any more.
#[test]
fn a_receiver_that_leaves_early_ends_what_waits() {
    let mut rig = Rig::new(4);
    rig.accept();
    rig.nodes[2].silent = true;
    rig.ask(true);
    assert_eq!((rig.passes(1).len(), rig.events(3).len()), (0, 1));
    leave(&mut rig, 9);
    assert!(rig.nodes[2].rules.is_empty());
    assert_eq!(rig.nodes[2].client.counters().strangers, 0);
    let lost = NatfwEvent::Lost { status: NatfwStatus::RECEIVER, node: None };
    assert_eq!(rig.events(0).last(), Some(&lost));
}

/// More passages than one part ends at once: the timer has the rest.
#[test]
fn a_receiver_with_many_passages_leaves_in_parts() {
    let mut rig = Rig::new(4);
    rig.accept();
    for id in 1..=200 {
        let request = rig.request(true);
        let now = rig.now;
        rig.nodes[0].client.open(now, id, &request);
        rig.run();
    }
    assert_eq!(rig.passes(1).len(), 200);
    leave(&mut rig, 9);
    assert_eq!(rig.passes(1).len(), 72);
    assert_eq!(rig.nodes[3].client.next_deadline(), Some(rig.now));
    rig.wait(Duration::ZERO);
    assert_eq!((rig.passes(1).len(), rig.nodes[3].client.sessions()), (0, 0));
}

/// A passage that ends at a firewall by its administrator. The report to the sender is lost, so that its refreshes open it again.
fn ended_for_the_receiver_only() -> Rig {
    let mut rig = Rig::standing(4, true);
    rig.deaf = Some(0);
    let now = rig.now;
    let wall = &mut rig.nodes[2];
    wall.client.delete(now, FIRST, &mut wall.resources);
    rig.run();
    rig.deaf = None;
    let why = NatfwEnd::Removed { status: NatfwStatus::ADMINISTRATOR, node: Some(at(2)) };
    assert_eq!((rig.events(0), rig.events(3)), (vec![], vec![ended(why)]));
    assert!(rig.passes(2).is_empty());
    rig.clear();
    rig
}

/// Waits for the next PATH that the receiver gets.
fn refreshed(rig: &mut Rig) {
    rig.seen.clear();
    for _ in 0..1000 {
        rig.wait(Duration::from_millis(100));
        if rig.kinds(3).contains(&NatfwType::PATH) {
            return;
        }
    }
    panic!("the sender does not refresh");
}

/// A receiver that was informed of the end is informed that the passage stands again, and then of its end.
#[test]
fn what_opens_again_is_reported() {
    let mut rig = ended_for_the_receiver_only();
    refreshed(&mut rig);
    assert_eq!((rig.passes(2).len(), rig.events(3)), (1, vec![]));
    rig.wait(Duration::from_secs(400));
    assert_eq!(rig.events(3), [NatfwEvent::Accepted { session: FIRST, flow: flow(4) }]);
    rig.clear();
    rig.close();
    assert_eq!(rig.events(3), [ended(NatfwEnd::Closed)]);
}

/// CASPMID-12-02: a receiver that leaves ends what opened again, also if it has not been informed yet.
#[test]
fn what_opens_again_ends_with_the_receiver() {
    let mut rig = ended_for_the_receiver_only();
    refreshed(&mut rig);
    assert_eq!(rig.passes(2).len(), 1);
    leave(&mut rig, 9);
    assert_eq!((rig.passes(1).len(), rig.passes(2).len(), rig.events(3)), (0, 0, vec![]));
}

/// The kernel of the firewall refuses each CREATE: the receiver has no further events, until the kernel has taken one.
#[test]
fn what_fails_to_open_again_is_not_reported() {
    let mut rig = ended_for_the_receiver_only();
    rig.nodes[2].kernel = Err(PinholeError::Failed);
    refreshed(&mut rig);
    let path = rig.last(1, NatfwType::PATH);
    for (number, fails) in [(1, true), (2, true), (3, false)] {
        assert_eq!((rig.passes(2).len(), rig.events(3)), (0, vec![]));
        rig.nodes[2].kernel = if fails { Err(PinholeError::Failed) } else { Ok(()) };
        rig.wait(Duration::from_secs(2));
        let mut values = path.values();
        values.retain(|value| !matches!(value, NatfwValue::MsgId(_)));
        values.push(NatfwValue::MsgId(number));
        rig.inject(0, 1, NatfwType::PATH, &values);
        assert_eq!(rig.status(3), NatfwStatus::RESOURCES);
    }
    assert_eq!((rig.passes(2).len(), rig.events(3)), (1, vec![]));
    refreshed(&mut rig);
    assert_eq!(rig.events(3), [NatfwEvent::Accepted { session: FIRST, flow: flow(4) }]);
}

/// A user who leaves ends only what it accepted itself.
#[test]
fn what_another_user_accepts_stays() {
    let mut rig = Rig::standing(4, true);
    let now = rig.now;
    let packets = flow(4).filter();
    assert!(rig.nodes[3].client.accept(now, 4, packets));
    leave(&mut rig, 4);
    rig.wait(Duration::from_secs(200));
    assert_eq!((rig.passes(1).len(), rig.passes(2).len()), (1, 1));
}

/// CASPMID-10.1-10: PATHs with the same stamp refresh, each answered by a CREATE with an unchanged stamp; the rules stay.
#[test]
fn paths_refresh() {
    let mut rig = Rig::standing(4, true);
    rig.wait(Duration::from_secs(400));
    let stamps = |node, kind| -> Vec<u64> {
        let mut all: Vec<u64> = rig
            .seen
            .iter()
            .filter(|one| one.to == node && one.kind() == kind)
            .map(crate::rig::Packet::age)
            .collect();
        let count = all.len();
        all.dedup();
        assert!(count > 5, "{count}");
        all
    };
    assert_eq!(stamps(3, NatfwType::PATH).len(), 1);
    assert_eq!(stamps(0, NatfwType::CREATE).len(), 1);
    assert_eq!((rig.passes(1).len(), rig.passes(2).len()), (1, 1));
    assert_eq!(rig.nodes[2].client.counters().granted, 1);
}

/// CASPMID-4.4-04, CASPMID-10.3-03: with a NAT_OBJECT in the PATH the CREATE says how the packets arrive; without a filter
/// these are those of the flow.
#[test]
fn create_says_how_the_packets_arrive() {
    for with_filter in [false, true] {
        let mut rig = Rig::open(3);
        rig.accept();
        let mut values = vec![NatfwValue::MsgId(5), NatfwValue::Age(1), NatfwValue::Nat(None)];
        values.extend(with_filter.then(|| NatfwValue::Filter(filter(3))));
        rig.inject(0, 1, NatfwType::PATH, &values);
        let create = rig.last(1, NatfwType::CREATE);
        assert!(create.values().contains(&NatfwValue::Nat(Some(filter(3)))), "{:?}", create.values());
    }
}

/// CASPMID-10.3-05: the user of the initiator is informed of it.
#[test]
fn the_initiator_learns_its_outer_address() {
    let mut rig = Rig::new(3);
    rig.deaf = Some(1);
    rig.ask(true);
    let nat = NatfwFilter { src_ports: vec![(5001, 5001)], ..filter(3) };
    let values = [NatfwValue::MsgId(6), NatfwValue::Age(2), NatfwValue::Nat(Some(nat.clone()))];
    rig.inject(1, 0, NatfwType::CREATE, &values);
    let opened = NatfwEvent::Opened { lifetime: crate::rig::LIFETIME, nat: Some(nat) };
    assert_eq!(rig.events(0).last(), Some(&opened));
}

/// CASPMID-4.4-05, CASPMID-5-03: one exchange opens one direction.
#[test]
fn one_exchange_opens_one_direction() {
    let rig = Rig::standing(4, true);
    for n in [1, 2] {
        assert_eq!(rig.passes(n), [flow(4).filter()]);
    }
}
