//! A NAT: the next hops of a session see another flow than its previous hops.

use signalbox_casp::engine::{Refused, Request, SendRequest, Verdict};
use signalbox_casp::wire::{Flags, FlowId, Signaling};

use crate::rig::*;

/// The flow of the rig from this port of the node's outer address.
fn outer(port: u16) -> FlowId {
    let FlowId::V4Ports { dst, dst_port, protocol, .. } = flow() else { unreachable!() };
    FlowId::V4Ports { src: FAR.parse().unwrap(), dst, src_port: port, dst_port, protocol }
}

fn translate(rig: &mut Rig, flow: FlowId, outer: FlowId) -> Vec<Sent> {
    rig.request(CLIENT, Request::Translate { session: session(1), flow, outer })
}

/// A chain whose flow the client translates before it decides about the first message. The result is the stream of each side,
/// and what the node sent.
fn natted(rig: &mut Rig) -> (signalbox_core::node::StreamId, signalbox_core::node::StreamId, Vec<Sent>) {
    rig.verdict = None;
    let up = rig.accept(UP);
    rig.say(up, &data(CLIENT));
    let id = rig
        .take_indicated()
        .into_iter()
        .find_map(|one| if let Indicated::Received(arrival, _) = one { Some(arrival.id) } else { None });
    assert!(translate(rig, flow(), outer(40000)).is_empty());
    let outputs = rig.request(CLIENT, Request::Verdict { id: id.unwrap(), verdict: Verdict::Forward });
    rig.verdict = Some(Verdict::Forward);
    (up, rig.stream_to(DOWN), outputs)
}

/// CASP-G-20, CASP-00-09: FLOW_ID is rewritten along the flow and back; the session is the same. The client has the flow of
/// the inner side.
#[test]
fn flow_id_is_rewritten_in_both_directions() {
    let mut rig = Rig::new();
    let (up, down, outputs) = natted(&mut rig);
    let sent = only(&outputs, down);
    assert_eq!((sent.message().flow, sent.message().session), (outer(40000), session(1)));
    rig.take_indicated();
    let answer = Signaling { flow: outer(40000), ..flags(data(CLIENT), Flags::REVERSE) };
    let outputs = rig.say(down, &answer);
    assert_eq!(only(&outputs, up).message().flow, flow());
    assert!(matches!(&rig.take_indicated()[0], Indicated::Received(arrival, _) if arrival.flow == flow()));
    // Messages of the client, and refreshes of the node.
    let send = |reverse| SendRequest { reverse, ..SendRequest::new(Some(session(1)), flow(), b"x") };
    let outputs = rig.request(CLIENT, Request::Send(send(false)));
    assert_eq!(only(&outputs, down).message().flow, outer(40000));
    let outputs = rig.request(CLIENT, Request::Send(send(true)));
    assert_eq!(only(&outputs, up).message().flow, flow());
    let outputs = rig.wait(seconds(50.0));
    assert!(outputs.iter().any(|one| one.stream == Some(down)));
    assert!(signaling(&outputs).iter().all(|one| one.message().flow == outer(40000)));
    let view = rig.state();
    assert_eq!((view.flow, view.outer), (flow(), Some(outer(40000))));
}

/// CASP-G-20: the next hop has the outer flow only, and the previous hop the inner flow only.
#[test]
fn each_side_knows_its_own_flow_only() {
    let mut rig = Rig::new();
    let (up, down, _) = natted(&mut rig);
    assert!(rig.say(down, &flags(data(CLIENT), Flags::REVERSE)).is_empty());
    assert_eq!(rig.node.counters().no_state, 1);
    // What this node sent came back to it.
    for stream in [up, down] {
        assert!(rig.say(stream, &Signaling { flow: outer(40000), ..data(CLIENT) }).is_empty());
    }
    assert_eq!((rig.node.counters().loops, rig.node.session_count()), (2, 1));
}

/// CASP-G-20: tear-down in each direction reaches the other side with the flow that it has, and leaves nothing.
#[test]
fn a_tear_down_passes_a_nat() {
    for reverse in [false, true] {
        let mut rig = Rig::new();
        let (up, down, _) = natted(&mut rig);
        let tear = Flags::TEAR_DOWN.with_if(Flags::REVERSE, reverse);
        let (from, to, has, gets) =
            if reverse { (down, up, outer(40000), flow()) } else { (up, down, flow(), outer(40000)) };
        let outputs = rig.say(from, &Signaling { flow: has, ..flags(message(), tear) });
        assert_eq!(only(&outputs, to).message().flow, gets);
        assert_eq!(rig.node.session_count(), 0);
        assert!(
            rig.say(down, &Signaling { flow: outer(40000), ..flags(message(), Flags::REVERSE) }).is_empty()
        );
        assert_eq!(rig.node.counters().no_state, 1);
        // The names are free again.
        rig.say(up, &Signaling { flow: outer(40000), ..message() });
        assert_eq!((rig.state().flow, rig.state().outer), (outer(40000), None));
    }
}

/// CASP-G-20: a message that waits for its next hop leaves with the flow of the outer side.
#[test]
fn messages_that_wait_are_rewritten() {
    let mut rig = Rig::new();
    rig.accepting = false;
    let up = rig.accept(UP);
    rig.say(up, &data(UNKNOWN));
    translate(&mut rig, flow(), outer(40000));
    rig.say(up, &data(UNKNOWN));
    let down = rig.stream_to(DOWN);
    rig.sent.clear();
    rig.input(signalbox_casp::engine::Input::Connected { stream: down, identity: None });
    let outputs = signaling(&rig.sent);
    assert_eq!(outputs.iter().map(|one| one.message().flow).collect::<Vec<_>>(), [outer(40000); 2]);
}

/// CASP-G-20: when the outer flow changes, the next hops end the former one, and answers with it are not accepted.
#[test]
fn another_outer_flow_replaces_the_first() {
    let mut rig = Rig::new();
    let (up, down, _) = natted(&mut rig);
    let outputs = translate(&mut rig, flow(), outer(40002));
    let ended = only(&outputs, down);
    assert_eq!(
        (ended.message().flow, ended.message().flags),
        (outer(40000), Flags::TEAR_DOWN.with(Flags::UNSECURE))
    );
    assert_eq!(only(&rig.say(up, &data(CLIENT)), down).message().flow, outer(40002));
    let answer = |flow| Signaling { flow, ..flags(message(), Flags::REVERSE) };
    assert!(rig.say(down, &answer(outer(40000))).is_empty());
    assert_eq!(only(&rig.say(down, &answer(outer(40002))), up).message().flow, flow());
    // Without a translation the flow is the same on both sides.
    translate(&mut rig, flow(), flow());
    assert_eq!(rig.state().outer, None);
    assert_eq!(only(&rig.say(up, &data(CLIENT)), down).message().flow, flow());
}

/// CASP-00-09: the source changes within a session, before the NAT and behind it: two states with two flows each.
#[test]
fn a_moved_source_has_a_translation_of_its_own() {
    let mut rig = Rig::new();
    let (up, down, _) = natted(&mut rig);
    let moved = flow_to(DST, 5008);
    rig.say(up, &Signaling { flow: moved, ..data(CLIENT) });
    translate(&mut rig, moved, outer(40002));
    assert_eq!(
        only(&rig.say(up, &Signaling { flow: moved, ..data(CLIENT) }), down).message().flow,
        outer(40002)
    );
    // The end of the former flow does not end the new one.
    let outputs = rig.say(up, &flags(message(), Flags::TEAR_DOWN));
    assert_eq!(only(&outputs, down).message().flow, outer(40000));
    assert_eq!((rig.state().flow, rig.state().outer), (moved, Some(outer(40002))));
}

/// CASP-G-20: what cannot be translated: sessions of this node, sessions that do not exist, another destination, a flow that is
/// that of another state.
#[test]
fn wrong_translations_are_refused() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    let other = flow_to(DST, 5008);
    rig.say(up, &message());
    rig.say(up, &Signaling { flow: other, ..message() });
    rig.take_indicated();
    let elsewhere = flow_to("10.8.0.9", 5006);
    for (of, to, why) in [
        (outer(1), outer(2), Refused::NoSession),
        (flow(), elsewhere, Refused::Flow),
        (flow(), other, Refused::Flow),
    ] {
        assert!(translate(&mut rig, of, to).is_empty());
        assert_eq!(rig.take_indicated(), [Indicated::Refused(0, why)]);
    }
    translate(&mut rig, flow(), outer(40000));
    translate(&mut rig, other, outer(40000));
    assert_eq!(rig.take_indicated(), [Indicated::Refused(0, Refused::Flow)]);
    // A client of this node cannot open what this node sends under that name.
    let send = SendRequest::new(Some(session(1)), outer(40000), b"x");
    rig.request(CLIENT, Request::Send(send));
    assert_eq!(rig.take_indicated(), [Indicated::Refused(0, Refused::Flow)]);
    let own = rig.open(true);
    rig.take_indicated();
    rig.request(CLIENT, Request::Translate { session: own, flow: flow(), outer: outer(7) });
    assert_eq!(rig.take_indicated(), [Indicated::Refused(0, Refused::Flow)]);
}

/// A node whose client opens passages, and translates flows if it is a NAT. The client decides when it is asked to.
fn opener(nat: bool) -> Rig {
    let mut rig = Rig::new();
    rig.node.set_opener(CLIENT, nat);
    rig.verdict = None;
    rig
}

/// The messages that wait for the client: their ids, and whether they are refreshes.
fn asked(rig: &mut Rig) -> Vec<(u64, bool)> {
    let all = rig.take_indicated().into_iter();
    all.filter_map(|one| match one {
        Indicated::Received(arrival, _) => Some((arrival.id, arrival.refresh)),
        _ => None,
    })
    .collect()
}

/// O08: a NAT that has restarted gets refreshes before the requests of its client. No refresh of any node leaves with the inner flow;
/// the first request that is translated brings the session back.
#[test]
fn nothing_leaves_a_nat_that_has_not_translated_it() {
    let mut rig = opener(true);
    let up = rig.accept(UP);
    assert!(signaling(&rig.say(up, &message())).is_empty());
    assert!(matches!(asked(&mut rig)[..], [(id, true)] if id != 0));
    // Without a verdict messages go on; here nothing does, and this node makes no refresh either.
    assert!(rig.wait(seconds(80.0)).is_empty());
    assert_eq!((rig.node.counters().untranslated, rig.node.counters().refreshed), (1, 0));
    assert!(signaling(&rig.say(up, &data(CLIENT))).is_empty());
    assert!(matches!(asked(&mut rig)[..], [(_, false)]));
    assert!(rig.wait(seconds(2.0)).is_empty());
    assert_eq!(rig.node.counters().untranslated, 2);
    rig.say(up, &data(CLIENT));
    let [(id, false)] = asked(&mut rig)[..] else { panic!("one message waits") };
    translate(&mut rig, flow(), outer(40000));
    let outputs = rig.request(CLIENT, Request::Verdict { id, verdict: Verdict::Forward });
    let down = rig.stream_to(DOWN);
    assert_eq!(only(&outputs, down).message().flow, outer(40000));
    assert_eq!(only(&rig.say(up, &message()), down).message().flow, outer(40000));
    assert!(asked(&mut rig).is_empty(), "the client knows it");
    assert!(rig.wait(seconds(50.0)).iter().all(|one| one.is_scout() || one.message().flow == outer(40000)));
    assert_eq!(rig.node.counters().untranslated, 2);
}

/// O08: a flow from the outside goes on as it is, when the client has said so.
#[test]
fn a_nat_lets_a_flow_as_it_is_go_on() {
    let mut rig = opener(true);
    let up = rig.accept(UP);
    rig.say(up, &message());
    let [(id, true)] = asked(&mut rig)[..] else { panic!("a refresh waits") };
    translate(&mut rig, flow(), flow());
    let outputs = rig.request(CLIENT, Request::Verdict { id, verdict: Verdict::Forward });
    let down = rig.stream_to(DOWN);
    assert_eq!(only(&outputs, down).message().flow, flow());
    assert_eq!(only(&rig.say(up, &message()), down).message().flow, flow());
    assert!(asked(&mut rig).is_empty());
    assert_eq!(rig.node.counters().untranslated, 0);
}

/// The flows of other clients are not translated: what their sessions send passes as it is.
#[test]
fn sessions_of_other_clients_pass_a_nat() {
    let mut rig = opener(true);
    let up = rig.accept(UP);
    let outputs = rig.say(up, &data(UNKNOWN));
    let down = rig.stream_to(DOWN);
    assert_eq!(only(&outputs, down).message().flow, flow());
    assert_eq!(only(&rig.say(up, &message()), down).message().flow, flow());
    assert!(asked(&mut rig).is_empty());
}

/// O08: a firewall is asked about a session that begins with a refresh, once, and the refresh goes on in any case. It is not asked about
/// one that began with a request.
#[test]
fn a_firewall_is_asked_about_a_session_that_it_does_not_know() {
    let mut rig = opener(false);
    let up = rig.accept(UP);
    rig.say(up, &message());
    assert!(matches!(asked(&mut rig)[..], [(_, true)]));
    assert_eq!(signaling(&rig.wait(seconds(2.0))).len(), 1, "without a verdict it goes on");
    let down = rig.stream_to(DOWN);
    only(&rig.say(up, &message()), down);
    assert!(asked(&mut rig).is_empty());
    rig.verdict = Some(Verdict::Forward);
    let other = flow_to(DST, 5008);
    rig.say(up, &Signaling { flow: other, ..data(CLIENT) });
    assert_eq!(asked(&mut rig).len(), 1);
    only(&rig.say(up, &Signaling { flow: other, ..message() }), down);
    assert!(asked(&mut rig).is_empty());
    assert_eq!(rig.node.counters().untranslated, 0);
}
