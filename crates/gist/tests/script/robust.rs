//! Bad input: every message, truncated at every length and changed at every octet, is harmless in every state.

use signalbox_gist::engine::{Config, Installation, PeeringPolicy};
use signalbox_gist::wire::{GistError, MessageType};

use crate::rig::*;

/// Messages of every type that fit the state of `base`.
fn messages(query: &Packet, response: &Packet) -> Vec<(Via, Vec<u8>)> {
    let mut list = Vec::new();
    let mut asked = self::query(through(), &[2; 8]);
    asked.nslp_data = Some(b"data");
    list.push((Via::intercepted(SRC, DST), encode(&asked)));
    let answer = peer(b"down", DOWN).response_with(&query.message(), b"cookie..");
    list.push((Via::direct(DOWN, RIGHT), encode(&answer)));
    list.push((Via::direct(UP, LEFT), encode(&peer(b"up", UP).confirm(&response.message()))));
    list.push((Via::direct(UP, LEFT), encode(&data(through(), nli(b"up", UP), b"data"))));
    list
}

fn prepared(installation: Installation) -> (Rig, Vec<(Via, Vec<u8>)>) {
    let config = Config { installation, error_rate: 1_000_000, dmode_rate: 0, ..Config::default() };
    let mut rig = Rig::asking(config, PeeringPolicy::Always);
    rig.query(None);
    let response = rig.sent();
    rig.send(b"data", own());
    let query = rig.out.iter().find_map(|(_, out)| match out {
        Out::Sent(packet) if packet.message().header.kind == MessageType::QUERY => Some(packet.clone()),
        _ => None,
    });
    rig.out.clear();
    let list = messages(&query.unwrap(), &response);
    (rig, list)
}

/// A truncated message changes no state, in any state.
#[test]
fn cut_at_every_length() {
    for installation in [Installation::Immediate, Installation::Confirmed, Installation::Delayed] {
        let (mut rig, list) = prepared(installation);
        let before = format!("{:?}", rig.gist.sessions().collect::<Vec<_>>());
        for (via, octets) in &list {
            for length in 0..octets.len() {
                rig.packet(via, &octets[..length]);
                assert_eq!(format!("{:?}", rig.gist.sessions().collect::<Vec<_>>()), before);
                for (_, out) in rig.out.drain(..) {
                    let Out::Sent(packet) = out else { panic!("{out:?}") };
                    if packet.dst != via.dst {
                        assert_eq!(packet.message().header.kind, MessageType::ERROR);
                    }
                }
            }
        }
    }
}

/// Every octet is changed, in every state: there is no panic, and the node works afterwards. A valid Query is answered,
/// and time passes without an endless run of timers.
#[test]
fn changed_at_every_octet() {
    for installation in [Installation::Immediate, Installation::Confirmed, Installation::Delayed] {
        let (mut rig, list) = prepared(installation);
        for (via, octets) in &list {
            for at in 0..octets.len() {
                for mask in [1, 0x80, 0xff] {
                    let mut bent = octets.clone();
                    bent[at] ^= mask;
                    rig.packet(via, &bent);
                }
            }
        }
        rig.out.clear();
        rig.query_numbered(3, None);
        rig.sent().is(MessageType::RESPONSE);
        rig.until(400_000);
        rig.no_state();
        assert_eq!(rig.gist.peers().count(), 0);
    }
}

/// Errors about every message, with every code of the catalogue, in every state.
#[test]
fn every_error_in_every_state() {
    for error in GistError::CATALOGUE {
        let mut rig = Rig::with(Config { error_rate: 1_000_000, dmode_rate: 0, ..Config::default() });
        let response = rig.responding();
        let (query, data) = rig.established_for(through());
        for about in [&response, &query, &data] {
            rig.error(UP, *error, about);
            rig.error(DOWN, *error, about);
        }
        assert!(rig.out.iter().all(|(_, out)| match out {
            Out::Sent(packet) => packet.message().header.kind != MessageType::ERROR,
            _ => true,
        }));
        rig.until(400_000);
        rig.no_state();
    }
}

/// The same seed and the same inputs give the same outputs.
#[test]
fn runs_repeat() {
    let run = || {
        let mut rig = Rig::new();
        rig.responding();
        rig.send(b"data", through());
        rig.until(100_000);
        format!("{:?}", rig.out)
    };
    assert_eq!(run(), run());
}
