//! Sessions of applications.

use signalbox_api::rsvp::v1::rsvp_client::RsvpClient;
use signalbox_api::v1::TokenBucket;
use signalbox_node::Event;
use signalbox_node::rsvp::{Refused, Selector};
use tonic::Code;

use super::*;
use crate::requests::LoopRequest;
use crate::rig::{ALL, OpenClient, Rig, reason};

fn request(request: AppRequest) -> v1::SessionRequest {
    v1::SessionRequest { request: Some(request) }
}

fn register() -> AppRequest {
    AppRequest::Register(v1::Register {
        destination: "192.0.2.9".into(),
        ip_protocol: 17,
        destination_port: Some(5004),
        ipsec: false,
    })
}

type Client = (mpsc::Sender<v1::SessionRequest>, Streaming<v1::SessionResponse>);

/// Begins a call; what came of it, once the loop has answered.
fn call(rig: &Rig, first: AppRequest) -> tokio::task::JoinHandle<Result<Client, Status>> {
    let mut client = RsvpClient::new(rig.channel.clone());
    tokio::spawn(async move {
        let (requests, stream) = mpsc::channel(8);
        requests.send(request(first)).await.unwrap();
        let upcalls = client.session(ReceiverStream::new(stream)).await?.into_inner();
        Ok((requests, upcalls))
    })
}

async fn upcall(upcalls: &mut Streaming<v1::SessionResponse>) -> Upcall {
    upcalls.message().await.unwrap().expect("the call goes on").upcall.unwrap()
}

async fn registered(rig: &mut Rig) -> (Client, OpenClient) {
    let call = call(rig, register());
    let mut open = rig.open().await;
    assert!(matches!(open.command, Command::Rsvp { command: RsvpCommand::Session(_), .. }));
    open.done();
    let mut client = call.await.unwrap().unwrap();
    assert!(matches!(upcall(&mut client.1).await, Upcall::Registered(_)));
    (client, open)
}

#[tokio::test]
async fn half_closing_holds_a_session_and_unregister_ends_it() {
    let mut rig = Rig::new(ALL).await;
    let ((requests, mut upcalls), mut open) = registered(&mut rig).await;
    drop(requests);
    let event = RsvpEvent::Refused(Refused::NothingToRelease);
    open.event(Event::Rsvp { id: open.id, event: Box::new(event) });
    assert!(matches!(upcall(&mut upcalls).await, Upcall::Refused(_)));
    assert!(rig.requests.try_recv().is_err(), "it is still open");
    drop(upcalls);
    assert_eq!(rig.closed().await, open.id);

    let ((requests, mut upcalls), open) = registered(&mut rig).await;
    requests.send(request(AppRequest::Unregister(v1::Unregister {}))).await.unwrap();
    let end = tokio::spawn(async move { upcalls.message().await });
    assert_eq!(rig.closed().await, open.id);
    assert_eq!(end.await.unwrap().unwrap(), None);
}

#[tokio::test]
async fn a_sender_without_source_is_this_host() {
    let mut rig = Rig::new(ALL).await;
    let ((requests, mut upcalls), _open) = registered(&mut rig).await;
    let traffic = Some(TokenBucket { rate_octets_per_s: 1000, ..TokenBucket::default() });
    let filter = Some(v1::Filter { source: Some("192.0.2.1".into()), selector: None });
    let sender = v1::Sender { filter, traffic, ..v1::Sender::default() };
    requests.send(request(AppRequest::Sender(sender.clone()))).await.unwrap();
    let (Command::Rsvp { command: RsvpCommand::Sender(taken), .. }, None) = rig.command().await else {
        panic!("no sender")
    };
    assert_eq!((taken.template.selector, taken.ttl), (Selector::Port(0), 63));
    // The rig's kernel has no routes.
    let without_filter = v1::Sender { filter: None, ..sender };
    requests.send(request(AppRequest::Sender(without_filter))).await.unwrap();
    let Some(LoopRequest::Query(query)) = rig.requests.recv().await else { panic!("no query") };
    rig.run(query);
    let status = upcalls.message().await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::FailedPrecondition, "NO_ROUTE"));
}

#[tokio::test]
async fn a_session_that_cannot_be_is_refused() {
    let mut rig = Rig::new(ALL).await;
    let status = call(&rig, AppRequest::ReleaseSender(v1::ReleaseSender {})).await.unwrap().unwrap_err();
    assert_eq!(reason(&status), "WRONG_MESSAGE");
    for (refused, code) in
        [(Refused::Full, Code::ResourceExhausted), (Refused::ConflictingPorts, Code::InvalidArgument)]
    {
        let call = call(&rig, register());
        let mut open = rig.open().await;
        open.event(Event::Rsvp { id: open.id, event: Box::new(RsvpEvent::Refused(refused)) });
        open.done();
        assert_eq!(call.await.unwrap().unwrap_err().code(), code);
        assert_eq!(rig.closed().await, open.id);
    }
}

#[tokio::test]
async fn an_administrator_ends_all_senders_of_a_session_in_parts() {
    let mut rig = Rig::new(ALL).await;
    let delete_senders = |rig: &Rig| {
        let mut client = RsvpClient::new(rig.channel.clone());
        let AppRequest::Register(session) = register() else { panic!() };
        let request = v1::DeleteSendersRequest { session: Some(session), source: Some("192.0.2.1".into()) };
        tokio::spawn(async move { client.delete_senders(request).await })
    };
    for (parts, answer) in [(vec![(64, true), (3, false)], Some(67)), (vec![(0, false)], None)] {
        let call = delete_senders(&rig);
        for (senders, more) in parts {
            let mut open = rig.open().await;
            let Command::Rsvp { command: RsvpCommand::EndSenders { source, .. }, .. } = &open.command else {
                panic!("{:?}", open.command)
            };
            assert_eq!(*source, Some("192.0.2.1".parse().unwrap()));
            open.event(Event::Rsvp {
                id: open.id,
                event: Box::new(RsvpEvent::SendersEnded { senders, more }),
            });
            open.done();
            assert_eq!(rig.closed().await, open.id);
        }
        match (call.await.unwrap(), answer) {
            (Ok(response), Some(senders)) => assert_eq!(response.into_inner().senders, senders),
            (Err(status), None) => assert_eq!(reason(&status), "NO_SENDER"),
            (result, _) => panic!("{result:?}"),
        }
    }
}

#[tokio::test]
async fn an_administrator_makes_the_node_forget_a_neighbor() {
    let mut rig = Rig::new(ALL).await;
    for (interfaces, answer) in [(2, Ok(2)), (0, Err("NO_NEIGHBOR"))] {
        let mut client = RsvpClient::new(rig.channel.clone());
        let request = v1::ForgetNeighborRequest { address: "192.0.2.1".into(), interface: None };
        let call = tokio::spawn(async move { client.forget_neighbor(request).await });
        let mut open = rig.open().await;
        let Command::Rsvp { command: RsvpCommand::ForgetNeighbor { neighbor, ifindex }, .. } = &open.command
        else {
            panic!("{:?}", open.command)
        };
        assert_eq!((neighbor.to_string().as_str(), *ifindex), ("192.0.2.1", None));
        let event = RsvpEvent::NeighborForgotten { interfaces };
        open.event(Event::Rsvp { id: open.id, event: Box::new(event) });
        open.done();
        assert_eq!(rig.closed().await, open.id);
        let result = call.await.unwrap();
        match answer {
            Ok(interfaces) => assert_eq!(result.unwrap().into_inner().interfaces, interfaces),
            Err(why) => assert_eq!(reason(&result.unwrap_err()), why),
        }
    }
    let mut client = RsvpClient::new(rig.channel.clone());
    let request = v1::ForgetNeighborRequest { address: "here".into(), interface: None };
    assert_eq!(reason(&client.forget_neighbor(request).await.unwrap_err()), "INVALID_FIELD");
}
