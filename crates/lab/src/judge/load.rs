//! The check `load`: what messages or packets cost, on a link or at a node.

use serde_json::{Value, json};
use toml::Spanned;

use super::Judge;
use crate::language::checks::load::Load;
use crate::protocols::gist::message::Kind;
use crate::protocols::gist::seen::Seen;
use crate::run::evidence::{Evidence, Verdict};
use crate::run::steps::cost::CostRun;
use crate::run::steps::queries::FloodRun;

/// The best of fewer undisturbed runs means little.
const RUNS_MIN: usize = 50;

impl Judge for Load {
    fn judge(&self, evidence: &Evidence) -> Verdict {
        match (&self.of, &self.base) {
            (Some(of), Some(base)) => self.times(evidence, of.as_ref(), base.as_ref()),
            (Some(of), None) => self.flood(evidence, of.as_ref()),
            (None, _) => self.compared(evidence),
        }
    }

    fn measure(&self, evidence: &Evidence) -> Option<(&'static str, Value)> {
        let [_, link, during, base_link] = self.parts()?;
        let base = self.base.as_ref()?;
        let [now, before] = self.rates(evidence).ok()?;
        let object = |link: &Spanned<String>, during: &Spanned<String>, rates: Rates| {
            json!({
                "link": link.as_ref(),
                "during": during.as_ref(),
                "packets_per_s": rates.packets,
                "messages_per_s": rates.messages,
                "octets_per_s": rates.octets,
            })
        };
        let value = json!({
            "base": object(base_link, base, before),
            "now": object(link, during, now),
            "packets_fewer_by": fewer(before.packets, now.packets),
            "octets_fewer_by": fewer(before.octets, now.octets),
        });
        Some(("load", value))
    }
}

impl Load {
    fn flood(&self, evidence: &Evidence, of: &str) -> Verdict {
        let Some(run) = evidence.all::<FloodRun>().find(|run| run.id.as_deref() == Some(of)) else {
            return Err(format!("{of:?} flooded nothing"));
        };
        let cost = Cost::of(run, evidence);
        let seen = format!(
            "{} messages in {:.1} s, {} of them captured; the daemon used {:.1} µs of a processor for each ({:.0} % of one), \
             grew by {} KiB and sent {:.2} octets for each that came",
            run.sent,
            run.span.as_secs_f64(),
            cost.captured,
            cost.cpu_us,
            cost.cpu_share * 100.0,
            cost.memory_kib,
            cost.amplification,
        );
        let good = cost.captured > 0
            && self.min_messages.is_none_or(|least| run.sent >= least)
            && self.max_cpu_per_message.is_none_or(|most| cost.cpu_us <= most.0.as_secs_f64() * 1e6)
            && self.max_memory_kib.is_none_or(|most| cost.memory_kib <= most);
        if good { Ok(seen) } else { Err(seen) }
    }

    fn times(&self, evidence: &Evidence, label: &str, base: &str) -> Verdict {
        let of = |id: &str| {
            let run = evidence.all::<CostRun>().find(|run| run.id == id);
            let run = run.ok_or_else(|| format!("nothing was timed at {id:?}"))?;
            match run.least() {
                Some(least) if run.micros.len() >= RUNS_MIN => Ok(least),
                _ => Err(format!(
                    "{id:?}: {} runs were undisturbed and {} were not; {RUNS_MIN} are needed",
                    run.micros.len(),
                    run.disturbed
                )),
            }
        };
        let (now, before) = (of(label)?, of(base)?);
        let times = now / before;
        let most = self.max_times.unwrap_or(f64::INFINITY);
        let seen = format!(
            "{label}: {now:.2} µs a packet, {times:.2} times {base} ({before:.2} µs), at most {most}"
        );
        if times <= most { Ok(seen) } else { Err(seen) }
    }

    fn compared(&self, evidence: &Evidence) -> Verdict {
        let [now, base] = self.rates(evidence)?;
        let (packets, octets) = (fewer(base.packets, now.packets), fewer(base.octets, now.octets));
        let seen = format!(
            "{:.0} packets and {:.0} octets a second against {:.0} and {:.0}: {packets:.0} and {octets:.0} times less",
            now.packets, now.octets, base.packets, base.octets,
        );
        // No packet at all would mean that nothing is refreshed.
        let good = now.packets > 0.0
            && self.fewer_packets.is_none_or(|least| packets >= least)
            && self.fewer_octets.is_none_or(|least| octets >= least);
        if good { Ok(seen) } else { Err(seen) }
    }

    /// Returns the load that is checked, and the one that it is compared with.
    pub(crate) fn rates(&self, evidence: &Evidence) -> Result<[Rates; 2], String> {
        let [protocol, link, during, base_link] = self.parts().ok_or("the check names no link")?;
        let base = self.base.as_ref().ok_or("the check names nothing to compare with")?;
        Ok([
            rates(evidence, protocol.as_ref(), link.as_ref(), during.as_ref())?,
            rates(evidence, protocol.as_ref(), base_link.as_ref(), base.as_ref())?,
        ])
    }
}

/// The cost of a flood.
#[derive(Debug)]
pub(crate) struct Cost {
    /// Queries in the capture.
    pub(crate) captured: usize,
    /// Microseconds of a processor for each message.
    pub(crate) cpu_us: f64,
    /// The share of one processor.
    pub(crate) cpu_share: f64,
    pub(crate) memory_kib: u64,
    /// Octets that left for the invented sources, for each octet that came.
    pub(crate) amplification: f64,
}

impl Cost {
    /// Returns the cost for the node that received the flood.
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 of anything")]
    pub(crate) fn of(run: &FloodRun, evidence: &Evidence) -> Self {
        let [before, after] = run.memory;
        let mut octets = [0_u64; 2];
        let mut captured = 0;
        if let Some(leg) = evidence.plan.leg(run.from, run.node) {
            let link = &evidence.trace.links[leg.link];
            for message in &link.seen::<Seen>().messages {
                let along = link.along(message.outgoing, leg);
                captured += usize::from(along && message.kind == Kind::Query);
                octets[usize::from(!along)] += message.packet.len() as u64;
            }
        }
        Self {
            captured,
            cpu_us: run.cpu.as_secs_f64() * 1e6 / run.sent.max(1) as f64,
            cpu_share: run.cpu.as_secs_f64() / run.span.as_secs_f64().max(1e-3),
            memory_kib: after.saturating_sub(before) / 1024,
            amplification: octets[1] as f64 / octets[0].max(1) as f64,
        }
    }
}

/// The rates of a protocol on a link while a step lasted, per second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rates {
    /// IP packets.
    pub(crate) packets: f64,
    /// Messages; those in one packet count one by one.
    pub(crate) messages: f64,
    /// Octets of the IP packets.
    pub(crate) octets: f64,
}

fn rates(evidence: &Evidence, protocol: &str, link: &str, id: &str) -> Result<Rates, String> {
    let (from, to) = evidence.window(id)?;
    let at = evidence.plan.link(link).ok_or_else(|| format!("no link {link}"))?;
    let trace = evidence.trace.links.get(at).ok_or_else(|| format!("no capture on {link}"))?;
    let messages = trace.messages(protocol);
    let inside: Vec<usize> = messages
        .iter()
        .filter(|message| (from..=to).contains(&message.at()))
        .map(|message| message.frame())
        .collect();
    let mut frames = inside.clone();
    frames.dedup();
    let octets: f64 = frames.iter().map(|frame| f64::from(trace.octets(*frame))).sum();
    let seconds = to.saturating_sub(from).as_secs_f64().max(0.001);
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 messages")]
    let per_second = |count: usize| count as f64 / seconds;
    Ok(Rates {
        packets: per_second(frames.len()),
        messages: per_second(inside.len()),
        octets: octets / seconds,
    })
}

fn fewer(base: f64, now: f64) -> f64 {
    if now > 0.0 { base / now } else { f64::INFINITY }
}
