//! Passages of clients.

use std::net::Ipv4Addr;
use std::time::Duration;

use signalbox_api::v1;
use signalbox_api::v1::open_pinhole_request::Request;
use signalbox_api::v1::open_pinhole_response::Event as Report;
use signalbox_api::v1::pinholes_client::PinholesClient;
use signalbox_core::hops::{Hop, Part};
use signalbox_core::{Mri, PathCoupled, SessionId};
use signalbox_node::natfw::{self, Code as NatfwCode, Failure, Granted, NatfwEvent, Refusal};
use signalbox_node::{Command, Event};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use crate::clients::Delivery;
use crate::requests::LoopRequest;
use crate::rig::{Rig, reason};

/// A host with the application.
const NATFW: &str = "version = 1\n[node]\nname = \"h1\"\nprotocols = [\"gist\", \"natfw\"]\n";

fn flow() -> v1::FlowSpec {
    v1::FlowSpec {
        destination: Some("192.0.2.9".into()),
        ip_protocol: Some(17),
        source_port: Some(5000),
        destination_port: Some(6000),
        ..v1::FlowSpec::default()
    }
}

fn open() -> v1::PinholeOpen {
    v1::PinholeOpen { flow: Some(flow()), ..v1::PinholeOpen::default() }
}

fn message(request: Request) -> v1::OpenPinholeRequest {
    v1::OpenPinholeRequest { request: Some(request) }
}

fn started() -> NatfwEvent {
    let mri = PathCoupled::between("192.0.2.1".parse().unwrap(), "192.0.2.9".parse().unwrap());
    NatfwEvent::Started { session: SessionId([7; 16]), mri: Mri::PathCoupled(mri) }
}

#[tokio::test]
async fn a_passage_lives_as_long_as_its_call() {
    let mut rig = Rig::new(NATFW).await;
    let mut client = PinholesClient::new(rig.channel.clone());
    let (requests, stream) = mpsc::channel(2);
    requests.send(message(Request::Open(open()))).await.unwrap();
    let call = tokio::spawn(async move { client.open_pinhole(ReceiverStream::new(stream)).await.unwrap() });
    let mut opened = rig.open().await;
    let Command::Natfw { id, command: natfw::Command::Open(request) } = opened.command.clone() else {
        panic!("{:?}", opened.command)
    };
    assert_eq!((request.dst.to_string().as_str(), request.protocol), ("192.0.2.9", Some(17)));
    assert_eq!((request.src_port, request.dst_port), (Some(5000), Some(6000)));
    opened.done();
    opened.event(Event::Natfw { id, event: started() });
    let mut events = call.await.unwrap().into_inner();
    let response = events.message().await.unwrap().unwrap();
    let Some(Report::Started(report)) = response.event else { panic!("{response:?}") };
    assert_eq!((report.session_id, response.time_unix_us > 0), (vec![7; 16], true));

    let granted = Granted {
        session: SessionId([7; 16]),
        lifetime: Duration::from_secs(42),
        external: Some((Ipv4Addr::new(203, 0, 113, 5), Some(40_000))),
        bindings: vec![Ipv4Addr::new(198, 51, 100, 7)],
        hops: vec![Hop { routers: 2, ..Hop::new([10, 0, 1, 1].into(), Part::Translated) }],
        gaps: true,
        far_end: Some(true),
    };
    opened.event(Event::Natfw { id, event: NatfwEvent::Granted(granted) });
    let Some(Report::Granted(report)) = events.message().await.unwrap().unwrap().event else {
        panic!("a grant")
    };
    let external = v1::Endpoint { address: "203.0.113.5".into(), port: Some(40_000) };
    assert_eq!((report.lifetime_us, report.external), (42_000_000, Some(external)));
    let hop = v1::HopGrant {
        address: "10.0.1.1".into(),
        part: v1::HopPart::Translated.into(),
        routers_before: Some(2),
        ..v1::HopGrant::default()
    };
    assert_eq!((report.gaps, report.hops), (true, vec![hop]));
    assert_eq!((report.far_end, &report.bindings[..]), (Some(true), &["198.51.100.7".to_owned()][..]));

    requests.send(message(Request::Release(v1::PinholeRelease {}))).await.unwrap();
    assert_eq!(rig.command().await.0, Command::Natfw { id, command: natfw::Command::Close });
    assert_eq!(opened.event(Event::Natfw { id, event: NatfwEvent::Closed }), Delivery::Last);
    let last = events.message().await.unwrap().unwrap().event;
    assert_eq!(last, Some(Report::Released(v1::PinholeReleased {})));
    assert_eq!(rig.closed().await, id);
    assert_eq!(events.message().await.unwrap(), None);
}

/// A call with the octets of one that broke gets its passage, which the event loop does not notice.
#[tokio::test]
async fn a_broken_call_with_a_request_id_is_taken_over() {
    let mut rig = Rig::new(NATFW).await;
    let client = PinholesClient::new(rig.channel.clone());
    let with_id = || v1::PinholeOpen { request_id: Some(vec![7; 16]), ..open() };
    let call = |open: v1::PinholeOpen| {
        let mut client = client.clone();
        let (requests, stream) = mpsc::channel(2);
        requests.try_send(message(Request::Open(open))).unwrap();
        let reply = tokio::spawn(async move { client.open_pinhole(ReceiverStream::new(stream)).await });
        (requests, reply)
    };
    let (requests, first) = call(with_id());
    let mut opened = rig.open().await;
    let id = opened.id;
    opened.done();
    opened.event(Event::Natfw { id, event: started() });
    let mut events = first.await.unwrap().unwrap().into_inner();
    events.message().await.unwrap();
    let granted = Granted {
        session: SessionId([7; 16]),
        lifetime: Duration::from_secs(42),
        external: None,
        bindings: Vec::new(),
        hops: Vec::new(),
        gaps: false,
        far_end: None,
    };
    opened.event(Event::Natfw { id, event: NatfwEvent::Granted(granted) });
    events.message().await.unwrap();
    drop((requests, events));

    let (requests, second) = call(with_id());
    let mut events = second.await.unwrap().unwrap().into_inner();
    let Some(Report::Started(start)) = events.message().await.unwrap().unwrap().event else {
        panic!("it has started")
    };
    assert!(start.taken_over);
    let grant = events.message().await.unwrap().unwrap().event;
    assert!(matches!(grant, Some(Report::Granted(_))), "what stands is read again");
    assert!(rig.requests.try_recv().is_err(), "the event loop did not notice");

    // Another request cannot have the same octets, and octets of another number are refused.
    for (other, code, why) in [
        (v1::PinholeOpen { second_port: true, ..with_id() }, Code::AlreadyExists, "REQUEST_ID_TAKEN"),
        (v1::PinholeOpen { request_id: Some(vec![1]), ..open() }, Code::InvalidArgument, "INVALID_FIELD"),
    ] {
        let (_requests, reply) = call(other);
        let status = reply.await.unwrap().unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (code, why));
    }

    // The client that took over closes it.
    requests.send(message(Request::Release(v1::PinholeRelease {}))).await.unwrap();
    assert_eq!(rig.command().await.0, Command::Natfw { id, command: natfw::Command::Close });
    assert_eq!(opened.event(Event::Natfw { id, event: NatfwEvent::Closed }), Delivery::Last);
    let last = events.message().await.unwrap().unwrap().event;
    assert_eq!(last, Some(Report::Released(v1::PinholeReleased {})));
    assert_eq!(rig.closed().await, id);
}

/// The cause of a failure, for programs, follows from class and code (RFC 5973 §4.2.5).
#[tokio::test]
async fn a_failure_has_a_cause_and_the_code_of_the_protocol() {
    let mut rig = Rig::new(NATFW).await;
    for (failure, cause) in [
        (Failure::Code(NatfwCode { class: 5, code: 2 }), v1::Cause::Policy),
        (Failure::Code(NatfwCode { class: 4, code: 1 }), v1::Cause::Admission),
        (Failure::Code(NatfwCode { class: 7, code: 4 }), v1::Cause::Conflict),
        (Failure::Code(NatfwCode { class: 5, code: 7 }), v1::Cause::NoAnswer),
        (Failure::Code(NatfwCode { class: 1, code: 5 }), v1::Cause::Expired),
        (Failure::Code(NatfwCode { class: 3, code: 4 }), v1::Cause::Protocol),
        (Failure::NoResponse, v1::Cause::NoAnswer),
        (Failure::NotUpstream, v1::Cause::Protocol),
    ] {
        let mut client = PinholesClient::new(rig.channel.clone());
        let (requests, stream) = mpsc::channel(2);
        requests.send(message(Request::Open(open()))).await.unwrap();
        let call =
            tokio::spawn(async move { client.open_pinhole(ReceiverStream::new(stream)).await.unwrap() });
        let mut opened = rig.open().await;
        let id = opened.id;
        opened.done();
        opened.event(Event::Natfw { id, event: started() });
        opened.event(Event::Natfw { id, event: NatfwEvent::Failed(failure.clone()) });
        let mut events = call.await.unwrap().into_inner();
        events.message().await.unwrap();
        let Some(Report::Failed(report)) = events.message().await.unwrap().unwrap().event else {
            panic!("it failed")
        };
        assert_eq!((report.cause(), report.message), (cause, failure.to_string()));
        assert_eq!(rig.closed().await, id);
    }
}

#[tokio::test]
async fn what_cannot_be_asked_names_its_field() {
    let mut rig = Rig::new(NATFW).await;
    let mut client = PinholesClient::new(rig.channel.clone());
    let expose = v1::PinholeOpen { action: v1::PinholeAction::Expose.into(), ..open() };
    for (request, field) in [
        (v1::PinholeOpen { flow: None, ..open() }, "open.flow"),
        (v1::PinholeOpen { protocol: v1::Protocol::Qos.into(), ..open() }, "open.protocol"),
        (v1::PinholeOpen { action: 9, ..open() }, "open.action"),
        (v1::PinholeOpen { towards: Some("192.0.2.7".into()), ..open() }, "open.towards"),
        (v1::PinholeOpen { icmp_types: vec![256], ..open() }, "open.icmp_types"),
        (
            v1::PinholeOpen { flow: Some(v1::FlowSpec { dscp: Some(46), ..flow() }), ..open() },
            "open.flow.dscp",
        ),
        (expose, "open.towards"),
    ] {
        let stream = tokio_stream::once(message(Request::Open(request)));
        let status = client.open_pinhole(stream).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "INVALID_FIELD"));
        assert!(status.message().starts_with(&format!("{field}: ")), "{status}");
    }
    assert!(rig.requests.try_recv().is_err());

    let call = tokio::spawn(async move {
        client.open_pinhole(tokio_stream::once(message(Request::Open(open())))).await.map(drop)
    });
    let mut opened = rig.open().await;
    opened.done();
    opened.event(Event::Natfw { id: opened.id, event: NatfwEvent::Refused(Refusal::NoRoute) });
    let status = call.await.unwrap().unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::FailedPrecondition, "NO_ROUTE"));
}

/// An administrator names a session of the list; what cannot be a session, or is not in the list, is refused.
#[tokio::test]
async fn an_administrator_ends_a_session() {
    let mut rig = Rig::new(NATFW).await;
    for (there, expected) in [(true, None), (false, Some("NO_PINHOLE"))] {
        let mut client = PinholesClient::new(rig.channel.clone());
        let request = v1::DeletePinholeRequest { session_id: vec![7; 16] };
        let call = tokio::spawn(async move { client.delete_pinhole(request).await });
        let Some(LoopRequest::DeletePinhole(session, answer)) = rig.requests.recv().await else {
            panic!("a session is deleted")
        };
        assert_eq!(session, SessionId([7; 16]));
        answer.send(there).unwrap();
        let status = call.await.unwrap().err();
        assert_eq!(status.map(|status| reason(&status)), expected.map(str::to_owned));
    }
    let mut client = PinholesClient::new(rig.channel.clone());
    let status = client.delete_pinhole(v1::DeletePinholeRequest { session_id: vec![7] }).await.unwrap_err();
    assert!(status.message().starts_with("session_id: "), "{status}");
}
