//! `cargo xtask`: checks of the workspace that the compiler and clippy do not make.

#![allow(clippy::print_stdout, reason = "a program that prints reports")]

mod conformance;
mod deps;
mod licences;
mod metadata;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
Checks of the Signalbox workspace.

Usage: cargo xtask <COMMAND>

Commands:
  deps                                         check which crate may depend on which (ARCHITECTURE.md)
  licences                                     check licences, sources and bans of all dependencies (deny.toml)
  conformance [--table NAME] [--check] [--json] [--open] [--why ID]
                                               what the tables in conformance/ ask and what tests prove
      --table NAME   only this table (gist)
      --check        fail if a row due now is neither tested nor exempt
      --json         one JSON object instead of text
      --open         list the open rows with their words
      --why ID       where one row is tested, or why not
  help                                         this text

Unknown ids, in code, documents or lists, always fail `conformance`.
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args.as_slice() {
        [] | ["help" | "--help" | "-h", ..] => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        ["deps"] => deps::run(&root()),
        ["licences"] => licences::run(&root()),
        ["conformance", options @ ..] => conformance::run(&root(), options),
        [other, ..] => {
            eprintln!("xtask: no command `{other}` with these arguments\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// The workspace's root directory.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
