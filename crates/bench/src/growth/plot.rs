//! The plot of one engine, as SVG: time of messages and memory of sessions, over the number of sessions.

use std::fmt::Write as _;

use super::{Growth, MEASURABLE};
use signalbox_lab::drawing::{COLOURS, escaped, ticks};

const WIDTH: f64 = 560.0;
const PANEL: f64 = 200.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 70.0;
const GAP: f64 = 60.0;
const INTERVALS: f64 = 5.0;
/// Points of a fitted line, which is curved where the number of sessions grows by powers.
const STEPS: u32 = 40;

/// A panel with its place and scale.
struct Panel<'a> {
    svg: &'a mut String,
    base: f64,
    /// Powers of ten of the first and the last number of sessions.
    from: f64,
    to: f64,
    top: f64,
}

impl Panel<'_> {
    fn x(&self, sessions: f64) -> f64 {
        LEFT + (sessions.log10() - self.from) / (self.to - self.from).max(1e-9) * WIDTH
    }

    fn y(&self, value: f64) -> f64 {
        self.base - value / self.top * PANEL
    }

    // Writing to a string does not fail.
    fn frame(&mut self, title: &str, sizes: &[u32]) {
        let _ = writeln!(self.svg, "<text x=\"{LEFT}\" y=\"{:.1}\">{title}</text>", self.base - PANEL - 10.0);
        for tick in ticks(self.top, INTERVALS) {
            let y = self.y(tick);
            let _ = writeln!(
                self.svg,
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"#ccc\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{tick}</text>",
                LEFT + WIDTH,
                LEFT - 6.0,
                y + 4.0
            );
        }
        for size in sizes {
            let x = self.x(f64::from(*size));
            let _ = writeln!(
                self.svg,
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                self.base + 18.0,
                short(*size)
            );
        }
    }

    fn curve(&mut self, points: impl Iterator<Item = (f64, f64)>, style: &str) {
        let places: Vec<_> =
            points.map(|(n, value)| format!("{:.1},{:.1}", self.x(n), self.y(value))).collect();
        let _ = writeln!(self.svg, "<polyline fill=\"none\" {style} points=\"{}\"/>", places.join(" "));
    }
}

/// Draws an engine's growth; `machine` says where it was measured.
pub(super) fn svg(growth: &Growth, machine: &str) -> String {
    let height = TOP + 2.0 * (PANEL + GAP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0}\" height=\"{height:.0}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"14\" font-weight=\"bold\">{}: cost over the number of sessions</text>\n\
         <text x=\"{LEFT}\" y=\"36\" font-size=\"9\" fill=\"#667\">{}</text>\n",
        LEFT + WIDTH + 40.0,
        growth.engine.name,
        escaped(machine),
    );
    let sessions = || growth.sizes.iter().map(|size| f64::from(*size));
    let (from, to) = (sessions().fold(f64::MAX, f64::min).log10(), sessions().fold(1.0, f64::max).log10());
    let slowest = growth.times.iter().flatten().copied().fold(1.0, f64::max);
    let mut panel = Panel { svg: &mut svg, base: TOP + PANEL, from, to, top: slowest * 1.1 };
    panel.frame("nanoseconds each; dashed: t = τ + αn", &growth.sizes);
    for (number, (name, times, line)) in growth.messages().enumerate() {
        let colour = COLOURS.get(number % COLOURS.len()).copied().unwrap_or("black");
        panel.curve(
            sessions().zip(times.iter().copied()),
            &format!("stroke=\"{colour}\" stroke-width=\"1.8\""),
        );
        let steps = (0..=STEPS).map(|step| {
            let n = 10_f64.powf(from + (to - from) * f64::from(step) / f64::from(STEPS));
            (n, line.at(n))
        });
        panel.curve(steps, &format!("stroke=\"{colour}\" stroke-dasharray=\"4 3\""));
        let y = panel.y(times.first().copied().unwrap_or_default()) - 6.0;
        let _ = writeln!(
            panel.svg,
            "<text x=\"{:.1}\" y=\"{y:.1}\" fill=\"{colour}\">{}: τ {:.0} ns, α {:.0} ns each million</text>",
            LEFT + 6.0,
            escaped(name),
            line.tau,
            line.per_million()
        );
    }
    let largest = growth.octets.iter().copied().fold(1.0, f64::max);
    let mut panel = Panel { svg: &mut svg, base: TOP + 2.0 * PANEL + GAP, from, to, top: largest * 1.1 };
    panel.frame("octets of memory for each session", &growth.sizes);
    let octets = sessions().zip(growth.octets.iter().copied()).filter(|(n, _)| *n >= f64::from(MEASURABLE));
    panel.curve(octets, "stroke=\"#2f8f4e\" stroke-width=\"1.8\"");
    svg += "</svg>\n";
    svg
}

fn short(size: u32) -> String {
    match size {
        1_000_000.. => format!("{}M", size / 1_000_000),
        1_000.. => format!("{}k", size / 1_000),
        _ => size.to_string(),
    }
}
