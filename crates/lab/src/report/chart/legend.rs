//! The legend of a chart: the names of its series in rows, and the color and the shape that each has.

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::draw::{Canvas, LEFT, LETTERS, ROW, TEXT, WIDTH, at, draw_marker, letters, stroke};
use super::{Chart, Style};

/// The sample of a line, what lies between it and the name, and the space behind an entry.
const SAMPLE: i32 = 18;
const NAME: i32 = SAMPLE + 6;
const BETWEEN: i32 = 18;
/// The width of a letter: names have narrow ones, too.
const LETTER: i32 = 7;
const SHAPES: usize = 4;

/// The colors of Okabe and Ito that are seen on white and on black, in the order in which they differ most.
const COLORS: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xe6, 0x9f, 0x00),
];

/// The color and the shape of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Look {
    pub(super) color: RGBColor,
    pub(super) shape: usize,
}

impl Look {
    /// Series of the same color have other shapes, up to 24.
    fn of(number: usize) -> Self {
        let color = number % COLORS.len();
        let shape = (color + number / COLORS.len()) % SHAPES;
        Self { color: COLORS.get(color).copied().unwrap_or(TEXT), shape }
    }

    pub(super) fn line(self) -> ShapeStyle {
        self.color.stroke_width(stroke(2))
    }
}

/// The names with their places.
#[derive(Debug)]
pub(super) struct Legend {
    /// Each name with the place of its entry across, and its row.
    entries: Vec<(String, Style, (i32, i32))>,
}

impl Legend {
    pub(super) fn of(chart: &Chart) -> Self {
        let mut entries: Vec<(String, Style, (i32, i32))> = Vec::new();
        let (mut x, mut row) = (LEFT, 0);
        for series in chart.panels.iter().flat_map(|panel| &panel.series) {
            let known = entries.iter().any(|(name, ..)| *name == series.name);
            if known || series.name.is_empty() || series.style == Style::Dashed {
                continue;
            }
            let name = i32::try_from(series.name.chars().count()).unwrap_or(WIDTH);
            let wide = NAME + LETTER * name + BETWEEN;
            if x > LEFT && x + wide > WIDTH {
                (x, row) = (LEFT, row + 1);
            }
            entries.push((series.name.clone(), series.style, (x, row)));
            x += wide;
        }
        Self { entries }
    }

    /// Returns the number of its rows.
    pub(super) fn rows(&self) -> i32 {
        self.entries.last().map_or(0, |(.., (_, row))| row + 1)
    }

    /// Returns the look of the series with a name. A model has that of the series of its name.
    pub(super) fn look(&self, name: &str) -> Look {
        Look::of(self.entries.iter().position(|(known, ..)| known == name).unwrap_or(0))
    }

    pub(super) fn draw(&self, canvas: &Canvas<'_>, top: i32) -> Result<()> {
        let text = letters(LETTERS).color(&TEXT).pos(Pos::new(HPos::Left, VPos::Center));
        for (name, style, (x, row)) in &self.entries {
            let (look, y) = (self.look(name), top + row * ROW + ROW / 2);
            if *style != Style::Markers {
                canvas.draw(&PathElement::new(vec![at(*x, y), at(x + SAMPLE, y)], look.line()))?;
            }
            if *style != Style::Line {
                draw_marker(canvas, at(x + SAMPLE / 2, y), look)?;
            }
            canvas.draw_text(name, &text, at(x + NAME, y))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_dozen_series_look_different() {
        let looks: Vec<_> = (0..24).map(Look::of).collect();
        for (number, look) in looks.iter().enumerate() {
            assert!(!looks[..number].contains(look), "{number}: {look:?}");
        }
    }
}
