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
pub(super) fn reader_is_installed() -> bool {
    let import =
        Command::new("/usr/bin/python3").args(["-c", "import jsonschema"]).stderr(Stdio::null()).status();
    import.is_ok_and(|status| status.success())
}

/// Checks that lines of JSON obey a schema, and that there is one at least.
pub(super) fn obeys(schema: &str, lines: &str) {
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
    for question in ["show status", "show rsvp sessions", "path 10.0.2.2 --dport 5004", "check"] {
        let line = format!("net --lab t-schema {question} --json");
        obeys("net", &stdout(&super::signalbox(&line.split(' ').collect::<Vec<_>>())));
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

/// A scenario with a flow, a program and a check that a standing lab can answer.
const RUN: &str = r#"version = 2
name = "t-json"
description = "a signal, a flow and a program"
topology = { chain = ["h1", "h2"], all_nodes = { protocols = ["gist", "ping"] }, all_links = { rate = "10mbit" } }
[[steps]]
id = "flow"
traffic = { from = "h1", to = "h2", port = 5004, rate = "4mbit" }
[[steps]]
id = "program"
run = { node = "h1", command = ["sh", "-c", "test -f {lab_programs}/attack.py && echo found"] }
[[steps]]
ping = { from = "h1", to = "h2" }
[[steps]]
id = "served"
wait = "1s"
[[checks]]
expect = "the program is there, also outside of the source tree"
output = "program"
lines = ["found"]
[[checks]]
expect = "the flow is served"
traffic = { flow = "flow", during = "served", max_loss = "1%" }
[[checks]]
expect = "the daemons answer"
show = "gist sessions"
min = 0
max = 9
"#;

/// Two runs of one scenario, from a directory outside of the source tree: each has its object and its files.
#[test]
fn what_the_lab_prints_obeys_its_schema() {
    if !reader_is_installed() {
        eprintln!("skipped: python3-jsonschema is not installed");
        return;
    }
    let directory = std::env::temp_dir().join(format!("signalbox-{}-t-json", std::process::id()));
    std::fs::create_dir_all(&directory).expect("the directory is writable");
    std::fs::write(directory.join("x.toml"), RUN).expect("the directory is writable");
    let signalbox = |line: &str| {
        let mut command = Command::new(programs().join("signalbox"));
        command.args(line.split(' ')).current_dir(&directory).output().expect("it starts")
    };
    let run = signalbox("lab run ./x.toml --repeat 2 --json --pcap captures --plot flow.svg --csv table.csv");
    assert!(run.status.success(), "{}{}", stdout(&run), stderr(&run));
    let text = stdout(&run);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 3, "two runs and the whole: {text}");
    obeys("lab_run", &lines[..2].join("\n"));
    obeys("lab_runs", lines[2]);
    for file in ["captures/run-1/h1-h2.pcap", "captures/run-2/h1-h2.pcap", "flow-1.svg", "flow-2.svg"] {
        assert!(directory.join(file).is_file(), "{file} is missing");
    }
    let table = std::fs::read_to_string(directory.join("table.csv")).expect("written");
    assert!(table.contains(",traffic,flow/served,goodput_kbit,kbit/s,"), "{table}");

    // What cannot be written is a failed check, and the measurements are there.
    let run = signalbox("lab run ./x.toml --json --plot /nowhere/flow.svg");
    obeys("lab_run", &stdout(&run));
    assert_eq!(run.status.code(), Some(1));
    assert!(stdout(&run).contains("goodput_kbit") && stdout(&run).contains("cannot write /nowhere/flow.svg"));

    let up = signalbox("lab up ./x.toml --json");
    obeys("lab_up", &stdout(&up));
    obeys("lab_expect", &stdout(&signalbox("lab expect ./x.toml --json")));
    assert!(signalbox("lab down t-json").status.success());
    obeys("lab_soak", &stdout(&signalbox("lab soak ./x.toml --for 1s --json")));
    assert_gone("t-json");
    std::fs::remove_dir_all(directory).expect("ours");
}
