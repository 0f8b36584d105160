//! `signalbox version`.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::Run;

#[derive(Debug, Args)]
pub(crate) struct VersionArgs {}

impl Run for VersionArgs {
    fn run(self, _: &Path) -> Result<ExitCode> {
        writeln!(std::io::stdout(), "signalbox {}", env!("CARGO_PKG_VERSION"))?;
        Ok(ExitCode::SUCCESS)
    }
}
