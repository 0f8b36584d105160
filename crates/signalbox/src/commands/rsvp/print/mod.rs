//! The output for upcalls, as text and as JSON.

mod carried;

use serde_json::{Value, json};
use signalbox_api::v0;
use signalbox_api::v0::rsvp_filter::Selector;
use signalbox_api::v0::rsvp_upcall::Upcall;
use signalbox_resources::Rate;

use carried::and_policy;
pub(super) use carried::{adspec, adspec_json, policy, policy_json};

/// An upcall as text.
pub(super) fn text(upcall: &Upcall) -> String {
    match upcall {
        Upcall::Registered(_) => "registered".to_owned(),
        Upcall::Refused(refused) => format!("refused: {}", refused.reason),
        Upcall::Path(path) => {
            let traffic = path.traffic.as_ref().map(traffic).unwrap_or_default();
            let broken = if path.broken { "; not every hop on the way keeps reservations" } else { "" };
            let sender = path.sender.as_ref().map(filter).unwrap_or_default();
            format!("sender {sender}: {traffic}{broken}{}", and_policy(path.policy.as_ref()))
        }
        Upcall::PathGone(sender) => format!("sender {} is gone", filter(sender)),
        Upcall::Reserved(reserved) => {
            let what = reserved.flowspec.as_ref().map(flowspec).unwrap_or_default();
            let policy = and_policy(reserved.policy.as_ref());
            format!("reserved: {what}, {}{policy}", style(reserved.style()))
        }
        Upcall::ReservedGone(sender) => format!("nothing is reserved for {} any more", filter(sender)),
        Upcall::PathError(error) => format!("path error: {}", error_text(error)),
        Upcall::ReservationError(error) => {
            let kept = if error.in_place { "; what was reserved before still is" } else { "" };
            format!("reservation error: {}{kept}", error_text(error))
        }
        Upcall::Confirmed(confirmed) => {
            let what = confirmed.flowspec.as_ref().map(flowspec).unwrap_or_default();
            format!("confirmed by {}: {what}, {}", confirmed.node, style(confirmed.style()))
        }
    }
}

fn error_text(error: &v0::RsvpError) -> String {
    let policy = and_policy(error.policy.as_ref());
    format!("{} (code {}, value {}) at {}{policy}", error.meaning, error.code, error.value, error.node)
}

/// A sender as text: its address, and its port, flow label or SPI.
pub(super) fn filter(filter: &v0::RsvpFilter) -> String {
    match filter.selector {
        None => filter.source.clone(),
        Some(Selector::Port(port)) => format!("{}/{port}", filter.source),
        Some(Selector::FlowLabel(label)) => format!("{}/label:{label:#07x}", filter.source),
        Some(Selector::Spi(spi)) => format!("{}/spi:{spi:#010x}", filter.source),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded for people")]
fn rate(octets: f64) -> Rate {
    Rate(octets.round() as u64)
}

/// A token bucket as text.
pub(super) fn traffic(traffic: &v0::RsvpTraffic) -> String {
    format!("{}, burst {} octets", rate(traffic.rate), traffic.burst)
}

/// A flowspec as text.
pub(super) fn flowspec(flowspec: &v0::RsvpFlowspec) -> String {
    let mut text = flowspec.traffic.as_ref().map(traffic).unwrap_or_default();
    match flowspec.service_rate {
        Some(service) => text += &format!(", guaranteed {}", rate(service)),
        None => text += ", controlled load",
    }
    text
}

/// A style, as RFC 2205 abbreviates it.
pub(super) const fn style(style: v0::RsvpStyle) -> &'static str {
    match style {
        v0::RsvpStyle::FixedFilter => "FF",
        v0::RsvpStyle::WildcardFilter => "WF",
        v0::RsvpStyle::SharedExplicit => "SE",
    }
}

/// An upcall as JSON.
pub(super) fn json(upcall: &Upcall) -> Value {
    match upcall {
        Upcall::Registered(registered) => json!({ "type": "registered", "id": registered.id }),
        Upcall::Refused(refused) => json!({ "type": "refused", "reason": refused.reason }),
        Upcall::Path(path) => json!({
            "type": "path",
            "sender": path.sender.as_ref().map(filter_json),
            "traffic": path.traffic.as_ref().map(traffic_json),
            "broken": path.broken,
            "adspec": adspec_json(path.adspec.as_ref()),
            "policy": policy_json(path.policy.as_ref()),
        }),
        Upcall::PathGone(sender) => json!({ "type": "path-gone", "sender": filter_json(sender) }),
        Upcall::Reserved(reserved) => json!({
            "type": "reserved",
            "style": style(reserved.style()),
            "flowspec": reserved.flowspec.as_ref().map(flowspec_json),
            "senders": senders_json(&reserved.senders),
            "policy": policy_json(reserved.policy.as_ref()),
        }),
        Upcall::ReservedGone(sender) => json!({ "type": "reserved-gone", "sender": filter_json(sender) }),
        Upcall::PathError(error) => error_json("path-error", error),
        Upcall::ReservationError(error) => error_json("reservation-error", error),
        Upcall::Confirmed(confirmed) => json!({
            "type": "confirmed",
            "node": confirmed.node,
            "style": style(confirmed.style()),
            "flowspec": confirmed.flowspec.as_ref().map(flowspec_json),
            "senders": senders_json(&confirmed.senders),
        }),
    }
}

fn error_json(kind: &str, error: &v0::RsvpError) -> Value {
    json!({
        "type": kind,
        "node": error.node,
        "code": error.code,
        "value": error.value,
        "meaning": error.meaning,
        "in_place": error.in_place,
        "not_guilty": error.not_guilty,
        "senders": senders_json(&error.senders),
        "flowspec": error.flowspec.as_ref().map(flowspec_json),
        "policy": policy_json(error.policy.as_ref()),
    })
}

/// Senders as JSON.
pub(super) fn senders_json(senders: &[v0::RsvpFilter]) -> Vec<Value> {
    senders.iter().map(filter_json).collect()
}

/// A sender as JSON.
pub(super) fn filter_json(filter: &v0::RsvpFilter) -> Value {
    let (port, label, spi) = match filter.selector {
        None => (None, None, None),
        Some(Selector::Port(port)) => (Some(port), None, None),
        Some(Selector::FlowLabel(label)) => (None, Some(label), None),
        Some(Selector::Spi(spi)) => (None, None, Some(spi)),
    };
    json!({ "source": filter.source, "port": port, "flow_label": label, "spi": spi })
}

/// A token bucket as JSON.
pub(super) fn traffic_json(traffic: &v0::RsvpTraffic) -> Value {
    json!({
        "rate": traffic.rate,
        "burst": traffic.burst,
        "peak": traffic.peak,
        "min_policed": traffic.min_policed,
        "max_packet": traffic.max_packet,
    })
}

/// A flowspec as JSON.
pub(super) fn flowspec_json(flowspec: &v0::RsvpFlowspec) -> Value {
    let mut value = flowspec.traffic.as_ref().map_or_else(|| json!({}), traffic_json);
    value["service_rate"] = flowspec.service_rate.into();
    value["slack_us"] = flowspec.slack_us.into();
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confirmation_shows_node_and_flowspec() {
        let traffic =
            v0::RsvpTraffic { rate: 8000.0, burst: 3000.0, peak: None, min_policed: 64, max_packet: 1500 };
        let upcall = Upcall::Confirmed(v0::RsvpConfirmed {
            node: "10.0.0.1".into(),
            flowspec: Some(v0::RsvpFlowspec { traffic: Some(traffic), ..Default::default() }),
            ..Default::default()
        });
        let expected = "confirmed by 10.0.0.1: 64 kbit/s, burst 3000 octets, controlled load, FF";
        assert_eq!(text(&upcall), expected);
        let value = json(&upcall);
        assert_eq!((&value["type"], &value["flowspec"]["rate"]), (&json!("confirmed"), &json!(8000.0)));
    }

    #[test]
    fn an_error_names_node_and_code() {
        let error = v0::RsvpError {
            node: "10.0.12.1".into(),
            code: 1,
            value: 2,
            meaning: "Admission Control failure".into(),
            in_place: true,
            ..Default::default()
        };
        let shown = text(&Upcall::ReservationError(error));
        assert!(
            shown.contains("(code 1, value 2) at 10.0.12.1; what was reserved before still is"),
            "{shown}"
        );
    }
}
