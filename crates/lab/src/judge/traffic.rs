//! The check `traffic`, and the service that flows received.

use std::time::Duration;

use serde_json::{Value, json};
use signalbox_units::{BitRate, Percent};

use super::Judge;
use super::select::{self, Span};
use crate::language::checks::traffic::Traffic;
use crate::run::evidence::{Evidence, Verdict};
use crate::run::steps::traffic::{Packet, TrafficRun};

/// A share of fewer packets means little, and with fewer packets behind a gap it may not be over.
const PACKETS_MIN: usize = 100;

impl Judge for Traffic {
    fn judge(&self, evidence: &Evidence) -> Verdict {
        if let Some(links) = &self.links {
            return self.links(evidence, links.as_ref());
        }
        if self.max_gap.is_some() {
            return self.interruption(evidence);
        }
        let (run, span) = self.run(evidence)?;
        let service = Flow::new(run).service(span.from, span.to);
        let delay = service.delay(50).zip(service.delay(99));
        let delay =
            delay.map_or_else(String::new, |(p50, p99)| format!(", delay p50 {p50:.1} ms, p99 {p99:.1} ms"));
        let seen = format!(
            "{} of {} packets lost ({:.1} %), {:.0} kbit/s arrived{delay}{}",
            service.lost,
            service.sent,
            service.loss(),
            service.goodput / 1e3,
            self.bounds(),
        );
        let in_time = |most: signalbox_units::Span| {
            service.delay(99).is_some_and(|ms| ms <= most.0.as_secs_f64() * 1e3)
        };
        #[expect(clippy::cast_precision_loss, reason = "rates are far below 2^52")]
        let good = service.sent >= PACKETS_MIN
            && self.min_loss.is_none_or(|least| service.loss() >= least.percent())
            && self.max_loss.is_none_or(|most| service.loss() <= most.percent())
            && self.min_goodput.is_none_or(|least| service.goodput >= least.0 as f64)
            && self.max_goodput.is_none_or(|most| service.goodput <= most.0 as f64)
            && self.max_delay.is_none_or(in_time);
        if good { Ok(seen) } else { Err(seen) }
    }

    fn measure(&self, evidence: &Evidence) -> Option<(&'static str, Value)> {
        self.max_gap?;
        Some(("gaps", self.gap(evidence).ok()?.measured()))
    }
}

impl Traffic {
    /// Returns the flow and the time that is judged.
    fn run<'e>(&self, evidence: &'e Evidence) -> Result<(&'e TrafficRun, Span), String> {
        let flow = self.flow.as_ref().map_or("", |flow| flow.as_ref().as_str());
        let run = evidence.all::<TrafficRun>().find(|run| run.name == flow);
        let run = run.ok_or_else(|| format!("there was no flow {flow}"))?;
        let mut span = Span::of(evidence, [&None, &None, &self.during])?;
        if let Some(after) = &self.after {
            span.from = evidence.moment(after.as_ref())?;
        }
        Ok((run, span))
    }

    /// Says what the check allows.
    fn bounds(&self) -> String {
        let percent = |what: &str, bound: Option<Percent>| {
            bound.map(|bound| format!("loss {what} {} %", bound.percent()))
        };
        let rate = |what: &str, bound: Option<BitRate>| {
            bound.map(|bound| format!("goodput {what} {} kbit/s", bound.0 / 1000))
        };
        let delay = self.max_delay.map(|most| format!("delay p99 at most {most}"));
        let bounds = [
            percent("at least", self.min_loss),
            percent("at most", self.max_loss),
            rate("at least", self.min_goodput),
            rate("at most", self.max_goodput),
            delay,
        ];
        format!(" (expected: {})", bounds.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }

    fn gap(&self, evidence: &Evidence) -> Result<Length, String> {
        let (run, span) = self.run(evidence)?;
        Ok(Length::of(&run.packets, span.from, span.to))
    }

    fn interruption(&self, evidence: &Evidence) -> Verdict {
        let gap = self.gap(evidence)?;
        let most = self.max_gap.unwrap_or(signalbox_units::Span::millis(0));
        let seen = format!(
            "a gap of {:.1} ms with {} packets lost; then {} without loss (at most {most} expected)",
            gap.length.as_secs_f64() * 1e3,
            gap.lost,
            gap.behind
        );
        if gap.behind >= PACKETS_MIN && gap.length <= most.0 { Ok(seen) } else { Err(seen) }
    }

    fn links(&self, evidence: &Evidence, links: &toml::Value) -> Verdict {
        let legs = select::legs(evidence, links)?;
        let all = matches!(links, toml::Value::String(text) if text == "all");
        let mut seen = Vec::new();
        let mut good = true;
        for leg in &legs {
            let counts: Vec<_> = evidence.losses.iter().filter(|count| count.link == leg.link).collect();
            good &= all || !counts.is_empty();
            for count in counts {
                #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 packets")]
                let share = 100.0 * count.dropped as f64 / count.seen.max(1) as f64;
                good &= count.seen >= PACKETS_MIN as u64;
                good &= self.min_loss.is_none_or(|least| share >= least.percent());
                good &= self.max_loss.is_none_or(|most| share <= most.percent());
                let (link, node) =
                    (&evidence.plan.links[count.link].name, &evidence.plan.nodes[count.node].name);
                seen.push(format!("{link} to {node} {share:.1} % of {}", count.seen));
            }
        }
        if seen.is_empty() {
            return Err("no link has a loss".to_owned());
        }
        let seen = seen.join(", ") + &self.bounds();
        if good { Ok(seen) } else { Err(seen) }
    }
}

/// How long the flow was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Length {
    /// From the moment to the first packet of those that all arrived; nothing if no packet was lost.
    length: Duration,
    lost: usize,
    /// Packets sent from then on, all of which arrived.
    behind: usize,
}

impl Length {
    /// Looks at the packets sent from the moment on, which are in order.
    fn of(packets: &[Packet], moment: Duration, end: Duration) -> Self {
        let sent: Vec<_> = packets.iter().filter(|p| (moment..end).contains(&p.sent)).collect();
        let last = sent.iter().rposition(|packet| packet.arrived.is_none());
        let first = last.map_or(0, |last| last + 1);
        let over = sent.get(first).map_or(end, |packet| packet.sent);
        Self {
            length: last.map_or(Duration::ZERO, |_| over.saturating_sub(moment)),
            lost: sent.iter().filter(|packet| packet.arrived.is_none()).count(),
            behind: sent.len() - first,
        }
    }

    fn measured(self) -> Value {
        json!({"gap_ms": self.length.as_secs_f64() * 1e3, "lost": self.lost})
    }
}

/// The service that a flow received in a span of time: what became of the packets sent then, and what arrived then.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Service {
    pub(crate) sent: usize,
    pub(crate) lost: usize,
    /// Bits a second that arrived then, IP headers included. Packets sent before count, which a queue has delayed.
    pub(crate) goodput: f64,
    /// One-way delays in milliseconds, sorted.
    pub(crate) delays: Vec<f64>,
}

/// A flow, and when its packets arrived, in order.
#[derive(Debug)]
pub(crate) struct Flow<'a> {
    run: &'a TrafficRun,
    arrivals: Vec<Duration>,
}

impl<'a> Flow<'a> {
    /// Puts the arrivals into order, so that each span of time finds its own.
    pub(crate) fn new(run: &'a TrafficRun) -> Self {
        let mut arrivals: Vec<_> = run.packets.iter().filter_map(|packet| packet.arrived).collect();
        arrivals.sort_unstable();
        Self { run, arrivals }
    }

    /// Counts the packets sent from one time to another, and those that arrived in the same time.
    pub(crate) fn service(&self, from: Duration, to: Duration) -> Service {
        let sent = |time| self.run.packets.partition_point(|packet| packet.sent < time);
        let packets = self.run.packets.get(sent(from)..sent(to)).unwrap_or_default();
        let delay = |packet: &Packet| Some(packet.arrived?.saturating_sub(packet.sent).as_secs_f64() * 1e3);
        let mut delays: Vec<f64> = packets.iter().filter_map(delay).collect();
        delays.sort_by(f64::total_cmp);
        let span = to.saturating_sub(from).as_secs_f64().max(1e-3);
        let came = |time| self.arrivals.partition_point(|at| *at < time);
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 packets")]
        let goodput = came(to).saturating_sub(came(from)) as f64 * f64::from(self.run.size) * 8.0 / span;
        Service { sent: packets.len(), lost: packets.len() - delays.len(), goodput, delays }
    }
}

impl Service {
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
        let flow = Flow::new(run);
        let services = phases.iter().map(|(label, (from, to))| (label.as_str(), flow.service(*from, *to)));
        services.filter(|(_, service)| service.sent > 0).collect()
    };
    evidence.all::<TrafficRun>().map(|run| (run, of(run))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_and_delay_belong_to_the_time_of_sending_and_goodput_to_that_of_arrival() {
        let packet = |sent: u64, delay: Option<u64>| Packet {
            sent: Duration::from_millis(sent),
            arrived: delay.map(|delay| Duration::from_millis(sent + delay)),
        };
        let packets = vec![
            packet(0, Some(5)),
            packet(500, Some(600)),
            packet(900, Some(200)),
            packet(1000, Some(2000)),
            packet(1400, None),
            packet(1600, Some(4)),
            packet(1999, None),
            packet(2000, Some(1)),
        ];
        let run = TrafficRun { size: 1000, packets, ..TrafficRun::default() };
        let flow = Flow::new(&run);
        let service = flow.service(Duration::from_secs(1), Duration::from_secs(2));
        assert_eq!((service.sent, service.lost), (4, 2));
        assert!((service.loss() - 50.0).abs() < 1e-9 && (service.goodput - 24_000.0).abs() < 1e-6);
        assert_eq!((service.delay(50), service.delay(100)), (Some(4.0), Some(2000.0)));
        let nothing = flow.service(Duration::from_secs(3), Duration::from_secs(4));
        assert_eq!((nothing.sent, nothing.delay(50)), (0, None));
    }

    /// A flood of twice the rate of a link fills its queue: all that is sent meanwhile arrives, but no faster than the link carries it.
    #[test]
    fn no_more_arrives_than_a_link_carries() {
        let packet = |number: u64| Packet {
            sent: Duration::from_micros(400 * number),
            arrived: (number < 250).then(|| Duration::from_micros(800 * (number + 1))),
        };
        let run = TrafficRun { size: 1000, packets: (0..500).map(packet).collect(), ..TrafficRun::default() };
        for tenth in 0..2 {
            let from = Duration::from_millis(100 * tenth);
            let goodput = Flow::new(&run).service(from, from + Duration::from_millis(100)).goodput;
            assert!(
                (9_800_000.0..=10_000_001.0).contains(&goodput),
                "{goodput} bit/s over a link of 10 Mbit/s"
            );
        }
    }

    fn sent_at(sent: u64, arrives: bool) -> Packet {
        let sent = Duration::from_millis(sent);
        Packet { sent, arrived: arrives.then_some(sent) }
    }

    #[test]
    fn a_gap_ends_with_the_first_packet_of_those_that_all_arrive() {
        let packets = [
            (0, false),
            (10, true),
            (20, false),
            (30, true),
            (40, false),
            (50, true),
            (60, true),
            (90, false),
        ];
        let packets = packets.map(|(sent, arrives)| sent_at(sent, arrives));
        let ms = Duration::from_millis;
        assert_eq!(Length::of(&packets, ms(5), ms(80)), Length { length: ms(45), lost: 2, behind: 2 });
        assert_eq!(Length::of(&packets, ms(50), ms(80)), Length { length: ms(0), lost: 0, behind: 2 });
        assert_eq!(Length::of(&packets, ms(50), ms(100)), Length { length: ms(50), lost: 1, behind: 0 });
    }
}
