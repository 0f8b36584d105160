//! The service over a real connection, against an event loop that the test plays.

use std::sync::atomic::{AtomicUsize, Ordering};

use hyper_util::rt::TokioIo;
use signalbox_api::v1::control_client::ControlClient;
use signalbox_api::v1::control_server::ControlServer;
use signalbox_api::v1::ping_event::Event;
use tokio::net::UnixStream;
use tonic::Code;
use tonic::transport::{Channel, Endpoint, Server};

use super::*;

struct Rig {
    client: ControlClient<Channel>,
    questions: mpsc::Receiver<Ask>,
    woken: Arc<AtomicUsize>,
}

/// A client whose questions come out at `questions`.
async fn rig(applications: bool) -> Rig {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (sender, questions) = mpsc::channel(8);
    let woken = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&woken);
    let asks = Asks::new(sender, move || {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    let connections = tokio_stream::once(Ok::<_, std::io::Error>(theirs));
    let service = ControlServer::new(Service::new(
        asks,
        Runs { ping: applications, qos: applications, rsvp: applications },
    ));
    tokio::spawn(Server::builder().serve_with_incoming(service, connections));
    let mut ours = Some(TokioIo::new(ours));
    let connector = tower::service_fn(move |_| {
        let stream = ours.take().ok_or(std::io::ErrorKind::NotConnected);
        async move { stream.map_err(std::io::Error::from) }
    });
    let channel = Endpoint::from_static("http://localhost").connect_with_connector(connector).await.unwrap();
    Rig { client: ControlClient::new(channel), questions, woken }
}

fn ping_to(destination: &str) -> v1::PingRequest {
    v1::PingRequest {
        destination: destination.into(),
        interval_us: 1_000_000,
        timeout_us: 2_000_000,
        ..v1::PingRequest::default()
    }
}

#[tokio::test]
async fn a_table_comes_in_portions_up_to_its_limit() {
    let Rig { mut client, mut questions, woken } = rig(true).await;
    let (asked, mut places) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ask::Sessions(portion)) = questions.recv().await {
            asked.send(portion.from).unwrap();
            assert_eq!(portion.filter.prefix, "ab");
            let row = v1::Session { queued: u32::try_from(portion.from).unwrap(), ..Default::default() };
            let next = (portion.from < 4).then_some(portion.from + 2);
            portion.answer.send((vec![row.clone(), row], next)).unwrap();
        }
    });
    let mut request = v1::ListSessionsRequest { session_prefix: "AB".into(), ..Default::default() };
    let mut rows = client.list_sessions(request.clone()).await.unwrap().into_inner();
    let mut all = Vec::new();
    while let Some(row) = rows.message().await.unwrap() {
        all.push(row.queued);
    }
    assert_eq!(all, [0, 0, 2, 2, 4, 4]);
    assert_eq!(woken.load(Ordering::SeqCst), 3, "each question wakes the loop");

    request.limit = 3;
    let mut rows = client.list_sessions(request).await.unwrap().into_inner();
    let mut count = 0;
    while rows.message().await.unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 3);
    let mut asked = Vec::new();
    while let Ok(from) = places.try_recv() {
        asked.push(from);
    }
    assert_eq!(asked, [0, 2, 4, 0, 2], "what lies behind the limit is not asked for");
}

#[tokio::test]
async fn a_client_that_goes_away_stops_its_pings() {
    let Rig { mut client, mut questions, .. } = rig(true).await;
    let call = tokio::spawn(async move { client.ping(ping_to("192.0.2.9")).await.unwrap().into_inner() });
    let Some(Ask::PingStart { request, events, id }) = questions.recv().await else { panic!("no ping") };
    assert_eq!((request.dst.to_string().as_str(), request.count), ("192.0.2.9", None));
    id.send(7).unwrap();
    let mut stream = call.await.unwrap();
    let lost = Event::Lost(v1::PingLost { seq: 0, reason: "no reply in time".into() });
    events.send(Ok(v1::PingEvent { event: Some(lost.clone()) })).await.unwrap();
    assert_eq!(stream.message().await.unwrap().unwrap().event, Some(lost));
    drop(stream);
    assert!(matches!(questions.recv().await, Some(Ask::PingStop(7))));
}

#[tokio::test]
async fn wrong_requests_do_not_reach_the_loop() {
    let Rig { mut client, mut questions, .. } = rig(true).await;
    let mut port = ping_to("192.0.2.9");
    port.destination_port = Some(65_536);
    for (request, part) in [(ping_to("nowhere"), "destination"), (port, "destination_port")] {
        let status = client.ping(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().starts_with(part), "{status}");
    }
    let request = v1::ListSessionsRequest { session_prefix: "xyz".into(), ..Default::default() };
    assert_eq!(client.list_sessions(request).await.unwrap_err().code(), Code::InvalidArgument);
    assert!(questions.try_recv().is_err());
}

#[tokio::test]
async fn without_the_application_the_remedy_is_named() {
    let Rig { mut client, .. } = rig(false).await;
    let status = client.ping(ping_to("192.0.2.9")).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("[apps.ping]"), "{status}");
    let status = client.reserve(reserve_to("192.0.2.9")).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("[apps.qos]"), "{status}");
}

fn reserve_to(destination: &str) -> v1::ReserveRequest {
    let wanted = v1::Wanted { destination: destination.into(), rate: 125_000, ..v1::Wanted::default() };
    v1::ReserveRequest { wanted: Some(wanted), ..v1::ReserveRequest::default() }
}

#[tokio::test]
async fn a_reservation_lasts_until_it_is_released() {
    let Rig { mut client, mut questions, .. } = rig(true).await;
    let mut second = client.clone();
    let call =
        tokio::spawn(async move { client.reserve(reserve_to("192.0.2.9")).await.unwrap().into_inner() });
    let Some(Ask::QosStart { command, events, id }) = questions.recv().await else { panic!("no command") };
    let qos::Command::Reserve(request) = command else { panic!("{command:?}") };
    assert_eq!((request.flow.dst.to_string().as_str(), request.qos.rate), ("192.0.2.9", 125_000));
    id.send(9).unwrap();
    let mut stream = call.await.unwrap();
    let release = tokio::spawn(async move { second.release(v1::ReleaseRequest { id: 9 }).await.map(drop) });
    let Some(Ask::QosRelease(9, answer)) = questions.recv().await else { panic!("no release") };
    answer.send(true).unwrap();
    release.await.unwrap().unwrap();
    events.send(QosEvent::Released).await.unwrap();
    drop(events);
    let released = v1::reserve_event::Event::Released(v1::ReserveReleased {});
    assert_eq!(stream.message().await.unwrap().unwrap().event, Some(released));
    assert_eq!(stream.message().await.unwrap(), None, "the last event ends the call");
}

#[tokio::test]
async fn a_client_that_goes_away_releases_its_reservation() {
    let Rig { mut client, mut questions, .. } = rig(true).await;
    let call =
        tokio::spawn(async move { client.reserve(reserve_to("192.0.2.9")).await.unwrap().into_inner() });
    let Some(Ask::QosStart { events, id, .. }) = questions.recv().await else { panic!("no command") };
    id.send(9).unwrap();
    let stream = call.await.unwrap();
    drop(stream);
    assert!(matches!(questions.recv().await, Some(Ask::QosStop(9))));
    assert!(events.is_closed());
}

#[tokio::test]
async fn a_question_is_answered_once() {
    let Rig { mut client, mut questions, .. } = rig(true).await;
    let wanted = reserve_to("192.0.2.9").wanted;
    let call = tokio::spawn(async move { client.query(v1::QueryRequest { wanted }).await });
    let Some(Ask::QosStart { command, events, id }) = questions.recv().await else { panic!("no command") };
    assert!(matches!(command, qos::Command::Query(_)));
    id.send(3).unwrap();
    let failure = qos::Failure {
        class: 4,
        code: 1,
        meaning: "no room".into(),
        node: Some("r1".into()),
        rule: None,
        available: Some(7),
        hops: Vec::new(),
    };
    events.send(QosEvent::Failed(failure)).await.unwrap();
    let Some(v1::query_response::Answer::Failed(told)) = call.await.unwrap().unwrap().into_inner().answer
    else {
        panic!("no answer")
    };
    assert_eq!((told.node.as_str(), told.available), ("r1", Some(7)));
}

#[tokio::test]
async fn questions_to_a_loop_that_has_ended_fail_at_once() {
    let Rig { mut client, questions, .. } = rig(true).await;
    drop(questions);
    let status = client.get_status(v1::GetStatusRequest {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
}
