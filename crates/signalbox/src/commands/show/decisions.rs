//! `signalbox show decisions`: what became of the last requests.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use clap::Args;
use signalbox_api::v1;
use signalbox_api::v1::node_client::NodeClient;

use crate::arguments::OutputArgs;
use crate::client::{self, answer, refusal};
use crate::commands::audit::WantedArgs;
use crate::exit::Exit;
use crate::print::{date_time, decision, json_row};

#[derive(Debug, Args)]
pub(crate) struct DecisionsArgs {
    #[command(flatten)]
    wanted: WantedArgs,
}

pub(super) async fn show(arguments: &DecisionsArgs, socket: &Path, output: OutputArgs) -> Result<Exit> {
    let wanted = arguments.wanted.read()?;
    let mut client = NodeClient::new(client::channel(socket).await?);
    let mut pages = answer(client.list_decisions(v1::ListDecisionsRequest::default()).await)?;
    let mut out = std::io::stdout().lock();
    while let Some(page) = pages.message().await.map_err(refusal)? {
        for row in page.decisions {
            let value = signalbox_json::value(&row)?;
            if !wanted.wants(&value) {
                continue;
            }
            if output.json {
                json_row(&mut out, &row)?;
            } else {
                writeln!(out, "{} {}", date_time(row.time_unix_us), decision(&value))?;
            }
        }
    }
    Ok(Exit::Yes)
}
