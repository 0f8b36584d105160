//! Channels over SCTP of the kernel, which the driver gives as streams.

use signalbox_core::node::StreamKind;

use super::super::*;
use super::rig::{CHANNEL, Command, Reported, Rig, SCTP, TCP, TLS};

fn rig() -> Rig {
    let config = || ChannelConfig { kernel_sctp: true, ..ChannelConfig::default() };
    Rig::with(config(), config())
}

#[test]
fn an_association_is_a_stream_whose_messages_keep_their_sctp_streams() {
    let mut rig = rig();
    rig.client_opens(Transport::Sctp, SCTP);
    let commands = rig.client.downs();
    assert_eq!(commands, [Command::Open(StreamId(CHANNEL.0), StreamKind::Sctp)]);
    commands.into_iter().for_each(|command| rig.carry(true, command, SCTP));
    assert_eq!(rig.client.reported(), [Reported::Connected(CHANNEL, None)]);
    let [Reported::Accepted(theirs, Transport::Sctp, None)] = rig.server.reported()[..] else { panic!() };
    for (sctp_stream, message) in [(7, b"one".as_slice()), (300, b"two")] {
        rig.client_sends_how((sctp_stream, Some(Duration::from_secs(1))), message);
        let commands = rig.client.downs();
        assert_eq!(commands, [Command::Message(StreamId(CHANNEL.0), sctp_stream, message.to_vec())]);
        commands.into_iter().for_each(|command| rig.carry(true, command, SCTP));
        assert_eq!(rig.server.reported(), [Reported::Octets(theirs, message.to_vec())]);
    }
    rig.client.channels.close(rig.now, CHANNEL, false);
    rig.run();
    assert_eq!(rig.server.reported(), [Reported::Closed(theirs, Closed::Orderly, false)]);
    assert_eq!((rig.client.channels.len(), rig.server.channels.len()), (0, 0));
    let mut counters = Vec::new();
    rig.client.channels.count_sctp(&mut counters);
    assert!(counters.is_empty());
}

#[test]
fn kinds_that_share_a_port_number_are_distinguished() {
    let mut rig = rig();
    let (now, side) = (rig.now, &mut rig.server);
    side.channels.listen();
    let ports = [(StreamKind::Tcp, TCP), (StreamKind::Tcp, TLS), (StreamKind::Sctp, SCTP)];
    assert_eq!(side.downs(), ports.map(|(kind, port)| Command::Listen(kind, port)));
    // TCP at SCTP's port, and the other way round: there was no request for either.
    for (number, kind, port) in [(2, StreamKind::Tcp, SCTP), (4, StreamKind::Sctp, TCP)] {
        let (local, peer) =
            (SocketAddr::new(super::rig::SERVER, port), SocketAddr::new(super::rig::CLIENT, 9));
        side.channels.accepted(now, (StreamId(number), kind), local, peer, &mut side.reports);
        assert_eq!(side.downs(), [Command::Close(StreamId(number), true)]);
    }
    side.channels.listen_failed(now, (StreamKind::Tcp, SCTP), &mut side.reports);
    assert!(side.reported().is_empty());
    side.channels.listen_failed(now, (StreamKind::Sctp, SCTP), &mut side.reports);
    assert_eq!(side.reported(), [Reported::Listening(Transport::Sctp, false)]);
}
