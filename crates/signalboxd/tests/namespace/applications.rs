//! All primitives of RFC 5971's Appendix B, misuse, and the death of an application.

use std::fs::File;
use std::io::BufReader;

use signalbox_api::gist::v1;
use signalbox_api::gist::v1::application_request::Request;
use signalbox_api::gist::v1::application_response::Indication;
use signalbox_api::gist::v1::message_status::Status as Fate;
use signalbox_api::gist::v1::{NetworkEvent, PeeringPolicy, SendError};
use signalbox_api::v1::{Direction, FlowSpec};
use signalbox_node::{ApplicationEvent, Command, Event, Node};
use signalbox_record::{Reader, replay};
use tonic::Code;

use crate::net::{Host, NSLP, pair};

const SESSION: [u8; 16] = [0x5a; 16];

fn flow([a, b]: &[Host; 2], direction: Direction) -> Option<v1::Mri> {
    let flow = FlowSpec {
        source: Some(a.address.to_string()),
        destination: Some(b.address.to_string()),
        ..Default::default()
    };
    let method = v1::RoutingMethod::PathCoupled.into();
    Some(v1::Mri { direction: direction.into(), method, flow: Some(flow) })
}

/// A message along the flow from `a` to `b`.
fn message(hosts: &[Host; 2], handle: u64, data: &[u8]) -> v1::SendMessage {
    v1::SendMessage {
        data: data.to_vec(),
        handle: Some(handle),
        session_id: SESSION.to_vec(),
        mri: flow(hosts, Direction::Downstream),
        ..Default::default()
    }
}

/// The peer that routing state was installed with.
fn good(indication: Indication) -> Option<u64> {
    match indication {
        Indication::NetworkNotification(event) if event.event() == NetworkEvent::Good => event.sii_handle,
        Indication::NetworkNotification(_)
        | Indication::Registered(_)
        | Indication::RequestRefused(_)
        | Indication::RecvMessage(_)
        | Indication::MessageStatus(_) => None,
    }
}

/// GIST-B.1-01, GIST-B.2-02, GIST-B.3-01, GIST-B.4-02, GIST-B.5-01: sent, asked, received, reported and ended, by two
/// applications in other processes than GIST's.
#[tokio::test]
async fn every_primitive_passes_the_socket() {
    let mut hosts = pair("all").await;
    let mut a = hosts[0].application(NSLP, PeeringPolicy::Never).await.unwrap();
    let mut b = hosts[1].application(NSLP, PeeringPolicy::Ask).await.unwrap();
    assert_eq!(hosts[0].status().await.nslp_ids, [32_704, NSLP]);

    // B.1, B.2: the Query asks, and its answer lets the message come.
    a.request(Request::SendMessage(message(&hosts, 1, b"good day"))).await;
    let query = b.message().await;
    let check_id = query.check_id.expect("the application is asked");
    assert!(query.data.is_empty() && query.at_flow_end && query.sii_handle.is_none());
    b.request(Request::PeeringDecision(v1::PeeringDecision { check_id, peer: true, data: None })).await;
    assert_eq!(a.message_status(1).await, Fate::Sent(v1::TransferAttributes::default()));
    let to_b = a.find(good).await;
    let to_a = b.find(good).await;
    let received = b.message().await;
    assert_eq!((received.data.as_slice(), received.session_id.as_slice()), (&b"good day"[..], &SESSION[..]));
    assert_eq!(received.sii_handle, Some(to_a));
    assert!(received.first_or_last_hop && received.return_routable && !received.unchecked_route);
    assert!(received.interface.is_some_and(|interface| !interface.name.is_empty()));
    assert!(received.gist_hops > 0);

    // Back, against the flow.
    let mri = flow(&hosts, Direction::Upstream);
    b.request(Request::SendMessage(v1::SendMessage { mri, ..message(&hosts, 2, b"and back") })).await;
    assert!(matches!(b.message_status(2).await, Fate::Sent(_)));
    let answer = a.message().await;
    assert_eq!(answer.mri.map(|mri| mri.direction()), Some(Direction::Upstream));

    // To a peer by its name; over an association; with attributes that are not available.
    let by_name = v1::SendMessage { sii_handle: Some(to_b), ..message(&hosts, 3, b"by name.") };
    a.request(Request::SendMessage(by_name)).await;
    assert!(b.message().await.unchecked_route);
    let attributes = Some(v1::TransferAttributes { reliable: true, ..Default::default() });
    a.request(Request::SendMessage(v1::SendMessage { attributes, ..message(&hosts, 4, b"for sure") })).await;
    // The refresh that asks for the association is a Query as the first was.
    let check_id = b.message().await.check_id.expect("the application is asked again");
    b.request(Request::PeeringDecision(v1::PeeringDecision { check_id, peer: true, data: None })).await;
    let Fate::Sent(attributes) = a.message_status(4).await else { panic!("it was not sent") };
    assert!(attributes.reliable);
    let received = b.message().await;
    assert!(received.attributes.unwrap().reliable);
    assert_eq!(received.data, b"for sure");
    let attributes = Some(v1::TransferAttributes { secure: true, ..Default::default() });
    a.request(Request::SendMessage(v1::SendMessage { attributes, ..message(&hosts, 5, b"in vain.") })).await;
    let Fate::Failed(failure) = a.message_status(5).await else { panic!("nothing protects it") };
    assert_eq!(failure.error(), SendError::Refused);
    assert!(failure.reason.contains("[gist.associations]"), "{}", failure.reason);

    // B.6: the next Query carries the payload.
    a.request(Request::InvalidateRoutingState(v1::InvalidateRoutingState {
        mri: flow(&hosts, Direction::Downstream),
        data: b"still me".to_vec(),
        urgent: true,
        ..Default::default()
    }))
    .await;
    assert_eq!(b.message().await.data, b"still me");

    // B.5: no further interest.
    a.request(Request::SetStateLifetime(v1::SetStateLifetime {
        mri: flow(&hosts, Direction::Downstream),
        session_id: SESSION.to_vec(),
        lifetime_us: 0,
    }))
    .await;
    hosts[0].eventually("the state is gone", async || hosts[0].status().await.sessions == 0).await;

    drop((a, b));
    hosts[1]
        .eventually("the application has left", async || hosts[1].status().await.nslp_ids == [32_704])
        .await;
    replays(&mut hosts[1]);
}

/// The recording of the daemon, replayed, gives the application the same events.
fn replays(host: &mut Host) {
    host.stop();
    let recording = BufReader::new(File::open(host.directory.join("recording")).unwrap());
    let mut recording = Reader::<_, Command>::new(recording).unwrap();
    let config = serde_json::from_value(recording.config().clone()).unwrap();
    let mut node = Node::new(config, recording.seed()).unwrap();
    let mut events = Vec::new();
    let done = replay::<_, _, ()>(&mut recording, &mut node, |_, output| {
        if let signalbox_core::node::Output::Event(Event::Gist { event, .. }) = output {
            events.push(event);
        }
        Ok(())
    });
    assert!(done.unwrap().fault.is_none());
    assert_eq!(events.first(), Some(&ApplicationEvent::Registered));
    let all = format!("{events:?}");
    for data in ["good day", "for sure", "still me"] {
        let octets: String = data.bytes().map(|octet| format!("{octet:02x}")).collect();
        assert!(all.contains(&octets), "{data} is missing in {all}");
    }
    assert_eq!(node.applications().count(), 0, "it left");
}

#[tokio::test]
async fn misuse_is_refused_with_what_to_do() {
    let hosts = pair("misuse").await;
    let mut app = hosts[0].application(NSLP, PeeringPolicy::Always).await.unwrap();
    for (number, code, text) in [
        (NSLP, Code::AlreadyExists, "in use on this node"),
        (32_704, Code::AlreadyExists, "in use on this node"),
        (0, Code::InvalidArgument, "32704 to 32767"),
        (40_000, Code::InvalidArgument, "reserved"),
        (70_000, Code::InvalidArgument, "0 to 65535"),
    ] {
        let status = hosts[0].application(number, PeeringPolicy::Always).await.err().expect("refused");
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(text), "{status}");
    }
    let twice = v1::Register { nslp_id: 32_711, ..Default::default() };
    app.request(Request::Register(twice)).await;
    app.request(Request::SendMessage(v1::SendMessage { data: vec![0; 3], ..message(&hosts, 8, b"") })).await;
    app.request(Request::SendMessage(v1::SendMessage { mri: None, ..message(&hosts, 9, b"") })).await;
    for (request, handle, text) in
        [(1, None, "comes once"), (2, Some(8), "pad it"), (3, Some(9), "mri: missing")]
    {
        let Indication::RequestRefused(refused) = app.indication().await else { panic!("a refusal") };
        assert_eq!((refused.request, refused.handle), (request, handle));
        assert!(refused.reason.contains(text), "{}", refused.reason);
    }
    // Upstream there is no state yet; and the call still stands.
    let mri = flow(&hosts, Direction::Upstream);
    app.request(Request::SendMessage(v1::SendMessage { mri, ..message(&hosts, 10, b"") })).await;
    let Fate::Failed(failure) = app.message_status(10).await else { panic!("it was sent") };
    assert_eq!(failure.error(), SendError::FlowEndsHere);
    let large = message(&hosts, 11, &[0; 20_000]);
    app.request(Request::SendMessage(large)).await;
    let Fate::Failed(failure) = app.message_status(11).await else { panic!("it was sent") };
    assert_eq!((failure.error(), failure.max_octets), (SendError::TooLarge, Some(16_380)));
}

/// The connection of an application breaks, as when its process ends: its number is free, its state gone, and its
/// peer gets an error. Another application can take the number.
#[tokio::test]
async fn an_application_that_dies_leaves_nothing() {
    let hosts = pair("death").await;
    let mut a = hosts[0].application(NSLP, PeeringPolicy::Always).await.unwrap();
    let mut b = hosts[1].application(NSLP, PeeringPolicy::Always).await.unwrap();
    a.request(Request::SendMessage(message(&hosts, 1, b"good day"))).await;
    assert_eq!(b.message().await.data, b"good day");
    assert_eq!(hosts[1].status().await.sessions, 1);
    drop(b);
    hosts[1].eventually("its place is free", async || hosts[1].status().await.nslp_ids == [32_704]).await;
    assert_eq!(hosts[1].status().await.sessions, 0);
    assert_eq!(hosts[1].counter("signalbox_application_events", Some("left")).await, 1);
    // A session of its own: the far end reports that it lacks the application.
    let session_id = vec![1; 16];
    a.request(Request::SendMessage(v1::SendMessage { session_id, ..message(&hosts, 2, b"anybody?") })).await;
    let Fate::Failed(failure) = a.message_status(2).await else { panic!("it was sent") };
    assert_eq!(failure.error(), SendError::NoNextNode);

    let mut b = hosts[1].application(NSLP, PeeringPolicy::Always).await.unwrap();
    let session_id = vec![2; 16];
    a.request(Request::SendMessage(v1::SendMessage { session_id, ..message(&hosts, 3, b"at last!") })).await;
    assert_eq!(b.message().await.data, b"at last!");
}
