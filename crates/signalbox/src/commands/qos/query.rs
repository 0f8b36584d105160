//! `signalbox query`.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use signalbox_api::v0;
use signalbox_api::v0::query_response::Answer;

use super::print;
use crate::arguments::WantedArgs;
use crate::client::{self, answer, block_on};
use crate::commands::Run;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct QueryArgs {
    #[command(flatten)]
    wanted: WantedArgs,
}

const EXAMPLES: &str = "\
Examples:
  signalbox query 192.0.2.9 --rate 20mbit
  signalbox query 192.0.2.9 --rate 1gbit --service guaranteed --json

Nothing is reserved. Each hop shows what that node could give. With --json the one line has
the type \"available\" or \"refused\" and the fields of `signalbox reserve --json`.

Exit status: 0 the path answered, 1 a node refused or none answered, 2 wrong arguments, no daemon, or the node cannot
do it.";

impl Run for QueryArgs {
    fn run(self, socket: &Path) -> Result<ExitCode> {
        block_on(query(socket, &self.wanted))
    }
}

/// Asks the nodes of a path which resources they could give, and prints the answer.
async fn query(socket: &Path, wanted: &WantedArgs) -> Result<ExitCode> {
    let request = v0::QueryRequest { wanted: Some(wanted.request()?) };
    let mut client = client::connect(socket).await?;
    let response = answer(client.query(request).await)?;
    let mut out = std::io::stdout();
    let Some(answer) = response.answer else { bail!("the daemon gave no answer") };
    if wanted.json {
        print::answer_json(&mut out, &answer)?;
    } else {
        print::answer_text(&mut out, &answer)?;
    }
    out.flush()?;
    Ok(ExitCode::from(u8::from(matches!(answer, Answer::Failed(_)))))
}
