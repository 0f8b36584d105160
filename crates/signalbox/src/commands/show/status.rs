//! `signalbox show status`.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::json;
use signalbox_api::v0;

use crate::arguments::OutputArgs;
use crate::client::{self, answer, block_on};
use crate::commands::Run;
use crate::print::table;

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    output: OutputArgs,
}

impl Run for StatusArgs {
    fn run(self, socket: &Path) -> Result<ExitCode> {
        block_on(show(socket, self.output))
    }
}

async fn show(socket: &Path, output: OutputArgs) -> Result<ExitCode> {
    let status = answer(client::connect(socket).await?.get_status(v0::GetStatusRequest {}).await)?;
    let mut out = std::io::stdout().lock();
    if output.json {
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
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
