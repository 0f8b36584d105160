//! What runs, and the interfaces.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use signalbox_api::boomerang::v1::boomerang_client::BoomerangClient;
use signalbox_api::gist::v1::gist_client::GistClient;
use signalbox_api::ping::v1::ping_client::PingClient;
use signalbox_api::qos::v1::qos_client::QosClient;
use signalbox_api::rsvp::v1::rsvp_client::RsvpClient;
use signalbox_api::v1;
use signalbox_api::v1::node_client::NodeClient;
use signalbox_api::v1::node_server::Node as _;
use signalbox_api::{boomerang, gist, ping, qos, rsvp};
use tokio::sync::{Semaphore, oneshot};
use tonic::{Code, Request};

use super::NodeService;
use crate::limits::CONFIG_REQUEST;
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
    assert_eq!(closed(checked), v1::CheckConfigResponse::default());
}

/// Without the warnings about what is open to strangers.
fn closed(mut checked: v1::CheckConfigResponse) -> v1::CheckConfigResponse {
    checked.problems = faults(checked.problems);
    checked
}

/// The problems without those warnings, and without those about this machine.
fn faults(mut problems: Vec<v1::ConfigProblem>) -> Vec<v1::ConfigProblem> {
    let of_machine = ["open to strangers", "not judged by", "rules of other programs"];
    problems.retain(|problem| !of_machine.iter().any(|about| problem.message.starts_with(about)));
    problems
}

#[tokio::test]
async fn changed_keys_need_a_restart() {
    let rig = Rig::new(ALL).await;
    let mut client = NodeClient::new(rig.channel.clone());
    let toml =
        format!("{ALL}[[policy.rules]]\nname = \"all\"\naction = \"deny\"\n[log]\nformat = \"json\"\n");
    let checked = client.check_config(v1::CheckConfigRequest { toml }).await.unwrap().into_inner();
    let checked = closed(checked);
    assert_eq!(checked.problems, []);
    assert!(checked.needs_restart.contains(&"log.format".to_owned()), "{checked:?}");
    assert!(checked.reloadable.contains(&"policy.rules[1].name".to_owned()), "{checked:?}");
    assert!(!checked.needs_restart.contains(&"node.name".to_owned()), "{checked:?}");
}

#[tokio::test]
async fn mistakes_of_a_configuration_have_their_places() {
    let rig = Rig::new(ALL).await;
    let mut client = NodeClient::new(rig.channel.clone());
    let toml = format!("{ALL}\n[log]\n  format = 5\n");
    let line = u32::try_from(toml.lines().count()).ok();
    let checked = client.check_config(v1::CheckConfigRequest { toml }).await.unwrap().into_inner();
    let checked = closed(checked);
    let [problem] = checked.problems.as_slice() else { panic!("{checked:?}") };
    assert_eq!((problem.severity(), problem.key.as_deref()), (v1::Severity::Error, Some("log.format")));
    assert_eq!((problem.line, problem.column, &problem.file), (line, Some(12), &None));
    assert_eq!(checked.needs_restart, [""; 0]);
}

/// A client chooses how long a check takes. It needs a thread of its own, which another task has here until the calls of others have
/// ended.
#[test]
fn a_check_of_many_mistakes_runs_beside_other_calls() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
    runtime.unwrap().block_on(async {
        let mut rig = Rig::new(ALL).await;
        let service = NodeService { api: rig.api.clone(), checks: Arc::new(Semaphore::new(1)) };
        let (begun, begins) = oneshot::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let other = tokio::task::spawn_blocking(move || {
            begun.send(()).unwrap();
            released.recv().unwrap();
        });
        begins.await.unwrap();

        let lines = (0..).map(|n| format!("unknown{n:06} = 1\n"));
        let toml: String = lines.take(CONFIG_REQUEST / "unknown000000 = 1\n".len()).collect();
        let mut check = std::pin::pin!(service.check_config(Request::new(v1::CheckConfigRequest { toml })));
        let early = tokio::select! {
            biased;
            _ = &mut check => true,
            () = std::future::ready(()) => false,
        };
        assert!(!early, "the check ran in the thread of all calls");
        for _ in 0..100 {
            let call = service.get_node(Request::new(v1::GetNodeRequest {}));
            let loop_turn = async {
                let Some(LoopRequest::Query(query)) = rig.requests.recv().await else { panic!("no query") };
                rig.run(query);
            };
            let (answer, ()) = tokio::join!(call, loop_turn);
            assert_eq!(answer.unwrap().into_inner().name, "r7");
        }
        release.send(()).unwrap();
        other.await.unwrap();
        let checked = check.await.unwrap().into_inner();
        assert_eq!(checked.problems.len(), 101, "the first hundred, and the number of the others");
    });
}

/// The rig's daemon whose configuration file has this text now.
async fn with_file(name: &str, text: &str) -> (Rig, NodeClient<tonic::transport::Channel>, PathBuf) {
    let path = std::env::temp_dir().join(format!("sbxd-reload-{}-{name}.toml", std::process::id()));
    std::fs::write(&path, text).unwrap();
    let rig = Rig::with_file(ALL, path.clone()).await;
    let client = NodeClient::new(rig.channel.clone());
    (rig, client, path)
}

#[tokio::test]
async fn a_reload_takes_the_rules_and_names_the_rest() {
    let text = format!("{ALL}[policy]\ndefault = \"allow\"\n[log]\nformat = \"json\"\n");
    let (mut rig, mut client, path) = with_file("taken", &text).await;
    let before = client.get_config(v1::GetConfigRequest {}).await.unwrap().into_inner().digest;
    let mut second = client.clone();
    let call = tokio::spawn(async move { second.reload_config(v1::ReloadConfigRequest {}).await });
    let Some(LoopRequest::Reload { config, answer, .. }) = rig.requests.recv().await else {
        panic!("nothing set")
    };
    assert_eq!(config.resources.default, signalbox_node::resources::config::Action::Allow);
    assert!(config.gist.is_none() && config.rsvp.is_none(), "no protocol has other settings");
    answer.send(3).unwrap();
    let reload = call.await.unwrap().unwrap().into_inner();
    assert_eq!(
        (reload.applied, reload.needs_restart),
        (vec!["policy.default".to_owned()], vec!["log.format".to_owned()])
    );
    assert_eq!(reload.reservations_ended, 3);
    let force = client.get_config(v1::GetConfigRequest {}).await.unwrap().into_inner();
    assert_eq!(force.digest, reload.config_digest);
    assert_ne!(force.digest, before);
    assert!(
        force.toml.contains("default = \"allow\"") && !force.toml.contains("format = \"json\""),
        "{}",
        force.toml
    );
    std::fs::remove_file(path).unwrap();
}

/// Keys and certificates go to the node when the files of the same names have another content.
#[tokio::test]
async fn a_reload_takes_new_keys_of_tls() {
    let text = format!(
        "{ALL}[gist.associations]\ntls_port = 271\n[gist.tls]\nkey_file = \"{0}.key\"\npeer_keys_file = \"{0}.peers\"\n",
        std::env::temp_dir().join(format!("sbxd-reload-{}-tls", std::process::id())).display()
    );
    let renew = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        let key = rcgen::KeyPair::generate().unwrap();
        let file = path.with_extension("key");
        std::fs::write(&file, key.serialize_pem()).unwrap();
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(path.with_extension("peers"), key.public_key_pem()).unwrap();
        key.serialize_pem()
    };
    let path = std::env::temp_dir().join(format!("sbxd-reload-{}-tls.toml", std::process::id()));
    renew(&path);
    std::fs::write(&path, text).unwrap();
    let mut rig = Rig::loaded(path.clone()).await;
    let mut client = NodeClient::new(rig.channel.clone());
    let reload = client.reload_config(v1::ReloadConfigRequest {}).await.unwrap().into_inner();
    assert_eq!((reload.applied, reload.needs_restart), (vec![], vec![]), "nothing has changed");
    let key = renew(&path);
    let mut second = client.clone();
    let call = tokio::spawn(async move { second.reload_config(v1::ReloadConfigRequest {}).await });
    let Some(LoopRequest::Reload { config, answer, .. }) = rig.requests.recv().await else {
        panic!("nothing set")
    };
    answer.send(0).unwrap();
    assert_eq!(call.await.unwrap().unwrap().into_inner().applied, ["gist.tls"]);
    let tls = config.gist.unwrap().channels.tls.unwrap();
    let signalbox_node::Credentials::RawKeys { key: taken, .. } = tls.credentials else { panic!("no key") };
    assert_eq!(taken, key);
    for extension in ["toml", "key", "peers"] {
        std::fs::remove_file(path.with_extension(extension)).unwrap();
    }
}

#[tokio::test]
async fn a_faulty_file_changes_nothing() {
    let (mut rig, mut client, path) =
        with_file("faulty", &format!("{ALL}[policy]\ndefault = \"perhaps\"\n")).await;
    let before = client.get_config(v1::GetConfigRequest {}).await.unwrap().into_inner();
    let reload = client.reload_config(v1::ReloadConfigRequest {}).await.unwrap().into_inner();
    let problems = faults(reload.problems.clone());
    let [problem] = problems.as_slice() else { panic!("{reload:?}") };
    assert_eq!((problem.severity(), problem.key.as_deref()), (v1::Severity::Error, Some("policy.default")));
    assert_eq!((reload.applied.len(), &reload.config_digest), (0, &before.digest));
    std::fs::remove_file(&path).unwrap();
    let error = client.reload_config(v1::ReloadConfigRequest {}).await.unwrap_err();
    assert_eq!((error.code(), reason(&error).as_str()), (Code::FailedPrecondition, "CONFIG_UNREADABLE"));
    assert_eq!(client.get_config(v1::GetConfigRequest {}).await.unwrap().into_inner(), before);
    assert!(rig.requests.try_recv().is_err(), "the event loop was asked for nothing");
}

/// The name of an interface is compared with those of the machine, as at the start.
#[tokio::test]
async fn a_reload_notices_a_misspelt_interface() {
    let text = format!("{ALL}[interfaces.no-such0]\ncapacity = \"10mbit\"\n");
    let (mut rig, mut client, path) = with_file("misspelt", &text).await;
    let reload = client.reload_config(v1::ReloadConfigRequest {}).await.unwrap().into_inner();
    let problems = faults(reload.problems);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].message.contains("no such interface"), "{problems:?}");
    assert!(rig.requests.try_recv().is_err(), "the event loop was asked for nothing");
    std::fs::remove_file(&path).unwrap();
}

/// A client of the socket must not read by the daemon what it may not read itself.
#[tokio::test]
async fn a_check_reads_no_files() {
    let rig = Rig::new(ALL).await;
    let mut client = NodeClient::new(rig.channel.clone());
    let toml = format!("include = [\"/etc/hosts\"]\n{ALL}");
    let checked = client.check_config(v1::CheckConfigRequest { toml }).await.unwrap().into_inner();
    let checked = closed(checked);
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
        BoomerangClient::new(channel())
            .list_flows(boomerang::v1::ListFlowsRequest::default())
            .await
            .map(drop),
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

/// Events reach a watcher in order: what stands, `synced`, then changes.
#[tokio::test]
async fn a_watcher_gets_the_state_and_then_changes() {
    use v1::watch_events_response::Event;
    let mut rig = Rig::new(ALL).await;
    let mut client = NodeClient::new(rig.channel.clone());
    let request = v1::WatchEventsRequest {
        protocols: vec![v1::Protocol::Qos.into()],
        kinds: vec![v1::WatchKind::Sessions.into()],
        initial_state: true,
    };
    let call = tokio::spawn(async move { client.watch_events(request).await });
    let Some(LoopRequest::Watch(changes)) = rig.requests.recv().await else { panic!("no watch") };
    let mut events = call.await.unwrap().unwrap().into_inner();
    // The interfaces, reservations, peers and associations that stand.
    for _ in 0..4 {
        let Some(LoopRequest::Query(query)) = rig.requests.recv().await else { panic!("no query") };
        rig.run(query);
    }
    assert!(matches!(events.message().await.unwrap().unwrap().event, Some(Event::Synced(_))));
    let opened = |protocol: v1::Protocol, lost| {
        let session = v1::SessionOpened { protocol: protocol.into(), session: "1".into(), nslp_id: None };
        v1::WatchEventsResponse { time_unix_us: 1, lost, event: Some(Event::SessionOpened(session)) }
    };
    // Another protocol's session is not wanted; what was lost before it counts all the same.
    changes.try_send(opened(v1::Protocol::Rsvp, 2)).unwrap();
    changes.try_send(opened(v1::Protocol::Qos, 1)).unwrap();
    let event = events.message().await.unwrap().unwrap();
    assert_eq!(event, opened(v1::Protocol::Qos, 3));
    // The daemon stops.
    drop(changes);
    assert_eq!(events.message().await.unwrap(), None);
}

#[tokio::test]
async fn a_watch_of_nothing_is_refused() {
    let rig = Rig::new(ALL).await;
    let request = v1::WatchEventsRequest { kinds: vec![0], ..Default::default() };
    let error = NodeClient::new(rig.channel.clone()).watch_events(request).await.unwrap_err();
    assert_eq!((error.code(), reason(&error).as_str()), (Code::InvalidArgument, "INVALID_FIELD"));
}
