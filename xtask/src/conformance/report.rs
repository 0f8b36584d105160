//! The report, for people and for programs.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::{Standing, Status};

const LEVELS: &[&str] =
    &["MUST", "MUST NOT", "FORMAT", "TIMER", "ERROR", "RULE", "SHOULD", "SHOULD NOT", "MAY-feature"];
/// The words for the statuses, in the order of the columns.
pub(super) const WORDS: [&str; 5] = ["tested", "exempt", "not built", "later", "open"];

/// The number of open rows of levels that bind.
pub(crate) fn open_binding(standing: &Standing) -> usize {
    let rows = standing.table.rows.iter().zip(&standing.status);
    rows.filter(|(row, status)| row.binds() && **status == Status::Open).count()
}

fn counts(standing: &Standing, level: &str) -> [usize; 5] {
    let rows = standing.table.rows.iter().zip(&standing.status).filter(|(row, _)| row.level == level);
    rows.fold([0; 5], |mut counts, (_, status)| {
        let place = WORDS.iter().position(|word| *word == status.word()).unwrap_or(0);
        counts[place] += 1;
        counts
    })
}

/// A line of a table of counts.
fn line(name: &str, cells: [impl std::fmt::Display; 5]) -> String {
    let cells: String = cells.iter().map(|cell| format!(" {cell:>9}")).collect();
    format!("  {name:<12}{cells}")
}

/// Prints the counts of each table.
pub(crate) fn text(standings: &[Standing], list_open: bool) {
    for standing in standings {
        println!("{} ({} rows)", standing.table.name, standing.table.rows.len());
        println!("{}", line("level", WORDS));
        let mut total = [0; 5];
        for level in LEVELS {
            let counts = counts(standing, level);
            if counts.iter().sum::<usize>() == 0 {
                continue;
            }
            println!("{}", line(level, counts));
            for (sum, count) in total.iter_mut().zip(counts) {
                *sum += count;
            }
        }
        println!("{}", line("all", total));
        let mut scopes: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for status in &standing.status {
            if let Status::Later(scope) | Status::NotBuilt(scope) = status {
                *scopes.entry((status.word(), scope)).or_default() += 1;
            }
        }
        for ((word, scope), count) in scopes {
            println!("  {word}: {count:>3} {scope}");
        }
        if list_open {
            for (row, _) in rows_with(standing, &Status::Open) {
                println!("  open: {} [{}] {}", row.id, row.level, row.requirement);
            }
        }
    }
}

fn rows_with<'a>(
    standing: &'a Standing,
    wanted: &'a Status,
) -> impl Iterator<Item = (&'a super::table::Row, &'a Status)> {
    standing.table.rows.iter().zip(&standing.status).filter(move |(_, status)| *status == wanted)
}

/// Prints everything as one JSON object.
pub(crate) fn json(standings: &[Standing], faults: &[String]) {
    let tables: Vec<Value> = standings
        .iter()
        .map(|standing| {
            let levels: serde_json::Map<String, Value> = LEVELS
                .iter()
                .map(|level| (*level, counts(standing, level)))
                .filter(|(_, counts)| counts.iter().sum::<usize>() > 0)
                .map(|(level, [tested, exempt, not_built, later, open])| {
                    let counts = json!({
                        "tested": tested, "exempt": exempt, "not_built": not_built, "later": later, "open": open,
                    });
                    (level.to_owned(), counts)
                })
                .collect();
            let rows: Vec<Value> = (standing.table.rows.iter().zip(&standing.status))
                .zip(&standing.proofs)
                .map(|((row, status), proofs)| {
                    json!({"id": row.id, "level": row.level, "status": status.word(), "why": status.why(), "tests": proofs})
                })
                .collect();
            json!({"table": standing.table.name, "levels": levels, "open_binding": open_binding(standing), "rows": rows})
        })
        .collect();
    println!("{}", json!({"tables": tables, "faults": faults}));
}

/// Prints the status of one row and the tests that name it.
pub(crate) fn why(standings: &[Standing], id: &str) -> Result<bool> {
    for standing in standings {
        let rows = standing.table.rows.iter().zip(&standing.status).zip(&standing.proofs);
        for ((row, status), proofs) in rows {
            if row.id == id {
                println!(
                    "{} [{}] {}\n{} {}",
                    row.id,
                    row.level,
                    row.requirement,
                    status.word(),
                    status.why()
                );
                for place in proofs {
                    println!("  {place}");
                }
                return Ok(true);
            }
        }
    }
    bail!("{id} is in no table");
}
