//! The node that starts a ping.

use core::time::Duration;

use signalbox_core::service::{RecvMessage, SendError, StateHandle};
use signalbox_core::{SessionId, Time};
use signalbox_ping::engine::{
    Command, Config, Hop, Input, LostReason, Output, Ping, PingEvent, PingRequest, Refusal, Reply,
};
use signalbox_ping::wire::{Flags, Kind, List, Message, Record};

use crate::rig::{DST, Out, Rig, SRC, Sent, WALL_US, addr, flow, octets, received, request};

/// Takes the first output off and expects it to be a message.
fn message(outputs: &mut Vec<Out>) -> Sent {
    let first = outputs.remove(0);
    let Out::Send(sent) = first else { panic!("expected a message: {first:?}") };
    sent
}

/// Starts a ping and returns its first message.
fn started(rig: &mut Rig, request: PingRequest) -> Sent {
    let mut outputs = rig.start(request);
    let Out::Event(5, PingEvent::Started { session, mri }) = outputs.remove(0) else {
        panic!("expected the start: {outputs:?}")
    };
    let sent = message(&mut outputs);
    assert_eq!(outputs, []);
    assert_eq!((sent.session, sent.mri, mri), (session, flow(), flow()));
    sent
}

/// The reply to `sent` as it comes back to the initiator, turned round with `flags`.
fn reply_to(sent: &Sent, flags: Flags) -> Vec<u8> {
    let end = Record { address: addr(DST), received_us: WALL_US, held_us: 4, ip_distance: 1 };
    let back = Record { address: addr("10.0.1.2"), received_us: WALL_US + 9, held_us: 0, ip_distance: 1 };
    let turned = octets(&Message { kind: Kind::REPLY, flags, ..sent.message() }, Some((List::There, end)));
    octets(&Message::parse(&turned).unwrap(), Some((List::Back, back)))
}

fn answer(rig: &mut Rig, sent: &Sent, flags: Flags) -> Vec<Out> {
    let data = reply_to(sent, flags);
    rig.receive(RecvMessage { at_flow_end: true, ..received(&data, flow().inverted(), sent.session) })
}

fn lost(seq: u32, reason: LostReason) -> Out {
    Out::Event(5, PingEvent::Lost { seq, reason })
}

fn done(sent: u32, received: u32) -> Out {
    Out::Event(5, PingEvent::Done { sent, received })
}

fn lifetime(session: SessionId) -> Out {
    Out::Lifetime(session, Duration::from_secs(5))
}

#[test]
fn one_probe_there_and_back() {
    let mut rig = Rig::new();
    let sent = started(&mut rig, request(1));
    assert_eq!((sent.state, sent.hops, sent.timeout), (None, None, Some(Duration::from_millis(4_375))));
    assert_eq!((sent.message().sequence, sent.message().sent_us), (0, WALL_US + 1_000_000));
    assert_eq!((sent.message().there.count(), sent.data.len()), (0, 24));
    rig.sent(&sent);
    rig.now = Time::from_micros(1_000_345);
    let outputs = answer(&mut rig, &sent, Flags::END_REACHED);
    let reply = Reply {
        seq: 0,
        sent_us: WALL_US + 1_000_000,
        rtt: Duration::from_micros(345),
        hops: vec![Hop {
            address: addr(DST),
            received_us: WALL_US,
            sent_us: WALL_US + 4,
            ip_distance: 1,
            round_trip: None,
        }],
        back: vec![Hop {
            address: addr("10.0.1.2"),
            received_us: WALL_US + 9,
            sent_us: WALL_US + 9,
            ip_distance: 1,
            round_trip: None,
        }],
        reached_end: true,
        truncated: false,
        padding: 0,
    };
    assert_eq!(outputs, [Out::Event(5, PingEvent::Reply(reply)), lifetime(sent.session), done(1, 1)]);
    assert_eq!((rig.ping.running(), rig.ping.next_deadline()), (0, None));
}

#[test]
fn probes_go_out_in_step_and_use_the_state_that_answered() {
    let mut rig = Rig::new();
    let first = started(&mut rig, request(3));
    rig.sent(&first);
    rig.now = Time::from_millis(1_200);
    assert_eq!(answer(&mut rig, &first, Flags::END_REACHED).len(), 1);
    let mut outputs = rig.timer_at(2_000);
    let second = message(&mut outputs);
    assert_eq!((second.message().sequence, second.state), (1, Some(StateHandle(99))));
    assert_eq!(second.message().identifier, first.message().identifier);
    let mut outputs = rig.timer_at(3_000);
    assert_eq!(message(&mut outputs).message().sequence, 2);
    assert_eq!(rig.timer_at(7_000), [lost(1, LostReason::Timeout)]);
    assert_eq!(rig.timer_at(8_000), [lost(2, LostReason::Timeout), lifetime(first.session), done(3, 1)]);
    let c = rig.ping.counters();
    assert_eq!((c.probes_sent, c.probes_answered, c.probes_lost), (3, 1, 2));
    assert_eq!((c.requests_received, c.replies_received), (0, 1));
}

#[test]
fn a_probe_that_gist_cannot_send_is_lost_at_once() {
    let mut rig = Rig::new();
    let sent = started(&mut rig, request(1));
    rig.now = Time::from_millis(1_500);
    let outputs = rig.failed(&sent, SendError::NoRoute);
    assert_eq!(outputs, [lost(0, LostReason::NoRoute), lifetime(sent.session), done(1, 0)]);
}

#[test]
fn a_failure_reported_after_the_timeout_is_no_second_loss() {
    let mut rig = Rig::new();
    let sent = started(&mut rig, request(2));
    let mut outputs = rig.timer_at(2_000);
    message(&mut outputs);
    assert_eq!(rig.timer_at(6_000), [lost(0, LostReason::Timeout)]);
    assert_eq!(rig.failed(&sent, SendError::NoNextNode), []);
    assert_eq!(rig.ping.running(), 1);
}

#[test]
fn a_reply_from_short_of_the_end_is_reported_but_not_counted() {
    let mut rig = Rig::new();
    let sent = started(&mut rig, request(1));
    let outputs = answer(&mut rig, &sent, Flags::NO_NEXT_NODE);
    let [Out::Event(5, PingEvent::Reply(reply)), _, end] = outputs.as_slice() else { panic!("{outputs:?}") };
    assert!(!reply.reached_end && reply.hops.len() == 1);
    assert_eq!(*end, done(1, 0));
}

#[test]
fn duplicates_late_and_foreign_replies_are_counted_only() {
    let mut rig = Rig::new();
    let sent = started(&mut rig, request(2));
    assert_eq!(answer(&mut rig, &sent, Flags::END_REACHED).len(), 1);
    assert_eq!(answer(&mut rig, &sent, Flags::END_REACHED), []);
    let mut outputs = rig.timer_at(2_000);
    let second = message(&mut outputs);
    let mut forged = reply_to(&second, Flags::END_REACHED);
    forged[8] ^= 1; // identifier
    let forged = RecvMessage { at_flow_end: true, ..received(&forged, flow().inverted(), sent.session) };
    assert_eq!(rig.receive(forged), []);
    assert_eq!(rig.timer_at(7_000).len(), 3);
    assert_eq!(answer(&mut rig, &second, Flags::END_REACHED), []);
    assert_eq!(rig.ping.counters().unexpected_replies, 3);
}

#[test]
fn without_count_it_runs_until_stopped() {
    let mut rig = Rig::new();
    let first = started(&mut rig, PingRequest { count: None, ..request(1) });
    for n in 2..50 {
        let outputs = rig.timer_at(n * 1000);
        assert!(outputs.iter().any(|s| matches!(s, Out::Send(_))), "{outputs:?}");
    }
    assert_eq!(rig.input(Input::Command { id: 6, command: Command::Stop }), []);
    assert_eq!(
        rig.input(Input::Command { id: 5, command: Command::Stop }),
        [lifetime(first.session), done(49, 0)]
    );
    assert_eq!(rig.ping.next_deadline(), None);
}

#[test]
fn a_timer_that_comes_late_makes_no_burst() {
    let mut rig = Rig::new();
    started(&mut rig, PingRequest { timeout: Duration::from_secs(100), ..request(9) });
    rig.now = Time::from_millis(9_500);
    let mut outputs = rig.input(Input::Timer);
    message(&mut outputs);
    assert_eq!(outputs, []);
    let mut outputs = rig.timer_at(10_500);
    message(&mut outputs);
    assert_eq!(outputs, []);
}

#[test]
fn probes_on_their_way_are_bounded() {
    let mut rig = Rig::new();
    let fast = PingRequest { interval: Duration::from_millis(1), count: None, ..request(1) };
    started(&mut rig, fast);
    let mut sent = 1;
    while rig.ping.next_deadline().unwrap() < Time::from_secs(6) {
        rig.now = rig.ping.next_deadline().unwrap();
        sent += rig.input(Input::Timer).len();
    }
    assert_eq!(sent, 64);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let refused = |request: PingRequest| {
        let outputs = Rig::new().start(request);
        let [Out::Event(5, PingEvent::Refused(refusal))] = outputs.as_slice() else { panic!("{outputs:?}") };
        *refusal
    };
    assert_eq!(refused(PingRequest { src: Some(addr("::1")), ..request(1) }), Refusal::Address);
    assert_eq!(refused(PingRequest { dst: addr("224.0.0.1"), ..request(1) }), Refusal::Address);
    assert_eq!(refused(PingRequest { src: Some(addr("0.0.0.0")), ..request(1) }), Refusal::Address);
    assert_eq!(refused(PingRequest { dst_port: Some(80), ..request(1) }), Refusal::Ports);
    for padding in [2, 16_004] {
        assert_eq!(refused(PingRequest { padding, ..request(1) }), Refusal::Padding);
    }
    assert_eq!(refused(request(0)), Refusal::Timing);
    assert_eq!(refused(PingRequest { interval: Duration::ZERO, ..request(1) }), Refusal::Timing);
    assert_eq!(refused(PingRequest { timeout: Duration::from_micros(999), ..request(1) }), Refusal::Timing);
}

#[test]
fn pings_are_bounded_and_ids_are_unique() {
    let mut rig = Rig::with(Config { max_pings: 2, ..Config::default() });
    started(&mut rig, request(1));
    let refusal = |outputs: Vec<Out>, id| {
        let [Out::Event(i, PingEvent::Refused(refusal))] = outputs.as_slice() else { panic!("{outputs:?}") };
        assert_eq!(*i, id);
        *refusal
    };
    assert_eq!(refusal(rig.start(request(1)), 5), Refusal::IdInUse);
    assert_eq!(rig.input(Input::Command { id: 6, command: Command::Start(request(1)) }).len(), 2);
    assert_eq!(
        refusal(rig.input(Input::Command { id: 7, command: Command::Start(request(1)) }), 7),
        Refusal::TooMany
    );
}

#[test]
fn the_flow_has_the_ports_that_were_asked_for() {
    let mut rig = Rig::new();
    let udp = PingRequest { protocol: Some(17), src_port: Some(9), dst_port: Some(53), ..request(1) };
    let outputs = rig.start(udp);
    let Out::Event(_, PingEvent::Started { mri, .. }) = &outputs[0] else { panic!("{outputs:?}") };
    assert_eq!(mri.to_string(), format!("{SRC} port 9 > {DST} port 53 proto 17"));
}

/// GIST-4.1.3-01: session identifiers come from the engine's CSPRNG: no two alike, and no two seeds alike.
#[test]
fn sessions_are_drawn_at_random() {
    let draw = |seed: [u8; 32], count| {
        let mut ping = Ping::new(Config::default(), seed);
        let mut sessions = Vec::new();
        for id in 0..count {
            ping.handle(Time::ZERO, Input::Command { id, command: Command::Start(request(1)) });
            ping.handle(Time::ZERO, Input::Command { id, command: Command::Stop });
            while let Some(output) = ping.poll() {
                if let Output::Event { event: PingEvent::Started { session, .. }, .. } = output {
                    sessions.push(session);
                }
            }
        }
        sessions
    };
    let many = draw([1; 32], 100_000);
    assert_eq!(many.len(), 100_000);
    assert_eq!(draw([1; 32], 10), many[..10]);
    let other = draw([2; 32], 10);
    let mut all: Vec<_> = many.into_iter().chain(other).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 100_010);
    // Each bit is set about every second time.
    for bit in 0..128 {
        let set = all.iter().filter(|s| s.0[bit / 8] >> (bit % 8) & 1 == 1).count();
        assert!((49_000..51_000).contains(&set), "bit {bit} is set {set} times");
    }
}

#[test]
fn padding_has_to_come_back_as_it_went() {
    let mut rig = Rig::new();
    let padded = PingRequest { padding: 16_000, interval: Duration::from_millis(10), ..request(2) };
    let first = started(&mut rig, padded);
    rig.sent(&first);
    assert_eq!(first.data.len(), 24 + 4 + 16_000);
    let outputs = answer(&mut rig, &first, Flags::END_REACHED);
    assert!(matches!(&outputs[..], [Out::Event(5, PingEvent::Reply(reply))] if reply.padding == 16_000));

    let mut outputs = rig.timer_at(1_010);
    let second = message(&mut outputs);
    rig.sent(&second);
    assert_ne!(first.message().padding, second.message().padding);
    // The padding of the first in the reply to the second.
    let (head, _) = second.data.split_at(28);
    let mixed = Sent { data: [head, &first.data[28..]].concat(), ..second };
    let outputs = answer(&mut rig, &mixed, Flags::END_REACHED);
    assert_eq!(outputs, [lost(1, LostReason::Damaged), lifetime(mixed.session), done(2, 1)]);
    assert_eq!(rig.ping.counters().damaged_replies, 1);
}

/// A message with addresses that a NAT did not translate is refused with 9/4 (RFC 5971 §7.2.1). The user reads that a NAT is
/// on the path.
#[test]
fn a_nat_on_the_path_is_named() {
    let text = |code, subcode| LostReason::from(SendError::Peer { code, subcode }).to_string();
    assert!(text(9, 4).starts_with("a NAT on the path does not translate GIST messages"), "{}", text(9, 4));
    assert_eq!(text(10, 1), "the next node refused it with GIST error 10/1");
}

/// Many pings have their timers at one moment. One input handles a part of them, and the rest stays due.
#[test]
fn timers_that_are_due_together_are_handled_in_parts() {
    let mut rig = Rig::new();
    for id in 0..1000 {
        rig.input(Input::Command { id, command: Command::Start(request(1)) });
    }
    rig.now = Time::from_secs(3600);
    let mut ended = Vec::new();
    while rig.ping.next_deadline().is_some_and(|next| next <= rig.now) {
        let outputs = rig.input(Input::Timer);
        ended.push(outputs.iter().filter(|out| matches!(out, Out::Event(_, PingEvent::Done { .. }))).count());
    }
    assert_eq!(ended, [256, 256, 256, 232]);
}
