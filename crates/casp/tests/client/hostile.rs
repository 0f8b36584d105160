//! Bounds: what a peer can make a node keep, and what a node that proved nothing gets.

use signalbox_casp::clients::qos::{Config, Range};
use signalbox_casp::wire::qos::QosType;
use signalbox_core::SessionId;
use signalbox_core::security::{Fingerprint, Identity};
use signalbox_resources::config::{Action, LinkConfig, RuleConfig};
use signalbox_resources::{Proof, Rate};

use crate::rig::{Node, Packet, Rig, at, mbit};

/// T31: a datagram without a cookie, which only the list of neighbors admits, is no proof of an address: a rule that needs a handshake
/// does not match, and one that takes the link does. An identity is shown as one.
#[test]
fn a_neighbor_without_a_cookie_has_proved_no_handshake() {
    for (answered, identity) in [(false, false), (true, false), (false, true)] {
        for least in [Proof::Link, Proof::Handshake, Proof::Identity] {
            let mut rig = Rig::new(3);
            let from = vec![format!("{}/32", at(0)).parse().unwrap()];
            let rule = RuleConfig { from, proof: Some(least), ..RuleConfig::new("near", Action::Allow) };
            let link = |name| LinkConfig {
                reservable: "100%".parse().unwrap(),
                ..LinkConfig::new(name, Some(Rate(1_250_000)))
            };
            let links = vec![link("eth0"), link("eth1")];
            let policy = signalbox_resources::Config {
                links,
                rules: vec![rule],
                default: Action::Deny,
                ..Default::default()
            };
            rig.nodes[1].resources.reload(rig.now, policy).unwrap();
            rig.answered = answered;
            rig.identity = identity.then(|| Identity::of_key(Fingerprint([1; 32])).into());
            let request = rig.request(Range::only(mbit(1.0)));
            rig.reserve(0, 1, &request);
            let proof = match (answered, identity) {
                (_, true) => Proof::Identity,
                (true, _) => Proof::Handshake,
                (false, false) => Proof::Link,
            };
            let booked = if proof >= least { 1.0 } else { 0.0 };
            assert_eq!(rig.booked(1), booked, "{proof} for {least}");
        }
    }
}

/// One source cannot fill the table of sessions.
#[test]
fn sessions_have_fair_shares() {
    let mut rig = Rig::with(3, Config { max_sessions: 100, ..Config::default() });
    let request = rig.request(Range::only(mbit(0.001)));
    rig.reserve(0, 1, &request);
    let reserve = rig.last(1, QosType::RESERVE);
    for n in 10..200 {
        let session = SessionId([n; 16]);
        rig.inject(Packet { session, ..reserve.clone() });
    }
    assert!(rig.nodes[1].client.sessions() <= 76, "{}", rig.nodes[1].client.sessions());
    assert!(rig.nodes[1].client.counters().sessions_full > 100);
    // What failed keeps nothing for longer than a lifetime.
    rig.release(0, 1);
    rig.wait(core::time::Duration::from_secs(400));
    assert_eq!(rig.nodes[1].client.sessions(), 0);
}

/// What ends at one time ends in parts, so that messages have their turn in between.
#[test]
fn many_sessions_end_in_parts() {
    let mut rig = Rig::new(3);
    let request = rig.request(Range::only(mbit(0.001)));
    rig.reserve(0, 1, &request);
    let reserve = rig.last(1, QosType::RESERVE);
    for n in 0..599u128 {
        rig.inject(Packet { session: SessionId((n + 1000).to_be_bytes()), ..reserve.clone() });
    }
    rig.now = rig.now + core::time::Duration::from_secs(400);
    let Node { client, resources, .. } = &mut rig.nodes[1];
    let mut left = || {
        client.timer(rig.now, resources);
        (client.sessions(), client.next_deadline().is_some_and(|at| at <= rig.now))
    };
    assert_eq!([left(), left(), left()], [(344, true), (88, true), (0, false)]);
}

/// Branches of a session are bounded.
#[test]
fn branches_are_bounded() {
    let mut rig = Rig::with(3, Config { merge_unauthenticated: true, ..Config::default() });
    let request = rig.request(Range::only(mbit(1.0)));
    rig.reserve(0, 1, &request);
    let reserve = rig.last(1, QosType::RESERVE);
    for branch in 1..100 {
        rig.inject(Packet { branch, ..reserve.clone() });
    }
    assert_eq!((rig.booked(1), rig.given(1)), (1.0, 1.0));
    assert_eq!(rig.nodes[1].client.sessions(), 1);
}

/// The octets of any message, cut at each length and changed at each place: no panic, and nothing is booked that no
/// session has.
#[test]
fn damaged_messages_do_no_harm() {
    let mut rig = Rig::new(3);
    let request = rig.request(Range::only(mbit(1.0)));
    rig.reserve(0, 1, &request);
    let all = rig.seen.clone();
    for packet in all {
        for at in 0..packet.data.len() {
            let mut changed = packet.clone();
            changed.data[at] ^= 0x41;
            rig.inject(changed);
            rig.inject(Packet { data: packet.data[..at].to_vec(), ..packet.clone() });
        }
    }
    rig.wait(core::time::Duration::from_secs(1000));
    for n in 0..3 {
        assert!(rig.booked(n) <= 10.0, "node {n}");
    }
}

/// Random runs of requests, messages, pauses and losses: each message gets one verdict, no more is booked than there is,
/// and nothing stays.
#[test]
fn random_runs_leave_nothing() {
    let mut rng = signalbox_core::Random::from_number(5971);
    for _ in 0..300 {
        let mut octets = vec![0; 801];
        rng.fill(&mut octets);
        signalbox_casp::fuzz::casp_qos_client(&octets);
    }
}
