//! The libraries for others: whether a registry takes each of them, and in which order.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::metadata::{self, list, text};

/// What a registry, or a reader of it, asks for in a manifest.
const FIELDS: [&str; 7] =
    ["description", "license", "repository", "rust_version", "readme", "keywords", "categories"];
/// The texts of the licences are in each package, beside its manifest.
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// A library that is published.
struct Library<'a> {
    name: &'a str,
    /// The libraries of ours that have to be in the registry before it.
    needs: BTreeSet<&'a str>,
}

/// Checks all libraries and prints each fault, or else their order. Returns true if there is no fault.
pub(crate) fn run(root: &Path, options: &[&str]) -> Result<bool> {
    let names_only = match options {
        [] => false,
        ["--names"] => true,
        other => bail!("unknown options {other:?}; there is --names"),
    };
    let metadata = metadata::read(root, metadata::TARGETS[0])?;
    let ours: Vec<&Value> =
        list(&metadata, "packages").filter(|package| package["source"].is_null()).collect();
    let mut faults = Vec::new();
    for package in ours.iter().filter(|package| is_published(package)) {
        let manifest = Path::new(text(package, "manifest_path")?);
        let folder = manifest.parent().context("a manifest has a folder")?;
        for file in LICENCES.iter().filter(|file| !folder.join(file).is_file()) {
            faults.push(format!("{}: no {file} in its folder", text(package, "name")?));
        }
    }
    let names = in_order(libraries(&ours, &mut faults)?, &mut faults);
    for fault in &faults {
        eprintln!("crates: {fault}");
    }
    if faults.is_empty() {
        if names_only {
            names.iter().for_each(|name| println!("{name}"));
        } else {
            println!("crates: {} libraries for a registry, in this order: {}", names.len(), names.join(", "));
        }
    }
    Ok(faults.is_empty())
}

/// Whether a package may go to a registry; the list of registries is empty for those that may not.
fn is_published(package: &Value) -> bool {
    package["publish"].as_array().is_none_or(|registries| !registries.is_empty())
}

/// The published ones among our packages, and what is missing in their manifests.
fn libraries<'a>(ours: &[&'a Value], faults: &mut Vec<String>) -> Result<Vec<Library<'a>>> {
    let mut libraries = Vec::new();
    for package in ours.iter().filter(|package| is_published(package)) {
        let name = text(package, "name")?;
        let is_empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        for field in FIELDS.iter().filter(|field| is_empty(&package[**field])) {
            faults.push(format!("{name}: no {field}"));
        }
        let mut needs = BTreeSet::new();
        for dependency in list(package, "dependencies") {
            let used = text(dependency, "name")?;
            let Some(other) = ours.iter().find(|one| one["name"] == used) else { continue };
            let asked = text(dependency, "req")?;
            // Cargo leaves a dependency of tests that has a path and no version out of the package.
            if dependency["kind"] == "dev" && asked == "*" {
                continue;
            }
            if !is_published(other) {
                faults.push(format!("{name} needs {used}, which is not published"));
            } else if asked != format!("^{}", text(other, "version")?) {
                faults.push(format!(
                    "{name} needs {used} {asked}, which is not the version of this workspace: write that into Cargo.toml"
                ));
            } else {
                needs.insert(used);
            }
        }
        libraries.push(Library { name, needs });
    }
    Ok(libraries)
}

/// The names, each after those that it needs.
fn in_order<'a>(mut libraries: Vec<Library<'a>>, faults: &mut Vec<String>) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    while let Some(at) = libraries.iter().position(|one| one.needs.iter().all(|need| names.contains(need))) {
        names.push(libraries.remove(at).name);
    }
    faults.extend(
        libraries.iter().map(|one| format!("{} comes after no other: it needs {:?}", one.name, one.needs)),
    );
    names
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A package as `cargo metadata` describes it, with dependencies: name, version that is asked for, kind.
    fn package(name: &str, publish: &Value, needs: &[(&str, &str, &str)]) -> Value {
        let dependency = |(name, req, kind): &(&str, &str, &str)| {
            let kind = if kind.is_empty() { Value::Null } else { json!(kind) };
            json!({ "name": name, "req": req, "kind": kind })
        };
        json!({
            "name": name, "version": "0.2.0", "publish": publish, "description": "d", "license": "MIT",
            "repository": "r", "rust_version": "1.88", "readme": "README.md", "keywords": ["k"], "categories": ["c"],
            "dependencies": needs.iter().map(dependency).collect::<Vec<_>>(),
        })
    }

    /// The order of the published ones, and the faults.
    fn judged(packages: &[Value]) -> (Vec<&str>, Vec<String>) {
        let mut faults = Vec::new();
        let libraries = libraries(&packages.iter().collect::<Vec<_>>(), &mut faults).unwrap();
        let names = in_order(libraries, &mut faults);
        (names, faults)
    }

    #[test]
    fn a_library_comes_after_those_it_needs() {
        let (yes, no) = (Value::Null, json!([]));
        let packages = [
            package("engine", &yes, &[("core", "^0.2.0", ""), ("ring", "^0.17", ""), ("sim", "*", "dev")]),
            package("core", &yes, &[("wire", "^0.2.0", "")]),
            package("sim", &no, &[("core", "^0.2.0", "")]),
            package("wire", &yes, &[]),
        ];
        assert_eq!(judged(&packages), (vec!["wire", "core", "engine"], vec![]));
    }

    #[test]
    fn what_a_registry_refuses_is_a_fault() {
        let (yes, no) = (Value::Null, json!([]));
        for (needs, fault) in [
            (("wire", "*", ""), "engine needs wire *, which is not the version"),
            (("wire", "^0.1.0", ""), "engine needs wire ^0.1.0, which is not the version"),
            (("wire", "^0.2.0", "dev"), ""),
            (("sim", "^0.2.0", ""), "engine needs sim, which is not published"),
            (("sim", "^0.2.0", "dev"), "engine needs sim, which is not published"),
        ] {
            let packages =
                [package("wire", &yes, &[]), package("sim", &no, &[]), package("engine", &yes, &[needs])];
            let (_, faults) = judged(&packages);
            assert_eq!(faults.is_empty(), fault.is_empty(), "{needs:?}: {faults:?}");
            assert!(faults.first().is_none_or(|first| first.starts_with(fault)), "{needs:?}: {faults:?}");
        }
        let mut bare = package("wire", &yes, &[]);
        bare["keywords"] = json!([]);
        bare["readme"] = Value::Null;
        assert_eq!(judged(&[bare]).1, ["wire: no readme", "wire: no keywords"]);
        let circle = [package("a", &yes, &[("b", "^0.2.0", "")]), package("b", &yes, &[("a", "^0.2.0", "")])];
        assert_eq!(judged(&circle).1.len(), 2);
    }
}
