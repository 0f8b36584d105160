//! The drawing of a chart.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::coordinate::Coordinate;
use super::{Chart, Panel, Point, Series, Style};

/// The library has whole numbers as places. It draws on a finer grid than the one that readers have.
const GRID: i32 = 8;
const WIDTH: i32 = 760;
const PANEL: i32 = 176;
const LEFT: i32 = 66;
const RIGHT: i32 = 18;
/// Tick labels below a panel, and the title of the axis below the last one.
const LABELS: i32 = 24;
const TITLE: i32 = 24;
const NOTE: i32 = 16;
const ROW: i32 = 18;
const MARKS: i32 = 16;
const GAP: i32 = 10;
/// The sample of a line in the legend, and the space behind an entry.
const SAMPLE: i32 = 24;
const BETWEEN: i32 = 18;
const LETTERS: i32 = 12;
const SMALL: i32 = 10;
const TICKS: usize = 6;
/// The radius of a marker, and half of the end of an error bar.
const MARKER: i32 = 4;

/// The colors of Okabe and Ito that are seen on white and on black, in the order in which they differ most.
const COLORS: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xe6, 0x9f, 0x00),
];
const TEXT: RGBColor = RGBColor(0x24, 0x29, 0x2f);
const AXIS: RGBColor = RGBColor(0x57, 0x60, 0x6a);
const MESH: RGBColor = RGBColor(0xd8, 0xde, 0xe4);

/// What a reader with a dark scheme has instead of the colors of texts, axes and ticks. Paper is light.
const SCHEME: &str = "<style>\
    @media screen and (prefers-color-scheme:dark){\
    .signalbox-chart text{fill:#e6edf3}\
    .signalbox-chart [stroke=\"#57606A\"]{stroke:#9198a1}\
    .signalbox-chart [stroke=\"#D8DEE4\"]{stroke:#30363d}\
    }</style>";

type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Plot<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Coordinate, Coordinate>>;

/// The color and the shape of a series.
#[derive(Debug, Clone, Copy)]
struct Look {
    color: RGBColor,
    shape: usize,
}

impl Look {
    /// Series have the same color only if their shapes differ, up to 24.
    fn of(number: usize) -> Self {
        let color = number % COLORS.len();
        Self { color: COLORS.get(color).copied().unwrap_or(AXIS), shape: (color + number / COLORS.len()) % 4 }
    }

    fn line(self) -> ShapeStyle {
        self.color.stroke_width(stroke(2))
    }
}

/// Draws a chart.
pub(super) fn svg(chart: &Chart) -> Result<String> {
    let legend = Legend::of(chart);
    let head = TITLE
        + if chart.note.is_empty() { 0 } else { NOTE }
        + legend.rows * ROW
        + if chart.marks.is_empty() { GAP } else { MARKS + GAP };
    let panels = i32::try_from(chart.panels.len()).unwrap_or(1).max(1);
    let height = head + panels * (PANEL + LABELS + GAP) + ROW;
    let mut text = String::new();
    {
        let size = (size(WIDTH), size(height));
        let canvas = SVGBackend::with_string(&mut text, size).into_drawing_area();
        let title = letters(LETTERS + 2).style(FontStyle::Bold);
        canvas.draw_text(&chart.title, &title.color(&TEXT), at(LEFT, 4))?;
        if !chart.note.is_empty() {
            canvas.draw_text(&chart.note, &letters(SMALL).color(&TEXT), at(LEFT, TITLE))?;
        }
        legend.draw(
            &canvas,
            head - legend.rows * ROW - if chart.marks.is_empty() { GAP } else { MARKS + GAP },
        )?;
        let x = across(chart);
        for (number, panel) in (0..).zip(&chart.panels) {
            let top = head + number * (PANEL + LABELS + GAP);
            let last = number == panels - 1;
            let bottom = top + PANEL + LABELS + if last { ROW } else { 0 };
            let (_, below) = canvas.split_vertically(top * GRID);
            let (area, _) = below.split_vertically((bottom - top) * GRID);
            draw_panel(&canvas, &area, chart, panel, &legend, x.clone(), last)?;
        }
        draw_marks(&canvas, chart, &x, head, head + panels * (PANEL + LABELS + GAP) - LABELS - GAP)?;
        canvas.present()?;
    }
    Ok(finished(&text, height))
}

/// Returns the axis of all panels.
fn across(chart: &Chart) -> Coordinate {
    let series = || chart.panels.iter().flat_map(|panel| &panel.series);
    let points = series().flat_map(|series| &series.points).map(|point| point.x);
    let bands = chart.bands.iter().flat_map(|band| [band.from, band.to]);
    let ticks = chart.x.ticks.iter().map(|(place, _)| *place);
    let axis = Coordinate::new(&chart.x, points.chain(bands).chain(ticks), false, 11);
    let marked = series().any(|series| matches!(series.style, Style::Marked | Style::Markers));
    if marked { axis.wider(0.03) } else { axis }
}

fn draw_panel(
    canvas: &Canvas<'_>,
    area: &Canvas<'_>,
    chart: &Chart,
    panel: &Panel,
    legend: &Legend,
    x: Coordinate,
    last: bool,
) -> Result<()> {
    let points = panel.series.iter().flat_map(|series| &series.points);
    let values = points.filter(|point| x.holds(point.x)).flat_map(|point| {
        let (low, high) = point.range.unzip();
        [point.y, low, high]
    });
    let y = Coordinate::new(&panel.y, values.flatten(), true, TICKS);
    let mut plot = ChartBuilder::on(area)
        .margin_right(RIGHT * GRID)
        .x_label_area_size((LABELS + if last { ROW } else { 0 }) * GRID)
        .y_label_area_size(LEFT * GRID)
        .build_cartesian_2d(x.clone(), y.clone())?;
    for band in &chart.bands {
        let (from, to) = (plotted(&plot, x.inside(band.from), None), plotted(&plot, x.inside(band.to), None));
        canvas.draw(&Rectangle::new([(from.0, from.1.0), (to.0, to.1.1)], AXIS.mix(0.1).filled()))?;
        let name = letters(SMALL).color(&TEXT).pos(Pos::new(HPos::Right, VPos::Top));
        canvas.draw_text(&band.name, &name, (to.0 - 3 * GRID, to.1.0 + 2 * GRID))?;
    }
    let mut mesh = plot.configure_mesh();
    mesh.disable_x_mesh()
        .axis_style(AXIS.stroke_width(stroke(1)))
        .bold_line_style(MESH.stroke_width(stroke(1)))
        .light_line_style(TRANSPARENT)
        .label_style(letters(SMALL + 1).color(&TEXT))
        .axis_desc_style(letters(LETTERS).color(&TEXT))
        .y_desc(panel.y.title.as_str())
        .set_all_tick_mark_size(3 * GRID);
    if last {
        mesh.x_desc(chart.x.title.as_str());
    }
    mesh.draw()?;
    for series in &panel.series {
        let place = |point: &Point| {
            let y = point.y.filter(|value| y.holds(*value))?;
            x.holds(point.x).then(|| plot.plotting_area().map_coordinate(&(point.x, y)))
        };
        let look = legend.look(&series.name);
        draw_line(canvas, series, look, place)?;
        if matches!(series.style, Style::Marked | Style::Markers) {
            for point in &series.points {
                let Some(center) = place(point) else { continue };
                if let Some((low, high)) = point.range {
                    let ends = [low, high].map(|end| plotted(&plot, point.x, Some(y.inside(end))).1.0);
                    draw_bar(canvas, center.0, ends, look)?;
                }
                draw_marker(canvas, center, look)?;
            }
        }
    }
    Ok(())
}

/// Returns where a value is: its place across, and that of a value upward, or else the upper and the lower end.
fn plotted(plot: &Plot<'_, '_>, x: f64, y: Option<f64>) -> (i32, (i32, i32)) {
    let area = plot.plotting_area();
    let range = area.get_y_range();
    let upper = area.map_coordinate(&(x, y.unwrap_or(range.end)));
    let lower = area.map_coordinate(&(x, y.unwrap_or(range.start)));
    (upper.0, (upper.1, lower.1))
}

/// Draws the line of a series, in pieces: there is none across a point without a place.
fn draw_line(
    canvas: &Canvas<'_>,
    series: &Series,
    look: Look,
    place: impl Fn(&Point) -> Option<(i32, i32)>,
) -> Result<()> {
    if series.style == Style::Markers {
        return Ok(());
    }
    let places: Vec<_> = series.points.iter().map(place).collect();
    for piece in places.split(Option::is_none).filter(|piece| !piece.is_empty()) {
        let piece: Vec<(i32, i32)> = piece.iter().flatten().copied().collect();
        match (series.style, piece.as_slice()) {
            (Style::Dashed, _) => {
                let (dash, space) = (5 * GRID, 4 * GRID);
                canvas.draw(&DashedPathElement::new(piece, dash, space, look.line()))?;
            }
            // A piece with one point has no length.
            (Style::Line, [only]) => canvas.draw(&Circle::new(*only, GRID, look.color.filled()))?,
            _ => canvas.draw(&PathElement::new(piece, look.line()))?,
        }
    }
    Ok(())
}

fn draw_bar(canvas: &Canvas<'_>, x: i32, [low, high]: [i32; 2], look: Look) -> Result<()> {
    let half = MARKER * GRID;
    for line in
        [[(x, low), (x, high)], [(x - half, low), (x + half, low)], [(x - half, high), (x + half, high)]]
    {
        canvas.draw(&PathElement::new(line.to_vec(), look.color.stroke_width(stroke(1))))?;
    }
    Ok(())
}

fn draw_marker(canvas: &Canvas<'_>, (x, y): (i32, i32), look: Look) -> Result<()> {
    let (r, style) = (MARKER * GRID, look.color.filled());
    match look.shape {
        0 => canvas.draw(&Circle::new((x, y), r, style))?,
        1 => canvas.draw(&Rectangle::new([(x - r, y - r), (x + r, y + r)], style))?,
        2 => canvas.draw(&TriangleMarker::new((x, y), r + r / 4, style))?,
        _ => {
            let r = r + r / 4;
            canvas.draw(&Polygon::new(vec![(x, y - r), (x + r, y), (x, y + r), (x - r, y)], style))?;
        }
    }
    Ok(())
}

/// Draws events across all panels. Names that would lie over the one before are left to its line.
fn draw_marks(canvas: &Canvas<'_>, chart: &Chart, x: &Coordinate, top: i32, bottom: i32) -> Result<()> {
    let across = (LEFT * GRID, (WIDTH - RIGHT) * GRID);
    let name = letters(SMALL).color(&TEXT).pos(Pos::new(HPos::Center, VPos::Bottom));
    for (place, label) in chart.marks.iter().filter(|(place, _)| x.holds(*place)) {
        let place = Ranged::map(x, place, across);
        let line = vec![(place, top * GRID), (place, bottom * GRID)];
        let (dash, space) = (4 * GRID, 3 * GRID);
        canvas.draw(&DashedPathElement::new(line, dash, space, AXIS.stroke_width(stroke(1))))?;
        canvas.draw_text(label, &name, (place, (top - 2) * GRID))?;
    }
    Ok(())
}

/// The names of the series, in rows, with their looks.
#[derive(Debug)]
struct Legend {
    /// Each name with the place of its entry.
    entries: Vec<(String, Style, (i32, i32))>,
    rows: i32,
}

impl Legend {
    fn of(chart: &Chart) -> Self {
        let (mut entries, mut x, mut row) = (Vec::new(), LEFT, 0);
        for series in chart.panels.iter().flat_map(|panel| &panel.series) {
            let known = |(name, ..): &(String, Style, _)| *name == series.name;
            if series.name.is_empty() || series.style == Style::Dashed || entries.iter().any(known) {
                continue;
            }
            // Letters of this size are less than seven wide on the average.
            let letters = i32::try_from(series.name.chars().count()).unwrap_or(WIDTH);
            let wide = SAMPLE + 7 * letters + BETWEEN;
            if x > LEFT && x + wide > WIDTH {
                (x, row) = (LEFT, row + 1);
            }
            entries.push((series.name.clone(), series.style, (x, row)));
            x += wide;
        }
        Self { rows: if entries.is_empty() { 0 } else { row + 1 }, entries }
    }

    /// Returns the look of the series with a name. A model has that of the series of its name.
    fn look(&self, name: &str) -> Look {
        Look::of(self.entries.iter().position(|(known, ..)| known == name).unwrap_or(0))
    }

    fn draw(&self, canvas: &Canvas<'_>, top: i32) -> Result<()> {
        let text = letters(LETTERS).color(&TEXT).pos(Pos::new(HPos::Left, VPos::Center));
        for (name, style, (x, row)) in &self.entries {
            let (look, y) = (self.look(name), top + row * ROW + ROW / 2);
            let middle = at(x + (SAMPLE - 6) / 2, y);
            if *style != Style::Markers {
                let line = vec![at(*x, y), at(x + SAMPLE - 6, y)];
                canvas.draw(&PathElement::new(line, look.line()))?;
            }
            if *style != Style::Line {
                draw_marker(canvas, middle, look)?;
            }
            canvas.draw_text(name, &text, at(x + SAMPLE, y))?;
        }
        Ok(())
    }
}

/// Returns a font. The library divides its size by 1.24.
fn letters(size: i32) -> FontDesc<'static> {
    ("sans-serif", f64::from(size * GRID) * 1.24).into_font()
}

const fn at(x: i32, y: i32) -> (i32, i32) {
    (x * GRID, y * GRID)
}

fn stroke(wide: i32) -> u32 {
    u32::try_from(wide * GRID * 3 / 4).unwrap_or(1)
}

fn size(length: i32) -> u32 {
    u32::try_from(length * GRID).unwrap_or(1)
}

/// Gives the drawing the size that readers have, and the colors of their scheme.
fn finished(text: &str, height: i32) -> String {
    let (head, rest) = text.split_once('\n').unwrap_or((text, ""));
    let view = head.split_once("viewBox").map_or("", |(_, view)| view);
    format!(
        "<svg class=\"signalbox-chart\" width=\"{WIDTH}\" height=\"{height}\" viewBox{view}\n{SCHEME}\n{rest}"
    )
}
