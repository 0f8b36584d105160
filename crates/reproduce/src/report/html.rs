//! The report as one page that needs nothing else: no script, no network, light and dark, and printable.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use signalbox_lab::provenance;

use super::{Counts, Report, Row, number, verdict};
use crate::experiment::Experiment;
use crate::papers::{Figure, Paper};
use crate::selection::minutes;

const STYLE: &str = include_str!("page.css");

/// What a figure is whose number was not measured here.
const NOTHING: &str = "–";

/// Writes the page.
pub(crate) fn page(report: &Report<'_>) -> String {
    let mut page = String::new();
    // Writing to a string does not fail.
    let _ = write(report, &mut page);
    page
}

fn write(report: &Report<'_>, page: &mut String) -> fmt::Result {
    write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Measurements of Internet signaling, repeated</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>Measurements of Internet signaling, repeated</h1>\n"
    )?;
    head(report, page)?;
    for paper in &report.selection.papers {
        of_paper(report, paper, page)?;
    }
    page.write_str("</body>\n</html>\n")
}

/// What stands at the head: the count of figures, the machine, and what failed.
fn head(report: &Report<'_>, page: &mut String) -> fmt::Result {
    let Counts { figures, repeated, measured, cannot, definition, not_yet } = report.counts;
    writeln!(page, "<ul class=\"counts\">")?;
    for (count, what) in [
        (figures, "published figures"),
        (measured, "measured in this run"),
        (repeated, "have an experiment"),
        (not_yet, "not measured yet"),
        (cannot, "cannot be repeated"),
        (definition, "definitions, or no numbers"),
    ] {
        writeln!(page, "<li><b>{count}</b> {what}</li>")?;
    }
    writeln!(page, "</ul>")?;
    let machine = &report.machine;
    let memory = machine.memory_kib.map(|kib| format!(", {} MiB", kib / 1024)).unwrap_or_default();
    let build = provenance::own();
    let commit = build.commit.map(|commit| format!(", commit {commit}")).unwrap_or_default();
    writeln!(
        page,
        "<p>Measured with <code>--{}</code> by signalbox-lab {}{}, {}, on this machine: {} processors ({}){memory}, Linux {}. The commands took {}.</p>",
        report.selection.mode.word(),
        escaped(build.version),
        escaped(&commit),
        escaped(build.compiler),
        machine.processors,
        escaped(&machine.processor),
        escaped(&machine.kernel),
        minutes(report.took()),
    )?;
    writeln!(
        page,
        "<p>The ratio is what was measured here in units of what was published. Machines differ by decades; what carries over is the ratio \
         of figures of one machine, so a baseline of the same run stands beside a figure where the experiment has one.</p>"
    )?;
    let failures: Vec<_> = report.failures().collect();
    if !failures.is_empty() {
        writeln!(
            page,
            "<p class=\"bad\">{} commands failed. Their figures are missing:</p>\n<ul class=\"commands\">",
            failures.len()
        )?;
        for (command, reason) in failures {
            writeln!(page, "<li><code>{}</code><br>{}</li>", escaped(&command), escaped(reason))?;
        }
        writeln!(page, "</ul>")?;
    }
    Ok(())
}

fn of_paper(report: &Report<'_>, paper: &Paper, page: &mut String) -> fmt::Result {
    let Paper { name, title, authors, year, machine } = paper;
    writeln!(page, "<h2 id=\"{name}\">{}</h2>", escaped(title))?;
    writeln!(
        page,
        "<p class=\"pale\">{}, {year}. Their machines: {}.</p>",
        escaped(authors),
        escaped(machine)
    )?;
    for experiment in report.experiments_of(paper) {
        of_experiment(report, experiment, page)?;
    }
    others(report, name, page)
}

fn of_experiment(report: &Report<'_>, experiment: &Experiment, page: &mut String) -> fmt::Result {
    let Experiment { paper, name, title, about, .. } = experiment;
    writeln!(page, "<h3 id=\"{paper}-{name}\">{}</h3>\n<p>{}</p>", escaped(title), escaped(about.trim()))?;
    let place = format!("papers/experiments/{paper}/{name}.toml");
    writeln!(
        page,
        "<p class=\"pale\">Again, alone: <code>{}</code>. Its file: <code>{place}</code>. It ran:</p>\n<ul class=\"commands\">",
        experiment.alone(report.selection.mode)
    )?;
    let mut disturbed = false;
    for (command, kept) in report.runs_of(experiment) {
        let how = match kept {
            None => "<span class=\"mind\">was not run</span>".to_owned(),
            Some(kept) => match &kept.reason {
                Some(reason) => format!("<span class=\"bad\">failed: {}</span>", escaped(reason)),
                None => {
                    let is_disturbed = verdict(kept).is_some_and(|verdict| verdict != "clean");
                    disturbed |= is_disturbed;
                    format!(
                        "{} ms{}",
                        kept.elapsed_ms,
                        if is_disturbed { ", <span class=\"mind\">disturbed</span>" } else { "" }
                    )
                }
            },
        };
        writeln!(page, "<li><code>{}</code> <small>{how}</small></li>", escaped(&command.shown()))?;
    }
    writeln!(page, "</ul>")?;
    if disturbed {
        writeln!(
            page,
            "<p class=\"mind\">Other programs took more than 5 % of the processors during a disturbed run.</p>"
        )?;
    }
    let rows: Vec<_> = report.rows_of(experiment).collect();
    table(&rows, page)
}

/// The figures of an experiment.
fn table(rows: &[&Row<'_>], page: &mut String) -> fmt::Result {
    writeln!(
        page,
        "<div class=\"wide\"><table>\n<thead><tr><th>in the paper</th><th>figure</th><th>condition</th><th class=\"number\">published</th>\
         <th class=\"number\">here</th><th>unit</th><th class=\"number\">ratio</th><th class=\"number\">samples</th>\
         <th class=\"number\">least to greatest</th><th class=\"number\">baseline</th><th class=\"number\">here / baseline</th></tr></thead>\n<tbody>"
    )?;
    for row in rows {
        let Row { figure, measured, ratio } = row;
        let Figure { item, metric, condition, value, unit, contradiction, .. } = figure;
        let found = measured.as_ref();
        let text = |number: Option<String>| number.unwrap_or_else(|| NOTHING.to_owned());
        let baseline = found.and_then(|found| found.baseline.as_ref());
        let times = found
            .zip(baseline)
            .filter(|(_, (base, _))| *base != 0.0)
            .map(|(found, (base, _))| number(found.value / base));
        let baseline =
            baseline.map(|(value, is)| format!("{} <small>{}</small>", number(*value), escaped(is)));
        let interval = found.and_then(|found| found.interval);
        writeln!(
            page,
            "<tr{}><td>{}</td><td>{}</td><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td>{}</td>\
             <td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
             <td class=\"number\">{}</td></tr>",
            if contradiction.is_some() { " class=\"told\"" } else { "" },
            escaped(item),
            escaped(metric),
            escaped(condition),
            escaped(value),
            text(found.map(|found| format!("<b>{}</b>", number(found.value)))),
            escaped(unit),
            text(ratio.map(number)),
            text(found.and_then(|found| found.samples).map(number)),
            text(interval.map(|(least, most)| format!("{} to {}", number(least), number(most)))),
            text(baseline),
            text(times),
        )?;
        if let Some(sentence) = contradiction {
            writeln!(
                page,
                "<tr class=\"saying\"><td></td><td colspan=\"10\" class=\"mind\">The paper: {}</td></tr>",
                escaped(sentence)
            )?;
        }
    }
    writeln!(page, "</tbody></table></div>")
}

/// The figures of a paper that no experiment repeats, by the reason.
fn others(report: &Report<'_>, paper: &str, page: &mut String) -> fmt::Result {
    let kinds = [
        ("not yet", "Not measured yet"),
        ("cannot", "Cannot be repeated"),
        ("definition", "Definitions, or no numbers"),
    ];
    for (word, title) in kinds {
        let mut reasons: BTreeMap<usize, (&str, Vec<&Figure>)> = BTreeMap::new();
        let figures = report
            .rows
            .iter()
            .map(|row| row.figure)
            .filter(|figure| figure.paper == paper && figure.place.word() == word);
        for figure in figures {
            let why = figure.place.why().unwrap_or_default();
            let first =
                reasons.iter().find(|(_, (known, _))| *known == why).map_or(figure.row, |(row, _)| *row);
            reasons.entry(first).or_insert_with(|| (why, Vec::new())).1.push(figure);
        }
        if reasons.is_empty() {
            continue;
        }
        let count: usize = reasons.values().map(|(_, figures)| figures.len()).sum();
        writeln!(
            page,
            "<h3>{title}: {count}</h3>\n<div class=\"wide\"><table>\n<thead><tr><th>why</th><th>figures</th></tr></thead>\n<tbody>"
        )?;
        for (why, figures) in reasons.values() {
            let one = |figure: &&Figure| {
                let Figure { item, metric, condition, value, unit, contradiction, .. } = figure;
                let unit = if *unit == "-" { "" } else { unit };
                let said = contradiction
                    .map(|said| format!(" <span class=\"mind\">{}</span>", escaped(said)))
                    .unwrap_or_default();
                format!(
                    "{}: {}, {}: {} {}{said}",
                    escaped(item),
                    escaped(metric),
                    escaped(condition),
                    escaped(value),
                    escaped(unit)
                )
            };
            let all: Vec<_> = figures.iter().map(one).collect();
            writeln!(page, "<tr><td>{}</td><td><small>{}</small></td></tr>", escaped(why), all.join("<br>"))?;
        }
        writeln!(page, "</tbody></table></div>")?;
    }
    Ok(())
}

/// Returns a text as it stands in HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_counts_the_figures_and_what_failed_and_needs_nothing_else() {
        let (page, measured) = super::super::tests::with(|report| (page(report), report.counts.measured));
        assert!(page.contains(&format!("<li><b>{measured}</b> measured in this run</li>")), "{page}");
        assert!(
            page.contains("<td class=\"number\"><b>0.106</b></td><td>ms</td><td class=\"number\">2</td>")
        );
        assert!(page.contains("no &lt;right&gt;") && !page.contains("no <right>"));
        assert!(
            page.contains("The paper: Tear at 0 sessions is 53"),
            "a contradiction stands beside its figure"
        );
        assert!(page.contains("prefers-color-scheme: dark") && page.contains("@media print"));
        for foreign in ["http://", "https://", "<script", "url(", "@import", "src="] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        // Each element that was opened is closed.
        for element in ["table", "tbody", "tr", "td", "ul", "li", "div", "small", "span", "b", "code", "p"] {
            let (opened, closed) = (
                page.matches(&format!("<{element}>")).count() + page.matches(&format!("<{element} ")).count(),
                page.matches(&format!("</{element}>")).count(),
            );
            assert_eq!(opened, closed, "{element}");
        }
    }
}
