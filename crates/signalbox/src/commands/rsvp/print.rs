//! The output for upcalls and RSVP's objects, as text.

use signalbox_api::rsvp::v1;
use signalbox_api::rsvp::v1::filter::Selector;
use signalbox_api::rsvp::v1::session_response::Upcall;

use crate::print::path::failure_text;
use crate::print::{duration, rate, service, traffic};

/// An upcall.
pub(super) fn text(upcall: &Upcall) -> String {
    match upcall {
        Upcall::Registered(_) => "registered".to_owned(),
        Upcall::Refused(refused) => format!("refused: {}", refused.message),
        Upcall::Path(path) => {
            let traffic = path.traffic.as_ref().map(traffic).unwrap_or_default();
            let broken = if path.broken { "; not every hop on the way keeps reservations" } else { "" };
            let sender = path.sender.as_ref().map(filter).unwrap_or_default();
            format!("sender {sender}: {traffic}{broken}{}", and_policy(path.policy.as_ref()))
        }
        Upcall::PathRemoved(sender) => format!("sender {} is removed", filter(sender)),
        Upcall::Reserved(reserved) => {
            let what = reserved.flowspec.as_ref().map(flowspec).unwrap_or_default();
            let policy = and_policy(reserved.policy.as_ref());
            format!("reserved: {what}, {}{policy}", style(reserved.style()))
        }
        Upcall::ReservedRemoved(sender) => format!("nothing is reserved for {} any more", filter(sender)),
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

fn error_text(error: &v1::Error) -> String {
    let failure = error.failure.as_ref().map(failure_text).unwrap_or_default();
    failure + &and_policy(error.policy.as_ref())
}

/// A sender: its address, and its port, flow label or SPI.
pub(in crate::commands) fn filter(filter: &v1::Filter) -> String {
    let source = filter.source.as_deref().unwrap_or("this host");
    match filter.selector {
        None => source.to_owned(),
        Some(Selector::SourcePort(port)) => format!("{source}/{port}"),
        Some(Selector::FlowLabel(label)) => format!("{source}/label:{label:#07x}"),
        Some(Selector::Spi(spi)) => format!("{source}/spi:{spi:#010x}"),
    }
}

/// A flowspec.
fn flowspec(flowspec: &v1::Flowspec) -> String {
    let text = flowspec.traffic.as_ref().map(traffic).unwrap_or_default();
    text + &flowspec.service.as_ref().map(|one| format!(", {}", service(one))).unwrap_or_default()
}

/// A style, as RFC 2205 abbreviates it.
pub(in crate::commands) const fn style(style: v1::Style) -> &'static str {
    match style {
        v1::Style::Unspecified => "-",
        v1::Style::FixedFilter => "FF",
        v1::Style::WildcardFilter => "WF",
        v1::Style::SharedExplicit => "SE",
    }
}

/// POLICY_DATA.
pub(in crate::commands) fn policy(policy: &v1::PolicyData) -> String {
    let mut parts = Vec::new();
    if let Some(priority) = policy.priority {
        parts.push(format!("priority {}/{}", priority.setup, priority.defending.unwrap_or(priority.setup)));
    }
    for identity in &policy.identities {
        let what = match identity.kind() {
            v1::IdentityKind::Application => "application",
            v1::IdentityKind::Unspecified | v1::IdentityKind::User => "user",
        };
        let locator = identity.locator.as_ref().map(|locator| format!(" ({locator})")).unwrap_or_default();
        parts.push(format!("{what} {}{locator}", identity.name));
    }
    if !policy.octets.is_empty() {
        parts.push(format!("{} octets", policy.octets.len()));
    }
    format!("policy: {}", parts.join(", "))
}

/// POLICY_DATA as the end of a line; empty if there is none.
fn and_policy(carried: Option<&v1::PolicyData>) -> String {
    carried.map(|carried| format!("; {}", policy(carried))).unwrap_or_default()
}

/// An ADSPEC.
pub(in crate::commands) fn adspec(adspec: &v1::Adspec) -> String {
    let bandwidth = adspec.bandwidth_octets_per_s.map_or_else(|| "bandwidth unknown".to_owned(), rate);
    let latency = adspec.latency_us.map_or_else(|| "latency unknown".to_owned(), duration);
    let mut text =
        format!("path: {} hops, {bandwidth}, {latency}, packets up to {}", adspec.hops, adspec.mtu_octets);
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

#[cfg(test)]
mod tests {
    use signalbox_api::v1 as shared;

    use super::*;

    #[test]
    fn a_confirmation_shows_node_and_flowspec() {
        let traffic =
            shared::TokenBucket { rate_octets_per_s: 8000, burst_octets: Some(3000), ..Default::default() };
        let kind = shared::service::Service::ControlledLoad(shared::ControlledLoad {});
        let upcall = Upcall::Confirmed(v1::Confirmed {
            node: "10.0.0.1".into(),
            style: v1::Style::FixedFilter.into(),
            flowspec: Some(v1::Flowspec {
                traffic: Some(traffic),
                service: Some(shared::Service { service: Some(kind) }),
            }),
            ..Default::default()
        });
        let expected = "confirmed by 10.0.0.1: 64kbit, burst 3000 octets, controlled-load, FF";
        assert_eq!(text(&upcall), expected);
    }

    #[test]
    fn an_error_names_node_and_code() {
        let failure = shared::Failure {
            node: Some("10.0.12.1".into()),
            message: "Admission Control failure".into(),
            code: Some(shared::failure::Code::Rsvp(shared::RsvpCode { code: 1, value: 2 })),
            ..Default::default()
        };
        let error = v1::Error { failure: Some(failure), in_place: true, ..Default::default() };
        assert_eq!(
            text(&Upcall::ReservationError(error)),
            "reservation error: Admission Control failure (code 1, value 2) at 10.0.12.1; what was reserved before \
             still is"
        );
    }

    #[test]
    fn policy_data_is_readable() {
        let ann = v1::Identity {
            kind: v1::IdentityKind::User.into(),
            name: "ann".into(),
            locator: Some("CN=Ann".into()),
        };
        let carried = v1::PolicyData {
            octets: vec![0, 8, 14, 1, 0, 8, 0, 0],
            priority: Some(shared::Priority { setup: 5, defending: Some(7) }),
            identities: vec![ann],
        };
        assert_eq!(policy(&carried), "policy: priority 5/7, user ann (CN=Ann), 8 octets");
        assert_eq!(and_policy(None), "");
    }

    #[test]
    fn an_adspec_shows_missing_services() {
        let shown = v1::Adspec {
            hops: 3,
            bandwidth_octets_per_s: Some(1_250_000),
            mtu_octets: 1500,
            guaranteed: Some(v1::AdspecService { broken: true, ..Default::default() }),
            ..Default::default()
        };
        assert_eq!(
            adspec(&shown),
            "path: 3 hops, 10mbit, latency unknown, packets up to 1500, guaranteed not at each hop, no controlled load"
        );
    }
}
