//! Running tests with one mutation switched on.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::named::Test;
use super::table::Mutation;
use super::tree::{Program, Programs, VARIABLE};

/// Time that the tests of one program may take with a mutation, in addition to twice the time without one; a broken rule
/// may well be an endless loop.
const LIMIT: Duration = Duration::from_secs(20);
/// The same without a mutation.
const LIMIT_UNCHANGED: Duration = Duration::from_secs(300);

/// How long the tests of each program took.
type Times = BTreeMap<(String, Option<String>), Duration>;

/// What the tests that name the ids of a mutation did while it was on.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) failed: Vec<Test>,
    pub(super) passed: Vec<Test>,
    times: Times,
}

/// Runs each mutation with its tests, and returns the outcomes in the same order.
pub(super) fn all(jobs: &[(&Mutation, Vec<&Test>)], programs: &Programs) -> Result<Vec<Outcome>> {
    let Outcome { failed: broken, times, .. } = unchanged(jobs, programs)?;
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(BTreeMap::new());
    let work = || -> Result<()> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some((mutation, tests)) = jobs.get(at) else { return Ok(()) };
            let tests: Vec<&Test> = tests.iter().copied().filter(|test| !broken.contains(test)).collect();
            let outcome = one(Some((mutation, &times)), &tests, programs)?;
            outcomes.lock().unwrap_or_else(PoisonError::into_inner).insert(at, outcome);
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let handles: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        handles.into_iter().try_for_each(|handle| match handle.join() {
            Ok(result) => result,
            Err(_) => bail!("a thread panicked"),
        })
    })?;
    Ok(outcomes.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect())
}

/// Runs all tests without a mutation. The failures of those that fail even so prove nothing.
fn unchanged(jobs: &[(&Mutation, Vec<&Test>)], programs: &Programs) -> Result<Outcome> {
    let mut tests: Vec<&Test> = jobs.iter().flat_map(|(_, tests)| tests.iter().copied()).collect();
    tests.sort();
    tests.dedup();
    let outcome = one(None, &tests, programs)?;
    for test in &outcome.failed {
        eprintln!("{} fails without a mutation, and is left out", test.shown());
    }
    Ok(outcome)
}

/// Runs `tests` with a mutation, whose programs may take somewhat longer than without one, or without a mutation.
fn one(mutation: Option<(&Mutation, &Times)>, tests: &[&Test], programs: &Programs) -> Result<Outcome> {
    let mut by_program: BTreeMap<(String, Option<String>), Vec<&Test>> = BTreeMap::new();
    for test in tests {
        by_program.entry((test.krate.clone(), test.program.clone())).or_default().push(test);
    }
    let mut outcome = Outcome::default();
    for (key, tests) in by_program {
        let program = programs.get(&key).with_context(|| format!("no test program {key:?}"))?;
        let limit = mutation.map_or(LIMIT_UNCHANGED, |(_, unchanged)| {
            LIMIT + unchanged.get(&key).copied().unwrap_or_default() * 2
        });
        let mutation = mutation.map(|(mutation, _)| mutation);
        let started = Instant::now();
        let mut results = start(program, mutation, &tests, limit)?;
        outcome.times.insert(key, started.elapsed());
        if mutation.is_some() && tests.len() > 1 {
            // The program was aborted or did not end: each test that has no result runs alone.
            for test in &tests {
                if !results.contains_key(test.path.as_str()) {
                    results.extend(start(program, mutation, &[test], limit)?);
                }
            }
        }
        for test in tests {
            match results.get(test.path.as_str()) {
                Some(true) => outcome.passed.push(test.clone()),
                Some(false) => outcome.failed.push(test.clone()),
                None if mutation.is_none() => bail!("{}: no such test ran", test.shown()),
                None => outcome.failed.push(test.clone()),
            }
        }
    }
    Ok(outcome)
}

/// Runs `tests` in one process. The result holds those that ended, and whether each passed.
fn start(
    program: &Program,
    mutation: Option<&Mutation>,
    tests: &[&Test],
    limit: Duration,
) -> Result<BTreeMap<String, bool>> {
    let mut command = Command::new(&program.executable);
    command.arg("--exact").args(tests.iter().map(|test| &test.path));
    command.current_dir(&program.directory).env("CARGO_MANIFEST_DIR", &program.directory);
    command.env_remove(VARIABLE).env("RUST_BACKTRACE", "0");
    if let Some(mutation) = mutation {
        command.env(VARIABLE, mutation.number().to_string());
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child =
        command.spawn().with_context(|| format!("cannot run {}", program.executable.display()))?;
    let mut stdout = child.stdout.take().context("no standard output")?;
    // A thread of its own, so that a full pipe does not stop the program.
    let reader = thread::spawn(move || {
        let mut octets = Vec::new();
        let _ = stdout.read_to_end(&mut octets);
        octets
    });
    let started = Instant::now();
    while child.try_wait()?.is_none() {
        if started.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    let Ok(octets) = reader.join() else { bail!("a thread panicked") };
    Ok(results(&String::from_utf8_lossy(&octets)))
}

/// The results in the output of a test program.
fn results(text: &str) -> BTreeMap<String, bool> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let Some((name, word)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) else {
            continue;
        };
        let name = name.trim_end_matches(" - should panic");
        match word {
            "ok" => found.insert(name.to_owned(), true),
            "FAILED" => found.insert(name.to_owned(), false),
            _ => None,
        };
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_those_of_tests_that_ended() {
        let text = "
running 4 tests
test a::b ... ok
test c - should panic ... ok
test d ... FAILED
test e ... thread 'e' has overflowed its stack
";
        let found = results(text);
        let all: Vec<_> = found.iter().map(|(name, ok)| (name.as_str(), *ok)).collect();
        assert_eq!(all, [("a::b", true), ("c", true), ("d", false)]);
    }
}
