//! The output for POLICY_DATA and ADSPEC objects that messages carry.

use serde_json::{Value, json};
use signalbox_api::v0;

use super::rate;
use crate::print::{hex, none_if_empty};

/// POLICY_DATA as text.
pub(in crate::commands::rsvp) fn policy(policy: &v0::RsvpPolicy) -> String {
    let mut parts = Vec::new();
    if let Some(v0::RsvpPreemption { setup, defending }) = policy.preemption {
        parts.push(format!("preemption {setup}/{defending}"));
    }
    for v0::RsvpIdentity { application, name, locator } in &policy.identities {
        let what = if *application { "application" } else { "user" };
        let locator = none_if_empty(locator).map(|locator| format!(" ({locator})")).unwrap_or_default();
        parts.push(format!("{what} {name}{locator}"));
    }
    parts.push(format!("{} octets", policy.octets.len()));
    format!("policy: {}", parts.join(", "))
}

/// POLICY_DATA as the end of a line of text; empty if there is none.
pub(super) fn and_policy(carried: Option<&v0::RsvpPolicy>) -> String {
    carried.map(|carried| format!("; {}", policy(carried))).unwrap_or_default()
}

/// POLICY_DATA as JSON; null if there is none.
pub(in crate::commands::rsvp) fn policy_json(policy: Option<&v0::RsvpPolicy>) -> Value {
    let Some(v0::RsvpPolicy { octets, preemption, identities }) = policy else { return Value::Null };
    let identities = identities.iter().map(|identity| {
        json!({
            "application": identity.application,
            "name": identity.name,
            "locator": none_if_empty(&identity.locator),
        })
    });
    json!({
        "octets": hex(octets),
        "preemption": preemption.map(|one| json!({ "setup": one.setup, "defending": one.defending })),
        "identities": identities.collect::<Vec<_>>(),
    })
}

/// An ADSPEC as text.
pub(in crate::commands::rsvp) fn adspec(adspec: &v0::RsvpAdspec) -> String {
    let bandwidth = adspec.bandwidth.map_or("bandwidth unknown".to_owned(), |of| rate(of).to_string());
    let latency = adspec.latency_us.map_or("latency unknown".to_owned(), |us| format!("{us} us"));
    let mut text =
        format!("path: {} hops, {bandwidth}, {latency}, packets up to {}", adspec.hops, adspec.mtu);
    for (name, service) in [("guaranteed", &adspec.guaranteed), ("controlled load", &adspec.controlled_load)]
    {
        match service {
            None => text += &format!(", no {name}"),
            Some(service) if service.broken => text += &format!(", {name} not at each hop"),
            Some(_) => {}
        }
    }
    text
}

/// An ADSPEC as JSON; null if there is none.
pub(in crate::commands::rsvp) fn adspec_json(adspec: Option<&v0::RsvpAdspec>) -> Value {
    let Some(adspec) = adspec else { return Value::Null };
    json!({
        "broken": adspec.broken,
        "hops": adspec.hops,
        "bandwidth": adspec.bandwidth,
        "latency_us": adspec.latency_us,
        "mtu": adspec.mtu,
        "guaranteed": adspec.guaranteed.as_ref().map(service_json),
        "controlled_load": adspec.controlled_load.as_ref().map(service_json),
    })
}

fn service_json(service: &v0::RsvpAdspecService) -> Value {
    let terms = service.terms.map(|terms| {
        json!({
            "c_tot": terms.c_tot,
            "d_tot_us": terms.d_tot_us,
            "c_sum": terms.c_sum,
            "d_sum_us": terms.d_sum_us,
        })
    });
    json!({
        "broken": service.broken,
        "hops": service.hops,
        "bandwidth": service.bandwidth,
        "latency_us": service.latency_us,
        "mtu": service.mtu,
        "terms": terms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_data_is_readable() {
        let ann = v0::RsvpIdentity { application: false, name: "ann".into(), locator: "CN=Ann".into() };
        let carried = v0::RsvpPolicy {
            octets: vec![0, 8, 14, 1, 0, 8, 0, 0],
            preemption: Some(v0::RsvpPreemption { setup: 5, defending: 7 }),
            identities: vec![ann],
        };
        assert_eq!(policy(&carried), "policy: preemption 5/7, user ann (CN=Ann), 8 octets");
        assert_eq!(and_policy(None), "");
        let value = policy_json(Some(&carried));
        assert_eq!(
            (&value["octets"], &value["identities"][0]["name"]),
            (&json!("00080e0100080000"), &json!("ann"))
        );
    }

    #[test]
    fn an_adspec_shows_missing_services() {
        let shown = v0::RsvpAdspec {
            hops: 3,
            bandwidth: Some(1_250_000.0),
            mtu: 1500,
            guaranteed: Some(v0::RsvpAdspecService { broken: true, ..Default::default() }),
            ..Default::default()
        };
        assert_eq!(
            adspec(&shown),
            "path: 3 hops, 10 Mbit/s, latency unknown, packets up to 1500, guaranteed not at each hop, no controlled load"
        );
        assert_eq!(adspec_json(Some(&shown))["latency_us"], Value::Null);
    }
}
