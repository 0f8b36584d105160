//! `signalbox show rsvp`: sessions with their senders and reservations, neighbors, and interfaces.

use std::net::IpAddr;
use std::path::Path;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use signalbox_api::rsvp::v1;
use signalbox_api::rsvp::v1::rsvp_client::RsvpClient;

use super::{LimitArgs, ListArgs, view_help};
use crate::arguments::OutputArgs;
use crate::client;
use crate::commands::rsvp::print::{adspec, filter, policy, style};
use crate::exit::Exit;
use crate::print::{duration, or_dash, rate, service, table};

#[derive(Debug, Subcommand)]
pub(crate) enum RsvpView {
    /// Sessions with their senders and reservations.
    #[command(after_help = view_help!(
        "rsvp_session",
        "rsvp sessions",
        "rsvp sessions --address 192.0.2.9 --json",
        "rsvp sessions --interface eth1 --style wf",
    ))]
    Sessions(SessionArgs),
    /// What this node requests of previous hops, and the requests of next hops that are left out for some time (blockade state).
    #[command(after_help = view_help!(
        "rsvp_session",
        "rsvp requests",
        "rsvp requests --json | jq '.upstream_requests[]'",
    ))]
    Requests(SessionArgs),
    /// Neighbors, the protocol features in use with them, and why their messages were dropped.
    #[command(after_help = view_help!(
        "rsvp_neighbor",
        "rsvp neighbors",
        "rsvp neighbors --json | jq .authentication_failures",
    ))]
    Neighbors(NeighborArgs),
    /// RSVP's state of each interface: on or off, refresh period, protocol features, and messages by type.
    #[command(after_help = view_help!(
        "rsvp_interface",
        "rsvp interfaces",
        "rsvp interfaces --json | jq '.messages[]'",
    ))]
    Interfaces(LimitArgs),
}

/// Which sessions to show.
#[derive(Debug, Clone, Args)]
pub(crate) struct SessionArgs {
    #[command(flatten)]
    list: ListArgs,
    /// Only sessions with this destination port.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Only sessions whose Paths arrive or whose data leave by this interface.
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Only sessions with reservations of this style.
    #[arg(long, value_enum)]
    style: Option<Style>,
    /// Only sessions with this previous or next hop.
    #[arg(long, value_name = "ADDRESS")]
    neighbor: Option<IpAddr>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Style {
    /// Fixed filter.
    Ff,
    /// Wildcard filter.
    Wf,
    /// Shared explicit.
    Se,
}

impl SessionArgs {
    fn request(&self) -> v1::ListSessionsRequest {
        let style = self.style.map_or(v1::Style::Unspecified, |style| match style {
            Style::Ff => v1::Style::FixedFilter,
            Style::Wf => v1::Style::WildcardFilter,
            Style::Se => v1::Style::SharedExplicit,
        });
        v1::ListSessionsRequest {
            address: self.list.address(),
            limit: self.list.limit,
            page_token: Vec::new(),
            destination_port: self.port.map(Into::into),
            interface: self.interface.clone(),
            style: style.into(),
            neighbor: self.neighbor.map(|address| address.to_string()),
        }
    }
}

/// Which neighbors to show.
#[derive(Debug, Clone, Args)]
pub(crate) struct NeighborArgs {
    #[command(flatten)]
    limit: LimitArgs,
    /// Only neighbors at this interface.
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
}

pub(super) async fn show(view: &RsvpView, socket: &Path, output: OutputArgs) -> Result<Exit> {
    let mut client = RsvpClient::new(client::channel(socket).await?);
    match view {
        RsvpView::Sessions(wanted) => {
            table::list(client.list_sessions(wanted.request()).await, output, &SESSION, session).await
        }
        RsvpView::Requests(wanted) => {
            table::list(client.list_sessions(wanted.request()).await, output, &REQUEST, requests).await
        }
        RsvpView::Neighbors(NeighborArgs { limit, interface }) => {
            let (limit, interface) = (limit.limit, interface.clone());
            let request = v1::ListNeighborsRequest { limit, page_token: Vec::new(), interface };
            table::list(client.list_neighbors(request).await, output, &NEIGHBOR, neighbor).await
        }
        RsvpView::Interfaces(LimitArgs { limit }) => {
            let request = v1::ListInterfacesRequest { limit: *limit, page_token: Vec::new() };
            table::list(client.list_interfaces(request).await, output, &INTERFACE, interface).await
        }
    }
}

/// Columns of the sessions, with a row for each sender and each reservation.
const SESSION: [&str; 10] =
    ["session", "state", "sender", "rate", "service", "hop", "interface", "age", "expires", "remarks"];

/// Columns of what is requested of previous hops, and of blockade state, with a row for each sender.
const REQUEST: [&str; 9] =
    ["session", "state", "sender", "rate", "service", "hop", "interface", "next refresh", "expires"];

fn requests(session: &v1::Session) -> Vec<[String; 9]> {
    let name = name(session);
    let row = |state: String, sender: String, flowspec: Option<&v1::Flowspec>| {
        [
            name.clone(),
            state,
            sender,
            or_dash(flowspec.and_then(|spec| spec.traffic).map(|traffic| rate(traffic.rate_octets_per_s))),
            or_dash(flowspec.and_then(|spec| spec.service.as_ref()).map(service)),
        ]
    };
    let mut rows = Vec::new();
    for request in &session.upstream_requests {
        for flow in &request.flows {
            let senders: Vec<_> = flow.senders.iter().map(filter).collect();
            let state = format!("requested {}", style(request.style()));
            let [session, state, sender, rate, service] =
                row(state, senders.join(", "), flow.flowspec.as_ref());
            let interface = or_dash(request.interface.as_ref().map(|interface| &interface.name));
            let next = or_dash(request.next_refresh_in_us.map(duration));
            let hop = request.previous_hop.clone();
            rows.push([session, state, sender, rate, service, hop, interface, next, "-".to_owned()]);
        }
    }
    for blockade in &session.blockades {
        let sender = or_dash(blockade.sender.as_ref().map(filter));
        let [session, state, sender, rate, service] =
            row("blocked".to_owned(), sender, blockade.flowspec.as_ref());
        let hop = or_dash(blockade.previous_hop.clone());
        let expires = duration(blockade.expires_in_us);
        rows.push([session, state, sender, rate, service, hop, "-".to_owned(), "-".to_owned(), expires]);
    }
    rows
}

/// Destination, port and protocol of a session.
fn name(session: &v1::Session) -> String {
    let port = session.destination_port.map(|port| match session.ipsec {
        true => format!(" virtual port {port}"),
        false => format!(" port {port}"),
    });
    format!("{}{} proto {}", session.destination, port.unwrap_or_default(), session.ip_protocol)
}

fn session(session: &v1::Session) -> Vec<[String; 10]> {
    let name = name(session);
    let senders = session.senders.iter().map(|sender| sender_row(&name, sender));
    let reservations = session.reservations.iter().map(|reservation| reservation_row(&name, reservation));
    let mut rows: Vec<_> = senders.chain(reservations).collect();
    if rows.is_empty() {
        let mut row = [const { String::new() }; 10];
        row[0] = name;
        rows.push(row);
    }
    rows
}

fn sender_row(session: &str, sender: &v1::SenderState) -> [String; 10] {
    let mut remarks = Vec::new();
    if sender.non_rsvp_hop {
        remarks.push("behind hops without RSVP".to_owned());
    } else if sender.broken {
        remarks.push("over hops that keep no reservations".to_owned());
    }
    if !sender.outgoing_interfaces.is_empty() {
        let names: Vec<_> =
            sender.outgoing_interfaces.iter().map(|interface| interface.name.as_str()).collect();
        remarks.push(format!("sent to {}", names.join(", ")));
    }
    remarks.extend(sender.next_refresh_in_us.map(|at| format!("refresh in {}", duration(at))));
    remarks.extend(sender.adspec.as_ref().map(adspec));
    remarks.extend(sender.policy.as_ref().map(policy));
    [
        session.to_owned(),
        "path".to_owned(),
        or_dash(sender.filter.as_ref().map(filter)),
        or_dash(sender.traffic.map(|traffic| rate(traffic.rate_octets_per_s))),
        "-".to_owned(),
        sender.previous_hop.clone().unwrap_or_else(|| "this host".to_owned()),
        or_dash(sender.interface.as_ref().map(|interface| &interface.name)),
        duration(sender.age_us),
        or_dash(sender.expires_in_us.map(duration)),
        remarks.join("; "),
    ]
}

fn reservation_row(session: &str, reservation: &v1::ReservationState) -> [String; 10] {
    let senders: Vec<_> = reservation.senders.iter().map(filter).collect();
    let here = reservation.requested_here.then(|| "this host".to_owned());
    let hops: Vec<_> = reservation.next_hops.iter().cloned().chain(here).collect();
    let flowspec = reservation.flowspec.as_ref();
    let enforced = match (reservation.enforced, &reservation.interface) {
        (true, _) => Some("enforced".to_owned()),
        (false, Some(_)) => Some("not enforced".to_owned()),
        (false, None) => None,
    };
    // With one next hop its request is the reservation.
    let each = reservation.requests.iter().filter(|_| reservation.requests.len() > 1).map(|request| {
        let traffic = request.flowspec.as_ref().and_then(|spec| spec.traffic);
        let hop = request.next_hop.as_deref().unwrap_or("this host");
        let expires = request.expires_in_us.map(|at| format!(" for {}", duration(at))).unwrap_or_default();
        format!("{hop}: {}{expires}", or_dash(traffic.map(|traffic| rate(traffic.rate_octets_per_s))))
    });
    let remarks: Vec<_> =
        enforced.into_iter().chain(each).chain(reservation.policy.as_ref().map(policy)).collect();
    [
        session.to_owned(),
        format!("reservation {}", style(reservation.style())),
        if senders.is_empty() { "all".to_owned() } else { senders.join(", ") },
        or_dash(flowspec.and_then(|spec| spec.traffic).map(|traffic| rate(traffic.rate_octets_per_s))),
        or_dash(flowspec.and_then(|spec| spec.service.as_ref()).map(service)),
        hops.join(", "),
        or_dash(reservation.interface.as_ref().map(|interface| &interface.name)),
        or_dash(reservation.age_us.map(duration)),
        or_dash(reservation.requests.iter().filter_map(|request| request.expires_in_us).max().map(duration)),
        remarks.join("; "),
    ]
}

const NEIGHBOR: [&str; 11] = [
    "neighbor",
    "interface",
    "last message",
    "refresh reduction",
    "ids",
    "hello",
    "integrity",
    "received",
    "errors",
    "sent",
    "dropped",
];

fn neighbor(neighbor: &v1::Neighbor) -> Vec<[String; 11]> {
    let reduction = match neighbor.refresh_reduction() {
        _ if neighbor.last_message_age_us.is_none() => "-",
        v1::RefreshReduction::Unspecified => "-",
        v1::RefreshReduction::Off => "off here",
        v1::RefreshReduction::NotOffered => "plain RFC 2205",
        v1::RefreshReduction::GivenUp => "plain RFC 2205 for some time: it refused or ignored MESSAGE_IDs",
        v1::RefreshReduction::NotAdjacent => "not adjacent: hops without RSVP lie between",
        v1::RefreshReduction::MessageIds => "acknowledgments only: summaries are off here or there",
        v1::RefreshReduction::Complete => "in use",
    };
    let hello = match neighbor.hello() {
        v1::Hello::Unspecified | v1::Hello::Off => "-",
        v1::Hello::Up => "up",
        v1::Hello::Lost => "lost: it is silent, or has restarted",
        v1::Hello::Never => "never seen",
    };
    vec![[
        neighbor.address.clone(),
        or_dash(neighbor.interface.as_ref().map(|interface| &interface.name)),
        neighbor
            .last_message_age_us
            .map_or_else(|| "none".to_owned(), |age| format!("{} ago", duration(age))),
        reduction.to_owned(),
        neighbor.message_ids.to_string(),
        hello.to_owned(),
        integrity(neighbor),
        neighbor.messages_received.to_string(),
        neighbor.errors_received.to_string(),
        neighbor.messages_sent.to_string(),
        dropped(neighbor),
    ]]
}

const INTERFACE: [&str; 9] = [
    "interface",
    "rsvp",
    "address",
    "refresh",
    "reduction",
    "hello",
    "integrity",
    "neighbors",
    "messages received/sent",
];

fn interface(state: &v1::InterfaceState) -> Vec<[String; 9]> {
    let on = match (state.enabled, state.up) {
        (false, _) => "off",
        (true, false) => "down",
        (true, true) => "on",
    };
    let refresh = match (state.refresh_period_us, state.announced_refresh_period_us) {
        (own, announced) if own == announced => duration(own),
        (own, announced) => format!("{}, growing to {}", duration(announced), duration(own)),
    };
    let reduction = match state.refresh_reduction() {
        v1::RefreshReduction::MessageIds => "acknowledgments only",
        v1::RefreshReduction::Complete => "on",
        _ => "off",
    };
    let integrity = match (state.signs, state.requires_signature) {
        (false, false) => "-",
        (true, true) => "signed and required",
        (true, false) => "signed",
        (false, true) => "required",
    };
    let counts = state.messages.iter().map(|one| format!("{} {}/{}", one.r#type, one.received, one.sent));
    let mut counts: Vec<_> = counts.collect();
    if state.errors_received > 0 {
        counts.push(format!("errors received {}", state.errors_received));
    }
    vec![[
        or_dash(state.interface.as_ref().map(|interface| &interface.name)),
        on.to_owned(),
        if state.addresses.is_empty() { "-".to_owned() } else { state.addresses.join(", ") },
        refresh,
        reduction.to_owned(),
        or_dash(state.hello_interval_us.map(|interval| format!("every {}", duration(interval)))),
        integrity.to_owned(),
        state.neighbors.to_string(),
        if counts.is_empty() { "-".to_owned() } else { counts.join(", ") },
    ]]
}

fn integrity(neighbor: &v1::Neighbor) -> String {
    if !neighbor.signs && !neighbor.requires_signature {
        return "-".to_owned();
    }
    let mut text = match (neighbor.signs, neighbor.key_id) {
        (false, _) => "not signed here".to_owned(),
        (true, Some(id)) => format!("signed with key {id}"),
        (true, None) => {
            "no key to sign with, so nothing is sent to it: give a key in the configuration".to_owned()
        }
    };
    if !neighbor.requires_signature {
        text += ", unsigned messages accepted";
    }
    for one in &neighbor.security_associations {
        match (one.sequence_number, one.unanswered_challenges) {
            (Some(number), _) => text += &format!("; its key {} up to {number}", one.key_id),
            (None, asked) => {
                text += &format!("; its key {} waits for the answer to challenge {asked}", one.key_id)
            }
        }
    }
    text
}

fn dropped(neighbor: &v1::Neighbor) -> String {
    let counts = neighbor.authentication_failures.iter().filter_map(|one| {
        let (name, _) = reason(one.reason())?;
        Some(format!("{} {name}", one.messages))
    });
    let counts = counts.collect::<Vec<_>>().join(", ");
    match reason(neighbor.last_failure()) {
        None => "-".to_owned(),
        Some((name, cause)) => {
            let ago = neighbor.last_failure_age_us.map(duration);
            format!("{counts}; the last {} ago, {name}: {cause}", or_dash(ago))
        }
    }
}

/// The name of a reason, and its probable cause.
fn reason(why: v1::AuthenticationFailure) -> Option<(&'static str, &'static str)> {
    use v1::AuthenticationFailure as Why;
    Some(match why {
        Why::Unspecified => return None,
        Why::Unsigned => ("unsigned", "the neighbor does not sign, or require = false is wanted here"),
        Why::UnknownKey => {
            ("unknown key", "no key here has that identifier for this neighbor, interface and time")
        }
        Why::WrongDigest => {
            ("wrong digest", "the secrets or algorithms of the two differ, or octets were altered on the way")
        }
        Why::Replayed => ("replayed", "repeated, or out of order by more than integrity.window"),
        Why::ChallengePending => ("challenge pending", "it had not yet answered a challenge"),
        Why::NoChallengeResponse => (
            "no challenge response",
            "it answers no challenges: set accept_unchallenged here, or challenge there",
        ),
    })
}

#[cfg(test)]
mod tests {
    use signalbox_api::v1::{InterfaceRef, TokenBucket};

    use super::*;

    #[test]
    fn requests_of_both_kinds_have_a_row_for_each_sender() {
        let flow = |port| v1::FlowDescriptor {
            senders: vec![v1::Filter { source: Some("10.0.0.1".into()), ..v1::Filter::default() }],
            flowspec: Some(v1::Flowspec {
                traffic: Some(TokenBucket { rate_octets_per_s: port, ..Default::default() }),
                ..v1::Flowspec::default()
            }),
        };
        let row = v1::Session {
            destination: "10.0.9.9".into(),
            destination_port: Some(5004),
            ip_protocol: 17,
            upstream_requests: vec![v1::UpstreamRequest {
                previous_hop: "10.0.1.1".into(),
                style: v1::Style::SharedExplicit.into(),
                flows: vec![flow(1000), flow(2000)],
                next_refresh_in_us: Some(30_000_000),
                ..v1::UpstreamRequest::default()
            }],
            blockades: vec![v1::BlockadeState {
                previous_hop: Some("10.0.1.1".into()),
                flowspec: flow(4000).flowspec,
                expires_in_us: 90_000_000,
                ..v1::BlockadeState::default()
            }],
            ..v1::Session::default()
        };
        let rows = requests(&row);
        assert_eq!(rows.len(), 3);
        assert!(rows.iter().all(|row| row[0] == "10.0.9.9 port 5004 proto 17"));
        assert_eq!((rows[0][5].as_str(), rows[0][7].as_str()), ("10.0.1.1", "30.0s"));
        assert_eq!(
            (rows[2][1].as_str(), rows[2][5].as_str(), rows[2][8].as_str()),
            ("blocked", "10.0.1.1", "1m30s")
        );
    }

    fn at(name: &str) -> Option<InterfaceRef> {
        Some(InterfaceRef { name: name.into(), index: 2 })
    }

    #[test]
    fn a_session_shows_senders_and_reservations() {
        let traffic = TokenBucket { rate_octets_per_s: 8000, ..Default::default() };
        let state = v1::Session {
            destination: "10.0.1.2".into(),
            ip_protocol: 17,
            destination_port: Some(5004),
            senders: vec![v1::SenderState {
                filter: Some(v1::Filter { source: Some("10.0.0.1".into()), selector: None }),
                traffic: Some(traffic),
                previous_hop: Some("10.0.0.1".into()),
                interface: at("r1-0"),
                expires_in_us: Some(157_000_000),
                age_us: 3_600_000_000,
                broken: true,
                ..Default::default()
            }],
            reservations: vec![v1::ReservationState {
                style: v1::Style::FixedFilter.into(),
                interface: at("r1-1"),
                flowspec: Some(v1::Flowspec { traffic: Some(traffic), service: None }),
                next_hops: vec!["10.0.1.2".into()],
                enforced: true,
                age_us: Some(5_000_000),
                ..Default::default()
            }],
            ..Default::default()
        };
        let rows = session(&state);
        let name = "10.0.1.2 port 5004 proto 17";
        let broken = "over hops that keep no reservations";
        let path = [name, "path", "10.0.0.1", "64kbit", "-", "10.0.0.1", "r1-0", "1h0m", "2m37s", broken];
        assert_eq!(rows[0], path);
        let held =
            [name, "reservation FF", "all", "64kbit", "-", "10.0.1.2", "r1-1", "5.0s", "-", "enforced"];
        assert_eq!(rows[1], held);
    }

    #[test]
    fn a_plain_neighbor_is_called_so() {
        let state = v1::Neighbor {
            address: "10.0.1.2".into(),
            interface: at("r1-0"),
            last_message_age_us: Some(1_000_000),
            refresh_reduction: v1::RefreshReduction::NotOffered.into(),
            hello: v1::Hello::Never.into(),
            messages_received: 7,
            errors_received: 1,
            messages_sent: 5,
            ..Default::default()
        };
        let row = neighbor(&state).remove(0);
        assert_eq!([&row[3], &row[5]], ["plain RFC 2205", "never seen"]);
        assert_eq!(row[7..10], ["7", "1", "5"]);
    }

    #[test]
    fn an_interface_shows_its_settings_and_messages() {
        let count = |name: &str, received, sent| v1::MessageCount { r#type: name.into(), received, sent };
        let state = v1::InterfaceState {
            interface: at("r1-0"),
            enabled: true,
            up: true,
            addresses: vec!["10.0.1.1".into()],
            refresh_period_us: 60_000_000,
            announced_refresh_period_us: 30_000_000,
            refresh_reduction: v1::RefreshReduction::Complete.into(),
            hello_interval_us: Some(5_000_000),
            signs: true,
            requires_signature: true,
            neighbors: 2,
            messages: vec![count("Path", 3, 0), count("Resv", 0, 4)],
            errors_received: 1,
        };
        let messages = "Path 3/0, Resv 0/4, errors received 1";
        let refresh = "30.0s, growing to 1m0s";
        let row = interface(&state).remove(0);
        assert_eq!(row[..3], ["r1-0", "on", "10.0.1.1"]);
        assert_eq!(row[3], refresh);
        assert_eq!(row[4..], ["on", "every 5.0s", "signed and required", "2", messages]);
        let off = interface(&v1::InterfaceState::default()).remove(0);
        assert_eq!([&off[1], &off[5], &off[8]], ["off", "-", "-"]);
    }

    #[test]
    fn authentication_failures_show_reason_and_remedy() {
        let failed = |reason: v1::AuthenticationFailure, messages| v1::AuthenticationFailures {
            reason: reason.into(),
            messages,
        };
        let state = v1::Neighbor {
            address: "10.0.1.2".into(),
            interface: at("r1-0"),
            signs: true,
            requires_signature: true,
            authentication_failures: vec![
                failed(v1::AuthenticationFailure::WrongDigest, 3),
                failed(v1::AuthenticationFailure::Replayed, 1),
            ],
            last_failure: v1::AuthenticationFailure::WrongDigest.into(),
            last_failure_age_us: Some(5_000_000),
            ..Default::default()
        };
        let row = neighbor(&state).remove(0);
        assert_eq!(row[2], "none");
        assert!(row[6].contains("no key to sign with"), "{}", row[6]);
        assert_eq!(
            row[10],
            "3 wrong digest, 1 replayed; the last 5.0s ago, wrong digest: the secrets or algorithms of the two differ, \
             or octets were altered on the way"
        );
    }
}
