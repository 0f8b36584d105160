//! Peers behind a GIST-aware NAT (RFC 5971 §7.2.2, §7.2.3).

use core::time::Duration;

use signalbox_core::service::{NetworkEvent, SendError, SiiHandle};
use signalbox_core::{Direction, Mri, SessionId};
use signalbox_gist::engine::{Config, Installation};
use signalbox_gist::wire::{
    Encapsulation, GistError, Info, List, Message, MessageType, NatTraversal, Nli, ObjectType, Objects,
    Replaced, StackConfiguration, StackProposal, Translated, mri_encode,
};
use signalbox_wire::Writer;

use crate::rig::*;

/// Source of the flow: the upstream peer, whose own address is not reachable from here.
const INSIDE: &str = "192.168.0.8";
/// A peer behind another NAT.
const LEFT_PEER: &str = "10.1.0.9";
const INNER: &str = "192.168.0.2";
/// UDP port of the NAT towards this node.
pub(crate) const NAT_PORT: u16 = 4711;

static BOTH: [Translated; 2] = [Translated(2), Translated(4)];
static OPAQUE: [Replaced<'static>; 1] = [Replaced(b"secret")];

pub(crate) fn inside() -> Mri {
    flow(INSIDE, DST)
}

pub(crate) fn value(mri: &Mri) -> Vec<u8> {
    let mut octets = Vec::new();
    mri_encode(mri, &mut Writer::new(&mut octets)).unwrap();
    octets
}

pub(crate) fn translation(original_mri: &[u8]) -> NatTraversal<'_> {
    NatTraversal { octets: &[], original_mri, translated: List::of(&BOTH), replaced: List::of(&OPAQUE) }
}

/// A Query of the peer inside as the NAT forwards it.
fn outward(original: &[u8], number: u8) -> Vec<u8> {
    let cookie = [number; 8];
    let mut message = query(through(), &cookie);
    message.nat_traversal = Some(translation(original));
    encode(&message)
}

fn via_nat() -> Via {
    let mut via = Via::intercepted(SRC, DST);
    via.src.set_port(NAT_PORT);
    via
}

/// The path from the peer inside: the NAT changed only the headers of the packet.
fn from_inside() -> Via {
    let mut via = Via::direct(UP, LEFT);
    via.src.set_port(NAT_PORT);
    via
}

fn confirm_of<'a>(response: &Message<'a>) -> Message<'a> {
    Message { mri: Some(inside().into()), ..peer(b"up", INNER).confirm(response) }
}

fn installing(installation: Installation) -> Rig {
    Rig::with(Config { installation, ..Config::default() })
}

/// A handshake with the peer inside.
fn met(rig: &mut Rig) {
    rig.packet(&via_nat(), &outward(&value(&inside()), 1));
    let response = rig.sent().is(MessageType::RESPONSE);
    if response.message().header.r {
        rig.inject(&from_inside(), &confirm_of(&response.message()));
    }
    assert!(matches!(rig.notified(), (Direction::Upstream, NetworkEvent::Good(_))));
    rig.quiet();
}

const POLICIES: [Installation; 3] = [Installation::Immediate, Installation::Confirmed, Installation::Delayed];

/// GIST-7.2.3-04, GIST-7.2.3-05: the Response to a Query that was translated begins with the NAT's object, octet by
/// octet, reserved octets too; MRI and NLI are those of this side.
#[test]
fn the_object_comes_back_as_it_came() {
    let mut rig = Rig::new();
    let mut octets = outward(&value(&inside()), 1);
    // Offset of the reserved octet of the object: after 4 octets of magic number, 8 of header and 4 of TLV.
    octets[4 + 8 + 4 + 3] = 0x5a;
    rig.packet(&via_nat(), &octets);
    let response = rig.sent().is(MessageType::RESPONSE);
    assert_eq!(response.dst, (ip(UP), NAT_PORT).into());
    let first = |octets: &[u8]| Objects::of(octets).next().unwrap().unwrap().octets.to_vec();
    assert_eq!(first(response.octets()), first(&octets[4..]));
    assert_eq!(first(response.octets())[..2], [0, 7]);
    let said = response.message();
    assert_eq!(said.mri.unwrap().mri, through().inverted());
    assert_eq!(said.nli.unwrap().interface, ip(LEFT));
    rig.quiet();
}

/// GIST-7.2.2-06, GIST-7.2.3-09, GISTNAT-R7.2.2-04, GISTNAT-D6.3-02: Confirm and Data in both directions have the MRI of the
/// Querying node inside, and the application gets the MRI of this side. A node without state until the Confirm takes both from its
/// own cookie.
#[test]
fn the_responding_node_translates() {
    for policy in POLICIES {
        let mut rig = installing(policy);
        met(&mut rig);
        let upstream = rig.session().upstream.unwrap();
        assert_eq!(rig.session().mri, through());
        assert_eq!(upstream.foreign, Some(inside()));
        assert_eq!(upstream.peer, Some((ip(UP), NAT_PORT).into()));
        rig.inject(&from_inside(), &data(inside(), nli(b"up", INNER), b"data"));
        let delivered = rig.delivered();
        assert_eq!((delivered.data.as_slice(), delivered.mri), (&b"data"[..], through()));
        assert!(delivered.state.is_some() && !delivered.validation.unchecked_route);
        rig.send(b"back", through().inverted());
        let back = rig.sent().is(MessageType::DATA);
        assert_eq!(back.dst, (ip(UP), NAT_PORT).into());
        assert_eq!(back.message().mri.unwrap().mri, inside().inverted());
        assert_eq!(rig.gist.counters().untranslated, 0);
    }
}

/// GIST-7.2.3-09: a refresh with the same translation as the first Query is not a route change.
#[test]
fn a_refresh_across_a_nat_changes_nothing() {
    for policy in POLICIES {
        let mut rig = installing(policy);
        met(&mut rig);
        for number in 2..4 {
            rig.until(u64::from(number) * 10_000);
            rig.packet(&via_nat(), &outward(&value(&inside()), number));
            let response = rig.sent().is(MessageType::RESPONSE);
            if response.message().header.r {
                rig.inject(&from_inside(), &confirm_of(&response.message()));
            }
            rig.quiet();
        }
        assert_eq!(rig.gist.counters().peer_changed, 0);
        rig.inject(&from_inside(), &data(inside(), nli(b"up", INNER), b"data"));
        assert_eq!(rig.delivered().mri, through());
    }
}

/// GIST-7.2.3-09, GISTNAT-R8.5-01: neither the contents of the cookie nor the flow next to it can be replaced.
#[test]
fn a_carrying_cookie_cannot_be_changed() {
    let mut rig = Rig::new();
    rig.packet(&via_nat(), &outward(&value(&inside()), 1));
    let response = rig.sent().is(MessageType::RESPONSE);
    let said = response.message();
    let cookie = said.responder_cookie.unwrap();
    for at in 0..cookie.len() {
        let mut changed = cookie.to_vec();
        changed[at] ^= 1;
        let mut confirm = confirm_of(&said);
        confirm.responder_cookie = Some(&changed);
        rig.inject(&from_inside(), &confirm);
    }
    for length in (0..cookie.len()).step_by(4) {
        let mut confirm = confirm_of(&said);
        confirm.responder_cookie = Some(&cookie[..length]);
        rig.inject(&from_inside(), &confirm);
    }
    let mut confirm = confirm_of(&said);
    confirm.mri = Some(flow("192.168.0.9", DST).into());
    rig.inject(&from_inside(), &confirm);
    let mut confirm = confirm_of(&said);
    confirm.session = Some(SessionId([9; 16]));
    rig.inject(&from_inside(), &confirm);
    while let Some((_, out)) = rig.out.pop_front() {
        // A Confirm without a plausible cookie is refused, other messages are not answered.
        let Out::Sent(packet) = out else { panic!("{out:?}") };
        packet.is(MessageType::ERROR);
    }
    rig.no_state();
    rig.inject(&from_inside(), &confirm_of(&said));
    assert!(matches!(rig.notified(), (Direction::Upstream, NetworkEvent::Good(_))));
}

/// The peer's MRI is removed together with the session, and when the peer is not behind its NAT any more.
#[test]
fn translations_end_with_their_state() {
    let mut rig = Rig::new();
    met(&mut rig);
    rig.lifetime(through().inverted(), Some(SESSION), Duration::ZERO);
    rig.no_state();
    rig.inject(&from_inside(), &data(inside(), nli(b"up", INNER), b"data"));
    rig.quiet();
    assert_eq!(rig.gist.counters().untranslated, 1);
    met(&mut rig);
    rig.query(None);
    let response = rig.sent().is(MessageType::RESPONSE);
    rig.confirm(&response);
    rig.notified();
    rig.notified();
    assert_eq!(rig.session().upstream.unwrap().foreign, None);
    rig.send(b"back", through().inverted());
    assert_eq!(rig.sent().message().mri.unwrap().mri, through().inverted());
}

/// GIST-7.2.3-02, GIST-7.2.3-03, GIST-A.4.4.9-06, GISTNAT-R7.2.3-11: a NAT did not translate an object with addresses: the Error names the
/// object, and begins with the object of the NAT.
#[test]
fn objects_that_were_not_translated() {
    let original = value(&inside());
    let proposal = StackProposal { profiles: List::of(&[signalbox_gist::wire::Profile(&[1])]) };
    let option = signalbox_gist::wire::MaOptions {
        protocol: signalbox_gist::wire::MaProtocolId::FORWARDS_TCP,
        profile: 0,
        disabled: false,
        data: &[],
    };
    let options = [option];
    let configuration = StackConfiguration { hold_time_ms: 1000, options: List::of(&options) };
    for (translated, stack, missing) in [
        (&[][..], false, Some(ObjectType::NLI)),
        (&BOTH[1..], false, Some(ObjectType::NLI)),
        (&BOTH[..1], true, Some(ObjectType::STACK_CONFIGURATION)),
        (&BOTH[..1], false, None),
        (&BOTH[..], true, None),
    ] {
        for s in [false, true] {
            let mut rig = Rig::new();
            let mut message = query(through(), &[1; 8]);
            message.header.s = s;
            let translated = List::of(translated);
            message.nat_traversal = Some(NatTraversal { translated, ..translation(&original) });
            if stack {
                message.stack_proposal = Some(proposal);
                message.stack_configuration = Some(configuration);
            }
            let sender = if s { UP } else { SRC };
            rig.inject(&Via::intercepted(sender, DST), &message);
            let answer = rig.sent();
            match missing {
                None => drop(answer.is(MessageType::RESPONSE)),
                Some(missing) => {
                    let said = answer.error_is(GistError::UNTRANSLATED_OBJECT);
                    let said = said.message();
                    let infos = said.error.unwrap().infos;
                    assert_eq!(infos.iter().next(), Some(Info::ObjectType(missing)));
                    assert_eq!(said.nat_traversal, message.nat_traversal);
                }
            }
            rig.no_state();
        }
    }
}

/// GIST-7.2.3-03: any Error about a message with the object begins with it, also if the NAT is not the cause.
#[test]
fn errors_begin_with_the_object() {
    let original = value(&inside());
    let mut rig = Rig::new();
    let mut message = query(through(), &[1; 8]);
    message.nat_traversal = Some(translation(&original));
    message.header.hops = 0;
    rig.inject(&via_nat(), &message);
    let error = rig.sent().error_is(GistError::HOP_LIMIT_EXCEEDED);
    let first = Objects::of(error.octets()).next().unwrap().unwrap();
    assert_eq!(first.kind, ObjectType::NAT_TRAVERSAL);
    assert_eq!(error.message().nat_traversal, message.nat_traversal);
    // Only the MRI in the object has an unknown routing method.
    let mut unknown = original.clone();
    unknown[0] = 99;
    message.nat_traversal = Some(translation(&unknown));
    message.header.hops = 64;
    rig.inject(&via_nat(), &message);
    let error = rig.sent().error_is(GistError::VALUE_NOT_SUPPORTED);
    assert_eq!(error.message().nat_traversal, message.nat_traversal);
    rig.no_state();
}

/// GISTNAT-R7.2.2-03: Q-mode Data is processed with the NAT's translation: it needs no state and creates none.
#[test]
fn data_without_state_across_a_nat() {
    let original = value(&inside());
    let mut rig = Rig::new();
    let mut message = data(through(), nli(b"up", UP), b"data");
    (message.header.c, message.header.s) = (true, false);
    message.nat_traversal = Some(translation(&original));
    rig.inject(&via_nat(), &message);
    assert_eq!(rig.delivered().mri, through());
    rig.no_state();
}

/// The node's own flow as `DOWN` sees it, behind a NAT.
fn beyond() -> Mri {
    flow(RIGHT, "172.16.0.9")
}

/// GIST-7.2.3-07, GIST-7.2.3-08: the Querying node finds its state by the MRI in the object of a Response, and reports
/// the flow of the other side; all later messages have its own MRI, and Data in return is accepted with any inside
/// address of its sender.
#[test]
fn the_querying_node() {
    let mut rig = Rig::new();
    rig.send(b"data", own());
    let query = rig.sent().is(MessageType::QUERY);
    let original = value(&own());
    rig.respond_with(&query, |m| m.mri = Some(beyond().inverted().into()));
    rig.quiet();
    assert_eq!(rig.gist.counters().responses_stray, 1);
    rig.respond_with(&query, |m| {
        m.mri = Some(beyond().inverted().into());
        m.nat_traversal = Some(translation(&original));
    });
    let confirm = rig.sent().is(MessageType::CONFIRM);
    assert_eq!((confirm.dst, confirm.message().mri.unwrap().mri), (at_port(DOWN), own()));
    assert_eq!(rig.sent().is(MessageType::DATA).message().mri.unwrap().mri, own());
    rig.status();
    rig.notified();
    assert_eq!(rig.session().mri, own());
    assert_eq!(rig.session().downstream.unwrap().foreign, Some(beyond()));
    let sender = Nli { ip_ttl: 3, ..nli(b"down", "172.16.0.2") };
    rig.inject(&Via::direct(DOWN, RIGHT), &data(own().inverted(), sender, b"back"));
    let delivered = rig.delivered();
    assert_eq!((delivered.mri, delivered.ip_distance), (own().inverted(), 3));
    // Without the object the same Data was translated by a NAT without GIST.
    let mut other = Rig::new();
    other.established();
    other.inject(&Via::direct(DOWN, RIGHT), &data(own().inverted(), sender, b"back"));
    other.quiet();
}

/// A rig whose own flow crosses a NAT, and the Confirm and the Data that it sent.
fn crossed() -> (Rig, Packet, Packet) {
    let mut rig = Rig::new();
    rig.send(b"data", own());
    let query = rig.sent().is(MessageType::QUERY);
    let original = value(&own());
    rig.respond_with(&query, |m| {
        m.mri = Some(beyond().inverted().into());
        m.nat_traversal = Some(translation(&original));
    });
    let (confirm, data) = (rig.sent().is(MessageType::CONFIRM), rig.sent().is(MessageType::DATA));
    rig.status();
    rig.notified();
    (rig, confirm, data)
}

/// GISTNAT-R7.2.1-03: the address in the NLI of a Confirm is not that of its packet behind the NAT. With S=0 its receiver does
/// not take the NAT for one without GIST. Without a NAT, S=1.
#[test]
fn a_confirm_across_a_nat_has_no_signaling_source() {
    let (_, confirm, _) = crossed();
    assert!(!confirm.message().header.s);
    let mut rig = Rig::new();
    rig.send(b"data", own());
    let query = rig.sent();
    rig.respond(&query);
    assert!(rig.sent().is(MessageType::CONFIRM).message().header.s);
}

/// GISTNAT-R7.2.1-03: a Confirm with S=0 is accepted from another address than that of its NLI.
#[test]
fn a_confirm_without_signaling_source_is_accepted() {
    for policy in POLICIES {
        let mut rig = installing(policy);
        rig.packet(&via_nat(), &outward(&value(&inside()), 1));
        let response = rig.sent().is(MessageType::RESPONSE);
        let said = response.message();
        if said.header.r {
            let mut confirm = confirm_of(&said);
            confirm.header.s = false;
            rig.inject(&from_inside(), &confirm);
        }
        assert!(matches!(rig.notified(), (Direction::Upstream, NetworkEvent::Good(_))));
        rig.quiet();
    }
}

/// GISTNAT-X-13: Data of both ends have S=0 if the state crosses a NAT, and are accepted. Otherwise S=1.
#[test]
fn data_across_a_nat_has_no_signaling_source() {
    let (mut rig, _, sent) = crossed();
    assert!(!sent.message().header.s);
    let mut back = data(own().inverted(), nli(b"down", "172.16.0.2"), b"back");
    back.header.s = false;
    rig.inject(&Via::direct(DOWN, RIGHT), &back);
    assert_eq!(rig.delivered().data, b"back");

    let mut rig = Rig::new();
    met(&mut rig);
    let mut there = data(inside(), nli(b"up", INNER), b"data");
    there.header.s = false;
    rig.inject(&from_inside(), &there);
    let sii = rig.delivered().sii;
    rig.send(b"back", through().inverted());
    assert!(!rig.sent().is(MessageType::DATA).message().header.s);
    rig.status();
    rig.send_with(b"explicit", through().inverted(), |m| m.sii = sii);
    let explicit = rig.sent().is(MessageType::DATA).message().header;
    assert!(explicit.e && !explicit.s);

    let (_, plain) = Rig::new().established();
    assert!(plain.message().header.s);
}

/// GIST-7.2.3-07, GIST-7.2.1-04, GISTNAT-X-23: the node finds its state by the object for an Error too, and ends the handshake.
#[test]
fn an_error_across_a_nat() {
    let original = value(&own());
    for with in [false, true] {
        let mut rig = Rig::new();
        rig.send(b"data", own());
        let sent = rig.sent().is(MessageType::QUERY);
        // The message as it arrived beyond the NAT.
        let mut arrived = sent.message();
        arrived.mri = Some(beyond().into());
        let octets = encode(&arrived);
        let untranslated = GistError::UNTRANSLATED_OBJECT;
        let mut error = peer(b"down", DOWN).error(untranslated, &octets[4..], Encapsulation::QMode);
        error.nat_traversal = with.then_some(translation(&original));
        rig.inject(&Via::direct(DOWN, RIGHT), &error);
        if with {
            assert_eq!(rig.failed(), SendError::Peer { code: 9, subcode: 4 });
            rig.no_state();
        } else {
            assert_eq!(rig.gist.counters().errors_stray, 1);
        }
        rig.quiet();
    }
}

/// GIST-7.2.2-06: an Error of the peer inside about Data of this node has the MRI of the peer; it belongs to the
/// session nevertheless.
#[test]
fn an_error_about_translated_data() {
    let mut rig = Rig::new();
    met(&mut rig);
    rig.send(b"back", through().inverted());
    let back = rig.sent().is(MessageType::DATA);
    rig.status();
    let error = GistError::NO_ROUTING_STATE;
    rig.inject(&from_inside(), &peer(b"up", INNER).error(error, back.octets(), Encapsulation::Normal));
    assert_eq!(rig.notified(), (Direction::Upstream, NetworkEvent::Bad));
    rig.no_state();
}

/// GIST-7.2.2-06: explicitly routed Data to the peer inside has the MRI of the peer.
#[test]
fn explicit_routing_across_a_nat() {
    let mut rig = Rig::new();
    met(&mut rig);
    rig.inject(&from_inside(), &data(inside(), nli(b"up", INNER), b"data"));
    let sii: Option<SiiHandle> = rig.delivered().sii;
    rig.send_with(b"back", through().inverted(), |m| m.sii = sii);
    let back = rig.sent().is(MessageType::DATA);
    assert!(back.message().header.e);
    assert_eq!(back.message().mri.unwrap().mri, inside().inverted());
    rig.status();
    let mut message = data(inside(), nli(b"up", INNER), b"tear");
    message.header.e = true;
    rig.inject(&from_inside(), &message);
    let delivered = rig.delivered();
    assert!(delivered.validation.unchecked_route);
    assert_eq!(delivered.mri, through());
}

/// Messages from beyond a NAT, with every octet changed and truncated at every length: no panic, and no state is left.
#[test]
fn bad_messages_across_a_nat() {
    for policy in POLICIES {
        let mut rig = Rig::with(Config {
            installation: policy,
            error_rate: 1_000_000,
            dmode_rate: 0,
            ..Config::default()
        });
        rig.packet(&via_nat(), &outward(&value(&inside()), 1));
        let at = rig.out.iter().position(|(_, out)| matches!(out, Out::Sent(_))).unwrap();
        let Some((_, Out::Sent(response))) = rig.out.remove(at) else { panic!() };
        let confirm = encode(&confirm_of(&response.message()));
        let known = encode(&data(inside(), nli(b"up", INNER), b"data"));
        for (via, octets) in [
            (via_nat(), outward(&value(&inside()), 2)),
            (from_inside(), confirm.clone()),
            (from_inside(), known.clone()),
        ] {
            for at in 0..octets.len() {
                for mask in [1, 0x80, 0xff] {
                    let mut bent = octets.clone();
                    bent[at] ^= mask;
                    rig.packet(&via, &bent);
                }
                rig.packet(&via, &octets[..at]);
            }
        }
        rig.out.clear();
        rig.until(400_000);
        rig.no_state();
        assert_eq!(rig.gist.peers().count(), 0);
        assert_eq!(rig.gist.next_deadline(), None);
    }
}

/// GISTNAT-D6.3-01: two private networks have the same addresses and ports, so that the Querying nodes of both name the same original
/// flow. Their sessions stay apart: each has the MRI and the peer that its own NAT gave it.
#[test]
fn equal_flows_of_two_private_networks_stay_apart() {
    let mut rig = installing(Installation::Immediate);
    met(&mut rig);
    let (other, second) = (SessionId([0x77; 16]), flow(LEFT_PEER, DST));
    let (original, cookie) = (value(&inside()), [2; 8]);
    let mut message = query(second, &cookie);
    message.session = Some(other);
    message.nat_traversal = Some(translation(&original));
    message.nli = Some(nli(b"other", LEFT_PEER));
    rig.packet(&Via::intercepted(LEFT_PEER, DST), &encode(&message));
    rig.sent().is(MessageType::RESPONSE);
    assert!(matches!(rig.notified(), (Direction::Upstream, NetworkEvent::Good(_))));
    for (session, mri, via) in
        [(SESSION, through(), from_inside()), (other, second, Via::direct(LEFT_PEER, LEFT))]
    {
        let mut data = data(inside(), nli(b"up", INNER), b"data");
        data.session = Some(session);
        rig.inject(&via, &data);
        let delivered = rig.delivered();
        assert_eq!((delivered.session, delivered.mri), (session, mri));
    }
}
