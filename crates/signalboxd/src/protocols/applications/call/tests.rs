//! Applications of other processes.

use signalbox_api::gist::v1;
use signalbox_api::gist::v1::application_request::Request as AppRequest;
use signalbox_api::gist::v1::application_response::Indication;
use signalbox_api::gist::v1::gist_client::GistClient;
use signalbox_api::v1::GetNodeRequest;
use signalbox_api::v1::node_client::NodeClient;
use signalbox_core::octets::Octets;
use signalbox_core::service::{IndicationOf, MessageHandle, MessageStatus, RequestOf, SendError};
use signalbox_core::{NslpId, SessionId};
use signalbox_node::gist::{PeeringPolicy, Registration};
use signalbox_node::{ApplicationCommand, ApplicationEvent, Command, Event, RegisterError};
use tonic::Code;
use tonic::transport::Endpoint;

use super::super::client::HIGH;
use super::*;
use crate::clients::Delivery;
use crate::requests::LoopRequest;
use crate::rig::{ALL, OpenClient, Rig};

fn register(nslp_id: u32) -> AppRequest {
    let peering_policy = v1::PeeringPolicy::Ask.into();
    AppRequest::Register(v1::Register { nslp_id, router_alert: 3, peering_policy })
}

/// The application's end of a call.
struct App {
    requests: mpsc::Sender<v1::ApplicationRequest>,
    indications: Streaming<v1::ApplicationResponse>,
}

impl App {
    async fn request(&self, request: AppRequest) {
        self.requests.send(v1::ApplicationRequest { request: Some(request) }).await.unwrap();
    }

    async fn indication(&mut self) -> (u64, Indication) {
        let indication = self.indications.message().await.unwrap().expect("the call goes on");
        (indication.lost, indication.indication.unwrap())
    }
}

impl OpenClient {
    fn application(&mut self, event: ApplicationEvent) -> Delivery {
        self.event(Event::Gist { id: self.id, event })
    }
}

impl Rig {
    /// Begins a call; what came of it, once the loop has answered.
    fn call(&mut self, first: AppRequest) -> tokio::task::JoinHandle<Result<App, Status>> {
        let mut client = GistClient::new(self.channel.clone());
        tokio::spawn(async move {
            let (requests, stream) = mpsc::channel(8);
            requests.send(v1::ApplicationRequest { request: Some(first) }).await.unwrap();
            let indications = client.application(ReceiverStream::new(stream)).await?.into_inner();
            Ok(App { requests, indications })
        })
    }

    /// What the application asks of the node.
    async fn application_command(&mut self) -> ApplicationCommand {
        match self.command().await {
            (Command::Gist { command, .. }, None) => command,
            other => panic!("{other:?}"),
        }
    }

    /// An application that is registered.
    async fn registered(&mut self) -> (App, OpenClient) {
        let call = self.call(register(32_710));
        let mut open = self.open().await;
        let registration =
            Registration { policy: PeeringPolicy::Ask, router_alert: 3, router_alert_v6: None };
        let command = ApplicationCommand::Register { nslp: NslpId(32_710), registration };
        assert_eq!(open.command, Command::Gist { id: open.id, command });
        open.application(ApplicationEvent::Registered);
        open.done();
        let mut app = call.await.unwrap().unwrap();
        let registered = Indication::Registered(v1::Registered { node: "r7".into() });
        assert_eq!(app.indication().await, (0, registered));
        (app, open)
    }
}

fn status(number: u64) -> ApplicationEvent {
    let (nslp, session) = (NslpId(32_710), SessionId([9; 16]));
    let (handle, status) = (MessageHandle(number), MessageStatus::Failed(SendError::NoRoute));
    let indication: IndicationOf<Octets> = IndicationOf::MessageStatus { nslp, handle, session, status };
    ApplicationEvent::Indication(indication)
}

fn handle(of: &Indication) -> u64 {
    match of {
        Indication::MessageStatus(status) => status.handle,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn requests_go_in_and_indications_out_until_the_application_ends() {
    let mut rig = Rig::new(ALL).await;
    let (mut app, mut open) = rig.registered().await;
    app.request(AppRequest::PeeringDecision(v1::PeeringDecision {
        check_id: 6,
        peer: true,
        data: Some(b"yes.".to_vec()),
    }))
    .await;
    let decision = signalbox_core::service::PeeringOf::Accept(Some(Octets::from(&b"yes."[..])));
    let check = signalbox_core::service::CheckId(6);
    let request = RequestOf::Peering { check, decision };
    assert_eq!(rig.application_command().await, ApplicationCommand::Request(request));
    open.application(status(5));
    let (lost, indication) = app.indication().await;
    assert_eq!((lost, handle(&indication)), (0, 5));

    // Half-closing holds the registration.
    let App { requests, mut indications } = app;
    drop(requests);
    open.application(status(6));
    assert!(indications.message().await.unwrap().is_some());
    assert!(rig.requests.try_recv().is_err());
    drop(indications);
    assert_eq!(rig.closed().await, open.id);
}

#[tokio::test]
async fn an_application_that_unregisters_reads_the_end_when_its_number_is_free() {
    let mut rig = Rig::new(ALL).await;
    let (mut app, open) = rig.registered().await;
    app.request(AppRequest::Unregister(v1::Unregister {})).await;
    let end = tokio::spawn(async move { app.indications.message().await });
    assert_eq!(rig.closed().await, open.id);
    assert_eq!(end.await.unwrap().unwrap(), None);
}

#[tokio::test]
async fn an_application_that_dies_leaves() {
    let mut rig = Rig::new(ALL).await;
    let (app, mut open) = rig.registered().await;
    // The process is gone, and its connection with it.
    rig.channel = Endpoint::from_static("http://localhost").connect_lazy();
    drop(app);
    assert_eq!(rig.closed().await, open.id);
    assert_eq!(open.application(status(5)), Delivery::Gone);
}

#[tokio::test]
async fn a_request_that_cannot_be_is_refused_and_the_call_goes_on() {
    let mut rig = Rig::new(ALL).await;
    let (mut app, _open) = rig.registered().await;
    app.request(register(7)).await;
    let odd = v1::SendMessage { data: vec![0; 5], handle: Some(8), ..Default::default() };
    app.request(AppRequest::SendMessage(odd)).await;
    app.requests.send(v1::ApplicationRequest { request: None }).await.unwrap();
    for (request, handle, text) in
        [(1, None, "comes once"), (2, Some(8), "multiples of 4: pad it"), (3, None, "does not know")]
    {
        let (_, indication) = app.indication().await;
        let Indication::RequestRefused(refused) = indication else { panic!("{indication:?}") };
        assert_eq!((refused.request, refused.handle), (request, handle));
        assert!(refused.reason.contains(text), "{}", refused.reason);
    }
    app.request(AppRequest::PeeringDecision(v1::PeeringDecision::default())).await;
    assert!(matches!(rig.application_command().await, ApplicationCommand::Request(_)));
}

#[tokio::test]
async fn a_number_that_is_taken_ends_the_call() {
    let mut rig = Rig::new(ALL).await;
    for (error, code) in [
        (RegisterError::InUse(NslpId(5)), Code::AlreadyExists),
        (RegisterError::Reserved(NslpId(5)), Code::InvalidArgument),
        (RegisterError::TooMany(64), Code::ResourceExhausted),
    ] {
        let call = rig.call(register(5));
        let mut open = rig.open().await;
        assert_eq!(open.application(ApplicationEvent::Refused(error)), Delivery::Last);
        open.done();
        let status = call.await.unwrap().err().expect("refused");
        assert_eq!(status.code(), code);
        assert!(status.message().ends_with(&error.to_string()), "{status}");
        assert_eq!(rig.closed().await, open.id);
    }
}

#[tokio::test]
async fn an_application_that_does_not_register_first_is_refused() {
    let mut rig = Rig::new(ALL).await;
    let decision = AppRequest::PeeringDecision(v1::PeeringDecision::default());
    for (first, text) in [
        (decision, "the first message of this call is `register`"),
        (register(65_536), "register.nslp_id: 65536, but 0 to 65535 are possible"),
        (
            AppRequest::Register(v1::Register { nslp_id: 5, peering_policy: 9, ..Default::default() }),
            "register.peering_policy: always, ask or never",
        ),
    ] {
        let status = rig.call(first).await.unwrap().err().expect("refused");
        assert_eq!((status.code(), status.message()), (Code::InvalidArgument, text));
    }
    assert!(rig.requests.try_recv().is_err());
}

/// The client gives up while the loop has not answered yet: the registration is taken back.
#[tokio::test]
async fn an_application_that_goes_before_it_is_registered_leaves_nothing() {
    let mut rig = Rig::new(ALL).await;
    let call = rig.call(register(32_710));
    let mut open = rig.open().await;
    call.abort();
    assert!(call.await.is_err());
    rig.channel = Endpoint::from_static("http://localhost").connect_lazy();
    open.application(ApplicationEvent::Registered);
    open.done();
    assert_eq!(rig.closed().await, open.id);
}

#[tokio::test]
async fn an_application_that_lagged_goes_on_when_it_has_read() {
    let mut rig = Rig::new(ALL).await;
    let (mut app, mut open) = rig.registered().await;
    let many = HIGH as u64 + 1;
    for number in 0..many {
        let paused = matches!(open.application(status(number)), Delivery::Paused(_));
        assert_eq!(paused, number == many - 1, "{number}");
    }
    for number in 0..many {
        assert_eq!(handle(&app.indication().await.1), number);
    }
    assert_eq!(rig.application_command().await, ApplicationCommand::Blocked(false));
    open.commanded(&Command::Gist { id: open.id, command: ApplicationCommand::Blocked(false) });
    assert!(rig.requests.try_recv().is_err(), "once");
    assert_eq!(open.application(status(0)), Delivery::Queued);
}

#[tokio::test]
async fn applications_read_that_the_daemon_stops() {
    let mut rig = Rig::new(ALL).await;
    let (mut app, open) = rig.registered().await;
    drop(open);
    drop(rig.requests);
    assert_eq!(app.indications.message().await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn services_share_the_socket() {
    let mut rig = Rig::new(ALL).await;
    let mut client = NodeClient::new(rig.channel.clone());
    let node = tokio::spawn(async move { client.get_node(GetNodeRequest {}).await });
    let Some(LoopRequest::Query(query)) = rig.requests.recv().await else { panic!("no query") };
    rig.run(query);
    assert_eq!(node.await.unwrap().unwrap().into_inner().name, "r7");
}
