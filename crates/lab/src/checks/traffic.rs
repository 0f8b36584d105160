//! The check `traffic`, and the service that flows received.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::scenario::{LABEL, Mistake, Scope};
use crate::steps::traffic::{FLOW, Packet, TrafficRun};
use crate::units::{Percent, Rate};

/// A share of fewer packets means little.
const PACKETS_MIN: usize = 100;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Traffic {
    flow: Spanned<String>,
    phase: Spanned<String>,
    min_loss: Option<Percent>,
    max_loss: Option<Percent>,
    min_goodput: Option<Rate>,
    max_goodput: Option<Rate>,
}

impl Check for Traffic {
    const NAME: &'static str = "traffic";
    const MEANING: &'static str = "Of the packets of the flow that were sent while the lab watched, at least 100, such a share was lost and such a rate arrived.";
    const KEYS: &'static [Key] = &[
        key("flow", "flow", "the name of the `traffic` step"),
        key("phase", "label", "the label of the `watch` step"),
        key("min_loss", "percent", "the least loss").optional(),
        key("max_loss", "percent", "the greatest loss").optional(),
        key("min_goodput", "rate", "the least rate that arrives, IP headers included").optional(),
        key("max_goodput", "rate", "the greatest rate that arrives").optional(),
    ];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.defined(FLOW, &self.flow)?;
        scope.defined(LABEL, &self.phase)
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let Some(run) = evidence.all::<TrafficRun>().find(|run| run.name == *self.flow.as_ref()) else {
            return Err(format!("there was no flow {}", self.flow.as_ref()));
        };
        let (from, to) = evidence.window(self.phase.as_ref())?;
        let service = Service::of(run, from, to);
        let delay = service.delay(50).zip(service.delay(99));
        let delay =
            delay.map_or_else(String::new, |(p50, p99)| format!(", delay p50 {p50:.1} ms, p99 {p99:.1} ms"));
        let seen = format!(
            "{} of {} packets lost ({:.1} %), {:.0} kbit/s arrived{delay}",
            service.lost,
            service.sent,
            service.loss(),
            service.goodput / 1e3,
        );
        #[expect(clippy::cast_precision_loss, reason = "rates are far below 2^52")]
        let good = service.sent >= PACKETS_MIN
            && self.min_loss.is_none_or(|least| service.loss() >= least.percent())
            && self.max_loss.is_none_or(|most| service.loss() <= most.percent())
            && self.min_goodput.is_none_or(|least| service.goodput >= least.0 as f64)
            && self.max_goodput.is_none_or(|most| service.goodput <= most.0 as f64);
        if good { Ok(seen) } else { Err(seen) }
    }
}

/// The service that a flow received in a span of time: what became of the packets sent then.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Service {
    pub(crate) sent: usize,
    pub(crate) lost: usize,
    /// Bits a second that arrived, IP headers included.
    pub(crate) goodput: f64,
    /// One-way delays in milliseconds, sorted.
    pub(crate) delays: Vec<f64>,
}

impl Service {
    /// Counts the packets sent from one time to another.
    pub(crate) fn of(run: &TrafficRun, from: Duration, to: Duration) -> Self {
        let begin = run.packets.partition_point(|packet| packet.sent < from);
        let end = run.packets.partition_point(|packet| packet.sent < to);
        let packets = run.packets.get(begin..end).unwrap_or_default();
        let delay = |packet: &Packet| Some(packet.arrived?.saturating_sub(packet.sent).as_secs_f64() * 1e3);
        let mut delays: Vec<f64> = packets.iter().filter_map(delay).collect();
        delays.sort_by(f64::total_cmp);
        let span = to.saturating_sub(from).as_secs_f64().max(1e-3);
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 packets")]
        let goodput = delays.len() as f64 * f64::from(run.size) * 8.0 / span;
        Self { sent: packets.len(), lost: packets.len() - delays.len(), goodput, delays }
    }

    /// Returns the share of packets that did not arrive, in percent.
    pub(crate) fn loss(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 packets")]
        let share = self.lost as f64 / self.sent.max(1) as f64;
        share * 100.0
    }

    /// Returns the delay that this percentage of the packets did not exceed, in milliseconds.
    pub(crate) fn delay(&self, percent: usize) -> Option<f64> {
        let at = (self.delays.len() * percent).div_ceil(100).saturating_sub(1);
        self.delays.get(at).copied()
    }
}

/// Returns the service of each flow in each phase, in the order of time.
pub(crate) fn services(evidence: &Evidence) -> Vec<(&TrafficRun, Vec<(&str, Service)>)> {
    let mut phases: Vec<_> = evidence.windows.iter().collect();
    phases.sort_by_key(|(_, window)| **window);
    let of = |run| {
        let services =
            phases.iter().map(|(label, (from, to))| (label.as_str(), Service::of(run, *from, *to)));
        services.filter(|(_, service)| service.sent > 0).collect()
    };
    evidence.all::<TrafficRun>().map(|run| (run, of(run))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_belong_to_the_time_when_they_were_sent() {
        let packet = |sent: u64, delay: Option<u64>| Packet {
            sent: Duration::from_millis(sent),
            arrived: delay.map(|delay| Duration::from_millis(sent + delay)),
        };
        let packets = vec![
            packet(0, Some(5)),
            packet(1000, Some(2000)),
            packet(1400, None),
            packet(1600, Some(4)),
            packet(1999, None),
            packet(2000, Some(1)),
        ];
        let run = TrafficRun { size: 1000, packets, ..TrafficRun::default() };
        let service = Service::of(&run, Duration::from_secs(1), Duration::from_secs(2));
        assert_eq!((service.sent, service.lost), (4, 2));
        assert!((service.loss() - 50.0).abs() < 1e-9 && (service.goodput - 16_000.0).abs() < 1e-6);
        assert_eq!((service.delay(50), service.delay(100)), (Some(4.0), Some(2000.0)));
        let nothing = Service::of(&run, Duration::from_secs(3), Duration::from_secs(4));
        assert_eq!((nothing.sent, nothing.delay(50)), (0, None));
    }
}
