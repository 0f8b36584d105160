//! The service over a real connection, against an event loop that the test plays.

use hyper_util::rt::TokioIo;
use signalbox_api::v1::control_client::ControlClient;
use signalbox_api::v1::control_server::ControlServer;
use signalbox_api::v1::gist_client::GistClient;
use signalbox_api::v1::gist_server::GistServer;
use signalbox_core::SessionId;
use signalbox_core::octets::Octets;
use signalbox_core::service::{IndicationOf, MessageHandle, MessageStatus, RequestOf, SendError};
use signalbox_node::gist::PeeringPolicy;
use tokio::net::UnixStream;
use tonic::Code;
use tonic::transport::{Channel, Endpoint, Server};

use signalbox_api::v1::rsvp_server::RsvpServer;

use super::*;
use crate::control::Service;
use crate::server::Services;

struct Rig {
    channel: Channel,
    questions: mpsc::Receiver<Ask>,
}

async fn rig() -> Rig {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (sender, questions) = mpsc::channel(8);
    let asks = Asks::new(sender, || {});
    let connections = tokio_stream::once(Ok::<_, std::io::Error>(theirs));
    let services = Services {
        control: ControlServer::new(Service::new(
            asks.clone(),
            crate::control::Runs { ping: true, qos: true, rsvp: true },
        )),
        gist: GistServer::new(Applications::new(asks.clone(), "r7")),
        rsvp: RsvpServer::new(crate::protocols::rsvp::service::Sessions::new(asks, true)),
    };
    tokio::spawn(Server::builder().serve_with_incoming(services, connections));
    let mut ours = Some(TokioIo::new(ours));
    let connector = tower::service_fn(move |_| {
        let stream = ours.take().ok_or(std::io::ErrorKind::NotConnected);
        async move { stream.map_err(std::io::Error::from) }
    });
    let channel = Endpoint::from_static("http://localhost").connect_with_connector(connector).await.unwrap();
    Rig { channel, questions }
}

fn register(nslp_id: u32) -> Asked {
    let peering_policy = v1::PeeringPolicy::Ask.into();
    Asked::Register(v1::Register { nslp_id, router_alert: 3, peering_policy })
}

/// The application's end of a call.
struct App {
    requests: mpsc::Sender<v1::FromApplication>,
    told: Streaming<v1::ToApplication>,
}

impl App {
    async fn ask(&self, request: Asked) {
        self.requests.send(v1::FromApplication { request: Some(request) }).await.unwrap();
    }

    async fn hear(&mut self) -> (u64, Told) {
        let told = self.told.message().await.unwrap().expect("the call goes on");
        (told.lost, told.indication.unwrap())
    }
}

impl Rig {
    /// Begins a call; what came of it, once the loop has said so.
    async fn call(&mut self, first: Asked) -> tokio::task::JoinHandle<Result<App, Status>> {
        let mut client = GistClient::new(self.channel.clone());
        let (requests, stream) = mpsc::channel(8);
        requests.send(v1::FromApplication { request: Some(first) }).await.unwrap();
        tokio::spawn(async move {
            let told = client.application(ReceiverStream::new(stream)).await?.into_inner();
            Ok(App { requests, told })
        })
    }

    async fn joining(&mut self) -> Joining {
        match self.questions.recv().await {
            Some(Ask::ApplicationJoin(joining)) => joining,
            other => panic!("{other:?}"),
        }
    }

    /// What the application asks of the node; its name must be 4.
    async fn command(&mut self) -> ApplicationCommand {
        match self.questions.recv().await {
            Some(Ask::Application(4, command)) => command,
            other => panic!("{other:?}"),
        }
    }

    /// An application that has its place, under the name 4.
    async fn joined(&mut self) -> (App, Line) {
        let call = self.call(register(32_710)).await;
        let joining = self.joining().await;
        let registration = Registration { policy: PeeringPolicy::Ask, router_alert: 3 };
        assert_eq!((joining.nslp, joining.registration), (NslpId(32_710), registration));
        joining.answer.send(Ok(4)).unwrap();
        let mut app = call.await.unwrap().unwrap();
        let registered = Told::Registered(v1::Registered { node: "r7".into() });
        assert_eq!(app.hear().await, (0, registered));
        (app, joining.line)
    }
}

fn waiting(number: u64, lost: u64) -> Waiting {
    let (nslp, session) = (NslpId(32_710), SessionId([9; 16]));
    let (handle, status) = (MessageHandle(number), MessageStatus::Failed(SendError::NoRoute));
    Waiting { indication: IndicationOf::MessageStatus { nslp, handle, session, status }, lost }
}

fn end(of: &Told) -> u64 {
    match of {
        Told::MessageStatus(status) => status.handle,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn requests_go_in_and_indications_out_until_the_application_ends() {
    let mut rig = rig().await;
    let (mut app, line) = rig.joined().await;
    app.ask(Asked::PeeringDecision(v1::PeeringDecision {
        check_id: 6,
        peer: true,
        data: Some(b"yes.".to_vec()),
    }))
    .await;
    let decision = signalbox_core::service::PeeringOf::Accept(Some(Octets::from(&b"yes."[..])));
    let check = signalbox_core::service::CheckId(6);
    assert_eq!(rig.command().await, ApplicationCommand::Request(RequestOf::Peering { check, decision }));
    line.queue.send(waiting(5, 2)).await.unwrap();
    let (lost, told) = app.hear().await;
    assert_eq!((lost, end(&told)), (2, 5));

    // It ends its requests: that ends it.
    drop(app.requests);
    assert_eq!(rig.command().await, ApplicationCommand::Leave);
    assert!(app.told.message().await.unwrap().is_none());
}

#[tokio::test]
async fn an_application_that_dies_leaves() {
    let mut rig = rig().await;
    let (app, line) = rig.joined().await;
    // The process is gone, and its connection with it.
    rig.channel = Endpoint::from_static("http://localhost").connect_lazy();
    drop(app);
    assert_eq!(rig.command().await, ApplicationCommand::Leave);
    line.queue.closed().await;
}

#[tokio::test]
async fn a_request_that_cannot_be_is_refused_and_the_call_goes_on() {
    let mut rig = rig().await;
    let (mut app, _line) = rig.joined().await;
    app.ask(register(7)).await;
    app.ask(Asked::SendMessage(v1::SendMessage { data: vec![0; 5], handle: Some(8), ..Default::default() }))
        .await;
    app.requests.send(v1::FromApplication { request: None }).await.unwrap();
    for (request, handle, text) in
        [(1, None, "already"), (2, Some(8), "multiples of 4: pad it"), (3, None, "does not know")]
    {
        let (_, told) = app.hear().await;
        let Told::RequestRefused(refused) = told else { panic!("{told:?}") };
        assert_eq!((refused.request, refused.handle), (request, handle));
        assert!(refused.reason.contains(text), "{}", refused.reason);
    }
    app.ask(Asked::PeeringDecision(v1::PeeringDecision::default())).await;
    assert!(matches!(rig.command().await, ApplicationCommand::Request(_)));
}

#[tokio::test]
async fn a_number_that_is_taken_ends_the_call() {
    let mut rig = rig().await;
    for (error, code) in [
        (RegisterError::InUse(NslpId(5)), Code::AlreadyExists),
        (RegisterError::Reserved(NslpId(5)), Code::InvalidArgument),
        (RegisterError::TooMany(64), Code::ResourceExhausted),
    ] {
        let call = rig.call(register(5)).await;
        rig.joining().await.answer.send(Err(error)).unwrap();
        let status = call.await.unwrap().err().expect("refused");
        assert_eq!((status.code(), status.message()), (code, error.to_string().as_str()));
    }
    assert!(rig.questions.try_recv().is_err(), "what has no place does not leave it");
}

#[tokio::test]
async fn who_does_not_say_who_it_is_is_sent_away() {
    let mut rig = rig().await;
    let decision = Asked::PeeringDecision(v1::PeeringDecision::default());
    for (first, text) in [
        (decision, "the first message of an application is `register`"),
        (register(65_536), "register.nslp_id: 65536, but 0 to 65535 are possible"),
        (
            Asked::Register(v1::Register { nslp_id: 5, peering_policy: 9, ..Default::default() }),
            "register.peering_policy: always, ask or never",
        ),
    ] {
        let status = rig.call(first).await.await.unwrap().err().expect("refused");
        assert_eq!((status.code(), status.message()), (Code::InvalidArgument, text));
    }
    assert!(rig.questions.try_recv().is_err());
}

/// The client gives up while the loop has not answered yet: the place it gets is given back.
#[tokio::test]
async fn an_application_that_goes_before_it_is_taken_leaves_nothing() {
    let mut rig = rig().await;
    let call = rig.call(register(32_710)).await;
    let joining = rig.joining().await;
    call.abort();
    assert!(call.await.is_err());
    rig.channel = Endpoint::from_static("http://localhost").connect_lazy();
    joining.answer.send(Ok(4)).unwrap();
    assert_eq!(rig.command().await, ApplicationCommand::Leave);
}

#[tokio::test]
async fn an_application_that_lagged_says_when_it_has_caught_up() {
    let mut rig = rig().await;
    let (mut app, line) = rig.joined().await;
    let many = u64::try_from(HIGH).unwrap();
    for number in 0..many {
        if number == many - 1 {
            line.lags.store(true, Ordering::SeqCst);
        }
        line.queue.try_send(waiting(number, 0)).unwrap();
    }
    for number in 0..many {
        assert_eq!(end(&app.hear().await.1), number);
    }
    assert!(matches!(rig.questions.recv().await, Some(Ask::ApplicationReady(4))));
    assert!(!line.lags.load(Ordering::SeqCst));
    assert!(rig.questions.try_recv().is_err(), "once");
}

#[tokio::test]
async fn a_daemon_that_stops_says_so() {
    let mut rig = rig().await;
    let (mut app, line) = rig.joined().await;
    drop(line);
    drop(rig.questions);
    assert_eq!(app.told.message().await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn both_services_share_the_socket() {
    let mut rig = rig().await;
    let mut control = ControlClient::new(rig.channel.clone());
    let status = tokio::spawn(async move { control.get_status(v1::GetStatusRequest {}).await });
    let Some(Ask::Status(answer)) = rig.questions.recv().await else { panic!("no question") };
    answer.send(v1::GetStatusResponse { node: "r7".into(), ..Default::default() }).unwrap();
    assert_eq!(status.await.unwrap().unwrap().into_inner().node, "r7");
}
