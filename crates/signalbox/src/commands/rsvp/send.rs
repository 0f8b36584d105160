//! `signalbox rsvp send`.

use std::net::IpAddr;

use anyhow::Result;
use clap::Args;
use signalbox_api::rsvp::v1;
use signalbox_api::rsvp::v1::filter::Selector;
use signalbox_api::rsvp::v1::session_request::Request;
use signalbox_api::rsvp::v1::session_response::Upcall;

use super::args::{PolicyArgs, SessionArgs, check_spi};
use super::session::{self, Role};
use crate::arguments::TrafficArgs;
use crate::arguments::values::{flow_label, number, rate};
use crate::client::block_on;
use crate::commands::Run;
use crate::exit::{Exit, exit_status};

#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
pub(crate) struct SendArgs {
    #[command(flatten)]
    session: SessionArgs,
    /// Rate of IP packets, in bits a second: 64kbit, 20mbit, 1.5gbit.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: u64,
    #[command(flatten)]
    traffic: TrafficArgs,
    /// Source of the data; the node's own address towards the destination if not given.
    #[arg(long = "src", value_name = "ADDRESS", help_heading = "Flow")]
    source: Option<IpAddr>,
    /// Source port.
    #[arg(long = "sport", value_name = "PORT", help_heading = "Flow")]
    source_port: Option<u16>,
    /// SPI of the data, with --ipsec.
    #[arg(long, value_name = "N", requires = "ipsec", conflicts_with = "source_port", value_parser = number, help_heading = "Flow")]
    spi: Option<u32>,
    /// IPv6 flow label of the data.
    #[arg(long, value_name = "N", conflicts_with_all = ["source_port", "spi"], value_parser = flow_label, help_heading = "Flow")]
    flow_label: Option<u32>,
    #[command(flatten)]
    policy: PolicyArgs,
    /// TTL of the data, 1 to 255, which limits how far Path messages go [default: 63].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    ttl: Option<u8>,
    /// Send no ADSPEC: receivers do not learn what the path can do.
    #[arg(long)]
    no_adspec: bool,
    /// Hold a second reservation ready along the backup route of the data, where the routers have one.
    #[arg(long)]
    protect: bool,
}

const HELP: &str = concat!(
    exit_status!("something (with --flows: everything) was reserved when it ended", "nothing was"),
    "EXAMPLES:\n",
    "  signalbox rsvp send host.example --proto udp --dport 5004 --rate 20mbit\n",
    "  signalbox rsvp send 232.1.1.1 --proto udp --dport 5004 --sport 9 --rate 64kbit --hold 1h --json\n",
    "  signalbox rsvp send 192.0.2.9 --proto udp --dport 10000 --flows 500 --rate 64kbit\n\n",
    "JSON: docs/schema/rsvp.json. The first line is registered, the last one released. With --flows: registered has flows;\n",
    "reserved has flows and elapsed_us, and is printed when all are reserved; reserved_removed, when none is any more; errors\n",
    "have their destination_port.",
);

impl Run for SendArgs {
    fn run(self) -> Result<Exit> {
        check_spi(self.spi.is_some(), self.session.data.ipsec)?;
        let destination = self.session.data.destination(self.source)?;
        let port = self.source_port.map(|port| Selector::SourcePort(port.into()));
        let label = self.flow_label.map(Selector::FlowLabel);
        let filter = v1::Filter {
            source: self.source.map(|source| source.to_string()),
            selector: self.spi.map(Selector::Spi).or(label).or(port),
        };
        let sender = v1::Sender {
            filter: Some(filter),
            traffic: Some(self.traffic.with_rate(self.rate)),
            without_adspec: self.no_adspec,
            ip_ttl: self.ttl.map(Into::into),
            policy: self.policy.request(),
            protect: self.protect,
        };
        block_on(session::run(&self.session, destination, Announcement { sender, reserved: false }))
    }
}

/// The role of a sender.
#[derive(Debug, Clone)]
struct Announcement {
    sender: v1::Sender,
    reserved: bool,
}

impl Role for Announcement {
    const WAITS: &'static str = "announced; waiting for receivers to reserve";
    const FULFILLED: [&'static str; 2] = ["reserved", "reserved_removed"];

    fn first_requests(&self) -> Vec<Request> {
        vec![Request::Sender(self.sender.clone())]
    }

    fn upcall(&mut self, upcall: &Upcall) -> Option<Request> {
        match upcall {
            Upcall::Reserved(_) => self.reserved = true,
            Upcall::ReservedRemoved(_) => self.reserved = false,
            Upcall::Registered(_)
            | Upcall::Refused(_)
            | Upcall::Path(_)
            | Upcall::PathRemoved(_)
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
