//! The format of the NSIS Ping tool (draft-juchem-nsis-ping-tool-02).

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::service::{CheckId, RecvMessage, SendError, StateHandle, TransferAttributes};
use signalbox_core::{Mri, NslpId, SessionId, Time};
use signalbox_ping::engine::{Config, Format, LostReason, PingEvent, PingRequest, Refusal, Reply};
use signalbox_ping::wire::nsis::{Message, Record, Stamp};
use signalbox_wire::Writer;

use crate::rig::{DST, Out, Rig, SESSION, SRC, Sent, WALL_US, addr, flow, only_message, request};

fn nsis(count: u32) -> PingRequest {
    PingRequest { format: Format::Nsis, ..request(count) }
}

fn received(data: &[u8], mri: Mri, session: SessionId) -> RecvMessage<'_> {
    RecvMessage { nslp: NslpId::NSIS_PING, ..crate::rig::received(data, mri, session) }
}

/// A message as the next node sends it, whose clock differs.
fn pass(data: &[u8], address: &str, time_us: u64) -> Vec<u8> {
    let mut message = Message::parse(data).unwrap();
    message.hops += 1;
    let mut out = Vec::new();
    message.encode(Some(Stamp { address: addr(address), time_us }), &mut Writer::new(&mut out));
    out
}

fn records(data: &[u8]) -> Vec<(IpAddr, u64)> {
    let read = |record: Record| (record.address.unwrap(), record.time_us.unwrap());
    Message::parse(data).unwrap().records().map(read).collect()
}

/// A message of the initiator, from another node.
fn first() -> Vec<u8> {
    numbered(3)
}

fn numbered(sequence: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let own = Stamp { address: addr(SRC), time_us: 7 };
    Message::request(sequence).encode(Some(own), &mut Writer::new(&mut out));
    out
}

/// Starts a ping; returns its session and first message.
fn started(rig: &mut Rig, request: PingRequest) -> Sent {
    let outputs = rig.start(request);
    let Some(Out::Send(sent)) = outputs.into_iter().find(|out| matches!(out, Out::Send(_))) else {
        panic!("no message")
    };
    sent
}

fn reply(outputs: &[Out]) -> &Reply {
    let Some(Out::Event(5, PingEvent::Reply(reply))) = outputs.first() else {
        panic!("no reply: {outputs:?}")
    };
    reply
}

/// NSISPING-2-01: requests of GIST's service interface only, with the NSLPID of the format. NSISPING-2.2-01: the destination
/// of the client and a sequence number. NSISPING-2.2-02: the initiator's record stands in the message, which has 40 octets.
#[test]
fn the_initiator_writes_its_record_first() {
    let mut rig = Rig::new();
    rig.now = Time::from_secs(2);
    let sent = started(&mut rig, nsis(2));
    assert_eq!((sent.nslp, sent.mri), (NslpId::NSIS_PING, flow()));
    let message = Message::parse(&sent.data).unwrap();
    assert_eq!((message.sequence, message.hops, sent.data.len()), (0, 0, 40));
    assert_eq!(records(&sent.data), [(addr(SRC), WALL_US + 2_000_000)]);
    rig.sent(&sent);
    rig.now = Time::from_secs(3);
    let next = rig.input(signalbox_ping::engine::Input::Timer).into_iter().find_map(|out| match out {
        Out::Send(sent) => Some(Message::parse(&sent.data).unwrap().sequence),
        _ => None,
    });
    assert_eq!(next, Some(1));
}

/// NSISPING-2.2-03, NSISPING-2.2-04, NSISPING-2.1-07: hops and length grow, a record stands at the end, the rest is
/// unchanged. NSISPING-2-05, NSISPING-2.2-05: in the direction of arrival. NSISPING-2-03: no state stays.
#[test]
fn a_node_on_the_way_appends_its_record() {
    for mri in [flow(), flow().inverted()] {
        let mut rig = Rig::new();
        let data = first();
        let sent = only_message(rig.receive(received(&data, mri, SESSION)));
        assert_eq!((sent.mri, sent.session, sent.state), (mri, SESSION, Some(StateHandle(99))));
        assert_eq!((sent.nslp, sent.hops), (NslpId::NSIS_PING, Some(60)));
        assert_eq!((sent.data[1], sent.data[2]), (1, 64));
        assert_eq!((sent.data[0], &sent.data[3..40]), (data[0], &data[3..]));
        assert_eq!(records(&sent.data)[1..], [(addr("10.0.1.2"), WALL_US + 1_000_000)]);
        if mri == flow() {
            rig.sent(&sent);
        }
        assert_eq!((rig.ping.watched(), rig.ping.running(), rig.ping.next_deadline()), (0, 0, None));
    }
}

/// NSISPING-2-06, NSISPING-2.2-06: one record, and upstream.
#[test]
fn the_receiver_appends_one_record_and_sends_it_back() {
    let mut rig = Rig::new();
    let data = first();
    let end = RecvMessage { at_flow_end: true, ..received(&data, flow(), SESSION) };
    let sent = only_message(rig.receive(end));
    assert_eq!((sent.mri, sent.state, sent.handle), (flow().inverted(), Some(StateHandle(99)), None));
    assert_eq!(records(&sent.data)[1..], [(addr(DST), WALL_US + 1_000_000)]);
    assert_eq!((sent.data[1], rig.ping.counters().turned_at_end), (1, 1));
    assert_eq!(rig.ping.counters().requests_received, 1);
}

/// NSISPING-X-14, NSISPING-X-16: a full count of hops stays, and the message leaves with the attributes of its arrival, also
/// when it is sent back.
#[test]
fn a_message_keeps_its_transfer_attributes() {
    let attributes = TransferAttributes { reliable: true, ..TransferAttributes::default() };
    let mut data = first();
    data[1] = 255;
    for at_flow_end in [false, true] {
        let mut rig = Rig::new();
        let message = RecvMessage { at_flow_end, attributes, ..received(&data, flow(), SESSION) };
        let sent = only_message(rig.receive(message));
        assert_eq!((sent.attributes, sent.data[1]), (attributes, 255));
        if !at_flow_end {
            assert_eq!(only_message(rig.failed(&sent, SendError::NoNextNode)).attributes, attributes);
        }
    }
}

/// NSISPING-X-11.
#[test]
fn a_message_without_answer_is_lost_after_the_time_of_the_client() {
    let mut rig = Rig::new();
    let timeout = Duration::from_millis(300);
    let sent = started(&mut rig, PingRequest { timeout, ..nsis(1) });
    rig.sent(&sent);
    let lost = PingEvent::Lost { seq: 0, reason: LostReason::Timeout };
    assert_eq!(rig.timer_at(1_300)[0], Out::Event(5, lost));
}

/// NSISPING-X-09: the draft has no flag for a path that ends early: the last node sends the message back as the receiver would, and the
/// initiator reads from the last address that it was not the receiver.
#[test]
fn the_last_node_sends_a_message_back_that_cannot_go_on() {
    let mut rig = Rig::new();
    let data = first();
    let sent = only_message(rig.receive(received(&data, flow(), SESSION)));
    let back = only_message(rig.failed(&sent, SendError::NoNextNode));
    assert_eq!((back.mri, back.nslp, back.data), (flow().inverted(), NslpId::NSIS_PING, sent.data.clone()));
    assert_eq!(rig.ping.counters().turned_early, 1);

    let mut rig = Rig::new();
    let sent = started(&mut rig, nsis(1));
    let data = pass(&sent.data, "10.0.1.9", 1);
    let outputs = rig.receive(received(&data, flow().inverted(), sent.session));
    assert!(!reply(&outputs).reached_end);
    assert!(outputs.contains(&Out::Event(5, PingEvent::Done { sent: 1, received: 0 })));
}

/// NSISPING-2-07: the message is not forwarded. NSISPING-2-08, NSISPING-2-09, NSISPING-2.1.2-01: with two nodes after the
/// initiator the receiver is met once and the other one twice; its round trip comes from its own clock, an hour ahead.
/// NSISPING-X-04: a second record of the initiator changes nothing.
#[test]
fn a_reply_shows_each_node_s_round_trip() {
    for second in [false, true] {
        let mut rig = Rig::new();
        let sent = started(&mut rig, nsis(1));
        let hour = WALL_US + 3_600_000_000;
        let there = pass(&sent.data, "192.0.2.2", hour + 400);
        let end = pass(&there, DST, 900);
        let mut back = pass(&end, "192.0.2.2", hour + 1_300);
        if second {
            let hops = back[1];
            back = pass(&back, SRC, WALL_US);
            back[1] = hops;
        }
        rig.now = Time::from_millis(1_002);
        let outputs = rig.receive(received(&back, flow().inverted(), sent.session));
        let reply = reply(&outputs);
        assert_eq!((reply.reached_end, reply.truncated), (true, false));
        assert_eq!(reply.rtt, Duration::from_millis(2), "round trip of the initiator, by its own two times");
        let nodes: Vec<_> = reply.hops.iter().map(|hop| (hop.address, hop.round_trip)).collect();
        let us = |us| Some(Duration::from_micros(us));
        assert_eq!(nodes, [(addr("192.0.2.2"), us(900)), (addr(DST), us(0))]);
        assert_eq!(reply.back.iter().map(|hop| hop.address).collect::<Vec<_>>(), [addr("192.0.2.2")]);
        assert!(outputs.iter().all(|out| !matches!(out, Out::Send(_))));
        assert!(outputs.contains(&Out::Lifetime(sent.session, Duration::from_secs(5))));
    }
}

/// Nine records fit. With six nodes after the initiator the way there is complete, and two nodes of the way back are.
#[test]
fn records_without_room_are_noticed() {
    let mut rig = Rig::new();
    let sent = started(&mut rig, nsis(1));
    let path = ["10.1.0.1", "10.2.0.1", "10.3.0.1", "10.4.0.1", "10.5.0.1", DST];
    let way_back = path.iter().rev().skip(1);
    let data = path
        .iter()
        .chain(way_back)
        .zip(1..)
        .fold(sent.data.clone(), |data, (node, at)| pass(&data, node, at));
    let outputs = rig.receive(received(&data, flow().inverted(), sent.session));
    let reply = reply(&outputs);
    assert_eq!((reply.hops.len(), reply.back.len()), (6, 2));
    assert_eq!((reply.reached_end, reply.truncated), (true, true));
    let known: Vec<_> = reply.hops.iter().map(|hop| hop.round_trip.is_some()).collect();
    assert_eq!(known, [false, false, false, true, true, true]);
}

/// NSISPING-2-04, NSISPING-2.1-08, NSISPING-X-10: as many messages as one ping may have under way are answered in reverse order, beside
/// another ping; each answer finds its message, once.
#[test]
fn answers_are_matched_by_session_and_sequence_number() {
    let mut rig = Rig::new();
    let interval = Duration::from_millis(1);
    let other = started(&mut rig, nsis(1));
    let start = signalbox_ping::engine::Command::Start(PingRequest { interval, ..nsis(64) });
    let mut outputs = rig.input(signalbox_ping::engine::Input::Command { id: 6, command: start });
    while let Some(next) = rig.ping.next_deadline().filter(|next| *next < Time::from_millis(1_100)) {
        rig.now = next;
        outputs.extend(rig.input(signalbox_ping::engine::Input::Timer));
    }
    let sent: Vec<_> = outputs
        .into_iter()
        .filter_map(|out| if let Out::Send(sent) = out { Some(sent) } else { None })
        .collect();
    assert_eq!(sent.len(), 64);
    for (sequence, sent) in sent.iter().enumerate().rev() {
        let data = pass(&sent.data, DST, 5);
        let outputs = rig.receive(received(&data, flow().inverted(), sent.session));
        let Some(Out::Event(6, PingEvent::Reply(reply))) = outputs.first() else { panic!("{outputs:?}") };
        assert_eq!(u32::try_from(sequence), Ok(reply.seq));
    }
    let data = pass(&other.data, DST, 5);
    assert_eq!(reply(&rig.receive(received(&data, flow().inverted(), other.session))).seq, 0);
    let again = RecvMessage { at_flow_end: true, ..received(&data, flow().inverted(), other.session) };
    assert_eq!(rig.receive(again), [], "the ping has ended");
    assert_eq!(rig.ping.counters().unexpected_replies, 1);
}

/// NSISPING-X-15.
#[test]
fn a_reply_of_the_other_format_is_none() {
    let mut rig = Rig::new();
    let sent = started(&mut rig, nsis(2));
    let ours = signalbox_ping::wire::Message {
        kind: signalbox_ping::wire::Kind::REPLY,
        ..signalbox_ping::wire::Message::request(0, 0, 0)
    };
    let data = crate::rig::octets(&ours, None);
    assert_eq!(rig.receive(crate::rig::received(&data, flow().inverted(), sent.session)), []);
    let sent = started(&mut Rig::new(), request(2));
    let mut rig = Rig::new();
    started(&mut rig, request(2));
    let data = pass(&numbered(0), DST, 1);
    assert_eq!(rig.receive(received(&data, flow().inverted(), sent.session)), []);
    assert_eq!(rig.ping.counters().unexpected_replies, 1);
}

#[test]
fn what_is_wrong_is_dropped_and_counted() {
    let mut rig = Rig::new();
    let data = first();
    assert_eq!(rig.receive(received(&data[..39], flow(), SESSION)), []);
    assert_eq!(rig.ping.counters().malformed, 1);
    let worn = RecvMessage { hops: 1, ..received(&data, flow(), SESSION) };
    let back = only_message(rig.receive(worn));
    assert_eq!((back.mri, rig.ping.counters().hop_limit), (flow().inverted(), 1));
    let spent = RecvMessage { hops: 0, ..received(&data, flow(), SESSION) };
    let on = only_message(rig.receive(spent));
    assert_eq!((on.mri, on.hops), (flow(), None));
    rig.sent(&on);
    let query = RecvMessage { check: Some(CheckId(1)), state: None, ..received(&[], flow(), SESSION) };
    assert_eq!(rig.receive(query), [Out::Peering]);
    let sent = started(&mut rig, nsis(1));
    let lost = PingEvent::Lost { seq: 0, reason: LostReason::NoNextNode };
    assert_eq!(rig.failed(&sent, SendError::NoNextNode)[0], Out::Event(5, lost));
}

#[test]
fn a_node_without_the_format_refuses_it() {
    let mut rig = Rig::with(Config { nsis: None, ..Config::default() });
    assert_eq!(rig.start(nsis(1)), [Out::Event(5, PingEvent::Refused(Refusal::Format))]);
    let mut rig = Rig::new();
    let padded = PingRequest { padding: 4, ..nsis(1) };
    assert_eq!(rig.start(padded), [Out::Event(5, PingEvent::Refused(Refusal::Padding))]);
}
