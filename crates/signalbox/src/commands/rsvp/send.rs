//! `signalbox rsvp send`.

use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use signalbox_api::v0;
use signalbox_api::v0::rsvp_filter::Selector;
use signalbox_api::v0::rsvp_request::Request;
use signalbox_api::v0::rsvp_upcall::Upcall;
use signalbox_resources::Rate;

use super::args::{PolicyArgs, SessionArgs, TrafficArgs};
use super::session::{self, Role};
use crate::arguments::rate;
use crate::client::block_on;
use crate::commands::Run;

#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SendArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    #[command(flatten)]
    pub(crate) traffic: TrafficArgs,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// Rate of IP packets, in bits a second: 64kbit, 20mbit, 1.5gbit.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) rate: Rate,
    /// Source of the data; the node's own address towards the destination if not given.
    #[arg(long = "src", value_name = "ADDRESS")]
    pub(crate) source: Option<IpAddr>,
    /// Source port.
    #[arg(long = "sport", value_name = "PORT")]
    pub(crate) source_port: Option<u16>,
    /// SPI of the data, with --ipsec.
    #[arg(long, value_name = "N", requires = "ipsec", conflicts_with = "source_port")]
    pub(crate) spi: Option<u32>,
    /// TTL of the data, which limits how far Path messages go.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) ttl: Option<u8>,
    /// Send no ADSPEC: receivers do not learn what the path can do.
    #[arg(long)]
    pub(crate) no_adspec: bool,
}

const EXAMPLES: &str = "\
Examples:
  signalbox rsvp send 192.0.2.9 --proto udp --dport 5004 --rate 20mbit
  signalbox rsvp send 232.1.1.1 --proto udp --dport 5004 --sport 9 --rate 64kbit --hold 60s --json
  signalbox rsvp send 192.0.2.9 --proto udp --dport 10000 --flows 500 --rate 64kbit

With --json, \"type\" tells the lines apart: announced; reserved {style, flowspec, senders, policy}; reserved-gone {sender};
path-error {node, code, value, meaning, senders, policy}; refused {reason}; released. A flowspec is {rate, burst, peak,
min_policed, max_packet, service_rate, slack_us}, in octets and octets a second; policy is null, or {octets: the POLICY_DATA
that came, in hexadecimal, preemption: null or {setup, defending}, identities: [{application, name, locator}]}. With --flows: announced {flows}, and
reserved {flows, seconds} once all are; gone {flows} when none is reserved any more; errors have their port.

Exit status: 0 something (with --flows: everything) was reserved when it ended, 1 nothing was, 2 wrong arguments, no daemon, or the node cannot
do it.";

impl Run for SendArgs {
    fn run(self, socket: &Path) -> Result<ExitCode> {
        block_on(run(socket, &self))
    }
}

/// Announces the sender, and prints each upcall.
pub(super) async fn run(socket: &Path, arguments: &SendArgs) -> Result<ExitCode> {
    let port = arguments.source_port.map(|port| Selector::Port(port.into()));
    let filter = v0::RsvpFilter {
        source: arguments.source.map(|source| source.to_string()).unwrap_or_default(),
        selector: arguments.spi.map(Selector::Spi).or(port),
    };
    let sender = v0::RsvpSender {
        filter: Some(filter),
        traffic: Some(arguments.traffic.with_rate(arguments.rate)),
        without_adspec: arguments.no_adspec,
        ttl: arguments.ttl.unwrap_or(0).into(),
        policy: arguments.policy.request(),
    };
    session::run(socket, &arguments.session, Announcement { sender, reserved: false }).await
}

/// The role of a sender.
#[derive(Debug, Clone)]
struct Announcement {
    sender: v0::RsvpSender,
    reserved: bool,
}

impl Role for Announcement {
    const REGISTERED: (&'static str, &'static str) =
        ("announced", "announced; waiting for receivers to reserve");
    const FULFILLED: &'static str = "reserved";

    fn first_requests(&self) -> Vec<Request> {
        vec![Request::Sender(self.sender.clone())]
    }

    fn upcall(&mut self, upcall: &Upcall) -> Option<Request> {
        match upcall {
            Upcall::Reserved(_) => self.reserved = true,
            Upcall::ReservedGone(_) => self.reserved = false,
            Upcall::Registered(_)
            | Upcall::Refused(_)
            | Upcall::Path(_)
            | Upcall::PathGone(_)
            | Upcall::PathError(_)
            | Upcall::ReservationError(_)
            | Upcall::Confirmed(_) => {}
        }
        None
    }

    fn is_fulfilled(&self) -> bool {
        self.reserved
    }
}
