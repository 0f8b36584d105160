//! `signalbox rsvp show neighbours`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Map, Value, json};
use signalbox_api::v0;
use signalbox_api::v0::rsvp_client::RsvpClient;
use tonic::transport::Channel;

use crate::client::answer;
use crate::print::{none_if_empty, rows};

/// Asks the daemon and prints the answer.
pub(super) async fn run(client: &mut RsvpClient<Channel>, as_json: bool) -> Result<ExitCode> {
    let neighbours = answer(client.list_rsvp_neighbours(v0::ListRsvpNeighboursRequest {}).await)?;
    rows(neighbours, as_json, to_json, text).await
}

fn text(out: &mut impl Write, neighbour: &v0::RsvpNeighbour) -> Result<()> {
    let v0::RsvpNeighbour { address, interface, heard_ms_ago, names, .. } = neighbour;
    write!(out, "neighbour {address} at {interface}: ")?;
    match heard_ms_ago {
        Some(ms) => writeln!(out, "heard {} s ago", ms / 1000)?,
        None => writeln!(out, "not heard")?,
    }
    if heard_ms_ago.is_some() {
        let reduction = match neighbour.reduction() {
            v0::RsvpReduction::Off => "off here",
            v0::RsvpReduction::NotOffered => "not in use: the neighbour does not offer it",
            v0::RsvpReduction::Far => "not in use: hops without RSVP lie between",
            v0::RsvpReduction::Names => "acknowledgments only: summaries are off here",
            v0::RsvpReduction::Whole => "in use",
        };
        writeln!(out, "  refresh reduction {reduction}; {names} states by name")?;
    }
    match neighbour.hello() {
        v0::RsvpHello::None => {}
        v0::RsvpHello::Up => writeln!(out, "  hello up")?,
        v0::RsvpHello::Lost => writeln!(out, "  hello lost: it is silent, or began anew")?,
    }
    integrity(out, neighbour)?;
    if let Some(why) = reason(neighbour.last_distrust()) {
        let counts = neighbour.distrusted.iter().filter_map(|one| {
            let (name, _) = reason(one.reason())?;
            Some(format!("{} {name}", one.messages))
        });
        let counts = counts.collect::<Vec<_>>().join(", ");
        let ago = neighbour.distrusted_ms_ago / 1000;
        writeln!(out, "  not taken: {counts}; the last {ago} s ago, {}: {}", why.0, why.1)?;
    }
    Ok(())
}

fn integrity(out: &mut impl Write, neighbour: &v0::RsvpNeighbour) -> Result<()> {
    if !neighbour.signs && !neighbour.requires_signature {
        return Ok(());
    }
    let signs = match (neighbour.signs, neighbour.key_id) {
        (false, _) => "signs nothing".to_owned(),
        (true, Some(id)) => format!("signs with key {id}"),
        (true, None) => "has no key to sign with, so nothing is sent to it: give a [[rsvp.key]]".to_owned(),
    };
    write!(out, "  integrity: this node {signs}")?;
    if !neighbour.requires_signature {
        write!(out, ", and takes what is not signed")?;
    }
    for one in &neighbour.associations {
        match (one.sequence, one.unanswered) {
            (Some(number), _) => write!(out, "; its key {} was heard up to {number}", one.key_id)?,
            (None, asked) => {
                write!(out, "; its key {} waits for the answer to challenge {asked}", one.key_id)?
            }
        }
    }
    Ok(writeln!(out)?)
}

/// The name of a reason, and its probable cause.
fn reason(why: v0::RsvpDistrust) -> Option<(&'static str, &'static str)> {
    Some(match why {
        v0::RsvpDistrust::Unspecified => return None,
        v0::RsvpDistrust::Unsigned => {
            ("unsigned", "it has no integrity there, or require = false is wanted here")
        }
        v0::RsvpDistrust::UnknownKey => {
            ("unknown-key", "no [[rsvp.key]] here has that id for this neighbour, interface and time")
        }
        v0::RsvpDistrust::WrongDigest => {
            ("wrong-digest", "the secrets or algorithms of the two differ, or octets were altered on the way")
        }
        v0::RsvpDistrust::Replayed => {
            ("replayed", "sent again by somebody, or out of order by more than integrity.window")
        }
        v0::RsvpDistrust::Unproven => ("unproven", "it had not yet answered a challenge"),
        v0::RsvpDistrust::Unwilling => {
            ("unwilling", "it answers no challenges: set accept_unchallenged here, or challenge there")
        }
    })
}

fn to_json(neighbour: &v0::RsvpNeighbour) -> Value {
    let associations = neighbour
        .associations
        .iter()
        .map(|one| json!({ "key_id": one.key_id, "sequence": one.sequence, "unanswered": one.unanswered }));
    let refused: Map<String, Value> = neighbour
        .distrusted
        .iter()
        .filter_map(|one| Some((reason(one.reason())?.0.to_owned(), one.messages.into())))
        .collect();
    let last = reason(neighbour.last_distrust()).map(|(name, _)| name);
    json!({
        "address": neighbour.address,
        "interface": none_if_empty(&neighbour.interface),
        "heard_ms_ago": neighbour.heard_ms_ago,
        "refresh_reduction": match neighbour.reduction() {
            v0::RsvpReduction::Off => "off",
            v0::RsvpReduction::NotOffered => "not-offered",
            v0::RsvpReduction::Far => "far",
            v0::RsvpReduction::Names => "names",
            v0::RsvpReduction::Whole => "whole",
        },
        "names": neighbour.names,
        "hello": match neighbour.hello() {
            v0::RsvpHello::None => "none",
            v0::RsvpHello::Up => "up",
            v0::RsvpHello::Lost => "lost",
        },
        "signs": neighbour.signs,
        "requires_signature": neighbour.requires_signature,
        "key_id": neighbour.key_id,
        "associations": associations.collect::<Vec<_>>(),
        "refused": refused,
        "last_refusal": last,
        "refused_ms_ago": last.map(|_| neighbour.distrusted_ms_ago),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(neighbour: &v0::RsvpNeighbour) -> String {
        let mut out = Vec::new();
        text(&mut out, neighbour).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_neighbour_shows_what_is_in_use() {
        let neighbour = v0::RsvpNeighbour {
            address: "10.0.1.2".into(),
            interface: "r1-0".into(),
            heard_ms_ago: Some(2100),
            reduction: v0::RsvpReduction::Whole.into(),
            names: 7,
            hello: v0::RsvpHello::Up.into(),
            signs: true,
            requires_signature: true,
            key_id: Some(1),
            associations: vec![v0::RsvpAssociation { key_id: 1, sequence: Some(99), unanswered: 0 }],
            ..Default::default()
        };
        assert_eq!(
            shown(&neighbour),
            "neighbour 10.0.1.2 at r1-0: heard 2 s ago\n  refresh reduction in use; 7 states by name\n  hello up\n  \
             integrity: this node signs with key 1; its key 1 was heard up to 99\n"
        );
        let value = to_json(&neighbour);
        assert_eq!((&value["refresh_reduction"], &value["last_refusal"]), (&json!("whole"), &Value::Null));
    }

    #[test]
    fn authentication_failures_show_reason_and_remedy() {
        let distrusted =
            |reason: v0::RsvpDistrust, messages| v0::RsvpDistrusted { reason: reason.into(), messages };
        let neighbour = v0::RsvpNeighbour {
            address: "10.0.1.2".into(),
            interface: "r1-0".into(),
            signs: true,
            requires_signature: true,
            distrusted: vec![
                distrusted(v0::RsvpDistrust::WrongDigest, 3),
                distrusted(v0::RsvpDistrust::Replayed, 1),
            ],
            last_distrust: v0::RsvpDistrust::WrongDigest.into(),
            distrusted_ms_ago: 5000,
            ..Default::default()
        };
        assert_eq!(
            shown(&neighbour),
            "neighbour 10.0.1.2 at r1-0: not heard\n  integrity: this node has no key to sign with, so nothing is sent to \
             it: give a [[rsvp.key]]\n  not taken: 3 wrong-digest, 1 replayed; the last 5 s ago, wrong-digest: the secrets \
             or algorithms of the two differ, or octets were altered on the way\n"
        );
        let value = to_json(&neighbour);
        assert_eq!(value["refused"], json!({ "wrong-digest": 3, "replayed": 1 }));
        assert_eq!(
            (&value["last_refusal"], &value["refused_ms_ago"]),
            (&json!("wrong-digest"), &json!(5000))
        );
    }
}
