//! Tables of requirements, and lists of rows that need no test, or not yet.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// One requirement.
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) level: String,
    pub(crate) requirement: String,
}

impl Row {
    /// The level binds every implementation that has the feature: the check fails on such rows.
    pub(crate) fn binds(&self) -> bool {
        matches!(self.level.as_str(), "MUST" | "MUST NOT" | "FORMAT" | "TIMER" | "ERROR" | "RULE")
    }
}

/// One file of requirements.
pub(crate) struct Table {
    /// The file's name without `.tsv`.
    pub(crate) name: String,
    /// The common prefix of the ids, such as `GIST-`.
    pub(crate) prefix: String,
    pub(crate) rows: Vec<Row>,
}

/// The reason why a row needs no test, or not yet.
pub(crate) struct Rule {
    pub(crate) reason: String,
}

/// A list of such rows, by id.
pub(crate) struct Rules {
    pub(crate) rules: BTreeMap<String, Rule>,
    /// Lines whose ids are in no table.
    pub(crate) unknown: Vec<String>,
}

/// Files in `conformance/` that are lists, not tables of requirements.
const LISTS: [&str; 5] = ["exempt", "later", "not-built", "proved", "unbroken"];

/// Reads every table of a directory.
pub(crate) fn load_all(dir: &Path) -> Result<Vec<Table>> {
    let mut tables = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default().to_owned();
        if path.extension().is_some_and(|e| e == "tsv") && !LISTS.contains(&name.as_str()) {
            tables.push(load(&path, name)?);
        }
    }
    tables.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tables)
}

fn load(path: &Path, name: String) -> Result<Table> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut rows = Vec::new();
    for (number, line) in text.lines().enumerate().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [id, _section, level, _actor, requirement, _how] = fields.as_slice() else {
            bail!("{}:{}: {} fields, not 6", path.display(), number + 1, fields.len());
        };
        rows.push(Row { id: (*id).into(), level: (*level).into(), requirement: (*requirement).into() });
    }
    let first = rows.first().with_context(|| format!("{} has no rows", path.display()))?;
    let prefix = first.id.split_inclusive('-').next().unwrap_or_default().to_owned();
    Ok(Table { name, prefix, rows })
}

/// Reads `id<TAB>reason` lines; an id may end in `*` for all ids with this beginning. `#` starts a comment line.
pub(crate) fn rules(path: &Path, tables: &[Table]) -> Result<Rules> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut found = Rules { rules: BTreeMap::new(), unknown: Vec::new() };
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let place = format!("{}:{}", path.file_name().unwrap_or_default().to_string_lossy(), number + 1);
        let Some((pattern, reason)) = line.split_once('\t').filter(|(_, reason)| !reason.trim().is_empty())
        else {
            bail!("{place}: a line is an id, a tab and a reason");
        };
        let hits: Vec<&Row> =
            tables.iter().flat_map(|table| &table.rows).filter(|row| covers(pattern, &row.id)).collect();
        if hits.is_empty() {
            found.unknown.push(format!("{place}: {pattern} is in no table"));
        }
        for row in hits {
            found.rules.insert(row.id.clone(), Rule { reason: reason.trim().to_owned() });
        }
    }
    Ok(found)
}

fn covers(pattern: &str, id: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == id, |start| id.starts_with(start))
}
