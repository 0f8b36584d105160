//! The table of mutations: `conformance/mutations/CRATE/PATH.toml` has those of `crates/CRATE/src/PATH.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Stands in `replace` for the switch of the mutation: an expression of type `bool`.
pub(super) const TOKEN: &str = "MUTANT";

/// A rule broken on purpose.
pub(super) struct Mutation {
    pub(super) ids: Vec<String>,
    pub(super) file: String,
    pub(super) find: String,
    pub(super) replace: String,
}

impl Mutation {
    /// The number that switches this mutation on. It depends on its content only, so that another mutation in the table
    /// does not make unchanged files compile again.
    pub(super) fn number(&self) -> u64 {
        let octets =
            [&self.file, &self.find, &self.replace].into_iter().flat_map(|text| text.bytes().chain([0]));
        // FNV-1a.
        octets.fold(0xcbf2_9ce4_8422_2325, |hash, octet| {
            (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    /// The directory of its crate below `crates/`.
    pub(super) fn krate(&self) -> &str {
        self.file.split('/').nth(1).unwrap_or_default()
    }

    /// Text that behaves as `find` while the mutation is off, and as `replace` while it is on.
    pub(super) fn switched(&self) -> String {
        let Self { find, replace, .. } = self;
        let call = format!("crate::mutant({:#x})", self.number());
        if replace.contains(TOKEN) {
            replace.replace(TOKEN, &call)
        } else if find.trim_end().ends_with([';', '}']) {
            format!("if {call} {{ {replace} }} else {{ {find} }}")
        } else {
            format!("(if {call} {{ {replace} }} else {{ {find} }})")
        }
    }
}

/// Reads all files of the table. `places` are the ids that tests name.
pub(super) fn load(root: &Path, places: &[(String, String)]) -> Result<Vec<Mutation>> {
    let known: BTreeSet<&str> = places.iter().map(|(id, _)| id.as_str()).collect();
    let directory = root.join("conformance/mutations");
    let mut paths = Vec::new();
    files_below(&directory, &mut paths)?;
    paths.sort();
    let mut mutations = Vec::new();
    for path in paths {
        let name = path.display();
        let below = path.strip_prefix(&directory).ok().and_then(Path::to_str).unwrap_or_default();
        let (krate, below) = below.split_once('/').with_context(|| format!("{name}: not below a crate"))?;
        let file = format!("crates/{krate}/src/{}.rs", below.trim_end_matches(".toml"));
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
        let table: toml::Table = text.parse().with_context(|| name.to_string())?;
        for one in table.get("mutation").and_then(|list| list.as_array()).into_iter().flatten() {
            let field = |key: &str| {
                let value = one.get(key).and_then(|value| value.as_str());
                value.map(str::to_owned).with_context(|| format!("{name}: a mutation without `{key}`: {one}"))
            };
            let ids = one.get("ids").and_then(|ids| ids.as_array());
            let ids = ids.with_context(|| format!("{name}: a mutation without `ids`: {one}"))?;
            let ids: Vec<String> = ids.iter().filter_map(|id| id.as_str()).map(str::to_owned).collect();
            if let Some(id) = ids.iter().find(|id| !known.contains(id.as_str())) {
                bail!("{name}: no test names {id}");
            }
            let (find, replace) = (field("find")?, field("replace")?);
            mutations.push(Mutation { ids, file: file.clone(), find, replace });
        }
    }
    Ok(mutations)
}

fn files_below(directory: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            files_below(&path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// Reports each mutation whose text does not stand in its file exactly once. Returns true if there is no such mutation.
pub(super) fn check(root: &Path, mutations: &[Mutation]) -> Result<bool> {
    let mut files: BTreeMap<&str, String> = BTreeMap::new();
    let mut faults = 0;
    for mutation in mutations {
        let file = mutation.file.as_str();
        if !files.contains_key(file) {
            files.insert(file, fs::read_to_string(root.join(file)).unwrap_or_default());
        }
        let count = files.get(file).map_or(0, |text| text.matches(mutation.find.as_str()).count());
        if count != 1 {
            faults += 1;
            println!(
                "{}: `find` stands {count} times in {file}; adapt the mutation to the code:\n{}",
                mutation.ids.join(", "),
                mutation.find.trim()
            );
        }
    }
    println!("{} mutations: {} apply, {faults} do not", mutations.len(), mutations.len() - faults);
    Ok(faults == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switched(find: &str, replace: &str) -> String {
        let mutation = Mutation {
            ids: Vec::new(),
            file: "crates/x/src/y.rs".into(),
            find: find.into(),
            replace: replace.into(),
        };
        let call = format!("crate::mutant({:#x})", mutation.number());
        mutation.switched().replace(&call, "ON")
    }

    #[test]
    fn a_mutation_is_behind_its_switch() {
        assert_eq!(switched("a + b", "a - b"), "(if ON { a - b } else { a + b })");
        assert_eq!(switched("a();", "b();"), "if ON { b(); } else { a(); }");
        assert_eq!(switched("if a {", "if a && !MUTANT {"), "if a && !ON {");
    }
}
