//! The check `associations`: their negotiation, the connections under them, and what these carried.

use serde::Deserialize;
use toml::Spanned;

use super::message::{GIST_PORT, Kind};
use super::seen::{Carrier, Connection, Content, Seen, Session, Stage, hex};
use crate::checks::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::plan::Leg;
use crate::protocols::ping::step::PingRun;
use crate::scenario::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Associations {
    from: Spanned<String>,
    to: Spanned<String>,
    sessions: usize,
    #[serde(default = "gist_port")]
    port: u16,
    #[serde(default)]
    tls: bool,
    #[serde(default)]
    sctp: bool,
}

impl Check for Associations {
    const NAME: &'static str = "associations";
    const MEANING: &'static str = "On each link of the path Query and Response negotiate, one connection was opened, and all Confirms and Data of all sessions went over it; every session had a reply.";
    const KEYS: &'static [Key] = &[
        key("from", "node", "one end of the path"),
        key("to", "node", "its other end"),
        key("sessions", "number", "the number of sessions"),
        key("port", "port", "where the responding nodes accept").or("270"),
        key("tls", "boolean", "the connections carry TLS, and no session identifier can be read in them")
            .or("false"),
        key("sctp", "boolean", "the connections are SCTP associations and not TCP").or("false"),
    ];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.nodes([&self.from, &self.to])
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let (from, to) = evidence.nodes(self.from.as_ref(), self.to.as_ref())?;
        let mut seen = Vec::new();
        for leg in evidence.legs(from, to)?.0 {
            let link = Seen::at(evidence, leg);
            let name = &evidence.plan.links[leg.link].name;
            let carried = on_link(evidence, link, leg, self).map_err(|what| format!("{name}: {what}"))?;
            seen.push(format!("{name} {carried}"));
        }
        let answered = evidence
            .all::<PingRun>()
            .filter(|ping| (ping.from, ping.to) == (from, to) && !ping.replies.is_empty())
            .count();
        if answered != self.sessions {
            return Err(format!("{answered} of {} sessions had a reply", self.sessions));
        }
        Ok(format!("{answered} sessions over one connection to port {} each: {}", self.port, seen.join(", ")))
    }
}

const fn gist_port() -> u16 {
    GIST_PORT
}

fn on_link(evidence: &Evidence, link: &Seen, leg: Leg, check: &Associations) -> Result<String, String> {
    let sessions = link.sessions(leg);
    if sessions.len() != check.sessions {
        return Err(format!("Queries of {} sessions, {} were expected", sessions.len(), check.sessions));
    }
    let connection = only_connection(evidence, link, leg, check)?;
    in_datagrams(link)?;
    for session in &sessions {
        let clear = !check.tls;
        of_session(link, leg, *session, clear)
            .map_err(|what| format!("session {}: {what}", hex(*session)))?;
    }
    let [forth, back] = &connection.flows;
    if !check.tls {
        return match (forth.content, back.content) {
            (Content::Gist, Content::Gist) => Ok(format!("{} messages", forth.messages + back.messages)),
            (forth, back) => Err(format!("the connection carried {forth:?} and {back:?}, not GIST messages")),
        };
    }
    for flow in [forth, back] {
        if flow.content != Content::Tls || flow.records.contains(&0) {
            return Err(format!(
                "a direction carried {:?} with {} records of the handshake and {} of data",
                flow.content, flow.records[0], flow.records[1]
            ));
        }
        let shown = sessions.iter().find(|session| flow.octets.windows(16).any(|octets| octets == **session));
        if let Some(session) = shown {
            return Err(format!("session {} is in clear in the connection", hex(*session)));
        }
    }
    Ok(format!("{} TLS records of data", forth.records[1] + back.records[1]))
}

/// Returns the one connection of the link, which goes from the querying to the responding node.
fn only_connection<'a>(
    evidence: &Evidence,
    link: &'a Seen,
    leg: Leg,
    check: &Associations,
) -> Result<&'a Connection, String> {
    let [connection] = &link.connections[..] else {
        return Err(format!("{} connections were opened, one was expected", link.connections.len()));
    };
    let Connection { client, server, accepted, sctp, .. } = connection;
    let port = check.port;
    if *sctp != check.sctp {
        let which = if *sctp { "SCTP" } else { "TCP" };
        return Err(format!("the connection from {client} to {server} is {which}"));
    }
    let ends = [client, server].map(|end| evidence.plan.owner(end.ip()));
    if ends != [Some(leg.from), Some(leg.to)] || server.port() != port || !accepted {
        let fate = if *accepted { "was accepted" } else { "was not accepted" };
        return Err(format!("the connection from {client} to {server} {fate}; port {port} was expected"));
    }
    Ok(connection)
}

/// Fails unless datagrams carry Queries and Responses that negotiate, and nothing that belongs into an association.
fn in_datagrams(link: &Seen) -> Result<(), String> {
    for message in link.messages.iter().filter(|message| message.carrier == Carrier::Datagram) {
        let (kind, src) = (message.kind, message.src);
        match kind {
            Kind::Query | Kind::Response if !message.negotiates => {
                return Err(format!(
                    "a {kind:?} from {src} lacks Stack-Proposal or Stack-Configuration-Data"
                ));
            }
            Kind::Confirm | Kind::Data => return Err(format!("{kind:?} from {src} in a datagram")),
            Kind::Query | Kind::Response | Kind::Error | Kind::MaHello | Kind::Unknown => {}
        }
    }
    Ok(())
}

/// Fails unless the session was negotiated and, where the connection can be read, its messages are in it.
fn of_session(link: &Seen, leg: Leg, session: Session, clear: bool) -> Result<(), String> {
    let firsts = link.firsts(leg, session);
    let wanted = [
        (Stage::Response, "Response"),
        (Stage::Confirm, "Confirm"),
        (Stage::DataDown, "Data downstream"),
        (Stage::DataUp, "Data upstream"),
    ];
    let wanted = if clear { &wanted[..] } else { &wanted[..1] };
    match wanted.iter().find(|(stage, _)| firsts[*stage as usize].is_none()) {
        Some((_, what)) => Err(format!("no {what}")),
        None => Ok(()),
    }
}
