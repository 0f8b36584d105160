//! A copy of the tree in which rules are broken and tests run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::Mutation;
use super::named::Test;

/// Seconds that the tests of one program may take; a broken rule may well be an endless loop.
const TIMEOUT: &str = "600";

/// The result of a mutation.
pub(super) enum Outcome {
    /// The text to replace does not stand in the file exactly once.
    DoesNotApply,
    /// The end of what the compiler printed.
    DoesNotCompile(String),
    Ran {
        failed: Vec<Test>,
        passed: Vec<Test>,
    },
}

/// The copy.
pub(super) struct Tree {
    root: PathBuf,
    /// Directory of compiled files; kept, so that the next run is faster.
    target: PathBuf,
}

impl Test {
    /// Crate, program and path, as reports show them.
    pub(super) fn shown(&self) -> String {
        format!("{}/{} {}", self.krate, self.program.as_deref().unwrap_or("src"), self.path)
    }
}

impl Tree {
    /// Copies all files of the repository, with changes that are not committed.
    pub(super) fn copy(root: &Path) -> Result<Self> {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let scratch = root.join(target).join("mutate");
        let tree = Self { root: scratch.join("tree"), target: scratch.join("target") };
        let output = Command::new("git").args(["ls-files", "-z", "--cached"]).current_dir(root).output();
        let output = output.context("cannot run git ls-files")?;
        let list = String::from_utf8(output.stdout)?;
        for file in list.split('\0').filter(|file| !file.is_empty()) {
            let (from, to) = (root.join(file), tree.root.join(file));
            let Ok(content) = fs::read(&from) else { continue };
            // An unchanged file keeps its time, so that it is not compiled again.
            if fs::read(&to).is_ok_and(|old| old == content) {
                continue;
            }
            if let Some(dir) = to.parent() {
                fs::create_dir_all(dir)?;
            }
            fs::write(&to, content).with_context(|| format!("cannot write {}", to.display()))?;
        }
        Ok(tree)
    }

    /// Replaces `find` in `file`, runs `tests`, and restores the file. Tests of the changed crate come first; the others
    /// run only if these were not `enough`, because they make more crates compile again.
    pub(super) fn mutate(
        &self,
        mutation: &Mutation,
        tests: &[&Test],
        enough: impl Fn(&[Test]) -> bool,
    ) -> Result<Outcome> {
        let Mutation { file, find, replace, .. } = mutation;
        let path = self.root.join(file);
        let original = fs::read_to_string(&path).with_context(|| format!("cannot read {file}"))?;
        if original.matches(find.as_str()).count() != 1 {
            return Ok(Outcome::DoesNotApply);
        }
        fs::write(&path, original.replacen(find, replace, 1))?;
        let outcome = self.run_in_turn(file, tests, enough);
        fs::write(&path, original)?;
        outcome
    }

    fn run_in_turn(&self, file: &str, tests: &[&Test], enough: impl Fn(&[Test]) -> bool) -> Result<Outcome> {
        let own = |test: &Test| file.starts_with(&format!("crates/{}/", test.krate));
        let (own, others): (Vec<&Test>, Vec<&Test>) = tests.iter().partition(|test| own(test));
        let first = self.run(&own)?;
        let Outcome::Ran { mut failed, mut passed } = first else { return Ok(first) };
        if enough(&failed) {
            return Ok(Outcome::Ran { failed, passed });
        }
        let second = self.run(&others)?;
        let Outcome::Ran { failed: more_failed, passed: more_passed } = second else { return Ok(second) };
        failed.extend(more_failed);
        passed.extend(more_passed);
        Ok(Outcome::Ran { failed, passed })
    }

    fn run(&self, tests: &[&Test]) -> Result<Outcome> {
        let mut programs: BTreeMap<(&str, Option<&str>), Vec<&Test>> = BTreeMap::new();
        for test in tests {
            programs.entry((&test.krate, test.program.as_deref())).or_default().push(test);
        }
        let (mut failed, mut passed) = (Vec::new(), Vec::new());
        for ((krate, program), tests) in programs {
            let mut cargo = Command::new("timeout");
            cargo.args([TIMEOUT, "cargo", "test", "--offline", "-p"]).arg(self.package(krate)?);
            match program {
                Some(program) => cargo.args(["--test", program]),
                None => cargo.args(["--lib", "--bins"]),
            };
            if program == Some("namespace") {
                cargo.args(["--features", "namespace-tests"]);
            }
            cargo.args(["--", "--exact"]).args(tests.iter().map(|test| &test.path));
            // Without optimisation it compiles faster, and these tests are short.
            cargo.env("CARGO_TARGET_DIR", &self.target).env("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
            let output = cargo.current_dir(&self.root).output().context("cannot run cargo test")?;
            let text = String::from_utf8_lossy(&output.stdout);
            if !text.contains("running ") {
                let errors = String::from_utf8_lossy(&output.stderr).into_owned();
                let errors = errors.lines().filter(|line| !line.trim_start().starts_with("Compiling"));
                return Ok(Outcome::DoesNotCompile(errors.take(30).collect::<Vec<_>>().join("\n")));
            }
            for test in tests {
                if text.contains(&format!("test {} ... ok", test.path)) {
                    passed.push(test.clone());
                } else if output.status.success() {
                    bail!("{}: no such test ran", test.shown());
                } else {
                    // FAILED, or the program was killed or aborted before it printed a result.
                    failed.push(test.clone());
                }
            }
        }
        Ok(Outcome::Ran { failed, passed })
    }

    fn package(&self, krate: &str) -> Result<String> {
        let manifest = fs::read_to_string(self.root.join("crates").join(krate).join("Cargo.toml"))?;
        let name = manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        name.map(str::to_owned).with_context(|| format!("crates/{krate}/Cargo.toml: no name"))
    }
}
