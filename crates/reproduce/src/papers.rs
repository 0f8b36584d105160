//! The tables of `papers/`: what was published, and where each figure has its place.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

const PAPERS: &str = include_str!("../../../papers/papers.toml");
const RESULTS: &str = include_str!("../../../papers/results.tsv");
const PLACES: &str = include_str!("../../../papers/places.tsv");
const CONTRADICTIONS: &str = include_str!("../../../papers/contradictions.tsv");

/// A paper.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Paper {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) authors: String,
    pub(crate) year: u16,
    pub(crate) machine: String,
}

/// A published figure: a row of `results.tsv`.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    /// The number of the row, from 1.
    pub(crate) row: usize,
    pub(crate) paper: &'static str,
    pub(crate) item: &'static str,
    pub(crate) metric: &'static str,
    pub(crate) condition: &'static str,
    /// As it was printed.
    pub(crate) value: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) note: &'static str,
    pub(crate) place: Place,
    /// Where the paper contradicts itself.
    pub(crate) contradiction: Option<&'static str>,
}

/// What becomes of a published figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// An experiment of its paper repeats it by a measurement.
    Repeated { experiment: &'static str, measurement: &'static str },
    /// It cannot be repeated, and why.
    Cannot(&'static str),
    /// It says how something was measured or defined, or it is no number.
    Definition(&'static str),
    /// It could be repeated, and no experiment does it yet; what is missing.
    NotYet(&'static str),
}

impl Place {
    /// The word in `places.tsv`.
    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::Repeated { .. } => "repeated",
            Self::Cannot(_) => "cannot",
            Self::Definition(_) => "definition",
            Self::NotYet(_) => "not yet",
        }
    }

    /// The experiment that repeats it.
    pub(crate) const fn experiment(&self) -> Option<&'static str> {
        match self {
            Self::Repeated { experiment, .. } => Some(experiment),
            Self::Cannot(_) | Self::Definition(_) | Self::NotYet(_) => None,
        }
    }

    /// The measurement that repeats it.
    pub(crate) const fn measurement(&self) -> Option<&'static str> {
        match self {
            Self::Repeated { measurement, .. } => Some(measurement),
            Self::Cannot(_) | Self::Definition(_) | Self::NotYet(_) => None,
        }
    }

    /// The sentence that says why it is not repeated.
    pub(crate) const fn why(&self) -> Option<&'static str> {
        match self {
            Self::Repeated { .. } => None,
            Self::Cannot(why) | Self::Definition(why) | Self::NotYet(why) => Some(why),
        }
    }
}

/// Returns the papers, in the order of the report.
pub(crate) fn papers() -> Result<Vec<Paper>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct All {
        papers: Vec<Paper>,
    }
    let all: All = toml::from_str(PAPERS).context("papers.toml")?;
    Ok(all.papers)
}

/// Returns all published figures, each with its place.
pub(crate) fn figures() -> Result<Vec<Figure>> {
    let contradictions = contradictions()?;
    let mut places = places()?;
    let mut figures = Vec::new();
    for (row, cells) in table::<7>("results.tsv", RESULTS)? {
        let [paper, item, metric, condition, value, unit, note] = cells;
        let known = places.remove(&row);
        let (published, place) =
            known.with_context(|| format!("results.tsv: row {row} has no place in places.tsv"))?;
        ensure!(published == value, "places.tsv: row {row} is {value} in results.tsv, not {published}");
        let contradiction = contradictions.get(&row).copied();
        figures.push(Figure { row, paper, item, metric, condition, value, unit, note, place, contradiction });
    }
    if let Some(row) = places.keys().next() {
        bail!("places.tsv: results.tsv has no row {row}");
    }
    Ok(figures)
}

/// Returns the value that was published, and the place, of each row.
fn places() -> Result<BTreeMap<usize, (&'static str, Place)>> {
    let mut places = BTreeMap::new();
    for (line, cells) in table::<6>("places.tsv", PLACES)? {
        let [row, value, word, experiment, measurement, why] = cells;
        let row: usize =
            row.parse().with_context(|| format!("places.tsv: row {line} has the number {row}"))?;
        let place = match (word, experiment, measurement, why) {
            ("repeated", experiment, measurement, "")
                if !experiment.is_empty() && !measurement.is_empty() =>
            {
                Place::Repeated { experiment, measurement }
            }
            ("cannot", "", "", why) if !why.is_empty() => Place::Cannot(why),
            ("definition", "", "", why) if !why.is_empty() => Place::Definition(why),
            ("not yet", "", "", why) if !why.is_empty() => Place::NotYet(why),
            _ => bail!(
                "places.tsv: row {row}: a place is `repeated` with an experiment and a measurement, or `cannot`, `definition` or \
                 `not yet` with a sentence"
            ),
        };
        ensure!(places.insert(row, (value, place)).is_none(), "places.tsv: row {row} stands there twice");
    }
    Ok(places)
}

/// Returns the sentence of each row that a contradiction is about.
fn contradictions() -> Result<BTreeMap<usize, &'static str>> {
    let mut all = BTreeMap::new();
    for (line, [rows, sentence]) in table::<2>("contradictions.tsv", CONTRADICTIONS)? {
        for part in rows.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| {
                text.parse::<usize>()
                    .with_context(|| format!("contradictions.tsv: row {line} has the rows {rows}"))
            };
            for row in number(first)?..=number(last)? {
                ensure!(
                    all.insert(row, sentence).is_none(),
                    "contradictions.tsv: row {row} of results.tsv stands there twice"
                );
            }
        }
    }
    Ok(all)
}

/// Returns the rows below the head of a table, with their numbers.
fn table<const N: usize>(name: &str, text: &'static str) -> Result<Vec<(usize, [&'static str; N])>> {
    let rows = text.lines().enumerate().skip(1);
    rows.map(|(number, line)| {
        let cells: Vec<&str> = line.split('\t').collect();
        let cells = cells.try_into();
        cells
            .map(|cells| (number, cells))
            .map_err(|_| anyhow::anyhow!("{name}: row {number} has not {N} cells"))
    })
    .collect()
}
