//! Channels over SCTP.

use super::super::*;
use super::rig::{CHANNEL, Heard, Rig, SCTP};

fn up() -> (Rig, ChannelId) {
    let mut rig = Rig::plain();
    rig.open(Transport::Sctp, SCTP);
    assert_eq!(rig.client.heard(), [Heard::Connected(CHANNEL, None)]);
    let [Heard::Accepted(theirs, Transport::Sctp, None)] = rig.server.heard()[..] else { panic!() };
    assert_eq!(theirs.0 % 2, 0);
    (rig, theirs)
}

/// Lets time pass, with everything that is due.
fn pass(rig: &mut Rig, time: Duration) {
    let end = rig.now + time;
    loop {
        rig.run();
        let sides = [&rig.client, &rig.server];
        let next = sides.iter().filter_map(|side| side.channels.next_deadline()).min();
        let Some(next) = next.filter(|at| *at <= end) else { break };
        rig.now = rig.now.max(next);
        for side in [&mut rig.client, &mut rig.server] {
            side.channels.timer(rig.now, &mut side.ear);
        }
    }
    rig.now = end;
}

#[test]
fn messages_arrive_whole_and_in_order() {
    let (mut rig, theirs) = up();
    let messages: Vec<Vec<u8>> = (1..40u8).map(|n| vec![n; usize::from(n) * 1000]).collect();
    for message in &messages {
        rig.client_sends(message);
    }
    pass(&mut rig, Duration::from_secs(10));
    let whole = messages.into_iter().map(|message| Heard::Octets(theirs, message));
    assert_eq!(rig.server.heard(), whole.collect::<Vec<_>>());
}

#[test]
fn what_cannot_leave_is_told_until_it_does() {
    let (mut rig, _) = up();
    for _ in 0..5 {
        rig.client_sends(&[1; 60_000]);
    }
    let held = rig.client.heard();
    assert!(held.iter().all(|h| matches!(h, Heard::Drained(CHANNEL, 1..))), "{held:?}");
    assert!(!held.is_empty());
    pass(&mut rig, Duration::from_secs(10));
    assert_eq!(rig.client.heard().last(), Some(&Heard::Drained(CHANNEL, 0)));
}

#[test]
fn a_reader_that_pauses_gets_everything_later() {
    let (mut rig, theirs) = up();
    let server = &mut rig.server;
    server.channels.read(rig.now, theirs, false, &mut server.ear);
    for n in 0..10u8 {
        rig.client_sends(&[n; 100]);
    }
    pass(&mut rig, Duration::from_secs(5));
    assert!(rig.server.heard().is_empty());
    let server = &mut rig.server;
    server.channels.read(rig.now, theirs, true, &mut server.ear);
    assert_eq!(server.heard().len(), 10);
}

#[test]
fn ends_are_told_by_their_reason() {
    let (mut rig, theirs) = up();
    rig.client_sends(b"last");
    rig.client.channels.close(rig.now, CHANNEL, false);
    pass(&mut rig, Duration::from_secs(60));
    let end = Heard::Closed(theirs, ChannelClosed::Orderly, false);
    assert_eq!(rig.server.heard(), [Heard::Octets(theirs, b"last".to_vec()), end]);
    assert_eq!((rig.client.channels.len(), rig.server.channels.len()), (0, 0));

    let (mut rig, theirs) = up();
    rig.client.channels.close(rig.now, CHANNEL, true);
    pass(&mut rig, Duration::from_secs(60));
    assert!(matches!(rig.server.heard()[..], [Heard::Closed(t, ChannelClosed::Reset, _)] if t == theirs));
    assert!(rig.client.heard().is_empty(), "who closes hears nothing more");

    let mut rig = Rig::plain();
    rig.open(Transport::Sctp, SCTP + 1);
    pass(&mut rig, Duration::from_secs(60));
    assert_eq!(rig.client.heard(), [Heard::Closed(CHANNEL, ChannelClosed::Refused, false)]);
    assert_eq!(rig.client.channels.len(), 0);
}

#[test]
fn a_peer_that_does_not_answer_is_given_up() {
    let mut rig = Rig::plain();
    rig.client_opens(Transport::Sctp, SCTP);
    let client = &mut rig.client;
    while let Some(deadline) = client.channels.next_deadline() {
        client.channels.timer(deadline, &mut client.ear);
        let _ = client.downs();
    }
    assert_eq!(client.heard(), [Heard::Closed(CHANNEL, ChannelClosed::TimedOut, false)]);
    assert_eq!(client.channels.len(), 0);
}
