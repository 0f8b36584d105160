//! A plot, as SVG, of the service that flows received over time.

use std::fmt::Write as _;
use std::time::Duration;

use super::drawing::{COLOURS, escaped, ticks};
use super::steps;
use crate::judge::traffic::Service;
use crate::run::evidence::Evidence;
use crate::run::steps::traffic::TrafficRun;

/// The time of one point.
const BIN: Duration = Duration::from_millis(200);
/// Two marks within this time are one.
const SAME: Duration = Duration::from_millis(100);
const WIDTH: f64 = 760.0;
const PANEL: f64 = 130.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 62.0;
const GAP: f64 = 34.0;
/// The number of intervals between the ticks of an axis, at most.
const INTERVALS: f64 = 4.0;
const INTERVALS_OF_TIME: f64 = 10.0;

/// A panel: its title, and how a point of it is found; `None` leaves a gap in the curve.
type Panel = (&'static str, fn(&Service) -> Option<f64>);

const PANELS: [Panel; 3] = [
    ("loss, %", |service| (service.sent > 0).then(|| service.loss())),
    ("one-way delay, ms (median)", |service| service.delay(50)),
    ("goodput, Mbit/s", |service| Some(service.goodput / 1e6)),
];

/// The time that a plot shows.
#[derive(Debug, Clone, Copy)]
struct Axis {
    begin: Duration,
    end: Duration,
}

impl Axis {
    fn x(self, at: Duration) -> f64 {
        LEFT + at.saturating_sub(self.begin).as_secs_f64() / self.span() * WIDTH
    }

    fn span(self) -> f64 {
        self.end.saturating_sub(self.begin).as_secs_f64().max(1e-3)
    }

    fn holds(self, at: Duration) -> bool {
        (self.begin..=self.end).contains(&at)
    }
}

/// Draws all flows, the phases behind them and the marks of what happened; `None` without a flow.
pub(crate) fn svg(title: &str, evidence: &Evidence) -> Option<String> {
    let packets = || evidence.all::<TrafficRun>().flat_map(|run| &run.packets);
    let begin = packets().map(|packet| packet.sent).min()?;
    let end = packets().map(|packet| packet.sent).max()?;
    let axis = Axis { begin, end };
    let height = TOP + 3.0 * (PANEL + GAP) + 30.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0}\" height=\"{height:.0}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"18\" font-size=\"14\" font-weight=\"bold\">{}</text>\n",
        LEFT + WIDTH + 20.0,
        escaped(title),
    );
    // Writing to a string does not fail.
    for (number, run) in evidence.all::<TrafficRun>().enumerate() {
        let (colour, place) = (COLOURS[number % COLOURS.len()], LEFT + 180.0 * to_f64(number));
        let _ = writeln!(
            svg,
            "<text x=\"{place}\" y=\"36\" fill=\"{colour}\">{} ({:.1} Mbit/s sent)</text>",
            escaped(&run.name),
            to_f64(usize::try_from(run.rate / 1000).unwrap_or(0)) / 1e3,
        );
    }
    for (index, entry) in PANELS.iter().enumerate() {
        let base = TOP + to_f64(index) * (PANEL + GAP) + GAP / 2.0 + PANEL;
        panel(&mut svg, evidence, *entry, base, axis);
    }
    let bottom = height - 14.0;
    for (at, label) in marks(evidence).iter().filter(|(at, _)| axis.holds(*at)) {
        let x = axis.x(*at);
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"#444\" stroke-dasharray=\"4 3\"/>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            TOP - 4.0,
            bottom - 14.0,
            TOP - 8.0,
            escaped(label)
        );
    }
    for second in ticks(axis.span(), INTERVALS_OF_TIME) {
        let x = axis.x(begin + Duration::from_secs_f64(second));
        let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{bottom}\" text-anchor=\"middle\">{second} s</text>");
    }
    svg += "</svg>\n";
    Some(svg)
}

/// Returns what happened, in the order of time: what steps mark, and the moments that they note.
fn marks(evidence: &Evidence) -> Vec<(Duration, String)> {
    let mut marks = steps::marks(evidence);
    marks.extend(evidence.marks.iter().cloned());
    marks.sort_by_key(|(at, _)| *at);
    marks.dedup_by(|(late, _), (early, _)| late.saturating_sub(*early) < SAME);
    marks
}

fn panel(svg: &mut String, evidence: &Evidence, (name, value): Panel, base: f64, axis: Axis) {
    let curve = |run: &TrafficRun| -> Vec<(Duration, Option<f64>)> {
        let starts = std::iter::successors(Some(axis.begin), |at| Some(*at + BIN));
        let bins = starts.take_while(|at| *at + BIN <= axis.end);
        bins.map(|at| (at + BIN / 2, value(&Service::of(run, at, at + BIN)))).collect()
    };
    let curves: Vec<_> = evidence.all().map(curve).collect();
    let most = curves.iter().flatten().filter_map(|(_, value)| *value).fold(0.0, f64::max);
    let ticks = ticks(most, INTERVALS);
    let top = most.max(ticks.last().copied().unwrap_or_default()) * 1.1;
    let top = if top > 0.0 { top } else { 1.0 };
    let y = |value: f64| base - value / top * PANEL;
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{:.1}\">{name}</text>", base - PANEL - 4.0);
    for (label, (from, to)) in &evidence.windows {
        if *to <= axis.begin || *from >= axis.end {
            continue;
        }
        let (left, right) = (axis.x((*from).max(axis.begin)), axis.x((*to).min(axis.end)));
        let (wide, up) = (right - left, base - PANEL);
        let _ = writeln!(
            svg,
            "<rect x=\"{left:.1}\" y=\"{up:.1}\" width=\"{wide:.1}\" height=\"{PANEL}\" fill=\"#eef2f6\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#667\" text-anchor=\"end\">{}</text>",
            right - 4.0,
            up + 13.0,
            escaped(label)
        );
    }
    for tick in ticks {
        let at = y(tick);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\" stroke=\"#ccc\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{tick}</text>",
            LEFT + WIDTH,
            LEFT - 6.0,
            at + 4.0
        );
    }
    for (number, points) in curves.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        for piece in pieces(points) {
            let places: Vec<_> =
                piece.iter().map(|(at, value)| format!("{:.1},{:.1}", axis.x(*at), y(*value))).collect();
            // The round ends make a point of a piece that has only one.
            let _ = writeln!(
                svg,
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\" stroke-linecap=\"round\" points=\"{} {}\"/>",
                places[0],
                places.join(" ")
            );
        }
    }
}

/// Cuts a curve where it has no value.
fn pieces(points: &[(Duration, Option<f64>)]) -> Vec<Vec<(Duration, f64)>> {
    let runs = points.split(|(_, value)| value.is_none()).filter(|run| !run.is_empty());
    runs.map(|run| run.iter().filter_map(|(at, value)| Some((*at, (*value)?))).collect()).collect()
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
const fn to_f64(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::tests::evidence;
    use crate::run::steps::traffic::Packet;

    #[test]
    fn a_delay_has_a_gap_where_no_packet_arrived_and_events_are_marked() {
        let (_, mut evidence) = evidence("clean = true");
        let packet = |ms: u64| {
            let sent = Duration::from_millis(ms);
            let lost = (800..1400).contains(&ms);
            Packet { sent, arrived: (!lost).then(|| sent + Duration::from_millis(5)) }
        };
        let packets = (0..=200).map(|n| packet(n * 10)).collect();
        evidence.record(TrafficRun { name: "flow".into(), rate: 1_000_000, size: 100, packets });
        evidence.marks.push((Duration::from_millis(800), "link lost".into()));
        let svg = svg("x", &evidence).expect("there is a flow");
        // Loss and goodput are one curve each, the delay is two.
        assert_eq!(svg.matches("<polyline").count(), 4, "{svg}");
        assert_eq!(svg.matches("stroke-dasharray").count(), 1);
        assert!(svg.contains(">link lost</text>") && svg.contains(">100</text>"), "{svg}");
    }
}
