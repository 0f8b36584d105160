//! Clients of CASP in other processes.

use signalbox_api::casp::v1::casp_client::CaspClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};

use super::*;
use crate::clients::Delivery;
use crate::protocols::applications::client::{OCTETS, QUEUE};
use crate::rig::{ALL, OpenClient, Rig, reason};

const SESSION: SessionId = SessionId([9; 16]);

/// The client's end of a call.
struct Program {
    requests: mpsc::Sender<v1::ClientRequest>,
    indications: Streaming<v1::ClientResponse>,
}

impl Program {
    async fn request(&self, request: Request) {
        self.requests.send(v1::ClientRequest { request: Some(request) }).await.unwrap();
    }

    async fn indication(&mut self) -> Indication {
        let indication = self.indications.message().await.unwrap().expect("the call goes on");
        indication.indication.unwrap()
    }
}

impl Rig {
    fn client_call(&mut self, first: Request) -> tokio::task::JoinHandle<Result<Program, Status>> {
        let mut client = CaspClient::new(self.channel.clone());
        tokio::spawn(async move {
            let (requests, stream) = mpsc::channel(8);
            requests.send(v1::ClientRequest { request: Some(first) }).await.unwrap();
            let indications = client.client(ReceiverStream::new(stream)).await?.into_inner();
            Ok(Program { requests, indications })
        })
    }

    async fn client_request(&mut self) -> OwnedRequest {
        match self.command().await {
            (Command::Casp { command: CaspCommand::Request(request), .. }, None) => request,
            other => panic!("{other:?}"),
        }
    }
}

impl OpenClient {
    fn casp(&mut self, event: ClientEvent) -> Delivery {
        self.event(Event::Casp { id: self.id, event: CaspEvent::Client(event) })
    }
}

fn register(client_type: u32) -> Request {
    Request::Register(v1::RegisterClient { client_type, stateless: true })
}

async fn registered(rig: &mut Rig) -> (Program, OpenClient) {
    let call = rig.client_call(register(77));
    let mut open = rig.open().await;
    assert_eq!(
        open.command,
        Command::Casp { id: open.id, command: CaspCommand::Register { client: 77, stateless: true } }
    );
    open.casp(ClientEvent::Registered);
    open.done();
    let mut program = call.await.unwrap().unwrap();
    assert_eq!(program.indication().await, Indication::Registered(v1::Registered { node: "r7".into() }));
    (program, open)
}

fn flows() -> [FlowId; 5] {
    let (v4, v6) = (["192.0.2.1", "198.51.100.7"], ["2001:db8::1", "2001:db8:1::7"]);
    let [src, dst] = v4.map(|one| one.parse().unwrap());
    let [src6, dst6] = v6.map(|one| one.parse().unwrap());
    [
        FlowId::V4Ports { src, dst, src_port: 0, dst_port: 5006, protocol: 0 },
        FlowId::V4Spi { src, dst, spi: 0xc0de, protocol: 50 },
        FlowId::V6Label { src: src6, dst: dst6, label: 0x12345 },
        FlowId::V6Ports { src: src6, dst: dst6, src_port: 0, dst_port: 0, protocol: 0 },
        FlowId::V6Spi { src: src6, dst: dst6, spi: 1, protocol: 51 },
    ]
}

/// A message of a neighbor.
fn arrival(flow: FlowId, data: &[u8]) -> ClientEvent {
    ClientEvent::Indication(IndicationOf::Received(ArrivalOf {
        id: 3,
        session: SESSION,
        flow,
        reverse: false,
        tear_down: false,
        unsecure: true,
        ttd: 7,
        hops: 2,
        peer: "192.0.2.9".parse().unwrap(),
        ifindex: signalbox_core::IfIndex::NONE,
        answered: true,
        identity: None,
        branch: 1,
        last: false,
        timeout: 90,
        stateless: true,
        refresh: false,
        route: Octets::from(&[4, 6][..]),
        data: Octets::from(data),
    }))
}

#[test]
fn a_flow_of_an_indication_can_be_used_in_a_request() {
    for flow in flows() {
        let read = super::flow("flow", Some(&show::flow_id(&flow)));
        assert_eq!(read.map_err(|wrong| wrong.to_string()), Ok(flow));
    }
}

#[tokio::test]
async fn requests_go_in_and_indications_out_until_the_client_unregisters() {
    let mut rig = Rig::new(ALL).await;
    let (mut program, mut open) = registered(&mut rig).await;
    let [flow, ..] = flows();
    let new = v1::SessionRef { session_id: Vec::new(), flow: Some(show::flow_id(&flow)) };
    let send = v1::SendMessage {
        tag: 5,
        session: Some(new),
        hold: true,
        ttd: Some(9),
        data: Some(b"hello".to_vec()),
        ..Default::default()
    };
    program.request(Request::SendMessage(send)).await;
    let expected = SendRequestOf {
        tag: 5,
        hold: true,
        ttd: Some(9),
        ..SendRequestOf::new(None, flow, Octets::from(&b"hello"[..]))
    };
    assert_eq!(rig.client_request().await, RequestOf::Send(expected));

    let indication = IndicationOf::Opened { tag: 5, session: SESSION, flow, hold: true };
    open.casp(ClientEvent::Indication(indication));
    let opened = v1::SessionOpened { tag: 5, session_id: SESSION.0.to_vec() };
    assert_eq!(program.indication().await, Indication::SessionOpened(opened));
    open.casp(arrival(flow, b"news"));
    let Indication::RecvMessage(message) = program.indication().await else { panic!("no message") };
    assert_eq!((message.verdict_id, message.lifetime_us), (Some(3), 90_000_000));
    assert_eq!((message.peer.as_str(), message.data.as_slice()), ("192.0.2.9", &b"news"[..]));

    // What the indication names is what the answer is about.
    let verdict = v1::Verdict { verdict_id: 3, consume: false, data: Some(b"more".to_vec()) };
    program.request(Request::Verdict(verdict)).await;
    let replaced = VerdictOf::Replace(Octets::from(&b"more"[..]));
    assert_eq!(rig.client_request().await, RequestOf::Verdict { id: 3, verdict: replaced });
    program.request(Request::HoldSession(v1::HoldSession { session: message.session, hold: false })).await;
    assert_eq!(rig.client_request().await, RequestOf::Hold { session: SESSION, flow, on: false });

    program.request(Request::Unregister(v1::Unregister {})).await;
    let end = tokio::spawn(async move { program.indications.message().await });
    assert_eq!(rig.closed().await, open.id);
    assert_eq!(end.await.unwrap().unwrap(), None);
}

#[tokio::test]
async fn a_request_that_cannot_be_is_refused_and_the_call_goes_on() {
    let mut rig = Rig::new(ALL).await;
    let (mut program, _open) = registered(&mut rig).await;
    let [flow, ..] = flows().map(|flow| Some(show::flow_id(&flow)));
    let session = |id: &[u8]| Some(v1::SessionRef { session_id: id.to_vec(), flow: flow.clone() });
    let reverse = v1::SendMessage { tag: 8, session: session(b""), reverse: true, ..Default::default() };
    let far = v1::SendMessage { tag: 9, session: session(b""), ttd: Some(0), ..Default::default() };
    let hold = v1::HoldSession { session: session(b"short"), hold: true };
    let both = v1::Verdict { verdict_id: 1, consume: true, data: Some(Vec::new()) };
    for (at, (request, tag, text)) in [
        (register(7), None, "comes once"),
        (Request::SendMessage(reverse), Some(8), "need a session that exists"),
        (Request::SendMessage(far), Some(9), "send_message.ttd: 0, but 1 to 255 are possible"),
        (Request::HoldSession(hold), None, "session_id: 5 octets, but 16 are needed"),
        (Request::Verdict(both), None, "a message that ends here has none"),
    ]
    .into_iter()
    .enumerate()
    {
        program.request(request).await;
        let Indication::RequestRefused(refused) = program.indication().await else { panic!("{at}") };
        assert_eq!((refused.request, refused.tag), (at as u64 + 1, tag));
        assert!(refused.reason.contains(text), "{}", refused.reason);
    }
    program.request(Request::Verdict(v1::Verdict { verdict_id: 1, consume: true, data: None })).await;
    assert_eq!(rig.client_request().await, RequestOf::Verdict { id: 1, verdict: VerdictOf::Consume });
}

/// An answer to a message without state gets its route back as it was.
#[tokio::test]
async fn a_route_goes_out_and_comes_in_as_it_is() {
    let mut rig = Rig::new(ALL).await;
    let (mut program, mut open) = registered(&mut rig).await;
    let [flow, ..] = flows();
    open.casp(arrival(flow, b"question"));
    let Indication::RecvMessage(message) = program.indication().await else { panic!("no message") };
    assert!(message.stateless);
    let data = Some(b"answer".to_vec());
    let answer = v1::SendMessage {
        session: message.session,
        reverse: true,
        route: Some(message.route),
        data,
        ..Default::default()
    };
    program.request(Request::SendMessage(answer.clone())).await;
    let expected = SendRequestOf {
        reverse: true,
        route: Some(Octets(vec![4, 6])),
        ..SendRequestOf::new(Some(SESSION), flow, Octets::from(&b"answer"[..]))
    };
    assert_eq!(rig.client_request().await, RequestOf::Send(expected));
    program.request(Request::SendMessage(v1::SendMessage { record_route: true, ..answer })).await;
    let Indication::RequestRefused(refused) = program.indication().await else { panic!("not refused") };
    assert!(refused.reason.contains("excludes record_route"), "{}", refused.reason);
}

#[tokio::test]
async fn a_number_that_cannot_be_had_ends_the_call() {
    let mut rig = Rig::new(ALL).await;
    for (error, code, name) in [
        (RegisterError::InUse(77), Code::AlreadyExists, "CLIENT_TYPE_TAKEN"),
        (RegisterError::Reserved(77), Code::InvalidArgument, "INVALID_FIELD"),
        (RegisterError::TooMany, Code::ResourceExhausted, "TABLE_FULL"),
    ] {
        let call = rig.client_call(register(77));
        let mut open = rig.open().await;
        assert_eq!(open.casp(ClientEvent::Refused(error)), Delivery::Last);
        open.done();
        let status = call.await.unwrap().err().expect("refused");
        assert_eq!((status.code(), reason(&status).as_str()), (code, name));
        assert!(status.message().ends_with(&error.to_string()), "{status}");
        assert_eq!(rig.closed().await, open.id);
    }
}

/// What waits for a client that does not read is bounded in number and in octets. The client gets the number of lost messages, and
/// continues.
#[tokio::test]
async fn a_client_that_does_not_read_loses_and_holds_little() {
    let mut rig = Rig::new(ALL).await;
    let (mut program, mut open) = registered(&mut rig).await;
    let [flow, ..] = flows();
    let queued = |open: &mut OpenClient, data: &[u8]| {
        (0..5000).take_while(|_| open.casp(arrival(flow, data)) == Delivery::Queued).count()
    };
    assert_eq!(queued(&mut open, &[7; 60_000]), OCTETS / 60_000);
    assert_eq!(open.casp(arrival(flow, &[7; 60_000])), Delivery::Lost);
    assert_eq!(queued(&mut open, b""), QUEUE - OCTETS / 60_000, "the number is bounded too");
    for _ in 0..QUEUE {
        assert!(matches!(program.indication().await, Indication::RecvMessage(_)));
    }
    assert_eq!(open.casp(arrival(flow, &[7; 60_000])), Delivery::Queued);
    let next = program.indications.message().await.unwrap().expect("the call goes on");
    assert_eq!(next.lost, 3);
}

/// A client that floods waits for the event loop, which has a few requests of it at a time.
#[tokio::test]
async fn a_client_that_floods_waits_for_the_event_loop() {
    const MANY: u64 = 1000;
    let mut rig = Rig::new(ALL).await;
    let (program, _open) = registered(&mut rig).await;
    let [flow, ..] = flows();
    let session = Some(v1::SessionRef { session_id: Vec::new(), flow: Some(show::flow_id(&flow)) });
    let Program { requests, indications: _indications } = program;
    let flood = tokio::spawn(async move {
        for tag in 0..MANY {
            let send = v1::SendMessage {
                tag,
                session: session.clone(),
                data: Some(vec![7; 16_000]),
                ..Default::default()
            };
            requests.send(v1::ClientRequest { request: Some(Request::SendMessage(send)) }).await.unwrap();
        }
        requests
    });
    for tag in 0..MANY {
        let RequestOf::Send(send) = rig.client_request().await else { panic!("{tag}") };
        assert_eq!(send.tag, tag, "nothing is lost");
        // What the two ends of the connection have in their buffers is a few hundred messages at most.
        assert!(tag + 400 > MANY || !flood.is_finished(), "{tag}");
    }
    drop(flood.await.unwrap());
}
