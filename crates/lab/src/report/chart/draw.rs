//! The drawing of a chart.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::coordinate::Coordinate;
use super::legend::{Legend, Look};
use super::{Chart, Panel, Point, Series, Style};

/// The library has whole numbers as places. It draws on a finer grid than the one that readers have.
pub(super) const GRID: i32 = 8;
pub(super) const WIDTH: i32 = 760;
pub(super) const LEFT: i32 = 66;
const RIGHT: i32 = 18;
/// Heights: of a panel, of its title above it and of its tick labels below.
const PANEL: i32 = 170;
const HEAD: i32 = 20;
const LABELS: i32 = 24;
/// Heights of other lines of text.
const TITLE: i32 = 26;
const NOTE: i32 = 14;
pub(super) const ROW: i32 = 18;
const GAP: i32 = 6;
/// Sizes of letters.
pub(super) const LETTERS: i32 = 12;
const SMALL: i32 = 10;
/// The letters of a note that have place in a line.
const NOTE_MAX: usize = 125;
/// Ticks of an axis, at most.
const TICKS: usize = 6;
const TICKS_ACROSS: usize = 11;
/// The radius of a marker, and half of the end of an error bar.
const MARKER: i32 = 4;
/// Markers of several series at the same place stand side by side, this far from each other and all of them within so much.
const BESIDE: i32 = 3;
const BESIDE_ALL: i32 = 12;
/// Room for markers at both ends of the axis, as a share of it.
const ROOM: f64 = 0.03;

pub(super) const TEXT: RGBColor = RGBColor(0x24, 0x29, 0x2f);
const AXIS: RGBColor = RGBColor(0x57, 0x60, 0x6a);
const MESH: RGBColor = RGBColor(0xd8, 0xde, 0xe4);

/// What a reader with a dark scheme has instead of the colors of texts, axes and ticks. Paper is light.
const SCHEME: &str = "<style>\
    @media screen and (prefers-color-scheme:dark){\
    .signalbox-chart text{fill:#e6edf3}\
    .signalbox-chart [stroke=\"#57606A\"]{stroke:#9198a1}\
    .signalbox-chart [stroke=\"#D8DEE4\"]{stroke:#30363d}\
    }</style>";

pub(super) type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Plot<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Coordinate, Coordinate>>;

/// Draws a chart.
pub(super) fn svg(chart: &Chart) -> Result<String> {
    let legend = Legend::of(chart);
    let notes: Vec<_> = chart.note.lines().flat_map(|line| wrapped(line, NOTE_MAX)).collect();
    let marks = if chart.marks.is_empty() { 0 } else { NOTE };
    let notes_end = TITLE + NOTE * i32::try_from(notes.len()).unwrap_or(0);
    let head = notes_end + legend.rows() * ROW + GAP + marks;
    let panels = i32::try_from(chart.panels.len()).unwrap_or(1).max(1);
    let height = head + panels * (HEAD + PANEL + LABELS) + ROW + GAP;
    let mut text = String::new();
    {
        let size = [WIDTH, height].map(|length| u32::try_from(length * GRID).unwrap_or(1));
        let canvas = SVGBackend::with_string(&mut text, size.into()).into_drawing_area();
        let title = letters(LETTERS + 2).style(FontStyle::Bold);
        canvas.draw_text(&chart.title, &title.color(&TEXT), at(LEFT, 4))?;
        for (number, line) in (0..).zip(&notes) {
            canvas.draw_text(line, &letters(SMALL).color(&TEXT), at(LEFT, TITLE + number * NOTE))?;
        }
        legend.draw(&canvas, notes_end)?;
        let x = across(chart);
        for (number, panel) in (0..).zip(&chart.panels) {
            let top = head + number * (HEAD + PANEL + LABELS);
            let last = number == panels - 1;
            let title = letters(LETTERS).color(&TEXT).pos(Pos::new(HPos::Left, VPos::Center));
            canvas.draw_text(&panel.y.title, &title, at(LEFT, top + HEAD / 2))?;
            let below = if last { LABELS + ROW } else { LABELS };
            let (_, area) = canvas.split_vertically((top + HEAD) * GRID);
            let (area, _) = area.split_vertically((PANEL + below) * GRID);
            let plot = axes(&area, chart, panel, &x, last)?;
            draw_bands(&canvas, &plot, chart, (number == 0).then_some(top + HEAD / 2))?;
            draw_series(&canvas, &plot, panel, &legend)?;
        }
        draw_marks(&canvas, chart, &x, [head, height - GAP - ROW - LABELS])?;
        canvas.present()?;
    }
    Ok(finished(&text, height))
}

/// Breaks a line between words.
fn wrapped(line: &str, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split_whitespace() {
        let Some(last) = lines.last_mut() else { break };
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= most {
            *last = format!("{last} {word}");
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// Returns the axis of all panels.
fn across(chart: &Chart) -> Coordinate {
    let series = || chart.panels.iter().flat_map(|panel| &panel.series);
    let points = series().flat_map(|series| &series.points).map(|point| point.x);
    let bands = chart.bands.iter().flat_map(|band| [band.from, band.to]);
    let ticks = chart.x.ticks.iter().map(|(place, _)| *place);
    let axis = Coordinate::new(&chart.x, points.chain(bands).chain(ticks), false, TICKS_ACROSS);
    let marked = series().any(|series| matches!(series.style, Style::Marked | Style::Markers));
    if marked { axis.wider(ROOM) } else { axis }
}

/// Draws the axes of a panel, and returns what places values between them.
fn axes<'a, 'b>(
    area: &'a Canvas<'b>,
    chart: &Chart,
    panel: &Panel,
    x: &Coordinate,
    last: bool,
) -> Result<Plot<'a, 'b>> {
    let points = panel.series.iter().flat_map(|series| &series.points);
    let values = points.filter(|point| x.holds(point.x)).flat_map(|point| {
        let (low, high) = point.range.unzip();
        [point.y, low, high]
    });
    let y = Coordinate::new(&panel.y, values.flatten(), true, TICKS);
    let below = if last { LABELS + ROW } else { LABELS };
    let mut plot = ChartBuilder::on(area)
        .margin_right(RIGHT * GRID)
        .x_label_area_size(below * GRID)
        .y_label_area_size(LEFT * GRID)
        .build_cartesian_2d(x.clone(), y)?;
    let mut mesh = plot.configure_mesh();
    mesh.disable_x_mesh()
        .axis_style(AXIS.stroke_width(stroke(1)))
        .bold_line_style(MESH.stroke_width(stroke(1)))
        .light_line_style(TRANSPARENT)
        .label_style(letters(SMALL + 1).color(&TEXT))
        .axis_desc_style(letters(LETTERS).color(&TEXT))
        .set_all_tick_mark_size(3 * GRID);
    if last {
        mesh.x_desc(chart.x.title.as_str());
    }
    mesh.draw()?;
    Ok(plot)
}

/// Draws bands behind a panel, and their names above it, where there is a place for them.
fn draw_bands(canvas: &Canvas<'_>, plot: &Plot<'_, '_>, chart: &Chart, names: Option<i32>) -> Result<()> {
    let area = plot.plotting_area();
    let (x, range) = (area.as_coord_spec().x_spec(), area.get_y_range());
    let name = letters(SMALL).color(&TEXT).pos(Pos::new(HPos::Right, VPos::Center));
    for band in &chart.bands {
        let (upper, right) = (area.map_coordinate(&(x.inside(band.from), range.end)), x.inside(band.to));
        let lower = area.map_coordinate(&(right, range.start));
        canvas.draw(&Rectangle::new([upper, lower], AXIS.mix(0.1).filled()))?;
        if let Some(row) = names {
            canvas.draw_text(&band.name, &name, (lower.0, row * GRID))?;
        }
    }
    Ok(())
}

fn draw_series(canvas: &Canvas<'_>, plot: &Plot<'_, '_>, panel: &Panel, legend: &Legend) -> Result<()> {
    let area = plot.plotting_area();
    let (x, y) = (area.as_coord_spec().x_spec(), area.as_coord_spec().y_spec());
    let marked = |series: &Series| matches!(series.style, Style::Marked | Style::Markers);
    let number =
        i32::try_from(panel.series.iter().filter(|series| marked(series)).count()).unwrap_or(i32::MAX);
    let beside = (BESIDE * GRID).min(BESIDE_ALL * GRID / number.max(1));
    let mut before = 0;
    for series in &panel.series {
        let aside = if marked(series) { (2 * before - (number - 1)) * beside / 2 } else { 0 };
        before += i32::from(marked(series));
        let place = |point: &Point| {
            let value = point.y.filter(|value| y.holds(*value))?;
            let (across, upward) = area.map_coordinate(&(point.x, value));
            x.holds(point.x).then_some((across + aside, upward))
        };
        let look = legend.look(&series.name);
        draw_line(canvas, series, look, place)?;
        if !marked(series) {
            continue;
        }
        for (point, center) in series.points.iter().filter_map(|point| Some((point, place(point)?))) {
            if let Some((low, high)) = point.range {
                let end = |value: f64| area.map_coordinate(&(point.x, y.inside(value))).1;
                draw_bar(canvas, center.0, [end(low), end(high)], look)?;
            }
            draw_marker(canvas, center, look)?;
        }
    }
    Ok(())
}

/// Draws the line of a series. A point that is missing interrupts the line.
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
                canvas.draw(&DashedPathElement::new(piece, 5 * GRID, 4 * GRID, look.line()))?;
            }
            // A piece with one point has no length.
            (Style::Line, [only]) => canvas.draw(&Circle::new(*only, 3 * GRID / 2, look.color.filled()))?,
            _ => canvas.draw(&PathElement::new(piece, look.line()))?,
        }
    }
    Ok(())
}

fn draw_bar(canvas: &Canvas<'_>, x: i32, [low, high]: [i32; 2], look: Look) -> Result<()> {
    let (left, right) = (x - MARKER * GRID, x + MARKER * GRID);
    for line in [[(x, low), (x, high)], [(left, low), (right, low)], [(left, high), (right, high)]] {
        canvas.draw(&PathElement::new(line.to_vec(), look.color.stroke_width(stroke(1))))?;
    }
    Ok(())
}

pub(super) fn draw_marker(canvas: &Canvas<'_>, (x, y): (i32, i32), look: Look) -> Result<()> {
    let (r, style) = (MARKER * GRID, look.color.filled());
    // Shapes with corners look smaller.
    let wide = r + r / 4;
    match look.shape {
        0 => canvas.draw(&Circle::new((x, y), r, style))?,
        1 => canvas.draw(&Rectangle::new([(x - r, y - r), (x + r, y + r)], style))?,
        2 => canvas.draw(&TriangleMarker::new((x, y), wide, style))?,
        _ => {
            let corners = vec![(x, y - wide), (x + wide, y), (x, y + wide), (x - wide, y)];
            canvas.draw(&Polygon::new(corners, style))?;
        }
    }
    Ok(())
}

/// Draws events across all panels, with their names above.
fn draw_marks(canvas: &Canvas<'_>, chart: &Chart, x: &Coordinate, [top, bottom]: [i32; 2]) -> Result<()> {
    let across = (LEFT * GRID, (WIDTH - RIGHT) * GRID);
    let name = letters(SMALL).color(&TEXT).pos(Pos::new(HPos::Center, VPos::Bottom));
    for (place, label) in chart.marks.iter().filter(|(place, _)| x.holds(*place)) {
        let place = x.map(place, across);
        let line = vec![(place, top * GRID), (place, bottom * GRID)];
        canvas.draw(&DashedPathElement::new(line, 4 * GRID, 3 * GRID, AXIS.stroke_width(stroke(1))))?;
        canvas.draw_text(label, &name, (place, (top - 2) * GRID))?;
    }
    Ok(())
}

/// Returns a font. The library divides its size by 1.24.
pub(super) fn letters(size: i32) -> FontDesc<'static> {
    ("sans-serif", f64::from(size * GRID) * 1.24).into_font()
}

pub(super) const fn at(x: i32, y: i32) -> (i32, i32) {
    (x * GRID, y * GRID)
}

pub(super) fn stroke(wide: i32) -> u32 {
    u32::try_from(wide * GRID * 3 / 4).unwrap_or(1)
}

/// Gives the drawing the size that readers have, and the colors of their scheme.
fn finished(text: &str, height: i32) -> String {
    let (head, rest) = text.split_once('\n').unwrap_or((text, ""));
    let view = head.split_once("viewBox").map_or("", |(_, view)| view);
    format!(
        "<svg class=\"signalbox-chart\" width=\"{WIDTH}\" height=\"{height}\" viewBox{view}\n{SCHEME}\n{rest}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_broken_between_words() {
        assert_eq!(wrapped("one two  three four", 9), ["one two", "three", "four"]);
        assert_eq!(wrapped("a-very-long-word x", 4), ["a-very-long-word", "x"]);
        assert_eq!(wrapped("", 4), [""]);
    }
}
