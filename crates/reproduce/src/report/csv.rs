//! The figures as a table with one row each, which programs for statistics read.

use std::fmt::Write as _;

use super::{Report, Row};

const HEAD: &str = "row,paper,item,metric,condition,published,unit,place,experiment,measurement,value,ratio,samples,least,most,baseline,\
                    baseline_is,why,contradiction\n";

/// Formats all figures.
pub(crate) fn table(report: &Report<'_>) -> String {
    let mut text = HEAD.to_owned();
    for row in &report.rows {
        let Row { figure, measured, ratio } = row;
        let number = |number: Option<f64>| number.map(|number| number.to_string()).unwrap_or_default();
        let found = measured.as_ref();
        let (least, most) = found.and_then(|found| found.interval).unzip();
        let baseline = found.and_then(|found| found.baseline.as_ref());
        let cells = [
            figure.row.to_string(),
            figure.paper.to_owned(),
            figure.item.to_owned(),
            figure.metric.to_owned(),
            figure.condition.to_owned(),
            figure.value.to_owned(),
            figure.unit.to_owned(),
            figure.place.word().to_owned(),
            figure.place.experiment().unwrap_or_default().to_owned(),
            figure.place.measurement().unwrap_or_default().to_owned(),
            number(found.map(|found| found.value)),
            number(*ratio),
            number(found.and_then(|found| found.samples)),
            number(least),
            number(most),
            number(baseline.map(|(value, _)| *value)),
            baseline.map(|(_, is)| is.clone()).unwrap_or_default(),
            figure.place.why().unwrap_or_default().to_owned(),
            figure.contradiction.unwrap_or_default().to_owned(),
        ];
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", cells.map(cell).join(","));
    }
    text
}

/// Returns a text as a cell.
fn cell(text: String) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_is_a_row() {
        let text = super::super::tests::with(table);
        assert_eq!(text.lines().count(), 126);
        let row = text.lines().nth(8).expect("it is there");
        let start = "8,boomerang-2001,Table 2,\"processing time median, Boomerang Reservation\",0 sessions,0.053,ms,repeated,boomerang-times,";
        assert!(row.starts_with(start), "{row}");
    }
}
