//! What is repeated: papers and experiments, by their names.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use signalbox_lab::object;

use crate::experiment::{self, Command, Experiment, Mode, Source};
use crate::papers::{self, Figure, Paper, Place};
use crate::units;

/// Papers, experiments and figures.
#[derive(Debug)]
pub(crate) struct Selection {
    pub(crate) mode: Mode,
    pub(crate) papers: Vec<Paper>,
    pub(crate) experiments: Vec<Experiment>,
    pub(crate) figures: Vec<Figure>,
}

impl Selection {
    /// Selects all papers, one, or one experiment.
    pub(crate) fn new(name: Option<&str>, mode: Mode) -> Result<Self> {
        let mut all = Self::all(mode)?;
        let Some(name) = name else { return Ok(all) };
        let (paper, experiment) =
            name.split_once('/').map_or((name, None), |(paper, name)| (paper, Some(name)));
        if !all.papers.iter().any(|known| known.name == paper) {
            let names: Vec<_> = all.papers.iter().map(|paper| &*paper.name).collect();
            bail!("no paper {paper}; there are {}", names.join(", "));
        }
        all.papers.retain(|known| known.name == paper);
        all.experiments.retain(|known| known.paper == paper);
        all.figures.retain(|known| known.paper == paper);
        let Some(experiment) = experiment else { return Ok(all) };
        if !all.experiments.iter().any(|known| known.name == experiment) {
            let names: Vec<_> = all.experiments.iter().map(|known| known.name).collect();
            bail!("{paper} has no experiment {experiment}; there are {}", names.join(", "));
        }
        all.experiments.retain(|known| known.name == experiment);
        all.figures.retain(|known| known.place.experiment() == Some(experiment));
        Ok(all)
    }

    /// Returns all of them. Each place of a figure names what is there.
    fn all(mode: Mode) -> Result<Self> {
        let (papers, experiments, figures) = (papers::papers()?, experiment::all()?, papers::figures()?);
        for Figure { row, paper, unit, place, .. } in &figures {
            ensure!(
                papers.iter().any(|known| known.name == *paper),
                "results.tsv: row {row}: no paper {paper} in papers.toml"
            );
            let Place::Repeated { experiment, measurement } = place else { continue };
            let found = experiments.iter().find(|known| known.paper == *paper && known.name == *experiment);
            let Some(found) = found else {
                bail!("places.tsv: row {row}: {paper} has no experiment {experiment}")
            };
            let Some(found) = found.measurement(measurement) else {
                bail!("places.tsv: row {row}: {paper}/{experiment} has no measurement {measurement}")
            };
            let own = &found.unit;
            ensure!(
                units::factor(own, unit).is_some(),
                "places.tsv: row {row} is in {unit}, but {measurement} of {paper}/{experiment} in {own}"
            );
        }
        for known in &experiments {
            let (paper, name) = (known.paper, known.name);
            ensure!(
                papers.iter().any(|paper| paper.name == known.paper),
                "{paper}/{name}.toml: no such paper"
            );
        }
        Ok(Self { mode, papers, experiments, figures })
    }

    /// Returns the commands that run, each once.
    pub(crate) fn commands(&self) -> Vec<&Command> {
        let mut commands: Vec<&Command> = Vec::new();
        for run in self.experiments.iter().flat_map(|experiment| &experiment.runs) {
            if let Some(command) = run.command(self.mode)
                && !commands.iter().any(|known| known.words == command.words)
            {
                commands.push(command);
            }
        }
        commands
    }

    /// Returns the figures that an experiment repeats in this mode.
    fn repeated<'a>(&'a self, experiment: &'a Experiment) -> impl Iterator<Item = &'a Figure> {
        self.figures.iter().filter(|figure| match figure.place {
            Place::Repeated { experiment: name, measurement } => {
                figure.paper == experiment.paper
                    && name == experiment.name
                    && experiment
                        .measurement(measurement)
                        .is_some_and(|found| self.measures(experiment, &found.source))
            }
            Place::Cannot(_) | Place::Definition(_) | Place::NotYet(_) => false,
        })
    }

    /// Whether what a number comes from is measured in this mode.
    fn measures(&self, experiment: &Experiment, source: &Source) -> bool {
        match source {
            Source::Read { run, .. } => {
                experiment.runs.iter().any(|known| known.id == *run && known.command(self.mode).is_some())
            }
            // Parts stand above, so that this ends.
            Source::Computed { parts, .. } => parts.iter().all(|part| {
                experiment.measurement(part).is_some_and(|part| self.measures(experiment, &part.source))
            }),
        }
    }

    fn takes(&self, experiment: &Experiment) -> Duration {
        experiment.runs.iter().filter_map(|run| run.command(self.mode)).map(|command| command.takes).sum()
    }

    /// Lists the experiments, for people.
    pub(crate) fn list(&self) -> String {
        let names: Vec<_> =
            self.experiments.iter().map(|known| format!("{}/{}", known.paper, known.name)).collect();
        let width = names.iter().map(String::len).max().unwrap_or_default();
        let mut text = String::new();
        for (experiment, name) in self.experiments.iter().zip(names) {
            let (figures, takes) = (self.repeated(experiment).count(), minutes(self.takes(experiment)));
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name:width$}  {figures:>3} figures  {takes:>7}  {}", experiment.title);
        }
        let figures: usize =
            self.experiments.iter().map(|experiment| self.repeated(experiment).count()).sum();
        let takes = minutes(self.commands().iter().map(|command| command.takes).sum());
        let _ = writeln!(
            text,
            "\n{figures} of {} figures in about {takes} with --{}",
            self.figures.len(),
            self.mode.word()
        );
        text
    }

    /// Lists the experiments, for programs.
    pub(crate) fn list_json(&self) -> Result<String> {
        let experiment = |known: &Experiment| {
            let commands: Vec<_> =
                known.runs.iter().filter_map(|run| run.command(self.mode)).map(Command::shown).collect();
            json!({
                "paper": known.paper, "name": known.name, "title": known.title, "commands": commands,
                "figures": self.repeated(known).count(), "takes_s": self.takes(known).as_secs(),
            })
        };
        let experiments: Vec<Value> = self.experiments.iter().map(experiment).collect();
        let list =
            json!({ "mode": self.mode.word(), "figures": self.figures.len(), "experiments": experiments });
        Ok(object::line("lab_reproduce_list", &list)?)
    }

    /// Returns the files of the experiments.
    pub(crate) fn files(&self) -> String {
        let file = |known: &Experiment| {
            format!("# papers/experiments/{}/{}.toml\n{}", known.paper, known.name, known.text)
        };
        self.experiments.iter().map(file).collect::<Vec<_>>().join("\n")
    }
}

/// Writes a time for people.
pub(crate) fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds:02} s"),
        (hours, minutes, _) => format!("{hours} h {minutes:02} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row of results.tsv has a place, and each place is there: `Selection::all` fails otherwise.
    #[test]
    fn every_published_figure_has_its_place() {
        let all = Selection::new(None, Mode::Full).unwrap_or_else(|error| panic!("{error:#}"));
        assert_eq!(all.figures.len(), 575);
        // A measurement that is no figure and no part of one is measured for nothing.
        for known in &all.experiments {
            for measurement in &known.measurements {
                let named = all.figures.iter().any(|figure| {
                    let Place::Repeated { experiment, measurement: of } = figure.place else { return false };
                    (figure.paper, experiment, of) == (known.paper, known.name, &*measurement.name)
                });
                let is_part = known.measurements.iter().any(|other| match &other.source {
                    Source::Computed { parts, .. } => parts.contains(&measurement.name),
                    Source::Read { .. } => false,
                });
                assert!(
                    named || is_part,
                    "{}/{}: no figure is {}",
                    known.paper,
                    known.name,
                    measurement.name
                );
            }
        }
    }

    #[test]
    fn all_papers_take_at_most_ten_minutes_with_quick() {
        let all = Selection::new(None, Mode::Quick).unwrap_or_else(|error| panic!("{error:#}"));
        let takes: Duration = all.commands().iter().map(|command| command.takes).sum();
        assert!(takes <= Duration::from_secs(600), "{}", minutes(takes));
    }

    #[test]
    fn papers_and_experiments_are_selected_by_their_names() {
        let of = |name| Selection::new(Some(name), Mode::Full);
        let paper = of("boomerang-2001").expect("it is there");
        assert!(paper.papers.len() == 1 && paper.figures.len() == 125, "{}", paper.figures.len());
        let one = of("boomerang-2001/boomerang-times").expect("it is there");
        assert!(one.experiments.len() == 1 && one.figures.len() < 125 && one.figures.len() > 15);
        assert!(of("boomerang").expect_err("none").to_string().contains("there are boomerang-2001, "));
        assert!(of("boomerang-2001/x").expect_err("none").to_string().contains("has no experiment x"));
        assert_eq!(
            (minutes(Duration::from_secs(59)), minutes(Duration::from_secs(3725))),
            ("59 s".into(), "1 h 02 min".into())
        );
    }
}
