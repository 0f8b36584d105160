//! `signalbox show`.

mod qos;
pub(crate) mod table;

use std::io::{Stdout, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use signalbox_api::v1;
use tonic::{Status, Streaming};

use crate::client::{self, Client};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    #[command(subcommand)]
    what: What,
}

const EXAMPLES: &str = "\
Examples:
  signalbox show sessions
  signalbox show sessions --address 192.0.2.9 --json
  signalbox show reservations --json
  signalbox show interfaces
  signalbox show counters --room gist --nonzero

With --json, all but status print one array, one object a line; status prints one object.
  sessions  session, nslp_id, flow: {method, source, source_prefix, destination, destination_prefix,
            protocol, dscp, flow_label, spi, source_port, destination_port}, queued, upstream and
            downstream: null or {role, state, validity, peer, peer_identity, local, ifindex,
            ip_distance, age_ms, refresh_in_ms, expires_in_ms}
  peers     identity, address, ifindex, sessions
  associations
            channel, stack (tcp, tls, sctp), state, opened, peer, peer_identity, authenticated, local,
            sessions, queued, queued_octets, unsent_octets, hold_time_ms, hello_in_ms, closes_in_ms, age_ms
  reservations
            session, flow, role, state (granted, confirmed, signaling), receiver_initiated, gaps,
            expires_in_ms, held: null or {interface, rate, burst, service, rule, asker, enforced, statistics:
            null or {packets, octets, policed_packets, policed_octets}}; rates in octets a second
  interfaces
            name, ifindex, up, capacity, measured, reservable, reserved, reservations, services:
            [{service, reserved, limit, reservations}], enforcement: null or {queues, policing, marking,
            classes, classes_taken, lacking}
  counters  room, name, value, help
  status    version, node, pid, uptime_ms, nslp_ids, sessions, peers";

#[derive(Debug, Subcommand)]
enum What {
    /// Message routing state: which peer comes next, per session and direction.
    Sessions(SessionArgs),
    /// GIST nodes that the state points to.
    Peers {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Messaging associations: the connections to peers, and what they carry.
    Associations {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Reservations along the paths of flows: what this node holds, and what the kernel saw of the packets.
    Reservations {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Interfaces at which there is something to reserve, and how much of it is taken.
    Interfaces {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Everything that the node counts.
    Counters(CounterArgs),
    /// Version, uptime, what runs.
    Status {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
struct SessionArgs {
    /// Only sessions whose identifier begins so (hexadecimal).
    #[arg(long, value_name = "PREFIX")]
    session: Option<String>,
    /// Only sessions of this signaling application.
    #[arg(long, value_name = "NSLPID")]
    nslp: Option<u16>,
    /// Only flows from or to this address.
    #[arg(long, value_name = "ADDRESS")]
    address: Option<std::net::IpAddr>,
    /// At most so many.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct CounterArgs {
    /// Only what this part counts.
    #[arg(long, value_name = "ROOM")]
    room: Option<String>,
    /// Leave out what is zero.
    #[arg(long)]
    nonzero: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Asks the daemon and prints the answer.
pub(crate) async fn run(socket: &Path, arguments: &ShowArgs) -> Result<ExitCode> {
    let mut client = client::connect(socket).await?;
    let mut out = std::io::stdout().lock();
    match &arguments.what {
        What::Sessions(arguments) => sessions(&mut client, &mut out, arguments).await?,
        What::Peers { json } => {
            let rows = said(client.list_peers(v1::ListPeersRequest {}).await)?;
            if *json {
                json_array(&mut out, rows, peer_json).await?;
            } else {
                table::print(&mut out, &table::PEERS, rows, table::peer).await?;
            }
        }
        What::Associations { json } => {
            let rows = said(client.list_associations(v1::ListAssociationsRequest {}).await)?;
            if *json {
                json_array(&mut out, rows, association_json).await?;
            } else {
                table::print(&mut out, &table::ASSOCIATIONS, rows, table::association).await?;
            }
        }
        What::Reservations { json } => {
            let rows = said(client.list_reservations(v1::ListReservationsRequest {}).await)?;
            if *json {
                json_array(&mut out, rows, qos::reservation_json).await?;
            } else {
                table::print(&mut out, &qos::RESERVATIONS, rows, qos::reservation).await?;
            }
        }
        What::Interfaces { json } => {
            let interfaces = said(client.list_interfaces(v1::ListInterfacesRequest {}).await)?.interfaces;
            if *json {
                let mut array = JsonArray::new(&mut out);
                for interface in &interfaces {
                    array.push(&qos::interface_json(interface))?;
                }
                array.end()?;
            } else {
                qos::interfaces(&mut out, &interfaces)?;
            }
        }
        What::Counters(arguments) => counters(&mut client, &mut out, arguments).await?,
        What::Status { json } => status(&mut client, &mut out, *json).await?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

async fn sessions(client: &mut Client, out: &mut impl Write, arguments: &SessionArgs) -> Result<()> {
    let request = v1::ListSessionsRequest {
        session_prefix: arguments.session.clone().unwrap_or_default(),
        nslp_id: arguments.nslp.map(Into::into),
        address: arguments.address.map(|a| a.to_string()).unwrap_or_default(),
        limit: arguments.limit.unwrap_or(0),
    };
    let rows = said(client.list_sessions(request).await)?;
    if arguments.json {
        json_array(out, rows, session_json).await
    } else {
        table::print(out, &table::SESSIONS, rows, table::session).await
    }
}

async fn counters(client: &mut Client, out: &mut impl Write, arguments: &CounterArgs) -> Result<()> {
    let counters = said(client.list_counters(v1::ListCountersRequest {}).await)?.counters;
    let wanted = counters.iter().filter(|counter| {
        arguments.room.as_ref().is_none_or(|room| *room == counter.room)
            && (counter.value != 0 || !arguments.nonzero)
    });
    if arguments.json {
        let mut array = JsonArray::new(out);
        for counter in wanted {
            array.push(&json!({
                "room": counter.room, "name": counter.name, "value": counter.value, "help": counter.help,
            }))?;
        }
        array.end()
    } else {
        table::counters(out, wanted)
    }
}

async fn status(client: &mut Client, out: &mut impl Write, json: bool) -> Result<()> {
    let status = said(client.get_status(v1::GetStatusRequest {}).await)?;
    if json {
        let value = json!({
            "version": status.version, "node": status.node, "pid": status.pid,
            "uptime_ms": status.uptime_ms, "nslp_ids": status.nslp_ids,
            "sessions": status.sessions, "peers": status.peers,
        });
        writeln!(out, "{value}")?;
    } else {
        let applications: Vec<String> = status.nslp_ids.iter().map(ToString::to_string).collect();
        let applications = if applications.is_empty() { "none".to_owned() } else { applications.join(", ") };
        writeln!(out, "node          {}", status.node)?;
        writeln!(out, "version       {} (process {})", status.version, status.pid)?;
        writeln!(out, "uptime        {}", table::time(status.uptime_ms))?;
        writeln!(out, "applications  {applications}")?;
        writeln!(out, "sessions      {}", status.sessions)?;
        writeln!(out, "peers         {}", status.peers)?;
    }
    Ok(())
}

/// The answer, or the daemon's reason to give none.
pub(crate) fn said<T>(answer: Result<tonic::Response<T>, Status>) -> Result<T> {
    answer.map(tonic::Response::into_inner).map_err(|status| client::said_no(&status))
}

/// Writes a JSON array as its elements come, one a line.
struct JsonArray<'a, W> {
    out: &'a mut W,
    empty: bool,
}

impl<'a, W: Write> JsonArray<'a, W> {
    /// Nothing is written before the first element, or the end.
    fn new(out: &'a mut W) -> Self {
        Self { out, empty: true }
    }

    /// Writes an element.
    fn push(&mut self, value: &Value) -> Result<()> {
        write!(self.out, "{}{value}", if self.empty { "[" } else { ",\n" })?;
        self.empty = false;
        Ok(())
    }

    /// Writes the end.
    fn end(self) -> Result<()> {
        writeln!(self.out, "{}", if self.empty { "[]" } else { "]" })?;
        Ok(())
    }
}

/// Prints rows as they come: with `as_json` as one array, or as people read them.
pub(crate) async fn rows<T>(
    mut rows: Streaming<T>,
    as_json: bool,
    to_json: impl Fn(&T) -> Value,
    text: impl Fn(&mut Stdout, &T) -> Result<()>,
) -> Result<ExitCode> {
    let mut out = std::io::stdout();
    if as_json {
        json_array(&mut out, rows, to_json).await?;
    } else {
        let mut none = true;
        while let Some(row) = rows.message().await.map_err(|status| client::said_no(&status))? {
            none = false;
            text(&mut out, &row)?;
        }
        if none {
            writeln!(out, "none")?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

async fn json_array<T>(
    out: &mut impl Write,
    mut rows: Streaming<T>,
    to_json: impl Fn(&T) -> Value,
) -> Result<()> {
    let mut array = JsonArray::new(out);
    while let Some(row) = rows.message().await.map_err(|status| client::said_no(&status))? {
        array.push(&to_json(&row))?;
    }
    array.end()
}

fn session_json(session: &v1::Session) -> Value {
    json!({
        "session": hex(&session.session_id),
        "nslp_id": session.nslp_id,
        "flow": session.flow.as_ref().map(flow_json),
        "queued": session.queued,
        "upstream": session.upstream.as_ref().map(state_json),
        "downstream": session.downstream.as_ref().map(state_json),
    })
}

/// A flow.
pub(crate) fn flow_json(flow: &v1::Flow) -> Value {
    json!({
        "method": flow.method,
        "source": flow.source,
        "source_prefix": flow.source_prefix,
        "destination": flow.destination,
        "destination_prefix": flow.destination_prefix,
        "protocol": flow.protocol,
        "dscp": flow.dscp,
        "flow_label": flow.flow_label,
        "spi": flow.spi,
        "source_port": flow.source_port,
        "destination_port": flow.destination_port,
    })
}

fn state_json(state: &v1::RoutingState) -> Value {
    json!({
        "role": state.role,
        "state": state.state,
        "validity": state.validity,
        "peer": none_if_empty(&state.peer),
        "peer_identity": none_if_empty(&hex(&state.peer_identity)),
        "local": none_if_empty(&state.local),
        "ifindex": state.ifindex,
        "ip_distance": state.ip_distance,
        "age_ms": state.age_ms,
        "refresh_in_ms": state.refresh_in_ms,
        "expires_in_ms": state.expires_in_ms,
    })
}

fn peer_json(peer: &v1::Peer) -> Value {
    json!({
        "identity": hex(&peer.identity),
        "address": peer.address,
        "ifindex": peer.ifindex,
        "sessions": peer.sessions,
    })
}

fn association_json(association: &v1::Association) -> Value {
    json!({
        "channel": association.channel,
        "stack": association.stack,
        "state": association.state,
        "opened": association.opened,
        "peer": association.peer,
        "peer_identity": none_if_empty(&hex(&association.peer_identity)),
        "authenticated": none_if_empty(&association.authenticated),
        "local": association.local,
        "sessions": association.sessions,
        "queued": association.queued,
        "queued_octets": association.queued_octets,
        "unsent_octets": association.unsent_octets,
        "hold_time_ms": association.hold_time_ms,
        "hello_in_ms": association.hello_in_ms,
        "closes_in_ms": association.closes_in_ms,
        "age_ms": association.age_ms,
    })
}

/// `None` for what is not told.
pub(crate) fn none_if_empty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Octets in hexadecimal.
pub(crate) fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// A flow in one line: `192.0.2.1 > 192.0.2.9:5004 proto 17`.
pub(crate) fn flow_text(flow: &v1::Flow) -> String {
    let end = |address: &str, prefix: u32, port: Option<u32>| {
        let host = if address.contains(':') { 128 } else { 32 };
        let mask = if prefix == host { String::new() } else { format!("/{prefix}") };
        let port = port.map_or_else(String::new, |port| format!(" port {port}"));
        format!("{address}{mask}{port}")
    };
    let mut text = format!(
        "{} > {}",
        end(&flow.source, flow.source_prefix, flow.source_port),
        end(&flow.destination, flow.destination_prefix, flow.destination_port)
    );
    for (name, value) in
        [("proto", flow.protocol), ("dscp", flow.dscp), ("label", flow.flow_label), ("spi", flow.spi)]
    {
        if let Some(value) = value {
            text += &format!(" {name} {value}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_shows_what_is_not_a_wildcard() {
        let mut flow = v1::Flow {
            source: "192.0.2.1".into(),
            source_prefix: 32,
            destination: "192.0.2.0".into(),
            destination_prefix: 24,
            ..v1::Flow::default()
        };
        assert_eq!(flow_text(&flow), "192.0.2.1 > 192.0.2.0/24");
        flow.protocol = Some(17);
        flow.destination_port = Some(9);
        assert_eq!(flow_text(&flow), "192.0.2.1 > 192.0.2.0/24 port 9 proto 17");
    }

    #[test]
    fn arrays_are_json_however_long() {
        for length in 0..3 {
            let mut out = Vec::new();
            let mut array = JsonArray::new(&mut out);
            for number in 0..length {
                array.push(&json!(number)).unwrap();
            }
            array.end().unwrap();
            let value: Value = serde_json::from_slice(&out).unwrap();
            assert_eq!(value.as_array().unwrap().len(), length);
        }
    }

    #[test]
    fn a_session_without_state_upstream_says_null() {
        let session = v1::Session {
            session_id: vec![0xab; 16],
            downstream: Some(v1::RoutingState { role: "querying".into(), ..Default::default() }),
            ..Default::default()
        };
        let value = session_json(&session);
        assert_eq!(value["session"], "ab".repeat(16));
        assert_eq!((&value["upstream"], &value["downstream"]["peer"]), (&Value::Null, &Value::Null));
        assert_eq!(value["downstream"]["role"], "querying");
    }
}
