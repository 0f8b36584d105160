//! Calls of people and tools.

use std::sync::atomic::Ordering;

use signalbox_api::v0;
use signalbox_api::v0::control_client::ControlClient;
use signalbox_api::v0::ping_event::Event as PingReport;
use signalbox_node::ping::{self, LostReason, PingEvent};
use signalbox_node::qos::{self, QosEvent};
use signalbox_node::{Command, Event};
use tokio_stream::StreamExt;
use tonic::Code;
use tonic::transport::Channel;

use crate::requests::LoopRequest;
use crate::rig::{ALL, Rig};

fn control(rig: &Rig) -> ControlClient<Channel> {
    ControlClient::new(rig.channel.clone())
}

fn ping_to(destination: &str) -> v0::PingRequest {
    v0::PingRequest {
        destination: destination.into(),
        interval_us: 1_000_000,
        timeout_us: 2_000_000,
        ..v0::PingRequest::default()
    }
}

#[tokio::test]
async fn a_table_comes_in_portions_up_to_its_limit() {
    let mut rig = Rig::new(ALL).await;
    let handle = rig.handle.clone();
    let table = |limit| handle.table(limit, |_, from| (vec![from, from], (from < 4).then_some(from + 2)));
    let mut rows = table(0);
    let mut all = Vec::new();
    for _ in 0..3 {
        let Some(LoopRequest::Query(query)) = rig.requests.recv().await else { panic!("no query") };
        rig.run(query);
        all.push(rows.next().await.unwrap().unwrap());
        all.push(rows.next().await.unwrap().unwrap());
    }
    assert_eq!(all, [0, 0, 2, 2, 4, 4]);
    assert!(rows.next().await.is_none());
    assert_eq!(rig.woken.load(Ordering::SeqCst), 3, "each query wakes the loop");

    let mut rows = table(3);
    for _ in 0..2 {
        let Some(LoopRequest::Query(query)) = rig.requests.recv().await else { panic!("no query") };
        rig.run(query);
    }
    let mut count = 0;
    while rows.next().await.is_some() {
        count += 1;
    }
    assert_eq!(count, 3);
    assert!(rig.requests.try_recv().is_err(), "what lies behind the limit is not asked for");
}

#[tokio::test]
async fn a_client_that_goes_away_stops_its_ping() {
    let mut rig = Rig::new(ALL).await;
    let mut client = control(&rig);
    let call = tokio::spawn(async move { client.ping(ping_to("192.0.2.9")).await.unwrap().into_inner() });
    let mut open = rig.open().await;
    let Command::Ping { command: ping::Command::Start(request), .. } = &open.command else {
        panic!("no ping")
    };
    assert_eq!((request.dst.to_string().as_str(), request.count), ("192.0.2.9", None));
    open.done();
    let mut stream = call.await.unwrap();
    let event = PingEvent::Lost { seq: 0, reason: LostReason::Timeout };
    open.event(Event::Ping { id: open.id, event });
    let report = stream.message().await.unwrap().unwrap().event;
    assert!(matches!(report, Some(PingReport::Lost(v0::PingLost { seq: 0, .. }))), "{report:?}");
    drop(stream);
    assert_eq!(rig.closed().await, open.id);
}

/// The client goes while the loop has not opened it yet: it is closed afterwards.
#[tokio::test]
async fn a_client_that_goes_before_it_is_open_is_closed() {
    let mut rig = Rig::new(ALL).await;
    let mut client = control(&rig);
    let call = tokio::spawn(async move { client.ping(ping_to("192.0.2.9")).await.map(drop) });
    let mut open = rig.open().await;
    call.abort();
    assert!(call.await.is_err());
    assert_eq!(rig.closed().await, open.id);
    open.done();
}

#[tokio::test]
async fn wrong_requests_do_not_reach_the_loop() {
    let mut rig = Rig::new(ALL).await;
    let mut client = control(&rig);
    let mut port = ping_to("192.0.2.9");
    port.destination_port = Some(65_536);
    for (request, part) in [(ping_to("nowhere"), "destination"), (port, "destination_port")] {
        let status = client.ping(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().starts_with(part), "{status}");
    }
    let request = v0::ListSessionsRequest { session_prefix: "xyz".into(), ..Default::default() };
    assert_eq!(client.list_sessions(request).await.unwrap_err().code(), Code::InvalidArgument);
    assert!(rig.requests.try_recv().is_err());
}

#[tokio::test]
async fn without_the_protocol_the_remedy_is_named() {
    let rig = Rig::new("").await;
    let mut client = control(&rig);
    let status = client.ping(ping_to("192.0.2.9")).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("[apps.ping]"), "{status}");
    let status = client.reserve(reserve_to("192.0.2.9")).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("[apps.qos]"), "{status}");
    let status = client.list_interfaces(v0::ListInterfacesRequest {}).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    let mut rsvp = v0::rsvp_client::RsvpClient::new(rig.channel.clone());
    let status = rsvp.list_rsvp_sessions(v0::ListRsvpSessionsRequest {}).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("[rsvp]"), "{status}");
}

fn reserve_to(destination: &str) -> v0::ReserveRequest {
    let wanted = v0::Wanted { destination: destination.into(), rate: 125_000, ..v0::Wanted::default() };
    v0::ReserveRequest { wanted: Some(wanted), ..v0::ReserveRequest::default() }
}

#[tokio::test]
async fn a_reservation_lasts_until_it_is_released() {
    let mut rig = Rig::new(ALL).await;
    let (mut client, mut second) = (control(&rig), control(&rig));
    let call =
        tokio::spawn(async move { client.reserve(reserve_to("192.0.2.9")).await.unwrap().into_inner() });
    let mut open = rig.open().await;
    let id = open.id;
    let Command::Qos { command: qos::Command::Reserve(request), .. } = &open.command else {
        panic!("{:?}", open.command)
    };
    assert_eq!((request.flow.dst.to_string().as_str(), request.qos.rate), ("192.0.2.9", 125_000));
    open.done();
    let mut stream = call.await.unwrap();
    let release = tokio::spawn(async move { second.release(v0::ReleaseRequest { id }).await.map(drop) });
    let (command, answer) = rig.command().await;
    assert_eq!(command, Command::Qos { id, command: qos::Command::Release });
    answer.unwrap().send(true).unwrap();
    release.await.unwrap().unwrap();
    open.event(Event::Qos { id, event: Box::new(QosEvent::Released) });
    drop(open);
    let released = v0::reserve_event::Event::Released(v0::ReserveReleased {});
    assert_eq!(stream.message().await.unwrap().unwrap().event, Some(released));
    assert_eq!(stream.message().await.unwrap(), None, "the last event ends the call");
}

#[tokio::test]
async fn a_client_that_goes_away_releases_its_reservation() {
    let mut rig = Rig::new(ALL).await;
    let mut client = control(&rig);
    let call =
        tokio::spawn(async move { client.reserve(reserve_to("192.0.2.9")).await.unwrap().into_inner() });
    let mut open = rig.open().await;
    open.done();
    drop(call.await.unwrap());
    assert_eq!(rig.closed().await, open.id);
}

#[tokio::test]
async fn a_query_is_answered_once() {
    let mut rig = Rig::new(ALL).await;
    let mut client = control(&rig);
    let wanted = reserve_to("192.0.2.9").wanted;
    let call = tokio::spawn(async move { client.query(v0::QueryRequest { wanted }).await });
    let mut open = rig.open().await;
    assert!(matches!(open.command, Command::Qos { command: qos::Command::Query(_), .. }));
    open.done();
    let failure = qos::Failure {
        class: 4,
        code: 1,
        meaning: "not enough".into(),
        node: Some("r1".into()),
        rule: None,
        available: Some(7),
        hops: Vec::new(),
    };
    open.event(Event::Qos { id: open.id, event: Box::new(QosEvent::Failed(failure)) });
    let Some(v0::query_response::Answer::Failed(refusal)) = call.await.unwrap().unwrap().into_inner().answer
    else {
        panic!("no answer")
    };
    assert_eq!((refusal.node.as_str(), refusal.available), ("r1", Some(7)));
    assert_eq!(rig.closed().await, open.id);
}

#[tokio::test]
async fn calls_fail_at_once_when_the_loop_has_ended() {
    let rig = Rig::new(ALL).await;
    let mut client = control(&rig);
    drop(rig.requests);
    let status = client.get_status(v0::GetStatusRequest {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
}
