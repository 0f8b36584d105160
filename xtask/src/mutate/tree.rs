//! Copies of the repository in which all mutations are compiled at once, each behind a switch that is read when the test
//! program starts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::constant;
use super::table::Mutation;

/// The environment variable with the number of the mutation that is on.
pub(super) const VARIABLE: &str = "SIGNALBOX_MUTANT";

/// The feature of a crate without which its tests on the real kernel are not compiled.
const KERNEL_TESTS: &str = "namespace-tests";

/// The function behind each switch; it is appended to `lib.rs`, or to `main.rs` of a program, where there are mutations.
const SWITCH: &str = r#"
#[doc(hidden)]
pub(crate) fn mutant(number: u64) -> bool {
    static ON: std::sync::OnceLock<Option<u64>> = std::sync::OnceLock::new();
    *ON.get_or_init(|| std::env::var("SIGNALBOX_MUTANT").ok()?.parse().ok()) == Some(number)
}
"#;

/// A copy of the repository with some of the mutations.
pub(super) struct Tree<'a> {
    root: PathBuf,
    /// Directory of compiled files; kept, so that the next run is faster.
    target: PathBuf,
    pub(super) mutations: Vec<&'a Mutation>,
}

/// A compiled test program.
pub(super) struct Program {
    pub(super) executable: PathBuf,
    /// The directory of its package, in which its tests run.
    pub(super) directory: PathBuf,
}

/// Compiled test programs by crate and name; `None` is the unit tests.
pub(super) type Programs = BTreeMap<(String, Option<String>), Program>;

/// Makes as few copies as possible, so that each mutation is in one of them. Mutations of the same text need several.
pub(super) fn plant<'a>(root: &Path, mutations: &'a [Mutation]) -> Result<Vec<Tree<'a>>> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let scratch = root.join(target).join("mutate");
    let list = git_files(root)?;
    let mut rest: Vec<&Mutation> = mutations.iter().collect();
    let mut trees: Vec<Tree<'a>> = Vec::new();
    while !rest.is_empty() {
        let mut texts: BTreeMap<&str, String> = BTreeMap::new();
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        for mutation in rest {
            let file = mutation.file.as_str();
            if !texts.contains_key(file) {
                let text =
                    fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"))?;
                texts.insert(file, text);
            }
            let Some(text) = texts.get_mut(file) else { continue };
            if text.matches(mutation.find.as_str()).count() == 1 {
                *text = text.replacen(&mutation.find, &mutation.switched(), 1);
                taken.push(mutation);
            } else {
                left.push(mutation);
            }
        }
        if taken.is_empty() {
            bail!("some mutations do not apply (cargo xtask mutate --check)");
        }
        let name = format!("tree-{}", trees.len() + 1);
        // Each has its own directory of compiled files: cargo does not distinguish copies of one package.
        let target = scratch.join(format!("target-{}", trees.len() + 1));
        let tree = Tree { root: scratch.join(name), target, mutations: taken };
        tree.write(root, &list, &texts)?;
        trees.push(tree);
        rest = left;
    }
    Ok(trees)
}

/// All files of the repository, with those that are not committed yet.
fn git_files(root: &Path) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let list = String::from_utf8(git.output().context("cannot run git ls-files")?.stdout)?;
    Ok(list.split('\0').filter(|file| !file.is_empty()).map(str::to_owned).collect())
}

impl Tree<'_> {
    /// Writes the copy. A file with unchanged content keeps its time, so that it is not compiled again.
    fn write(&self, root: &Path, list: &[String], texts: &BTreeMap<&str, String>) -> Result<()> {
        let old_list = self.root.with_extension("list");
        let files: BTreeSet<&str> = list.iter().map(String::as_str).collect();
        let before = fs::read_to_string(&old_list).unwrap_or_default();
        for gone in before.lines().filter(|line| !files.contains(line)) {
            let _ = fs::remove_file(self.root.join(gone));
        }
        let mut changed = BTreeMap::new();
        let crates: BTreeSet<&str> = self.mutations.iter().map(|mutation| mutation.krate()).collect();
        for krate in crates {
            changed.extend(sources(root, krate, &files, texts)?);
        }
        for &file in &files {
            let content = match changed.get(file) {
                Some(text) => text.clone().into_bytes(),
                None => match fs::read(root.join(file)) {
                    Ok(content) => content,
                    // Deleted, or a directory.
                    Err(_) => continue,
                },
            };
            let to = self.root.join(file);
            if fs::read(&to).is_ok_and(|old| old == content) {
                continue;
            }
            if let Some(parent) = to.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(&to, content).with_context(|| format!("cannot write {}", to.display()))?;
        }
        fs::write(&old_list, list.join("\n")).with_context(|| format!("cannot write {}", old_list.display()))
    }

    /// Compiles the test programs of `crates`, without optimisation: that compiles faster, and these tests are short.
    pub(super) fn build(&self, crates: &BTreeSet<&str>) -> Result<Programs> {
        let mut cargo = Command::new("cargo");
        cargo.args(["test", "--offline", "--no-run", "--tests"]);
        cargo.arg("--message-format=json-render-diagnostics");
        let mut names: BTreeMap<PathBuf, &str> = BTreeMap::new();
        for krate in crates {
            let directory = self.root.join("crates").join(krate);
            let (package, on_the_kernel) = package(&directory)?;
            if on_the_kernel {
                cargo.args(["--features", &format!("{package}/{KERNEL_TESTS}")]);
            }
            cargo.args(["-p", &package]);
            names.insert(directory, krate);
        }
        cargo.env("CARGO_TARGET_DIR", &self.target).env("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
        // The only warnings that mutations cause are of no interest.
        cargo.env("RUSTFLAGS", "--cap-lints=allow");
        let output = cargo.current_dir(&self.root).stderr(Stdio::inherit()).output();
        let output = output.context("cannot run cargo test")?;
        if !output.status.success() {
            bail!("the mutations of {} do not compile", self.root.display());
        }
        let mut programs = Programs::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
            let at = |path: &str| message.pointer(path).and_then(Value::as_str);
            let (Some(executable), Some(manifest)) = (at("/executable"), at("/manifest_path")) else {
                continue;
            };
            if message.pointer("/profile/test") != Some(&Value::Bool(true)) {
                continue;
            }
            let Some(directory) = Path::new(manifest).parent() else { continue };
            let Some(krate) = names.get(directory) else { continue };
            let program = (at("/target/kind/0") == Some("test")).then(|| at("/target/name")).flatten();
            let key = ((*krate).to_owned(), program.map(str::to_owned));
            let program = Program { executable: executable.into(), directory: directory.to_path_buf() };
            programs.insert(key, program);
        }
        Ok(programs)
    }
}

/// The source files of a crate with the switches.
fn sources(
    root: &Path,
    krate: &str,
    files: &BTreeSet<&str>,
    texts: &BTreeMap<&str, String>,
) -> Result<BTreeMap<String, String>> {
    let below = format!("crates/{krate}/src/");
    let mut sources = BTreeMap::new();
    for file in files.iter().filter(|file| file.starts_with(&below) && file.ends_with(".rs")) {
        let text = match texts.get(file) {
            Some(text) => text.clone(),
            None => fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"))?,
        };
        sources.insert((*file).to_owned(), text);
    }
    constant::remove(&mut sources, "mutant");
    let root = ["lib.rs", "main.rs"].map(|name| format!("{below}{name}"));
    if let Some(text) =
        root.into_iter().find(|name| sources.contains_key(name)).and_then(|name| sources.get_mut(&name))
    {
        text.push_str(SWITCH);
    }
    Ok(sources)
}

/// The name of a package, and whether it has tests on the real kernel.
fn package(directory: &Path) -> Result<(String, bool)> {
    let path = directory.join("Cargo.toml");
    let manifest = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let name = manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    let name = name.with_context(|| format!("{}: no name", path.display()))?;
    let on_the_kernel =
        manifest.lines().any(|line| line.split_once(" =").is_some_and(|(key, _)| key == KERNEL_TESTS));
    Ok((name.to_owned(), on_the_kernel))
}
