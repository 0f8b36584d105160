//! What those see who watch: sessions, peers and messaging associations, as they appear, change and disappear.

use core::time::Duration;

use signalbox_core::SessionEvent;

use crate::rig::*;

/// What happened to sessions, and to peers (whether each one appeared).
fn seen(rig: &mut Rig) -> (Vec<SessionEvent>, Vec<bool>) {
    let (mut sessions, mut peers) = (Vec::new(), Vec::new());
    while let Some(change) = rig.gist.changes().take() {
        sessions.push(change.what);
    }
    while let Some(change) = rig.gist.peer_changes().take() {
        peers.push(change.appeared);
    }
    (sessions, peers)
}

fn watched() -> Rig {
    let mut rig = Rig::new();
    rig.gist.changes().watch(true);
    rig.gist.peer_changes().watch(true);
    rig.gist.association_changes().watch(true);
    rig
}

#[test]
fn a_session_opens_changes_and_closes_and_its_peer_goes_after_it() {
    let mut rig = watched();
    rig.established();
    assert_eq!(seen(&mut rig), (vec![SessionEvent::Opened, SessionEvent::Changed], vec![true]));
    rig.lifetime(own(), Some(SESSION), Duration::ZERO);
    let (sessions, _) = seen(&mut rig);
    assert_eq!(sessions, [SessionEvent::Closed]);
    // Its SII handle stays valid for some time.
    let retention = signalbox_gist::engine::Config::default().sii_retention;
    rig.until(rig.ms() + u64::try_from(retention.as_millis()).unwrap() + 1_000);
    assert_eq!(seen(&mut rig), (vec![], vec![false]));
}

#[test]
fn a_refresh_that_is_answered_is_no_change() {
    let mut rig = watched();
    rig.responding();
    assert_eq!(seen(&mut rig).0, [SessionEvent::Opened, SessionEvent::Changed]);
    rig.query(None);
    let response = rig.sent();
    if response.message().header.r {
        rig.confirm(&response);
    }
    assert_eq!(seen(&mut rig), (vec![], vec![]));
}

#[test]
fn nothing_is_kept_without_a_watch() {
    let mut rig = Rig::new();
    rig.established();
    assert_eq!(seen(&mut rig), (vec![], vec![]));
    assert_eq!(rig.gist.association_changes().take(), None);
}
