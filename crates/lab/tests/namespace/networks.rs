//! Networks without daemons: up, exec, down, and the remains of a crash.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{assert_gone, namespaces, programs, signalbox, stderr, stdout};

/// A network of two hosts and a router without daemons, in a file of its own; taken down at the end of the test.
struct Network {
    name: String,
    path: PathBuf,
}

impl Network {
    fn new(name: &str, more: &str) -> Self {
        let path = std::env::temp_dir().join(format!("signalbox-{}-{name}.toml", std::process::id()));
        let text = format!(
            r#"version = 2
name = "{name}"
description = "two hosts and a router"
topology = {{ chain = ["a", "r", "b"], all_nodes = {{ daemon = false }} }}
links.a-r.rate = "100mbit"
{more}"#
        );
        std::fs::write(&path, text).expect("the directory is writable");
        Self { name: name.to_owned(), path }
    }

    fn path(&self) -> &str {
        self.path.to_str().expect("made of ASCII")
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        signalbox(&["lab", "down", &self.name]);
        // A file that is left in the temporary directory does no harm.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[test]
fn up_exec_down_leaves_nothing() {
    let network = Network::new("t-updown", "");
    let up = signalbox(&["lab", "up", network.path()]);
    assert!(up.status.success(), "{}", stderr(&up));
    assert_eq!(namespaces("t-updown").len(), 3);

    let again = signalbox(&["lab", "up", network.path()]);
    assert!(!again.status.success());
    assert!(stderr(&again).contains("signalbox lab down t-updown"), "{}", stderr(&again));

    let links = signalbox(&["lab", "exec", "t-updown/r", "--", "ip", "-o", "link", "show"]);
    assert!(stdout(&links).contains("to-a") && stdout(&links).contains("to-b"), "{}", stdout(&links));
    let route = signalbox(&["lab", "exec", "t-updown/a", "--", "ip", "route", "get", "10.0.2.2"]);
    assert!(stdout(&route).contains("via 10.0.1.2"), "{}", stdout(&route));
    let status = signalbox(&["lab", "exec", "t-updown/a", "--", "sh", "-c", "exit 7"]);
    assert_eq!(status.status.code(), Some(7));
    let unknown = signalbox(&["lab", "exec", "t-updown/c", "--", "true"]);
    assert!(stderr(&unknown).contains("no standing lab has a node"), "{}", stderr(&unknown));

    let down = signalbox(&["lab", "down", "t-updown"]);
    assert!(down.status.success(), "{}", stderr(&down));
    assert_gone("t-updown");
    let down = signalbox(&["lab", "down", "t-updown"]);
    assert!(stdout(&down).contains("nothing stands"), "{}", stdout(&down));
}

#[test]
fn two_labs_stand_at_once_and_one_goes_alone() {
    let (one, two) = (Network::new("t-one", ""), Network::new("t-two", ""));
    for network in [&one, &two] {
        let up = signalbox(&["lab", "up", network.path()]);
        assert!(up.status.success(), "{}", stderr(&up));
    }
    let either = signalbox(&["lab", "exec", "a", "--", "true"]);
    assert!(stderr(&either).contains("both have a node a"), "{}", stderr(&either));
    assert!(signalbox(&["lab", "down", "t-one"]).status.success());
    assert_gone("t-one");
    assert_eq!(namespaces("t-two").len(), 3);
}

#[test]
fn packets_are_forwarded_captured_and_lost() {
    let network = Network::new(
        "t-udp",
        r#"
[[steps]]
id = "datagrams"
traffic = { from = "a", to = "b", count = 5 }

[[steps]]
link = "r-b"
loss = "100%"

[[steps]]
link = "a-r"
up = false

[[steps]]
link = "a-r"
up = true

[[checks]]
expect = "forwarded"
forwarding = { flow = "datagrams" }
"#,
    );
    let captures = std::env::temp_dir().join(format!("signalbox-{}-captures", std::process::id()));
    let run =
        signalbox(&["lab", "run", network.path(), "--json", "--pcap", captures.to_str().expect("ASCII")]);
    assert!(run.status.success(), "{}{}", stdout(&run), stderr(&run));
    assert_gone("t-udp");
    let report: serde_json::Value = serde_json::from_str(stdout(&run).trim()).expect("one JSON object");
    assert_eq!((&report["scenario"], &report["ok"]), (&"t-udp".into(), &true.into()));
    assert_eq!(report["checks"][0]["detail"], "5 datagrams arrived, TTL on the links [64, 63]");
    for link in ["a-r", "r-b"] {
        let file = std::fs::File::open(captures.join(format!("{link}.pcap"))).expect("written");
        let mut reader = pcap_file::pcap::PcapReader::new(file).expect("a capture");
        let mut packets = 0;
        while let Some(packet) = reader.next_packet() {
            packet.expect("sound");
            packets += 1;
        }
        assert!(packets >= 5, "{packets} packets on {link}");
    }
    std::fs::remove_dir_all(captures).expect("ours");
}

/// The step changes both ends, which run no daemon. A link without a rate has none to change.
#[test]
fn a_step_changes_the_rate_of_a_link() {
    let steps = "[[steps]]\nlink = \"a-r\"\nrate = \"5mbit\"\n";
    let network = Network::new("t-rate", steps);
    let run = signalbox(&["lab", "run", network.path(), "--keep"]);
    assert!(run.status.success(), "{}", stderr(&run));
    for (node, interface) in [("t-rate/a", "to-r"), ("t-rate/r", "to-a")] {
        let queue = signalbox(&["lab", "exec", node, "--", "tc", "qdisc", "show", "dev", interface]);
        assert!(stdout(&queue).contains("tbf 1: root") && stdout(&queue).contains("rate 5Mbit"), "{node}");
    }
    let other = Network::new("t-norate", &steps.replace("a-r", "r-b"));
    let check = signalbox(&["lab", "check", other.path()]);
    let said = stdout(&check);
    assert!(said.contains("the link `r-b` has no `rate` that could change"), "{said}");
}

#[test]
fn a_check_that_fails_makes_the_status_1() {
    let network = Network::new("t-fails", "checks = [{ expect = \"never ended\", clean = true }]\n");
    let run = signalbox(&["lab", "run", network.path(), "--json"]);
    assert_eq!(run.status.code(), Some(1), "{}", stderr(&run));
    let report: serde_json::Value = serde_json::from_str(stdout(&run).trim()).expect("one JSON object");
    assert_eq!((&report["ok"], &report["checks"][0]["ok"]), (&false.into(), &false.into()));
    assert_gone("t-fails");
}

#[test]
fn down_cleans_up_after_a_run_that_was_killed() {
    let network = Network::new("t-killed", "steps = [{ wait = \"60s\" }]\n");
    let mut run = Command::new(programs().join("signalbox"))
        .args(["lab", "run", network.path()])
        .stderr(Stdio::piped())
        .spawn()
        .expect("built");
    let mut progress = BufReader::new(run.stderr.take().expect("piped")).lines().map_while(Result::ok);
    assert!(progress.any(|line| line.contains("waiting for 1m")), "the run ended early");
    run.kill().expect("ours");
    run.wait().expect("ours");
    assert_eq!(namespaces("t-killed").len(), 3);
    // The lab is found by its marks even without its state file.
    std::fs::remove_file("/run/signalbox/lab/t-killed.json").expect("the run wrote it");
    let down = signalbox(&["lab", "down", "t-killed"]);
    assert!(stdout(&down).contains("taken down"), "{}{}", stdout(&down), stderr(&down));
    assert_gone("t-killed");
}

#[test]
fn a_run_removes_what_one_that_was_killed_left() {
    let network = Network::new("t-again", "steps = [{ wait = \"60s\" }]\n");
    let mut killed = Command::new(programs().join("signalbox"))
        .args(["lab", "run", network.path()])
        .stderr(Stdio::piped())
        .spawn()
        .expect("built");
    let mut progress = BufReader::new(killed.stderr.take().expect("piped")).lines().map_while(Result::ok);
    assert!(progress.any(|line| line.contains("waiting for 1m")), "the run ended early");
    // While it runs, its name is taken.
    assert_eq!(signalbox(&["lab", "run", network.path()]).status.code(), Some(3));
    assert_eq!(namespaces("t-again").len(), 3);
    killed.kill().expect("ours");
    killed.wait().expect("ours");
    assert_eq!(namespaces("t-again").len(), 3);
    let other = Network::new("t-again", "steps = [{ wait = \"10ms\" }]\n");
    let run = signalbox(&["lab", "run", other.path()]);
    assert!(run.status.success(), "{}{}", stdout(&run), stderr(&run));
    assert!(stderr(&run).contains("a run that was killed"), "{}", stderr(&run));
    assert_gone("t-again");
}

/// After a restart of the machine, or of its container, `/run` can still have the files of a lab. Its namespaces and processes are gone.
#[test]
fn the_files_of_a_run_that_ended_with_its_machine_are_no_lab() {
    let network = Network::new("t-anew", "steps = [{ wait = \"10ms\" }]\n");
    let up = signalbox(&["lab", "up", network.path()]);
    assert!(up.status.success(), "{}", stderr(&up));
    let names = namespaces("t-anew");
    assert_eq!(names.len(), 3);
    // The lab stands, so its name is taken.
    assert_eq!(signalbox(&["lab", "run", network.path()]).status.code(), Some(3));
    for name in &names {
        assert!(Command::new("ip").args(["netns", "delete", name]).status().expect("ip is there").success());
        std::fs::write(format!("/run/netns/{name}"), "").expect("the test is root");
    }
    let run = signalbox(&["lab", "run", network.path()]);
    assert!(run.status.success(), "{}{}", stdout(&run), stderr(&run));
    assert!(stderr(&run).contains("a run that was killed"), "{}", stderr(&run));
    assert_gone("t-anew");
}

#[test]
fn a_namespace_of_somebody_else_is_left_alone() {
    let name = "sbx-t-foreign-x";
    assert!(Command::new("ip").args(["netns", "add", name]).status().expect("ip is there").success());
    let down = signalbox(&["lab", "down", "t-foreign"]);
    let left = namespaces("t-foreign");
    assert!(Command::new("ip").args(["netns", "delete", name]).status().expect("ip is there").success());
    assert!(down.status.success(), "{}", stderr(&down));
    assert_eq!(left, [name]);
}

#[test]
fn an_interrupted_run_takes_its_network_down() {
    let network = Network::new("t-int", "steps = [{ wait = \"60s\" }]\n");
    let mut run = Command::new(programs().join("signalbox"))
        .args(["lab", "run", network.path()])
        .stderr(Stdio::piped())
        .spawn()
        .expect("built");
    let mut progress = BufReader::new(run.stderr.take().expect("piped")).lines().map_while(Result::ok);
    assert!(progress.any(|line| line.contains("waiting for 1m")), "the run ended early");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(run.id()).expect("a pid"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).expect("ours");
    assert!(!run.wait().expect("ours").success());
    assert!(progress.any(|line| line.contains("interrupted")));
    assert_gone("t-int");
}
