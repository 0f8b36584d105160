//! Standing requests, with the event loop played by the test.

use std::path::Path;
use std::time::Duration;

use signalbox_node::qos::{Command as QosCommand, QosEvent, Refusal};
use signalbox_node::{Command, natfw};
use v1::StandingState as State;

use super::*;
use crate::api::reservations::tests::{failure, granted, qos, started};
use crate::clients::Delivery;
use crate::rig::{ALL, OpenClient, Rig};

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(60);

fn video(rate: &str, more: &str) -> String {
    format!(
        "[[reserve]]\nname = \"video\"\ndestination = \"192.0.2.9\"\nprotocol = \"udp\"\n\
         destination_port = 5004\nrate = \"{rate}\"\n{more}"
    )
}

fn apply(rig: &Rig, requests: &str) {
    let loaded = signalbox_config::parse(Path::new("node.toml"), &format!("{ALL}{requests}"));
    let config = loaded.config.unwrap_or_else(|| panic!("{:?}", loaded.findings));
    rig.api.standing.apply(&rig.api, &config.standing);
}

/// The only row, once it is so.
async fn row(rig: &Rig, what: &str, holds: impl Fn(&v1::StandingRequest) -> bool) -> v1::StandingRequest {
    let wait = async {
        loop {
            let mut rows = rig.api.standing.list();
            assert_eq!(rows.len(), 1, "{what}: {rows:?}");
            if let Some(row) = rows.pop().filter(&holds) {
                return row;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.unwrap_or_else(|_| panic!("{what}: {:?}", rig.api.standing.list()))
}

/// The rate that a client of QoS asks for.
fn rate(command: &Command) -> u64 {
    let Command::Qos { command: QosCommand::Reserve(request), .. } = command else { panic!("{command:?}") };
    request.qos.rate
}

/// Lets the request begin, and grants it.
async fn stands(rig: &mut Rig, octets: u64) -> OpenClient {
    let mut open = rig.open().await;
    assert_eq!(rate(&open.command), octets);
    qos(&mut open, started());
    open.done();
    assert_eq!(qos(&mut open, granted(octets)), Delivery::Queued);
    row(rig, "granted", |row| row.state() == State::Granted).await;
    open
}

#[tokio::test]
async fn a_request_stands_from_the_start_until_it_is_removed() {
    let mut rig = Rig::new(ALL).await;
    apply(&rig, &video("5mbit", ""));
    let open = stands(&mut rig, 625_000).await;
    let shown = row(&rig, "granted", |_| true).await;
    assert_eq!((shown.name.as_str(), shown.kind()), ("video", v1::StandingKind::Reserve));
    assert_eq!((shown.protocol(), shown.rate_octets_per_s), (v1::Protocol::Qos, Some(625_000)));
    assert_eq!((shown.granted_octets_per_s, shown.last_refusal), (Some(625_000), None));
    assert_eq!(shown.session_id, Some(vec![5; 16]));
    let source = shown.flow.and_then(|flow| flow.source);
    assert_eq!(source.as_deref(), Some("192.0.2.1"), "the node has chosen it");

    // A reload whose keys are the same, in another order, does nothing.
    apply(&rig, &format!("[log]\nlevel = \"debug\"\n{}", video("5mbit", "")));
    tokio::task::yield_now().await;
    assert!(rig.requests.try_recv().is_err());

    apply(&rig, "");
    assert_eq!(rig.closed().await, open.id);
    assert_eq!(rig.api.standing.list(), []);
}

/// A changed rate is a change: nothing is released. What the path refuses leaves what stands, and is asked for again.
#[tokio::test]
async fn a_changed_rate_changes_what_stands() {
    let mut rig = Rig::new(ALL).await;
    apply(&rig, &video("5mbit", ""));
    let mut open = stands(&mut rig, 625_000).await;
    apply(&rig, &video("8mbit", ""));
    let (change, _) = rig.command().await;
    assert_eq!((rate(&change), change.id()), (1_000_000, Some(open.id)));
    let asked = row(&rig, "asked", |row| row.state() == State::Asking).await;
    assert_eq!((asked.rate_octets_per_s, asked.granted_octets_per_s), (Some(1_000_000), Some(625_000)));
    qos(&mut open, QosEvent::Failed(failure(4, 7)));
    // The engine asks for what stood before, and gets it.
    qos(&mut open, granted(625_000));
    let refused = row(&rig, "refused", |row| row.state() == State::ChangeRefused).await;
    assert_eq!(refused.granted_octets_per_s, Some(625_000), "what stood stands");
    assert_eq!(refused.last_refusal.map(|failure| failure.message).as_deref(), Some("meaning"));
    assert!(refused.next_attempt_unix_us > refused.last_refusal_unix_us);
    let (again, _) = rig.command().await;
    assert_eq!((rate(&again), again.id()), (1_000_000, Some(open.id)));
    qos(&mut open, granted(1_000_000));
    let granted = row(&rig, "granted", |row| row.state() == State::Granted).await;
    assert_eq!((granted.granted_octets_per_s, granted.attempts), (Some(1_000_000), 0));
    assert!(rig.requests.try_recv().is_err(), "the same client holds it");
}

/// Other keys make another request.
#[tokio::test]
async fn another_flow_is_another_request() {
    let mut rig = Rig::new(ALL).await;
    apply(&rig, &video("5mbit", ""));
    let first = stands(&mut rig, 625_000).await;
    apply(&rig, &video("5mbit", "source_port = 4000\n"));
    assert_eq!(rig.closed().await, first.id);
    let second = stands(&mut rig, 625_000).await;
    assert_ne!(first.id, second.id);
    // QoS cannot change a reservation in both directions, so that another one takes its place.
    apply(&rig, &video("5mbit", "bidirectional = true\n"));
    assert_eq!(rig.closed().await, second.id);
    let third = stands(&mut rig, 625_000).await;
    apply(&rig, &video("8mbit", "bidirectional = true\n"));
    assert_eq!(rig.closed().await, third.id);
    stands(&mut rig, 1_000_000).await;
}

/// What is refused at the start, or lost later, is asked for again.
#[tokio::test]
async fn what_is_refused_or_lost_is_asked_for_again() {
    let mut rig = Rig::new(ALL).await;
    apply(&rig, &video("5mbit", ""));
    let mut open = rig.open().await;
    qos(&mut open, started());
    open.done();
    qos(&mut open, QosEvent::Failed(failure(4, 7)));
    assert_eq!(rig.closed().await, open.id);
    let refused = row(&rig, "refused", |row| row.state() == State::Waiting).await;
    assert_eq!((refused.attempts, refused.granted_octets_per_s), (1, None));
    assert!(refused.next_attempt_unix_us.is_some());
    let mut open = stands(&mut rig, 625_000).await;
    qos(&mut open, QosEvent::Lost(failure(4, 7)));
    assert_eq!(rig.closed().await, open.id);
    let lost = row(&rig, "lost", |row| row.state() == State::Waiting).await;
    assert_eq!(lost.granted_octets_per_s, None);
    stands(&mut rig, 625_000).await;
}

/// What the node cannot ask for waits for another configuration.
#[tokio::test]
async fn what_is_wrong_waits_for_another_configuration() {
    let mut rig = Rig::new(ALL).await;
    apply(&rig, &video("5mbit", ""));
    let mut open = rig.open().await;
    qos(&mut open, QosEvent::Refused(Refusal::Stateless));
    open.done();
    assert_eq!(rig.closed().await, open.id);
    let wrong = row(&rig, "wrong", |row| row.state() == State::Wrong).await;
    assert_eq!(wrong.next_attempt_unix_us, None);
    apply(&rig, &video("6mbit", ""));
    stands(&mut rig, 750_000).await;
}

/// The daemon stops: the tasks end, and nothing is asked for again.
#[tokio::test]
async fn the_end_of_the_daemon_is_no_loss() {
    let mut rig = Rig::new(ALL).await;
    apply(&rig, &video("5mbit", ""));
    let open = stands(&mut rig, 625_000).await;
    let id = open.id;
    drop(open);
    assert_eq!(rig.closed().await, id);
    let shown = row(&rig, "as it was", |_| true).await;
    assert_eq!((shown.state(), shown.last_refusal), (State::Granted, None));
}

#[tokio::test]
async fn passages_are_asked_for_too() {
    let all = ALL.replace("\"casp\"]", "\"casp\", \"natfw\"]");
    let mut rig = Rig::new(&all).await;
    let requests = "[[pinhole]]\nname = \"out\"\ndestination = \"192.0.2.9\"\nprotocol = \"udp\"\nsource_port = 4000\n\
                    destination_port = 5004\n[[expose]]\nname = \"in\"\nprotocol = \"tcp\"\nport = 8080\n\
                    towards = \"198.51.100.1\"\n";
    let loaded = signalbox_config::parse(Path::new("node.toml"), &format!("{all}{requests}"));
    let config = loaded.config.unwrap_or_else(|| panic!("{:?}", loaded.findings));
    rig.api.standing.apply(&rig.api, &config.standing);
    let mut kinds = Vec::new();
    for _ in 0..2 {
        let open = rig.open().await;
        let Command::Natfw { command, .. } = &open.command else { panic!("{:?}", open.command) };
        kinds.push(matches!(command, natfw::Command::Open(_)));
    }
    kinds.sort_unstable();
    assert_eq!(kinds, [false, true]);
    let names: Vec<_> = rig.api.standing.list().into_iter().map(|row| row.name).collect();
    assert_eq!(names, ["out", "in"]);
}
