//! Checks of messaging associations: what negotiated them, the connections under them, what these carried.

use super::Verdict;
use super::signal::{legs, named};
use crate::evidence::Evidence;
use crate::observe::packet::Kind;
use crate::observe::trace::{Carrier, Connection, Content, LinkTrace, Session, Stage, hex};
use crate::plan::Leg;
use crate::scenario::AssociationsCheck;

/// On each link of the path: Query and Response negotiate, one connection was opened to the port, and all Confirms
/// and Data of all sessions went over it. Every session had a reply.
pub(super) fn associations(evidence: &Evidence, check: &AssociationsCheck) -> Verdict {
    let (from, to) = named(evidence, check.from.as_ref(), check.to.as_ref())?;
    let mut seen = Vec::new();
    for leg in legs(evidence, from, to)?.0 {
        let link = &evidence.trace.links[leg.link];
        let name = &evidence.plan.links[leg.link].name;
        let carried = on_link(evidence, link, leg, check).map_err(|what| format!("{name}: {what}"))?;
        seen.push(format!("{name} {carried}"));
    }
    let answered = evidence
        .pings
        .iter()
        .filter(|ping| (ping.from, ping.to) == (from, to) && !ping.replies.is_empty())
        .count();
    if answered != check.sessions {
        return Err(format!("{answered} of {} sessions had a reply", check.sessions));
    }
    Ok(format!("{answered} sessions over one connection to port {} each: {}", check.port, seen.join(", ")))
}

fn on_link(
    evidence: &Evidence,
    link: &LinkTrace,
    leg: Leg,
    check: &AssociationsCheck,
) -> Result<String, String> {
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
            return Err(format!("session {} stands in the connection in clear", hex(*session)));
        }
    }
    Ok(format!("{} TLS records of data", forth.records[1] + back.records[1]))
}

/// The one connection of the link: from the querying to the responding node.
fn only_connection<'a>(
    evidence: &Evidence,
    link: &'a LinkTrace,
    leg: Leg,
    check: &AssociationsCheck,
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

/// Datagrams carry Queries and Responses that negotiate, and nothing that belongs into an association.
fn in_datagrams(link: &LinkTrace) -> Result<(), String> {
    for message in link.messages.iter().filter(|message| message.carrier == Carrier::Datagram) {
        let (kind, src) = (message.kind, message.src);
        match kind {
            Kind::Query | Kind::Response if !message.negotiates => {
                return Err(format!(
                    "a {kind:?} from {src} lacks Stack-Proposal or Stack-Configuration-Data"
                ));
            }
            Kind::Confirm | Kind::Data => return Err(format!("{kind:?} from {src} in a datagram")),
            _ => {}
        }
    }
    Ok(())
}

/// A session was negotiated; where it can be read, what follows stands in the connection.
fn of_session(link: &LinkTrace, leg: Leg, session: Session, clear: bool) -> Result<(), String> {
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
