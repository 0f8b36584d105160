//! Proves that tests which name a conformance id fail when its rule is broken.
//!
//! `conformance/mutations/` holds mutations: a text in a source file, the text that breaks the rule, and the ids of the
//! rule. This tool compiles all of them at once into a copy of the tree, each behind a switch. For each mutation it runs
//! the tests that name its ids with the switch on, and reports which of them fail. A test that fails proves the row; if no
//! test fails, the row has no proof.

mod constant;
mod named;
mod proved;
mod run;
mod table;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use crate::conformance;
use named::Test;
use proved::Proved;
use run::Outcome;
use table::Mutation;

/// Crates whose tests need the kernel or the programs; they take too long to run for each mutation. What these crates do
/// themselves only their own tests can show, so their mutations are carried out with `--tests-of` only.
const LEFT_OUT: [&str; 7] = ["linux", "lab", "bench", "cli", "signalboxd", "signalbox", "signalbox-lab"];

#[derive(Default)]
struct Options<'a> {
    ids: Vec<&'a str>,
    /// Run only the tests of these crates.
    crates: Vec<&'a str>,
    all: bool,
    json: bool,
    record: bool,
    audit: bool,
    list: bool,
    check: bool,
}

impl Options<'_> {
    fn selects(&self, mutation: &Mutation) -> bool {
        let named = |id: &String| {
            self.ids
                .iter()
                .any(|want| want.strip_suffix('*').map_or(id == want, |begin| id.starts_with(begin)))
        };
        let krate = mutation.krate();
        (self.all || mutation.ids.iter().any(named)) && (!LEFT_OUT.contains(&krate) || self.runs(krate))
    }

    fn runs(&self, krate: &str) -> bool {
        if self.crates.is_empty() { !LEFT_OUT.contains(&krate) } else { self.crates.contains(&krate) }
    }
}

/// Carries out the mutations that the arguments name. Returns false if one survives or does not apply.
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<bool> {
    let options = parse(args)?;
    let places = conformance::proofs(root)?;
    let tests = named::by_test(root, &places)?;
    let mutations = table::load(root, &places)?;
    if options.audit || options.list {
        return proved::audit(root, &mutations, &tests, options.list);
    }
    if options.check {
        return table::check(root, &mutations);
    }
    let chosen = |mutation: &Mutation| options.selects(mutation);
    if !mutations.iter().any(chosen) {
        bail!("no mutation in conformance/mutations/ is for {}", options.ids.join(", "));
    }
    let mut survivors = 0;
    let mut ran = 0;
    let mut reports = Vec::new();
    let mut marks: BTreeMap<(&str, Test), bool> = BTreeMap::new();
    for tree in tree::plant(root, &mutations)? {
        let named = |mutation: &Mutation| -> Vec<&Test> {
            let names = |ids: &BTreeSet<String>| mutation.ids.iter().any(|id| ids.contains(id));
            tests
                .iter()
                .filter(|(test, ids)| options.runs(&test.krate) && names(ids))
                .map(|(test, _)| test)
                .collect()
        };
        let jobs: Vec<(&Mutation, Vec<&Test>)> = tree
            .mutations
            .iter()
            .filter(|mutation| options.selects(mutation))
            .map(|mutation| (*mutation, named(mutation)))
            .collect();
        let crates: BTreeSet<&str> =
            jobs.iter().flat_map(|(_, tests)| tests).map(|test| test.krate.as_str()).collect();
        if crates.is_empty() {
            continue;
        }
        let programs = tree.build(&crates)?;
        let outcomes = run::all(&jobs, &programs)?;
        for ((mutation, _), outcome) in jobs.iter().zip(&outcomes) {
            let passing = passing(mutation, outcome, &tests);
            ran += 1;
            survivors += usize::from(!passing.is_empty());
            if options.json {
                reports.push(in_json(mutation, outcome, &passing));
            } else {
                print(mutation, outcome, &passing);
            }
            let results = outcome.failed.iter().map(|test| (test, true));
            for (test, failed) in results.chain(outcome.passed.iter().map(|test| (test, false))) {
                let ids =
                    mutation.ids.iter().filter(|id| tests.get(test).is_some_and(|has| has.contains(*id)));
                for id in ids {
                    *marks.entry((id, test.clone())).or_default() |= failed;
                }
            }
        }
    }
    let doubts: Vec<_> = marks.iter().filter(|(_, proves)| !**proves).map(|(pair, _)| pair).collect();
    if options.json {
        println!("{}", Value::from(reports));
    } else {
        println!("{ran} mutations: {} killed, {survivors} not", ran - survivors);
        println!(
            "{} pairs of id and test: {} proved, {} in doubt:",
            marks.len(),
            marks.len() - doubts.len(),
            doubts.len()
        );
        for (id, test) in doubts {
            println!("  {id} in {}", test.shown());
        }
    }
    if options.record {
        let mut proved = Proved::read(root);
        for ((id, test), holds) in &marks {
            proved.put(id, test, *holds);
        }
        proved.write(root, &mutations, &tests)?;
    }
    Ok(survivors == 0)
}

/// The ids that at least one test proves, by `conformance/proved.tsv`.
pub(crate) fn proved(root: &Path) -> BTreeSet<String> {
    Proved::read(root).into_ids().collect()
}

fn parse<'a>(args: &[&'a str]) -> Result<Options<'a>> {
    let mut options = Options::default();
    let mut args = args.iter().copied();
    while let Some(arg) = args.next() {
        match arg {
            "--all" => options.all = true,
            "--json" => options.json = true,
            "--record" => options.record = true,
            "--audit" => options.audit = true,
            "--list" => options.list = true,
            "--check" => options.check = true,
            "--tests-of" => match args.next() {
                Some(krate) => options.crates.push(krate),
                None => bail!("--tests-of needs a crate, such as `gist`"),
            },
            other if other.starts_with('-') => bail!("mutate has no option `{other}` (cargo xtask help)"),
            id => options.ids.push(id),
        }
    }
    if !(options.all || options.audit || options.list || options.check) && options.ids.is_empty() {
        bail!("mutate needs ids, --all, --audit, --list or --check (cargo xtask help)");
    }
    Ok(options)
}

/// The ids of a mutation that no failing test names.
fn passing<'a>(
    mutation: &'a Mutation,
    outcome: &Outcome,
    tests: &BTreeMap<Test, BTreeSet<String>>,
) -> Vec<&'a str> {
    let killed =
        |id: &str| outcome.failed.iter().any(|test| tests.get(test).is_some_and(|ids| ids.contains(id)));
    mutation.ids.iter().map(String::as_str).filter(|id| !killed(id)).collect()
}

fn print(mutation: &Mutation, outcome: &Outcome, passing: &[&str]) {
    let ids = mutation.ids.join(", ");
    if passing.is_empty() {
        println!("{ids}: killed");
    } else {
        println!("{ids}: SURVIVED for {} ({}: {})", passing.join(", "), mutation.file, mutation.find.trim());
    }
    for test in &outcome.failed {
        println!("  fails: {}", test.shown());
    }
    for test in &outcome.passed {
        println!("  passes: {}", test.shown());
    }
}

fn in_json(mutation: &Mutation, outcome: &Outcome, passing: &[&str]) -> Value {
    let shown = |tests: &[Test]| tests.iter().map(Test::shown).collect::<Vec<_>>();
    let word = if passing.is_empty() { "killed" } else { "survived" };
    json!({
        "ids": mutation.ids,
        "file": mutation.file,
        "find": mutation.find,
        "result": word,
        "failed": shown(&outcome.failed),
        "passed": shown(&outcome.passed),
    })
}
