//! A plot of what flows had of the network over time, as SVG.

use std::fmt::Write as _;
use std::time::Duration;

use crate::checks::traffic::Service;
use crate::evidence::Evidence;
use crate::steps::traffic::TrafficRun;

/// Time of one point.
const BIN: Duration = Duration::from_millis(200);
const WIDTH: f64 = 760.0;
const PANEL: f64 = 130.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 46.0;
const GAP: f64 = 34.0;
const COLOURS: [&str; 4] = ["#0b6fb8", "#c2570c", "#2f8f4e", "#7a4fa3"];

/// A panel: its title, and how a point of it is found.
type Panel = (&'static str, fn(&Service) -> Option<f64>);

const PANELS: [Panel; 3] = [
    ("loss, %", |service| (service.sent > 0).then(|| service.loss())),
    ("delay of one way, ms (median)", |service| service.delay(50)),
    ("goodput, Mbit/s", |service| Some(service.goodput / 1e6)),
];

/// The plot of all flows, with the phases behind them; `None` without a flow.
pub(crate) fn svg(title: &str, evidence: &Evidence) -> Option<String> {
    let packets = || evidence.all::<TrafficRun>().flat_map(|run| &run.packets);
    let begin = packets().map(|packet| packet.sent).min()?;
    let end = packets().map(|packet| packet.sent).max()?;
    let span = end.saturating_sub(begin).as_secs_f64().max(1e-3);
    let x = |at: Duration| LEFT + at.saturating_sub(begin).as_secs_f64() / span * WIDTH;
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
    for (index, (name, value)) in PANELS.iter().enumerate() {
        let base = TOP + to_f64(index) * (PANEL + GAP) + GAP / 2.0 + PANEL;
        panel(&mut svg, evidence, (name, *value), base, [begin, end], &x);
    }
    let bottom = height - 14.0;
    for second in 0..=end.saturating_sub(begin).as_secs() {
        let at = x(begin + Duration::from_secs(second));
        let _ = writeln!(svg, "<text x=\"{at:.1}\" y=\"{bottom}\" text-anchor=\"middle\">{second} s</text>");
    }
    svg += "</svg>\n";
    Some(svg)
}

fn panel(
    svg: &mut String,
    evidence: &Evidence,
    (name, value): (&str, fn(&Service) -> Option<f64>),
    base: f64,
    [begin, end]: [Duration; 2],
    x: &dyn Fn(Duration) -> f64,
) {
    let curve = |run: &TrafficRun| -> Vec<(Duration, f64)> {
        let mut points = Vec::new();
        let mut at = begin;
        while at + BIN <= end {
            points.extend(value(&Service::of(run, at, at + BIN)).map(|value| (at + BIN / 2, value)));
            at += BIN;
        }
        points
    };
    let curves: Vec<_> = evidence.all::<TrafficRun>().map(curve).collect();
    let most = curves.iter().flatten().map(|(_, value)| *value).fold(0.0, f64::max);
    let top = if most > 0.0 { most * 1.1 } else { 1.0 };
    let y = |value: f64| base - value / top * PANEL;
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{:.1}\">{name}</text>", base - PANEL - 4.0);
    for (label, (from, to)) in &evidence.windows {
        if *to <= begin || *from >= end {
            continue;
        }
        let (left, right) = (x((*from).max(begin)), x((*to).min(end)));
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
    for share in [0.0, 0.5, 1.0] {
        let (at, number) = (y(most * share), most * share);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\" stroke=\"#ccc\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{number:.1}</text>",
            LEFT + WIDTH,
            LEFT - 6.0,
            at + 4.0
        );
    }
    for (number, points) in curves.iter().enumerate() {
        let points: Vec<_> =
            points.iter().map(|(at, value)| format!("{:.1},{:.1}", x(*at), y(*value))).collect();
        let colour = COLOURS[number % COLOURS.len()];
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\" points=\"{}\"/>",
            points.join(" ")
        );
    }
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
const fn to_f64(number: usize) -> f64 {
    number as f64
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
