//! The check `rsvp_load`: what RSVP costs on a link.

use serde::Deserialize;
use serde_json::{Value, json};
use toml::Spanned;

use super::Seen;
use super::message::RsvpPacket;
use crate::checks::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::report::Section;
use crate::scenario::{LABEL, Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Load {
    link: Spanned<String>,
    during: Spanned<String>,
    base_link: Spanned<String>,
    base: Spanned<String>,
    packets: f64,
    octets: f64,
}

impl Check for Load {
    const NAME: &'static str = "rsvp_load";
    const MEANING: &'static str = "RSVP took fewer packets and octets a second on a link than on another one, or at another time, by these factors.";
    const KEYS: &'static [Key] = &[
        key("link", "link", "the link"),
        key("during", "label", "the label of a `watch` step"),
        key("base_link", "link", "the link that it is compared with"),
        key("base", "label", "the label of the `watch` step that it is compared with"),
        key("packets", "number", "the least quotient of packets"),
        key("octets", "number", "the least quotient of octets"),
    ];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.link(&self.link)?;
        scope.link(&self.base_link)?;
        scope.defined(LABEL, &self.during)?;
        scope.defined(LABEL, &self.base)
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let [now, base] = self.rates(evidence)?;
        let (packets, octets) = (fewer(base.packets, now.packets), fewer(base.octets, now.octets));
        let seen = format!(
            "{:.0} packets and {:.0} octets a second on {} against {:.0} and {:.0} on {}: {packets:.0} and {octets:.0} times \
             less",
            now.packets,
            now.octets,
            self.link.as_ref(),
            base.packets,
            base.octets,
            self.base_link.as_ref(),
        );
        // No packet at all would mean that nothing is refreshed.
        let good = now.packets > 0.0 && packets >= self.packets && octets >= self.octets;
        if good { Ok(seen) } else { Err(seen) }
    }

    fn measure(&self, evidence: &Evidence) -> Option<(&'static str, Value)> {
        let [now, base] = self.rates(evidence).ok()?;
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
            "base": object(&self.base_link, &self.base, base),
            "now": object(&self.link, &self.during, now),
            "packets_fewer_by": fewer(base.packets, now.packets),
            "octets_fewer_by": fewer(base.octets, now.octets),
        });
        Some(("rsvp_load", value))
    }

    fn report(&self, evidence: &Evidence) -> Option<Section> {
        let [now, base] = self.rates(evidence).ok()?;
        let row = |link: &Spanned<String>, during: &Spanned<String>, rates: Rates| {
            vec![
                link.as_ref().clone(),
                during.as_ref().clone(),
                format!("{:.1}", rates.packets),
                format!("{:.1}", rates.messages),
                format!("{:.0}", rates.octets),
            ]
        };
        let rows = vec![row(&self.base_link, &self.base, base), row(&self.link, &self.during, now)];
        let header = ["link", "while", "packets", "messages", "octets"];
        Some(Section::table("RSVP on the links, a second", &header, rows))
    }
}

impl Load {
    /// Returns the load that is checked, and the one that it is compared with.
    fn rates(&self, evidence: &Evidence) -> Result<[Rates; 2], String> {
        Ok([
            rates(evidence, self.link.as_ref(), self.during.as_ref())?,
            rates(evidence, self.base_link.as_ref(), self.base.as_ref())?,
        ])
    }
}

/// The rates of RSVP on a link while the lab watched, per second.
#[derive(Debug, Clone, Copy)]
struct Rates {
    /// IP packets.
    packets: f64,
    /// Messages; those in Bundles count one by one.
    messages: f64,
    /// Octets of the IP packets.
    octets: f64,
}

fn rates(evidence: &Evidence, link: &str, label: &str) -> Result<Rates, String> {
    let (from, to) = evidence.window(label)?;
    let at = evidence.plan.link(link).ok_or_else(|| format!("no link {link}"))?;
    let trace = evidence.trace.links.get(at).ok_or_else(|| format!("no capture on {link}"))?;
    let inside = || Seen::on(trace).packets.iter().filter(|packet| (from..=to).contains(&packet.at));
    let seconds = to.saturating_sub(from).as_secs_f64().max(0.001);
    let sum =
        |of: fn(&RsvpPacket) -> u32| inside().map(|packet| f64::from(of(packet))).sum::<f64>() / seconds;
    Ok(Rates {
        packets: sum(|_| 1),
        messages: sum(|packet| packet.messages),
        octets: sum(|packet| packet.octets),
    })
}

fn fewer(base: f64, now: f64) -> f64 {
    if now > 0.0 { base / now } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::checks::tests::evidence;

    fn load_check(now: &[(u64, u32)], base: &[(u64, u32)]) -> Verdict {
        let text = "link = \"r1-h2\"\nduring = \"now\"\nbase_link = \"h1-r1\"\nbase = \"now\"\npackets = 10.0\noctets = 5.0";
        let check: Load = toml::from_str(text).unwrap();
        let (_, mut evidence) = evidence("kind = \"no_errors\"");
        let packets = |all: &[(u64, u32)]| {
            let one = |(at, octets): &(u64, u32)| RsvpPacket {
                at: Duration::from_millis(*at),
                octets: *octets,
                messages: 2,
            };
            all.iter().map(one).collect()
        };
        evidence.trace.links[0].seen_mut::<Seen>().packets = packets(base);
        evidence.trace.links[1].seen_mut::<Seen>().packets = packets(now);
        evidence.windows.insert("now".to_owned(), (Duration::from_secs(1), Duration::from_secs(3)));
        let (_, value) = check.measure(&evidence).unwrap();
        assert_eq!(value["base"]["messages_per_s"].as_f64(), Some(20.0));
        check.judge(&evidence)
    }

    #[test]
    fn a_load_is_what_passed_while_the_lab_watched() {
        let base: Vec<_> = (0..20).map(|n| (1000 + n * 100, 100)).collect();
        assert!(
            load_check(&[(1500, 200), (900, 9000), (3100, 9000)], &base).unwrap().contains("20 and 10 times")
        );
        assert!(load_check(&[(1500, 500)], &base).is_err(), "its octets are a fourth only");
        assert!(load_check(&[(1500, 100), (1600, 1), (1700, 1)], &base).is_err(), "and here its packets");
        assert!(load_check(&[(900, 10)], &base).is_err(), "nothing at all is no refresh");
    }
}
