//! Two ends, and what joins them.

use std::net::Ipv4Addr;

use rcgen::KeyPair;
use signalbox_core::node::{Output, StreamKind};
use signalbox_core::packet::Received;
use signalbox_core::{Identity, IfIndex};

use super::super::*;

pub(super) const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
pub(super) const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
/// A node of which the user has state.
pub(super) const KNOWN: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 3));
pub(super) const TCP: u16 = 270;
pub(super) const TLS: u16 = 271;
pub(super) const SCTP: u16 = 272;
const WALL_US: u64 = 1_800_000_000_000_000;
pub(super) const CHANNEL: StreamId = StreamId(1);

/// A packet of SCTP that came in.
pub(super) fn of_sctp([src, dst]: [IpAddr; 2], payload: &[u8]) -> Received<'_> {
    let [src, dst] = [src, dst].map(|address| SocketAddr::new(address, 0));
    let (entry, ifindex) = (crate::channels::SCTP, IfIndex(1));
    Received { entry, src, dst, ifindex, ttl: 64, tos: 0, options: &[], payload }
}

/// An event that the user received.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reported {
    Accepted(StreamId, Transport, Option<Identity>),
    Connected(StreamId, Option<Identity>),
    Octets(StreamId, Vec<u8>),
    Drained(StreamId, usize),
    Closed(StreamId, Closed, bool),
    Listening(Transport, bool),
}

#[derive(Default)]
pub(super) struct Reports(Vec<Reported>);

impl Upper for Reports {
    fn take(&mut self, _: Time, what: Report<'_>) {
        self.0.push(match what {
            Report::Accepted { channel, transport, identity, .. } => {
                Reported::Accepted(channel, transport, identity.cloned())
            }
            Report::Connected { channel, identity } => Reported::Connected(channel, identity.cloned()),
            Report::Octets { channel, octets } => Reported::Octets(channel, octets.to_vec()),
            Report::Drained { channel, unsent } => Reported::Drained(channel, unsent),
            Report::Closed { channel, reason, unacknowledged } => {
                Reported::Closed(channel, reason, unacknowledged)
            }
            Report::Listening { transport, on } => Reported::Listening(transport, on),
        });
    }

    fn is_known(&self, address: IpAddr) -> bool {
        address == KNOWN
    }
}

/// A command to the driver, except writes and the like.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Command {
    Listen(StreamKind, u16),
    Open(StreamId, StreamKind),
    Write(StreamId, Vec<u8>),
    Message(StreamId, u16, Vec<u8>),
    Read(StreamId, bool),
    Close(StreamId, bool),
    Sctp(Vec<u8>),
}

pub(super) struct Side {
    pub(super) channels: Channels,
    pub(super) reports: Reports,
}

impl Side {
    pub(super) fn new(config: ChannelConfig, seed: u8) -> Self {
        let tls = config.tls.as_ref().map(|tls| tls.load(WALL_US).unwrap());
        Self { channels: Channels::new(config, tls, PORTS, &[], 0, [seed; 32]), reports: Reports::default() }
    }

    /// The events that the user received since the last call.
    pub(super) fn reported(&mut self) -> Vec<Reported> {
        core::mem::take(&mut self.reports.0)
    }

    /// The commands to the driver.
    pub(super) fn downs(&mut self) -> Vec<Command> {
        let mut commands = Vec::new();
        loop {
            let Some(down) = self.channels.out.pop() else {
                if self.channels.flush() {
                    continue;
                }
                return commands;
            };
            commands.push(match self.channels.out.output::<()>(down) {
                Output::StreamListen { kind, port } => Command::Listen(kind, port),
                Output::StreamOpen { stream, kind, .. } => Command::Open(stream, kind),
                Output::StreamWrite { stream, octets } => Command::Write(stream, octets.to_vec()),
                Output::StreamMessage { stream, sctp_stream, octets, .. } => {
                    Command::Message(stream, sctp_stream, octets.to_vec())
                }
                Output::StreamRead { stream, on } => Command::Read(stream, on),
                Output::StreamClose { stream, abort } => Command::Close(stream, abort),
                Output::Transmit(t) => Command::Sctp(t.payload.to_vec()),
                other => panic!("{other:?}"),
            });
        }
    }
}

pub(super) const PORTS: Ports =
    Ports { tcp: Some(TCP), tls: Some(TLS), sctp: Some(SCTP), max_unsent: 256 << 10, largest: 4 * 0xffff };

pub(super) fn raw_key(own: &KeyPair, peer: &KeyPair) -> Tls {
    let credentials = Credentials::RawKeys { key: own.serialize_pem(), peers: peer.public_key_pem() };
    Tls::new(credentials)
}

pub(super) struct Rig {
    pub(super) client: Side,
    pub(super) server: Side,
    pub(super) now: Time,
    /// Names of streams at either end.
    pub(super) streams: Vec<(StreamId, StreamId)>,
    made: u64,
}

impl Rig {
    pub(super) fn with(client: ChannelConfig, server: ChannelConfig) -> Self {
        let (client, server) = (Side::new(client, 1), Side::new(server, 2));
        Self { client, server, now: Time::from_secs(1), streams: Vec::new(), made: 0 }
    }

    pub(super) fn plain() -> Self {
        Self::with(ChannelConfig::default(), ChannelConfig::default())
    }

    /// Both ends know each other's keys.
    pub(super) fn tls() -> Self {
        let [a, b] = [0, 1].map(|_| KeyPair::generate().unwrap());
        let config = |tls| ChannelConfig { tls: Some(tls), ..ChannelConfig::default() };
        Self::with(config(raw_key(&a, &b)), config(raw_key(&b, &a)))
    }

    pub(super) fn client_opens(&mut self, transport: Transport, port: u16) {
        let client = &mut self.client;
        client.channels.open(self.now, CHANNEL, transport, [CLIENT, SERVER], port, &mut client.reports);
    }

    /// Opens the client's channel.
    pub(super) fn open(&mut self, transport: Transport, port: u16) {
        let client = &mut self.client;
        client.channels.open(self.now, CHANNEL, transport, [CLIENT, SERVER], port, &mut client.reports);
        self.run_to(port);
    }

    pub(super) fn client_sends(&mut self, octets: &[u8]) {
        self.client_sends_how((0, None), octets);
    }

    pub(super) fn client_sends_how(&mut self, how: (u16, Option<Duration>), octets: &[u8]) {
        let client = &mut self.client;
        if client.channels.is_plain(CHANNEL) {
            return self.carry(true, Command::Write(StreamId(CHANNEL.0), octets.to_vec()), TCP);
        }
        let sent = client.channels.send(self.now, CHANNEL, how, octets);
        client.channels.after_send(self.now, CHANNEL, sent, &mut client.reports);
    }

    pub(super) fn run(&mut self) {
        self.run_to(TCP);
    }

    /// Until both ends are quiet; streams are opened to this port.
    pub(super) fn run_to(&mut self, port: u16) {
        for _ in 0..1000 {
            let (from_client, from_server) = (self.client.downs(), self.server.downs());
            if from_client.is_empty() && from_server.is_empty() {
                return;
            }
            from_client.into_iter().for_each(|command| self.carry(true, command, port));
            from_server.into_iter().for_each(|command| self.carry(false, command, port));
        }
        panic!("the ends send for ever");
    }

    pub(super) fn carry(&mut self, from_client: bool, command: Command, port: u16) {
        let now = self.now;
        let other = |stream: StreamId, streams: &[(StreamId, StreamId)]| {
            let names = streams.iter().map(|(c, s)| if from_client { (*c, *s) } else { (*s, *c) });
            names.filter(|(own, _)| *own == stream).map(|(_, theirs)| theirs).next()
        };
        let to = if from_client { &mut self.server } else { &mut self.client };
        match command {
            Command::Listen(..) | Command::Read(..) => {}
            Command::Open(stream, kind) => {
                let theirs = StreamId(2 * self.made);
                self.made += 1;
                self.streams.push((stream, theirs));
                let (local, peer) = (SocketAddr::new(SERVER, port), SocketAddr::new(CLIENT, 40_000));
                to.channels.accepted(now, (theirs, kind), local, peer, &mut to.reports);
                self.client.channels.connected(now, stream, CLIENT, &mut self.client.reports);
            }
            Command::Write(stream, octets) | Command::Message(stream, _, octets) => {
                if let Some(theirs) = other(stream, &self.streams) {
                    to.channels.octets(now, theirs, &octets, &mut to.reports);
                }
            }
            Command::Close(stream, abort) => {
                if let Some(theirs) = other(stream, &self.streams) {
                    let error = abort.then_some(StreamError::Reset);
                    to.channels.closed(now, theirs, error, false, &mut to.reports);
                    self.streams.retain(|(c, s)| *c != stream && *s != stream);
                }
            }
            Command::Sctp(packet) => {
                let ends = if from_client { [CLIENT, SERVER] } else { [SERVER, CLIENT] };
                to.channels.sctp_packet(now, of_sctp(ends, &packet), &mut to.reports);
            }
        }
    }
}
