//! Authorisation of peers over associations (RFC 5971 §4.4.2).

use signalbox_core::Direction;
use signalbox_core::node::Prefix;
use signalbox_core::service::{NetworkEvent, Security, SendError};
use signalbox_gist::apd::{Apd, Entry, Name, Scope, Verdict};
use signalbox_gist::engine::{ChannelId, Config, Input, Transport};
use signalbox_gist::wire::MessageType;

use super::kit::*;
use crate::rig::*;

fn entry(name: Name, scope: Scope, verdict: Verdict) -> Entry {
    Entry { name, scope, verdict }
}

fn with(entries: &[Entry]) -> Config {
    let mut config = tcp_and_tls();
    config.associations.authorised = database(entries);
    config
}

fn database(entries: &[Entry]) -> Apd {
    let mut apd = Apd::new(8, Verdict::Deny);
    for entry in entries {
        apd.push(entry.clone()).unwrap();
    }
    apd
}

fn dns(name: &str) -> Name {
    Name::Dns(name.parse().unwrap())
}

fn friends() -> Entry {
    entry(dns("*.friends.example"), Scope::ANY, Verdict::Allow)
}

/// Sends a secured message up to the channel.
fn opening(rig: &mut Rig) -> ChannelId {
    rig.send_with(b"data", own(), |m| m.attributes = SECURE);
    let query = rig.sent();
    rig.propose(&query, peer_tls());
    let (channel, transport, ..) = rig.opened();
    assert_eq!(transport, Transport::TlsTcp);
    rig.notified();
    channel
}

/// A secured association that `UP` opened.
fn asked_by(rig: &mut Rig, name: &str) -> ChannelId {
    rig.asked(SESSION, asks_tls());
    let response = rig.sent();
    let channel = rig.accepted_from(2, Transport::TlsTcp, Some(&named(name)));
    let octets = first_confirm(&response, |_| {});
    rig.octets(channel, &octets);
    channel
}

/// GIST-4.4.1-05, GIST-4.4.2-03: both ends accept a peer that the database allows.
#[test]
fn who_is_in_the_database_may_be_a_peer() {
    let mut rig = Rig::with(with(&[friends()]));
    let channel = opening(&mut rig);
    rig.connected_as(channel, "down.friends.example");
    rig.over().is(MessageType::CONFIRM);
    rig.over().is(MessageType::DATA);

    let mut rig = Rig::with(with(&[friends()]));
    asked_by(&mut rig, "up.friends.example");
    assert!(matches!(rig.notified().1, NetworkEvent::Good(_)));
}

/// GIST-4.4.1-06, GIST-4.4.2-05, GIST-4.4.2-06, GIST-5.7.3.1-01: the association with a peer that the database does not
/// allow is closed without a message, and no state remains.
#[test]
fn who_is_not_in_the_database_is_left() {
    for name in ["down.enemies.example", "friends.example"] {
        let mut rig = Rig::with(with(&[friends()]));
        let channel = opening(&mut rig);
        rig.connected_as(channel, name);
        assert_eq!(rig.notified(), (Direction::Downstream, NetworkEvent::AuthorisationChanged));
        let mut closed = false;
        while let Some((_, out)) = rig.out.pop_front() {
            match out {
                Out::Closed(other, true) if other == channel => closed = true,
                Out::Status(_, status) => {
                    assert!(matches!(status, signalbox_core::service::MessageStatus::Failed(_)), "{status:?}")
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(closed);
        rig.no_state();
        assert_eq!(rig.gist.associations().count(), 0);

        let mut rig = Rig::with(with(&[friends()]));
        let channel = asked_by(&mut rig, name);
        assert_eq!(rig.closed(), (channel, true));
        rig.quiet();
        rig.no_state();
        assert_eq!(rig.gist.counters().associations_unauthorized, 1);
    }
}

/// A message over an association has the authenticated identity of the peer; other messages have no identity.
#[test]
fn an_application_gets_the_identity_that_the_peer_proved() {
    let mut rig = Rig::with(with(&[friends()]));
    let channel = asked_by(&mut rig, "a.friends.example");
    assert!(matches!(rig.notified().1, NetworkEvent::Good(_)));
    rig.octets(channel, &bare_data(through(), SESSION, b"data"));
    let delivered = rig.delivered();
    assert_eq!(delivered.attributes.security, Security::Channel);
    assert_eq!(delivered.peer.as_deref(), Some(&named("a.friends.example")));
    rig.inject(&Via::direct(UP, LEFT), &data(through(), nli(b"up", UP), b"data"));
    assert_eq!(rig.delivered().peer, None);
}

/// GIST-5.7.3.1-01: a channel with TLS whose peer presented no certificate.
#[test]
fn a_secure_channel_without_identity_is_refused() {
    let mut rig = Rig::with(with(&[friends()]));
    let channel = opening(&mut rig);
    rig.connected(channel);
    assert_eq!(rig.notified().1, NetworkEvent::AuthorisationChanged);
    assert_eq!(rig.gist.associations().count(), 0);
}

/// Unauthenticated associations are refused only if an entry matches. GIST-4.4.2-04.
#[test]
fn plain_associations_need_an_entry_to_be_refused() {
    let mut rig = Rig::with(with(&[friends()]));
    rig.responding_associated();
    let mut rig = Rig::with(with(&[friends(), entry(Name::Any, Scope::ANY, Verdict::Deny)]));
    rig.asked(SESSION, asks_tcp());
    let response = rig.sent();
    let channel = rig.accepted(2, Transport::Tcp);
    let octets = first_confirm(&response, |_| {});
    rig.octets(channel, &octets);
    assert_eq!(rig.closed(), (channel, true));
    rig.no_state();
}

/// GIST-4.4.3-06: one flow's authorisation is not valid for another flow: the association is not shared, and stays.
#[test]
fn authorisation_for_one_flow_is_not_for_all() {
    let source = Prefix { addr: ip("10.8.0.0"), len: 16 };
    let scope = Scope { source: Some(source), ..Scope::ANY };
    let mut rig = Rig::with(with(&[entry(dns("*.friends.example"), scope, Verdict::Allow)]));
    let channel = asked_by(&mut rig, "up.friends.example");
    rig.notified();
    rig.quiet();
    rig.asked(session(2), asks_tls());
    rig.over().is(MessageType::RESPONSE);
    let mut message = query(flow("10.7.0.7", DST), &[1; 8]);
    (message.stack_proposal, message.stack_configuration) = (Some(asks_tls().0), Some(asks_tls().1));
    rig.inject(&Via::intercepted("10.7.0.7", DST), &message);
    let response = rig.sent().is(MessageType::RESPONSE);
    assert!(response.message().stack_proposal.is_some());
    // A Confirm over it creates no state.
    let octets = first_confirm(&response, |m| m.stack_configuration = None);
    rig.octets(channel, &octets);
    rig.quiet();
    assert_eq!(rig.gist.sessions().count(), 1);
    assert!(rig.held(channel).is_some());
}

/// GIST-4.4.2-02: Peer Address Ownership: one hop downstream, the peer must have the address of the next hop.
#[test]
fn the_next_hop_is_where_the_peer_must_be() {
    for (owned, allowed) in [("10.2.0.2", true), ("10.2.0.3", false)] {
        let scope = Scope { peers: vec![Prefix { addr: ip(owned), len: 32 }], ..Scope::ANY };
        let mut rig = Rig::with(with(&[entry(dns("*.friends.example"), scope, Verdict::Allow)]));
        rig.route = Some(Ok(signalbox_core::node::Route { gateway: Some(ip(DOWN)), ..ROUTE }));
        let channel = opening(&mut rig);
        rig.connected_as(channel, "down.friends.example");
        assert_eq!(rig.held(channel).is_some(), allowed);
    }
}

/// GIST-4.4.2-08, GIST-4.4.2-09, GIST-4.4.2-06, GIST-B.4-04, GIST-4.4.2-10: after a change of the database,
/// associations that it refuses end with their state, and applications are notified.
#[test]
fn a_changed_database_is_applied_to_what_is_there() {
    let mut rig = Rig::with(with(&[friends()]));
    let channel = asked_by(&mut rig, "up.friends.example");
    rig.notified();
    rig.handle(Input::AuthorisedPeers(&database(&[friends()])));
    rig.quiet();
    rig.handle(Input::AuthorisedPeers(&database(&[])));
    assert_eq!(rig.notified(), (Direction::Upstream, NetworkEvent::AuthorisationChanged));
    assert_eq!(rig.closed(), (channel, true));
    rig.quiet();
    rig.no_state();
    assert_eq!(rig.gist.associations().count(), 0);
    assert_eq!(rig.gist.counters().sessions_unauthorized, 1);
}

/// GIST-4.1.2-05: without TLS a message is not secure.
#[test]
fn security_needs_tls() {
    let mut rig = Rig::with(tcp_only());
    rig.send_with(b"data", own(), |m| m.attributes = SECURE);
    assert_eq!(rig.failed(), SendError::Refused);
}
