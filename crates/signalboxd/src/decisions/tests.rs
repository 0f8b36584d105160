use std::path::PathBuf;

use signalbox_core::ReserverId;
use signalbox_core::node::Prefix;
use signalbox_core::traffic::FlowFilter;
use signalbox_node::resources::decision::{By, End, Extent, Outcome, Subject, Why};
use signalbox_node::resources::request::Requester;

use super::*;

/// The reservation that this key identifies ended.
pub(crate) fn ended(key: u64) -> Decision {
    let host = |text: &str| Prefix::host(text.parse().unwrap());
    Decision {
        at: Time::from_secs(2),
        outcome: Outcome::Ended,
        subject: Subject::Reservation,
        by: By::Reserver(ReserverId::RSVP),
        grant: Some(signalbox_node::resources::GrantId(key)),
        session: None,
        requester: Arc::new(Requester::at("10.0.0.9".parse().unwrap())),
        speaks: false,
        interface: Some("eth1".into()),
        flows: vec![FlowFilter::between(host("10.0.0.1"), host("10.0.9.1"))],
        extent: Extent { rate: Some(625_000), ..Extent::default() },
        rule: None,
        why: Why::End(End::Expired),
        lasted: Some(Duration::from_secs(90)),
    }
}

fn entry(key: u64, time_unix_us: u64) -> Entry {
    Entry { time_unix_us, request_id: None, decision: Arc::new(ended(key)) }
}

fn directory(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("signalbox-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

fn user() -> signalbox_linux::confine::User {
    signalbox_linux::confine::User::find(&nix::unistd::Uid::effective().to_string()).unwrap()
}

#[test]
fn decisions_are_kept_and_written_and_the_file_is_opened_again() {
    let directory = directory("audit");
    let (path, moved) = (directory.join("audit.jsonl"), directory.join("audit.jsonl.1"));
    let history = DecisionHistory::default();
    let (queue, orders) = mpsc::sync_channel(8);
    let mut file = Some(AuditFile::open(&path, &user()).unwrap());
    let mut run_with = |key| {
        queue.send(Order::Decision(entry(key, 1_000_000 * key))).unwrap();
        let (done, _written) = mpsc::channel();
        queue.send(Order::Stop(done)).unwrap();
        run(&orders, &history, &mut file, || {});
    };
    run_with(1);
    std::fs::rename(&path, &moved).unwrap();
    run_with(2);
    history.reopen();
    run_with(3);
    let ids = |path: &PathBuf| -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.map(|line| line["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!((ids(&moved), ids(&path)), (vec!["1".to_owned(), "2".to_owned()], vec!["3".to_owned()]));
    let rows = history.list(|row| row.time_unix_us > 1_000_000);
    assert_eq!(rows.iter().filter_map(|row| row.id.as_deref()).collect::<Vec<_>>(), ["2", "3"]);
    assert_eq!(rows[0].reason.as_deref(), Some("not refreshed in time"));
    std::fs::remove_dir_all(directory).unwrap();
}

/// A thread that does not take what waits, as with a disk that does not answer, holds up neither the event loop nor, beyond a second, the
/// end of the daemon. What is left out is counted.
#[test]
fn a_stop_waits_for_a_second_at_most() {
    let (queue, orders) = mpsc::sync_channel(2);
    let decisions = Decisions { queue, history: DecisionHistory::default() };
    let (begin, before) = (Instant::now(), lost());
    let mut last = Last { decisions: &decisions, until: begin + PAUSE * 20, left_out: 0 };
    (0..5).for_each(|key| last.give(None, ended(key), Time::from_secs(2), 1_000_000));
    assert_eq!(last.left_out(), 3);
    assert!(begin.elapsed() >= PAUSE * 20, "it waits for room");
    assert!(lost() - before >= 3);
    // Room that comes in time is used.
    let mut last =
        Last { decisions: &decisions, until: Instant::now() + Duration::from_secs(600), left_out: 0 };
    let taker = thread::spawn(move || orders.iter().take(4).count());
    (5..7).for_each(|key| last.give(None, ended(key), Time::from_secs(2), 1_000_000));
    assert_eq!(taker.join().unwrap(), 4);
    assert_eq!(last.left_out(), 0);
}

/// Decisions that come together wake the thread once, and all of them are written before it stops.
#[test]
fn decisions_that_come_together_are_taken_together() {
    let history = DecisionHistory::default();
    let (queue, orders) = mpsc::sync_channel(64);
    let give = |key| queue.send(Order::Decision(entry(key, key))).unwrap();
    give(0);
    let mut gathered = 0;
    run(&orders, &history, &mut None, || {
        gathered += 1;
        (1..50).for_each(give);
        queue.send(Order::Stop(mpsc::channel().0)).unwrap();
    });
    assert_eq!((gathered, history.list(|_| true).len()), (1, 50));
}

/// A client that asks after a decision sees it, although the thread may still gather.
#[tokio::test]
async fn a_client_sees_what_was_decided_before() {
    let history = DecisionHistory::default();
    let decisions = Decisions::start(history.clone(), None).unwrap();
    for key in 0..20 {
        decisions.give(None, ended(key), Time::from_secs(2), 1_000_000);
        history.catch_up().await;
        assert_eq!(history.list(|_| true).len() as u64, key + 1);
    }
}

/// The thread of decisions does not wait for the text that a client gets.
#[test]
fn decisions_are_kept_while_a_client_gets_a_list() {
    let history = DecisionHistory::default();
    history.keep(entry(1, 1));
    let rows = history.list(|_| {
        assert!(history.0.last.try_lock().is_ok(), "the list is locked");
        history.keep(entry(2, 2));
        true
    });
    assert_eq!((rows.len(), history.list(|_| true).len()), (1, 2));
}

/// What was decided is written when the event loop ends, however it ends.
#[test]
fn the_end_of_the_loop_waits_for_what_was_decided() {
    let history = DecisionHistory::default();
    let decisions = Decisions::start(history.clone(), None).unwrap();
    let ends = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        (0..500).for_each(|key| decisions.give(None, ended(key), Time::from_secs(2), 1_000_000));
        std::panic::resume_unwind(Box::new("a fault of the loop"));
    }));
    assert!(ends.is_err());
    assert_eq!(history.list(|_| true).len(), 500);
}

/// The names of the fields of the lines that are logged.
#[derive(Default, Clone)]
struct Fields(Arc<Mutex<std::collections::BTreeSet<&'static str>>>);

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Fields {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        struct Names<'a>(&'a mut std::collections::BTreeSet<&'static str>);
        impl tracing::field::Visit for Names<'_> {
            fn record_debug(&mut self, field: &tracing::field::Field, _: &dyn core::fmt::Debug) {
                self.0.insert(field.name());
            }
        }
        event.record(&mut Names(&mut self.0.lock().unwrap()));
    }
}

/// What the audit file has, the log has too: a field that is new in one of them is not forgotten in the other.
#[test]
fn the_line_has_each_field_of_the_file() {
    use tracing_subscriber::layer::SubscriberExt as _;

    let row = v1::Decision {
        time_unix_us: 1,
        outcome: v1::Outcome::Refused.into(),
        subject: v1::Subject::Reservation.into(),
        protocol: v1::Protocol::Rsvp.into(),
        id: Some("1f".into()),
        session_id: Some(vec![7; 16]),
        request_id: Some(vec![8; 16]),
        neighbor: Some("10.0.1.1".into()),
        proof: Some("link".into()),
        identity: Some("dns:a.example".into()),
        claimed: Some("10.0.0.9".into()),
        requester: Some("10.0.1.1".into()),
        flows: vec![v1::FlowSpec::default()],
        interface: Some("eth1".into()),
        rate_octets_per_s: Some(1),
        service: Some(v1::Service { service: Some(v1::service::Service::Dscp(46)) }),
        opening: Some("inward".into()),
        lifetime_us: Some(1),
        rule: Some("rule 1".into()),
        reason: Some("denied".into()),
        refused_by: Some("10.0.2.1".into()),
        available_octets_per_s: Some(1),
        lasted_us: Some(1),
    };
    let fields = Fields::default();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(fields.clone()), || {
        line::log(&row)
    });
    let file = signalbox_json::value(&row).unwrap();
    let logged = fields.0.lock().unwrap();
    // The time is that of the line, and its text has what happened to what.
    for key in file.as_object().unwrap().keys() {
        let name = match key.as_str() {
            "time_unix_us" | "outcome" | "subject" => "message",
            "session_id" => "session",
            "flows" => "flow",
            other => other.trim_end_matches("_octets_per_s").trim_end_matches("_us"),
        };
        assert!(logged.contains(name), "the log has no {key}: {logged:?}");
    }
}

#[test]
fn only_the_last_thousand_are_kept() {
    let history = DecisionHistory::default();
    for key in 0..1500 {
        history.keep(entry(key, key));
    }
    let rows = history.list(|_| true);
    assert_eq!((rows.len(), rows[0].time_unix_us), (1000, 500));
}

/// A pipe of another user would hold up the thread, and any user could write to a file of mode 666.
#[test]
fn only_a_regular_file_of_few_is_an_audit_file() {
    use std::os::unix::fs::PermissionsExt;

    let directory = directory("audit-kinds");
    let (pipe, open, link) = (directory.join("pipe"), directory.join("open"), directory.join("link"));
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    std::fs::write(&open, "").unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o666)).unwrap();
    std::os::unix::fs::symlink(&open, &link).unwrap();
    for path in [&pipe, &open, &link] {
        assert!(AuditFile::open(path, &user()).is_err(), "{}", path.display());
    }
    std::fs::remove_dir_all(directory).unwrap();
}
