//! Soft state: lifetime and refresh.

use signalbox_casp::engine::{Config, Request};
use signalbox_casp::wire::{Body, Flags, Signaling};

use crate::rig::*;

/// CASP-4.4-09: without CASP_TIMEOUT the state lives 30 s. CASP-00-04, CASP-P-09: its clients are informed of its end.
#[test]
fn without_a_timeout_state_lives_thirty_seconds() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    rig.say(up, &Signaling { timeout: None, ..data(CLIENT) });
    rig.take_indicated();
    rig.wait(seconds(29.9));
    assert_eq!((rig.node.session_count(), rig.indicated.len()), (1, 0));
    rig.wait(seconds(0.2));
    assert_eq!(rig.node.session_count(), 0);
    assert_eq!(rig.take_indicated(), [Indicated::Ended { flow: flow(), torn_down: false }]);
    assert_eq!(rig.node.peer_count(), 2, "connections stay");
}

/// CASP-A.2-02, CASP-4.2-06: the state lives as long as CASP_TIMEOUT says after its last refresh.
#[test]
fn the_timeout_is_the_lifetime() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    let sent = Signaling { timeout: Some(7), ..message() };
    rig.say(up, &sent);
    rig.wait(seconds(5.0));
    rig.say(up, &sent);
    rig.wait(seconds(6.9));
    assert_eq!(rig.node.session_count(), 1);
    rig.wait(seconds(0.2));
    assert_eq!(rig.node.session_count(), 0);
}

/// CASPQOS-A.2-23, CASPMID-A-13: a message without CLIENT_DATA refreshes the session and reaches no client, so that it prolongs
/// nothing that a client has.
#[test]
fn a_refresh_without_client_data_reaches_no_client() {
    let mut rig = Rig::new();
    let (up, _) = rig.chain();
    let received = |rig: &mut Rig| {
        let is_message = |one: &Indicated| matches!(one, Indicated::Received(..));
        rig.take_indicated().into_iter().filter(is_message).count()
    };
    rig.say(up, &data(CLIENT));
    assert_eq!(received(&mut rig), 1);
    for _ in 0..10 {
        rig.wait(seconds(60.0));
        rig.say(up, &message());
    }
    assert_eq!((rig.node.session_count(), received(&mut rig)), (1, 0));
}

/// CASP-G-10: the lifetime is capped, 0 counts as 1 s, and the value sent on is never higher than the one received.
#[test]
fn lifetimes_have_limits() {
    for (max, received, lives, sent) in
        [(3600, 0, 1, 0), (3600, 1_000_000_000, 3600, 3600), (20, 90, 20, 20), (100, 90, 90, 90)]
    {
        let mut rig = Rig::with(Config { max_timeout: max, ..config() });
        let up = rig.accept(UP);
        let outputs = rig.say(up, &Signaling { timeout: Some(received), ..message() });
        assert_eq!(rig.state().timeout, lives);
        assert_eq!(only(&outputs, rig.stream_to(DOWN)).message().timeout, Some(sent));
    }
}

/// CASP-G-10: the limit holds for messages without CASP_TIMEOUT too, for the first one and for a refresh.
#[test]
fn the_limit_of_lifetimes_holds_without_a_timeout() {
    let mut rig = Rig::with(Config { max_timeout: 7, ..config() });
    let up = rig.accept(UP);
    let sent = Signaling { timeout: None, ..message() };
    for _ in 0..2 {
        rig.say(up, &sent);
        rig.wait(seconds(6.9));
        assert_eq!(rig.node.session_count(), 1);
    }
    rig.wait(seconds(0.2));
    assert_eq!(rig.node.session_count(), 0);
}

/// CASP-G-10: T makes nothing of the timeout.
#[test]
fn a_tear_down_has_no_lifetime() {
    let mut rig = Rig::new();
    let (up, _) = rig.chain();
    rig.say(up, &flags(Signaling { timeout: Some(3600), ..message() }, Flags::TEAR_DOWN));
    assert_eq!(rig.node.session_count(), 0);
}

/// CASP-G-07, CASP-P-01, CASP-G-08, CASP-00-06: an initiator sends 90 s and refreshes about every 30 s, at random from half
/// of it to one and a half, while its client holds the session.
#[test]
fn an_initiator_refreshes_about_every_thirty_seconds() {
    let mut rig = Rig::with(Config { rediscover: false, ..config() });
    rig.open(true);
    let down = rig.stream_to(DOWN);
    let mut times = vec![rig.now];
    for output in rig.wait(seconds(3600.0)) {
        assert_eq!(
            (output.stream, output.message().timeout, output.message().body),
            (Some(down), Some(90), Body::Empty)
        );
        times.push(output.at);
    }
    let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1].since(pair[0]).as_secs_f64()).collect();
    assert!((100..150).contains(&gaps.len()), "{}", gaps.len());
    assert!(gaps.iter().all(|gap| (14.99..=45.01).contains(gap)), "{gaps:?}");
    let (least, most) = gaps.iter().fold((99.0f64, 0.0f64), |(a, b), gap| (a.min(*gap), b.max(*gap)));
    assert!(least < 22.0 && most > 38.0, "{least} to {most}");
}

/// CASP-G-08: a session that no client holds is not refreshed, and ends.
#[test]
fn a_session_without_a_holder_ends() {
    let mut rig = Rig::new();
    let id = rig.open(false);
    assert!(rig.wait(seconds(89.0)).is_empty());
    assert_eq!(rig.node.session_count(), 1);
    rig.wait(seconds(2.0));
    assert_eq!(rig.node.session_count(), 0);
    let id2 = rig.open(true);
    assert_ne!(id, id2);
    rig.wait(seconds(300.0));
    assert_eq!(rig.node.session_count(), 1);
    rig.request(CLIENT, Request::Hold { session: id2, flow: flow(), on: false });
    rig.wait(seconds(100.0));
    assert_eq!(rig.node.session_count(), 0);
}

/// CASP-P-02, CASP-G-09, CASP-G-08: a forwarder refreshes its next hop while its own state lives, without D, data and error,
/// and not when it sent something else.
#[test]
fn a_forwarder_refreshes_while_its_state_lives() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    rig.say(up, &data(UNKNOWN));
    let down = rig.stream_to(DOWN);
    let outputs = rig.wait(seconds(200.0));
    assert!((1..=5).contains(&outputs.len()), "{}", outputs.len());
    for one in &outputs {
        assert_eq!(one.stream, Some(down));
        let sent = one.message();
        assert_eq!((sent.body, sent.flags, sent.timeout), (Body::Empty, Flags::UNSECURE, Some(90)));
    }
    assert_eq!(rig.node.session_count(), 0);
    // A message each 10 s leaves no interval of half the refresh time.
    rig.say(up, &message());
    for _ in 0..30 {
        rig.wait(seconds(10.0));
        let outputs = rig.say(up, &message());
        assert_eq!(outputs.len(), 1);
    }
    assert_eq!(rig.node.counters().refreshed, u64::try_from(outputs.len()).unwrap());
}

/// CASP-4.4-10: a sender without CASP_TIMEOUT refreshes every 10 s.
#[test]
fn without_timeout_refreshes_come_every_ten_seconds() {
    let mut rig = Rig::with(Config { rediscover: false, send_timeout: false, ..config() });
    rig.open(true);
    let outputs = rig.wait(seconds(1000.0));
    assert!((80..125).contains(&outputs.len()), "{}", outputs.len());
    assert!(outputs.iter().all(|one| one.message().timeout.is_none()));
}

/// CASP-G-34: refreshes of many sessions with one next hop leave in few writes.
#[test]
fn refreshes_of_many_sessions_leave_together() {
    let mut rig = Rig::with(Config { rediscover: false, ..config() });
    for port in 0..1000 {
        let send = signalbox_casp::engine::SendRequest {
            hold: true,
            ..signalbox_casp::engine::SendRequest::new(None, flow_to(DST, port), b"x")
        };
        rig.request(CLIENT, Request::Send(send));
    }
    assert_eq!(rig.opened.len(), 1);
    let outputs = rig.wait(seconds(300.0));
    let mut writes: Vec<usize> = outputs.iter().map(|one| one.write).collect();
    writes.dedup();
    assert!(outputs.len() > 8000, "{}", outputs.len());
    assert!(writes.len() * 20 < outputs.len(), "{} messages in {} writes", outputs.len(), writes.len());
}

/// CASP-G-44: a message against the flow refreshes the state and its most recent previous hop only.
#[test]
fn a_message_against_the_flow_refreshes_the_most_recent_branch() {
    let mut rig = Rig::new();
    let (_, down) = rig.chain();
    let other = rig.accept(OTHER);
    rig.say(other, &message());
    assert_eq!(rig.state().previous.len(), 2);
    for _ in 0..10 {
        rig.wait(seconds(20.0));
        rig.say(down, &flags(message(), Flags::REVERSE));
    }
    let state = rig.state();
    assert_eq!(state.previous.iter().map(|one| one.peer).collect::<Vec<_>>(), [Some(ip(OTHER))]);
}

/// CASP-P-03: the refresh of an initiator makes each node discover again.
#[test]
fn refreshes_discover_again() {
    let mut rig = Rig::new();
    rig.open(true);
    let outputs = rig.wait(seconds(50.0));
    assert!(!scouts(&outputs).is_empty());
    assert!(signaling(&outputs).iter().all(|one| one.message().flags.contains(Flags::DISCOVER)));
}
