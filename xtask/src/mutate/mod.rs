//! Proves that tests which name a conformance id fail when its rule is broken.
//!
//! `conformance/mutations.toml` holds mutations: a text in a source file, the text that breaks the rule, and the ids of the
//! rule. For each mutation this tool changes a copy of the tree, runs the tests that name the ids, and reports which of
//! them fail. A test that fails proves the row; if none fails, the row has no proof.

mod named;
mod run;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::conformance;
use named::Test;
use run::{Outcome, Tree};

/// A rule broken on purpose.
struct Mutation {
    ids: Vec<String>,
    file: String,
    find: String,
    replace: String,
}

/// A mutation and its result.
struct Verdict<'a> {
    mutation: &'a Mutation,
    outcome: Outcome,
}

#[derive(Default)]
struct Options<'a> {
    ids: Vec<&'a str>,
    all: bool,
    json: bool,
    record: bool,
    audit: bool,
    list: bool,
}

/// Carries out the mutations that the arguments name. Returns false if one survives or cannot be applied.
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<bool> {
    let options = parse(args)?;
    let places = conformance::proofs(root)?;
    let tests = named::by_test(root, &places)?;
    let mutations = load(root, &places)?;
    if options.audit || options.list {
        return audit(root, &tests, options.list);
    }
    let chosen: Vec<&Mutation> = mutations
        .iter()
        .filter(|one| options.all || one.ids.iter().any(|id| options.ids.contains(&id.as_str())))
        .collect();
    if let Some(id) =
        options.ids.iter().find(|id| !chosen.iter().any(|one| one.ids.iter().any(|has| has == *id)))
    {
        bail!("no mutation in conformance/mutations.toml is for {id}");
    }
    let tree = Tree::copy(root)?;
    let mut verdicts = Vec::new();
    for mutation in chosen {
        let named: Vec<&Test> = tests
            .iter()
            .filter(|(_, ids)| mutation.ids.iter().any(|id| ids.contains(id)))
            .map(|(test, _)| test)
            .collect();
        let enough = |failed: &[Test]| alive(mutation, failed, &tests).is_empty();
        let outcome = tree.mutate(mutation, &named, enough)?;
        let verdict = Verdict { mutation, outcome };
        if !options.json {
            print(&verdict, &tests);
        }
        verdicts.push(verdict);
        // After each one, so that a run that is stopped keeps what it found.
        if options.record {
            record(root, &verdicts, &tests)?;
        }
    }
    let survivors = verdicts.iter().filter(|verdict| !survived(verdict, &tests).is_empty()).count();
    if options.json {
        println!("{}", in_json(&verdicts, &tests));
    } else {
        println!("{} mutations: {} killed, {survivors} not", verdicts.len(), verdicts.len() - survivors);
    }
    Ok(survivors == 0)
}

fn parse<'a>(args: &[&'a str]) -> Result<Options<'a>> {
    let mut options = Options::default();
    for arg in args {
        match *arg {
            "--all" => options.all = true,
            "--json" => options.json = true,
            "--record" => options.record = true,
            "--audit" => options.audit = true,
            "--list" => options.list = true,
            other if other.starts_with('-') => bail!("mutate has no option `{other}` (cargo xtask help)"),
            id => options.ids.push(id),
        }
    }
    if !(options.all || options.audit || options.list) && options.ids.is_empty() {
        bail!("mutate wants ids, --all, --audit or --list (cargo xtask help)");
    }
    Ok(options)
}

fn load(root: &Path, places: &[(String, String)]) -> Result<Vec<Mutation>> {
    let path = root.join("conformance/mutations.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let table: toml::Table = text.parse().context("conformance/mutations.toml")?;
    let known: BTreeSet<&str> = places.iter().map(|(id, _)| id.as_str()).collect();
    let mut mutations = Vec::new();
    for one in table.get("mutation").and_then(|list| list.as_array()).into_iter().flatten() {
        let field = |key: &str| {
            let value = one.get(key).and_then(|value| value.as_str());
            value
                .map(str::to_owned)
                .with_context(|| format!("conformance/mutations.toml: a mutation without `{key}`: {one}"))
        };
        let ids = one.get("ids").and_then(|ids| ids.as_array()).context("a mutation without `ids`")?;
        let ids: Vec<String> = ids.iter().filter_map(|id| id.as_str()).map(str::to_owned).collect();
        if let Some(id) = ids.iter().find(|id| !known.contains(id.as_str())) {
            bail!("conformance/mutations.toml: no test names {id}");
        }
        mutations.push(Mutation {
            ids,
            file: field("file")?,
            find: field("find")?,
            replace: field("replace")?,
        });
    }
    Ok(mutations)
}

/// The ids of a mutation that no failing test names.
fn alive<'a>(
    mutation: &'a Mutation,
    failed: &[Test],
    tests: &BTreeMap<Test, BTreeSet<String>>,
) -> Vec<&'a str> {
    let killed = |id: &str| failed.iter().any(|test| tests.get(test).is_some_and(|ids| ids.contains(id)));
    mutation.ids.iter().map(String::as_str).filter(|id| !killed(id)).collect()
}

fn survived<'a>(verdict: &Verdict<'a>, tests: &BTreeMap<Test, BTreeSet<String>>) -> Vec<&'a str> {
    match &verdict.outcome {
        Outcome::Ran { failed, .. } => alive(verdict.mutation, failed, tests),
        Outcome::DoesNotApply | Outcome::DoesNotCompile(_) => alive(verdict.mutation, &[], tests),
    }
}

fn print(verdict: &Verdict<'_>, tests: &BTreeMap<Test, BTreeSet<String>>) {
    let Mutation { ids, file, .. } = verdict.mutation;
    let ids = ids.join(", ");
    match &verdict.outcome {
        Outcome::DoesNotApply => {
            println!("{ids}: DOES NOT APPLY: its text does not stand in {file} exactly once")
        }
        Outcome::DoesNotCompile(why) => println!("{ids}: DOES NOT COMPILE\n{why}"),
        Outcome::Ran { failed, passed } => {
            let survivors = survived(verdict, tests);
            let word = if survivors.is_empty() {
                "killed".to_owned()
            } else {
                format!("SURVIVED for {}", survivors.join(", "))
            };
            println!("{ids}: {word}");
            for test in failed {
                println!("  fails: {}", test.shown());
            }
            for test in passed {
                println!("  passes: {}", test.shown());
            }
        }
    }
}

fn in_json(verdicts: &[Verdict<'_>], tests: &BTreeMap<Test, BTreeSet<String>>) -> Value {
    let shown = |tests: &[Test]| tests.iter().map(Test::shown).collect::<Vec<_>>();
    verdicts
        .iter()
        .map(|verdict| {
            let (word, failed, passed) = match &verdict.outcome {
                Outcome::DoesNotApply => ("does not apply", vec![], vec![]),
                Outcome::DoesNotCompile(_) => ("does not compile", vec![], vec![]),
                Outcome::Ran { failed, passed } => {
                    let word = if survived(verdict, tests).is_empty() { "killed" } else { "survived" };
                    (word, shown(failed), shown(passed))
                }
            };
            json!({ "ids": verdict.mutation.ids, "file": verdict.mutation.file, "result": word, "failed": failed, "passed": passed })
        })
        .collect()
}

/// Adds the proofs of this run to `conformance/proved.tsv`, and removes those of the same ids that no longer hold.
fn record(root: &Path, verdicts: &[Verdict<'_>], tests: &BTreeMap<Test, BTreeSet<String>>) -> Result<()> {
    let path = root.join("conformance/proved.tsv");
    let mut proved = proved(&path);
    for verdict in verdicts {
        for id in &verdict.mutation.ids {
            proved.remove(id);
        }
    }
    for verdict in verdicts {
        let Outcome::Ran { failed, .. } = &verdict.outcome else { continue };
        for id in &verdict.mutation.ids {
            let naming = failed.iter().filter(|test| tests.get(test).is_some_and(|ids| ids.contains(id)));
            proved.entry(id.clone()).or_default().extend(naming.map(Test::shown));
        }
    }
    let mut text =
        "# Tests that failed when a rule was broken (cargo xtask mutate --record): id, tab, test.\n"
            .to_owned();
    for (id, tests) in &proved {
        for test in tests {
            text += &format!("{id}\t{test}\n");
        }
    }
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn proved(path: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in fs::read_to_string(path).unwrap_or_default().lines().filter(|line| !line.starts_with('#')) {
        if let Some((id, test)) = line.split_once('\t') {
            found.entry(id.to_owned()).or_default().insert(test.to_owned());
        }
    }
    found
}

/// Prints how many tests name several ids, and for how many of them each id is proved.
fn audit(root: &Path, tests: &BTreeMap<Test, BTreeSet<String>>, list: bool) -> Result<bool> {
    let proved = proved(&root.join("conformance/proved.tsv"));
    let is_proved =
        |test: &Test, id: &String| proved.get(id).is_some_and(|tests| tests.contains(&test.shown()));
    let mut several: Vec<(&Test, &BTreeSet<String>)> =
        tests.iter().filter(|(_, ids)| ids.len() > 1).collect();
    several.sort_by_key(|(_, ids)| std::cmp::Reverse(ids.len()));
    let (mut whole, mut part) = (0, 0);
    for (test, ids) in &several {
        let count = ids.iter().filter(|id| is_proved(test, id)).count();
        whole += usize::from(count == ids.len());
        part += usize::from(count > 0 && count < ids.len());
        if list {
            let open: Vec<&str> = ids.iter().filter(|id| !is_proved(test, id)).map(String::as_str).collect();
            println!("{:>3} ids, {count:>3} proved  {}  open: {}", ids.len(), test.shown(), open.join(" "));
        }
    }
    let named: BTreeSet<&String> = tests.values().flatten().collect();
    let rows = named.iter().filter(|id| proved.contains_key(**id)).count();
    println!(
        "tests that name ids: {}; ids named: {}, of which proved by mutation: {rows}",
        tests.len(),
        named.len()
    );
    println!("tests that name several ids: {}; all their ids proved: {whole}; some: {part}", several.len());
    Ok(true)
}
