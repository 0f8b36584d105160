//! What runs, and the interfaces.

use signalbox_api::gist::v1::gist_client::GistClient;
use signalbox_api::ping::v1::ping_client::PingClient;
use signalbox_api::qos::v1::qos_client::QosClient;
use signalbox_api::rsvp::v1::rsvp_client::RsvpClient;
use signalbox_api::v1;
use signalbox_api::v1::node_client::NodeClient;
use signalbox_api::{gist, ping, qos, rsvp};
use tonic::Code;

use crate::requests::LoopRequest;
use crate::rig::{ALL, Rig, reason};

#[tokio::test]
async fn a_node_names_its_protocols() {
    let mut rig = Rig::new(ALL).await;
    let mut client = NodeClient::new(rig.channel.clone());
    let call = tokio::spawn(async move { client.get_node(v1::GetNodeRequest {}).await });
    let Some(LoopRequest::Query(query)) = rig.requests.recv().await else { panic!("no query") };
    rig.run(query);
    let node = call.await.unwrap().unwrap().into_inner();
    assert_eq!((node.name.as_str(), node.pid), ("r7", std::process::id()));
    // The rig's node runs GIST and Ping, whatever the services are configured with.
    let protocols: Vec<_> =
        node.protocols.iter().map(|one| (one.protocol(), one.nslp_id, one.peers)).collect();
    let expected = [(v1::Protocol::Gist, None, Some(0)), (v1::Protocol::Ping, Some(32_704), None)];
    assert_eq!(protocols, expected);
    assert!(node.start_unix_us > 0);
}

#[tokio::test]
async fn without_the_protocol_the_remedy_is_named() {
    let rig = Rig::new("version = 1\nnode.protocols = []\n").await;
    let channel = || rig.channel.clone();
    let flow = v1::FlowSpec { destination: Some("192.0.2.9".into()), ..v1::FlowSpec::default() };
    let ping = ping::v1::PingRequest { flow: Some(flow), ..ping::v1::PingRequest::default() };
    let refused = [
        PingClient::new(channel()).ping(ping).await.map(drop),
        GistClient::new(channel()).list_peers(gist::v1::ListPeersRequest::default()).await.map(drop),
        QosClient::new(channel()).list_sessions(qos::v1::ListSessionsRequest::default()).await.map(drop),
        RsvpClient::new(channel()).list_neighbors(rsvp::v1::ListNeighborsRequest::default()).await.map(drop),
        NodeClient::new(channel()).list_interfaces(v1::ListInterfacesRequest::default()).await.map(drop),
    ];
    for refused in refused {
        let status = refused.unwrap_err();
        let found = (status.code(), reason(&status));
        assert_eq!(found, (Code::FailedPrecondition, "PROTOCOL_NOT_RUNNING".to_owned()));
        assert!(status.message().contains("add it to the configuration"), "{status}");
    }
}

#[tokio::test]
async fn calls_fail_at_once_when_the_loop_has_ended() {
    let rig = Rig::new(ALL).await;
    let mut client = NodeClient::new(rig.channel.clone());
    drop(rig.requests);
    let status = client.get_node(v1::GetNodeRequest {}).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "STOPPING"));
}
