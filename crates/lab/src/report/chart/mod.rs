//! Charts as SVG, for screens and paper: panels one below the other, over one axis.
//!
//! Color-blind readers can distinguish the colors, which are those of Okabe and Ito. Each series has a marker of its own shape. There is no background:
//! text and lines follow the scheme of the reader, light or dark, and are dark on paper. Drawn by `plotters`, with its SVG back end only.

mod coordinate;
mod draw;
mod legend;

pub(crate) use coordinate::short;

/// How values are placed on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// Equal differences have equal distances.
    #[default]
    Linear,
    /// Equal ratios have equal distances. Only values above 0 have a place.
    Log,
}

/// An axis.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Axis {
    /// What its values are, with their unit.
    pub title: String,
    /// How they are placed.
    pub scale: Scale,
    /// Places with their labels. If the list is empty, the labels are round numbers.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Returns an axis with round numbers.
    #[must_use]
    pub fn linear(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Returns an axis of logarithms.
    #[must_use]
    pub fn log(title: impl Into<String>) -> Self {
        Self { title: title.into(), scale: Scale::Log, ticks: Vec::new() }
    }
}

/// A value at a place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The place on the axis that all panels have.
    pub x: f64,
    /// Without a value the line has a gap.
    pub y: Option<f64>,
    /// The ends of the error bar.
    pub range: Option<(f64, f64)>,
}

impl Point {
    /// Returns a value without an error bar.
    #[must_use]
    pub const fn new(x: f64, y: f64) -> Self {
        Self { x, y: Some(y), range: None }
    }
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    /// A line between its points: many measured over time.
    #[default]
    Line,
    /// Markers, with a line between them: the averages of an experiment.
    Marked,
    /// Markers alone: what somebody published.
    Markers,
    /// A dashed line: a model. It has no entry of its own in the legend.
    Dashed,
}

/// Values of one kind. Those of the same name have the same color in all panels.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// How it is drawn.
    pub style: Style,
    /// Its points, in the order of the axis.
    pub points: Vec<Point>,
}

/// A span of the axis with a name, drawn behind the series.
#[derive(Debug, Clone, PartialEq)]
pub struct Band {
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// Its name.
    pub name: String,
}

/// A drawing with its own vertical axis.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Panel {
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn.
    pub series: Vec<Series>,
}

/// A chart.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Chart {
    /// What it is about.
    pub title: String,
    /// Below the title, in small letters: where it was measured.
    pub note: String,
    /// The axis of all panels.
    pub x: Axis,
    /// From top to bottom.
    pub panels: Vec<Panel>,
    /// Spans behind all panels.
    pub bands: Vec<Band>,
    /// Events, as lines across all panels with their names above.
    pub marks: Vec<(f64, String)>,
}

impl Chart {
    /// Draws it.
    ///
    /// # Errors
    /// The drawing library fails.
    pub fn svg(&self) -> anyhow::Result<String> {
        draw::svg(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, style: Style, values: &[Option<f64>]) -> Series {
        let point = |(x, y): (usize, &Option<f64>)| Point {
            x: f64::from(u8::try_from(x).expect("small")) + 1.0,
            y: *y,
            range: y.map(|y| (y - 1.0, y + 2.0)),
        };
        Series { name: name.into(), style, points: values.iter().enumerate().map(point).collect() }
    }

    fn chart(all: Vec<Series>) -> Chart {
        let panels = vec![Panel { y: Axis::linear("round trip, ms"), series: all }];
        Chart { title: "a <b>".into(), x: Axis::linear("sessions"), panels, ..Chart::default() }
    }

    fn texts(svg: &str) -> Vec<&str> {
        let inner =
            svg.split("<text").skip(1).filter_map(|text| text.split_once('>')?.1.split_once("</text>"));
        inner.map(|(text, _)| text.trim()).collect()
    }

    #[test]
    fn a_line_has_no_part_across_a_gap() {
        let values = [Some(1.0), Some(2.0), None, Some(4.0), Some(3.0)];
        let svg = chart(vec![series("x", Style::Line, &values)]).svg().expect("drawn");
        let lines: Vec<_> =
            svg.lines().filter(|line| line.starts_with("<polyline") && line.contains("#0072B2")).collect();
        // One of them is in the legend.
        assert_eq!(lines.len(), 3, "{svg}");
        let whole = chart(vec![series("x", Style::Line, &values[3..])]).svg().expect("drawn");
        assert_eq!(whole.matches("#0072B2").count(), 2, "{whole}");
    }

    #[test]
    fn axes_have_titles_and_round_ticks() {
        let svg = chart(vec![series("x", Style::Marked, &[Some(7.3), Some(96.1), Some(55.0)])])
            .svg()
            .expect("drawn");
        let texts = texts(&svg);
        for text in ["a &lt;b&gt;", "round trip, ms", "sessions", "0", "20", "40", "60", "80", "1", "2", "3"]
        {
            assert!(texts.contains(&text), "{text}: {texts:?}");
        }
    }

    #[test]
    fn markers_have_error_bars() {
        let bars = |range| {
            let mut one = series("x", Style::Marked, &[Some(5.0), Some(6.0)]);
            one.points.iter_mut().for_each(|point| point.range = range);
            let svg = chart(vec![one]).svg().expect("drawn");
            svg.lines().filter(|line| line.starts_with("<polyline") && line.contains("#0072B2")).count()
        };
        assert_eq!(bars(Some((4.0, 7.0))) - bars(None), 2 * 3, "a bar and two ends for each");
    }

    #[test]
    fn values_of_several_series_at_one_place_stand_side_by_side() {
        let one = |name| series(name, Style::Markers, &[Some(1.0)]);
        let svg = chart(vec![one("a"), one("b")]).svg().expect("drawn");
        // The circle of the first series, and the middle of the rectangle of the second one.
        let last = |start: &str, name: &str| -> i32 {
            let line = svg.lines().rfind(|line| line.starts_with(start)).expect("a marker");
            let (_, rest) = line.split_once(&format!(" {name}=\"")).expect("a place");
            rest.split_once('"').expect("closed").0.parse().expect("a number")
        };
        let (circle, rectangle) = (last("<circle", "cx"), last("<rect", "x") + last("<rect", "width") / 2);
        assert_eq!(rectangle - circle, 3 * 8, "{svg}");
    }

    #[test]
    fn any_number_of_series_is_in_the_legend_and_differs() {
        let names: Vec<_> = (0..20).map(|number| format!("series number {number}")).collect();
        let all = names.iter().map(|name| series(name, Style::Markers, &[Some(1.0)])).collect();
        let svg = chart(all).svg().expect("drawn");
        let texts = texts(&svg);
        assert!(names.iter().all(|name| texts.contains(&name.as_str())), "{texts:?}");
        let few = chart(vec![series("x", Style::Markers, &[Some(1.0)])]).svg().expect("drawn");
        let height = |svg: &str| -> u32 {
            let (_, rest) = svg.split_once(" height=\"").expect("a height");
            rest.split_once('"').expect("closed").0.parse().expect("a number")
        };
        assert!(height(&svg) > height(&few), "the legend takes rows of its own");
    }

    #[test]
    fn logarithms_place_values_and_leave_out_what_has_none() {
        let mut chart = chart(vec![series("x", Style::Marked, &[Some(1.0), Some(0.0), Some(1000.0)])]);
        chart.panels[0].y = Axis::log("rate");
        chart.x = Axis { ticks: vec![(1.0, "one".into()), (3.0, "three".into())], ..Axis::log("x") };
        let svg = chart.svg().expect("drawn");
        let texts = texts(&svg);
        for text in ["one", "three", "1", "10", "100", "1k"] {
            assert!(texts.contains(&text), "{text}: {texts:?}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn readers_have_light_and_dark_without_a_background() {
        let svg = chart(Vec::new()).svg().expect("a chart without a series is drawn");
        assert!(svg.contains("prefers-color-scheme:dark") && svg.contains("class=\"signalbox-chart\""));
        assert!(!svg.contains("<rect"), "{svg}");
    }
}
