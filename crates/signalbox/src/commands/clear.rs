//! `signalbox clear`.

use std::io::Write;
use std::net::IpAddr;

use anyhow::Result;
use clap::Args;
use signalbox_api::mapping::v1 as mapping;
use signalbox_api::mapping::v1::mappings_client::MappingsClient;
use signalbox_api::rsvp::v1 as rsvp;
use signalbox_api::rsvp::v1::rsvp_client::RsvpClient;
use signalbox_api::v1;
use signalbox_api::v1::pinholes_client::PinholesClient;
use signalbox_api::v1::reservations_client::ReservationsClient;
use tonic::transport::Channel;

use super::rsvp::args::DataArgs;
use super::{Run, subcommands};
use crate::arguments::NodeArgs;
use crate::arguments::values::ip_protocol;
use crate::client::{self, answer, block_on, refusal};
use crate::exit::{Exit, Refusal, exit_status, usage};
use crate::print::hex;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct ClearArgs {
    #[command(subcommand)]
    what: What,
}

subcommands! {
    enum What {
        /// End a reservation at this node. Its protocol informs the other nodes.
        Reservation(ReservationArgs),
        /// End a session through firewalls and NATs, and close what this node opened for it. The other nodes close it too.
        Pinhole(PinholeArgs),
        /// End a port that a program on a host has by PCP or NAT-PMP, and close it at all nodes of the path.
        Mapping(MappingArgs),
        /// End RSVP's path state of a session that other nodes sent, and the reservations for it. The nodes behind this one are informed.
        Senders(SendersArgs),
        /// Forget what RSVP knows of a neighbor: it is sent whole messages again, as a new one. Reservations stay.
        Neighbor(NeighborArgs),
    }
}

const HELP: &str = concat!(
    exit_status!("ended", "there is no such reservation, session, mapping, sender or neighbor"),
    "EXAMPLES:\n",
    "  signalbox show reservations\n",
    "  signalbox clear reservation 17\n",
    "  signalbox show pinholes\n",
    "  signalbox clear pinhole 5d41402abc4b2a76\n",
    "  signalbox show mappings\n",
    "  signalbox clear mapping 192.168.1.20 --proto tcp --port 22000\n",
    "  signalbox show rsvp sessions\n",
    "  signalbox clear senders 192.0.2.9 --proto udp --dport 5004 --source 198.51.100.1\n",
    "  signalbox show rsvp neighbors\n",
    "  signalbox clear neighbor 192.0.2.1\n\n",
    "A sender of RSVP that still sends Paths comes again with the next one, and with it the reservations of its receivers.\n",
    "Of a neighbor of RSVP the node forgets refresh reduction, MESSAGE_IDs and Hellos. It sends the neighbor all state\n",
    "again, and asks for the state that the neighbor only refreshes by summaries. Sequence numbers of INTEGRITY stay:\n",
    "they stop old messages.\n",
    "A program whose mapping ended may ask again: to refuse it then, change the rules first.\n",
    "Counters are not cleared: they are those of the metrics, and only grow.",
);

impl Run for ClearArgs {
    fn run(self) -> Result<Exit> {
        self.what.run()
    }
}

#[derive(Debug, Args)]
#[command(after_help = HELP)]
struct ReservationArgs {
    /// The identifier that `show reservations` lists.
    id: String,
    /// Print errors as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

impl Run for ReservationArgs {
    fn run(self) -> Result<Exit> {
        let request = v1::DeleteReservationRequest { id: self.id.clone() };
        block_on(async {
            let mut client = ReservationsClient::new(client::channel(&self.node.socket).await?);
            answer(client.delete_reservation(request).await)
        })?;
        if !self.json {
            writeln!(std::io::stdout(), "reservation {} is ended", self.id)?;
        }
        Ok(Exit::Yes)
    }
}

#[derive(Debug, Args)]
#[command(after_help = HELP)]
struct PinholeArgs {
    /// The session that `show pinholes` lists: its first hexadecimal digits, as many as distinguish it.
    session: String,
    /// Print errors as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

impl Run for PinholeArgs {
    fn run(self) -> Result<Exit> {
        if self.session.is_empty() || !self.session.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            usage!("{}: use the hexadecimal digits that `signalbox show pinholes` lists", self.session);
        }
        let session = block_on(async {
            let mut client = PinholesClient::new(client::channel(&self.node.socket).await?);
            let session = self.find(&mut client).await?;
            let request = v1::DeletePinholeRequest { session_id: session.clone() };
            answer(client.delete_pinhole(request).await)?;
            Ok(session)
        })?;
        if !self.json {
            writeln!(std::io::stdout(), "session {} is ended", hex(&session))?;
        }
        Ok(Exit::Yes)
    }
}

#[derive(Debug, Args)]
#[command(after_help = HELP)]
struct MappingArgs {
    /// Address of the host.
    host: IpAddr,
    /// IP protocol: a name or a number.
    #[arg(long = "proto", value_name = "IP-PROTOCOL", value_parser = ip_protocol)]
    ip_protocol: u8,
    /// Port of the host.
    #[arg(long)]
    port: u16,
    /// Print errors as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

impl Run for MappingArgs {
    fn run(self) -> Result<Exit> {
        let inside = v1::Endpoint { address: self.host.to_string(), port: Some(self.port.into()) };
        let request =
            mapping::DeleteMappingRequest { inside: Some(inside), ip_protocol: self.ip_protocol.into() };
        block_on(async {
            let mut client = MappingsClient::new(client::channel(&self.node.socket).await?);
            answer(client.delete_mapping(request).await)
        })?;
        if !self.json {
            writeln!(std::io::stdout(), "the mapping of {} port {} is ended", self.host, self.port)?;
        }
        Ok(Exit::Yes)
    }
}

#[derive(Debug, Args)]
#[command(after_help = HELP)]
struct SendersArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Source of the data; without it all senders of the session.
    #[arg(long, value_name = "ADDRESS")]
    source: Option<IpAddr>,
    /// Print errors as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

impl Run for SendersArgs {
    fn run(self) -> Result<Exit> {
        let session = self.data.session(self.data.destination(self.source)?);
        let source = self.source.map(|source| source.to_string());
        let request = rsvp::DeleteSendersRequest { session: Some(session), source };
        let ended = block_on(async {
            let mut client = RsvpClient::new(client::channel(&self.node.socket).await?);
            answer(client.delete_senders(request).await)
        })?;
        if !self.json {
            writeln!(std::io::stdout(), "{} path state(s) ended", ended.senders)?;
        }
        Ok(Exit::Yes)
    }
}

#[derive(Debug, Args)]
#[command(after_help = HELP)]
struct NeighborArgs {
    /// Its address, as `show rsvp neighbors` lists it.
    address: IpAddr,
    /// Only at this interface.
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Print errors as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

impl Run for NeighborArgs {
    fn run(self) -> Result<Exit> {
        let request =
            rsvp::ForgetNeighborRequest { address: self.address.to_string(), interface: self.interface };
        block_on(async {
            let mut client = RsvpClient::new(client::channel(&self.node.socket).await?);
            answer(client.forget_neighbor(request).await)
        })?;
        if !self.json {
            writeln!(std::io::stdout(), "neighbor {} is forgotten", self.address)?;
        }
        Ok(Exit::Yes)
    }
}

impl PinholeArgs {
    /// The only session that begins with the digits.
    async fn find(&self, client: &mut PinholesClient<Channel>) -> Result<Vec<u8>> {
        let digits = self.session.to_ascii_lowercase();
        let mut pages = answer(client.list_pinholes(v1::ListPinholesRequest::default()).await)?;
        let mut found = None;
        while let Some(page) = pages.message().await.map_err(refusal)? {
            for session in page.pinholes.into_iter().map(|pinhole| pinhole.session_id) {
                if !hex(&session).starts_with(&digits) {
                    continue;
                }
                // A session can have several rows.
                if found.replace(session.clone()).is_some_and(|other| other != session) {
                    usage!("{digits}: several sessions begin with these digits: give more of them");
                }
            }
        }
        let message =
            format!("no session begins with {digits}: `signalbox show pinholes` lists those that stand");
        found.ok_or_else(|| Refusal { exit: Exit::No, reason: "no_pinhole".to_owned(), message }.into())
    }
}
