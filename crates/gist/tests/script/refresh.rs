//! Refreshes that travel along the path (RFC 5971 §4.4.4): a node between others refreshes when it is refreshed.

use signalbox_core::Direction;
use signalbox_core::service::NetworkEvent;
use signalbox_gist::engine::Config;
use signalbox_gist::wire::MessageType;

use crate::rig::*;

/// A node between two peers, with state in both directions.
fn relay() -> Rig {
    let mut rig =
        Rig::with(Config { inactivity: core::time::Duration::from_secs(1000), ..Config::default() });
    rig.responding();
    rig.established_for(through());
    rig
}

/// A complete refresh by the upstream peer.
fn refreshed(rig: &mut Rig, number: u8) {
    rig.query_numbered(number, None);
    let response = rig.sent().is(MessageType::RESPONSE);
    rig.confirm(&response);
}

/// GIST-7.1.2-01: the refresh is passed on at the same instant, so that state further along the path
/// does not end before that of this node. It is not passed on again for a refresh shortly after it.
#[test]
fn a_refresh_is_passed_on() {
    let mut rig = relay();
    rig.until(400);
    refreshed(&mut rig, 2);
    rig.quiet();
    for (number, at) in [(3, 1_000), (4, 15_100), (5, 16_000), (6, 45_500)] {
        rig.until(at);
        refreshed(&mut rig, number);
        let query = rig.sent().is(MessageType::QUERY);
        rig.respond(&query);
        rig.sent().is(MessageType::CONFIRM);
        rig.until(at + 400);
        refreshed(&mut rig, number + 10);
        rig.quiet();
    }
    let view = rig.session();
    for half in [view.upstream, view.downstream] {
        assert!(half.unwrap().expires_in.unwrap().as_millis() > 29_000);
    }
}

/// GIST-4.4.4-08: this node does not refresh its peer by its own timer while it waits for its own refresh. Otherwise,
/// on an old branch, the refresh would make it the peer again at the node where the branches meet.
#[test]
fn there_is_no_last_word() {
    for refreshed_at in [1_000, 7_000, 14_000, 22_000] {
        let mut rig = relay();
        rig.until(refreshed_at);
        refreshed(&mut rig, 2);
        let query = rig.sent().is(MessageType::QUERY);
        rig.respond(&query);
        rig.sent().is(MessageType::CONFIRM);
        rig.until(refreshed_at + 29_980);
        rig.quiet();
        rig.until(refreshed_at + 30_020);
        rig.no_state();
    }
}

/// GIST-4.4.4-08: this node is not refreshed, so it does not refresh its peer: both states expire.
#[test]
fn without_refresh_from_upstream_there_is_none_downstream() {
    let mut rig = relay();
    rig.until(29_990);
    rig.quiet();
    rig.until(30_010);
    let mut ended = [rig.notified(), rig.notified()];
    ended.sort_by_key(|(direction, _)| *direction == Direction::Upstream);
    let bad = NetworkEvent::Bad;
    assert_eq!(ended, [(Direction::Downstream, bad), (Direction::Upstream, bad)]);
    rig.no_state();
}

/// A late refresh from upstream is passed on when it arrives.
#[test]
fn a_late_refresh_is_passed_on() {
    let mut rig = relay();
    rig.until(28_000);
    rig.quiet();
    refreshed(&mut rig, 2);
    rig.sent().is(MessageType::QUERY);
}

/// A peer that requires more frequent refreshes than this node receives gets them in between.
#[test]
fn a_shorter_time_downstream_has_its_own_timer() {
    let mut rig = Rig::new();
    rig.responding();
    rig.send(b"data", through());
    let query = rig.sent();
    let short = |m: &mut signalbox_gist::wire::Message<'_>| {
        m.nli = Some(signalbox_gist::wire::Nli { validity_ms: 8_000, ..nli(b"down", DOWN) });
    };
    rig.respond_with(&query, short);
    rig.out.clear();
    for refresh in 1..=3 {
        rig.until(refresh * 6000 + 20);
        let query = rig.sent().is(MessageType::QUERY);
        rig.respond_with(&query, short);
        rig.sent().is(MessageType::CONFIRM);
        rig.quiet();
    }
}
