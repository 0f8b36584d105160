//! What strangers can make a node hold.

use signalbox_core::node::StreamKind;

use super::super::*;
use super::rig::{CLIENT, Command, Reported, Rig, SERVER, TLS};

fn connect(rig: &mut Rig, number: u64) {
    connect_from(rig, number, CLIENT);
}

fn connect_from(rig: &mut Rig, number: u64, from: IpAddr) {
    let (local, peer) = (SocketAddr::new(SERVER, TLS), SocketAddr::new(from, 40_000));
    let server = &mut rig.server;
    server.channels.accepted(
        rig.now,
        (StreamId(2 * number), StreamKind::Tcp),
        local,
        peer,
        &mut server.reports,
    );
}

#[test]
fn handshakes_without_a_peer_are_few_and_end_in_time() {
    let mut rig = Rig::tls();
    for number in 0..1000 {
        connect(&mut rig, number);
    }
    let server = &mut rig.server;
    // A quarter is left for other sources.
    assert_eq!((server.channels.len(), server.channels.counters.handshakes_refused), (192, 808));
    let downs = server.downs();
    let resets = downs.iter().filter(|down| matches!(down, Command::Close(_, true))).count();
    assert_eq!((resets, downs.len()), (808, 808));
    for number in 0..64 {
        let from = IpAddr::from([198, 51, 100, u8::try_from(number).unwrap()]);
        connect_from(&mut rig, 2000 + number, from);
    }
    let server = &mut rig.server;
    assert_eq!((server.channels.len(), server.downs().len()), (256, 0));
    let deadline = server.channels.next_deadline().unwrap();
    assert_eq!(deadline, rig.now + Duration::from_secs(10));
    server.channels.timer(deadline, &mut server.reports);
    assert_eq!((server.channels.len(), server.channels.handshakes.total()), (0, 0));
    assert_eq!((server.channels.next_deadline(), server.channels.counters.handshakes_failed), (None, 256));
    assert!(server.reported().is_empty(), "the user receives no event of them");
    let _ = server.downs();
    // And now there is room again.
    rig.open(Transport::TlsTcp, TLS);
    assert!(matches!(rig.server.reported()[..], [Reported::Accepted(..)]));
}

#[test]
fn a_peer_without_tls_or_that_leaves_has_no_state() {
    let mut rig = Rig::tls();
    for number in 0..1000 {
        connect(&mut rig, number);
        let (now, server, stream) = (rig.now, &mut rig.server, StreamId(2 * number));
        match number % 3 {
            0 => server.channels.octets(now, stream, b"GET / HTTP/1.1\r\n\r\n", &mut server.reports),
            1 => server.channels.closed(now, stream, Some(StreamError::Reset), false, &mut server.reports),
            _ => server.channels.closed(now, stream, None, false, &mut server.reports),
        }
        assert_eq!((server.channels.len(), server.channels.handshakes.total()), (0, 0));
        let _ = server.downs();
    }
    assert_eq!(rig.server.channels.counters.handshakes_failed, 1000);
    assert!(rig.server.reported().is_empty());
}
