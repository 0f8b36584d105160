//! `signalbox reserve`, `query` and `show` with real daemons: their output, and how they end.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use super::{assert_gone, programs, signalbox, stderr, stdout};

/// A host, a router with a link of 10mbit behind it, and a host, with daemons.
pub(super) struct Standing {
    name: &'static str,
    path: PathBuf,
}

impl Standing {
    pub(super) fn up(name: &'static str) -> Self {
        let path = std::env::temp_dir().join(format!("signalbox-{}-{name}.toml", std::process::id()));
        let text = format!(
            r#"version = 2
name = "{name}"
description = "two hosts and a router"
topology = {{ chain = ["h1", "r1", "h2"], all_nodes = {{ protocols = ["gist", "ping", "qos"] }}, all_links = {{ rate = "100mbit" }} }}
links.r1-h2.rate = "10mbit"
config.policy.report_rule = true
config.policy.trusted = ["local", "10.0.0.0/8"]
nodes.r1.config.policy.trusted = ["local", "10.0.1.0/24"]
nodes.r1.config.policy.rules = [
    {{ name = "guests", action = "deny", ip_protocol = ["udp"], ports = ["7000-7999"] }}
]
"#
        );
        std::fs::write(&path, text).expect("the directory is writable");
        let up = signalbox(&["lab", "up", path.to_str().expect("made of ASCII")]);
        assert!(up.status.success(), "{}", stderr(&up));
        Self { name, path }
    }

    /// The output words of `signalbox` at a node.
    pub(super) fn words(&self, node: &str, line: &str) -> Vec<String> {
        let program = programs().join("signalbox").display().to_string();
        let words = ["lab".to_owned(), "exec".to_owned(), format!("{}/{node}", self.name), "--".to_owned()];
        let line = line.split_whitespace().map(str::to_owned);
        words.into_iter().chain([program]).chain(line).collect()
    }

    pub(super) fn run(&self, node: &str, line: &str) -> Output {
        let words = self.words(node, line);
        signalbox(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The rows of `show`.
    fn show(&self, node: &str, what: &str) -> Vec<Value> {
        let shown = self.run(node, &format!("show {what} --json"));
        assert!(shown.status.success(), "{}", stderr(&shown));
        stdout(&shown).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Number of sessions with a reservation at a node.
    fn held(&self, node: &str) -> usize {
        self.show(node, "qos sessions").iter().filter(|row| !row["held"].is_null()).count()
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        signalbox(&["lab", "down", self.name]);
        // A file that is left in the temporary directory does no harm.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Reads lines up to one that contains this text.
pub(super) fn until(lines: &mut impl Iterator<Item = std::io::Result<String>>, text: &str) -> Vec<String> {
    let mut seen = Vec::new();
    for line in lines {
        seen.push(line.expect("text"));
        if seen.last().is_some_and(|line| line.contains(text)) {
            return seen;
        }
    }
    panic!("no line with {text:?} in {seen:?}");
}

/// The `signalbox reserve` that a `lab exec` started: the process below it.
pub(super) fn interrupt(exec: &Child) {
    // It is a child of the thread that entered the namespace.
    let threads = std::fs::read_dir(format!("/proc/{}/task", exec.id())).expect("it runs");
    let children = threads.flatten().filter_map(|t| std::fs::read_to_string(t.path().join("children")).ok());
    let child = children.map(|of| of.trim().to_owned()).find(|of| !of.is_empty()).expect("it has a child");
    let status = Command::new("kill").args(["-INT", &child]).status().expect("kill is there");
    assert!(status.success(), "{child:?}");
}

#[test]
fn a_reservation_is_held_until_ctrl_c_and_shown_meanwhile() {
    let lab = Standing::up("t-hold");
    let words = lab.words("h1", "reserve 10.0.2.2 --rate 2mbit --proto udp --dport 5004");
    let mut exec = Command::new(programs().join("signalbox"))
        .args(&words)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(exec.stdout.take().expect("piped")).lines();
    let seen = until(&mut lines, "held until Ctrl-C");
    let starts = ["reserve 10.0.1.1 > 10.0.2.2 port 5004", "granted: 2mbit", "   1  10.0.1.1  2mbit"];
    assert!(seen.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{seen:?}");
    assert_eq!(seen[3..5], ["   2  10.0.1.2  2mbit", "   3  10.0.2.2  end of the flow"]);

    let row = &lab.show("r1", "qos sessions")[0];
    assert_eq!((&row["role"], &row["held"]["interface"]["name"]), (&"relay".into(), &"to-h2".into()));
    assert_eq!(
        (&row["held"]["traffic"]["rate_octets_per_s"], &row["held"]["enforced"]),
        (&250_000.into(), &true.into())
    );
    let text = stdout(&lab.run("r1", "show qos sessions"));
    for part in ["relay", "to-h2", "2mbit", "controlled-load", "10.0.1.1 > 10.0.2.2 port 5004"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let interfaces = lab.show("r1", "interfaces");
    let link = interfaces.iter().find(|row| row["interface"]["name"] == "to-h2").expect("it has a link");
    assert_eq!(
        (&link["capacity_octets_per_s"], &link["reserved_octets_per_s"]),
        (&1_250_000.into(), &250_000.into())
    );
    assert_eq!(link["enforcement"]["classes_taken"], 1);
    let text = stdout(&lab.run("r1", "show interfaces"));
    for part in ["to-h2", "10mbit", "2mbit", "1 of 64 queues"] {
        assert!(text.contains(part), "{part}: {text}");
    }

    interrupt(&exec);
    until(&mut lines, "released");
    assert!(exec.wait().expect("it ends").success());
    assert_eq!(["h1", "r1", "h2"].map(|node| lab.held(node)), [0; 3]);
    drop(lab);
    assert_gone("t-hold");
}

#[test]
fn commands_end_with_what_scripts_can_use() {
    let lab = Standing::up("t-codes");
    let held = lab.run("h1", "reserve 10.0.2.2 --rate 2mbit --proto udp --dport 5004 --hold 2s --json");
    assert_eq!(held.status.code(), Some(0), "{}", stdout(&held));
    let events: Vec<Value> =
        stdout(&held).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let types: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap_or_default()).collect();
    assert_eq!(types, ["started", "granted", "released"]);
    assert_eq!(
        events[1]["hops"][2],
        serde_json::json!({"address": "10.0.2.2", "after_gap": false, "part": "end"})
    );
    assert_eq!(["h1", "r1", "h2"].map(|node| lab.held(node)), [0; 3]);

    for (line, node, rule) in [
        ("--rate 2mbit --proto udp --dport 7004", "10.0.1.2", "guests"),
        ("--rate 8mbit --proto udp --dport 5004", "10.0.1.2", "share"),
        ("--rate 90mbit --proto udp --dport 5004", "10.0.1.1", "share"),
    ] {
        let refused = lab.run("h1", &format!("reserve 10.0.2.2 {line}"));
        let text = stdout(&refused);
        assert_eq!(refused.status.code(), Some(1), "{text}{}", stderr(&refused));
        assert!(text.contains("refused: ") && text.contains(rule), "{text}");
        assert!(text.contains(&format!(" at {node}: ")), "{text}");
    }
    assert_eq!(["h1", "r1", "h2"].map(|node| lab.held(node)), [0; 3]);

    let query = lab.run("h1", "query 10.0.2.2 --rate 20mbit --proto udp --dport 5004");
    assert_eq!(query.status.code(), Some(1), "less than was asked: {}", stderr(&query));
    let lines: Vec<_> = stdout(&query).lines().map(str::to_owned).collect();
    assert!(lines[0].starts_with("available: 7.5mbit"), "{lines:?}");
    assert_eq!(lines[1..3], ["   1  10.0.1.1  75mbit", "   2  10.0.1.2  7.5mbit"]);
    let query =
        lab.run("h1", "query 10.0.2.2 --rate 20mbit --proto udp --dport 5004 --at-least 5mbit --json");
    assert_eq!(query.status.code(), Some(0), "{}", stderr(&query));
    let answer: Value = serde_json::from_str(&stdout(&query)).expect("JSON");
    assert_eq!(
        (&answer["type"], &answer["traffic"]["rate_octets_per_s"]),
        (&"available".into(), &937_500.into())
    );

    let without = lab.run("h1", "reserve 10.0.2.2 --rate 1mbit --socket /nowhere/no.sock --json");
    assert_eq!(without.status.code(), Some(3));
    let error: Value = serde_json::from_str(&stderr(&without)).expect("JSON");
    assert_eq!((&error["type"], &error["reason"]), (&"error".into(), &"no_daemon".into()));
    let wrong = lab.run("h1", "reserve 10.0.2.2 --rate 1mbit --dport 5004");
    assert_eq!(wrong.status.code(), Some(2));
    drop(lab);
    assert_gone("t-codes");
}

#[test]
fn many_flows_are_held_together_or_not_at_all() {
    let lab = Standing::up("t-flows");
    let held = lab.run("h1", "reserve 10.0.2.2 --rate 64kbit --proto udp --dport 5000 --flows 100 --hold 1s");
    let text = stdout(&held);
    assert_eq!(held.status.code(), Some(0), "{text}{}", stderr(&held));
    assert!(text.starts_with("granted: 100 flows in ") && text.ends_with("released 100 flows\n"), "{text}");
    let refused = lab.run("h1", "reserve 10.0.2.2 --rate 640kbit --proto udp --dport 5000 --flows 100");
    let text = stdout(&refused);
    assert_eq!(refused.status.code(), Some(1), "{text}{}", stderr(&refused));
    assert!(text.contains("refused: ") && text.contains("released "), "{text}");
    assert_eq!(["h1", "r1", "h2"].map(|node| lab.held(node)), [0; 3]);
    drop(lab);
    assert_gone("t-flows");
}

/// A second command with the same identifier takes a reservation over and changes its rate; the first command ends.
#[test]
fn a_command_takes_over_and_changes_a_reservation() {
    let lab = Standing::up("t-over");
    let id = "5d41402abc4b2a76b9719d911017c592";
    let line =
        |rate: &str| format!("reserve 10.0.2.2 --rate {rate} --proto udp --dport 5004 --request-id {id}");
    let words = lab.words("h1", &line("2mbit"));
    let mut first = Command::new(programs().join("signalbox"))
        .args(&words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(first.stdout.take().expect("piped")).lines();
    until(&mut lines, "held until Ctrl-C");
    let rates = || -> Vec<Value> {
        let rows = lab.show("r1", "qos sessions");
        rows.iter().map(|row| row["held"]["traffic"]["rate_octets_per_s"].clone()).collect()
    };
    assert_eq!(rates(), [250_000]);

    let words = lab.words("h1", &line("4mbit"));
    let mut second = Command::new(programs().join("signalbox"))
        .args(&words)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(second.stdout.take().expect("piped")).lines();
    until(&mut lines, "granted: 4mbit");
    assert_eq!(rates(), [500_000], "one reservation, with the new rate");
    let first = first.wait_with_output().expect("it ends");
    assert!(!first.status.success() && stderr(&first).contains("took over"), "{}", stderr(&first));

    interrupt(&second);
    until(&mut lines, "released");
    assert!(second.wait().expect("it ends").success());
    assert_eq!(["h1", "r1", "h2"].map(|node| lab.held(node)), [0; 3]);
    drop(lab);
    assert_gone("t-over");
}
