//! Routing methods other than "along the flow, downstream first": what applications ask for, what the wire shows.

use std::net::Ipv4Addr;
use std::time::Duration;

use signalbox_api::gist::v1;
use signalbox_api::gist::v1::application_request::Request;
use signalbox_api::gist::v1::message_status::Status as Fate;
use signalbox_api::gist::v1::{PeeringPolicy, RoutingMethod, SendError};
use signalbox_api::v1::{Direction, FlowSpec};
use signalbox_linux::capture::Capture;

use crate::net::{App, Host, NSLP, row};

/// A GIST Query in a captured packet.
#[derive(Debug, PartialEq, Eq)]
struct Query {
    outgoing: bool,
    src: Ipv4Addr,
    dst: Ipv4Addr,
    ttl: u8,
    router_alert: bool,
    /// Message routing method: 0 is path-coupled, 1 loose-end.
    method: u8,
    source_is_signaling: bool,
}

/// The Query in an Ethernet frame, read octet by octet as RFC 5971 A.1 to A.3 and RFC 2113 draw them.
fn query(outgoing: bool, frame: &[u8]) -> Option<Query> {
    let ip = frame.get(14..).filter(|_| frame.get(12..14) == Some(&[8, 0]))?;
    let head = usize::from(ip.first()? & 0xf) * 4;
    let address = |at: usize| ip.get(at..at + 4)?.first_chunk::<4>().copied().map(Ipv4Addr::from);
    let udp = ip.get(head..).filter(|_| ip.get(9) == Some(&17))?;
    let gist = udp.get(8..)?.strip_prefix(&[0x4e, 0x04, 0xbd, 0xa5])?;
    let (kind, flags) = (gist.get(6)?, gist.get(7)?);
    (udp.get(2..4)? == 270_u16.to_be_bytes() && kind & 0x7f == 0).then_some(Query {
        outgoing,
        src: address(12)?,
        dst: address(16)?,
        ttl: *ip.get(8)?,
        router_alert: ip.get(20..24) == Some(&[0x94, 4, 0, 0]),
        method: *gist.get(8 + 4)?,
        source_is_signaling: flags & 0x80 != 0,
    })
}

/// The Queries that passed so far.
fn queries(capture: &mut Capture) -> Vec<Query> {
    let mut seen = Vec::new();
    capture.read(Duration::ZERO, |frame| seen.extend(query(frame.outgoing, frame.octets))).unwrap();
    seen
}

fn towards(method: RoutingMethod, flow: &FlowSpec, direction: Direction) -> Option<v1::Mri> {
    Some(v1::Mri { method: method.into(), direction: direction.into(), flow: Some(flow.clone()) })
}

async fn send(app: &App, session: u8, mri: Option<v1::Mri>, data: &[u8]) {
    let message = v1::SendMessage {
        data: data.to_vec(),
        handle: Some(session.into()),
        session_id: vec![session; 16],
        mri,
        ..Default::default()
    };
    app.request(Request::SendMessage(message)).await;
}

async fn application(host: &Host, policy: PeeringPolicy) -> App {
    host.application(NSLP, policy).await.unwrap()
}

/// The loose-end method (RFC 5971 §5.8.2): an application asks towards an address beyond the edge of the network, as for a
/// hole in a firewall; the node at the edge, which has the application, intercepts the Query, and it goes
/// no further. Messages go both ways then.
#[tokio::test]
async fn the_edge_is_found_by_an_address_beyond_it() {
    let hosts = row("edge", "").await;
    let mut inside = application(&hosts[0], PeeringPolicy::Never).await;
    let mut edge = application(&hosts[1], PeeringPolicy::Always).await;
    let (mut left, mut right) = (hosts[1].capture("left"), hosts[1].capture("right"));
    let (source, beyond) = (hosts[0].address.to_string(), Ipv4Addr::new(192, 0, 2, 1));
    let flow = FlowSpec { source: Some(source), destination: Some(beyond.to_string()), ..Default::default() };
    let towards = |direction| towards(RoutingMethod::LooseEnd, &flow, direction);
    send(&inside, 1, towards(Direction::Downstream), b"one message.").await;
    let received = edge.message().await;
    assert_eq!(received.data, b"one message.");
    assert_eq!(received.mri, towards(Direction::Downstream));
    assert!(!received.at_flow_end && received.sii_handle.is_some() && received.return_routable);
    send(&edge, 1, towards(Direction::Upstream), b"you are.").await;
    assert_eq!(inside.message().await.data, b"you are.");

    let asked = queries(&mut left);
    let first = asked.first().expect("a Query passed");
    let src = Ipv4Addr::new(10, 77, 0, 1);
    assert_eq!(
        (first.src, first.dst, first.router_alert, first.method, first.outgoing),
        (src, beyond, true, 1, false)
    );
    assert_eq!(queries(&mut right), []);
}

/// Queries upstream (RFC 5971 §5.8.1.3): the flow's destination asks towards its source, hop by hop, each Query with TTL
/// 255 from its sender's own address. A router that lacks the application lets it pass with one hop less, which its
/// receiver still takes; one that has it is the next peer. Where they are not configured, there is no way upstream.
#[tokio::test]
async fn queries_go_against_the_flow() {
    let hosts = row("against", "gist.upstream_queries = true\n").await;
    let [a, r, b] = &hosts;
    let ends = FlowSpec {
        source: Some(a.address.to_string()),
        destination: Some(b.address.to_string()),
        ..Default::default()
    };
    let (up, down) = (Direction::Upstream, Direction::Downstream);
    let flow = |direction| towards(RoutingMethod::PathCoupled, &ends, direction);
    let (mut left, mut right) = (r.capture("left"), r.capture("right"));
    let [at_a, at_r, at_b] = [[10, 77, 0, 1], [10, 77, 0, 2], [10, 78, 0, 2]].map(Ipv4Addr::from);

    let mut first = application(a, PeeringPolicy::Always).await;
    let mut last = application(b, PeeringPolicy::Always).await;
    send(&last, 1, flow(up), b"past it.").await;
    let received = first.message().await;
    assert!(received.at_flow_end && received.data == b"past it.");
    // Among what passed since, in case one of them had to be sent again.
    let asked = |capture: &mut Capture, expected: (bool, Ipv4Addr, Ipv4Addr, u8)| {
        let all = queries(capture);
        assert!(all.iter().all(|q| q.method == 0 && q.router_alert && q.source_is_signaling), "{all:?}");
        assert!(all.iter().any(|q| (q.outgoing, q.src, q.dst, q.ttl) == expected), "{all:?}");
    };
    asked(&mut right, (false, at_b, at_a, 255));
    asked(&mut left, (true, at_b, at_a, 254));

    let mut between = application(r, PeeringPolicy::Always).await;
    send(&last, 2, flow(up), b"to whom?").await;
    let received = between.message().await;
    assert!(!received.at_flow_end);
    assert_eq!(
        (received.data.as_slice(), received.mri.map(|mri| mri.direction())),
        (&b"to whom?"[..], Some(up))
    );
    send(&between, 2, flow(up), b"to whom?").await;
    assert!(first.message().await.at_flow_end);
    asked(&mut right, (false, at_b, at_a, 255));
    asked(&mut left, (true, at_r, at_a, 255));
    // The answers come down the same way.
    send(&first, 2, flow(down), b"to me...").await;
    assert_eq!(between.message().await.data, b"to me...");
    send(&between, 2, flow(down), b"to him..").await;
    let received = last.message().await;
    assert!(received.at_flow_end && received.data == b"to him..");
}

/// Where Queries upstream are not configured there is no way against the flow without state.
#[tokio::test]
async fn without_leave_no_query_goes_upstream() {
    let hosts = row("leave", "").await;
    let mut last = application(&hosts[2], PeeringPolicy::Always).await;
    let ends = FlowSpec {
        source: Some(hosts[0].address.to_string()),
        destination: Some(hosts[2].address.to_string()),
        ..Default::default()
    };
    let mri = towards(RoutingMethod::PathCoupled, &ends, Direction::Upstream);
    send(&last, 1, mri, b"in vain.").await;
    let Fate::Failed(failure) = last.message_status(1).await else { panic!("it was sent") };
    assert_eq!(failure.error(), SendError::NoStateUpstream);
}
