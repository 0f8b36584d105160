//! Handshakes that set up or use an association, at both ends.

use signalbox_core::Direction;
use signalbox_core::service::{MessageStatus, NetworkEvent};
use signalbox_gist::engine::{AssociationState, Transport};
use signalbox_gist::wire::{MessageType, ObjectType, find_object};

use super::kit::*;
use crate::rig::*;

/// GIST-4.3.3-12, GIST-6.2-03, GIST-6.2-07, GIST-4.4.1-04, GIST-4.4.1-07, GIST-4.4.1-08, GIST-4.4.1-09, GIST-4.4.1-10,
/// GIST-5.7.2-01, GIST-5.7.2-05, GIST-5.7.2-07, GIST-5.1-17, GIST-5.4-04, GIST-6.4-01, GIST-D-04, GIST-5.2.1-02,
/// GIST-4.2.1-01: a reliable message requests an association, waits for it, and is sent after the Confirm.
#[test]
fn a_reliable_message_gets_its_association() {
    let mut rig = Rig::with(tcp_only());
    rig.reliably(b"data", own());
    let query = rig.sent().is(MessageType::QUERY);
    let asked = query.message();
    assert_eq!(asked.nslp_data, None);
    let profiles: Vec<_> = asked.stack_proposal.unwrap().profiles.iter().map(|p| p.0.to_vec()).collect();
    assert_eq!(profiles, [vec![1]]);
    let configuration = asked.stack_configuration.unwrap();
    assert_eq!(configuration.hold_time_ms, 30_000);
    let options: Vec<_> = configuration.options.iter().map(|o| (o.protocol.0, o.profile, o.data)).collect();
    assert_eq!(options, [(1, 0, &[][..])]);
    rig.quiet();

    rig.propose(&query, peer_tcp());
    let (channel, transport, local, peer) = rig.opened();
    assert_eq!((transport, local, peer), (Transport::Tcp, ip(RIGHT), (ip(DOWN), PEER_TCP).into()));
    assert_eq!(channel.0 % 2, 1);
    assert!(matches!(rig.notified(), (Direction::Downstream, NetworkEvent::Good(_))));
    rig.quiet();
    assert_eq!(rig.state_of(channel), Some(AssociationState::AwaitingConnection));

    rig.connected(channel);
    let confirm = rig.over().is(MessageType::CONFIRM);
    let said = confirm.message();
    assert_eq!(said.responder_cookie, Some(&b"downstream peer."[..]));
    assert_eq!(said.stack_proposal, Some(peer_tcp().0));
    let configuration = said.stack_configuration.unwrap();
    assert_eq!((configuration.hold_time_ms, configuration.options.len()), (30_000, 0));
    // MPO-Count 0 and the hold time: two words after the header of the object.
    let object = find_object(&confirm.octets, ObjectType::STACK_CONFIGURATION).unwrap();
    assert_eq!(object.value, [0, 0, 0, 0, 0, 0, 0x75, 0x30]);
    assert!(said.header.s && !said.header.r);
    assert_eq!(said.mri.unwrap().mri, own());
    let data = rig.over().is(MessageType::DATA);
    assert_eq!(data.message().nslp_data, Some(&b"data"[..]));
    assert!(data.message().nli.is_none() && data.message().header.s);
    assert_eq!(data.octets[0], 1, "no magic number");
    assert!(matches!(rig.status(), (_, _, MessageStatus::Sent(a)) if a == RELIABLE));
    rig.quiet();
    assert_eq!(rig.session().downstream.unwrap().association, Some(channel));
    assert_eq!(rig.held(channel).unwrap().hold_time.as_millis(), u128::from(PEER_HOLD));
}

/// GIST-4.4.1-10: the Query has one hold time, the first Confirm over the association another one. The Responding node
/// uses that of the Confirm: its MA-Hello follows within three quarters of it.
#[test]
fn the_first_confirm_replaces_the_hold_time_of_the_query() {
    let mut rig = Rig::with(tcp_only());
    rig.asked(SESSION, asks_tcp());
    let response = rig.sent().is(MessageType::RESPONSE);
    let channel = rig.accepted(2, Transport::Tcp);
    let octets = first_confirm(&response, |m| {
        let peers = m.stack_configuration.as_mut().unwrap();
        assert_eq!((peers.hold_time_ms, peers.options.len()), (PEER_HOLD, 0));
        peers.hold_time_ms = PEER_HOLD / 5;
    });
    rig.octets(channel, &octets);
    rig.notified();
    rig.quiet();
    assert_eq!(rig.held(channel).unwrap().hold_time.as_millis(), u128::from(PEER_HOLD / 5));
    rig.until(u64::from(PEER_HOLD / 5 * 3 / 4));
    rig.over().is(MessageType::MA_HELLO);

    // Later Confirms over the same association have no Stack-Configuration-Data, and do not change the hold time.
    rig.asked(session(2), asks_tcp());
    let response = rig.over().is(MessageType::RESPONSE);
    assert_eq!(response.message().stack_configuration, None);
    let octets = confirm_to(&response.message(), |m| m.stack_configuration = None);
    rig.octets(channel, &octets);
    rig.notified();
    assert_eq!(rig.held(channel).unwrap().sessions, 2);
    assert_eq!(rig.held(channel).unwrap().hold_time.as_millis(), u128::from(PEER_HOLD / 5));
}

/// GIST-4.4.3-04, GIST-5.1-07: a second session with the same peer shares the association, with a Response by datagram or
/// over the association.
#[test]
fn sessions_share_an_association() {
    let mut rig = Rig::with(tcp_only());
    let channel = rig.associated();
    rig.reliably_in(session(2), b"more", own());
    let query = rig.sent().is(MessageType::QUERY);
    assert!(query.message().stack_proposal.is_some());
    rig.propose(&query, peer_tcp());
    let confirm = rig.over().is(MessageType::CONFIRM);
    assert_eq!(confirm.channel, channel);
    assert!(confirm.message().stack_proposal.is_some() && confirm.message().stack_configuration.is_none());
    rig.over().is(MessageType::DATA);
    rig.status();
    rig.notified();
    rig.quiet();

    rig.reliably_in(session(3), b"more", own());
    let query = rig.sent().is(MessageType::QUERY);
    rig.octets(channel, &response_over(&query, nli(b"down", DOWN)));
    let confirm = rig.over().is(MessageType::CONFIRM);
    assert!(confirm.message().stack_proposal.is_none());
    rig.over().is(MessageType::DATA);
    assert_eq!(rig.held(channel).unwrap().sessions, 3);
    assert_eq!(rig.gist.associations().count(), 1);
}

/// GIST-4.4.1-02, GIST-5.7.1-09, GIST-5.7.1-10, GIST-5.7.2-04, GIST-5.1-10, GIST-5.7.1-14, GIST-4.4.1-11, GIST-8.6-01:
/// the Responding node offers its own stacks, keeps no state, and accepts the Confirm over the channel.
#[test]
fn a_query_for_an_association_is_answered_and_confirmed() {
    let mut rig = Rig::with(tcp_and_tls());
    rig.asked(SESSION, asks_tcp());
    let response = rig.sent().is(MessageType::RESPONSE);
    assert_eq!((response.dst, response.options.len()), (at_port(UP), 0));
    rig.no_state();
    assert_eq!(rig.gist.associations().count(), 0);
    let said = response.message();
    assert!(said.header.r && said.responder_cookie.is_some());
    let profiles: Vec<_> = said.stack_proposal.unwrap().profiles.iter().map(|p| p.0.to_vec()).collect();
    assert_eq!(profiles, [vec![2, 1], vec![1]], "not what the Query had");
    let options: Vec<_> =
        said.stack_configuration.unwrap().options.iter().map(|o| (o.profile, o.port())).collect();
    assert_eq!(options, [(1, Some(TLS)), (2, Some(TCP))]);

    let channel = rig.accepted(2, Transport::Tcp);
    let octets = first_confirm(&response, |m| m.nslp_data = Some(b"with"));
    rig.octets(channel, &octets);
    assert!(matches!(rig.notified(), (Direction::Upstream, NetworkEvent::Good(_))));
    let up = rig.delivered();
    assert_eq!(up.data, b"with");
    assert!(up.attributes.reliable);
    rig.quiet();
    assert_eq!(rig.session().upstream.unwrap().association, Some(channel));
    assert_eq!(rig.held(channel).unwrap().peer, b"up");
    rig.reliably(b"back", through().inverted());
    let data = rig.over().is(MessageType::DATA);
    assert_eq!(data.channel, channel);
}
