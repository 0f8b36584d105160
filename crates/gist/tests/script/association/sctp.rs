//! Associations over SCTP (RFC 6084).

use signalbox_core::service::{NetworkEvent, SendError, TransferAttributes};
use signalbox_gist::engine::{
    AssociationConfig, AssociationState, ChannelClosed, ChannelId, Config, Input, Transport,
};
use signalbox_gist::wire::{
    List, MaOptions, MaProtocolId, MessageType, Profile, StackConfiguration, StackProposal,
};

use super::kit::*;
use crate::rig::*;

const SCTP: u16 = 4002;
const PEER_SCTP: u16 = 5003;
const SCTP_ID: MaProtocolId = MaProtocolId(3);

const fn option(protocol: MaProtocolId, profile: u8, data: &'static [u8]) -> MaOptions<'static> {
    MaOptions { protocol, profile, disabled: false, data }
}

static SCTP_FIRST: [Profile<'static>; 2] = [Profile(&[3]), Profile(&[1])];
static ONLY_SCTP: [Profile<'static>; 1] = [Profile(&[3])];
static ONLY_DTLS: [Profile<'static>; 1] = [Profile(&[4])];
static ONLY_DTLS_OVER_SCTP: [Profile<'static>; 1] = [Profile(&[4, 3])];
static DTLS_FIRST: [Profile<'static>; 2] = [Profile(&[4, 3]), Profile(&[1])];
static BOTH_ASK: [MaOptions<'static>; 2] =
    [option(SCTP_ID, 0, &[]), option(MaProtocolId::FORWARDS_TCP, 0, &[])];
static BOTH_ANSWER: [MaOptions<'static>; 2] = [
    option(SCTP_ID, 1, &PEER_SCTP.to_be_bytes()),
    option(MaProtocolId::FORWARDS_TCP, 2, &PEER_TCP.to_be_bytes()),
];

fn stack(profiles: &'static [Profile<'static>], options: &'static [MaOptions<'static>]) -> Stack {
    (
        StackProposal { profiles: List::of(profiles) },
        StackConfiguration { hold_time_ms: PEER_HOLD, options: List::of(options) },
    )
}

fn only_sctp() -> Config {
    let associations = AssociationConfig { sctp_port: Some(SCTP), ..AssociationConfig::default() };
    Config { associations, ..Config::default() }
}

fn both() -> Config {
    Config {
        associations: AssociationConfig { sctp_port: Some(SCTP), ..tcp_only().associations },
        ..Config::default()
    }
}

/// Whether a packet contains these octets.
fn holds(packet: &[u8], wanted: &[u8]) -> bool {
    packet.windows(wanted.len()).any(|window| window == wanted)
}

/// A Querying-SM with an association over SCTP that carried the Confirm and one message.
fn associated() -> (Rig, ChannelId) {
    let mut rig = Rig::with(only_sctp());
    rig.reliably(b"data", own());
    let query = rig.sent().is(MessageType::QUERY);
    rig.propose(&query, stack(&SCTP_FIRST, &BOTH_ANSWER));
    let (channel, transport, _, peer) = rig.opened();
    assert_eq!((transport, peer), (Transport::Sctp, (ip(DOWN), PEER_SCTP).into()));
    assert!(matches!(rig.notified().1, NetworkEvent::Good(_)));
    rig.connected(channel);
    let confirm = rig.over().is(MessageType::CONFIRM);
    let data = rig.over().is(MessageType::DATA);
    assert_eq!(confirm.stream, data.stream, "the Confirm must not be overtaken");
    rig.status();
    (rig, channel)
}

/// SCTP-3.4-01, SCTP-3.3-03: the lifetime of a message applies to the channel, too. SCTP-3.3-02: it does not apply to a
/// reliable message, which is retransmitted until it arrives. SCTP-3.2-02: both use the session's stream.
#[test]
fn the_time_of_a_message_is_its_lifetime() {
    let (mut rig, _) = associated();
    let mut send = |attributes| {
        rig.send_with(b"data", own(), |m| {
            (m.attributes, m.timeout) = (attributes, Some(seconds(2)));
        });
        let over = rig.over().is(MessageType::DATA);
        rig.status();
        (over.stream, over.lifetime)
    };
    let (one, lifetime) = send(TransferAttributes::default());
    assert_eq!(lifetime, Some(seconds(2)));
    let (other, lifetime) = send(RELIABLE);
    assert_eq!((other, lifetime), (one, None));
}

/// SCTP-3.1.1-01, SCTP-3.1.2-03, SCTP-4.1-02: a Query proposes protocol 3 without a port. SCTP-3.1.1-02, SCTP-3.1.2-06:
/// the Querying node opens the association, to the address of the Response's NLI and the port of its configuration.
/// SCTP-3.1.2-07: a reliable message is sent over it after the Confirm.
#[test]
fn the_querying_node_opens_the_association() {
    let mut rig = Rig::with(only_sctp());
    rig.reliably(b"data", own());
    let query = rig.sent().is(MessageType::QUERY);
    assert!(holds(&query.payload, &[1, 0, 0, 0, 1, 3, 0, 0]), "one profile of one protocol: {query:?}");
    let asked = query.message().stack_configuration.unwrap();
    let options: Vec<_> = asked.options.iter().map(|o| (o.protocol.0, o.profile, o.data)).collect();
    assert_eq!(options, [(3, 0, &[][..])]);
    associated();
}

/// SCTP-3.1.2-04, SCTP-4.1-01: the Response has the port of SCTP in two octets, and two octets of padding.
#[test]
fn the_responding_node_says_its_port() {
    let mut config = only_sctp();
    config.associations.sctp_port = Some(0x17eb);
    let mut rig = Rig::with(config);
    rig.asked(SESSION, stack(&ONLY_SCTP, &BOTH_ASK[..1]));
    let response = rig.sent().is(MessageType::RESPONSE);
    assert!(holds(&response.payload, &[3, 1, 2, 0, 0x17, 0xeb, 0, 0]), "{response:?}");
}

/// SCTP-3.1.2-05: the association may have any source address and port. SCTP-3.2-04: it is used again for the next
/// session, by either method of the handshake.
#[test]
fn who_comes_from_anywhere_is_accepted() {
    let mut rig = Rig::with(only_sctp());
    rig.asked(SESSION, stack(&ONLY_SCTP, &BOTH_ASK[..1]));
    let response = rig.sent().is(MessageType::RESPONSE);
    let channel = ChannelId(2);
    let (local, peer) = ((ip(LEFT), SCTP).into(), (ip(SRC), 9).into());
    let transport = Transport::Sctp;
    rig.handle(Input::ChannelAccepted { channel, transport, local, peer, identity: None });
    rig.octets(channel, &first_confirm(&response, |_| {}));
    assert!(matches!(rig.notified().1, NetworkEvent::Good(_)));
    assert_eq!(rig.state_of(channel), Some(AssociationState::Connected));

    let (mut rig, channel) = associated();
    rig.reliably_in(session(2), b"more", own());
    let query = rig.sent().is(MessageType::QUERY);
    rig.propose(&query, stack(&SCTP_FIRST, &BOTH_ANSWER));
    let over = rig.over().is(MessageType::CONFIRM);
    assert_eq!(over.channel, channel, "no second association");
    assert_eq!(rig.held(channel).unwrap().sessions, 2);
}

/// SCTP-3.1.2-01: a node without SCTP ignores profiles that contain it, in Queries and Responses.
#[test]
fn without_sctp_another_profile_is_taken() {
    let mut rig = Rig::with(tcp_only());
    rig.reliably(b"data", own());
    let query = rig.sent().is(MessageType::QUERY);
    rig.propose(&query, stack(&SCTP_FIRST, &BOTH_ANSWER));
    let (_, transport, _, peer) = rig.opened();
    assert_eq!((transport, peer.port()), (Transport::Tcp, PEER_TCP));

    let mut rig = Rig::with(tcp_only());
    rig.asked(SESSION, stack(&SCTP_FIRST, &BOTH_ASK));
    let response = rig.sent().is(MessageType::RESPONSE);
    let profiles: Vec<_> =
        response.message().stack_proposal.unwrap().profiles.iter().map(|p| p.0.to_vec()).collect();
    assert_eq!(profiles, [vec![1]]);
}

/// SCTP-3.1.2-02: an offer of SCTP has its port; an offer without a port is not used.
#[test]
fn a_proposal_without_configuration_is_not_used() {
    static OPTIONS: [MaOptions<'static>; 1] =
        [option(MaProtocolId::FORWARDS_TCP, 2, &PEER_TCP.to_be_bytes())];
    let mut rig = Rig::with(both());
    rig.reliably(b"data", own());
    let query = rig.sent().is(MessageType::QUERY);
    let own = query.message().stack_configuration.unwrap();
    assert!(own.options.iter().any(|option| option.protocol == SCTP_ID));
    rig.propose(&query, stack(&SCTP_FIRST, &OPTIONS));
    assert_eq!(rig.opened().1, Transport::Tcp);
}

/// SCTP-6-01: a NAT without SCTP sets D=1, and another stack is used.
#[test]
fn disabled_sctp_is_not_used() {
    static OPTIONS: [MaOptions<'static>; 2] = [
        MaOptions { disabled: true, ..option(SCTP_ID, 1, &PEER_SCTP.to_be_bytes()) },
        option(MaProtocolId::FORWARDS_TCP, 2, &PEER_TCP.to_be_bytes()),
    ];
    let mut rig = Rig::with(both());
    rig.reliably(b"data", own());
    let query = rig.sent().is(MessageType::QUERY);
    rig.propose(&query, stack(&SCTP_FIRST, &OPTIONS));
    assert_eq!(rig.opened().1, Transport::Tcp);
}

/// SCTP-3.1.2-08: applications are notified of an association that failed, if messages may have been lost.
#[test]
fn a_failure_is_reported() {
    let (mut rig, channel) = associated();
    rig.lost(channel, ChannelClosed::Reset, true);
    assert_eq!(rig.notified().1, NetworkEvent::CommunicationFailure);
}

/// SCTP-7-01, SCTP-7-02: protocol 4 is DTLS; alone it is not a stack, and this node does not support it: it is neither
/// used nor proposed, not even for a message with security.
#[test]
fn dtls_is_known_and_not_used() {
    let alone = stack(&ONLY_DTLS, &[]);
    let over_sctp = stack(&ONLY_DTLS_OVER_SCTP, &BOTH_ANSWER[..1]);
    for offer in [alone, over_sctp] {
        let mut rig = Rig::with(only_sctp());
        rig.reliably(b"data", own());
        let query = rig.sent().is(MessageType::QUERY);
        rig.propose(&query, offer);
        assert_eq!(rig.failed(), SendError::Refused);
        assert_eq!(rig.gist.associations().count(), 0);
    }
    let mut rig = Rig::with(both());
    rig.reliably(b"data", own());
    let query = rig.sent().is(MessageType::QUERY);
    rig.propose(&query, stack(&DTLS_FIRST, &BOTH_ANSWER));
    assert_eq!(rig.opened().1, Transport::Tcp);
}
