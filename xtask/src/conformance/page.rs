//! What docs/conformance.md says in numbers and lists: how many rows of each table have which status, what is not built, and
//! where this suite deviates. All of it is made from the files, so that no line of it can be older than the tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::report::WORDS;
use super::{Standing, Status};

/// The page with the numbers.
const PAGE: &str = "docs/conformance.md";

/// The lists stand between these lines and [`END`].
const NOT_BUILT: &str = "<!-- not built: made by cargo xtask conformance --update -->";
const DEVIATIONS: &str = "<!-- deviations: made by cargo xtask conformance --update -->";
const END: &str = "<!-- end of the list -->";

/// Reasons of `exempt.tsv` that begin so say that this suite does something else than the row demands.
const DEVIATION: &str = "deviation: ";

/// Writes the page anew, or reports that it differs from the files. `audited` are the ids whose tests were seen failing,
/// or were read.
pub(super) fn update(
    root: &Path,
    standings: &[Standing],
    audited: &BTreeSet<String>,
    write: bool,
) -> Result<Option<String>> {
    let path = root.join(PAGE);
    let old = fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
    let new = made(&old, standings, audited)?;
    if new == old {
        return Ok(None);
    }
    if write {
        fs::write(&path, new).with_context(|| format!("cannot write {PAGE}"))?;
        return Ok(None);
    }
    let stale = old.lines().zip(new.lines()).find(|(old, new)| old != new);
    let line = stale.map_or("its end", |(old, _)| old);
    Ok(Some(format!("{PAGE} differs from conformance/ (cargo xtask conformance --update writes it): {line}")))
}

/// The page with the numbers and lists of `standings`. All other text stays, also the description in the first cell of a row.
fn made(page: &str, standings: &[Standing], audited: &BTreeSet<String>) -> Result<String> {
    let mut left: BTreeMap<&str, &Standing> =
        standings.iter().map(|standing| (standing.table.name.as_str(), standing)).collect();
    let mut lists = BTreeMap::from([(NOT_BUILT, not_built(standings)), (DEVIATIONS, deviations(standings))]);
    let mut lines = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        inside &= line != END;
        if inside {
            continue;
        }
        lines.push(match table_of(line) {
            Some((name, first)) => {
                let standing = left
                    .remove(name)
                    .with_context(|| format!("{PAGE}: {name}.tsv stands twice, or is no table"))?;
                row(first, standing, audited)
            }
            None => line.to_owned(),
        });
        if let Some(list) = lists.remove(line) {
            inside = true;
            lines.extend(list);
        }
    }
    if let Some(name) = left.keys().next() {
        bail!("{PAGE}: no row begins with | `{name}.tsv`");
    }
    if inside || !lists.is_empty() {
        bail!("{PAGE}: each list stands between its line and `{END}`: {:?}", [NOT_BUILT, DEVIATIONS]);
    }
    Ok(lines.join("\n") + "\n")
}

/// The name of the table that a row of the page is about, and its first cell.
fn table_of(line: &str) -> Option<(&str, &str)> {
    let (first, _) = line.strip_prefix("| ")?.split_once(" | ")?;
    let (name, _) = first.strip_prefix('`')?.split_once(".tsv`")?;
    Some((name, first))
}

fn row(first: &str, standing: &Standing, audited: &BTreeSet<String>) -> String {
    let rows = standing.table.rows.iter().zip(&standing.status);
    let tested = rows.filter(|(_, status)| **status == Status::Tested);
    let audited = tested.filter(|(row, _)| audited.contains(&row.id)).count();
    let counts = WORDS.map(|word| standing.status.iter().filter(|status| status.word() == word).count());
    let cells: String = counts.iter().map(|count| format!(" | {count}")).collect();
    format!("| {first} | {}{cells} | {audited} |", standing.status.len())
}

/// One line for each feature that is not built, with the number of its rows in each table.
fn not_built(standings: &[Standing]) -> Vec<String> {
    let mut features: Vec<(&str, &str, usize)> = Vec::new();
    for standing in standings {
        for status in &standing.status {
            let Status::NotBuilt(feature) = status else { continue };
            let name = standing.table.name.as_str();
            match features.iter_mut().find(|(table, known, _)| *table == name && known == feature) {
                Some((.., rows)) => *rows += 1,
                None => features.push((name, feature, 1)),
            }
        }
    }
    let plural = |rows| if rows == 1 { "row" } else { "rows" };
    let line = |(table, feature, rows): (&str, &str, usize)| {
        format!("* `{table}.tsv`, {rows} {}: {feature}", plural(rows))
    };
    features.into_iter().map(line).collect()
}

/// One line for each row from which this suite deviates.
fn deviations(standings: &[Standing]) -> Vec<String> {
    let rows = standings.iter().flat_map(|standing| standing.table.rows.iter().zip(&standing.status));
    let line = |(row, status): (&super::table::Row, &Status)| match status {
        Status::Exempt(why) => Some(format!("* {}: {}", row.id, why.strip_prefix(DEVIATION)?)),
        Status::Tested | Status::NotBuilt(_) | Status::Later(_) | Status::Open => None,
    };
    rows.filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::super::table::{Row, Table};
    use super::*;

    fn standing() -> Standing {
        let row = |id: &str| Row { id: id.into(), level: "MUST".into(), requirement: String::new() };
        let rows: Vec<Row> = ["X-1-01", "X-1-02", "X-1-03", "X-1-04", "X-1-05", "X-1-06"].map(row).into();
        let without = || Status::NotBuilt("no wings".into());
        let exempt = |why: &str| Status::Exempt(why.into());
        Standing {
            table: Table { name: "x".into(), prefix: "X-".into(), rows },
            status: vec![
                Status::Tested,
                Status::Tested,
                without(),
                without(),
                exempt("binds others"),
                exempt("deviation: wheels"),
            ],
            proofs: Vec::new(),
            doubled: Vec::new(),
        }
    }

    fn page(row: &str, [features, deviations]: [&str; 2]) -> String {
        let table = format!("# A\n\n| table | rows |\n|---|---:|\n{row}\n\n");
        format!("{table}{NOT_BUILT}\n{features}{END}\nMore.\n{DEVIATIONS}\n{deviations}{END}\n")
    }

    fn made_of(page: &str) -> Result<String> {
        made(page, &[standing()], &BTreeSet::from(["X-1-02".to_owned(), "X-1-03".to_owned()]))
    }

    #[test]
    fn numbers_and_lists_are_those_of_the_files() {
        let stale = page("| `x.tsv` (RFC 1, 2) | 9 | 9 | 9 | 9 | 9 | 9 | 9 |", ["* wings\n* wheels\n", ""]);
        let right = page(
            "| `x.tsv` (RFC 1, 2) | 6 | 2 | 2 | 2 | 0 | 0 | 1 |",
            ["* `x.tsv`, 2 rows: no wings\n", "* X-1-06: wheels\n"],
        );
        assert_eq!(made_of(&stale).unwrap(), right);
        assert_eq!(made_of(&right).unwrap(), right);
    }

    #[test]
    fn every_table_has_one_row_on_the_page() {
        let one = "| `x.tsv` | 4 |";
        for wrong in [String::new(), format!("{one}\n{one}"), format!("{one}\n| `y.tsv` | 1 |")] {
            assert!(made_of(&page(&wrong, [""; 2])).is_err(), "{wrong}");
        }
        assert!(made_of(&page(one, [""; 2])).is_ok());
    }

    #[test]
    fn a_page_without_the_place_of_a_list_is_refused() {
        let page = page("| `x.tsv` | 4 |", [""; 2]);
        for line in [NOT_BUILT, DEVIATIONS] {
            assert!(made_of(&page.replace(line, "")).is_err(), "{line}");
        }
        assert!(made_of(page.trim_end().strip_suffix(END).unwrap()).is_err());
    }
}
