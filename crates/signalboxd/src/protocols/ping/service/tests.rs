//! Pings of clients.

use signalbox_api::ping::v1;
use signalbox_api::ping::v1::ping_client::PingClient;
use signalbox_api::ping::v1::ping_response::Event as Report;
use signalbox_api::v1::FlowSpec;
use signalbox_node::ping::{self, LostReason, PingEvent};
use signalbox_node::{Command, Event};
use tonic::Code;

use super::super::Pings;
use crate::clients::{ClientProtocol, Delivery};
use crate::rig::{ALL, Rig, reason};

fn ping_to(destination: &str) -> v1::PingRequest {
    let flow = FlowSpec { destination: Some(destination.into()), ..FlowSpec::default() };
    v1::PingRequest { flow: Some(flow), ..v1::PingRequest::default() }
}

fn lost(id: u64, seq: u32) -> Event {
    Event::Ping { id, event: PingEvent::Lost { seq, reason: LostReason::Timeout } }
}

#[tokio::test]
async fn a_ping_ends_after_its_last_event() {
    let mut rig = Rig::new(ALL).await;
    let mut client = PingClient::new(rig.channel.clone());
    let call = tokio::spawn(async move { client.ping(ping_to("192.0.2.9")).await.unwrap().into_inner() });
    let mut open = rig.open().await;
    let Command::Ping { command: ping::Command::Start(request), .. } = &open.command else {
        panic!("no ping")
    };
    assert_eq!((request.dst.to_string().as_str(), request.count), ("192.0.2.9", None));
    assert_eq!(request.interval.as_secs(), 1, "the default");
    open.done();
    let mut stream = call.await.unwrap();
    open.event(lost(open.id, 3));
    let response = stream.message().await.unwrap().unwrap();
    assert!(response.time_unix_us > 0);
    let Some(Report::Lost(report)) = response.event else { panic!("{response:?}") };
    assert_eq!((report.sequence, report.reason()), (3, v1::LostReason::Timeout));
    let done = Event::Ping { id: open.id, event: PingEvent::Done { sent: 1, received: 0 } };
    assert_eq!(open.event(done), Delivery::Last);
    let done = Report::Done(v1::PingDone { sent: 1, received: 0 });
    assert_eq!(stream.message().await.unwrap().unwrap().event, Some(done));
    // The loop's end of the client still exists: the last event alone ends the call.
    assert_eq!(stream.message().await.unwrap(), None);
}

#[tokio::test]
async fn a_client_that_goes_away_stops_its_ping() {
    let mut rig = Rig::new(ALL).await;
    let mut client = PingClient::new(rig.channel.clone());
    let call = tokio::spawn(async move { client.ping(ping_to("192.0.2.9")).await.unwrap().into_inner() });
    let mut open = rig.open().await;
    open.done();
    drop(call.await.unwrap());
    assert_eq!(rig.closed().await, open.id);
}

/// The client goes while the loop has not opened it yet: it is closed afterwards.
#[tokio::test]
async fn a_client_that_goes_before_it_is_open_is_closed() {
    let mut rig = Rig::new(ALL).await;
    let mut client = PingClient::new(rig.channel.clone());
    let call = tokio::spawn(async move { client.ping(ping_to("192.0.2.9")).await.map(drop) });
    let mut open = rig.open().await;
    call.abort();
    assert!(call.await.is_err());
    assert_eq!(rig.closed().await, open.id);
    open.done();
}

#[tokio::test]
async fn a_client_that_does_not_read_loses_its_ping_and_reads_why() {
    let mut rig = Rig::new(ALL).await;
    let mut client = PingClient::new(rig.channel.clone());
    let call = tokio::spawn(async move { client.ping(ping_to("192.0.2.9")).await.unwrap().into_inner() });
    let mut open = rig.open().await;
    open.done();
    let mut stream = call.await.unwrap();
    let most = u32::try_from(Pings::QUEUE).unwrap() + 1000;
    let slow = (0..most).find(|seq| open.event(lost(open.id, *seq)) == Delivery::TooSlow);
    assert!(slow.is_some());
    drop(open);
    let end = loop {
        match stream.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the call ends with an error"),
            Err(status) => break status,
        }
    };
    assert_eq!((end.code(), reason(&end).as_str()), (Code::ResourceExhausted, "CLIENT_TOO_SLOW"));
}

#[tokio::test]
async fn wrong_requests_do_not_reach_the_loop() {
    let mut rig = Rig::new(ALL).await;
    let mut client = PingClient::new(rig.channel.clone());
    let with = |tweak: fn(&mut FlowSpec)| {
        let mut request = ping_to("192.0.2.9");
        tweak(request.flow.as_mut().unwrap());
        request
    };
    for (request, field) in [
        (ping_to("nowhere"), "flow.destination"),
        (with(|flow| flow.dscp = Some(7)), "flow.dscp"),
        (with(|flow| flow.source_port = Some(7)), "flow.source_port"),
        (v1::PingRequest { padding_octets: 16_001, ..ping_to("192.0.2.9") }, "padding_octets"),
        (v1::PingRequest { format: 99, ..ping_to("192.0.2.9") }, "format"),
        (v1::PingRequest::default(), "flow"),
    ] {
        let status = client.ping(request).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "INVALID_FIELD"));
        assert!(status.message().starts_with(&format!("{field}: ")), "{status}");
    }
    assert!(rig.requests.try_recv().is_err());
}
