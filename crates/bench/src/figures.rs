//! Figures that were measured several times: a row for each thing that is compared, with medians and spread.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::{median, rounded};

/// A figure of each run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    /// Its name in JSON.
    pub(super) key: &'static str,
    /// Its head in the table; empty: it is not there.
    pub(super) head: &'static str,
    /// Digits after the point in the table.
    pub(super) digits: usize,
}

impl Column {
    /// Returns a column of numbers without digits after the point.
    pub(super) const fn whole(key: &'static str, head: &'static str) -> Self {
        Self { key, head, digits: 0 }
    }

    /// Returns a column of nanoseconds.
    pub(super) const fn ns(key: &'static str, head: &'static str) -> Self {
        Self::whole(key, head)
    }

    /// Returns a column of microseconds.
    pub(super) const fn micros(key: &'static str, head: &'static str) -> Self {
        Self { key, head, digits: 1 }
    }

    /// Returns a column of octets.
    pub(super) const fn octets(key: &'static str, head: &'static str) -> Self {
        Self { key, head, digits: 1 }
    }
}

/// All runs of one thing that is measured.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) name: String,
    /// The figures in the order of the columns, those of all runs in the order of the runs. A figure that a row does not
    /// have is not a number.
    figures: Vec<Vec<f64>>,
}

impl Row {
    pub(super) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), figures: Vec::new() }
    }

    /// Adds the figures of a run.
    pub(super) fn add(&mut self, run: &[f64]) {
        self.figures.resize(run.len(), Vec::new());
        for (all, figure) in self.figures.iter_mut().zip(run) {
            all.push(*figure);
        }
    }

    /// Returns the median of each figure.
    pub(super) fn medians(&self) -> Vec<f64> {
        self.figures.iter().map(|all| median(all.iter().copied())).collect()
    }

    /// Returns the median of the figure in this column.
    pub(super) fn median(&self, columns: &[Column], key: &str) -> f64 {
        let at = columns.iter().position(|column| column.key == key);
        at.and_then(|at| self.figures.get(at)).map_or(f64::NAN, |all| median(all.iter().copied()))
    }

    /// Returns the least and the largest value of each figure.
    fn spread(&self) -> impl Iterator<Item = (f64, f64)> {
        self.figures.iter().map(|all| {
            let least = all.iter().copied().fold(f64::NAN, f64::min);
            (least, all.iter().copied().fold(f64::NAN, f64::max))
        })
    }

    /// Returns the medians, the spread and the figures of all runs under the names of the columns.
    pub(super) fn json(&self, columns: &[Column]) -> Map<String, Value> {
        let keys = || columns.iter().map(|column| column.key.to_owned());
        let medians = self.medians().into_iter().map(|figure| json!(rounded(figure)));
        let spread = self.spread().map(|(least, most)| json!([rounded(least), rounded(most)]));
        let mut object: Map<String, Value> = keys().zip(medians).collect();
        object.insert("spread".to_owned(), Value::Object(keys().zip(spread).collect()));
        let all = self.figures.iter().map(|all| all.iter().map(|one| json!(rounded(*one))).collect());
        object.insert("all".to_owned(), Value::Object(keys().zip(all).collect()));
        object
    }
}

/// Returns the table of all rows: medians, with the least and the largest value below them. `head` says what the rows
/// are.
pub(super) fn table(head: &str, columns: &[Column], rows: &[Row]) -> Result<String> {
    let first = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or_default().max(9);
    let width = |column: &Column| column.head.chars().count().max(8);
    let line = |text: &mut String, name: &str, figures: &[f64]| -> Result<()> {
        write!(text, "\n{name:>first$}")?;
        for (column, figure) in columns.iter().zip(figures).filter(|(column, _)| !column.head.is_empty()) {
            let figure = if figure.is_nan() { "-".to_owned() } else { format!("{figure:.*}", column.digits) };
            write!(text, "  {figure:>width$}", width = width(column))?;
        }
        Ok(())
    };
    let mut text = format!("{head:>first$}");
    for column in columns.iter().filter(|column| !column.head.is_empty()) {
        write!(text, "  {:>width$}", column.head, width = width(column))?;
    }
    for row in rows {
        line(&mut text, &row.name, &row.medians())?;
        if row.figures.iter().any(|all| all.len() > 1) {
            let (least, most): (Vec<_>, Vec<_>) = row.spread().unzip();
            line(&mut text, "least", &least)?;
            line(&mut text, "most", &most)?;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[Column::whole("rate", "set-ups/s"), Column::octets("octets", "octets")];

    #[test]
    fn a_row_shows_median_and_spread_and_what_it_lacks() {
        let mut node = Row::new("node");
        for (rate, octets) in [(300.0, 7.25), (100.0, 9.5), (200.0, 8.0)] {
            node.add(&[rate, octets]);
        }
        let mut bare = Row::new("bare");
        bare.add(&[400.0, f64::NAN]);
        let text = table("through", COLUMNS, &[node.clone(), bare.clone()]).unwrap();
        let words: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let wanted = [
            vec!["through", "set-ups/s", "octets"],
            vec!["node", "200", "8.0"],
            vec!["least", "100", "7.2"],
            vec!["most", "300", "9.5"],
            vec!["bare", "400", "-"],
        ];
        assert_eq!(words, wanted);
        assert_eq!(node.median(COLUMNS, "octets").to_bits(), 8.0_f64.to_bits());
        assert!(bare.median(COLUMNS, "octets").is_nan());
        assert_eq!(node.json(COLUMNS)["spread"]["rate"], json!([100.0, 300.0]));
        assert_eq!(node.json(COLUMNS)["all"]["rate"], json!([300.0, 100.0, 200.0]));
        assert_eq!(bare.json(COLUMNS)["octets"], Value::Null);
    }
}
