//! Channels of two nodes, joined by streams that deliver at once.

mod bounds;
mod kernel_sctp;
mod rig;
mod sctp;
mod tls;

use signalbox_core::node::{StreamError, StreamKind};

use std::net::Ipv4Addr;

use signalbox_core::IfIndex;

use self::rig::{CHANNEL, Command, Reported, Rig, SCTP, TCP, TLS};
use super::*;

#[test]
fn plain_channels_are_streams_as_they_are() {
    let mut rig = Rig::plain();
    rig.open(Transport::Tcp, TCP);
    assert_eq!(rig.client.reported(), [Reported::Connected(CHANNEL, None)]);
    let [Reported::Accepted(theirs, Transport::Tcp, None)] = rig.server.reported()[..] else { panic!() };
    rig.client_sends(b"one");
    rig.client_sends(b"two");
    assert_eq!(rig.server.reported(), [b"one", b"two"].map(|o| Reported::Octets(theirs, o.to_vec())));
    rig.client.channels.close(rig.now, CHANNEL, false);
    rig.run();
    assert_eq!(rig.server.reported(), [Reported::Closed(theirs, Closed::Orderly, false)]);
    assert_eq!((rig.client.channels.len(), rig.server.channels.len()), (0, 0));
    assert!(rig.client.reported().is_empty(), "the side that closes receives no further event");
}

#[test]
fn every_failure_of_a_stream_is_reported_once_with_its_reason() {
    let reasons = [
        (StreamError::Refused, Closed::Refused),
        (StreamError::TimedOut, Closed::TimedOut),
        (StreamError::Unreachable, Closed::Reset),
        (StreamError::Reset, Closed::Reset),
        (StreamError::Other, Closed::Reset),
    ];
    for transport in [Transport::Tcp, Transport::TlsTcp] {
        for (error, reason) in reasons {
            let mut rig = Rig::tls();
            rig.client_opens(transport, TCP);
            for _ in 0..2 {
                let (stream, error) = (StreamId(CHANNEL.0), Some(error));
                let client = &mut rig.client;
                client.channels.closed(rig.now, stream, error, true, &mut client.reports);
            }
            assert_eq!(rig.client.reported(), [Reported::Closed(CHANNEL, reason, true)]);
            assert_eq!((rig.client.channels.len(), rig.client.channels.next_deadline()), (0, None));
        }
    }
}

#[test]
fn the_ports_are_listened_at_once_and_others_reset() {
    let mut rig = Rig::tls();
    for _ in 0..2 {
        rig.server.channels.listen();
    }
    let ports: Vec<_> = rig.server.downs().into_iter().map(|down| format!("{down:?}")).collect();
    assert_eq!(ports, ["Listen(Tcp, 270)", "Listen(Tcp, 271)"]);
    rig.open(Transport::Tcp, 999);
    assert_eq!(rig.client.reported().last(), Some(&Reported::Closed(CHANNEL, Closed::Reset, false)));
    assert!(rig.server.reported().is_empty());
}

/// A port that cannot be had is tried again, less and less often, and the user is informed when it can be offered.
#[test]
fn a_port_that_is_taken_is_tried_again() {
    let mut rig = Rig::plain();
    let side = &mut rig.server;
    side.channels.listen();
    let failed = vec![Reported::Listening(Transport::Tcp, false)];
    let mut now = rig.now;
    side.downs();
    side.channels.listen_failed(now, (StreamKind::Tcp, 999), &mut side.reports);
    side.channels.listen_failed(now, (StreamKind::Tcp, TCP), &mut side.reports);
    assert_eq!(side.reported(), failed);
    for pause in [1, 2, 4, 8, 16, 32, 64, 64] {
        let due = side.channels.next_deadline().unwrap();
        assert_eq!(due.since(now), Duration::from_secs(pause));
        now = due;
        side.channels.timer(now, &mut side.reports);
        assert_eq!(side.downs(), [Command::Listen(StreamKind::Tcp, TCP)]);
        assert!(side.reported().is_empty());
        side.channels.listen_failed(now, (StreamKind::Tcp, TCP), &mut side.reports);
        assert_eq!(side.reported(), failed);
    }
    now = now + Duration::from_secs(64);
    side.channels.timer(now, &mut side.reports);
    assert_eq!(side.downs(), [Command::Listen(StreamKind::Tcp, TCP)]);
    side.channels.timer(now + Duration::from_secs(1), &mut side.reports);
    assert_eq!(side.reported(), [Reported::Listening(Transport::Tcp, true)]);
    assert_eq!(side.channels.next_deadline(), None);
}

/// A channel is closed when its local address is removed from the node, also if the driver chose that address. A channel at another
/// address stays open. A channel whose interface is down stays open, too.
#[test]
fn a_channel_whose_address_is_taken_away_is_closed() {
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 77));
    let interface = |up, addresses: &[IpAddr]| Interface {
        ifindex: IfIndex(1),
        name: "eth0".to_owned(),
        up,
        mtu: 1500,
        tunnel: false,
        addresses: addresses.to_vec(),
    };
    for (transport, port) in [(Transport::Tcp, TCP), (Transport::TlsTcp, TLS), (Transport::Sctp, SCTP)] {
        let mut rig = Rig::tls();
        let now = rig.now;
        let set = |side: &mut rig::Side, up, addresses: &[IpAddr]| {
            side.channels.interfaces(now, &[interface(up, addresses)], &mut side.reports);
        };
        set(&mut rig.client, true, &[rig::CLIENT, OTHER]);
        set(&mut rig.server, true, &[rig::SERVER]);
        rig.open(transport, port);
        assert!(matches!(rig.client.reported()[..], [Reported::Connected(..)]), "{transport:?}");
        rig.server.reported();
        set(&mut rig.client, false, &[rig::CLIENT, OTHER]);
        set(&mut rig.client, true, &[rig::CLIENT]);
        assert!(rig.client.reported().is_empty(), "{transport:?}");
        set(&mut rig.client, true, &[OTHER]);
        assert_eq!(rig.client.reported(), [Reported::Closed(CHANNEL, Closed::Reset, true)], "{transport:?}");
        assert_eq!(rig.client.channels.len(), 0);
        rig.run_to(port);
        // The same at the end that accepted it.
        let mut rig = Rig::tls();
        set(&mut rig.server, true, &[rig::SERVER]);
        rig.open(transport, port);
        rig.server.reported();
        set(&mut rig.server, true, &[]);
        assert!(
            matches!(rig.server.reported()[..], [Reported::Closed(_, Closed::Reset, true)]),
            "{transport:?}"
        );
    }
}

#[test]
fn what_is_said_of_unknown_channels_is_ignored() {
    let mut rig = Rig::plain();
    let now = rig.now;
    let side = &mut rig.client;
    for number in [0, 1, 7, u64::MAX] {
        let (stream, channel) = (StreamId(number), StreamId(number));
        side.channels.connected(now, stream, rig::CLIENT, &mut side.reports);
        side.channels.octets(now, stream, b"x", &mut side.reports);
        side.channels.drained(now, stream, 1, &mut side.reports);
        side.channels.closed(now, stream, None, false, &mut side.reports);
        assert_eq!(side.channels.send(now, channel, (0, None), b"x"), Sent::Done);
        side.channels.read(now, channel, true, &mut side.reports);
        side.channels.close(now, channel, true);
    }
    side.channels.sctp_packet(now, rig::of_sctp([rig::CLIENT, rig::SERVER], b"x"), &mut side.reports);
    assert!(side.reported().is_empty() && side.downs().is_empty());
    // Odd names are the node's.
    let local = SocketAddr::new(rig::CLIENT, TCP);
    side.channels.accepted(now, (StreamId(1), StreamKind::Tcp), local, local, &mut side.reports);
    assert!(side.reported().is_empty());
}
