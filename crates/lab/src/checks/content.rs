//! Checks of what the messages carried, and of who was kept out.

use std::collections::BTreeSet;

use super::Verdict;
use super::signal::{legs, named};
use crate::evidence::Evidence;
use crate::observe::packet::Kind;
use crate::observe::trace::{Carrier, Content};
use crate::scenario::{RefusedCheck, WholeCheck};

/// The same large messages were seen in both directions on every link, octet for octet, and the command had them back.
pub(super) fn whole(evidence: &Evidence, check: &WholeCheck) -> Verdict {
    let (from, to) = named(evidence, check.from.as_ref(), check.to.as_ref())?;
    let mut first: Option<BTreeSet<&[u8]>> = None;
    for leg in legs(evidence, from, to)?.0 {
        let link = &evidence.trace.links[leg.link];
        let name = &evidence.plan.links[leg.link].name;
        for along in [true, false] {
            let way = if along { "downstream" } else { "upstream" };
            let data =
                link.messages.iter().filter(|m| m.kind == Kind::Data && link.along(m.outgoing, leg) == along);
            // The padding is the last of a message.
            let padding: BTreeSet<&[u8]> = data
                .filter_map(|message| message.octets.get(message.octets.len().checked_sub(check.octets)?..))
                .collect();
            if padding.len() != check.messages {
                return Err(format!("{} different messages {way} on {name}", padding.len()));
            }
            if *first.get_or_insert_with(|| padding.clone()) != padding {
                return Err(format!("{name} carried other octets {way} than the first link"));
            }
        }
    }
    let back = evidence.pings.iter().filter(|ping| (ping.from, ping.to) == (from, to));
    let back: usize = back.flat_map(|ping| &ping.replies).map(|reply| reply.padding).sum();
    let wanted = check.messages * check.octets;
    let seen = format!(
        "{} messages with {} octets each way, the same on every link; {back} octets came back as they went",
        check.messages, check.octets
    );
    if back == wanted { Ok(seen) } else { Err(format!("{seen}; {wanted} were expected")) }
}

/// The node tried, nothing that it wanted to say left it outside of a connection, its neighbour has no association
/// with it and counts why, and nobody behind the neighbour heard of its session.
pub(super) fn refused(evidence: &Evidence, check: &RefusedCheck) -> Verdict {
    let (from, to) = named(evidence, check.from.as_ref(), check.to.as_ref())?;
    let by = evidence.plan.node(check.by.as_ref()).unwrap_or(usize::MAX);
    let pings: Vec<_> = evidence.pings.iter().filter(|ping| (ping.from, ping.to) == (from, to)).collect();
    let replies: usize = pings.iter().map(|ping| ping.replies.len()).sum();
    if pings.is_empty() || replies > 0 {
        return Err(format!("{} pings with {replies} replies", pings.len()));
    }
    let leg = evidence.plan.leg(from, by).ok_or("the two are no neighbours")?;
    let link = &evidence.trace.links[leg.link];
    let sessions = link.sessions(leg);
    let tried = link.connections.iter().filter(|connection| connection.accepted).count();
    if sessions.is_empty() || tried == 0 {
        return Err(format!(
            "Queries of {} sessions and {tried} connections: it did not even try",
            sessions.len()
        ));
    }
    if tried > check.most {
        return Err(format!("{tried} connections, where {} would have been patient", check.most));
    }
    let leaked = link.messages.iter().find(|message| {
        matches!(message.kind, Kind::Confirm | Kind::Data)
            && (message.carrier == Carrier::Stream || link.along(message.outgoing, leg))
    });
    if let Some(message) = leaked {
        return Err(format!("{:?} from {} can be read", message.kind, message.src));
    }
    if link
        .connections
        .iter()
        .flat_map(|connection| &connection.flows)
        .any(|flow| flow.content == Content::Gist)
    {
        return Err("a connection carries GIST messages in clear".to_owned());
    }
    for (other, planned) in
        evidence.trace.links.iter().zip(&evidence.plan.links).filter(|(other, _)| !std::ptr::eq(*other, link))
    {
        if other
            .messages
            .iter()
            .any(|message| message.session.is_some_and(|session| sessions.contains(&session)))
        {
            return Err(format!("its session went on to {}", planned.name));
        }
    }
    let shown = evidence.snapshot(check.label.as_ref()).and_then(|snapshot| snapshot.get(&by));
    let shown = shown.ok_or_else(|| format!("{} was not asked", check.by.as_ref()))?;
    let with = |association: &&serde_json::Value| {
        let peer = association["peer"].as_str().and_then(|peer| peer.parse().ok());
        peer.and_then(|peer| evidence.plan.owner(peer)) == Some(from)
    };
    if let Some(association) = shown.associations.iter().find(with) {
        return Err(format!("{} has an association with it: {association}", check.by.as_ref()));
    }
    let counter = check.counter.as_ref();
    let count = shown.counter(counter);
    if count == 0 {
        return Err(format!("{} counts no {counter}", check.by.as_ref()));
    }
    let reasons: BTreeSet<&str> = pings.iter().flat_map(|ping| &ping.lost).map(String::as_str).collect();
    let reasons: Vec<&str> = reasons.into_iter().collect();
    Ok(format!(
        "{tried} connections, none became an association; {} counts {counter} {count}; the command says: {}",
        check.by.as_ref(),
        reasons.join(", ")
    ))
}
