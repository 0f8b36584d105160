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
    let config = NodeClient::new(rig.channel.clone()).get_config(v1::GetConfigRequest {}).await.unwrap();
    assert_eq!((node.config_digest.len(), node.config_digest), (64, config.into_inner().digest));
}

#[tokio::test]
async fn the_configuration_in_force_differs_in_nothing_from_itself() {
    let rig = Rig::new(ALL).await;
    let mut client = NodeClient::new(rig.channel.clone());
    let toml = client.get_config(v1::GetConfigRequest {}).await.unwrap().into_inner().toml;
    assert!(toml.contains("name = \"r7\""), "{toml}");
    let checked = client.check_config(v1::CheckConfigRequest { toml }).await.unwrap().into_inner();
    assert_eq!(checked, v1::CheckConfigResponse::default());
}

#[tokio::test]
async fn changed_keys_need_a_restart() {
    let rig = Rig::new(ALL).await;
    let mut client = NodeClient::new(rig.channel.clone());
    let toml =
        format!("{ALL}[[policy.rules]]\nname = \"all\"\naction = \"allow\"\n[log]\nformat = \"json\"\n");
    let checked = client.check_config(v1::CheckConfigRequest { toml }).await.unwrap().into_inner();
    assert_eq!(checked.problems, []);
    assert!(checked.needs_restart.contains(&"log.format".to_owned()), "{checked:?}");
    assert!(checked.needs_restart.contains(&"policy.rules[1].name".to_owned()), "{checked:?}");
    assert!(!checked.needs_restart.contains(&"node.name".to_owned()), "{checked:?}");
}

#[tokio::test]
async fn mistakes_of_a_configuration_have_their_places() {
    let rig = Rig::new(ALL).await;
    let mut client = NodeClient::new(rig.channel.clone());
    let toml = format!("{ALL}\n[log]\n  format = 5\n");
    let checked = client.check_config(v1::CheckConfigRequest { toml }).await.unwrap().into_inner();
    let [problem] = checked.problems.as_slice() else { panic!("{checked:?}") };
    assert_eq!((problem.severity(), problem.key.as_deref()), (v1::Severity::Error, Some("log.format")));
    assert_eq!((problem.line, problem.column, &problem.file), (Some(7), Some(12), &None));
    assert_eq!(checked.needs_restart, [""; 0]);
}

/// A client of the socket must not read by the daemon what it may not read itself.
#[tokio::test]
async fn a_check_reads_no_files() {
    let rig = Rig::new(ALL).await;
    let mut client = NodeClient::new(rig.channel.clone());
    let toml = format!("include = [\"/etc/hosts\"]\n{ALL}");
    let checked = client.check_config(v1::CheckConfigRequest { toml }).await.unwrap().into_inner();
    let [problem] = checked.problems.as_slice() else { panic!("{checked:?}") };
    assert_eq!((problem.severity(), problem.key.as_deref()), (v1::Severity::Warning, Some("include")));
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
