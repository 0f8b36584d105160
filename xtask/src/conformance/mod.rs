//! The requirements in `conformance/`, and the tests that name them.

mod page;
mod report;
mod scan;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::mutate;
use scan::Mention;
pub(crate) use scan::TestRegion;
use table::{Rule, Table};

/// The status of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Status {
    /// Tests name it.
    Tested,
    /// No test is due, for this reason: the row binds others, or is a permission.
    Exempt(String),
    /// It belongs to this feature, which is not part of the suite.
    NotBuilt(String),
    /// It belongs to this scope, which is not built yet.
    Later(String),
    /// A test is due, and none names it.
    Open,
}

impl Status {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Tested => "tested",
            Self::Exempt(_) => "exempt",
            Self::NotBuilt(_) => "not built",
            Self::Later(_) => "later",
            Self::Open => "open",
        }
    }

    pub(crate) fn why(&self) -> &str {
        match self {
            Self::Exempt(why) | Self::NotBuilt(why) | Self::Later(why) => why,
            Self::Tested | Self::Open => "",
        }
    }
}

/// A table with the status of each row, and the places (`file:line`) where tests name it.
pub(crate) struct Standing {
    pub(crate) table: Table,
    pub(crate) status: Vec<Status>,
    pub(crate) proofs: Vec<Vec<String>>,
    /// Rows that are tested although the list exempts them, with the reason given there.
    pub(crate) doubled: Vec<(String, String)>,
}

#[derive(Default)]
struct Options<'a> {
    table: Option<&'a str>,
    why: Option<&'a str>,
    check: bool,
    update: bool,
    json: bool,
    open: bool,
}

/// Prints the report. Returns false if an id is unknown or, with `--check`, a row that is due is open or the page of the
/// documentation has other numbers.
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<bool> {
    let options = parse(args)?;
    let tables = table::load_all(&root.join("conformance"))?;
    let exempt = table::rules(&root.join("conformance/exempt.tsv"), &tables)?;
    let not_built = table::rules(&root.join("conformance/not-built.tsv"), &tables)?;
    let later = table::rules(&root.join("conformance/later.tsv"), &tables)?;
    let unbroken = table::rules(&root.join("conformance/unbroken.tsv"), &tables)?;
    let mentions = scan::workspace(root, &tables)?;

    let mut faults = Vec::new();
    for list in [&exempt, &not_built, &later, &unbroken] {
        faults.extend(list.unknown.iter().cloned());
    }
    let mut proofs: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for mention in &mentions {
        match mention {
            Mention::Unknown { id, place } => faults.push(format!("{place}: {id} is in no table")),
            Mention::Proof { id, place } => proofs.entry(id).or_default().push(place.clone()),
        }
    }
    let mut standings: Vec<Standing> = tables
        .into_iter()
        .map(|table| stand(table, [&exempt.rules, &not_built.rules, &later.rules], &proofs))
        .collect();
    if options.check || options.update {
        let mut audited = mutate::proved(root);
        audited.extend(unbroken.rules.into_keys());
        faults.extend(page::update(root, &standings, &audited, options.update)?);
    }
    standings.retain(|standing| options.table.is_none_or(|name| name == standing.table.name));
    if standings.is_empty() {
        bail!("no table {:?} in conformance/", options.table.unwrap_or("*.tsv"));
    }

    if let Some(id) = options.why {
        return report::why(&standings, id);
    }
    if options.json {
        report::json(&standings, &faults);
    } else {
        report::text(&standings, options.open);
        for (id, reason) in standings.iter().flat_map(|standing| &standing.doubled) {
            println!("warning: {id} is tested and exempt ({reason}): take it off conformance/exempt.tsv");
        }
        for fault in &faults {
            println!("error: {fault}");
        }
    }
    let open: usize = standings.iter().map(report::open_binding).sum();
    if options.check && open > 0 && !options.json {
        println!(
            "error: {open} rows of the scope have no test and no reason for it (cargo xtask conformance --open)"
        );
    }
    Ok(faults.is_empty() && !(options.check && open > 0))
}

/// The ids of `unbroken.tsv`: rules that no change of one expression breaks, so that their tests are audited by reading.
pub(crate) fn unbroken(root: &Path) -> Result<BTreeSet<String>> {
    let tables = table::load_all(&root.join("conformance"))?;
    Ok(table::rules(&root.join("conformance/unbroken.tsv"), &tables)?.rules.into_keys().collect())
}

/// All places where tests name ids: id and `file:line`.
pub(crate) fn proofs(root: &Path) -> Result<Vec<(String, String)>> {
    let tables = table::load_all(&root.join("conformance"))?;
    let mentions = scan::workspace(root, &tables)?;
    let proofs = mentions.into_iter().filter_map(|mention| match mention {
        Mention::Proof { id, place } => Some((id, place)),
        Mention::Unknown { .. } => None,
    });
    Ok(proofs.collect())
}

fn parse<'a>(args: &[&'a str]) -> Result<Options<'a>> {
    let mut options = Options::default();
    let mut args = args.iter().copied();
    while let Some(arg) = args.next() {
        match arg {
            "--check" => options.check = true,
            "--update" => options.update = true,
            "--json" => options.json = true,
            "--open" => options.open = true,
            "--table" => options.table = Some(args.next().context("--table needs a name")?),
            "--why" => options.why = Some(args.next().context("--why needs an id")?),
            other => bail!("conformance has no option `{other}` (cargo xtask help)"),
        }
    }
    Ok(options)
}

/// The status of each row: a test goes before the lists, and the lists in their order.
fn stand(
    table: Table,
    [exempt, not_built, later]: [&BTreeMap<String, Rule>; 3],
    proofs: &BTreeMap<&str, Vec<String>>,
) -> Standing {
    let mut status = Vec::new();
    let mut found = Vec::new();
    for row in &table.rows {
        let places = proofs.get(row.id.as_str()).cloned().unwrap_or_default();
        status.push(if !places.is_empty() {
            Status::Tested
        } else if let Some(rule) = exempt.get(&row.id) {
            Status::Exempt(rule.reason.clone())
        } else if let Some(rule) = not_built.get(&row.id) {
            Status::NotBuilt(rule.reason.clone())
        } else if let Some(rule) = later.get(&row.id) {
            Status::Later(rule.reason.clone())
        } else {
            Status::Open
        });
        found.push(places);
    }
    let doubled = table
        .rows
        .iter()
        .zip(&status)
        .filter(|(_, status)| **status == Status::Tested)
        .filter_map(|(row, _)| exempt.get(&row.id).map(|rule| (row.id.clone(), rule.reason.clone())))
        .collect();
    Standing { table, status, proofs: found, doubled }
}
