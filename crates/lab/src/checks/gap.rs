//! The check `gap`: how long a flow was interrupted after something happened, by its packets.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use toml::Spanned;

use super::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::scenario::{LABEL, MOMENT, Mistake, Scope};
use crate::steps::traffic::{FLOW, Packet, TrafficRun};
use crate::units::Span;

/// With fewer packets behind a gap it may not be over.
const PACKETS_MIN: usize = 100;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Gap {
    flow: Spanned<String>,
    after: Spanned<String>,
    phase: Spanned<String>,
    within: Span,
}

impl Check for Gap {
    const NAME: &'static str = "gap";
    const MEANING: &'static str =
        "After the moment the flow lost packets within this time only; at least 100 packets followed.";
    const KEYS: &'static [Key] = &[
        key("flow", "flow", "the name of the `traffic` step"),
        key("after", "moment", "what happened"),
        key("phase", "label", "the `watch` step whose end is the end of what is judged"),
        key("within", "time", "the longest interruption"),
    ];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.defined(FLOW, &self.flow)?;
        scope.defined(MOMENT, &self.after)?;
        scope.defined(LABEL, &self.phase)
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let gap = self.found(evidence)?;
        let seen = format!(
            "a gap of {:.1} ms with {} packets lost; then {} without loss",
            gap.length.as_secs_f64() * 1e3,
            gap.lost,
            gap.behind
        );
        if gap.behind >= PACKETS_MIN && gap.length <= self.within.0 {
            Ok(seen)
        } else {
            Err(format!("{seen}; {} was allowed", self.within))
        }
    }

    fn measure(&self, evidence: &Evidence) -> Option<(&'static str, Value)> {
        Some(("gaps", self.found(evidence).ok()?.measured()))
    }
}

impl Gap {
    fn found(&self, evidence: &Evidence) -> Result<Length, String> {
        let flow = self.flow.as_ref();
        let run = evidence.all::<TrafficRun>().find(|run| run.name == *flow);
        let run = run.ok_or_else(|| format!("there was no flow {flow}"))?;
        let (_, end) = evidence.window(self.phase.as_ref())?;
        Ok(Length::of(&run.packets, evidence.moment(self.after.as_ref())?, end))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(sent: u64, arrives: bool) -> Packet {
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
        let packets = packets.map(|(sent, arrives)| packet(sent, arrives));
        let ms = Duration::from_millis;
        assert_eq!(Length::of(&packets, ms(5), ms(80)), Length { length: ms(45), lost: 2, behind: 2 });
        assert_eq!(Length::of(&packets, ms(50), ms(80)), Length { length: ms(0), lost: 0, behind: 2 });
        assert_eq!(Length::of(&packets, ms(50), ms(100)), Length { length: ms(50), lost: 1, behind: 0 });
    }
}
