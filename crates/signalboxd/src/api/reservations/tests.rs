//! Reservations of clients, with the event loop played by the test.

use std::time::Duration;

use signalbox_api::v1::reservations_client::ReservationsClient;
use signalbox_api::v1::reserve_response::Event;
use signalbox_core::SessionId;
use signalbox_core::hops::Path;
use signalbox_core::mri::PathCoupled;
use signalbox_node::qos::{self, Failure, Granted, QosEvent, Quality};
use signalbox_node::{Command, Event as NodeEvent, boomerang, rsvp};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use super::*;
use crate::clients::Delivery;
use crate::requests::LoopRequest;
use crate::rig::{ALL, OpenClient, Rig, reason};

fn wanted() -> v1::ReserveOpen {
    v1::ReserveOpen {
        flow: Some(v1::FlowSpec {
            source: Some("192.0.2.1".into()),
            destination: Some("192.0.2.9".into()),
            ip_protocol: Some(17),
            ..v1::FlowSpec::default()
        }),
        traffic: Some(bucket(125_000)),
        ..v1::ReserveOpen::default()
    }
}

fn bucket(rate_octets_per_s: u64) -> v1::TokenBucket {
    v1::TokenBucket { rate_octets_per_s, ..v1::TokenBucket::default() }
}

fn change(rate: u64) -> ReserveMessage {
    ReserveMessage::Change(v1::ReserveChange { traffic: Some(bucket(rate)) })
}

struct Client {
    requests: mpsc::Sender<v1::ReserveRequest>,
    events: Streaming<v1::ReserveResponse>,
}

impl Client {
    async fn request(&self, request: ReserveMessage) {
        self.requests.send(v1::ReserveRequest { request: Some(request) }).await.unwrap();
    }

    async fn event(&mut self) -> Event {
        self.events.message().await.unwrap().expect("the call goes on").event.unwrap()
    }
}

fn call(rig: &Rig, first: ReserveMessage) -> tokio::task::JoinHandle<Result<Client, Status>> {
    let mut client = ReservationsClient::new(rig.channel.clone());
    tokio::spawn(async move {
        let (requests, stream) = mpsc::channel(8);
        requests.send(v1::ReserveRequest { request: Some(first) }).await.unwrap();
        let events = client.reserve(ReceiverStream::new(stream)).await?.into_inner();
        Ok(Client { requests, events })
    })
}

pub(crate) fn qos(open: &mut OpenClient, event: QosEvent) -> Delivery {
    open.event(NodeEvent::Qos { id: open.id, event: Box::new(event) })
}

pub(crate) fn started() -> QosEvent {
    let ends = PathCoupled::between("192.0.2.1".parse().unwrap(), "192.0.2.9".parse().unwrap());
    QosEvent::Started { session: SessionId([5; 16]), mri: signalbox_core::Mri::PathCoupled(ends) }
}

pub(crate) fn granted(rate: u64) -> QosEvent {
    let quality = Quality { rate: Some(rate), ..Quality::default() };
    let hops = Vec::new();
    QosEvent::Granted(Granted {
        session: SessionId([5; 16]),
        quality,
        hops,
        gaps: false,
        far_end: Some(true),
        back: None,
    })
}

pub(crate) fn failure(class: u8, code: u8) -> Failure {
    let (meaning, node) = ("meaning".to_owned(), Some("r1".to_owned()));
    Failure { class, code, meaning, node, rule: None, available: Some(7), hops: Vec::new() }
}

/// A reservation that is granted.
async fn standing(rig: &mut Rig, open: v1::ReserveOpen) -> (Client, OpenClient) {
    let call = call(rig, ReserveMessage::Open(open));
    let mut open = rig.open().await;
    qos(&mut open, started());
    open.done();
    let mut client = call.await.unwrap().unwrap();
    let Event::Started(start) = client.event().await else { panic!("it has not started") };
    assert_eq!((start.session_id, start.taken_over), (Some(vec![5; 16]), false));
    assert_eq!(qos(&mut open, granted(125_000)), Delivery::Queued);
    assert!(matches!(client.event().await, Event::Granted(_)));
    (client, open)
}

#[tokio::test]
async fn half_closing_holds_a_reservation_and_release_ends_it() {
    let mut rig = Rig::new(ALL).await;
    let (client, open) = standing(&mut rig, wanted()).await;
    let Client { requests, mut events } = client;
    drop(requests);
    assert!(tokio::time::timeout(Duration::from_millis(50), events.message()).await.is_err());
    assert!(rig.requests.try_recv().is_err(), "it stands");
    drop(events);
    assert_eq!(rig.closed().await, open.id);

    let (mut client, mut open) = standing(&mut rig, wanted()).await;
    client.request(ReserveMessage::Release(v1::ReserveRelease {})).await;
    assert_eq!(rig.command().await.0, Command::Qos { id: open.id, command: qos::Command::Release });
    assert_eq!(qos(&mut open, QosEvent::Released), Delivery::Last);
    assert_eq!(client.event().await, Event::Released(v1::ReserveReleased { confirmed: false }));
    assert_eq!(client.events.message().await.unwrap(), None, "the last event ends the call");
}

#[tokio::test]
async fn a_change_is_granted_or_refused_and_the_reservation_stands() {
    let mut rig = Rig::new(ALL).await;
    let (mut client, mut open) = standing(&mut rig, wanted()).await;
    client.request(change(250_000)).await;
    let (Command::Qos { command: qos::Command::Reserve(changed), .. }, _) = rig.command().await else {
        panic!("no change")
    };
    assert_eq!(changed.qos.rate, 250_000);
    client.request(change(300_000)).await;
    let Event::ChangeRefused(refused) = client.event().await else { panic!("one at a time") };
    assert_eq!(refused.cause(), v1::Cause::Conflict);
    assert_eq!(qos(&mut open, QosEvent::Failed(failure(4, 7))), Delivery::Queued);
    let Event::ChangeRefused(refused) = client.event().await else { panic!("it is refused") };
    assert_eq!((refused.cause(), refused.available_octets_per_s), (v1::Cause::Admission, Some(7)));
    client.request(change(200_000)).await;
    rig.command().await;
    qos(&mut open, granted(200_000));
    assert!(matches!(client.event().await, Event::Granted(_)));
    assert_eq!(qos(&mut open, QosEvent::Lost(failure(4, 6))), Delivery::Last);
    let Event::Lost(lost) = client.event().await else { panic!("it is lost") };
    assert_eq!(lost.cause(), v1::Cause::Preempted);
    assert_eq!(client.events.message().await.unwrap(), None);
}

#[tokio::test]
async fn a_broken_call_with_a_request_id_is_taken_over() {
    let mut rig = Rig::new(ALL).await;
    let with_id = || v1::ReserveOpen { request_id: Some(vec![7; 16]), ..wanted() };
    let (client, mut open) = standing(&mut rig, with_id()).await;
    drop(client);
    let mut client = call(&rig, ReserveMessage::Open(with_id())).await.unwrap().unwrap();
    let Event::Started(start) = client.event().await else { panic!("it has started") };
    assert!(start.taken_over);
    assert!(matches!(client.event().await, Event::Granted(_)), "what stands is read again");
    assert!(rig.requests.try_recv().is_err(), "the event loop receives nothing of it");

    // Another request cannot have the same octets.
    let other = v1::ReserveOpen { bidirectional: true, ..with_id() };
    let status = call(&rig, ReserveMessage::Open(other)).await.unwrap().err().unwrap();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::AlreadyExists, "REQUEST_ID_TAKEN"));

    // A call that still lives ends when another takes over.
    let mut second = call(&rig, ReserveMessage::Open(with_id())).await.unwrap().unwrap();
    let status = client.events.message().await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Aborted, "TAKEN_OVER"));
    assert!(matches!(second.event().await, Event::Started(_)));
    assert!(matches!(second.event().await, Event::Granted(_)));

    // With other traffic it is a change as well.
    let faster = v1::ReserveOpen { traffic: Some(bucket(250_000)), ..with_id() };
    let mut third = call(&rig, ReserveMessage::Open(faster)).await.unwrap().unwrap();
    let (Command::Qos { command: qos::Command::Reserve(changed), .. }, _) = rig.command().await else {
        panic!("no change")
    };
    assert_eq!(changed.qos.rate, 250_000);
    assert!(matches!(third.event().await, Event::Started(_)));
    qos(&mut open, granted(250_000));
    assert_eq!(qos(&mut open, QosEvent::Lost(failure(4, 6))), Delivery::Last);
    assert!(matches!(third.event().await, Event::Granted(_)));
}

/// A client that announces a sender of RSVP. The node has handled the command, and gives no answer yet.
async fn announced(
    rig: &mut Rig,
) -> (
    tokio::task::JoinHandle<Result<Client, Status>>,
    OpenClient,
    rsvp::SenderRequest,
    tokio::sync::oneshot::Sender<bool>,
) {
    let first = v1::ReserveOpen { protocol: v1::Protocol::Rsvp.into(), ..wanted() };
    let call = call(rig, ReserveMessage::Open(first));
    let mut open = rig.open().await;
    assert!(matches!(open.command, Command::Rsvp { command: rsvp::Command::Session(_), .. }));
    open.done();
    let (Command::Rsvp { command: rsvp::Command::Sender(sender), .. }, Some(answer)) = rig.command().await
    else {
        panic!("no sender")
    };
    (call, open, sender, answer)
}

/// A receiver reserves what a sender announces.
fn reserved(sender: &rsvp::SenderRequest) -> rsvp::RsvpEvent {
    rsvp::RsvpEvent::Resv {
        style: rsvp::Style::Ff,
        flowspec: rsvp::FlowSpec { tspec: sender.tspec, rspec: None },
        senders: vec![sender.template],
        policy: Box::default(),
        path: Path::default(),
    }
}

#[tokio::test]
async fn a_receiver_that_reserves_at_once_grants_a_sender_of_rsvp() {
    let mut rig = Rig::new(ALL).await;
    let (call, mut open, sender, answer) = announced(&mut rig).await;
    open.event(NodeEvent::Rsvp { id: open.id, event: Box::new(reserved(&sender)) });
    answer.send(true).unwrap();
    let mut client = call.await.unwrap().unwrap();
    assert!(matches!(client.event().await, Event::Started(_)));
    assert!(matches!(client.event().await, Event::Granted(_)));
}

#[tokio::test]
async fn a_sender_of_rsvp_is_granted_when_a_receiver_reserves() {
    let mut rig = Rig::new(ALL).await;
    let (call, mut open, sender, answer) = announced(&mut rig).await;
    answer.send(true).unwrap();
    let mut client = call.await.unwrap().unwrap();
    assert!(matches!(client.event().await, Event::Started(_)));

    let mut event = |event| open.event(NodeEvent::Rsvp { id: open.id, event: Box::new(event) });
    event(reserved(&sender));
    let Event::Granted(grant) = client.event().await else { panic!("it is granted") };
    assert_eq!(grant.traffic.unwrap().rate_octets_per_s, 125_000);
    let smaller = rsvp::SenderRequest { tspec: sender.tspec.limited(1000), ..sender.clone() };
    event(reserved(&smaller));
    let Event::Interrupted(less) = client.event().await else { panic!("it is less") };
    assert_eq!((less.cause(), less.available_octets_per_s), (v1::Cause::Admission, Some(1000)));
    event(reserved(&sender));
    assert!(matches!(client.event().await, Event::Granted(_)));
    event(rsvp::RsvpEvent::ResvGone { sender: sender.template });
    assert!(matches!(client.event().await, Event::Interrupted(_)));

    client.request(ReserveMessage::Release(v1::ReserveRelease {})).await;
    let released = Command::Rsvp { id: open.id, command: rsvp::Command::ReleaseSender };
    assert_eq!(rig.command().await.0, released);
    assert_eq!(client.event().await, Event::Released(v1::ReserveReleased { confirmed: false }));
    assert_eq!(client.events.message().await.unwrap(), None);
}

/// The next command, which must announce a sender of RSVP; gives its rate, octets a second.
async fn announced_rate(rig: &mut Rig) -> f32 {
    match rig.command().await.0 {
        Command::Rsvp { command: rsvp::Command::Sender(sender), .. } => sender.tspec.rate(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_change_of_a_sender_of_rsvp_is_granted_refused_or_interrupted() {
    let mut rig = Rig::new(ALL).await;
    let (call, mut open, sender, answer) = announced(&mut rig).await;
    answer.send(true).unwrap();
    let mut client = call.await.unwrap().unwrap();
    assert!(matches!(client.event().await, Event::Started(_)));
    let mut event = |event| open.event(NodeEvent::Rsvp { id: open.id, event: Box::new(event) });
    event(reserved(&sender));
    assert!(matches!(client.event().await, Event::Granted(_)));
    // A receiver follows.
    client.request(change(250_000)).await;
    assert_eq!(announced_rate(&mut rig).await, 250_000.0);
    let more =
        signalbox_node::resources::intserv::TSpec::new(250_000.0, 50_000.0, f32::INFINITY, 64, 1500).unwrap();
    let larger = rsvp::SenderRequest { tspec: more, ..sender.clone() };
    // Its old reservation says nothing about the change.
    event(reserved(&sender));
    event(reserved(&larger));
    let Event::Granted(grant) = client.event().await else { panic!("it is granted") };
    assert_eq!(grant.traffic.unwrap().rate_octets_per_s, 250_000);
    // Less is granted at once.
    client.request(change(125_000)).await;
    assert_eq!(announced_rate(&mut rig).await, 125_000.0);
    assert!(matches!(client.event().await, Event::Granted(_)));
    event(reserved(&sender));
    assert!(matches!(client.event().await, Event::Granted(_)));
    // A node on the path refuses the change: the former traffic is announced again.
    client.request(change(300_000)).await;
    assert_eq!(announced_rate(&mut rig).await, 300_000.0);
    let error = rsvp::ErrorSpec {
        node: "192.0.2.77".parse().unwrap(),
        flags: Default::default(),
        code: rsvp::ErrorCode::POLICY,
        value: 0,
    };
    event(rsvp::RsvpEvent::PathError { error, sender: sender.template, policy: Box::default() });
    assert_eq!(announced_rate(&mut rig).await, 125_000.0);
    let Event::ChangeRefused(refused) = client.event().await else { panic!("it is refused") };
    assert_eq!((refused.cause(), refused.node.as_deref()), (v1::Cause::Policy, Some("192.0.2.77")));
    // This node refuses one: a conflict is one in all protocols.
    client.request(change(310_000)).await;
    assert_eq!(announced_rate(&mut rig).await, 310_000.0);
    event(rsvp::RsvpEvent::Refused(rsvp::Refused::ConflictingPorts));
    let Event::ChangeRefused(refused) = client.event().await else { panic!("it is refused") };
    assert_eq!(refused.cause(), v1::Cause::Conflict);
    // The receiver leaves meanwhile.
    client.request(change(320_000)).await;
    assert_eq!(announced_rate(&mut rig).await, 320_000.0);
    event(rsvp::RsvpEvent::ResvGone { sender: sender.template });
    assert!(matches!(client.event().await, Event::Interrupted(_)));
}

#[tokio::test]
async fn a_change_that_no_receiver_follows_is_refused_after_a_time() {
    let mut rig = Rig::new(ALL).await;
    let (call, mut open, sender, answer) = announced(&mut rig).await;
    answer.send(true).unwrap();
    let mut client = call.await.unwrap().unwrap();
    assert!(matches!(client.event().await, Event::Started(_)));
    open.event(NodeEvent::Rsvp { id: open.id, event: Box::new(reserved(&sender)) });
    assert!(matches!(client.event().await, Event::Granted(_)));
    client.request(change(250_000)).await;
    assert_eq!(announced_rate(&mut rig).await, 250_000.0);
    assert_eq!(announced_rate(&mut rig).await, 125_000.0);
    let Event::ChangeRefused(refused) = client.event().await else { panic!("it is refused") };
    assert_eq!((refused.cause(), refused.available_octets_per_s), (v1::Cause::Admission, Some(125_000)));
    // The reservation stands.
    open.event(NodeEvent::Rsvp { id: open.id, event: Box::new(reserved(&sender)) });
    assert!(matches!(client.event().await, Event::Granted(_)));
}

#[tokio::test]
async fn a_loop_of_boomerang_is_granted_changed_and_lost() {
    let mut rig = Rig::new(ALL).await;
    let first = v1::ReserveOpen { protocol: v1::Protocol::Boomerang.into(), bidirectional: true, ..wanted() };
    let call = call(&rig, ReserveMessage::Open(first));
    let mut open = rig.open().await;
    let Command::Boomerang { command: boomerang::Command::Open(request), .. } = &open.command else {
        panic!("{:?}", open.command)
    };
    let rates = boomerang::Rates { forward: 1_000_000, reverse: 1_000_000 };
    assert_eq!((&request.rates[..], request.dscp, request.user), (&[rates][..], 46, None));
    open.done();
    let mut client = call.await.unwrap().unwrap();
    assert!(matches!(client.event().await, Event::Started(_)));
    let id = open.id;
    let mut event = |event| open.event(NodeEvent::Boomerang { id, event });
    let reserved =
        |rates| boomerang::BoomerangEvent::Reserved { rates, refresh: 30, loops: 1, path: Path::default() };
    assert_eq!(event(reserved(rates)), Delivery::Queued);
    let Event::Granted(grant) = client.event().await else { panic!("it is granted") };
    assert_eq!((grant.traffic.unwrap().rate_octets_per_s, grant.rerouted), (125_000, false));

    client.request(change(250_000)).await;
    let more = boomerang::Rates { forward: 2_000_000, reverse: 2_000_000 };
    let changed = Command::Boomerang { id, command: boomerang::Command::Change(more) };
    assert_eq!(rig.command().await.0, changed);
    let offer = boomerang::Rates { forward: 800, reverse: 0 };
    let node = Some("192.0.2.77".parse().unwrap());
    let refusal = boomerang::Refusal { offer, node, reason: boomerang::Reason::Resources, note: None };
    event(boomerang::BoomerangEvent::ChangeRefused(refusal));
    let Event::ChangeRefused(refused) = client.event().await else { panic!("it is refused") };
    assert_eq!((refused.cause(), refused.available_octets_per_s), (v1::Cause::Admission, Some(100)));
    assert_eq!(refused.node.as_deref(), Some("192.0.2.77"));
    assert_eq!(event(boomerang::BoomerangEvent::Unanswered), Delivery::Last);
    let Event::Lost(lost) = client.event().await else { panic!("it is lost") };
    assert_eq!(lost.cause(), v1::Cause::Expired);
    assert_eq!(client.events.message().await.unwrap(), None);
}

#[tokio::test]
async fn wrong_requests_do_not_reach_the_loop() {
    let mut rig = Rig::new(ALL).await;
    let flow = |destination: &str| {
        let destination = Some(destination.to_owned());
        v1::ReserveOpen { flow: Some(v1::FlowSpec { destination, ..v1::FlowSpec::default() }), ..wanted() }
    };
    let rsvp = || v1::ReserveOpen { protocol: v1::Protocol::Rsvp.into(), ..wanted() };
    for (wrong, field) in [
        (v1::ReserveOpen { traffic: Some(bucket(0)), ..wanted() }, "open.traffic.rate_octets_per_s"),
        (v1::ReserveOpen { traffic: None, ..wanted() }, "open.traffic"),
        (flow("x"), "open.flow.destination"),
        (v1::ReserveOpen { request_id: Some(vec![1]), ..wanted() }, "open.request_id"),
        (v1::ReserveOpen { ip_ttl: Some(3), ..wanted() }, "open.ip_ttl"),
        (v1::ReserveOpen { bidirectional: true, ..rsvp() }, "open.bidirectional"),
        (v1::ReserveOpen { protocol: v1::Protocol::Gist.into(), ..wanted() }, "protocol"),
    ] {
        let status = call(&rig, ReserveMessage::Open(wrong)).await.unwrap().err().unwrap();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "INVALID_FIELD"));
        assert!(status.message().starts_with(&format!("{field}: ")), "{status}");
    }
    let status = call(&rig, change(5)).await.unwrap().err().unwrap();
    assert_eq!(reason(&status), "WRONG_MESSAGE");
    assert!(rig.requests.try_recv().is_err());
}

#[tokio::test]
async fn a_query_is_answered_once() {
    let mut rig = Rig::new(ALL).await;
    let mut client = ReservationsClient::new(rig.channel.clone());
    let query =
        v1::QueryRequest { flow: wanted().flow, traffic: wanted().traffic, ..v1::QueryRequest::default() };
    let call = tokio::spawn(async move { client.query(query).await });
    let mut open = rig.open().await;
    assert!(matches!(open.command, Command::Qos { command: qos::Command::Query(_), .. }));
    open.done();
    qos(&mut open, QosEvent::Failed(failure(4, 1)));
    let Some(v1::query_response::Answer::Failed(refused)) = call.await.unwrap().unwrap().into_inner().answer
    else {
        panic!("no answer")
    };
    assert_eq!((refused.node.as_deref(), refused.available_octets_per_s), (Some("r1"), Some(7)));
    assert_eq!(rig.closed().await, open.id);
}

#[tokio::test]
async fn reservations_of_all_protocols_are_one_list() {
    let mut rig = Rig::new(ALL).await;
    let mut client = ReservationsClient::new(rig.channel.clone());
    let call = tokio::spawn(async move {
        let mut list = client.list_reservations(v1::ListReservationsRequest::default()).await?.into_inner();
        list.message().await
    });
    let Some(LoopRequest::Query(query)) = rig.requests.recv().await else { panic!("no query") };
    rig.run(query);
    let page = call.await.unwrap().unwrap().expect("one page, also of an empty list");
    assert_eq!((page.reservations.len(), page.next_page_token.len()), (0, 0));
}

#[tokio::test]
async fn an_administrator_deletes_by_identifier() {
    let mut rig = Rig::new(ALL).await;
    let delete = |id: &str| {
        let mut client = ReservationsClient::new(rig.channel.clone());
        let request = v1::DeleteReservationRequest { id: id.to_owned() };
        tokio::spawn(async move { client.delete_reservation(request).await })
    };
    let (there, gone) = (delete("2a"), delete("2b"));
    for _ in 0..2 {
        let Some(LoopRequest::DeleteReservation(grant, answer)) = rig.requests.recv().await else {
            panic!("another request")
        };
        answer.send(grant.0 == 0x2a).unwrap();
    }
    there.await.unwrap().unwrap();
    let status = gone.await.unwrap().unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::NotFound, "NO_RESERVATION"));
    let wrong = delete("eth0").await.unwrap().unwrap_err();
    assert_eq!((wrong.code(), reason(&wrong).as_str()), (Code::InvalidArgument, "INVALID_FIELD"));
}

#[tokio::test]
async fn a_test_of_a_passage_asks_the_rules_about_passages() {
    let mut rig = Rig::new(ALL).await;
    let flow = v1::FlowSpec { destination: Some("192.0.2.9".into()), ..v1::FlowSpec::default() };
    let asked = |opening: &str, protocol: v1::Protocol| v1::TestPolicyRequest {
        protocol: protocol.into(),
        flow: Some(flow.clone()),
        from: Some("192.0.2.1".into()),
        opening: Some(opening.into()),
        ..v1::TestPolicyRequest::default()
    };
    for (wrong, field) in [
        (asked("sideways", v1::Protocol::Natfw), "opening"),
        (asked("inward", v1::Protocol::Rsvp), "protocol"),
    ] {
        let status = ReservationsClient::new(rig.channel.clone()).test_policy(wrong).await.unwrap_err();
        assert!(status.message().starts_with(&format!("{field}: ")), "{status}");
    }
    // A neighbor may open outward for itself, and needs a rule for the rest.
    for (opening, allowed) in [("outward", true), ("between", false)] {
        let (mut client, asked) =
            (ReservationsClient::new(rig.channel.clone()), asked(opening, v1::Protocol::Natfw));
        let call = tokio::spawn(async move { client.test_policy(asked).await });
        let Some(LoopRequest::Query(query)) = rig.requests.recv().await else { panic!("no query") };
        rig.run(query);
        let answer = call.await.unwrap().unwrap().into_inner();
        assert_eq!((answer.allowed, answer.rule), (allowed, None), "{opening}");
    }
}
