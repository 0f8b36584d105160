//! Scenarios in the simulator.

use serde_json::json;

use super::*;
use crate::language::{builtin, builtins, read};

/// Three nodes that reserve.
const LINE: &str = r#"version = 2
name = "line"
description = "a signal and a reservation over a router"
topology.chain = ["h1", "r1", "h2"]
topology.all_nodes.protocols = ["gist", "ping", "qos"]
topology.all_links.rate = "10mbit"
config.qos.refresh = "2s"

[[steps]]
id = "signal"
ping = { from = "h1", to = "h2" }

[[steps]]
id = "reservation"
reserve = { from = "h1", to = "h2", port = 5004, rate = "2mbit", options = ["--priority", "7"] }

[[steps]]
expect = "host and router hold the reservation"
show = "reservations"
nodes = ["h1", "r1"]
count = 1
others = 0
have = { enforced = true, traffic = { rate_octets_per_s = "2mbit" }, interface = { name = { one_of = ["to-r1", "to-h2"] } } }

[[steps]]
wait = "5s"

[[steps]]
stop = ["reservation"]

[[steps]]
expect = "and nothing afterwards"
show = "reservations"
count = 0

[[checks]]
expect = "the signal visits every node"
path = ["h1", "r1", "h2"]

[[checks]]
expect = "Query with Router Alert, Response, Confirm and Data on each link"
sequence = ["> query", "< response", "> confirm", "> data"]
links = "path h1 h2"
per = "session_id"
min = 1

[[checks]]
expect = "no GIST Error passes any link"
messages = { protocol = "gist", type = "error", links = "all", max = 0 }

[[checks]]
expect = "it was granted and released"
output = "reservation"
lines = [{ type = "granted", traffic = { rate_octets_per_s = "2mbit" } }, { type = "released", confirmed = true }]

[[checks]]
expect = "the kernels are as before"
clean = true
"#;

fn scenario(text: &str) -> Scenario {
    read("line.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

fn run(text: &str, order: &Order) -> Simulated {
    simulate(&scenario(text), order).expect("the network can be made")
}

#[track_caller]
fn holds(simulated: &Simulated) {
    let failed: Vec<_> = simulated.report.checks.iter().filter(|check| !check.ok).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn steps_and_checks_of_the_lab_hold_in_virtual_time() {
    let simulated = run(LINE, &Order { seed: 1, ..Order::default() });
    holds(&simulated);
    assert_eq!(simulated.report.checks.len(), 6);
    let [clean] = &simulated.left_out[..] else { panic!("{:?}", simulated.left_out) };
    assert_eq!(clean.name, "the kernels are as before");
    // Three probes at 200 ms, the wait, and 2 s for each of the two expectations that something is absent.
    assert!((9_400_000..12_000_000).contains(&simulated.virtual_us), "{}", simulated.virtual_us);
}

/// What a reader copies first works.
#[test]
fn the_first_scenario_of_the_page_holds() {
    let page = include_str!("../../../../../docs/lab.md");
    let (_, after) =
        page.split_once("## A first scenario\n\n```toml\n").expect("the page begins with a scenario");
    let (text, _) = after.split_once("```").expect("it ends");
    let simulated = run(text, &Order { seed: 1, ..Order::default() });
    holds(&simulated);
    assert_eq!(simulated.report.checks.len(), 3);
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_does_not() {
    let octets = |seed| {
        let simulated = run(LINE, &Order { seed, ..Order::default() });
        let frames = simulated.traffic.concat().into_iter().map(|frame| (frame.at, frame.octets));
        frames.collect::<Vec<_>>()
    };
    let first = octets(7);
    assert!(!first.is_empty() && first == octets(7) && first != octets(8));
}

#[test]
fn both_ip_versions_and_the_routes_of_the_file_are_simulated() {
    let v6 = LINE.replace("description", "family = \"ipv6\"\ndescription");
    holds(&run(&v6, &Order::default()));
    // Two paths of the same length; the file wants the one by r2.
    let text = r#"version = 2
name = "square"
description = "two paths"
[nodes.h1]
[nodes.r1]
[nodes.r2]
[nodes.h2]
[links.h1-r1]
[links.h1-r2]
[links.r1-h2]
[links.r2-h2]
[[routes]]
node = "h1"
to = "10.0.3.0/24"
via = "r2"
[[steps]]
ping = { from = "h1", to = "h2" }
[[checks]]
expect = "by r2"
path = ["h1", "r2", "h2"]
"#;
    holds(&run(text, &Order::default()));
}

/// Scenarios that are built in and need no kernel in any step.
#[test]
fn built_in_scenarios_hold_in_the_simulator() {
    let mut simulated = Vec::new();
    for (name, text) in builtins() {
        let scenario = read(name, text).unwrap_or_else(|error| panic!("{error}"));
        if !unsupported(&scenario).is_empty() {
            continue;
        }
        let result = simulate(&scenario, &Order { seed: 3, ..Order::default() }).expect(name);
        let failed: Vec<_> = result.report.checks.iter().filter(|check| !check.ok).collect();
        assert!(failed.is_empty(), "{name}: {failed:#?}");
        simulated.push(name);
    }
    for name in ["gist-loss", "gist-bypass", "qos-admission"] {
        assert!(simulated.contains(&name), "{simulated:?}");
    }
}

#[test]
fn what_the_simulator_cannot_do_is_named_with_its_step() {
    let quickstart = read("quickstart", builtin("quickstart").expect("built in")).expect("sound");
    let missing = unsupported(&quickstart);
    assert!(missing.iter().any(|one| one.name.ends_with("(`traffic` \"flow\")")), "{missing:?}");
    let changed = LINE.replace("\"--priority\", \"7\"", "\"--hold\", \"1s\"");
    let [missing] = &unsupported(&scenario(&changed))[..] else { panic!("one step") };
    assert_eq!(missing.name, "step 2 (`reserve` \"reservation\")");
    assert!(missing.why.contains("--hold"), "{}", missing.why);
}

#[test]
fn a_daemon_that_crashes_loses_its_users_and_its_state() {
    let crash =
        "daemon = { kill = \"h1\" }\n[[steps]]\nwait = \"1s\"\n[[steps]]\ndaemon = { start = \"h1\" }";
    let text = LINE
        .replace("wait = \"5s\"", crash)
        .replace("lines = [{ type = \"granted\"", "status = 3\nlines = [{ type = \"granted\"");
    let text = text.replace(", { type = \"released\", confirmed = true }", "");
    let text = text.replace(
        "show = \"reservations\"\ncount = 0",
        "show = \"reservations\"\ncount = 0\nwithin = \"30s\"",
    );
    let simulated = run(&text, &Order { seed: 2, ..Order::default() });
    holds(&simulated);
    let expired = simulated.report.checks.iter().find(|check| check.name == "and nothing afterwards");
    let detail = &expired.expect("it is judged").detail;
    assert!(!detail.starts_with("after 0 ms"), "the router keeps it until it expires: {detail}");
}

/// A router that has begun again holds nothing until the next refresh.
#[test]
fn what_is_gone_and_comes_back_is_found() {
    let gone = |holds: &str| {
        let again = format!(
            "daemon = {{ kill = \"r1\" }}\n[[steps]]\ndaemon = {{ start = \"r1\" }}\n[[steps]]\nexpect = \"gone\"\nshow = \"reservations\"\nnodes = [\"r1\"]\ncount = 0\n{holds}"
        );
        let simulated = run(&LINE.replace("wait = \"5s\"", &again), &Order { seed: 4, ..Order::default() });
        let gone = simulated.report.checks.iter().find(|check| check.name == "gone").expect("it is judged");
        (gone.ok, gone.detail.clone())
    };
    assert!(gone("holds = \"0s\"").0, "one look does not find it");
    let (ok, detail) = gone("");
    assert!(!ok && detail.starts_with("it was so, and no longer "), "{detail}");
}

/// A run with three faults, of which one matters.
fn three_faults() -> Order {
    // The router is down when the step behind the wait looks, at 7.7 s.
    let faults = ["lose:r1-h2@3s+20ms", "crash:r1@5s+3s", "lose:h1-r1@100s+1s"];
    Order { seed: 5, faults: faults.map(|fault| fault.parse().expect("sound")).to_vec(), steps: None }
}

/// The router holds the reservation at every time.
fn always_held() -> String {
    let held = "wait = \"5s\"\n[[steps]]\nexpect = \"still held\"\nshow = \"reservations\"\nnodes = [\"r1\"]\ncount = 1";
    LINE.replace("wait = \"5s\"", held)
}

#[test]
fn a_failure_shrinks_to_the_fault_and_the_steps_that_matter() {
    let text = always_held();
    holds(&run(&text, &Order { seed: 5, ..Order::default() }));
    let scenario = scenario(&text);
    let found =
        shrink::shrink(&scenario, three_faults(), &|_| ()).expect("it can be made").expect("it fails");
    assert_eq!(found.failure, "still held");
    let faults: Vec<_> = found.order.faults.iter().map(ToString::to_string).collect();
    assert_eq!((faults, found.order.steps), (vec!["crash:r1@5s+3s".to_owned()], Some(5)));
    let none = shrink::shrink(&scenario, Order::default(), &|_| ()).expect("it can be made");
    assert!(none.is_none());
}

#[test]
fn the_result_is_one_object_with_what_was_left_out() {
    let simulated = run(&always_held(), &three_faults());
    let value = serde_json::to_value(&simulated).expect("JSON");
    assert_eq!(
        [&value["scenario"], &value["ok"], &value["seed"]],
        [&json!("line"), &json!(false), &json!(5)]
    );
    assert_eq!(value["faults"][1], "crash:r1@5s+3s");
    assert_eq!(value["left_out"][0]["name"], "the kernels are as before");
    assert!(value["checks"].as_array().is_some_and(|checks| checks.len() == 7), "{value}");
    assert!(value["measurements"]["messages"]["gist"].is_object(), "{value}");
}
