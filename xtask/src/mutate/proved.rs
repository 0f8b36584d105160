//! `conformance/proved.tsv`: the tests that failed when a rule was broken; and the counts of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::named::Test;
use super::table::Mutation;
use crate::conformance;

/// The tests, as reports show them, that prove each id.
pub(super) struct Proved(BTreeMap<String, BTreeSet<String>>);

impl Proved {
    pub(super) fn read(root: &Path) -> Self {
        let text = fs::read_to_string(root.join("conformance/proved.tsv")).unwrap_or_default();
        let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (id, test) in
            text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('\t'))
        {
            found.entry(id.to_owned()).or_default().insert(test.to_owned());
        }
        Self(found)
    }

    pub(super) fn into_ids(self) -> impl Iterator<Item = String> {
        self.0.into_keys()
    }

    pub(super) fn has(&self, id: &str, test: &Test) -> bool {
        self.0.get(id).is_some_and(|tests| tests.contains(&test.shown()))
    }

    pub(super) fn put(&mut self, id: &str, test: &Test, holds: bool) {
        let tests = self.0.entry(id.to_owned()).or_default();
        if holds {
            tests.insert(test.shown());
        } else {
            tests.remove(&test.shown());
        }
    }

    /// Writes the pairs of `tests` that are proved by one of `mutations`; a pair whose test or mutation is gone goes too.
    pub(super) fn write(
        &self,
        root: &Path,
        mutations: &[Mutation],
        tests: &BTreeMap<Test, BTreeSet<String>>,
    ) -> Result<()> {
        let mutated = mutated(mutations);
        let pairs = tests.iter().flat_map(|(test, ids)| ids.iter().map(move |id| (id, test)));
        let proved = pairs.filter(|(id, test)| mutated.contains(id.as_str()) && self.has(id, test));
        let lines: BTreeSet<String> = proved.map(|(id, test)| format!("{id}\t{}\n", test.shown())).collect();
        let mut text =
            "# Tests that failed when a rule was broken (cargo xtask mutate --record): id, tab, test.\n"
                .to_owned();
        text.extend(lines);
        fs::write(root.join("conformance/proved.tsv"), text).context("cannot write conformance/proved.tsv")
    }
}

fn mutated(mutations: &[Mutation]) -> BTreeSet<&str> {
    mutations.iter().flat_map(|mutation| &mutation.ids).map(String::as_str).collect()
}

/// Prints how many tests name several ids, and for how many of them each id is proved or, since no mutation can break its
/// rule, audited by reading.
pub(super) fn audit(
    root: &Path,
    mutations: &[Mutation],
    tests: &BTreeMap<Test, BTreeSet<String>>,
    list: bool,
) -> Result<bool> {
    let proved = Proved::read(root);
    let read = conformance::unbroken(root)?;
    let mutated = mutated(mutations);
    let mut several: Vec<(&Test, &BTreeSet<String>)> =
        tests.iter().filter(|(_, ids)| ids.len() > 1).collect();
    several.sort_by_key(|(_, ids)| std::cmp::Reverse(ids.len()));
    let (mut whole, mut part) = (0, 0);
    for (test, ids) in &several {
        let audited = |id: &&&String| proved.has(id, test) || read.contains(id.as_str());
        let (done, open): (Vec<&String>, Vec<&String>) = ids.iter().partition(|id| audited(&id));
        whole += usize::from(open.is_empty());
        part += usize::from(!done.is_empty() && !open.is_empty());
        if list && !open.is_empty() {
            // An id with a mutation that this test does not notice has an asterisk.
            let mark =
                |id: &&String| if mutated.contains(id.as_str()) { format!("{id}*") } else { (*id).clone() };
            let open: Vec<String> = open.iter().map(mark).collect();
            println!(
                "{:>3} ids, {:>3} audited  {}  open: {}",
                ids.len(),
                done.len(),
                test.shown(),
                open.join(" ")
            );
        }
    }
    let none = several.len() - whole - part;
    let mut by_id: BTreeMap<&str, Vec<&Test>> = BTreeMap::new();
    for (test, ids) in tests {
        for id in ids {
            by_id.entry(id).or_default().push(test);
        }
    }
    let is_proved = |(id, tests): &(&&str, &Vec<&Test>)| tests.iter().any(|test| proved.has(id, test));
    let rows = by_id.iter().filter(is_proved).count();
    let only_read = by_id.iter().filter(|row| !is_proved(row) && read.contains(*row.0)).count();
    println!("mutations: {}; ids that they break: {}", mutations.len(), mutated.len());
    println!(
        "ids that tests name: {}; proved by at least one test: {rows}; audited by reading: {only_read}",
        by_id.len()
    );
    println!(
        "tests that name several ids: {}; all their ids proved or read: {whole}; some: {part}; not one: {none}",
        several.len()
    );
    Ok(true)
}
