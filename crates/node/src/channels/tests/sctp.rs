//! Channels over SCTP.

use super::super::*;
use super::rig::{CHANNEL, CLIENT, Command, KNOWN, Reported, Rig, SCTP, SERVER, of_sctp};

fn up() -> (Rig, StreamId) {
    let mut rig = Rig::plain();
    rig.open(Transport::Sctp, SCTP);
    assert_eq!(rig.client.reported(), [Reported::Connected(CHANNEL, None)]);
    let [Reported::Accepted(theirs, Transport::Sctp, None)] = rig.server.reported()[..] else { panic!() };
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
            side.channels.timer(rig.now, &mut side.reports);
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
    let whole = messages.into_iter().map(|message| Reported::Octets(theirs, message));
    assert_eq!(rig.server.reported(), whole.collect::<Vec<_>>());
}

#[test]
fn what_cannot_leave_is_reported_until_it_does() {
    let (mut rig, _) = up();
    for _ in 0..5 {
        rig.client_sends(&[1; 60_000]);
    }
    let held = rig.client.reported();
    assert!(matches!(held.last(), Some(Reported::Drained(CHANNEL, 1..))), "{held:?}");
    pass(&mut rig, Duration::from_secs(10));
    assert_eq!(rig.client.reported().last(), Some(&Reported::Drained(CHANNEL, 0)));
}

/// A peer that goes on sending fills the window and then has to wait; nothing is lost.
#[test]
fn a_reader_that_pauses_gets_everything_later() {
    let (mut rig, theirs) = up();
    let server = &mut rig.server;
    server.channels.read(rig.now, theirs, false, &mut server.reports);
    let mut sent = 0;
    for _ in 0..200 {
        rig.client_sends(&[7; 10_000]);
        sent += 1;
        pass(&mut rig, Duration::from_millis(50));
        if rig.client.reported().iter().any(|reported| matches!(reported, Reported::Drained(_, 100_000..))) {
            break;
        }
    }
    assert!((100..200).contains(&sent), "the window is 1 MiB: {sent} messages of 10,000 octets");
    assert!(rig.server.reported().is_empty());
    let server = &mut rig.server;
    server.channels.read(rig.now, theirs, true, &mut server.reports);
    pass(&mut rig, Duration::from_secs(60));
    assert_eq!(rig.server.reported().len(), sent);
    assert_eq!(rig.client.reported().last(), Some(&Reported::Drained(CHANNEL, 0)));
}

/// The streams of the DATA chunks that the client's packets hold (RFC 9260 §3.3.1).
fn streams(rig: &mut Rig) -> Vec<u16> {
    let mut found = Vec::new();
    for command in rig.client.downs() {
        let Command::Sctp(packet) = &command else { continue };
        let mut rest = &packet[12..];
        while let [kind, _, high, low, ..] = *rest {
            let length = usize::from(u16::from_be_bytes([high, low]));
            if kind == 0 {
                found.push(u16::from_be_bytes([rest[8], rest[9]]));
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        }
        rig.carry(true, command, SCTP);
    }
    found
}

/// [SCTP-3.2-02] One number of the user, one stream. [SCTP-3.2-01], [SCTP-5.2-01] The stream depends on that number only, so
/// it is the same in both directions; other numbers take other streams. [SCTP-3.2-03] There are more numbers than streams.
#[test]
fn messages_of_one_number_keep_their_stream() {
    let (mut rig, theirs) = up();
    let mut exchange = |number| {
        rig.client_sends_how((number, None), b"from the client");
        let [stream] = streams(&mut rig)[..] else { panic!("one DATA chunk") };
        pass(&mut rig, Duration::from_secs(1));
        let server = &mut rig.server;
        let sent = server.channels.send(rig.now, theirs, (number, None), b"back");
        server.channels.after_send(rig.now, theirs, sent, &mut server.reports);
        let (commands, mut back) = (rig.server.downs(), None);
        for command in commands {
            if let Command::Sctp(packet) = &command
                && packet[12] == 0
            {
                back = Some(u16::from_be_bytes([packet[20], packet[21]]));
            }
            rig.carry(false, command, SCTP);
        }
        assert_eq!(back, Some(stream));
        pass(&mut rig, Duration::from_secs(1));
        stream
    };
    let (one, two, again) = (exchange(5), exchange(6), exchange(5));
    assert_eq!(one, again);
    assert_ne!(one, two);
    assert_eq!(exchange(5 + 64), one, "64 streams for 65,536 numbers");
}

/// [SCTP-3.4-01] The time for which a message is worth sending is that of partial reliability: on a network that takes
/// nothing it is given up, and FORWARD-TSN says so (RFC 3758).
#[test]
fn a_message_that_is_too_late_is_given_up() {
    let (mut rig, theirs) = up();
    rig.client_sends_how((1, Some(Duration::from_secs(2))), b"soon");
    rig.client.downs(); // lost
    let (end, mut forward) = (rig.now + Duration::from_secs(20), false);
    while let Some(next) = rig.client.channels.next_deadline().filter(|at| *at < end) {
        rig.now = rig.now.max(next);
        let late = rig.now > Time::from_secs(3);
        rig.client.channels.timer(rig.now, &mut rig.client.reports);
        for command in rig.client.downs() {
            let Command::Sctp(packet) = &command else { continue };
            forward |= packet[12] == 192;
            if late {
                rig.carry(true, command, SCTP);
            }
        }
        if late {
            rig.run();
        }
    }
    assert!(forward);
    rig.client_sends_how((1, None), b"whenever");
    pass(&mut rig, Duration::from_secs(120));
    assert_eq!(rig.server.reported(), [Reported::Octets(theirs, b"whenever".to_vec())]);
}

#[test]
fn ends_have_their_reason() {
    let (mut rig, theirs) = up();
    rig.client_sends(b"last");
    rig.client.channels.close(rig.now, CHANNEL, false);
    pass(&mut rig, Duration::from_secs(60));
    let end = Reported::Closed(theirs, Closed::Orderly, false);
    assert_eq!(rig.server.reported(), [Reported::Octets(theirs, b"last".to_vec()), end]);
    assert_eq!((rig.client.channels.len(), rig.server.channels.len()), (0, 0));

    let (mut rig, theirs) = up();
    rig.client.channels.close(rig.now, CHANNEL, true);
    pass(&mut rig, Duration::from_secs(60));
    assert!(matches!(rig.server.reported()[..], [Reported::Closed(t, Closed::Reset, _)] if t == theirs));
    assert!(rig.client.reported().is_empty(), "the side that closes receives no further event");

    let mut rig = Rig::plain();
    rig.open(Transport::Sctp, SCTP + 1);
    pass(&mut rig, Duration::from_secs(60));
    assert_eq!(rig.client.reported(), [Reported::Closed(CHANNEL, Closed::Refused, false)]);
    assert_eq!(rig.client.channels.len(), 0);
}

#[test]
fn a_peer_that_does_not_answer_is_given_up() {
    let mut rig = Rig::plain();
    rig.client_opens(Transport::Sctp, SCTP);
    let client = &mut rig.client;
    while let Some(deadline) = client.channels.next_deadline() {
        client.channels.timer(deadline, &mut client.reports);
        let _ = client.downs();
    }
    assert_eq!(client.reported(), [Reported::Closed(CHANNEL, Closed::TimedOut, false)]);
    assert_eq!(client.channels.len(), 0);
}

/// (T17) While INITs of forged sources use up the rate, a node of which the user has state gets an answer, and another one on the same
/// link does not.
#[test]
fn known_nodes_get_associations_beside_forged_inits() {
    let mut rig = Rig::plain();
    rig.client_opens(Transport::Sctp, SCTP);
    let [Command::Sctp(init)] = &rig.client.downs()[..] else { panic!("an INIT") };
    let now = rig.now;
    let side = &mut rig.server;
    let mut answers = |source| {
        side.channels.sctp_packet(now, of_sctp([source, SERVER], init), &mut side.reports);
        side.downs().len()
    };
    let answered: usize = (0..5000u32).map(|n| answers(IpAddr::from((0x0a00_0000 + n).to_be_bytes()))).sum();
    assert!((750..=760).contains(&answered), "{answered}");
    assert_eq!((answers(CLIENT), answers(KNOWN)), (0, 1));
}
