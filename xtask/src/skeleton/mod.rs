//! The skeleton that all engine crates share: the same files, lints, signatures and source of time. A reader of one
//! engine finds the same things in the same places of another. An engine crate is one with `src/engine/mod.rs`.

mod arms;
mod logged;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Files that every engine crate has.
const FILES: &[&str] = &[
    "README.md",
    "clippy.toml",
    "src/lib.rs",
    "src/error.rs",
    "src/fuzz.rs",
    "src/wire/mod.rs",
    "src/engine/mod.rs",
    "src/engine/config.rs",
    "src/engine/counters.rs",
    "src/engine/io.rs",
    "src/engine/interfaces.rs",
    "src/engine/outbox.rs",
    "src/engine/view.rs",
    "tests/wire/main.rs",
    "tests/script/main.rs",
];

/// What `src/lib.rs` contains, without white space.
const LINTS: &str = "#![cfg_attr(not(test),warn(clippy::indexing_slicing,clippy::unwrap_used,clippy::expect_used,clippy::panic))]";

/// What `src/engine/mod.rs` contains, without white space; `|` separates alternatives.
const ENGINE: &[(&str, &str)] = &[
    ("new(config, seed)", "pubfnnew(config:Config,seed:[u8;32])->|pubfnnew(mutconfig:Config,seed:[u8;32])->"),
    (
        "handle(&mut self, now: Time, input: Input<'_>[, resources: &mut Resources or &mut dyn Admission])",
        "pubfnhandle(&mutself,now:Time,input:Input<'_>){|\
         pubfnhandle(&mutself,now:Time,input:Input<'_>,resources:&mutResources){|\
         pubfnhandle(&mutself,now:Time,input:Input<'_>,resources:&mutdynAdmission){",
    ),
    ("poll(&mut self) -> Option<Output<'_>>", "pubfnpoll(&mutself)->Option<Output<'_>>{"),
    ("next_deadline(&self) -> Option<Time>", "pubfnnext_deadline(&self)->Option<Time>{"),
    (
        "counters(&self) -> &Counters",
        "pubconstfncounters(&self)->&Counters{|pubfncounters(&self)->&Counters{",
    ),
    ("config(&self) -> &Config", "pubconstfnconfig(&self)->&Config{|pubfnconfig(&self)->&Config{"),
    ("self.now = self.now.max(now), the one place where time enters", "self.now=self.now.max(now);"),
];

/// What stands in which file of an engine, without white space; `|` separates alternatives.
const TYPES: &[(&str, &str, &str)] = &[
    ("src/engine/config.rs", "pub struct Config", "pubstructConfig"),
    ("src/engine/counters.rs", "signalbox_core::counters!", "counters!{"),
    ("src/engine/io.rs", "pub enum Input", "pubenumInput"),
    // An application of GIST has the outputs of `core::outputs`.
    ("src/engine/io.rs", "pub enum Output, or pub type Output", "pubenumOutput|pubtypeOutput"),
];

/// Files with catch-all arms that are right.
const EXCEPT: &[&str] = &[
    // The events are those of the SCTP library, which may add some.
    "crates/transport/src/sctp/link.rs",
    // A fuzz target ignores most outputs.
    "crates/rsvp/src/fuzz/engine.rs",
];

/// Checks every engine crate, and catch-all arms everywhere, and the log about dropped messages. Prints each fault; returns true if there is none.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let mut faults = Vec::new();
    let crates = directories(&root.join("crates"))?;
    let engines: Vec<&PathBuf> = crates.iter().filter(|dir| dir.join("src/engine/mod.rs").exists()).collect();
    let mut lints_of_first = None;
    for dir in &engines {
        faults.extend(engine(dir)?.into_iter().map(|fault| format!("{}: {fault}", name(dir))));
        let lints = fs::read_to_string(dir.join("clippy.toml")).unwrap_or_default();
        let first = lints_of_first.get_or_insert_with(|| lints.clone());
        if lints != *first {
            faults.push(format!("{}: clippy.toml differs from that of other engines", name(dir)));
        }
    }
    let mut sources = 0;
    for dir in crates.iter().filter(|dir| logged::CRATES.contains(&name(dir).as_str())) {
        let files = rust_files(&dir.join("src"))?;
        let read = |path: &PathBuf| {
            let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            Ok((path.strip_prefix(dir).unwrap_or(path).display().to_string(), text))
        };
        let texts = files.iter().map(read).collect::<Result<Vec<_>>>()?;
        faults.extend(logged::faults(&texts).into_iter().map(|fault| format!("{}: {fault}", name(dir))));
    }
    for dir in &crates {
        for path in rust_files(&dir.join("src"))? {
            let text =
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let shown = path.strip_prefix(root).unwrap_or(&path);
            if EXCEPT.iter().any(|except| shown == Path::new(except)) {
                continue;
            }
            let shown = shown.display();
            faults.extend(arms::catch_all(&text).into_iter().map(|line| {
                format!("{shown}:{line}: a catch-all arm in a match over events, inputs or outputs; name the variants")
            }));
            sources += 1;
        }
    }
    for fault in &faults {
        println!("skeleton: {fault}");
    }
    if faults.is_empty() {
        println!(
            "skeleton: {} engines have the same, {sources} source files have no catch-all, {} engines log what they drop",
            engines.len(),
            logged::CRATES.len()
        );
    }
    Ok(faults.is_empty())
}

fn engine(dir: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for file in FILES {
        if !dir.join(file).exists() {
            faults.push(format!("{file} is missing"));
        }
    }
    let lib = fs::read_to_string(dir.join("src/lib.rs")).context("an engine crate without src/lib.rs")?;
    if !dense(&lib).contains(LINTS) {
        faults.push("src/lib.rs: the lint attributes of engines are missing".to_owned());
    }
    // The documentation of the crate includes the README, so that a test compiles its example.
    if !lib.contains(r#"include_str!("../README.md")"#) {
        faults.push("src/lib.rs: it does not include README.md".to_owned());
    }
    if fs::read_to_string(dir.join("README.md")).is_ok_and(|readme| !has_example(&readme)) {
        faults.push("README.md: it has no example that is compiled".to_owned());
    }
    let engine = dense(&fs::read_to_string(dir.join("src/engine/mod.rs"))?);
    for (shown, wanted) in ENGINE {
        if !wanted.split('|').any(|one| engine.contains(one)) {
            faults.push(format!("src/engine/mod.rs: wanted {shown}"));
        }
    }
    for (file, shown, wanted) in TYPES {
        let text = fs::read_to_string(dir.join(file)).unwrap_or_default();
        let text = dense(&text);
        if !text.is_empty() && !wanted.split('|').any(|wanted| text.contains(wanted)) {
            faults.push(format!("{file}: wanted {shown}"));
        }
    }
    Ok(faults)
}

/// Whether a page has a block of code that rustdoc compiles: one of Rust, which a block without a language is, too.
fn has_example(page: &str) -> bool {
    let mut inside = false;
    page.lines().filter_map(|line| line.strip_prefix("```")).any(|words| {
        inside = !inside;
        inside
            && words.split([',', ' ']).all(|word| {
                matches!(word.trim(), "" | "rust" | "no_run" | "should_panic") || word.starts_with("edition")
            })
    })
}

/// A text without white space, so that the layout does not matter.
fn dense(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect::<String>().replace(",)", ")")
}

fn name(dir: &Path) -> String {
    dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn directories(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn rust_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(dir) else { return Ok(found) };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            if !path.ends_with("tests") {
                found.extend(rust_files(&path)?);
            }
        } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_is_one_that_is_compiled() {
        for compiled in ["", "rust", "rust,no_run", "no_run", "rust,edition2024"] {
            assert!(has_example(&format!("# A\n\n```{compiled}\nlet a = 1;\n```\n")), "{compiled}");
        }
        for other in ["text", "toml", "rust,ignore", "compile_fail"] {
            assert!(!has_example(&format!("# A\n\n```{other}\nlet a = 1;\n```\n")), "{other}");
        }
        assert!(!has_example("# A\n"));
    }
}
