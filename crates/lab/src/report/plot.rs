//! A plot, as SVG, of the service that flows received over time.

use std::time::Duration;

use anyhow::{Result, bail};

use super::chart::{Axis, Band, Chart, Panel, Point, Series, Style, short};
use super::steps;
use crate::judge::traffic::{Flow, Service};
use crate::run::evidence::Evidence;
use crate::run::steps::traffic::TrafficRun;

/// The time of one point.
const BIN: Duration = Duration::from_millis(200);
/// Two marks within this time are one.
const SAME: Duration = Duration::from_millis(100);

/// The title of an axis, and how a point of the panel is found; `None` leaves a gap in the curve.
type Measure = (&'static str, fn(&Service) -> Option<f64>);

const PANELS: [Measure; 3] = [
    ("loss, %", |service| (service.sent > 0).then(|| service.loss())),
    ("median delay, ms", |service| service.delay(50)),
    ("goodput, Mbit/s", |service| Some(service.goodput / 1e6)),
];

/// Draws all flows, the phases behind them and the marks of what happened.
///
/// # Errors
/// No packet of a flow was sent.
pub(crate) fn svg(title: &str, evidence: &Evidence) -> Result<String> {
    chart(title, evidence)?.svg()
}

fn chart(title: &str, evidence: &Evidence) -> Result<Chart> {
    let packets = || evidence.all::<TrafficRun>().flat_map(|run| &run.packets);
    let times = packets().map(|packet| packet.sent).min().zip(packets().map(|packet| packet.sent).max());
    let Some((begin, end)) = times else {
        bail!("no packet of a flow was sent, so that nothing can be drawn");
    };
    let place = |time: Duration| time.saturating_sub(begin).as_secs_f64();
    let flows: Vec<_> = evidence.all::<TrafficRun>().map(|run| (named(run), Flow::new(run))).collect();
    let panel = |(title, value): Measure| {
        let series = |(name, flow): &(String, Flow<'_>)| {
            let starts = std::iter::successors(Some(begin), |at| Some(*at + BIN));
            let bins = starts.take_while(|at| *at + BIN <= end);
            let point =
                |at| Point { x: place(at + BIN / 2), y: value(&flow.service(at, at + BIN)), range: None };
            Series { name: name.clone(), style: Style::Line, points: bins.map(point).collect() }
        };
        Panel { y: Axis::linear(title), series: flows.iter().map(series).collect() }
    };
    let within = |from: Duration, to: Duration| to > begin && from < end;
    let windows = evidence.windows.iter().filter(|(_, (from, to))| within(*from, *to));
    let bands = windows.map(|(name, (from, to))| Band {
        from: place((*from).max(begin)),
        to: place((*to).min(end)),
        name: name.clone(),
    });
    let marks = marks(evidence).into_iter().filter(|(at, _)| (begin..=end).contains(at));
    Ok(Chart {
        title: title.to_owned(),
        note: String::new(),
        x: Axis::linear("time, s"),
        panels: PANELS.into_iter().map(panel).collect(),
        bands: bands.collect(),
        marks: marks.map(|(at, name)| (place(at), name)).collect(),
    })
}

/// Returns the name of a flow, with the rate at which it was sent.
fn named(run: &TrafficRun) -> String {
    #[expect(clippy::cast_precision_loss, reason = "rates are far below 2^52")]
    let rate = run.rate as f64 / 1e6;
    format!("{} ({} Mbit/s sent)", run.name, short(rate))
}

/// Returns what happened, in the order of time: what steps mark, and the moments that they note.
fn marks(evidence: &Evidence) -> Vec<(Duration, String)> {
    let mut marks = steps::marks(evidence);
    marks.extend(evidence.marks.iter().cloned());
    marks.sort_by_key(|(at, _)| *at);
    marks.dedup_by(|(late, _), (early, _)| late.saturating_sub(*early) < SAME);
    marks
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
        evidence.windows.insert("before".into(), (Duration::ZERO, Duration::from_millis(700)));
        let chart = chart("x", &evidence).expect("there is a flow");
        let [loss, delay, goodput] = &chart.panels[..] else { panic!("three panels") };
        let values = |panel: &Panel| panel.series[0].points.iter().map(|point| point.y).collect::<Vec<_>>();
        assert_eq!(values(loss), [0.0, 0.0, 0.0, 0.0, 100.0, 100.0, 100.0, 0.0, 0.0, 0.0].map(Some));
        let (some, none) = (Some(5.0), None);
        assert_eq!(values(delay), [some, some, some, some, none, none, none, some, some, some]);
        assert!(values(goodput).iter().all(Option::is_some));
        assert_eq!(chart.marks, [(0.8, "link lost".into())]);
        assert_eq!(chart.bands, [Band { from: 0.0, to: 0.7, name: "before".into() }]);
        assert_eq!(loss.series[0].name, "flow (1 Mbit/s sent)");
        let svg = chart.svg().expect("drawn");
        assert!(
            svg.contains("link lost") && svg.contains("goodput, Mbit/s") && svg.contains("time, s"),
            "{svg}"
        );
    }

    #[test]
    fn without_a_flow_nothing_is_drawn() {
        let (_, evidence) = evidence("clean = true");
        let said = svg("x", &evidence).expect_err("no flow").to_string();
        assert!(said.starts_with("no packet of a flow was sent"), "{said}");
    }
}
