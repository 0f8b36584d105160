//! Every scenario of the program, run by the real programs.

use signalbox_linux::process::Identity;

use super::{assert_gone, signalbox, stderr, stdout};

fn holds(name: &str) {
    let run = signalbox(&["lab", "run", name, "--json"]);
    assert!(run.status.success(), "{}{}", stdout(&run), stderr(&run));
    let report: serde_json::Value = serde_json::from_str(stdout(&run).trim()).expect("one JSON object");
    assert_eq!((&report["scenario"], &report["ok"]), (&name.into(), &true.into()));
    assert!(report["checks"].as_array().is_some_and(|checks| !checks.is_empty()));
    assert_gone(name);
}

#[test]
fn quickstart() {
    holds("quickstart");
}

#[test]
fn gist_dmode_v6() {
    holds("gist-dmode-v6");
}

#[test]
fn gist_bypass() {
    holds("gist-bypass");
}

#[test]
fn gist_loss() {
    holds("gist-loss");
}

#[test]
fn gist_cmode_tcp() {
    holds("gist-cmode-tcp");
}

#[test]
fn qos_admission() {
    holds("qos-admission");
}

#[test]
fn qos_police() {
    holds("qos-police");
}

#[test]
fn daemons_that_were_kept_are_ended_by_down() {
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/quickstart.toml"));
    let text = text.expect("part of the repository").replace("\"quickstart\"", "\"t-keep\"");
    let head = text.split("[[steps]]").next().expect("there is a first part");
    let path = std::env::temp_dir().join(format!("signalbox-{}-t-keep.toml", std::process::id()));
    std::fs::write(&path, head).expect("the directory is writable");

    let run = signalbox(&["lab", "run", path.to_str().expect("ASCII"), "--keep", "--json"]);
    assert!(run.status.success(), "{}", stderr(&run));
    let state = std::fs::read_to_string("/run/signalbox/lab/t-keep.json").expect("kept");
    let state: serde_json::Value = serde_json::from_str(&state).expect("JSON");
    let daemons = state["daemons"].as_array().expect("a list").iter();
    let pids: Vec<u32> = daemons
        .map(|daemon| daemon["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a number"))
        .collect();
    assert_eq!(pids.len(), 4);
    assert!(pids.iter().all(|pid| Identity::of(*pid).is_ok()));
    let socket = signalbox(&["lab", "exec", "t-keep/r1", "--", "sh", "-c", "test -S \"$SIGNALBOX_SOCKET\""]);
    assert!(socket.status.success(), "{}", stderr(&socket));
    assert!(signalbox(&["lab", "down", "t-keep"]).status.success());
    assert_gone("t-keep");
    for pid in pids {
        assert!(Identity::of(pid).is_err(), "daemon {pid} still runs");
    }
    std::fs::remove_file(path).expect("ours");
}
