//! Which module of a crate may use which: the layers of ARCHITECTURE.md, compared with the paths in the sources.
//!
//! The check reads the paths of `crate`, and those of `super` that lead to the root of the crate, wherever they stand. Tests are covered as
//! well.

mod paths;

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
        for (line, module) in paths::items_of_root(text, depth(file)) {
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
            "    let a = super::super::top::a();",
            "fn f(a: &super::super::top::A) {}",
            "mod tests {\n    use super::super::super::top;\n}",
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
        let (_, faults) = judged("middle/mod.rs", "fn f() -> super::top::A { super::ground::a() }");
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
