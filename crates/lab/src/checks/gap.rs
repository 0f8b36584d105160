//! How long a flow was not served after something happened: what its packets tell.

use std::time::Duration;

use serde_json::{Value, json};

use super::Verdict;
use crate::evidence::{Evidence, Packet};
use crate::scenario::GapCheck;

/// With fewer packets behind a gap it may not be over.
const PACKETS_MIN: usize = 100;

/// What was seen of a flow after the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gap {
    /// From the moment to the first packet of those that all arrived; nothing if no packet was lost.
    length: Duration,
    lost: usize,
    /// Packets sent from then on, all of which arrived.
    behind: usize,
}

impl Gap {
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

    /// For the report.
    pub(crate) fn measured(self) -> Value {
        json!({"gap_ms": self.length.as_secs_f64() * 1e3, "lost": self.lost})
    }
}

/// The gap that a check is about.
pub(crate) fn found(evidence: &Evidence, check: &GapCheck) -> Result<Gap, String> {
    let (flow, after, phase) = (check.flow.as_ref(), check.after.as_ref(), check.phase.as_ref());
    let run = evidence.traffic.iter().find(|run| run.name == *flow);
    let run = run.ok_or_else(|| format!("there was no flow {flow}"))?;
    let moment = evidence.moments.get(after).ok_or_else(|| format!("nothing happened at {after:?}"))?;
    let window = evidence.windows.get(phase);
    let (_, end) = window.ok_or_else(|| format!("nobody watched at {phase:?}"))?;
    Ok(Gap::of(&run.packets, *moment, *end))
}

/// It was over in time.
pub(super) fn gap(evidence: &Evidence, check: &GapCheck) -> Verdict {
    let gap = found(evidence, check)?;
    let seen = format!(
        "a gap of {:.1} ms with {} packets lost; then {} without loss",
        gap.length.as_secs_f64() * 1e3,
        gap.lost,
        gap.behind
    );
    if gap.behind >= PACKETS_MIN && gap.length <= check.within.0 {
        Ok(seen)
    } else {
        Err(format!("{seen}; {} was allowed", check.within))
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
        assert_eq!(Gap::of(&packets, ms(5), ms(80)), Gap { length: ms(45), lost: 2, behind: 2 });
        assert_eq!(Gap::of(&packets, ms(50), ms(80)), Gap { length: ms(0), lost: 0, behind: 2 });
        assert_eq!(Gap::of(&packets, ms(50), ms(100)), Gap { length: ms(50), lost: 1, behind: 0 });
    }
}
