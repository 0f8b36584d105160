//! The plot of one engine, as SVG: time of messages and memory of sessions, over the number of sessions.

use anyhow::Result;
use signalbox_lab::chart::{Axis, Chart, Panel, Point, Series, Style};

use super::{Growth, MEASURABLE};

/// Points of a fitted line, which is curved where the number of sessions grows by powers.
const STEPS: u32 = 40;

/// Draws an engine's growth; `machine` says where it was measured.
pub(super) fn svg(growth: &Growth, machine: &str) -> Result<String> {
    chart(growth, machine).svg()
}

pub(super) fn chart(growth: &Growth, machine: &str) -> Chart {
    let sessions = || growth.sizes.iter().map(|size| f64::from(*size));
    let points =
        |values: &[f64]| sessions().zip(values).map(|(n, value)| Point::new(n, *value)).collect::<Vec<_>>();
    let (least, most) = (sessions().fold(f64::MAX, f64::min), sessions().fold(1.0, f64::max));
    let mut times = Vec::new();
    for (name, values, line) in growth.messages() {
        let name = format!("{name}: τ {:.0} ns, α {:.0} ns each million", line.tau, line.per_million());
        let step = |step| {
            let n = least * (most / least).powf(f64::from(step) / f64::from(STEPS));
            Point::new(n, line.at(n))
        };
        let model = (0..=STEPS).map(step).collect();
        times.push(Series { name: name.clone(), style: Style::Marked, points: points(values) });
        times.push(Series { name, style: Style::Dashed, points: model });
    }
    let mut octets = points(&growth.octets);
    octets.retain(|point| point.x >= f64::from(MEASURABLE));
    let octets = Series { name: "memory".to_owned(), style: Style::Marked, points: octets };
    Chart {
        title: format!("{}: cost over the number of sessions", growth.engine.name),
        note: machine.to_owned(),
        x: Axis::log("sessions"),
        panels: vec![
            Panel { y: Axis::linear("ns each; dashed: τ + αn"), series: times },
            Panel { y: Axis::linear("octets of a session"), series: vec![octets] },
        ],
        ..Chart::default()
    }
}
