//! `signalbox clear`.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use signalbox_api::v1;
use signalbox_api::v1::reservations_client::ReservationsClient;

use super::{Run, subcommands};
use crate::arguments::NodeArgs;
use crate::client::{self, answer, block_on};
use crate::exit::{Exit, exit_status};

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
    }
}

const HELP: &str = concat!(
    exit_status!("ended", "there is no such reservation"),
    "EXAMPLES:\n",
    "  signalbox show reservations\n",
    "  signalbox clear reservation 17",
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
