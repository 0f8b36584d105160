//! What the lists contain: messages of the API, and the columns that show them.

use signalbox_api::{boomerang, casp, gist, qos, rsvp, v1};

use super::meter::Meter;
use super::text::{about, bar, percent};
use crate::print::{
    date_time, duration, enum_text, flow, flows, hex, identifier, or_dash, rate, time_of_day,
};

/// A list, of which one is on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tab {
    Links,
    Reservations,
    Passages,
    Sessions,
    Neighbors,
    Decisions,
}

/// A column: its name, and the width that it keeps where the screen is narrow. `0`: its text is never cut.
pub(super) struct Column(pub(super) &'static str, pub(super) u16);

impl Tab {
    pub(super) const ALL: [Self; 6] =
        [Self::Links, Self::Reservations, Self::Passages, Self::Sessions, Self::Neighbors, Self::Decisions];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Links => "links",
            Self::Reservations => "reservations",
            Self::Passages => "passages",
            Self::Sessions => "sessions",
            Self::Neighbors => "neighbors",
            Self::Decisions => "decisions",
        }
    }

    /// The columns, the most important ones first: the last ones are left out where the screen is narrow.
    pub(super) const fn columns(self) -> &'static [Column] {
        match self {
            Self::Links => &[
                Column("link", 0),
                Column("capacity", 0),
                Column("reserved", 0),
                Column("used", 0),
                Column("reservations", 0),
                Column("reservable", 0),
                Column("missing", 12),
            ],
            Self::Reservations => &[
                Column("protocol", 0),
                Column("flow", 30),
                Column("link", 0),
                Column("rate", 0),
                Column("used", 0),
                Column("from", 15),
                Column("id", 0),
                Column("rule", 12),
            ],
            Self::Passages => &[
                Column("protocol", 0),
                Column("flow", 30),
                Column("state", 0),
                Column("here", 0),
                Column("used", 0),
                Column("expires", 0),
                Column("from", 15),
                Column("rule", 12),
            ],
            Self::Sessions => &[
                Column("protocol", 0),
                Column("flow", 30),
                Column("state", 12),
                Column("expires", 0),
                Column("session", 0),
                Column("peers", 15),
            ],
            Self::Neighbors => &[
                Column("protocol", 0),
                Column("address", 15),
                Column("link", 0),
                Column("sessions", 0),
                Column("state", 20),
            ],
            Self::Decisions => &[
                Column("time", 0),
                Column("outcome", 0),
                Column("protocol", 0),
                Column("flow", 30),
                Column("reason", 16),
                Column("rate", 0),
                Column("from", 15),
            ],
        }
    }
}

/// What a text says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    High,
    Bad,
}

/// What stands in a column.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) tone: Tone,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, tone: Tone::Plain }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// An entry of a list.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "a list has entries of one or two of these")]
pub(super) enum Entry {
    Link(v1::Interface),
    Reservation(v1::Reservation),
    Passage(v1::Pinhole),
    GistSession(gist::v1::Session),
    QosSession(qos::v1::Session),
    RsvpSession(rsvp::v1::Session),
    BoomerangFlow(boomerang::v1::Flow),
    CaspSession(casp::v1::Session),
    GistPeer(gist::v1::Peer),
    RsvpNeighbor(rsvp::v1::Neighbor),
    CaspPeer(casp::v1::Peer),
    Decision(v1::Decision),
}

fn name(interface: Option<&v1::InterfaceRef>) -> String {
    or_dash(interface.map(|interface| &interface.name))
}

fn index(interface: Option<&v1::InterfaceRef>) -> u32 {
    interface.map_or(0, |interface| interface.index)
}

/// Who asked, as far as it is known.
fn asker(neighbor: Option<&String>, proof: Option<&str>) -> String {
    match (neighbor, proof) {
        (Some(neighbor), _) => neighbor.clone(),
        (None, Some("local")) => "this host".to_owned(),
        (None, _) => "-".to_owned(),
    }
}

fn rsvp_session(row: &rsvp::v1::Session) -> String {
    let port = row.destination_port.map(|port| format!(" port {port}")).unwrap_or_default();
    format!("> {}{port} proto {}", row.destination, row.ip_protocol)
}

impl Entry {
    /// What no other entry of its list has, as long as it lasts.
    pub(super) fn key(&self) -> String {
        match self {
            Self::Link(row) => format!("link {}", index(row.interface.as_ref())),
            Self::Reservation(row) => format!("reservation {} {}", row.id, index(row.interface.as_ref())),
            Self::Passage(row) => format!("passage {} {}", row.protocol, hex(&row.session_id)),
            Self::GistSession(row) => format!(
                "gist {} {} {}",
                row.nslp_id,
                hex(&row.session_id),
                or_dash(row.flow.as_ref().map(flow))
            ),
            Self::QosSession(row) => format!("qos {}", hex(&row.session_id)),
            Self::RsvpSession(row) => format!("rsvp {}", rsvp_session(row)),
            Self::BoomerangFlow(row) => {
                format!("boomerang {} {}", row.pass, or_dash(row.flow.as_ref().map(flow)))
            }
            Self::CaspSession(row) => format!("casp {}", hex(&row.session_id)),
            Self::GistPeer(row) => {
                format!("gist peer {} {}", hex(&row.peer_identity), index(row.interface.as_ref()))
            }
            Self::RsvpNeighbor(row) => {
                format!("rsvp neighbor {} {}", row.address, index(row.interface.as_ref()))
            }
            Self::CaspPeer(row) => {
                format!("casp peer {} {}", row.address, hex(row.key_sha256.as_deref().unwrap_or_default()))
            }
            Self::Decision(row) => format!(
                "decision {} {} {} {}",
                row.time_unix_us,
                row.outcome,
                or_dash(row.id.as_ref()),
                flows(&row.flows)
            ),
        }
    }

    /// The number that grows with its traffic.
    pub(super) fn octets(&self) -> Option<u64> {
        match self {
            Self::Link(row) => row.sent_octets,
            Self::Reservation(row) => {
                let seen = row.statistics.as_ref()?;
                Some(seen.octets.saturating_add(seen.policed_octets.unwrap_or(0)))
            }
            Self::Passage(row) => row.rule.as_ref()?.octet_count,
            _ => None,
        }
    }

    /// Its rank where the largest come first.
    pub(super) fn size(&self, used: &Meter) -> u64 {
        match self {
            Self::Link(_) | Self::Passage(_) => used.rate(&self.key()).unwrap_or(0),
            Self::Reservation(row) => {
                let wanted = row.traffic.map_or(0, |traffic| traffic.rate_octets_per_s);
                used.rate(&self.key()).unwrap_or(wanted)
            }
            Self::QosSession(row) => held(row.held.as_ref()),
            Self::BoomerangFlow(row) => held(row.held.as_ref()),
            Self::RsvpSession(row) => (row.senders.len() + row.reservations.len()) as u64,
            Self::GistSession(row) => row.queued_messages.into(),
            Self::CaspSession(row) => (row.previous.len() + row.next.len()) as u64,
            Self::GistPeer(row) => row.routing_states.into(),
            Self::RsvpNeighbor(row) => row.messages_received,
            Self::CaspPeer(row) => row.uses.into(),
            Self::Decision(row) => row.rate_octets_per_s.unwrap_or(0),
        }
    }

    /// What stands in the columns of its list. `used`: what goes by the entry, in octets.
    pub(super) fn cells(&self, used: &Meter) -> Vec<Cell> {
        let used = || used.rate(&self.key());
        match self {
            Self::Link(row) => link(row, used()),
            Self::Reservation(row) => reservation(row, used()),
            Self::Passage(row) => passage(row, used()),
            Self::GistSession(row) => gist_session(row),
            Self::QosSession(row) => vec![
                "qos".into(),
                or_dash(row.flow.as_ref().map(flow)).into(),
                format!(
                    "{}, {}",
                    enum_text(row.role().as_str_name(), "ROLE_"),
                    enum_text(row.state().as_str_name(), "STATE_")
                )
                .into(),
                or_dash(row.expires_in_us.map(duration)).into(),
                identifier(&row.session_id).into(),
                or_dash(row.held.as_ref().and_then(|held| held.neighbor.as_ref())).into(),
            ],
            Self::RsvpSession(row) => rsvp_cells(row),
            Self::BoomerangFlow(row) => vec![
                "boomerang".into(),
                or_dash(row.flow.as_ref().map(flow)).into(),
                enum_text(row.pass().as_str_name(), "PASS_").into(),
                or_dash(row.expires_in_us.map(duration)).into(),
                "-".into(),
                row.initiator.clone().into(),
            ],
            Self::CaspSession(row) => casp_session(row),
            Self::GistPeer(row) => vec![
                "gist".into(),
                or_dash(row.peer.as_ref().map(|peer| &peer.address)).into(),
                name(row.interface.as_ref()).into(),
                row.routing_states.to_string().into(),
                match &row.unreached_by[..] {
                    [] => "reached".into(),
                    by => Cell { text: format!("not reached by {}", by.join(", ")), tone: Tone::Bad },
                },
            ],
            Self::RsvpNeighbor(row) => vec![
                "rsvp".into(),
                row.address.clone().into(),
                name(row.interface.as_ref()).into(),
                "-".into(),
                rsvp_neighbor(row),
            ],
            Self::CaspPeer(row) => {
                let up = row.connections.iter().filter(|one| one.up).count();
                let text = format!("{up} of {} connections open", row.connections.len());
                let (address, uses) = (row.address.clone(), row.uses.to_string());
                vec!["casp".into(), address.into(), "-".into(), uses.into(), text.into()]
            }
            Self::Decision(row) => decision(row),
        }
    }

    /// All of it, as JSON has it.
    pub(super) fn value(&self) -> serde_json::Value {
        let value = match self {
            Self::Link(row) => signalbox_json::value(row),
            Self::Reservation(row) => signalbox_json::value(row),
            Self::Passage(row) => signalbox_json::value(row),
            Self::GistSession(row) => signalbox_json::value(row),
            Self::QosSession(row) => signalbox_json::value(row),
            Self::RsvpSession(row) => signalbox_json::value(row),
            Self::BoomerangFlow(row) => signalbox_json::value(row),
            Self::CaspSession(row) => signalbox_json::value(row),
            Self::GistPeer(row) => signalbox_json::value(row),
            Self::RsvpNeighbor(row) => signalbox_json::value(row),
            Self::CaspPeer(row) => signalbox_json::value(row),
            Self::Decision(row) => signalbox_json::value(row),
        };
        value.unwrap_or_default()
    }

    /// What it is, in a line.
    pub(super) fn title(&self) -> String {
        match self {
            Self::Link(row) => format!("link {}", name(row.interface.as_ref())),
            Self::Reservation(row) => format!("reservation {}", row.id),
            Self::Passage(row) => format!("passage {}", identifier(&row.session_id)),
            Self::GistSession(row) => format!("gist session {}", identifier(&row.session_id)),
            Self::QosSession(row) => format!("qos session {}", identifier(&row.session_id)),
            Self::RsvpSession(row) => format!("rsvp session {}", rsvp_session(row)),
            Self::BoomerangFlow(_) => "boomerang flow".to_owned(),
            Self::CaspSession(row) => format!("casp session {}", identifier(&row.session_id)),
            Self::GistPeer(row) => format!("gist peer {}", identifier(&row.peer_identity)),
            Self::RsvpNeighbor(row) => format!("rsvp neighbor {}", row.address),
            Self::CaspPeer(row) => format!("casp peer {}", row.address),
            Self::Decision(row) => format!("decision of {}", date_time(row.time_unix_us)),
        }
    }
}

fn held(row: Option<&v1::Reservation>) -> u64 {
    row.and_then(|row| row.traffic).map_or(0, |traffic| traffic.rate_octets_per_s)
}

/// The columns of a link, also beside the other lists.
pub(super) fn link(row: &v1::Interface, used: Option<u64>) -> Vec<Cell> {
    let capacity = match (row.up, row.capacity_octets_per_s) {
        (false, _) => Cell { text: "down".to_owned(), tone: Tone::Bad },
        (true, None) => "unknown".into(),
        (true, Some(of)) => rate(of).into(),
    };
    let share = |part: Option<u64>, limit: Option<u64>| match (part, row.capacity_octets_per_s) {
        (Some(part), Some(of)) if of > 0 => {
            let tone = match percent(part, limit.unwrap_or(of)) {
                0..70 => Tone::Good,
                70..90 => Tone::High,
                _ => Tone::Bad,
            };
            Cell { text: format!("{} {:>7}", bar(percent(part, of)), about(part)), tone }
        }
        (Some(part), _) => about(part).into(),
        (None, _) => "-".into(),
    };
    vec![
        name(row.interface.as_ref()).into(),
        capacity,
        share(Some(row.reserved_octets_per_s), Some(row.reservable_octets_per_s)),
        share(used, None),
        row.reservations.to_string().into(),
        rate(row.reservable_octets_per_s).into(),
        row.enforcement.as_ref().map_or_else(|| "not enforced".into(), |one| one.missing.join("; ").into()),
    ]
}

fn reservation(row: &v1::Reservation, used: Option<u64>) -> Vec<Cell> {
    let wanted = row.traffic.map(|traffic| traffic.rate_octets_per_s);
    let used = match (used, row.enforced) {
        (Some(used), _) => {
            let tone = if wanted.is_some_and(|wanted| used > wanted) { Tone::High } else { Tone::Plain };
            Cell { text: about(used), tone }
        }
        (None, true) => "-".into(),
        (None, false) => "not enforced".into(),
    };
    vec![
        enum_text(row.protocol().as_str_name(), "PROTOCOL_").into(),
        flows(&row.flows).into(),
        name(row.interface.as_ref()).into(),
        or_dash(wanted.map(rate)).into(),
        used,
        asker(row.neighbor.as_ref(), row.proof.as_deref()).into(),
        row.id.clone().into(),
        or_dash(row.rule.as_ref()).into(),
    ]
}

fn passage(row: &v1::Pinhole, used: Option<u64>) -> Vec<Cell> {
    let here = row.rule.as_ref().map(|rule| match (rule.blocks, rule.active) {
        (false, true) => "open",
        (false, false) => "not open yet",
        (true, true) => "blocked",
        (true, false) => "not blocked yet",
    });
    vec![
        enum_text(row.protocol().as_str_name(), "PROTOCOL_").into(),
        or_dash(row.flow.as_ref().map(flow)).into(),
        enum_text(row.state().as_str_name(), "PINHOLE_STATE_").into(),
        or_dash(here).into(),
        or_dash(used.map(about)).into(),
        duration(row.expires_in_us).into(),
        row.neighbor.clone().unwrap_or_else(|| "this host".to_owned()).into(),
        or_dash(row.policy_rule.as_ref()).into(),
    ]
}

fn gist_session(row: &gist::v1::Session) -> Vec<Cell> {
    let directions = || [row.upstream.as_ref(), row.downstream.as_ref()].into_iter().flatten();
    let states: Vec<_> = directions().map(|state| enum_text(state.state().as_str_name(), "STATE_")).collect();
    let state = match &states[..] {
        [one, other] if one == other => one.clone(),
        all => all.join(" / "),
    };
    let peers: Vec<_> =
        directions().filter_map(|state| state.peer.as_ref()).map(|peer| peer.address.clone()).collect();
    let expires = directions().filter_map(|state| state.expires_in_us).min();
    vec![
        "gist".into(),
        or_dash(row.flow.as_ref().map(flow)).into(),
        or_dash(Some(state).filter(|state| !state.is_empty())).into(),
        or_dash(expires.map(duration)).into(),
        identifier(&row.session_id).into(),
        or_dash(Some(peers.join(", ")).filter(|peers| !peers.is_empty())).into(),
    ]
}

fn rsvp_cells(row: &rsvp::v1::Session) -> Vec<Cell> {
    let expires = row.senders.iter().filter_map(|sender| sender.expires_in_us).min();
    let hops = row.senders.iter().filter_map(|sender| sender.previous_hop.clone());
    let mut hops: Vec<_> = hops.take(4).collect();
    hops.dedup();
    vec![
        "rsvp".into(),
        rsvp_session(row).into(),
        format!("{} senders, {} reservations", row.senders.len(), row.reservations.len()).into(),
        or_dash(expires.map(duration)).into(),
        "-".into(),
        or_dash(Some(hops.join(", ")).filter(|hops| !hops.is_empty())).into(),
    ]
}

fn casp_session(row: &casp::v1::Session) -> Vec<Cell> {
    let all = || row.previous.iter().chain(&row.next);
    let expires = all().filter_map(|branch| branch.expires_in_us).min();
    let peers: Vec<_> = all().filter_map(|branch| branch.peer.clone()).take(4).collect();
    vec![
        "casp".into(),
        or_dash(row.flow.as_ref().map(flow)).into(),
        format!("{}+{} branches", row.previous.len(), row.next.len()).into(),
        or_dash(expires.map(duration)).into(),
        identifier(&row.session_id).into(),
        or_dash(Some(peers.join(", ")).filter(|peers| !peers.is_empty())).into(),
    ]
}

fn rsvp_neighbor(row: &rsvp::v1::Neighbor) -> Cell {
    let heard = row
        .last_message_age_us
        .map_or_else(|| "not heard".to_owned(), |age| format!("heard {} ago", duration(age)));
    match row.hello() {
        rsvp::v1::Hello::Lost => Cell { text: format!("lost, {heard}"), tone: Tone::Bad },
        rsvp::v1::Hello::Up => Cell { text: format!("up, {heard}"), tone: Tone::Good },
        _ => heard.into(),
    }
}

fn decision(row: &v1::Decision) -> Vec<Cell> {
    use v1::Outcome;
    let tone = match row.outcome() {
        Outcome::Granted | Outcome::Restored => Tone::Good,
        Outcome::Refused | Outcome::Preempted | Outcome::Lost => Tone::Bad,
        _ => Tone::Plain,
    };
    let time = time_of_day(row.time_unix_us);
    let reason = row.reason.as_ref().or(row.rule.as_ref());
    vec![
        time.get(..8).unwrap_or(&time).into(),
        Cell { text: enum_text(row.outcome().as_str_name(), "OUTCOME_"), tone },
        enum_text(row.protocol().as_str_name(), "PROTOCOL_").into(),
        flows(&row.flows).into(),
        or_dash(reason).into(),
        or_dash(row.rate_octets_per_s.map(rate).or_else(|| row.opening.clone())).into(),
        asker(row.neighbor.as_ref(), row.proof.as_deref()).into(),
    ]
}
