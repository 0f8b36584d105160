//! The JSON of commands with real daemons, compared with `docs/schema` by an independent reader.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::reservations::{Standing, interrupt, until};
use super::{assert_gone, programs, stderr, stdout};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Whether the reader is installed: Debian's package python3-jsonschema.
fn reader_is_installed() -> bool {
    let import =
        Command::new("/usr/bin/python3").args(["-c", "import jsonschema"]).stderr(Stdio::null()).status();
    import.is_ok_and(|status| status.success())
}

/// Checks that lines of JSON obey a schema, and that there is one at least.
fn obeys(schema: &str, lines: &str) {
    assert!(!lines.trim().is_empty(), "{schema}: no line");
    let mut reader = Command::new("/usr/bin/python3")
        .arg(repository().join("scripts/validate.py"))
        .arg(repository().join(format!("docs/schema/{schema}.json")))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("Python is there");
    reader.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("it reads");
    let read = reader.wait_with_output().expect("it ends");
    assert!(read.status.success(), "{schema}: {}{}\n{lines}", stdout(&read), stderr(&read));
}

#[test]
fn what_commands_print_obeys_its_schema() {
    if !reader_is_installed() {
        eprintln!("skipped: python3-jsonschema is not installed");
        return;
    }
    let lab = Standing::up("t-schema");
    let words = lab.words("h1", "reserve 10.0.2.2 --rate 2mbit --proto udp --dport 5004 --json");
    let mut held = Command::new(programs().join("signalbox"))
        .args(&words)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(held.stdout.take().expect("piped")).lines();
    let mut events = until(&mut lines, "\"granted\"");

    for (node, command, schema) in [
        ("h1", "ping 10.0.2.2 --count 2", "ping"),
        ("h1", "query 10.0.2.2 --rate 1mbit --proto udp --dport 5004", "query"),
        ("h1", "policy test 10.0.2.2 --rate 1mbit", "policy_decision"),
        ("h1", "policy test 10.0.2.2 --opens outward --proto udp", "policy_decision"),
        ("r1", "show status", "node"),
        ("r1", "show interfaces", "interface"),
        ("r1", "show counters", "metric"),
        ("r1", "show reservations", "reservation"),
        ("r1", "show gist sessions", "gist_session"),
        ("r1", "show gist peers", "gist_peer"),
        ("r1", "show qos sessions", "qos_session"),
        ("r1", "config reload", "config_reload"),
    ] {
        let shown = lab.run(node, &format!("{command} --json"));
        assert!(shown.status.success(), "{command}: {}", stderr(&shown));
        obeys(schema, &stdout(&shown));
    }
    let refused = lab.run("h1", "reserve 10.0.2.2 --rate 1mbit --proto udp --dport 7004 --json");
    obeys("reserve", &stdout(&refused));
    let without = lab.run("h1", "show status --socket /nowhere/no.sock --json");
    obeys("error", &stderr(&without));

    interrupt(&held);
    events.extend(until(&mut lines, "\"released\""));
    obeys("reserve", &events.join("\n"));
    assert!(held.wait().expect("it ends").success());
    drop(lab);
    assert_gone("t-schema");
}
