//! `signalbox rsvp show`.

mod neighbours;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use signalbox_api::v0;
use signalbox_api::v0::rsvp_client::RsvpClient;

use super::print::{
    adspec, adspec_json, filter, filter_json, flowspec, flowspec_json, policy, policy_json, senders_json,
    style, traffic, traffic_json,
};
use crate::client;
use crate::client::answer;
use crate::client::block_on;
use crate::commands::Run;
use crate::print::{none_if_empty, rows};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    /// What to show.
    #[arg(value_enum, default_value_t = What::Sessions)]
    what: What,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Sessions with their senders and reservations.
    Sessions,
    /// Neighbours, the protocol features in use with them, and why their messages were dropped.
    Neighbours,
}

const EXAMPLES: &str = "\
Examples:
  signalbox rsvp show
  signalbox rsvp show neighbours
  signalbox --socket /run/signalbox/r1.sock rsvp show --json

With --json, one array, one session a line: destination, protocol, port, ipsec; senders: [{sender, traffic, previous_hop
(null: this node), interface, expires_in_ms, non_rsvp_hop, broken, adspec, policy}]; reservations: [{style, interface (null:
received here), senders, flowspec, next_hops (null: this node), enforced, policy}]. Rates are in octets a second. adspec is
what the path up to here can do (null: no ADSPEC): {broken, hops, bandwidth, latency_us, mtu; guaranteed and controlled_load
(null: not offered): {broken, and what is different for the service; terms: {c_tot, d_tot_us, c_sum, d_sum_us}}}. policy is
as in rsvp send.

Of neighbours: address, interface, heard_ms_ago, refresh_reduction (off, not-offered, far, names, whole), names, hello
(none, up, lost), signs, requires_signature, key_id, associations: [{key_id, sequence (null: no message was accepted),
unanswered}]; refused: {unsigned, unknown-key, wrong-digest, replayed, unproven, unwilling: messages}, last_refusal and
refused_ms_ago (null: none).";

impl Run for ShowArgs {
    fn run(self, socket: &Path) -> Result<ExitCode> {
        block_on(show(socket, &self))
    }
}

/// Asks the daemon and prints the answer.
async fn show(socket: &Path, arguments: &ShowArgs) -> Result<ExitCode> {
    let mut client = RsvpClient::new(client::channel(socket).await?);
    if arguments.what == What::Neighbours {
        return neighbours::run(&mut client, arguments.json).await;
    }
    let sessions = answer(client.list_rsvp_sessions(v0::ListRsvpSessionsRequest {}).await)?;
    rows(sessions, arguments.json, session_json, text).await
}

fn text(out: &mut impl Write, session: &v0::RsvpSession) -> Result<()> {
    let v0::RsvpSession { destination, protocol, port, ipsec, senders, reservations } = session;
    let port_name = if *ipsec { "virtual port" } else { "port" };
    writeln!(out, "session {destination} protocol {protocol} {port_name} {port}")?;
    for sender in senders {
        let who = sender.filter.as_ref().map(filter).unwrap_or_default();
        write!(out, "  sender {who}: {}", sender.traffic.as_ref().map(traffic).unwrap_or_default())?;
        match none_if_empty(&sender.previous_hop) {
            Some(hop) => write!(out, ", from {hop} at {}", sender.interface)?,
            None => write!(out, ", of this node")?,
        }
        if sender.non_rsvp_hop {
            write!(out, ", behind hops without RSVP")?;
        } else if sender.broken {
            write!(out, ", over hops that keep no reservations")?;
        }
        if let Some(ms) = sender.expires_in_ms {
            write!(out, ", expires in {} s", ms / 1000)?;
        }
        writeln!(out)?;
        if let Some(carried) = &sender.adspec {
            writeln!(out, "    {}", adspec(carried))?;
        }
        if let Some(carried) = &sender.policy {
            writeln!(out, "    {}", policy(carried))?;
        }
    }
    for reservation in reservations {
        let where_to = none_if_empty(&reservation.interface);
        let what = reservation.flowspec.as_ref().map(flowspec).unwrap_or_default();
        write!(out, "  {} {}: {what}", style(reservation.style()), where_to.unwrap_or("to this node"))?;
        let senders: Vec<_> = reservation.senders.iter().map(filter).collect();
        if !senders.is_empty() {
            write!(out, ", for {}", senders.join(", "))?;
        }
        let hops = reservation.next_hops.iter().map(|hop| none_if_empty(hop).unwrap_or("this node"));
        write!(out, ", asked for by {}", hops.collect::<Vec<_>>().join(", "))?;
        writeln!(out, "{}", if reservation.enforced { ", enforced" } else { "" })?;
        if let Some(carried) = &reservation.policy {
            writeln!(out, "    {}", policy(carried))?;
        }
    }
    Ok(())
}

fn session_json(session: &v0::RsvpSession) -> Value {
    let senders = session.senders.iter().map(|sender| {
        json!({
            "sender": sender.filter.as_ref().map(filter_json),
            "traffic": sender.traffic.as_ref().map(traffic_json),
            "previous_hop": none_if_empty(&sender.previous_hop),
            "interface": none_if_empty(&sender.interface),
            "expires_in_ms": sender.expires_in_ms,
            "non_rsvp_hop": sender.non_rsvp_hop,
            "broken": sender.broken,
            "adspec": adspec_json(sender.adspec.as_ref()),
            "policy": policy_json(sender.policy.as_ref()),
        })
    });
    let reservations = session.reservations.iter().map(|reservation| {
        json!({
            "style": style(reservation.style()),
            "interface": none_if_empty(&reservation.interface),
            "senders": senders_json(&reservation.senders),
            "flowspec": reservation.flowspec.as_ref().map(flowspec_json),
            "next_hops": reservation.next_hops.iter().map(|hop| none_if_empty(hop)).collect::<Vec<_>>(),
            "enforced": reservation.enforced,
            "policy": policy_json(reservation.policy.as_ref()),
        })
    });
    json!({
        "destination": session.destination,
        "protocol": session.protocol,
        "port": session.port,
        "ipsec": session.ipsec,
        "senders": senders.collect::<Vec<_>>(),
        "reservations": reservations.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_shows_senders_and_reservations() {
        let traffic =
            v0::RsvpTraffic { rate: 8000.0, burst: 3000.0, peak: None, min_policed: 64, max_packet: 1500 };
        let session = v0::RsvpSession {
            destination: "10.0.1.2".into(),
            protocol: 17,
            port: 5004,
            senders: vec![v0::RsvpSenderState {
                filter: Some(v0::RsvpFilter { source: "10.0.0.1".into(), selector: None }),
                traffic: Some(traffic),
                previous_hop: "10.0.0.1".into(),
                interface: "r1-0".into(),
                expires_in_ms: Some(157_000),
                broken: true,
                policy: Some(v0::RsvpPolicy { octets: vec![0; 8], ..Default::default() }),
                ..Default::default()
            }],
            reservations: vec![v0::RsvpReservationState {
                interface: "r1-1".into(),
                flowspec: Some(v0::RsvpFlowspec { traffic: Some(traffic), ..Default::default() }),
                next_hops: vec!["10.0.1.2".into()],
                enforced: true,
                ..Default::default()
            }],
            ..Default::default()
        };
        let mut out = Vec::new();
        text(&mut out, &session).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "session 10.0.1.2 protocol 17 port 5004\n  sender 10.0.0.1: 64 kbit/s, burst 3000 octets, from 10.0.0.1 \
             at r1-0, over hops that keep no reservations, expires in 157 s\n    policy: 8 octets\n  FF r1-1: 64 kbit/s, burst 3000 octets, controlled load, asked for by \
             10.0.1.2, enforced\n"
        );
        let value = session_json(&session);
        assert_eq!(value["reservations"][0]["enforced"], true);
    }
}
