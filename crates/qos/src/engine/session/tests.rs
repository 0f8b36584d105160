use signalbox_core::mri::PathCoupled;
use signalbox_core::rare::Empty as _;

use super::*;

fn session() -> Session {
    let mri = Mri::PathCoupled(PathCoupled::between([192, 0, 2, 1].into(), [192, 0, 2, 2].into()));
    Session::new(SessionId::default(), &mri, NslpId::QOS, 30_000, Arc::new(Source::of(None)))
}

/// The record of a session, without its part of the tables. Its QSPEC is shared, its lists are empty as a rule.
#[test]
fn a_session_is_small() {
    assert_eq!((size_of::<Option<Session>>(), size_of::<Option<Passed>>()), (240, 16));
}

/// GIST's peers have memory of their own only while they are others than those of the session.
#[test]
fn a_peer_that_gist_does_not_lead_to_needs_explicit_routing() {
    let (mut session, [one, other]) = (session(), [SiiHandle(0), SiiHandle(1)]);
    session.set_gist_previous(Some(one));
    assert_eq!((session.previous_peer(), session.explicit_previous()), (None, None));
    session.set_previous_peer(Some(one));
    assert_eq!((session.explicit_previous(), &*session.rare), (None, &RareFields::EMPTY));
    session.set_previous_peer(Some(other));
    assert_eq!(session.explicit_previous(), Some(other), "GIST still leads to the first one");
    session.set_gist_previous(None);
    assert_eq!((session.explicit_previous(), &*session.rare), (None, &RareFields::EMPTY));

    session.direction = Direction::Upstream;
    session.set_next_peer(Some(one));
    session.set_gist_next(Some(other));
    assert_eq!((session.next_peer(), session.explicit_next()), (Some(one), Some(one)));
    session.set_next_peer(Some(other));
    assert_eq!((session.explicit_next(), &*session.rare), (None, &RareFields::EMPTY));
}

#[test]
fn the_oldest_of_many_forwarded_requests_is_removed() {
    let (mut session, now) = (session(), Time::from_secs(1));
    let until = Time::from_secs(2);
    session.note(1, until, 9);
    session.note(1, until, 9);
    assert!(session.passed_before.is_empty(), "a single one is in the record");
    (2..=9).for_each(|rii| session.note(rii, until, 9));
    let known = |session: &Session| (1..=9).filter(|rii| session.passed(now, *rii)).collect::<Vec<_>>();
    assert_eq!((known(&session), session.last_forwarded()), ((2..=9).collect(), Some(9)));
    session.note(4, until, 9);
    assert_eq!((known(&session), session.last_forwarded()), ((2..=9).collect(), Some(4)));
    assert!(session.has_rii(2) && !session.has_rii(1) && !session.passed(until, 4));
}
