//! The report, for people and for programs.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::{Standing, Status};

const LEVELS: &[&str] =
    &["MUST", "MUST NOT", "FORMAT", "TIMER", "ERROR", "RULE", "SHOULD", "SHOULD NOT", "MAY-feature"];
const WORDS: &[&str] = &["tested", "exempt", "later", "open"];

/// Open rows of the levels that bind.
pub(crate) fn open_binding(standing: &Standing) -> usize {
    let rows = standing.table.rows.iter().zip(&standing.status);
    rows.filter(|(row, status)| row.binds() && **status == Status::Open).count()
}

fn counts(standing: &Standing, level: &str) -> [usize; 4] {
    let rows = standing.table.rows.iter().zip(&standing.status).filter(|(row, _)| row.level == level);
    rows.fold([0; 4], |mut counts, (_, status)| {
        let place = WORDS.iter().position(|word| *word == status.word()).unwrap_or(0);
        counts[place] += 1;
        counts
    })
}

pub(crate) fn text(standings: &[Standing], list_open: bool) {
    for standing in standings {
        println!("{} ({} rows)", standing.table.name, standing.table.rows.len());
        println!("  {:<12} {:>7} {:>7} {:>7} {:>7}", "level", "tested", "exempt", "later", "open");
        let mut total = [0; 4];
        for level in LEVELS {
            let counts = counts(standing, level);
            if counts.iter().sum::<usize>() == 0 {
                continue;
            }
            println!("  {:<12} {:>7} {:>7} {:>7} {:>7}", level, counts[0], counts[1], counts[2], counts[3]);
            for (sum, count) in total.iter_mut().zip(counts) {
                *sum += count;
            }
        }
        println!("  {:<12} {:>7} {:>7} {:>7} {:>7}", "all", total[0], total[1], total[2], total[3]);
        let mut scopes: BTreeMap<&str, usize> = BTreeMap::new();
        for status in &standing.status {
            if let Status::Later(scope) = status {
                *scopes.entry(scope).or_default() += 1;
            }
        }
        for (scope, count) in scopes {
            println!("  later: {count:>3} {scope}");
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

pub(crate) fn json(standings: &[Standing], faults: &[String]) {
    let tables: Vec<Value> = standings
        .iter()
        .map(|standing| {
            let levels: serde_json::Map<String, Value> = LEVELS
                .iter()
                .map(|level| (*level, counts(standing, level)))
                .filter(|(_, counts)| counts.iter().sum::<usize>() > 0)
                .map(|(level, [tested, exempt, later, open])| {
                    let counts = json!({"tested": tested, "exempt": exempt, "later": later, "open": open});
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

/// Where one row stands.
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
