//! `signalbox config reload`.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use signalbox_api::v1;
use signalbox_api::v1::node_client::NodeClient;

use crate::arguments::{NodeArgs, OutputArgs};
use crate::client::{self, answer, block_on};
use crate::commands::Run;
use crate::exit::{Exit, exit_status};
use crate::print::json_row;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    node: NodeArgs,
}

const HELP: &str = concat!(
    exit_status!("the daemon uses the file", "the file has a mistake, and nothing has changed"),
    "EXAMPLES:\n",
    "  signalbox config check && signalbox config reload\n",
    "  signalbox config reload --json | jq .needs_restart\n\n",
    "A running daemon takes the rules ([policy]), the limits of [admission] except max_reservations, the keys of tokens,\n",
    "and log.level. Reservations that the new rules do not allow end. Other keys that differ are named: they need a\n",
    "restart.",
);

impl Run for ReloadArgs {
    fn run(self) -> Result<Exit> {
        let reload = block_on(async {
            let mut client = NodeClient::new(client::channel(&self.node.socket).await?);
            answer(client.reload_config(v1::ReloadConfigRequest {}).await)
        })?;
        let fine = reload.problems.iter().all(|problem| problem.severity() != v1::Severity::Error);
        let mut out = std::io::stdout();
        if self.output.json {
            json_row(&mut out, &reload)?;
        } else {
            print(&mut out, &reload, fine)?;
        }
        out.flush()?;
        Ok(Exit::yes_if(fine))
    }
}

fn print(out: &mut impl Write, reload: &v1::ReloadConfigResponse, fine: bool) -> Result<()> {
    for problem in &reload.problems {
        let file = problem.file.as_deref().unwrap_or_default();
        let (line, column) = (problem.line.unwrap_or(0), problem.column.unwrap_or(0));
        let level = if problem.severity() == v1::Severity::Warning { "warning: " } else { "" };
        let key = problem.key.as_ref().map(|key| format!("{key}: ")).unwrap_or_default();
        writeln!(out, "{file}:{line}:{column}: {level}{key}{}", problem.message)?;
    }
    if !fine {
        writeln!(out, "nothing has changed: mend the file and reload again")?;
        return Ok(());
    }
    match reload.applied.as_slice() {
        [] => writeln!(out, "nothing to change")?,
        keys => writeln!(out, "in force now: {}", keys.join(", "))?,
    }
    if reload.reservations_ended > 0 {
        writeln!(out, "{} reservations ended by the new rules", reload.reservations_ended)?;
    }
    if !reload.needs_restart.is_empty() {
        writeln!(out, "restart the daemon for: {}", reload.needs_restart.join(", "))?;
    }
    Ok(())
}
