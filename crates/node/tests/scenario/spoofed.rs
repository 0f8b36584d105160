//! Forged packets.

use core::time::Duration;

use signalbox_core::rng::Random;
use signalbox_gist::wire::{GistError, MAGIC, MessageType};
use signalbox_sim::{Family, LinkConfig, Packet};

use crate::net::{Net, all_sessions, header, message, total};

/// A genuine Query and a genuine Data message of a session over three nodes, which has ended since.
fn recorded(seed: u64) -> (Net, Packet, Packet) {
    let mut net = Net::chain(seed, 3, &LinkConfig::default());
    net.sim.capture(net.links[0]);
    net.ping(1, Family::V4, Some(1));
    net.done(1, Duration::from_secs(10));
    let first = net.first();
    let find = |kind| {
        let mut all = net.sim.captured().filter(|c| c.from == first && header(c).kind == kind);
        all.next().unwrap().packet.clone()
    };
    let (query, data) = (find(MessageType::QUERY), find(MessageType::DATA));
    net.sim.expect("no state", crate::net::QUIET, |sim| all_sessions(sim) == 0);
    (net, query, data)
}

/// Offset of the session identifier in a packet.
fn session_at(net: &Net, packet: &Packet) -> usize {
    let captured = net.sim.captured().find(|c| c.packet == *packet).unwrap();
    let session = message(captured).session.unwrap();
    packet.payload.windows(16).position(|window| window == session.0).unwrap()
}

/// GIST-6.1-02, GIST-4.4.1-13: Queries leave no state at a node that waits for the Confirm. GIST-8.4-01: each causes
/// one small Response at most. GIST-4.4.6-01, GIST-6.1-04: the node that is the apparent sender of the Query sends no
/// message.
#[test]
fn a_flood_of_queries_leaves_no_state() {
    let (mut net, query, _) = recorded(1);
    let at = session_at(&net, &query);
    let mut rng = Random::from_number(1);
    let before = total(&net.sim, "gist", "responses_sent");
    let sent = total(&net.sim, "gist", "errors_sent");
    for _ in 0..2000 {
        let mut packet = query.clone();
        packet.payload[at..at + 16].copy_from_slice(&rng.array::<16>());
        net.sim.inject(net.links[0], net.nodes[1], packet);
        net.sim.run_for(Duration::from_millis(1));
        assert_eq!(all_sessions(&net.sim), 0);
    }
    net.sim.run_for(Duration::from_secs(1));
    assert_eq!(total(&net.sim, "gist", "responses_sent") - before, 2000);
    assert_eq!(total(&net.sim, "gist", "responses_stray"), 2000);
    let responses = net.sim.captured().filter(|c| header(c).kind == MessageType::RESPONSE);
    assert!(responses.map(|c| c.packet.payload.len()).all(|size| size < query.payload.len() + 64));
    assert_eq!(total(&net.sim, "gist", "errors_sent"), sent);
    assert_eq!(all_sessions(&net.sim), 0);
}

/// GIST-3.5-01, GIST-4.3.2-14, GIST-6.1-07: Data without a session creates no session and is answered with an Error,
/// within limits.
#[test]
fn data_without_session_makes_none() {
    let (mut net, _, data) = recorded(2);
    let at = session_at(&net, &data);
    let mut rng = Random::from_number(2);
    let before = total(&net.sim, "gist", "errors_sent");
    for _ in 0..1000 {
        let mut packet = data.clone();
        packet.payload[at..at + 16].copy_from_slice(&rng.array::<16>());
        net.sim.inject(net.links[0], net.nodes[1], packet);
    }
    net.sim.run_for(Duration::from_secs(1));
    assert_eq!(all_sessions(&net.sim), 0);
    let errors = total(&net.sim, "gist", "errors_sent") - before;
    assert!((1..=225).contains(&errors), "{errors} errors");
    assert_eq!(total(&net.sim, "gist", "errors_stray"), errors);
    for error in net.sim.captured().filter(|c| header(c).kind == MessageType::ERROR) {
        assert_eq!(message(error).error.unwrap().error, GistError::NO_ROUTING_STATE);
    }
}

/// Damaged copies of genuine messages cause no crash and no state beyond its lifetime, and the next ping works.
#[test]
fn damaged_messages_do_no_harm() {
    for seed in 0..5 {
        let (mut net, query, data) = recorded(seed);
        let mut rng = Random::from_number(seed);
        for genuine in [&query, &data] {
            for _ in 0..3000 {
                let mut packet = (*genuine).clone();
                for _ in 0..1 + rng.range(0..4) {
                    let length = packet.payload.len() as u64;
                    let at = usize::try_from(rng.range(MAGIC.len() as u64..length)).unwrap();
                    packet.payload[at] = rng.array::<1>()[0];
                }
                if rng.chance(0.1) {
                    let keep = rng.range(0..packet.payload.len() as u64 + 1);
                    packet.payload.truncate(usize::try_from(keep).unwrap());
                }
                let to = if rng.chance(0.5) { net.nodes[1] } else { net.nodes[0] };
                net.sim.inject(net.links[0], to, packet);
            }
            net.sim.run_for(Duration::from_secs(1));
        }
        net.sim.expect("no state", crate::net::QUIET, |sim| all_sessions(sim) == 0);
        net.ping(2, Family::V6, Some(3));
        assert_eq!(net.done(2, Duration::from_secs(30)), (3, 3), "seed {seed}");
    }
}
