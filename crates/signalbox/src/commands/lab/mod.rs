//! `signalbox lab`, `signalbox bench` and `signalbox replay`, which the lab's crate carries out without a daemon.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use super::Run;

impl Run for signalbox_lab::cli::LabArgs {
    fn run(self, _: &Path) -> Result<ExitCode> {
        signalbox_lab::cli::run(self)
    }
}

impl Run for signalbox_lab::bench::BenchCommand {
    fn run(self, _: &Path) -> Result<ExitCode> {
        signalbox_lab::bench::run(self)
    }
}

impl Run for signalbox_lab::replay::ReplayArgs {
    fn run(self, _: &Path) -> Result<ExitCode> {
        signalbox_lab::replay::run(&self)
    }
}
