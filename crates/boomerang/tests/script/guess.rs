//! Blind guesses of proofs of return: forged sources, and no reply is seen.

use signalbox_boomerang::engine::{Config, Reason};
use signalbox_boomerang::wire::{Known, OF_REPLY, Pass, ReturnProof};
use signalbox_wire::Writer;

use crate::rig::*;

fn proving(provers: u8) -> Rig {
    Rig::with(Config { prove: true, provers, rate: 0, ..Config::default() })
}

fn primes(from: u32) -> impl Iterator<Item = u64> {
    let is_prime = |n: &u32| (2..).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
    (from..).filter(is_prime).map(u64::from)
}

/// The option of a node with this number.
fn option(node: u32, number: u64, flags: u16) -> Vec<u8> {
    let mut octets = Vec::new();
    Known::ReturnProof(ReturnProof { node, number }).encode(flags, &mut Writer::new(&mut octets));
    octets
}

/// Numbers that differ, as a forger draws them.
fn drawn(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 40
}

fn refused(sent: &Sent) -> Option<Reason> {
    let message = sent.message();
    message.is_refused().then(|| Reason::of(message.body.unwrap().options.refusal().unwrap().cause))
}

/// A host with little demand, whose proofs come back in options.
fn small(port: u16) -> Fields {
    Fields { rates: vec![rates(8, 0)], ..returning(port) }
}

/// A KEY of small primes is many guesses in one message.
#[test]
fn small_primes_are_not_guessed() {
    for (provers, least, packets) in
        [(4, 1 << 15, 3_000), (3, 1 << 20, 30_000), (2, 1 << 30, 100), (1, 1 << 30, 100)]
    {
        let mut rig = proving(provers);
        let mut candidates = primes(least);
        for _ in 0..packets {
            let key = (0..provers.max(2)).filter_map(|_| candidates.next()).fold(1_u64, u64::saturating_mul);
            rig.pass(&Fields { key, ..request(1) });
            assert_eq!(rig.node.flow_count(), 0, "{provers} provers: reserved by a guess");
        }
    }
}

/// A hundred thousand forged messages about one host and others, by KEY and by option, while hosts set up: the host whose name they
/// have, another one, and one that has only the KEY. Each reserves in two loops, and no guess reserves or releases.
#[test]
fn honest_hosts_reserve_beside_guesses() {
    for provers in [1, 4] {
        let mut rig = proving(provers);
        // The forger knows the number of the router from a request of its own.
        let own = rig.pass(&returning(9000));
        let node = own.proofs()[0].1.node;
        let mut hosts: Vec<Fields> = (1..=20).map(small).collect();
        hosts.iter_mut().skip(10).for_each(|host| host.be("192.0.2.77"));
        if provers == 1 {
            hosts.push(Fields { flags: 0, ..small(21) });
        }
        let forge = |rig: &mut Rig, n: u64| {
            let port = u16::try_from(n % 40).unwrap();
            let release = Fields { rates: vec![rates(0, 0)], ..request(port) };
            let mut forged = if n.is_multiple_of(3) { release } else { request(port) };
            if n.is_multiple_of(7) {
                forged.be(&format!("192.0.2.{}", 1 + n % 250));
            }
            if n.is_multiple_of(5) {
                forged = Fields { pass: Pass::Reply, ends: reply(port).ends, ..forged };
            }
            if n.is_multiple_of(2) {
                forged = Fields { key: drawn(n), ..forged };
            } else {
                let flags = if forged.pass == Pass::Reply { OF_REPLY } else { 0 };
                forged = Fields { flags: RETURNS, ..forged };
                // Only the first option is a guess.
                (0..8).for_each(|more| forged.options.extend(option(node, drawn(n * 8 + more), flags)));
            }
            rig.pass(&forged);
        };
        let mut forged = 0..100_000_u64;
        for (at, host) in hosts.iter().enumerate() {
            forged.by_ref().take(2_400).for_each(|n| forge(&mut rig, n));
            assert_eq!(rig.node.flow_count(), u32::try_from(at).unwrap(), "{provers}");
            let challenge = rig.pass(host);
            assert_eq!(refused(&challenge), None);
            forged.by_ref().take(2_400).for_each(|n| forge(&mut rig, n));
            rig.pass(&host.confirming(&challenge));
            assert_eq!(rig.node.flow_count(), u32::try_from(at).unwrap() + 1, "{provers}");
        }
        let held = rig.node.flow_count();
        forged.for_each(|n| forge(&mut rig, n));
        assert_eq!(rig.node.flow_count(), held, "released by a guess");
        let seen: Vec<_> = rig.node.guesses().collect();
        assert!(seen.iter().all(signalbox_boomerang::engine::GuessView::is_attack), "{seen:?}");
        assert_eq!(seen.iter().map(|seen| seen.ifindex.0).collect::<Vec<_>>(), [1, 2]);
        let counters = rig.node.counters();
        assert!(
            counters.wrong_proofs > 60_000 && counters.guesses_limited * 10 > counters.wrong_proofs * 9,
            "{counters:?}"
        );
        // It is over when no more of them come.
        rig.wait(seconds(11.0));
        assert_eq!(rig.node.guesses().count(), 0);
    }
}

/// Hosts whose router has started again show its former numbers. They are no attack, and each gets a new number.
#[test]
fn outdated_numbers_are_no_attack() {
    let mut rig = proving(2);
    let node = rig.pass(&returning(1)).proofs()[0].1.node;
    for port in 1..=50 {
        let host = small(port);
        let outdated = Fields { options: option(node, drawn(port.into()), 0), ..host.clone() };
        let again = rig.pass(&outdated);
        assert_eq!(
            again.octets.len(),
            outdated.octets().len(),
            "the new number is in the place of the old one"
        );
        rig.pass(&host.confirming(&again));
        assert_eq!(rig.node.flow_count(), port.into());
        rig.wait(seconds(0.3));
    }
    assert!(rig.node.guesses().all(|seen| !seen.is_attack()));
    assert_eq!(rig.node.counters().guesses_limited, 0);
}

/// Beyond the rate of its flow a wrong number is refused. A host begins again without it, and is served at once.
#[test]
fn wrong_numbers_are_answered_at_a_rate() {
    let mut rig = proving(2);
    let node = rig.pass(&returning(1)).proofs()[0].1.node;
    let wrong = |n| Fields { options: option(node, drawn(n), 0), ..returning(1) };
    assert_eq!(refused(&rig.pass(&wrong(1))), None);
    assert_eq!(refused(&rig.pass(&wrong(2))), Some(Reason::WrongProof));
    let begins = rig.pass(&returning(1));
    rig.pass(&returning(1).confirming(&begins));
    assert_eq!(rig.node.flow_count(), 1);
    // Another interface has its own.
    let other = wrong(3);
    assert_eq!(refused(&rig.octets(3, &other, &other.octets())[0]), None);
}
