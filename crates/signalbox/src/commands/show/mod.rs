//! `signalbox show`: the state of the node. Each view is a file with a `mod` line and a line in the table below.

mod associations;
mod counters;
mod interfaces;
mod peers;
mod reservations;
mod sessions;
mod status;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::{Run, subcommands};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    #[command(subcommand)]
    view: View,
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

subcommands! {
    enum View {
        /// Message routing state: which peer comes next, per session and direction.
        Sessions(sessions::SessionsArgs),
        /// GIST nodes that the state points to.
        Peers(peers::PeersArgs),
        /// Messaging associations: the connections to peers, and what they carry.
        Associations(associations::AssociationsArgs),
        /// Reservations along the paths of flows: what this node holds, and what the kernel saw of the packets.
        Reservations(reservations::ReservationsArgs),
        /// Interfaces with resources to reserve, and how much of them is taken.
        Interfaces(interfaces::InterfacesArgs),
        /// All counters of the node.
        Counters(counters::CountersArgs),
        /// Version, uptime, and what runs.
        Status(status::StatusArgs),
    }
}

impl Run for ShowArgs {
    fn run(self, socket: &Path) -> Result<ExitCode> {
        self.view.run(socket)
    }
}
