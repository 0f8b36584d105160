//! Which module of a crate may use which: the layers of ARCHITECTURE.md, compared with the paths in the sources.
//!
//! The check reads text: `crate::MODULE`, groups behind `crate::{`, and `super::` where it leads to the root of the crate. Tests
//! are covered as well.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The layers of a crate.
struct Layers {
    /// The directory of its sources.
    sources: &'static str,
    /// Modules of its root, the uppermost first. Each may use those behind it.
    layers: &'static [&'static str],
    /// Modules that use no layer, and that no layer uses.
    beside: &'static [&'static str],
}

/// The crates that have layers.
const CRATES: &[Layers] = &[Layers {
    sources: "crates/lab/src",
    layers: &["cli", "report", "judge", "run", "plan", "language", "protocols"],
    beside: &["replay"],
}];

/// Adds what breaks the layers to the faults. Returns a line for each crate that says what was found.
pub(crate) fn check(root: &Path, faults: &mut Vec<String>) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for layers in CRATES {
        let sources = root.join(layers.sources);
        let mut arrows = 0;
        for file in files(&sources)? {
            let name = file.strip_prefix(&sources)?.to_string_lossy().into_owned();
            let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            arrows += layers.judge(&name, &text, faults);
        }
        let (sources, number) = (layers.sources, layers.layers.len());
        lines.push(format!("{sources}: {number} layers, {arrows} uses of a lower layer by a file"));
    }
    Ok(lines)
}

impl Layers {
    /// Judges the uses of one file, whose name is relative to the sources. Returns the number of lower layers that it uses.
    fn judge(&self, file: &str, text: &str, faults: &mut Vec<String>) -> usize {
        let place = file.split('/').next().unwrap_or(file);
        let own = place.strip_suffix(".rs").unwrap_or(place);
        // The root itself declares all.
        if own == "lib" {
            return 0;
        }
        let rank = |module: &str| self.layers.iter().position(|layer| *layer == module);
        let beside = self.beside.contains(&own);
        let here = rank(own);
        if here.is_none() && !beside {
            faults.push(format!(
                "{}/{file}: `{own}` has no layer yet: add it to xtask/src/layers.rs and to ARCHITECTURE.md",
                self.sources
            ));
            return 0;
        }
        let mut lower = BTreeSet::new();
        for (line, module) in uses(text, depth(file)) {
            let allowed = match (here, rank(&module)) {
                _ if module == own => continue,
                (Some(here), Some(there)) => here < there,
                // Not a module of a layer: an item of the root, or what stands beside.
                (_, None) => !self.beside.contains(&module.as_str()),
                (None, Some(_)) => false,
            };
            if allowed {
                lower.extend(rank(&module));
            } else {
                faults.push(format!(
                    "{}/{file}:{line}: `{own}` uses `{module}`: not an arrow of the architecture; from the top, the layers are {}",
                    self.sources,
                    self.layers.join(", ")
                ));
            }
        }
        lower.len()
    }
}

/// The number of modules from the root of the crate to that of a file.
fn depth(file: &str) -> usize {
    let steps = file.split('/').count();
    if file.ends_with("/mod.rs") { steps - 1 } else { steps }
}

/// The modules of the root that a file names, each with its line. `depth` is how deep in the crate the file is.
fn uses(text: &str, depth: usize) -> Vec<(usize, String)> {
    let to_root = format!("use {}", "super::".repeat(depth));
    let mut found = Vec::new();
    let mut in_group = false;
    for (number, line) in (1..).zip(text.lines()) {
        let code = line.split("//").next().unwrap_or(line);
        if in_group {
            found.extend(first_words(code).map(|word| (number, word)));
            in_group = !code.contains("};");
            continue;
        }
        for (at, path) in code.match_indices("crate::") {
            // `$crate::` of a macro counts as well; `other_crate::` does not.
            if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
                continue;
            }
            let rest = &code[at + path.len()..];
            if let Some(group) = rest.strip_prefix('{') {
                found.extend(first_words(group).map(|word| (number, word)));
                in_group = !group.contains('}');
            } else {
                found.extend(word(rest).map(|word| (number, word)));
            }
        }
        if let Some(rest) = code.strip_prefix(&to_root) {
            found.extend(word(rest).map(|word| (number, word)));
        }
    }
    found
}

/// The first word of each path in a part of a group, whose own groups rustfmt writes in one line.
fn first_words(group: &str) -> impl Iterator<Item = String> {
    let mut inside = 0_usize;
    let mut paths = vec![String::new()];
    for c in group.chars() {
        match c {
            '{' => inside += 1,
            '}' if inside == 0 => break,
            '}' => inside -= 1,
            ',' if inside == 0 => paths.push(String::new()),
            c => {
                if let Some(path) = paths.last_mut() {
                    path.push(c);
                }
            }
        }
    }
    paths.into_iter().filter_map(|path| word(path.trim_start()))
}

/// The name at the beginning of a path, if it is that of a module.
fn word(path: &str) -> Option<String> {
    let word: String = path.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    (!word.is_empty() && word != "self" && word != "super").then_some(word)
}

/// All sources below a directory, in the order of their names.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYERS: Layers =
        Layers { sources: "x/src", layers: &["top", "middle", "ground"], beside: &["apart"] };

    fn judged(file: &str, text: &str) -> (usize, Vec<String>) {
        let mut faults = Vec::new();
        (LAYERS.judge(file, text, &mut faults), faults)
    }

    #[test]
    fn a_layer_uses_those_below_it() {
        let text = "use crate::ground::{A, B};\nuse crate::middle;\n// crate::top is above\nfn f() { crate::ground::g() }\n";
        assert_eq!(judged("top/mod.rs", text), (2, Vec::new()));
        assert_eq!(judged("lib.rs", "pub use crate::top::A;"), (0, Vec::new()));
        assert_eq!(judged("middle/x.rs", "use super::y;\nuse crate::middle::z;\n"), (0, Vec::new()));
    }

    #[test]
    fn an_arrow_up_is_a_fault_however_it_is_written() {
        for text in [
            "use crate::top::A;",
            "use crate::{ground, top::A};",
            "use crate::{\n    ground::{A, B},\n    top,\n};",
            "    let a = crate::top::a();",
            "use super::super::top;",
        ] {
            let (_, faults) = judged("middle/x.rs", text);
            let line = text.lines().position(|line| line.contains("top")).unwrap_or(0) + 1;
            assert!(
                matches!(&faults[..], [one] if one.starts_with(&format!("x/src/middle/x.rs:{line}: `middle` uses `top`"))),
                "{text}: {faults:?}"
            );
        }
        let (_, faults) = judged("middle.rs", "use super::top::A;");
        assert_eq!(faults.len(), 1, "{faults:?}");
    }

    #[test]
    fn what_stands_beside_uses_no_layer_and_no_layer_uses_it() {
        assert_eq!(judged("apart.rs", "use crate::ground::A;").1.len(), 1);
        assert_eq!(judged("top/x.rs", "use crate::apart::A;").1.len(), 1);
        assert_eq!(judged("apart/x.rs", "use super::y;\nuse crate::Summary;\n").1, Vec::<String>::new());
    }

    #[test]
    fn a_module_without_a_layer_is_a_fault() {
        let (_, faults) = judged("new.rs", "");
        assert!(matches!(&faults[..], [one] if one.contains("`new` has no layer yet")), "{faults:?}");
    }
}
