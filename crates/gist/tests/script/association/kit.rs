//! Functions that scripts about associations share.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use signalbox_core::security::{Fingerprint, Identity};
use signalbox_core::service::{MessageHandle, NetworkEvent, Security, TransferAttributes};
use signalbox_core::{Mri, SessionId};
use signalbox_gist::apd::{Apd, Verdict};
use signalbox_gist::engine::{
    AssociationConfig, AssociationState, ChannelClosed, ChannelId, Config, Input, Installation, Transport,
};
use signalbox_gist::wire::{
    List, MaOptions, MaProtocolId, Message, MessageType, Nli, Profile, StackConfiguration, StackProposal,
};

use crate::rig::*;

/// The TCP port of this node.
pub(super) const TCP: u16 = 4000;
pub(super) const TLS: u16 = 4001;
/// The TCP port of the peer.
pub(super) const PEER_TCP: u16 = 5000;
pub(super) const PEER_TLS: u16 = 5001;
/// The hold time of the peer.
pub(super) const PEER_HOLD: u32 = 20_000;

const TCP_ID: MaProtocolId = MaProtocolId::FORWARDS_TCP;

const fn option(profile: u8, data: &'static [u8]) -> MaOptions<'static> {
    MaOptions { protocol: TCP_ID, profile, disabled: false, data }
}

static TCP_PROFILE: [Profile<'static>; 1] = [Profile(&[1])];
static TLS_PROFILE: [Profile<'static>; 1] = [Profile(&[2, 1])];
static BOTH_PROFILES: [Profile<'static>; 2] = [Profile(&[2, 1]), Profile(&[1])];
static ASKING: [MaOptions<'static>; 1] = [option(0, &[])];
static TCP_OPTION: [MaOptions<'static>; 1] = [option(1, &PEER_TCP.to_be_bytes())];
static TLS_OPTION: [MaOptions<'static>; 1] = [option(1, &PEER_TLS.to_be_bytes())];
static BOTH_OPTIONS: [MaOptions<'static>; 2] =
    [option(1, &PEER_TLS.to_be_bytes()), option(2, &PEER_TCP.to_be_bytes())];

pub(super) type Stack = (StackProposal<'static>, StackConfiguration<'static>);

fn stack(profiles: &'static [Profile<'static>], options: &'static [MaOptions<'static>]) -> Stack {
    (
        StackProposal { profiles: List::of(profiles) },
        StackConfiguration { hold_time_ms: PEER_HOLD, options: List::of(options) },
    )
}

/// The stack that a peer answers with.
pub(super) fn peer_tcp() -> Stack {
    stack(&TCP_PROFILE, &TCP_OPTION)
}

pub(super) fn peer_tls() -> Stack {
    stack(&TLS_PROFILE, &TLS_OPTION)
}

pub(super) fn peer_both() -> Stack {
    stack(&BOTH_PROFILES, &BOTH_OPTIONS)
}

/// The stack that a peer requests.
pub(super) fn asks_tcp() -> Stack {
    stack(&TCP_PROFILE, &ASKING)
}

pub(super) fn asks_tls() -> Stack {
    stack(&TLS_PROFILE, &ASKING)
}

pub(super) fn asks_both() -> Stack {
    stack(&BOTH_PROFILES, &ASKING)
}

/// A node with TCP and an empty authorised peer database.
pub(super) fn tcp_only() -> Config {
    Config {
        associations: AssociationConfig { tcp_port: Some(TCP), ..AssociationConfig::default() },
        ..Config::default()
    }
}

/// A node with TCP and TLS that authorises every authenticated peer.
pub(super) fn tcp_and_tls() -> Config {
    let mut config = tcp_only();
    config.associations.tls_port = Some(TLS);
    config.associations.authorised = Apd::new(8, Verdict::Allow);
    config
}

pub(super) fn installing(installation: Installation) -> Config {
    Config { installation, ..tcp_only() }
}

pub(super) const RELIABLE: TransferAttributes =
    TransferAttributes { reliable: true, stateless: false, security: Security::None };
pub(super) const SECURE: TransferAttributes =
    TransferAttributes { reliable: true, stateless: false, security: Security::Channel };

/// Another session of the same peers.
pub(super) fn session(number: u8) -> SessionId {
    SessionId([number; 16])
}

/// A message without magic number.
pub(super) fn bare(message: &Message<'_>) -> Vec<u8> {
    signalbox_gist::kit::bare(message).unwrap()
}

/// An MA-Hello.
pub(super) fn hello(id: u32, asks: bool) -> Vec<u8> {
    let mut message = Message::new(MessageType::MA_HELLO, signalbox_core::NslpId::NONE, 1);
    message.hello_id = Some(id);
    message.header.r = asks;
    bare(&message)
}

/// A Data message as it is in a channel.
pub(super) fn bare_data(mri: Mri, session: SessionId, data: &[u8]) -> Vec<u8> {
    bare(&Message { nli: None, ..peer(b"up", UP).data(mri, session, data) })
}

impl Rig {
    /// The next output is a message over a channel.
    pub(super) fn over(&mut self) -> Over {
        match self.next() {
            (_, Out::Over(over)) => over,
            other => panic!("a message over a channel was expected, not {other:?}"),
        }
    }

    /// The next output opens a channel.
    pub(super) fn opened(&mut self) -> (ChannelId, Transport, IpAddr, SocketAddr) {
        match self.next() {
            (_, Out::Opened(channel, transport, local, peer)) => (channel, transport, local, peer),
            other => panic!("a channel was to be opened, not {other:?}"),
        }
    }

    /// The next output closes a channel. Returns the channel, and whether it is aborted.
    pub(super) fn closed(&mut self) -> (ChannelId, bool) {
        match self.next() {
            (_, Out::Closed(channel, abort)) => (channel, abort),
            other => panic!("a channel was to be closed, not {other:?}"),
        }
    }

    pub(super) fn reliably(&mut self, data: &[u8], mri: Mri) {
        self.reliably_in(SESSION, data, mri);
    }

    pub(super) fn reliably_in(&mut self, session: SessionId, data: &[u8], mri: Mri) {
        self.send_with(data, mri, |m| (m.attributes, m.session) = (RELIABLE, session));
    }

    pub(super) fn numbered(&mut self, handle: u64, data: &[u8], mri: Mri) {
        self.send_with(data, mri, |m| {
            (m.attributes, m.handle) = (RELIABLE, Some(MessageHandle(handle)));
        });
    }

    /// A Response with a stack proposal.
    pub(super) fn propose(&mut self, query: &Packet, (proposal, configuration): Stack) {
        self.respond_with(query, |m| {
            // The validity time is so long that no refresh disturbs the test.
            m.nli = Some(Nli { validity_ms: 40_000_000, ..nli(b"down", DOWN) });
            m.stack_proposal = Some(proposal);
            m.stack_configuration = Some(configuration);
        });
    }

    pub(super) fn connected(&mut self, channel: ChannelId) {
        self.handle(Input::ChannelConnected { channel, identity: None });
    }

    pub(super) fn connected_as(&mut self, channel: ChannelId, name: &str) {
        self.handle(Input::ChannelConnected { channel, identity: Some(&named(name)) });
    }

    pub(super) fn octets(&mut self, channel: ChannelId, octets: &[u8]) {
        self.handle(Input::ChannelOctets { channel, octets });
    }

    pub(super) fn lost(&mut self, channel: ChannelId, reason: ChannelClosed, unacknowledged: bool) {
        self.handle(Input::ChannelClosed { channel, reason, unacknowledged });
    }

    /// `DOWN` answers a Query, which requests an association, and the node opens one over TCP. It carried the Confirm.
    pub(super) fn connected_to(&mut self, query: &Packet) -> ChannelId {
        self.propose(query, peer_tcp());
        let (channel, ..) = self.opened();
        assert!(matches!(self.notified().1, NetworkEvent::Good(_)));
        self.connected(channel);
        let _confirm = self.over().is(MessageType::CONFIRM);
        channel
    }

    /// A Querying-SM for the node's own flow with an association to `DOWN` over TCP, which carried the Confirm and one
    /// message.
    pub(super) fn associated(&mut self) -> ChannelId {
        self.reliably(b"data", own());
        let query = self.sent().is(MessageType::QUERY);
        let channel = self.connected_to(&query);
        let _data = self.over().is(MessageType::DATA);
        let _sent = self.status();
        self.quiet();
        channel
    }

    /// A Query from `UP` that requests an association; the answer of the node is the next output.
    pub(super) fn asked(&mut self, session: SessionId, (proposal, configuration): Stack) {
        let cookie = [7; 8];
        let mut message = query(through(), &cookie);
        message.session = Some(session);
        message.stack_proposal = Some(proposal);
        message.stack_configuration = Some(configuration);
        self.inject(&Via::intercepted(SRC, DST), &message);
    }

    pub(super) fn accepted(&mut self, channel: u64, transport: Transport) -> ChannelId {
        self.accepted_from(channel, transport, None)
    }

    pub(super) fn accepted_from(
        &mut self,
        channel: u64,
        transport: Transport,
        identity: Option<&Identity>,
    ) -> ChannelId {
        let channel = ChannelId(channel);
        self.accepted_of(channel, transport, UP, identity);
        channel
    }

    /// A peer with this address opens a channel.
    pub(super) fn accepted_of(
        &mut self,
        channel: ChannelId,
        transport: Transport,
        address: &str,
        identity: Option<&Identity>,
    ) {
        let port = if transport == Transport::Tcp { TCP } else { TLS };
        let (local, peer) = ((ip(LEFT), port).into(), (ip(address), 33_000).into());
        self.handle(Input::ChannelAccepted { channel, transport, local, peer, identity });
    }

    /// A Responding-SM for the flow through the node with an association that `UP` opened over TCP.
    pub(super) fn responding_associated(&mut self) -> ChannelId {
        self.asked(SESSION, asks_tcp());
        let response = self.sent().is(MessageType::RESPONSE);
        let channel = self.accepted(2, Transport::Tcp);
        let octets = first_confirm(&response, |_| {});
        self.octets(channel, &octets);
        assert!(matches!(self.notified().1, NetworkEvent::Good(_)));
        self.quiet();
        channel
    }

    pub(super) fn held(&self, channel: ChannelId) -> Option<signalbox_gist::engine::AssociationView<'_>> {
        self.gist.associations().find(|a| a.channel == channel)
    }

    pub(super) fn state_of(&self, channel: ChannelId) -> Option<AssociationState> {
        self.held(channel).map(|a| a.state)
    }
}

/// The Response of this peer to a Query of the node, over an association.
pub(super) fn response_over(query: &Packet, nli: Nli<'_>) -> Vec<u8> {
    let peer = Peer { nli, ..peer(b"down", DOWN) };
    bare(&peer.response_with(&query.message(), b"over there......"))
}

/// The first Confirm over a new association, to a Response of the node.
pub(super) fn first_confirm<'a>(response: &'a Packet, tweak: impl FnOnce(&mut Message<'a>)) -> Vec<u8> {
    confirm_to(&response.message(), tweak)
}

/// A Confirm to a Response, over the association.
pub(super) fn confirm_to<'a>(answered: &Message<'a>, tweak: impl FnOnce(&mut Message<'a>)) -> Vec<u8> {
    let mut message = peer(b"up", UP).confirm(answered);
    message.stack_proposal = answered.stack_proposal;
    message.stack_configuration = Some(StackConfiguration { hold_time_ms: PEER_HOLD, options: List::EMPTY });
    tweak(&mut message);
    bare(&message)
}

/// An identity with this name in a certificate.
pub(super) fn named(name: &str) -> Identity {
    Identity { dns: vec![name.to_owned()], ..Identity::of_key(Fingerprint([1; 32])) }
}

pub(super) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
