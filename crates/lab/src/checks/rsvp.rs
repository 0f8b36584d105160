//! Checks of RSVP: what nodes held, and what tshark makes of the messages.

use serde_json::Value;

use super::Verdict;
use crate::evidence::Evidence;
use crate::scenario::RsvpCheck;

/// Rates pass RSVP as single floats.
pub(super) const RATE_ERROR: f64 = 1e-6;

/// Each of these nodes showed so many senders and reservations.
pub(super) fn held(evidence: &Evidence, check: &RsvpCheck) -> Verdict {
    let label = check.label.as_ref();
    let Some(snapshot) = evidence.snapshot(label) else {
        return Err(format!("nobody was asked at {label:?}"));
    };
    let interface = check.towards.as_ref().map(|to| format!("to-{}", to.as_ref()));
    let (mut good, mut seen) = (true, Vec::new());
    for name in &check.nodes {
        let name = name.as_ref();
        let shown = evidence.plan.node(name).and_then(|node| snapshot.get(&node));
        let Some(shown) = shown else { return Err(format!("{name} was not asked at {label:?}")) };
        let all = |what: &str| -> Vec<&Value> {
            shown.rsvp.iter().flat_map(|session| session[what].as_array().into_iter().flatten()).collect()
        };
        // What an application here receives is reserved nowhere.
        let reservations: Vec<_> = all("reservations")
            .into_iter()
            .filter(|one| one["interface"].is_string())
            .filter(|one| interface.as_ref().is_none_or(|wanted| one["interface"] == wanted.as_str()))
            .collect();
        let senders = all("senders").len();
        good &= senders == check.senders && reservations.len() == check.reservations;
        // What many have in common is said once.
        let mut rates: Vec<(String, usize)> = Vec::new();
        for one in &reservations {
            let rate = one["flowspec"]["rate"].as_f64().unwrap_or(0.0) * 8.0;
            let is = |wanted: f64| (rate - wanted).abs() <= wanted * RATE_ERROR;
            #[expect(clippy::cast_precision_loss, reason = "rates are far below 2^52")]
            let fits = check.rate.is_none_or(|wanted| is(wanted.0 as f64));
            let enforced = one["enforced"] == true;
            good &= fits && enforced;
            let text = format!(
                "{:.0} kbit/s at {}{}",
                rate / 1e3,
                one["interface"].as_str().unwrap_or("?"),
                if enforced { "" } else { ", not enforced" }
            );
            match rates.iter_mut().find(|(said, _)| *said == text) {
                Some((_, times)) => *times += 1,
                None => rates.push((text, 1)),
            }
        }
        let times =
            |(text, times): (String, usize)| if times > 1 { format!("{times} of {text}") } else { text };
        let rates: Vec<_> = rates.into_iter().map(times).collect();
        let rates = if rates.is_empty() { String::new() } else { format!(" ({})", rates.join(", ")) };
        seen.push(format!("{name} {senders} senders, {} reservations{rates}", reservations.len()));
    }
    let seen = format!("at {label:?}: {}", seen.join("; "));
    if good { Ok(seen) } else { Err(seen) }
}

/// tshark read every RSVP message, and found nothing wrong with any.
pub(super) fn dissected(evidence: &Evidence) -> Verdict {
    let links = match &evidence.dissected {
        None => return Err("tshark was not asked".to_owned()),
        Some(Err(error)) => return Err(error.clone()),
        Some(Ok(links)) => links,
    };
    if let Some(link) = links.iter().find(|link| !link.faults.is_empty()) {
        let faults = link.faults.len();
        return Err(format!("{faults} faults on {}, first {:?}", link.link, link.faults[0]));
    }
    let messages: usize = links.iter().map(|link| link.messages).sum();
    if messages == 0 {
        return Err("no RSVP message on any link".to_owned());
    }
    let each: Vec<_> = links.iter().map(|link| format!("{} on {}", link.messages, link.link)).collect();
    Ok(format!("{messages} RSVP messages without a malformed field or a wrong checksum: {}", each.join(", ")))
}
