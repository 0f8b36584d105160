//! Selection and refusal of stacks (RFC 5971 §5.7.1, §4.4.1, §4.4.3).

use signalbox_core::Direction;
use signalbox_core::service::{NetworkEvent, SendError};
use signalbox_gist::engine::{ChannelId, Config, Input, Installation, RoutingState, Transport};
use signalbox_gist::wire::{
    GistError, List, MaOptions, Message, MessageType, ObjectType, Profile, StackConfiguration, StackProposal,
};

use super::kit::*;
use crate::rig::*;

fn profiles(message: &Message<'_>) -> Vec<Vec<u8>> {
    message.stack_proposal.unwrap().profiles.iter().map(|p| p.0.to_vec()).collect()
}

/// GIST-5.7.1-08, GIST-8.6-02: a secured message proposes secure stacks only, a reliable one all stacks, in the order
/// of this node. A stack that the peer removes from its Response is not used.
#[test]
fn queries_offer_what_suits_the_message() {
    let mut rig = Rig::with(tcp_and_tls());
    rig.reliably(b"data", own());
    assert_eq!(profiles(&rig.sent().message()), [vec![2, 1], vec![1]]);
    rig.send_with(b"data", own(), |m| (m.attributes, m.session) = (SECURE, session(2)));
    let query = rig.sent();
    assert_eq!(profiles(&query.message()), [vec![2, 1]]);
    rig.propose(&query, peer_tcp());
    assert_eq!(rig.failed(), SendError::Refused);
    rig.quiet();
    assert_eq!(rig.gist.associations().count(), 0);
}

/// GIST-D-03, GIST-4.4.1-05, GIST-4.1.2-05: the best stack of both, at the port of that profile.
#[test]
fn the_best_common_stack_is_opened() {
    let mut rig = Rig::with(tcp_and_tls());
    rig.send_with(b"data", own(), |m| m.attributes = SECURE);
    let query = rig.sent();
    rig.propose(&query, peer_both());
    let (channel, transport, _, peer) = rig.opened();
    assert_eq!((transport, peer.port()), (Transport::TlsTcp, PEER_TLS));
    rig.notified();
    rig.connected_as(channel, "down.example");
    rig.over().is(MessageType::CONFIRM);
    rig.over().is(MessageType::DATA);
    assert!(matches!(rig.status().2, signalbox_core::service::MessageStatus::Sent(a) if a == SECURE));
    assert_eq!(rig.held(channel).unwrap().authenticated, Some(&named("down.example")));
}

/// GIST-8.1-01: an application selects protection for each message: a message with protection waits for TLS and uses no
/// other association, another message is sent as usual.
#[test]
fn protection_is_optional() {
    let mut rig = Rig::with(tcp_and_tls());
    rig.established();
    rig.send_with(b"safe", own(), |m| (m.attributes, m.session) = (SECURE, session(2)));
    let query = rig.sent().is(MessageType::QUERY);
    assert_eq!(profiles(&query.message()), [vec![2, 1]]);
    rig.send(b"open", own());
    assert_eq!(rig.sent().is(MessageType::DATA).message().nslp_data, Some(&b"open"[..]));
    rig.status();
    rig.propose(&query, peer_tls());
    let (channel, transport, ..) = rig.opened();
    assert_eq!(transport, Transport::TlsTcp);
    rig.notified();
    rig.quiet();
    rig.connected_as(channel, "down.example");
    rig.over().is(MessageType::CONFIRM);
    let safe = rig.over().is(MessageType::DATA);
    assert_eq!((safe.channel, safe.message().nslp_data), (channel, Some(&b"safe"[..])));
    rig.status();
    rig.send(b"open", own());
    rig.sent().is(MessageType::DATA);
}

/// GIST-5.7.1-01: D=1 excludes a protocol.
#[test]
fn a_disabled_protocol_is_not_used() {
    let mut rig = Rig::with(tcp_only());
    rig.reliably(b"data", own());
    let query = rig.sent();
    let option = MaOptions { disabled: true, ..peer_tcp().1.options.iter().next().unwrap() };
    static PROFILE: [Profile<'static>; 1] = [Profile(&[1])];
    let options = [option];
    let mut response = peer(b"down", DOWN).response_with(&query.message(), b"cookie..");
    response.stack_proposal = Some(StackProposal { profiles: List::of(&PROFILE) });
    response.stack_configuration =
        Some(StackConfiguration { hold_time_ms: 1000, options: List::of(&options) });
    rig.inject(&Via::direct(DOWN, RIGHT), &response);
    assert_eq!(rig.failed(), SendError::Refused);
    assert_eq!(rig.gist.associations().count(), 0);
}

/// GIST-5.7.1-02: the Stack-Configuration-Data refers to a profile that is not proposed.
#[test]
fn a_contradiction_is_refused() {
    let mut rig = Rig::with(tcp_only());
    let options = [MaOptions { profile: 4, ..asks_tcp().1.options.iter().next().unwrap() }];
    let cookie = [7; 8];
    let mut message = query(through(), &cookie);
    message.stack_proposal = Some(asks_both().0);
    message.stack_configuration =
        Some(StackConfiguration { hold_time_ms: 1000, options: List::of(&options) });
    rig.inject(&Via::intercepted(SRC, DST), &message);
    rig.sent().error_is(GistError::STACK_MISMATCH);
    rig.quiet();
}

/// GIST-5.7.1-14, GIST-5.7.1-15, GIST-5.7.1-17, GIST-5.7.1-18: a proposal that was changed in transit, or a cookie
/// different from that of the Response: no state is created, and the new association is closed.
#[test]
fn a_changed_first_confirm_ends_the_association() {
    for case in 0..3 {
        let mut rig = Rig::with(tcp_and_tls());
        rig.asked(SESSION, asks_tcp());
        let response = rig.sent();
        let channel = rig.accepted(2, Transport::Tcp);
        let octets = first_confirm(&response, |m| match case {
            0 => m.stack_proposal = Some(asks_tcp().0),
            1 => m.responder_cookie = Some(b"not the right cookie 24."),
            _ => m.session = Some(session(9)),
        });
        rig.octets(channel, &octets);
        assert_eq!(rig.closed(), (channel, true));
        rig.quiet();
        rig.no_state();
        assert_eq!(rig.gist.associations().count(), 0);
        let counters = rig.gist.counters();
        assert_eq!((counters.proposals_changed, counters.cookies_invalid), [(1, 0), (0, 1), (0, 1)][case]);
    }
}

/// GIST-5.7.1-14, GIST-8.6-01: the cookie is bound to the proposal: a Confirm without it is a change as well, as if an
/// attacker had removed it from the Response.
#[test]
fn a_proposal_cannot_be_cut_off() {
    let mut rig = Rig::with(tcp_only());
    let channel = rig.responding_associated();
    rig.asked(session(2), asks_tls()); // TCP does not satisfy this: a full Response
    let response = rig.sent();
    let octets = first_confirm(&response, |m| (m.stack_proposal, m.stack_configuration) = (None, None));
    rig.octets(channel, &octets);
    rig.quiet();
    assert_eq!(rig.gist.sessions().count(), 1);
    assert_eq!(rig.gist.counters().cookies_invalid, 1);
}

/// GIST-5.7.1-16: the same with existing state: it is deleted; the association, which is not new, stays.
#[test]
fn a_changed_confirm_ends_the_state() {
    let mut rig = Rig::with(tcp_only());
    let channel = rig.responding_associated();
    rig.asked(SESSION, asks_tls());
    let response = rig.sent();
    let octets = first_confirm(&response, |m| m.responder_cookie = Some(b"not the right cookie 24."));
    rig.octets(channel, &octets);
    assert_eq!(rig.notified(), (Direction::Upstream, NetworkEvent::Bad));
    rig.quiet();
    rig.no_state();
    assert_eq!(rig.held(channel).unwrap().sessions, 0);
}

/// GIST-4.4.5-05: the first Confirm without a hold time.
#[test]
fn a_first_confirm_says_its_hold_time() {
    let mut rig = Rig::with(tcp_only());
    rig.asked(SESSION, asks_tcp());
    let response = rig.sent();
    let channel = rig.accepted(2, Transport::Tcp);
    let octets = first_confirm(&response, |m| m.stack_configuration = None);
    rig.octets(channel, &octets);
    let error = rig.over().error_is(GistError::MISSING_OBJECT);
    let info = error.message().error.unwrap().infos.iter().next();
    assert_eq!(info, Some(signalbox_gist::wire::Info::ObjectType(ObjectType::STACK_CONFIGURATION)));
    rig.no_state();
    let octets = first_confirm(&response, |_| {});
    rig.octets(channel, &octets);
    rig.notified();
    assert_eq!(rig.held(channel).unwrap().hold_time.as_millis(), u128::from(PEER_HOLD));
}

/// A Confirm by datagram with the cookie of a Response that proposed an association installs state: §5.5 requires connection
/// mode only "if an MA has been set up", and A.4.4.3 rejects types that may never use an encapsulation. A peer that kept its
/// state while this node restarted has no reason to open an association for it.
#[test]
fn a_confirm_by_datagram_is_right_where_no_association_was_set_up() {
    let mut rig = Rig::with(tcp_only());
    rig.asked(SESSION, asks_tcp());
    let response = rig.sent();
    rig.confirm(&response);
    rig.notified();
    rig.quiet();
    assert_eq!(rig.states(), (None, Some(RoutingState::Established)));
    // A changed cookie installs nothing.
    let mut rig = Rig::with(tcp_only());
    rig.asked(SESSION, asks_tcp());
    let response = rig.sent();
    rig.confirm_with(&response, |m| m.responder_cookie = Some(b"a wrong cookie of a stranger"));
    rig.quiet();
    rig.no_state();
}

/// P01: this node restarted, and its peer has the state of a session in datagram mode: its Data, the Error, its Query with a
/// proposal, and its Confirm by datagram. Table 5.5 of RFC 5971 allows that Confirm ("only if no messaging association has
/// been set up"); the example of A.4.4.3 ("the Confirm for a handshake that sets up a messaging association") is about a
/// handshake in which one was opened. The offer of this node obliges the peer to nothing.
#[test]
fn a_peer_whose_state_outlived_this_node_gets_through() {
    for installation in [Installation::Immediate, Installation::Confirmed, Installation::Delayed] {
        let mut rig = Rig::with(installing(installation));
        rig.data_down(b"old.");
        rig.sent().error_is(GistError::NO_ROUTING_STATE);
        rig.asked(SESSION, asks_tcp());
        let response = rig.sent().is(MessageType::RESPONSE);
        assert!(response.message().stack_proposal.is_some());
        rig.confirm_with(&response, |m| m.nslp_data = Some(b"with"));
        rig.notified();
        assert_eq!(rig.delivered().data, b"with");
        rig.data_down(b"next");
        assert_eq!(rig.delivered().data, b"next");
        // The way back is by datagram too.
        rig.send(b"back", through().inverted());
        assert_eq!(rig.sent().is(MessageType::DATA).dst, at_port(UP));
        assert_eq!(rig.gist.associations().count(), 0);
    }
}

/// GIST-5.5-01, GIST-5.1-21: a Confirm by datagram although an association with the peer was set up; a Query or a
/// datagram's Data over an association; MA-Hello by datagram.
#[test]
fn messages_come_in_their_encapsulation() {
    let mut rig = Rig::with(tcp_only());
    rig.responding_associated();
    rig.asked(session(2), asks_tls());
    let response = rig.sent();
    rig.confirm(&response);
    rig.sent().error_is(GistError::INCORRECT_ENCAPSULATION);
    assert_eq!(rig.gist.sessions().count(), 1);

    let mut rig = Rig::with(tcp_only());
    let channel = rig.responding_associated();
    rig.octets(channel, &bare(&query(through(), &[1; 8])));
    rig.over().error_is(GistError::INCORRECT_ENCAPSULATION);
    rig.octets(channel, &bare(&data(through(), nli(b"up", UP), b"data")));
    rig.over().error_is(GistError::INVALID_OBJECT_TYPE);
    let mut octets = signalbox_gist::wire::MAGIC.to_vec();
    octets.extend(hello(0, false));
    crate::errors::longer(&mut octets);
    rig.packet(&Via::direct(UP, LEFT), &octets);
    rig.sent().error_is(GistError::INCORRECT_ENCAPSULATION);
}

/// GIST-4.4.3-04, GIST-4.4.3-05, GIST-5.1-10, GIST-5.7.1-13, GIST-5.7.1-12, GIST-4.4.3-07, GIST-4.4.3-08: a Response is
/// sent over the association with the peer's complete identity, if its properties are sufficient, otherwise by datagram
/// with a full offer.
#[test]
fn a_responder_shares_what_fits() {
    let mut rig = Rig::with(tcp_only());
    let channel = rig.responding_associated();
    rig.asked(session(2), asks_both());
    let response = rig.over().is(MessageType::RESPONSE);
    let said = response.message();
    assert!(said.header.r && said.stack_proposal.is_none() && said.responder_cookie.is_some());
    rig.octets(channel, &bare(&peer(b"up", UP).confirm(&said)));
    rig.notified();
    rig.quiet();
    assert_eq!(rig.held(channel).unwrap().sessions, 2);

    rig.asked(session(3), asks_tls());
    assert!(rig.sent().is(MessageType::RESPONSE).message().stack_proposal.is_some());
    for (identity, address) in [(&b"up"[..], "10.1.0.3"), (b"other", UP)] {
        let cookie = [7; 8];
        let mut message = query(through(), &cookie);
        message.nli = Some(nli(identity, address));
        (message.stack_proposal, message.stack_configuration) = (Some(asks_tcp().0), Some(asks_tcp().1));
        rig.inject(&Via::intercepted(SRC, DST), &message);
        rig.out.retain(|(_, out)| !matches!(out, Out::Notified(_, NetworkEvent::Tentative)));
        assert!(rig.sent().is(MessageType::RESPONSE).message().stack_proposal.is_some());
    }

    // The TCP port is not open any more, so that the node offers only secure stacks. Its plain association is weaker.
    let mut rig = Rig::with(tcp_and_tls());
    let channel = rig.responding_associated();
    rig.handle(Input::Listening { transport: Transport::Tcp, on: false });
    rig.asked(session(2), asks_tcp());
    assert_eq!(profiles(&rig.sent().is(MessageType::RESPONSE).message()), [vec![2, 1]]);
    assert_eq!(rig.held(channel).unwrap().sessions, 1);
}

/// GIST-5.1-12, GIST-6.3-01: a new association needs a Confirm under every policy; a shared one does not, if the Query
/// creates the state.
#[test]
fn immediate_state_waits_for_a_new_association_only() {
    let mut rig = Rig::with(installing(Installation::Immediate));
    rig.asked(SESSION, asks_tcp());
    let response = rig.sent();
    assert!(response.message().header.r);
    assert_eq!(rig.states(), (None, Some(RoutingState::AwaitingConfirm)));
    let channel = rig.accepted(2, Transport::Tcp);
    let octets = first_confirm(&response, |_| {});
    rig.octets(channel, &octets);
    rig.notified();
    assert_eq!(rig.states(), (None, Some(RoutingState::Established)));
    rig.asked(session(2), asks_tcp());
    let response = rig.over().is(MessageType::RESPONSE);
    assert!(!response.message().header.r && response.message().responder_cookie.is_none());
    rig.notified();
    assert_eq!(rig.held(channel).unwrap().sessions, 2);
}

/// GIST-5.3.3-16, GIST-6.3-10: the policy of §6.3 case 2, with an association: retransmitted Responses repeat the
/// offer, and the Confirm over the channel stops them.
#[test]
fn confirmed_state_repeats_its_offer() {
    let mut rig = Rig::with(installing(Installation::Confirmed));
    rig.asked(SESSION, asks_tcp());
    rig.sent();
    rig.until(600);
    let again = rig.sent().is(MessageType::RESPONSE);
    assert!(again.message().stack_proposal.is_some());
    let channel = rig.accepted(2, Transport::Tcp);
    let octets = first_confirm(&again, |_| {});
    rig.octets(channel, &octets);
    rig.notified();
    rig.until(5_000);
    rig.quiet();
}

/// GIST-7.4-02: for a flow of IPv6 the association is of IPv6 as well.
#[test]
fn an_association_has_the_ip_version_of_its_flow() {
    let mut rig = Rig::with(tcp_only());
    let mri = flow("2001:db8:2::1", "2001:db8:9::9");
    rig.reliably(b"data", mri);
    let query = rig.sent();
    let mut response = peer(b"down", "2001:db8:2::2").response_with(&query.message(), b"cookie..");
    (response.stack_proposal, response.stack_configuration) = (Some(peer_tcp().0), Some(peer_tcp().1));
    rig.inject(&Via::direct("2001:db8:2::2", "2001:db8:2::1"), &response);
    let (_, _, local, peer) = rig.opened();
    assert_eq!((local, peer.ip()), (ip("2001:db8:2::1"), ip("2001:db8:2::2")));
}

/// Without a port connection mode is off: the node proposes, requests and accepts no association.
#[test]
fn a_node_without_ports_stays_in_datagram_mode() {
    let mut rig = Rig::with(Config::default());
    rig.asked(SESSION, asks_tcp());
    let response = rig.sent().is(MessageType::RESPONSE);
    assert!(response.message().stack_proposal.is_none());
    rig.confirm(&response);
    rig.notified();
    rig.reliably(b"data", through());
    assert_eq!(rig.failed(), SendError::Refused);
    let channel = rig.accepted(2, Transport::Tcp);
    assert_eq!(rig.closed(), (channel, true));
}

/// GIST-4.3.3-13: the peer has no connection mode: messages that need it fail, others are sent by datagram, also under
/// `always`.
#[test]
fn a_peer_without_connection_mode_gets_datagrams() {
    let mut rig = Rig::with(tcp_only());
    rig.reliably(b"data", own());
    let query = rig.sent();
    rig.respond(&query);
    rig.sent().is(MessageType::CONFIRM);
    rig.notified();
    assert_eq!(rig.failed(), SendError::Refused);
    rig.quiet();

    let mut config = tcp_only();
    config.associations.always = true;
    let mut rig = Rig::with(config);
    rig.send(b"data", own());
    let query = rig.sent();
    assert!(query.message().stack_proposal.is_some());
    rig.respond(&query);
    rig.sent().is(MessageType::CONFIRM);
    rig.sent().is(MessageType::DATA);
}

/// GIST-4.3.3-08, GIST-5.5-02, GIST-5.3.3-26: with `always`, all messages of a session use its association.
#[test]
fn always_means_all_messages() {
    let mut config = tcp_only();
    config.associations.always = true;
    let mut rig = Rig::with(config);
    rig.send(b"data", own());
    let query = rig.sent();
    assert!(query.message().stack_proposal.is_some());
    rig.propose(&query, peer_tcp());
    let (channel, ..) = rig.opened();
    rig.notified();
    rig.connected(channel);
    rig.over().is(MessageType::CONFIRM);
    rig.over().is(MessageType::DATA);
}

/// GIST-5972-06, GIST-7.1.3-03: another peer answers a refresh: the session moves to an association with that peer.
#[test]
fn a_new_peer_means_a_new_association() {
    let mut rig = Rig::with(tcp_only());
    let old = rig.associated();
    rig.lifetime(own(), Some(SESSION), seconds(60));
    rig.handle(Input::Request(signalbox_core::service::Request::InvalidateRoutingState {
        nslp: None,
        mri: own(),
        status: signalbox_core::service::InvalidStatus::Tentative,
        data: &[],
        urgent: true,
    }));
    rig.until(10);
    let query = rig.sent().is(MessageType::QUERY);
    assert!(query.message().stack_proposal.is_some(), "GIST-5.1-07");
    let mut response = peer(b"elsewhere", "10.2.0.7").response_with(&query.message(), b"cookie..");
    (response.stack_proposal, response.stack_configuration) = (Some(peer_tcp().0), Some(peer_tcp().1));
    rig.inject(&Via::direct("10.2.0.7", RIGHT), &response);
    rig.out.retain(|(_, out)| !matches!(out, Out::Notified(..)));
    // The node requests a confirmation of the reliable messages to the former peer before it sends more to the new one.
    let new = loop {
        match rig.next().1 {
            Out::Opened(channel, _, _, peer) => {
                assert_eq!(peer.ip(), ip("10.2.0.7"));
                break channel;
            }
            Out::Over(over) => assert_eq!(over.channel, old),
            Out::Sent(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(rig.session().downstream.unwrap().association, Some(new));
    assert_eq!(rig.held(old).unwrap().sessions, 0);
}

/// A hold time of a millisecond at the peer does not cause an endless run of hellos.
#[test]
fn a_tiny_hold_time_is_not_followed() {
    let mut rig = Rig::with(tcp_only());
    rig.asked(SESSION, asks_tcp());
    let response = rig.sent();
    let channel = rig.accepted(2, Transport::Tcp);
    let octets = first_confirm(&response, |m| {
        m.stack_configuration = Some(StackConfiguration { hold_time_ms: 1, options: List::EMPTY });
    });
    rig.octets(channel, &octets);
    rig.notified();
    rig.until(1000);
    assert!((10..=20).contains(&rig.out.len()), "{}", rig.out.len());
}

/// GIST-5972-13, GIST-5.7.2-06: a session in datagram mode moves to the association that the Confirm of its next
/// refresh is received over, regardless of the end that opened it.
#[test]
fn a_confirm_over_an_association_moves_its_session() {
    let mut rig = Rig::with(tcp_only());
    rig.responding();
    assert_eq!(rig.session().upstream.unwrap().association, None);
    rig.asked(SESSION, asks_tcp());
    let response = rig.sent();
    let channel = ChannelId(2);
    let (local, peer) = ((ip(LEFT), TCP).into(), (ip("10.1.0.77"), 999).into());
    let transport = Transport::Tcp;
    rig.handle(Input::ChannelAccepted { channel, transport, local, peer, identity: None });
    let octets = first_confirm(&response, |_| {});
    rig.octets(channel, &octets);
    rig.quiet();
    let upstream = rig.session().upstream.unwrap();
    assert_eq!((upstream.association, upstream.peer), (Some(channel), Some(at_port(UP))));
}

/// GIST-5972-02: during a new handshake, messages of the peer over the association are delivered.
#[test]
fn a_handshake_that_starts_over_does_not_stop_reliable_data() {
    let mut rig = Rig::with(tcp_only());
    let channel = rig.associated();
    rig.handle(Input::Request(signalbox_core::service::Request::InvalidateRoutingState {
        nslp: None,
        mri: own(),
        status: signalbox_core::service::InvalidStatus::Bad,
        data: &[],
        urgent: true,
    }));
    rig.until(10);
    let query = rig.sent().is(MessageType::QUERY);
    assert_eq!(rig.states().0, Some(RoutingState::AwaitingResponse));
    rig.octets(channel, &bare_data(own().inverted(), SESSION, b"data"));
    assert_eq!(rig.delivered().data, b"data");
    rig.reliably(b"wait", own());
    rig.quiet();
    rig.propose(&query, peer_tcp());
    rig.over().is(MessageType::CONFIRM);
    assert_eq!(rig.over().message().nslp_data, Some(&b"wait"[..]));
}
