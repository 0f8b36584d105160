//! The check `load`: what messages or packets cost, on a link or at a node.

use serde::Deserialize;
use serde_json::{Value, json};
use signalbox_units::Span;
use toml::Spanned;

use super::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::report::Section;
use crate::scenario::{Mistake, Scope};
use crate::steps::cost::CostRun;
use crate::steps::queries::FloodRun;

/// The best of fewer undisturbed runs means little.
const RUNS_MIN: usize = 50;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Load {
    of: Option<Spanned<String>>,
    min_messages: Option<u64>,
    max_cpu_per_message: Option<Span>,
    max_memory_kib: Option<u64>,
    base: Option<Spanned<String>>,
    max_times: Option<f64>,
    protocol: Option<Spanned<String>>,
    link: Option<Spanned<String>>,
    during: Option<Spanned<String>>,
    base_link: Option<Spanned<String>>,
    fewer_packets: Option<f64>,
    fewer_octets: Option<f64>,
}

impl Check for Load {
    const NAME: &'static str = "load";
    const MEANING: &'static str = "What a flood cost the node that received it; or how much longer a packet took than in another flood; or how many packets and octets a second a protocol sent on a link, compared with another link or time.";
    const KEYS: &'static [Key] = &[
        key("of", "id", "a `flood` step").optional(),
        key("min_messages", "number", "the least number of messages that the flood sent").optional(),
        key("max_cpu_per_message", "time", "the most processor time of the daemon for each message")
            .optional(),
        key("max_memory_kib", "KiB", "the most that the memory of the daemon grew").optional(),
        key(
            "base",
            "id",
            "what is compared with: another `flood` step, or the step that lasts while `base_link` is judged",
        )
        .optional(),
        key(
            "max_times",
            "number",
            "the best run of the flood took at most so many times as long as that of `base`",
        )
        .optional(),
        key("protocol", "protocol", "the protocol whose messages are judged").optional(),
        key("link", "link", "the link").optional(),
        key("during", "id", "while this step lasts").optional(),
        key("base_link", "link", "the link that it is compared with").optional(),
        key(
            "fewer_packets",
            "number",
            "the least quotient of the packets a second on `base_link` and on `link`",
        )
        .optional(),
        key("fewer_octets", "number", "the same of octets of IP packets").optional(),
    ];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        let wrong = "`load` needs `of`; or `of`, `base` and `max_times`; or `protocol`, `link`, `during`, `base_link` and `base`";
        match (&self.of, &self.base, self.parts()) {
            (Some(of), None, None) => scope.id_of(&["flood"], of),
            (Some(of), Some(base), None) if self.max_times.is_some() => {
                scope.id_of(&["flood"], of)?;
                scope.id_of(&["flood"], base)
            }
            (None, Some(base), Some([_, link, during, base_link])) => {
                scope.link(link)?;
                scope.link(base_link)?;
                scope.ids([during, base])
            }
            _ => Err(Mistake::new(0..0, wrong)),
        }
    }

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

    fn report(&self, evidence: &Evidence) -> Option<Section> {
        let [protocol, link, during, base_link] = self.parts()?;
        let base = self.base.as_ref()?;
        let [now, before] = self.rates(evidence).ok()?;
        let row = |link: &Spanned<String>, during: &Spanned<String>, rates: Rates| {
            vec![
                link.as_ref().clone(),
                during.as_ref().clone(),
                format!("{:.1}", rates.packets),
                format!("{:.1}", rates.messages),
                format!("{:.0}", rates.octets),
            ]
        };
        let rows = vec![row(base_link, base, before), row(link, during, now)];
        let header = ["link", "while", "packets", "messages", "octets"];
        Some(Section::table(format!("{} on the links, a second", protocol.as_ref()), &header, rows))
    }
}

impl Load {
    /// Returns protocol, link, step and the other link, if a protocol's messages are judged.
    fn parts(&self) -> Option<[&Spanned<String>; 4]> {
        Some([self.protocol.as_ref()?, self.link.as_ref()?, self.during.as_ref()?, self.base_link.as_ref()?])
    }

    fn flood(&self, evidence: &Evidence, of: &str) -> Verdict {
        let Some(run) = evidence.all::<FloodRun>().find(|run| run.id.as_deref() == Some(of)) else {
            return Err(format!("{of:?} flooded nothing"));
        };
        let cost = run.cost(evidence);
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
    fn rates(&self, evidence: &Evidence) -> Result<[Rates; 2], String> {
        let [protocol, link, during, base_link] = self.parts().ok_or("the check names no link")?;
        let base = self.base.as_ref().ok_or("the check names nothing to compare with")?;
        Ok([
            rates(evidence, protocol.as_ref(), link.as_ref(), during.as_ref())?,
            rates(evidence, protocol.as_ref(), base_link.as_ref(), base.as_ref())?,
        ])
    }
}

/// The rates of a protocol on a link while a step lasted, per second.
#[derive(Debug, Clone, Copy)]
struct Rates {
    /// IP packets.
    packets: f64,
    /// Messages; those in one packet count one by one.
    messages: f64,
    /// Octets of the IP packets.
    octets: f64,
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
