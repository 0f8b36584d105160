//! What the tables in `conformance/` ask, and what tests prove.

mod report;
mod scan;
mod table;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};

use scan::Mention;
use table::{Rule, Table};

/// Where a row stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Status {
    /// Tests name it.
    Tested,
    /// No test is due, for this reason.
    Exempt(String),
    /// It belongs to this scope, which is not built yet.
    Later(String),
    /// It is due, and nothing proves it.
    Open,
}

impl Status {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Tested => "tested",
            Self::Exempt(_) => "exempt",
            Self::Later(_) => "later",
            Self::Open => "open",
        }
    }

    pub(crate) fn why(&self) -> &str {
        match self {
            Self::Exempt(why) | Self::Later(why) => why,
            Self::Tested | Self::Open => "",
        }
    }
}

/// A table with where each row stands, and where tests name it (`file:line`).
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
    json: bool,
    open: bool,
}

/// Prints the report; false if an id is unknown or, with `--check`, a due row is open.
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<bool> {
    let options = parse(args)?;
    let tables = table::load_all(&root.join("conformance"))?;
    let exempt = table::rules(&root.join("conformance/exempt.tsv"), &tables)?;
    let later = table::rules(&root.join("conformance/later.tsv"), &tables)?;
    let mentions = scan::workspace(root, &tables)?;

    let mut faults = Vec::new();
    for list in [&exempt, &later] {
        faults.extend(list.unknown.iter().cloned());
    }
    let mut proofs: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for mention in &mentions {
        match mention {
            Mention::Unknown { id, place } => faults.push(format!("{place}: {id} is in no table")),
            Mention::Proof { id, place } => proofs.entry(id).or_default().push(place.clone()),
        }
    }
    let standings: Vec<Standing> = tables
        .into_iter()
        .filter(|table| options.table.is_none_or(|name| name == table.name))
        .map(|table| stand(table, &exempt.rules, &later.rules, &proofs))
        .collect();
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
            "error: {open} rows of the scope are neither tested nor exempt (cargo xtask conformance --open)"
        );
    }
    Ok(faults.is_empty() && !(options.check && open > 0))
}

fn parse<'a>(args: &[&'a str]) -> Result<Options<'a>> {
    let mut options = Options::default();
    let mut args = args.iter().copied();
    while let Some(arg) = args.next() {
        match arg {
            "--check" => options.check = true,
            "--json" => options.json = true,
            "--open" => options.open = true,
            "--table" => options.table = Some(args.next().context("--table wants a name")?),
            "--why" => options.why = Some(args.next().context("--why wants an id")?),
            other => bail!("conformance has no option `{other}` (cargo xtask help)"),
        }
    }
    Ok(options)
}

/// A test outranks an exemption, an exemption outranks a later scope.
fn stand(
    table: Table,
    exempt: &BTreeMap<String, Rule>,
    later: &BTreeMap<String, Rule>,
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
