//! Licences, sources and bans of all dependencies, by the rules of `deny.toml`. cargo-deny (`make deny`) checks the same
//! and advisories too, but takes minutes to install; this check takes a second.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::metadata::{self, list, text};

/// The only registry that dependencies may come from, as Cargo names it.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

struct Rules {
    allowed: Vec<String>,
    /// Crate, and the reason.
    banned: BTreeMap<String, String>,
}

/// Checks all packages and prints each fault. Returns true if there is none.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let text = fs::read_to_string(root.join("deny.toml")).context("cannot read deny.toml")?;
    let rules = rules(&text)?;
    let mut faults = Vec::new();
    let mut checked = BTreeMap::new();
    for target in metadata::TARGETS {
        let metadata = metadata::read(root, target)?;
        let in_graph: Vec<&str> =
            list(&metadata["resolve"], "nodes").filter_map(|n| n["id"].as_str()).collect();
        for package in list(&metadata, "packages") {
            let id = metadata::text(package, "id")?;
            if in_graph.contains(&id) && checked.insert(id.to_owned(), ()).is_none() {
                check(package, &rules, &mut faults)?;
            }
        }
    }
    for fault in &faults {
        println!("licences: {fault}");
    }
    if faults.is_empty() {
        println!("licences: {} packages, all from one registry, licences allowed", checked.len());
    }
    Ok(faults.is_empty())
}

fn rules(text: &str) -> Result<Rules> {
    let deny: toml::Table = text.parse().context("deny.toml")?;
    let allowed =
        deny.get("licenses").and_then(|section| section.get("allow")).and_then(|allow| allow.as_array());
    let allowed = allowed.context("deny.toml: no licenses.allow")?;
    let banned = deny.get("bans").and_then(|section| section.get("deny")).and_then(|deny| deny.as_array());
    let field =
        |ban: &toml::Value, key: &str| ban.get(key).and_then(|v| v.as_str()).unwrap_or_default().to_owned();
    Ok(Rules {
        allowed: allowed.iter().filter_map(|name| name.as_str()).map(str::to_owned).collect(),
        banned: banned.into_iter().flatten().map(|ban| (field(ban, "crate"), field(ban, "reason"))).collect(),
    })
}

fn check(package: &Value, rules: &Rules, faults: &mut Vec<String>) -> Result<()> {
    let name = format!("{} {}", text(package, "name")?, text(package, "version")?);
    match package["source"].as_str() {
        // A member of the workspace.
        None | Some(REGISTRY) => {}
        Some(other) => faults.push(format!("{name} comes from {other}")),
    }
    if let Some(reason) = rules.banned.get(text(package, "name")?) {
        faults.push(format!("{name} is banned: {reason}"));
    }
    match package["license"].as_str() {
        None => faults.push(format!("{name} names no licence")),
        Some(expression) => match permits(expression, &rules.allowed) {
            Ok(true) => {}
            Ok(false) => {
                faults.push(format!("{name} has the licence {expression}, which deny.toml does not allow"))
            }
            Err(error) => faults.push(format!("{name}: {error:#}")),
        },
    }
    Ok(())
}

/// Whether the allowed licences satisfy an SPDX expression; `/` is an old way to write OR.
fn permits(expression: &str, allowed: &[String]) -> Result<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, allowed };
    let result = parser.any()?;
    if !parser.words.is_empty() {
        bail!("the licence {expression:?} is no SPDX expression");
    }
    Ok(result)
}

struct Parser<'a> {
    words: &'a [&'a str],
    allowed: &'a [String],
}

impl Parser<'_> {
    fn takes(&mut self, word: &str) -> bool {
        let found = self.words.first() == Some(&word);
        if found {
            self.words = &self.words[1..];
        }
        found
    }

    fn any(&mut self) -> Result<bool> {
        let mut result = self.all()?;
        while self.takes("OR") {
            result |= self.all()?;
        }
        Ok(result)
    }

    fn all(&mut self) -> Result<bool> {
        let mut result = self.one()?;
        while self.takes("AND") {
            result &= self.one()?;
        }
        Ok(result)
    }

    fn one(&mut self) -> Result<bool> {
        if self.takes("(") {
            let result = self.any()?;
            if !self.takes(")") {
                bail!("a licence expression lacks a parenthesis");
            }
            return Ok(result);
        }
        let Some((name, rest)) = self.words.split_first() else {
            bail!("a licence expression ends too early")
        };
        self.words = rest;
        let mut result = self.allowed.iter().any(|one| one == name);
        if self.takes("WITH") {
            // An exception makes another licence of it, which would have to be allowed as a whole.
            let exception = self.words.first().copied().unwrap_or_default();
            self.words = self.words.get(1..).unwrap_or_default();
            result = self.allowed.iter().any(|one| *one == format!("{name} WITH {exception}"));
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permitted(expression: &str) -> Option<bool> {
        permits(expression, &["MIT".to_owned(), "Apache-2.0".to_owned()]).ok()
    }

    #[test]
    fn one_alternative_must_be_allowed_as_a_whole() {
        for (expression, expected) in [
            ("MIT", Some(true)),
            ("GPL-3.0", Some(false)),
            ("GPL-3.0 OR MIT", Some(true)),
            ("GPL-3.0/MIT", Some(true)),
            ("MIT AND GPL-3.0", Some(false)),
            ("(MIT OR GPL-3.0) AND Apache-2.0", Some(true)),
            ("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT", Some(true)),
            ("Apache-2.0 WITH LLVM-exception", Some(false)),
            ("MIT MIT", None),
            ("(MIT", None),
            ("", None),
        ] {
            assert_eq!(permitted(expression), expected, "{expression}");
        }
    }

    #[test]
    fn the_rules_come_from_the_file_of_cargo_deny() {
        let rules =
            rules("[licenses]\nallow = [\"MIT\"]\n[bans]\ndeny = [{ crate = \"x\", reason = \"y\" }]")
                .unwrap();
        assert_eq!((rules.allowed.len(), rules.banned["x"].as_str()), (1, "y"));
        let package = |source: &str, license: &str| serde_json::json!({ "name": "x", "version": "1", "source": source, "license": license });
        let faults = |package| {
            let mut faults = Vec::new();
            check(&package, &rules, &mut faults).unwrap();
            faults
        };
        assert_eq!(faults(package(REGISTRY, "MIT")), ["x 1 is banned: y"]);
        assert_eq!(faults(package("git+https://example.org/x", "ISC")).len(), 3);
    }
}
