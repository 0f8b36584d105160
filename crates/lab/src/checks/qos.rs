//! Checks of reservations, and of what flows had of the network.

use std::time::Duration;

use serde_json::{Value, json};

use super::Verdict;
use crate::evidence::{Evidence, Packet, ReserveRun, TrafficRun};
use crate::scenario::{
    GrantedCheck, KernelCheck, NotGrantedCheck, QueuesCheck, ReservationsCheck, TrafficCheck,
};

/// Fewer packets tell nothing of a share.
const PACKETS_MIN: usize = 100;

/// What a flow had in a span of time: of the packets sent then.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Service {
    pub(crate) sent: usize,
    pub(crate) lost: usize,
    /// Bits a second that arrived, IP headers included.
    pub(crate) goodput: f64,
    /// Of one way, in milliseconds, sorted.
    pub(crate) delays: Vec<f64>,
}

impl Service {
    /// What the packets sent from one time to another had.
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

    /// Packets that did not arrive, in percent.
    pub(crate) fn loss(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 packets")]
        let share = self.lost as f64 / self.sent.max(1) as f64;
        share * 100.0
    }

    /// The delay that so many percent of the packets did not exceed, in milliseconds.
    pub(crate) fn delay(&self, percent: usize) -> Option<f64> {
        let at = (self.delays.len() * percent).div_ceil(100).saturating_sub(1);
        self.delays.get(at).copied()
    }
}

/// Of each flow: what it had in each phase, in the order of time.
pub(crate) fn services(evidence: &Evidence) -> Vec<(&TrafficRun, Vec<(&str, Service)>)> {
    let mut phases: Vec<_> = evidence.windows.iter().collect();
    phases.sort_by_key(|(_, window)| **window);
    let of = |run| {
        let services =
            phases.iter().map(|(label, (from, to))| (label.as_str(), Service::of(run, *from, *to)));
        services.filter(|(_, service)| service.sent > 0).collect()
    };
    evidence.traffic.iter().map(|run| (run, of(run))).collect()
}

/// For the report: an object a flow, in it one a phase.
pub(crate) fn measured(evidence: &Evidence) -> Value {
    let phase = |(label, service): (&str, Service)| {
        let value = json!({
            "sent": service.sent, "lost": service.lost, "loss_percent": service.loss(),
            "goodput_kbit": service.goodput / 1e3,
            "delay_ms": {"p50": service.delay(50), "p99": service.delay(99), "max": service.delay(100)},
        });
        (label.to_owned(), value)
    };
    let flow = |(run, services): (&TrafficRun, Vec<_>)| {
        (run.name.clone(), services.into_iter().map(phase).collect::<serde_json::Map<_, _>>().into())
    };
    Value::Object(services(evidence).into_iter().map(flow).collect())
}

/// For the report: an object a reservation.
pub(crate) fn measured_reserves(evidence: &Evidence) -> Value {
    let one = |run: &ReserveRun| {
        let last = run.granted().or(run.refused());
        let answer = last.map(|(at, _)| at.saturating_sub(run.started).as_secs_f64() * 1e3);
        let types: Vec<_> = run.events.iter().map(|(_, event)| event["type"].clone()).collect();
        let rate = run.granted().and_then(|(_, event)| rate(event)).map(|(_, rate)| rate);
        let value = json!({"answer_ms": answer, "per_second": rate, "events": types, "status": run.status});
        (run.name.clone(), value)
    };
    Value::Object(evidence.reserves.iter().map(one).collect())
}

/// Loss and goodput of a flow in a phase lie within the bounds.
pub(super) fn traffic(evidence: &Evidence, check: &TrafficCheck) -> Verdict {
    let Some(run) = evidence.traffic.iter().find(|run| run.name == *check.flow.as_ref()) else {
        return Err(format!("there was no flow {}", check.flow.as_ref()));
    };
    let Some((from, to)) = evidence.windows.get(check.phase.as_ref()) else {
        return Err(format!("nobody watched at {:?}", check.phase.as_ref()));
    };
    let service = Service::of(run, *from, *to);
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
        && check.min_loss.is_none_or(|least| service.loss() >= least.percent())
        && check.max_loss.is_none_or(|most| service.loss() <= most.percent())
        && check.min_goodput.is_none_or(|least| service.goodput >= least.0 as f64)
        && check.max_goodput.is_none_or(|most| service.goodput <= most.0 as f64);
    if good { Ok(seen) } else { Err(seen) }
}

fn reserve<'e>(evidence: &'e Evidence, name: &str) -> Result<&'e ReserveRun, String> {
    let run = evidence.reserves.iter().find(|run| run.name == name);
    run.ok_or_else(|| format!("nothing was reserved as {name:?}"))
}

/// How many flows were granted, and so many a second: of a command that reserved for several.
fn rate(granted: &Value) -> Option<(u64, f64)> {
    let (flows, seconds) = granted["flows"].as_u64().zip(granted["seconds"].as_f64())?;
    #[expect(clippy::cast_precision_loss, reason = "there are fewer than 2^16 ports")]
    let rate = flows as f64 / seconds;
    Some((flows, rate))
}

/// What the command said, for those who have to find out why a check does not hold.
fn said(run: &ReserveRun) -> String {
    let events: Vec<_> = run.events.iter().map(|(_, event)| event.to_string()).collect();
    format!("it said {}{}", events.join(" "), run.complaint.trim())
}

/// The node whose address stands in a field, by its name.
fn node(evidence: &Evidence, value: &Value, key: &str) -> String {
    let text = value[key].as_str().unwrap_or_default();
    let owner = text.parse().ok().and_then(|address| evidence.plan.owner(address));
    owner.map_or_else(|| format!("{text:?}"), |node| evidence.plan.nodes[node].name.clone())
}

/// The whole path granted, each node told so; nobody took it away, or the right one did.
pub(super) fn granted(evidence: &Evidence, check: &GrantedCheck) -> Verdict {
    let run = reserve(evidence, check.reserve.as_ref())?;
    let Some((at, event)) = run.granted() else { return Err(format!("not granted; {}", said(run))) };
    let hops: Vec<String> =
        event["hops"].as_array().into_iter().flatten().map(|hop| node(evidence, hop, "address")).collect();
    let wanted = check.hops.as_ref().map(|hops| hops.iter().map(|hop| hop.as_ref().clone()).collect());
    if wanted.is_some_and(|wanted: Vec<String>| wanted != hops) {
        return Err(format!("granted by {}; {}", hops.join(", "), said(run)));
    }
    let after = at.saturating_sub(run.started).as_secs_f64() * 1e3;
    let mut seen = match rate(event) {
        Some((flows, rate)) => format!("{flows} flows granted, {rate:.0} a second"),
        None => format!("granted by {} {after:.0} ms after the command began", hops.join(", ")),
    };
    match (run.event("lost"), &check.lost_at) {
        (None, None) => {}
        (Some((_, lost)), Some(place)) => {
            let words = lost.to_string();
            let says = check.says.as_ref().is_none_or(|says| words.contains(says));
            if node(evidence, lost, "node") != *place.as_ref() || !says {
                return Err(format!("lost otherwise: {words}"));
            }
            seen += &format!(", lost at {} later", place.as_ref());
        }
        _ => return Err(said(run)),
    }
    if check.lost_at.is_none() && run.status != Some(0) {
        return Err(format!("the command ended with {:?}; {}", run.status, said(run)));
    }
    Ok(seen)
}

/// A node refused, and named its rule.
pub(super) fn not_granted(evidence: &Evidence, check: &NotGrantedCheck) -> Verdict {
    let run = reserve(evidence, check.reserve.as_ref())?;
    let Some((_, event)) = run.refused() else { return Err(format!("not refused; {}", said(run))) };
    let (by, rule) = (node(evidence, event, "node"), event["rule"].as_str().unwrap_or_default());
    if by == *check.by.as_ref() && rule.contains(&check.rule) && run.granted().is_none() {
        return Ok(format!("refused by {by}: {rule}"));
    }
    Err(format!("refused by {by}: {rule:?}; {}", said(run)))
}

/// Each node with QoS showed so many reservations.
pub(super) fn reservations(evidence: &Evidence, check: &ReservationsCheck) -> Verdict {
    let label = check.label.as_ref();
    let Some(snapshot) = evidence.snapshot(label) else {
        return Err(format!("nobody was asked at {label:?}"));
    };
    let (mut good, mut seen) = (true, Vec::new());
    for (node, planned) in evidence.plan.nodes.iter().enumerate().filter(|(_, node)| node.qos) {
        // Sessions of which a node holds nothing are none.
        let held = |shown: &crate::evidence::Shown| {
            shown.reservations.iter().filter(|reservation| !reservation["held"].is_null()).count()
        };
        let count = snapshot.get(&node).map(held);
        let spared = check.except.iter().any(|except| *except.as_ref() == planned.name);
        good &= count == Some(if spared { 0 } else { check.count });
        seen.push(format!(
            "{} {}",
            planned.name,
            count.map_or_else(|| "?".to_owned(), |count| count.to_string())
        ));
    }
    let detail = format!("reservations at {label:?}: {}", seen.join(", "));
    if good { Ok(detail) } else { Err(format!("{detail}; {} each were expected", check.count)) }
}

/// The queues became as they should be.
pub(super) fn queues(evidence: &Evidence, check: &QueuesCheck) -> Verdict {
    let label = check.label.as_ref();
    let Some(run) = evidence.queues.iter().find(|run| run.label == *label) else {
        return Err(format!("nobody looked at the queues at {label:?}"));
    };
    let seen = format!("after {} ms: {}", run.took.as_millis(), run.seen.join("; "));
    if run.good { Ok(seen) } else { Err(seen) }
}

/// A node's kernel held the same at two moments, or it did not.
pub(super) fn kernel(evidence: &Evidence, check: &KernelCheck) -> Verdict {
    let (node, like) = (check.node.as_ref(), check.like.as_ref());
    let at = |label: &str| {
        let shown = evidence.snapshot(label).zip(evidence.plan.node(node));
        let lines = shown.and_then(|(snapshot, node)| snapshot.get(&node)).map(|shown| &shown.kernel);
        // Routes change with links.
        let queues = |lines: &Vec<String>| -> Vec<String> {
            lines.iter().filter(|line| !line.starts_with("ip: ")).cloned().collect()
        };
        let lines = lines.map(queues).filter(|lines| !lines.is_empty());
        lines.ok_or_else(|| format!("{node} was not asked at {label:?}"))
    };
    let (now, then) = (at(check.label.as_ref())?, at(like)?);
    let missing = |from: &[String], lines: &[String], sign: &str| -> Vec<String> {
        from.iter().filter(|line| !lines.contains(line)).map(|line| format!("{sign} {line}")).collect()
    };
    let changed = [missing(&then, &now, "-"), missing(&now, &then, "+")].concat();
    match (changed.is_empty(), check.differs) {
        (true, false) => Ok(format!("{} lines of {node}, all as {like:?}", now.len())),
        (false, true) => Ok(changed.join("; ")),
        (true, true) => Err(format!("nothing in the kernel of {node} differs from {like:?}")),
        (false, false) => Err(changed.join("; ")),
    }
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
