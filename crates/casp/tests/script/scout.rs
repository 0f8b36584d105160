//! Scout: both ends of the exchange.

use signalbox_casp::engine::{Casp, Config, Input, Request, SendRequest};
use signalbox_casp::wire::{FlowId, Message, Proof, Signaling};
use signalbox_core::packet::{Received, router_alert_v4, router_alert_v6};
use signalbox_core::{IfIndex, Time};

use crate::rig::*;

fn request_to(rig: &mut Rig, from: &str, dst: &str, cookie: u64) -> Vec<Sent> {
    let mut octets = Vec::new();
    Message::ScoutRequest(cookie.to_be_bytes()).encode(&mut octets).unwrap();
    rig.sent.clear();
    rig.input(Input::Packet(packet(50004, ip(from), ip(dst), &router_alert_v4(0), &octets)));
    rig.sent.clone()
}

fn responder_cookie(outputs: &[Sent]) -> [u8; 8] {
    assert_eq!(outputs.len(), 1, "{outputs:?}");
    match Message::parse(&outputs[0].octets) {
        Ok(Message::ScoutResponse { responder, .. }) => responder,
        other => panic!("{other:?}"),
    }
}

/// CASP-3-15, CASP-5.2-01, CASP-5.2-02, CASP-5.2-03, CASP-4.5-02, CASP-G-21, CASP-G-23: a request over UDP, to the
/// destination of the flow, from an address of this node, with a Router Alert.
#[test]
fn a_request_is_a_datagram_with_router_alert_towards_the_destination() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    let outputs = rig.say(up, &message());
    let request = &scouts(&outputs)[0];
    assert_eq!(request.dst.unwrap().to_string(), format!("{DST}:50004"));
    assert_eq!(request.src.unwrap().to_string(), format!("{FAR}:50004"));
    assert_eq!(request.options, [0x94, 4, 0, 0]);
    assert_eq!((request.octets.len(), &request.octets[..4]), (32, &[0, 0, 0, 2][..]));
    let (src, dst) = ("2001:db8:9::1".parse().unwrap(), "2001:db8:8::1".parse().unwrap());
    let outputs = rig.say(up, &Signaling { flow: FlowId::V6Label { src, dst, label: 0x12345 }, ..message() });
    let request = &scouts(&outputs)[0];
    assert_eq!(request.options, router_alert_v6(65503));
    assert_eq!(request.options[2..4], [5, 2]);
    assert_eq!(request.label, 0x12345);
}

/// CASP-11-01: Scout Requests are marked like the data.
#[test]
fn requests_have_the_configured_marking() {
    let mut rig = Rig::with(Config { scout_tos: 0xb8, ..config() });
    let up = rig.accept(UP);
    assert_eq!(scouts(&rig.say(up, &message()))[0].tos, 0xb8);
}

/// CASP-5.2-08, CASP-G-24, CASP-00-01: five requests with one cookie at 0, 0.5, 1.5, 3.5 and 7.5 s; failure at 15.5 s.
#[test]
fn requests_are_sent_five_times() {
    let mut rig = Rig::new();
    rig.answering.clear();
    let up = rig.accept(UP);
    let start = rig.now;
    let mut all = rig.say(up, &data(CLIENT));
    rig.take_indicated();
    all.extend(rig.wait(seconds(15.4)));
    assert_eq!(rig.take_indicated(), []);
    all.extend(rig.wait(seconds(0.2)));
    let times: Vec<f64> = all.iter().map(|one| one.at.since(start).as_secs_f64()).collect();
    for (at, wanted) in times.iter().zip([0.0, 0.5, 1.5, 3.5, 7.5]) {
        assert!((at - wanted).abs() < 0.01, "{times:?}");
    }
    assert_eq!(times.len(), 5);
    assert!(all.iter().all(|one| one.octets == all[0].octets));
    assert_eq!(rig.take_indicated(), [Indicated::Undelivered(flow())]);
    assert!(rig.state().next.is_empty());
}

/// CASP-4.6-07, CASP-9.1-02: only a response with the cookie of the request counts.
#[test]
fn blind_responses_are_ignored() {
    let mut rig = Rig::new();
    rig.answering.clear();
    let up = rig.accept(UP);
    let outputs = rig.say(up, &message());
    for n in 0..10_000u64 {
        rig.response(n.to_be_bytes(), COOKIE, ip("10.0.1.66"), ip(FAR), 50004);
    }
    rig.input(Input::Timer);
    assert!(rig.opened.is_empty() && rig.state().next.is_empty());
    assert_eq!(rig.node.counters().unexpected_responses, 10_000);
    let cookie = outputs[0].octets[24..32].try_into().unwrap();
    rig.response(cookie, COOKIE, ip(DOWN), ip(FAR), 50004);
    rig.input(Input::Timer);
    assert_eq!(rig.state().next[0].peer, Some(ip(DOWN)));
}

/// CASP-A.5-02: the cookies of requests are random.
#[test]
fn cookies_of_requests_do_not_repeat() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    let mut cookies = std::collections::BTreeSet::new();
    for n in 0..1000u32 {
        let dst = format!("10.8.{}.{}", n / 200, n % 200 + 1);
        let outputs = rig.say(up, &Signaling { flow: flow_to(&dst, 1), ..message() });
        cookies.insert(scouts(&outputs)[0].octets[24..32].to_vec());
    }
    assert_eq!(cookies.len(), 1000);
}

/// CASP-4.6-01, CASP-4.6-05, CASP-4.6-06, CASP-5.2-04, CASP-G-22, CASP-5.2-06, CASP-10-02, CASP-P-12, CASP-5.2-07: the answer
/// goes back from an address of this node, without Router Alert, and the request goes nowhere.
#[test]
fn a_request_is_answered_and_not_forwarded() {
    let mut rig = Rig::new();
    for (dst, src) in [(DST, NEAR), (FAR, FAR)] {
        let outputs = request_to(&mut rig, UP, dst, 0x0102_0304_0506_0708);
        assert_eq!(outputs.len(), 1);
        assert_eq!(outputs[0].src.unwrap().to_string(), format!("{src}:50004"));
        assert_eq!(outputs[0].dst.unwrap().to_string(), format!("{UP}:50004"));
        assert!(outputs[0].options.is_empty());
        assert_eq!(outputs[0].octets[..4], [0, 0, 0, 3]);
        assert_eq!(outputs[0].octets[24..32], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(outputs[0].octets.len(), 44);
    }
}

/// CASP-4.5-05: nothing but type and cookie of a request counts.
#[test]
fn other_fields_of_a_request_are_not_processed() {
    let mut rig = Rig::new();
    let mut octets = vec![0xff; 20];
    octets[1] = 0;
    octets[3] = 2;
    octets.extend([0, 12, 5, 1, 1, 2, 3, 4, 5, 6, 7, 8]);
    rig.input(Input::Packet(packet(50004, ip(UP), ip(DST), &router_alert_v4(0), &octets)));
    assert_eq!(rig.sent.len(), 1);
    assert_eq!(rig.sent[0].octets[..3], [0, 0, 0]);
}

/// CASP-9.1-01, CASP-4.6-09: requests leave no state. CASP-G-42: answers have a rate for each source and in total, and an
/// honest source is still served.
#[test]
fn a_flood_of_requests_makes_no_state_and_bounded_answers() {
    let mut rig = Rig::with(Config { answer_rate: 40, total_answer_rate: 100_000, ..config() });
    let mut answered = 0;
    for n in 0..5000 {
        answered += request_to(&mut rig, "10.6.6.6", DST, n).len();
    }
    assert_eq!((answered, rig.node.counters().answers_limited), (10, 4990));
    assert_eq!(request_to(&mut rig, UP, DST, 1).len(), 1);
    let tables = rig.node.tables();
    assert!(tables.iter().all(|table| table.size == 0), "{tables:?}");
    assert_eq!((rig.node.peer_count(), rig.node.next_deadline()), (0, None));
    let mut rig = Rig::with(Config { answer_rate: 0, total_answer_rate: 40, ..config() });
    let forged = (0..5000u64).map(|n| format!("10.6.{}.{}", n / 250, n % 250));
    let answered: usize = forged.map(|from| request_to(&mut rig, &from, DST, 1).len()).sum();
    assert_eq!(answered, 9, "three quarters of the burst, and the part of the interface");
    // 0: no limit of all together.
    let mut rig = Rig::with(Config { answer_rate: 0, total_answer_rate: 0, ..config() });
    assert_eq!((0..50).map(|n| request_to(&mut rig, UP, DST, n).len()).sum::<usize>(), 50);
}

/// Scout Requests with forged sources use up the rate of all answers. A node behind another interface gets an answer all the same, and so
/// does a configured neighbor on the same link.
#[test]
fn forged_requests_leave_answers_to_other_interfaces_and_neighbors() {
    let config = Config { answer_rate: 0, total_answer_rate: 400, neighbors: [ip(UP)].into(), ..config() };
    let mut rig = Rig::with(config);
    let ask = |rig: &mut Rig, from: &str, ifindex: u32| {
        let mut octets = Vec::new();
        Message::ScoutRequest([1; 8]).encode(&mut octets).unwrap();
        rig.sent.clear();
        let alert = router_alert_v4(0);
        let packet = packet(50004, ip(from), ip(DST), &alert, &octets);
        rig.input(Input::Packet(Received { ifindex: IfIndex(ifindex), ..packet }));
        rig.sent.len()
    };
    let forged = (0..5000u64).map(|n| format!("10.6.{}.{}", n / 250, n % 250));
    let answered: usize = forged.map(|from| ask(&mut rig, &from, 1)).sum();
    assert_eq!((answered, rig.node.counters().answers_limited), (77, 4923));
    assert_eq!((ask(&mut rig, OTHER, 1), ask(&mut rig, UP, 1), ask(&mut rig, DOWN2, 2)), (0, 1, 1));
}

/// Who forges the address of a node behind another interface takes nothing of what the node itself gets: answers to its Scout
/// Requests, Errors about its cookies, and the processing of its datagrams.
#[test]
fn forged_packets_of_a_node_leave_its_rates_at_its_own_interface() {
    let mut rig = Rig::with(Config { answer_rate: 40, rate: 200, ..config() });
    let mut request = Vec::new();
    Message::ScoutRequest([1; 8]).encode(&mut request).unwrap();
    let (alert, mut stale) = (router_alert_v4(0), Vec::new());
    Signaling { proof: Some(Proof::Cookie([9; 8])), ..message() }.encode(&mut stale).unwrap();
    let mut count = |port, dst, octets: &[u8], ifindex, times| {
        rig.sent.clear();
        for _ in 0..times {
            let packet = packet(port, ip(UP), ip(dst), &alert, octets);
            rig.input(Input::Packet(Received { ifindex: IfIndex(ifindex), ..packet }));
        }
        (rig.sent.len(), rig.node.counters().rate_limited)
    };
    assert_eq!(count(50004, DST, &request, 2, 1000), (10, 0));
    assert_eq!(count(50004, DST, &request, 1, 1), (1, 0));
    assert_eq!(count(50003, FAR, &stale, 2, 1000), (10, 950));
    assert_eq!(count(50003, NEAR, &stale, 1, 1), (1, 950));
}

/// CASP-4.4-06, CASP-4.6-08, CASP-G-38: a cookie of this node, for this source and this destination, is good over UDP.
/// CASP-4.4-07: it is not sent on.
#[test]
fn a_cookie_of_this_node_makes_state() {
    let mut rig = Rig::new();
    let cookie = responder_cookie(&request_to(&mut rig, UP, DST, 1));
    let first = Signaling { proof: Some(Proof::Cookie(cookie)), ..message() };
    for (from, dst) in [(OTHER, DST), (UP, "10.8.0.8")] {
        let sent = Signaling { flow: flow_to(dst, 5006), ..first };
        rig.datagram(from, NEAR, &sent);
        assert_eq!(rig.node.session_count(), 0, "{from} {dst}");
    }
    rig.datagram(UP, NEAR, &first);
    assert_eq!(rig.node.session_count(), 1);
    let outputs = rig.datagram(UP, NEAR, &first);
    assert_eq!(cookie_of(&only(&outputs, rig.stream_to(DOWN))), None);
}

/// T31 (SEC-T31-03): a client learns whether the hop has answered at its address: by a cookie, once for its branch, or by a connection. That it is
/// one of `neighbors` proves nothing.
#[test]
fn a_client_learns_whether_a_hop_has_answered() {
    let mut rig = Rig::with(Config { neighbors: [ip(UP)].into(), ..config() });
    let answered = |rig: &mut Rig| {
        let all = rig.take_indicated();
        let Some(Indicated::Received(arrival, _)) = all.last() else { panic!("{all:?}") };
        (arrival.answered, arrival.ifindex != IfIndex::NONE)
    };
    rig.datagram(UP, NEAR, &data(CLIENT));
    assert_eq!(answered(&mut rig), (false, true), "a configured neighbor without a cookie");
    let cookie = responder_cookie(&request_to(&mut rig, UP, DST, 1));
    rig.datagram(UP, NEAR, &Signaling { proof: Some(Proof::Cookie(cookie)), ..data(CLIENT) });
    assert_eq!(answered(&mut rig), (true, true), "the same node with a cookie");
    rig.datagram(UP, NEAR, &data(CLIENT));
    assert_eq!(answered(&mut rig), (true, true), "its branch has shown one");
    let other = rig.accept(OTHER);
    rig.say(other, &Signaling { session: session(2), ..data(CLIENT) });
    assert_eq!(answered(&mut rig), (true, false), "a connection");
}

/// CASP-G-37: a cookie is good for a minute at least, and not longer than two.
#[test]
fn cookies_grow_old() {
    for (after, sessions) in [(59.0, 1), (121.0, 0)] {
        let mut rig = Rig::new();
        let cookie = responder_cookie(&request_to(&mut rig, UP, DST, 1));
        rig.wait(seconds(after));
        rig.datagram(UP, NEAR, &Signaling { proof: Some(Proof::Cookie(cookie)), ..message() });
        assert_eq!(rig.node.session_count(), sessions, "{after}");
    }
}

/// CASP-G-45: the connection to a node that scout found comes from the source of the request.
#[test]
fn the_connection_comes_from_the_source_of_the_request() {
    let mut rig = Rig::new();
    let up = rig.accept(UP);
    let outputs = rig.say(up, &message());
    assert_eq!(rig.opened[0].2, scouts(&outputs)[0].src.map(|src| src.ip()));
}

/// CASP-00-02: one series of requests for a destination, however many sessions wait. CASP-5.1-04: later sessions discover
/// again.
#[test]
fn one_discovery_for_a_destination_at_a_time() {
    let mut rig = Rig::new();
    rig.answering.clear();
    let up = rig.accept(UP);
    let mut requests = Vec::new();
    for n in 1..=100 {
        requests.extend(rig.say(up, &Signaling { session: session(n), ..message() }));
    }
    assert_eq!(requests.len(), 1);
    let cookie = requests[0].octets[24..32].try_into().unwrap();
    rig.response(cookie, COOKIE, ip(DOWN), ip(FAR), 50004);
    rig.sent.clear();
    rig.input(Input::Timer);
    let down = rig.stream_to(DOWN);
    assert_eq!(rig.sent.iter().filter(|one| one.stream == Some(down)).count(), 100);
    let outputs = rig.say(up, &Signaling { session: session(101), ..message() });
    assert_eq!(scouts(&outputs).len(), 1);
    assert_ne!(scouts(&outputs)[0].octets, requests[0].octets);
}

/// CASP-G-43, CASP-00-01: a report of an unreachable destination ends the discovery only if it quotes the request, and after
/// a second request.
#[test]
fn a_forged_unreachable_does_not_end_the_discovery() {
    let mut rig = Rig::new();
    rig.answering.clear();
    let up = rig.accept(UP);
    let outputs = rig.say(up, &data(CLIENT));
    rig.take_indicated();
    let mut other = outputs[0].octets.clone();
    other[30] ^= 1;
    rig.input(Input::Unreachable { quoted: &other });
    rig.input(Input::Unreachable { quoted: &outputs[0].octets[..20] });
    rig.wait(seconds(0.3));
    rig.input(Input::Unreachable { quoted: &outputs[0].octets });
    assert_eq!(rig.wait(seconds(0.3)).len(), 1, "a second request");
    assert_eq!(rig.take_indicated(), []);
    rig.wait(seconds(1.0));
    assert_eq!(rig.take_indicated(), [Indicated::Undelivered(flow())]);
    assert_eq!(rig.wait(seconds(5.0)).len(), 0);
}

/// CASP-G-23: the type alone distinguishes requests among packets with a Router Alert.
#[test]
fn passing_requests_are_intercepted_by_type_and_alert() {
    let [messages, scout] = Casp::entries(&Config::default());
    assert_eq!(
        (messages.entry, scout.entry),
        (signalbox_core::Entry::Udp(50003), signalbox_core::Entry::Udp(50004),)
    );
    let rule = &scout.intercept[0];
    let (v4, v6) = (router_alert_v4(0), router_alert_v6(65503));
    assert!(rule.takes(false, &v4, &[0xff, 0, 9, 2]) && rule.takes(true, &v6, &[0, 0, 0, 2]));
    assert!(!rule.takes(false, &v4, &[0, 0, 0, 3]) && !rule.takes(false, &[], &[0, 0, 0, 2]));
    assert!(messages.intercept.is_empty());
}

/// CASP-9.1-03: an attacker names an honest node. That node refuses the cookie, and the true one is found.
#[test]
fn a_forged_redirection_is_noticed() {
    let mut rig = Rig::new();
    rig.answering = vec![ip(DOWN2), ip(DOWN)];
    let send = SendRequest::new(None, flow(), b"hello");
    let outputs = rig.request(CLIENT, Request::Send(send));
    let wrong = rig.stream_to(DOWN2);
    let first = only(&outputs, wrong);
    assert_eq!(cookie_of(&first), Some(COOKIE));
    let sent = first.message();
    let error = Signaling {
        flags: signalbox_casp::wire::Flags::REVERSE,
        body: signalbox_casp::wire::Body::Error(signalbox_casp::wire::ErrorCode::COOKIE_ERROR),
        ..Signaling::new(sent.session, sent.flow)
    };
    let outputs = rig.say(wrong, &error);
    let again = only(&outputs, rig.stream_to(DOWN));
    assert_eq!((again.message().body, cookie_of(&again)), (sent.body, Some(COOKIE)));
    assert_eq!(rig.state().next.iter().map(|one| one.peer).collect::<Vec<_>>(), [Some(ip(DOWN))]);
    assert!(rig.now > Time::ZERO);
}
