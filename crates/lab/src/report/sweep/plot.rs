//! A sweep as a chart: each series that is shown over the first parameter, with error bars.

use anyhow::Result;

use super::{Series, Swept};
use crate::language::sweep::{Average, Axis as Parameter, Point as At, Quantity, amount, plain};
use crate::report::chart::{Axis, Chart, Panel, Point, Scale, Series as Line, Style, short};
use crate::report::interval::LEAST;
use crate::run::machine::Machine;

/// More panels are no picture.
const PANELS_MAX: usize = 12;
/// So many values have ticks of their own.
const TICKS_MAX: usize = 10;
/// Labels closer than this share of the axis lie over each other.
const CLOSE: f64 = 0.06;

/// Units of quantities, the largest first.
const TIMES: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")];
const RATES: [(f64, &str); 4] = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")];

impl Swept {
    /// Draws the series that are shown; nothing if no parameter varies, or nothing was measured.
    ///
    /// # Errors
    /// The drawing library fails.
    pub(crate) fn plot(&self) -> Result<Option<String>> {
        self.chart().map(|chart| chart.svg()).transpose()
    }

    /// Returns the chart of [`Self::plot`].
    pub(crate) fn chart(&self) -> Option<Chart> {
        let parameter = self.sweep.over.first()?;
        let (x, place) = axis(parameter);
        let panels: Vec<_> =
            self.shown().into_iter().take(PANELS_MAX).map(|series| self.panel(series, &place)).collect();
        if panels.is_empty() {
            return None;
        }
        let (bands, marks) = (Vec::new(), Vec::new());
        Some(Chart { title: self.scenario.clone(), note: self.note(), x, panels, bands, marks })
    }

    /// Says what was run, what is drawn, and where it was measured.
    fn note(&self) -> String {
        let average = match self.sweep.average {
            Average::Median => "medians",
            Average::Mean => "means",
        };
        let drawn = match usize::try_from(self.sweep.repeat) {
            Ok(1) => "one run a point".to_owned(),
            Ok(runs) if runs < LEAST => format!("{average} of {runs} runs a point"),
            _ => format!("{average} of {} runs a point, with 95 % intervals by bootstrap", self.sweep.repeat),
        };
        let Machine { processor, processors, kernel, .. } = &self.machine;
        format!(
            "{}\n{drawn}; {processors} processors ({processor}), Linux {kernel}; {} of {} runs disturbed",
            self.description, self.disturbed, self.runs
        )
    }

    fn panel(&self, series: &Series, place: &dyn Fn(&toml::Value) -> Option<f64>) -> Panel {
        let mut lines: Vec<Line> = Vec::new();
        for at in &self.points {
            let Some(((_, value), others)) = at.values.0.split_first() else { continue };
            let Some(x) = place(value) else { continue };
            let name = At(others.to_vec()).text();
            let summary = series.points.iter().find(|summary| summary.point == at.point);
            let average = summary.map(|summary| summary.average(self.sweep.average));
            let range = average.and_then(|average| average.low.zip(average.high));
            let point = Point { x, y: average.map(|average| average.value), range };
            match lines.iter_mut().find(|line| line.name == name) {
                Some(line) => line.points.push(point),
                None => lines.push(Line { name, style: Style::Marked, points: vec![point] }),
            }
        }
        for line in &mut lines {
            line.points.sort_by(|one, other| one.x.total_cmp(&other.x));
        }
        let unit = if series.unit == "1" { String::new() } else { format!(", {}", series.unit) };
        Panel { y: Axis::linear(format!("{}{unit}", series.name)), series: lines }
    }
}

/// Finds the place of a value on an axis.
type Places<'a> = Box<dyn Fn(&toml::Value) -> Option<f64> + 'a>;

/// Returns the axis of a parameter, and the place of a value on it.
fn axis(parameter: &Parameter) -> (Axis, Places<'_>) {
    let name = parameter.name.as_str();
    let amounts: Option<Vec<_>> = parameter.values.iter().map(amount).collect();
    let same = |amounts: &Vec<(Quantity, f64)>| {
        let numbers = [Quantity::Whole, Quantity::Number];
        let (first, _) = amounts.first().copied()?;
        amounts
            .iter()
            .all(|(kind, _)| *kind == first || (numbers.contains(kind) && numbers.contains(&first)))
            .then_some(first)
    };
    let Some((amounts, kind)) = amounts.and_then(|amounts| same(&amounts).map(|kind| (amounts, kind))) else {
        // Words stand side by side.
        let place = |value: &toml::Value| {
            let place = parameter.values.iter().position(|known| known == value)?;
            Some(f64::from(u32::try_from(place).ok()?) + 1.0)
        };
        let ticks =
            parameter.values.iter().filter_map(|value| Some((place(value)?, plain(value).into_owned())));
        let ticks = ticks.collect();
        return (Axis { title: name.to_owned(), ticks, scale: Scale::Linear }, Box::new(place));
    };
    let most = amounts.iter().map(|(_, number)| number.abs()).fold(0.0, f64::max);
    let largest = |units: [(f64, &'static str); 4]| {
        units.into_iter().find(|(factor, _)| most >= *factor).unwrap_or((1.0, units[3].1))
    };
    let (factor, unit) = match kind {
        Quantity::Whole | Quantity::Number => (1.0, ""),
        Quantity::Time => largest(TIMES),
        Quantity::Rate => largest(RATES),
        Quantity::Share => (1.0, "%"),
    };
    let title = if unit.is_empty() { name.to_owned() } else { format!("{name}, {unit}") };
    let scale = if parameter.logarithmic { Scale::Log } else { Scale::Linear };
    let values: Vec<_> = amounts.iter().map(|(_, number)| number / factor).collect();
    let ticks = if apart(&values, scale) {
        values.iter().map(|value| (*value, short(*value))).collect()
    } else {
        Vec::new()
    };
    (Axis { title, scale, ticks }, Box::new(move |value| Some(amount(value)?.1 / factor)))
}

/// Whether labels of all values have place on an axis.
fn apart(values: &[f64], scale: Scale) -> bool {
    let mut places: Vec<_> =
        values.iter().map(|value| if scale == Scale::Log { value.log10() } else { *value }).collect();
    places.sort_by(f64::total_cmp);
    let whole = places.last().zip(places.first()).map_or(0.0, |(last, first)| last - first);
    places.len() <= TICKS_MAX
        && places.windows(2).all(|pair| matches!(pair, [one, other] if other - one >= CLOSE * whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sweep::tests::swept;

    #[test]
    fn the_first_parameter_is_the_axis_and_the_others_are_lines() {
        let chart = swept().chart().expect("a parameter varies");
        assert_eq!((chart.x.title.as_str(), chart.x.scale), ("sessions", Scale::Log));
        let labels: Vec<_> = chart.x.ticks.iter().map(|(_, label)| label.as_str()).collect();
        assert_eq!(labels, ["1", "10", "100"]);
        assert!(
            chart.note.contains("\nmedians of 6 runs a point, with 95 % intervals by bootstrap; "),
            "{}",
            chart.note
        );
        let [panel] = &chart.panels[..] else { panic!("one series is shown") };
        assert_eq!(panel.y.title, "rtt_ms/p50, ms");
        let [a, b] = &panel.series[..] else { panic!("a line for each value of the other parameter") };
        assert_eq!((a.name.as_str(), b.name.as_str()), ("mode=a", "mode=b"));
        assert_eq!(a.points.iter().map(|point| point.x).collect::<Vec<_>>(), [1.0, 10.0, 100.0]);
        assert!(a.points.iter().all(|point| point.range.is_some_and(|(low, high)| low < high)), "{a:?}");
        assert_eq!(b.points[2].y, None, "nothing was measured there");
    }

    #[test]
    fn axes_have_units() {
        let axis_of = |values: &[&str], logarithmic| {
            let values = values.iter().map(|value| toml::Value::from(*value)).collect();
            let parameter = Parameter { name: "x".into(), values, logarithmic };
            let (axis, place) = axis(&parameter);
            let places: Vec<_> = parameter.values.iter().filter_map(place).collect();
            (axis.title, places, axis.ticks.len())
        };
        assert_eq!(axis_of(&["500us", "1ms", "2ms"], false), ("x, ms".to_owned(), vec![0.5, 1.0, 2.0], 3));
        assert_eq!(axis_of(&["64kbit", "1mbit"], true), ("x, Mbit/s".to_owned(), vec![0.064, 1.0], 2));
        assert_eq!(axis_of(&["qos", "rsvp"], false), ("x".to_owned(), vec![1.0, 2.0], 2));
        assert_eq!(axis_of(&["1%", "2%", "100%"], false).2, 0, "labels of 1 and 2 would lie over each other");
    }
}
