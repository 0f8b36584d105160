//! Sweeps with real daemons: what they write, and what becomes of them when they are interrupted, started twice, or have no room.

use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use serde_json::Value;

use super::reservations::until;
use super::schemas::{obeys, reader_is_installed};
use super::{assert_gone, programs, stderr, stdout};

/// Four runs at two points.
fn scenario(name: &str) -> String {
    format!(
        r#"version = 2
name = "{name}"
description = "a signal between two hosts"
[params]
count = 2
[topology]
chain = ["h1", "h2"]
[[steps]]
id = "signal"
ping = {{ from = "h1", to = "h2", count = "${{count}}", interval = "20ms" }}
[[checks]]
expect = "both hosts are visited"
path = ["h1", "h2"]
[sweep]
repeat = 2
warm_up = 1
measure = ["pings/signal/mean"]
[sweep.over]
count = [1, 4]
"#
    )
}

/// A directory for a scenario and its results.
struct Place {
    name: &'static str,
    directory: PathBuf,
}

impl Place {
    fn new(name: &'static str) -> Self {
        let directory = std::env::temp_dir().join(format!("signalbox-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("the directory is writable");
        std::fs::write(directory.join("x.toml"), scenario(name)).expect("the directory is writable");
        Self { name, directory }
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(programs().join("signalbox"));
        command.args(["lab", "sweep", "./x.toml", "--out", "out"]).args(more).current_dir(&self.directory);
        command
    }

    fn run(&self, more: &[&str]) -> Output {
        self.command(more).output().expect("it starts")
    }

    /// Starts a sweep, and waits until it has begun its second run.
    fn started(&self) -> (Child, Lines<BufReader<ChildStderr>>) {
        let mut child =
            self.command(&[]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        until(&mut lines, ": run 2 of 4, ");
        (child, lines)
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.directory.join("out").join(name))
            .unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A test that failed leaves its files to the reader.
        if !std::thread::panicking() {
            assert_gone(self.name);
            std::fs::remove_dir_all(&self.directory).expect("ours");
        }
    }
}

fn last_line(lines: Lines<BufReader<ChildStderr>>) -> String {
    let mut last = String::new();
    for line in lines {
        last = line.expect("text");
    }
    last
}

#[test]
fn a_sweep_has_all_runs_and_their_averages() {
    let place = Place::new("t-swept");
    let done = place.run(&["--repeat", "6", "--json"]);
    assert!(done.status.success(), "{}{}", stdout(&done), stderr(&done));
    let progress = stderr(&done);
    assert!(progress.contains("t-swept: warm-up 1 of 1, not counted, count="), "{progress}");
    assert!(
        progress.contains("t-swept: run 12 of 12, ") && progress.contains("s left, count="),
        "{progress}"
    );
    let swept: Value = serde_json::from_str(&stdout(&done)).expect("one object");
    assert_eq!((&swept["complete"], &swept["runs"], &swept["failed"]), (&true.into(), &12.into(), &0.into()));
    let mut series = swept["series"].as_array().expect("a list").iter();
    let mean = series.find(|series| series["measurement"] == "pings" && series["statistic"] == "mean");
    let points = mean.expect("round trips")["points"].as_array().expect("a list");
    assert_eq!(points.len(), 2);
    for point in points {
        let at = |key: &str| point["median"][key].as_f64().expect("a number");
        assert!(at("low") <= at("value") && at("value") <= at("high") && at("low") > 0.0, "{point}");
        assert_eq!(point["values"].as_array().map(Vec::len), Some(6));
    }
    assert_eq!(place.file("sweep.json"), stdout(&done));
    assert!(place.file("sweep.csv").starts_with("scenario,point,param_count,measurement,of,"));
    assert!(place.file("runs.csv").contains(",pings,signal,mean,ms,"));
    if reader_is_installed() {
        obeys("lab_sweep", &stdout(&done));
        obeys("lab_run", &place.file("runs.jsonl"));
        obeys("lab_sweep_plan", &place.file("plan.json"));
    }
    // All is done: nothing is run again, and the text is for people.
    let again = place.run(&["--repeat", "6"]);
    assert!(again.status.success() && !stderr(&again).contains(" run "), "{}", stderr(&again));
    assert!(
        stdout(&again).contains("pings/signal/mean, ms") && stdout(&again).contains("12 runs at 2 points")
    );
    // Another experiment does not go between.
    let other = place.run(&["--seed", "7"]);
    assert_eq!(other.status.code(), Some(3));
    assert!(
        stderr(&other).contains("has the runs of another experiment (it differs in: seed)"),
        "{}",
        stderr(&other)
    );
}

#[test]
fn an_interrupted_sweep_goes_on_and_a_second_one_at_once_is_refused() {
    let place = Place::new("t-sweep-stop");
    let (mut child, lines) = place.started();
    let second = place.run(&[]);
    assert_eq!(second.status.code(), Some(3));
    assert!(stderr(&second).contains("another sweep writes into out now"), "{}", stderr(&second));

    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill is there");
    assert!(kill.success());
    let said = last_line(lines);
    assert_eq!(child.wait().expect("it ends").code(), Some(3), "{said}");
    assert_gone(place.name);
    let first = place.file("runs.jsonl");
    assert!(first.ends_with('\n'), "{first}");
    let kept = first.lines().count();
    assert!((1..4).contains(&kept), "{first}");
    let end = format!(
        "interrupted; {kept} of 4 runs are kept in out, and the same command goes on with the others"
    );
    assert!(said.contains(&end), "{said}");
    assert!(place.file("sweep.csv").lines().count() > 1, "what was measured can be read");

    let done = place.run(&["--json"]);
    assert!(done.status.success(), "{}", stderr(&done));
    let all = place.file("runs.jsonl");
    assert!(all.starts_with(&first) && all.lines().count() == 4, "{all}");
}

/// A file system of a few pages.
struct Small(PathBuf);

impl Small {
    fn at(path: &Path) -> Self {
        std::fs::create_dir_all(path).expect("the directory is writable");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "none"]).arg(path).status();
        assert!(mount.expect("mount is there").success());
        Self(path.to_owned())
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "{} is left", self.0.display());
    }
}

#[test]
fn a_full_disk_costs_no_run_that_was_finished() {
    let place = Place::new("t-sweep-full");
    let out = place.directory.join("out");
    let small = Small::at(&out);
    let (mut child, lines) = place.started();
    let filler = std::fs::write(out.join("filler"), vec![1; 1 << 20]);
    assert!(filler.is_err(), "the disk is full");
    let said = last_line(lines);
    assert_eq!(child.wait().expect("it ends").code(), Some(3), "{said}");
    assert!(said.contains("cannot write out/runs.jsonl: No space left on device"), "{said}");
    assert_gone(place.name);
    let kept = place.file("runs.jsonl").lines().count();
    assert!(
        kept >= 1
            && said.contains(&format!("{kept} of 4 runs are kept in out, and the same command goes on")),
        "{said}"
    );

    std::fs::remove_file(out.join("filler")).expect("ours");
    let done = place.run(&["--json"]);
    assert!(done.status.success(), "{}", stderr(&done));
    assert_eq!(place.file("runs.jsonl").lines().count(), 4);
    drop(small);
}
