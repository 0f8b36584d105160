//! Checks of what RSVP neighbours do for each other: who is believed, and what a refresh costs on the wire.

use serde_json::{Value, json};

use super::Verdict;
use crate::evidence::Evidence;
use crate::scenario::{RsvpLoadCheck, RsvpNeighbourCheck};

/// What a node showed of its neighbour is as told.
pub(super) fn neighbour(evidence: &Evidence, check: &RsvpNeighbourCheck) -> Verdict {
    let (node, other) = (check.node.as_ref(), check.neighbour.as_ref());
    let label = check.label.as_ref();
    let planned = evidence.plan.node(node).zip(evidence.plan.node(other));
    let shown = planned.and_then(|(node, _)| evidence.snapshot(label)?.get(&node));
    let (Some((at, other_at)), Some(shown)) = (planned, shown) else {
        return Err(format!("{node} was not asked at {label:?}"));
    };
    let interface = evidence.plan.nodes[at].interfaces.iter().find(|interface| interface.peer.0 == other_at);
    let address = interface.map(|interface| interface.peer.1.to_string()).unwrap_or_default();
    let Some(row) = shown.rsvp_neighbours.iter().find(|row| row["address"] == address.as_str()) else {
        return Err(format!("{node} knows no neighbour {address} at {label:?}"));
    };
    let (mut good, mut seen) = (true, Vec::new());
    let heard = row["heard_ms_ago"].is_u64();
    good &= check.heard.is_none_or(|wanted| wanted == heard);
    seen.push(if heard { "heard" } else { "not heard" }.to_owned());
    let reduction = row["refresh_reduction"].as_str().unwrap_or("?");
    if let Some(wanted) = &check.refresh_reduction {
        good &= reduction == wanted;
        seen.push(format!("refresh reduction {reduction}"));
    }
    for (reason, least) in &check.refused {
        let count = row["refused"][reason].as_u64().unwrap_or(0);
        good &= count >= *least;
        seen.push(format!("{count} refused as {reason}"));
    }
    let seen = format!("{node} shows {other} at {label:?}: {}", seen.join(", "));
    if good { Ok(seen) } else { Err(format!("{seen}; it shows {row}")) }
}

/// RSVP on a link while the lab watched, per second.
#[derive(Debug, Clone, Copy)]
struct Load {
    /// IP packets.
    packets: f64,
    /// Messages, those in Bundles each for itself.
    messages: f64,
    /// Octets of the IP packets.
    octets: f64,
}

fn load(evidence: &Evidence, link: &str, label: &str) -> Result<Load, String> {
    let (from, to) = evidence.windows.get(label).ok_or_else(|| format!("nobody watched at {label:?}"))?;
    let at = evidence.plan.link(link).ok_or_else(|| format!("no link {link}"))?;
    let trace = evidence.trace.links.get(at).ok_or_else(|| format!("no capture on {link}"))?;
    let inside = || trace.rsvp_packets.iter().filter(|packet| (from..=to).contains(&&packet.at));
    let seconds = to.saturating_sub(*from).as_secs_f64().max(0.001);
    let sum = |of: fn(&crate::observe::rsvp::RsvpPacket) -> u32| {
        inside().map(|packet| f64::from(of(packet))).sum::<f64>() / seconds
    };
    Ok(Load {
        packets: sum(|_| 1),
        messages: sum(|packet| packet.messages),
        octets: sum(|packet| packet.octets),
    })
}

/// Two loads: the one that is checked, and the one that it is compared with.
fn loads(evidence: &Evidence, check: &RsvpLoadCheck) -> Result<[Load; 2], String> {
    Ok([
        load(evidence, check.link.as_ref(), check.during.as_ref())?,
        load(evidence, check.base_link.as_ref(), check.base.as_ref())?,
    ])
}

fn fewer(base: f64, now: f64) -> f64 {
    if now > 0.0 { base / now } else { f64::INFINITY }
}

/// So many times fewer packets and octets of RSVP passed a link than another one.
pub(super) fn lighter(evidence: &Evidence, check: &RsvpLoadCheck) -> Verdict {
    let [now, base] = loads(evidence, check)?;
    let (packets, octets) = (fewer(base.packets, now.packets), fewer(base.octets, now.octets));
    let seen = format!(
        "{:.0} packets and {:.0} octets a second on {} against {:.0} and {:.0} on {}: {packets:.0} and {octets:.0} times \
         less",
        now.packets,
        now.octets,
        check.link.as_ref(),
        base.packets,
        base.octets,
        check.base_link.as_ref(),
    );
    // Nothing at all is no refresh.
    let good = now.packets > 0.0 && packets >= check.packets && octets >= check.octets;
    if good { Ok(seen) } else { Err(seen) }
}

/// The loads of a check, for people (a row each: link, phase, packets, messages, octets a second) and for programs.
pub(crate) fn compared(evidence: &Evidence, check: &RsvpLoadCheck) -> Option<(Vec<[String; 5]>, Value)> {
    let [now, base] = loads(evidence, check).ok()?;
    let row = |link: &str, during: &str, load: Load| {
        [
            link.to_owned(),
            during.to_owned(),
            format!("{:.1}", load.packets),
            format!("{:.1}", load.messages),
            format!("{:.0}", load.octets),
        ]
    };
    let rows = vec![
        row(check.base_link.as_ref(), check.base.as_ref(), base),
        row(check.link.as_ref(), check.during.as_ref(), now),
    ];
    let object = |link: &str, during: &str, load: Load| {
        json!({
            "link": link,
            "during": during,
            "packets_per_s": load.packets,
            "messages_per_s": load.messages,
            "octets_per_s": load.octets,
        })
    };
    let value = json!({
        "base": object(check.base_link.as_ref(), check.base.as_ref(), base),
        "now": object(check.link.as_ref(), check.during.as_ref(), now),
        "packets_fewer_by": fewer(base.packets, now.packets),
        "octets_fewer_by": fewer(base.octets, now.octets),
    });
    Some((rows, value))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::evidence;
    use super::*;
    use crate::evidence::Shown;
    use crate::observe::rsvp::RsvpPacket;

    fn neighbour_check(more: &str, shown: Vec<Value>) -> Verdict {
        let text = format!("label = \"now\"\nnode = \"r1\"\nneighbour = \"h1\"\n{more}");
        let check: RsvpNeighbourCheck = toml::from_str(&text).unwrap();
        let (_, mut evidence) = evidence("kind = \"no_errors\"");
        let shown = Shown { rsvp_neighbours: shown, ..Shown::default() };
        evidence.snapshots.push(("now".to_owned(), [(1, shown)].into()));
        neighbour(&evidence, &check)
    }

    #[test]
    fn a_neighbour_is_seen_as_its_node_shows_it() {
        let row = || {
            json!({
                "address": "10.0.1.1",
                "heard_ms_ago": 5,
                "refresh_reduction": "whole",
                "refused": { "replayed": 3, "wrong-digest": 1 },
            })
        };
        let good =
            "heard = true\nrefresh_reduction = \"whole\"\nrefused = { replayed = 3, wrong-digest = 1 }";
        assert!(neighbour_check(good, vec![row()]).is_ok());
        for wrong in [
            "heard = false",
            "refresh_reduction = \"off\"",
            "refused = { replayed = 4 }",
            "refused = { unsigned = 1 }",
        ] {
            assert!(neighbour_check(wrong, vec![row()]).is_err(), "{wrong}");
        }
        assert!(neighbour_check("", Vec::new()).unwrap_err().contains("knows no neighbour 10.0.1.1"));
    }

    fn load_check(now: &[(u64, u32)], base: &[(u64, u32)]) -> Verdict {
        let text = "link = \"r1-h2\"\nduring = \"now\"\nbase_link = \"h1-r1\"\nbase = \"now\"\npackets = 10.0\noctets = 5.0";
        let check: RsvpLoadCheck = toml::from_str(text).unwrap();
        let (_, mut evidence) = evidence("kind = \"no_errors\"");
        let packets = |all: &[(u64, u32)]| {
            let one = |(at, octets): &(u64, u32)| RsvpPacket {
                at: Duration::from_millis(*at),
                octets: *octets,
                messages: 2,
            };
            all.iter().map(one).collect()
        };
        evidence.trace.links[0].rsvp_packets = packets(base);
        evidence.trace.links[1].rsvp_packets = packets(now);
        evidence.windows.insert("now".to_owned(), (Duration::from_secs(1), Duration::from_secs(3)));
        let (rows, value) = compared(&evidence, &check).unwrap();
        assert_eq!((rows.len(), value["base"]["messages_per_s"].as_f64()), (2, Some(20.0)));
        lighter(&evidence, &check)
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
