//! `cargo xtask`: checks of the workspace that the compiler and clippy do not make.

#![allow(clippy::print_stdout, reason = "a program that prints reports")]

mod api;
mod conformance;
mod crates;
mod deps;
mod layers;
mod licences;
#[cfg(test)]
mod links;
mod metadata;
mod mutate;
mod schema;
mod skeleton;
#[cfg(test)]
mod templates;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
Checks of the Signalbox workspace.

Usage: cargo xtask <COMMAND>

Commands:
  api [--complete | --add | --release]         check that the gRPC API has all that crates/api/released.bin has, and that
                                               this file has every call
      --complete     also that the file has every message, field and value
      --add          add what is new to the file; refused if clients lose something
      --release      make the API as it is now the released one, whatever clients lose
  crates [--names]                             check that a registry takes the libraries that are published, and print their order
      --names        only the names, a line for each
  deps                                         check which crate, and which layer of a crate, may use which (ARCHITECTURE.md)
  licences                                     check licences, sources and bans of all dependencies (deny.toml)
  skeleton                                     check that all engine crates have the same files, lints and signatures,
                                               and a README with an example
  schema [--check]                             write the JSON Schemas of the command's output, or compare them
  conformance [--table NAME] [--check] [--update] [--json] [--open] [--why ID]
                                               count the requirements in conformance/ and the tests that name them
      --table NAME   only this table (gist)
      --check        fail if a row has no test and is in none of the lists, or docs/conformance.md has other numbers
      --update       write the numbers and what is not built into docs/conformance.md
      --json         one JSON object instead of text
      --open         list the open rows with their text
      --why ID       the tests that name one row, or why there are none
  mutate ID… | --all | --audit | --list | --check [--tests-of CRATE] [--json] [--record]
                                               break a rule and see whether the tests that name it fail
      ID             an id, or the beginning of ids with `*`
      --all          every mutation of conformance/mutations/
      --tests-of C   run only the tests of this crate
      --record       write the tests that failed to conformance/proved.tsv
      --audit        count tests that name several ids, and how many of them are audited
      --list         the same, with the ids that are still to audit
      --check        only check that each mutation still applies to the code
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
        ["api", options @ ..] => api::run(&root(), options),
        ["crates", options @ ..] => crates::run(&root(), options),
        ["deps"] => deps::run(&root()),
        ["licences"] => licences::run(&root()),
        ["schema"] => schema::run(&root(), &[]),
        ["schema", "--check"] => schema::run(&root(), &["--check"]),
        ["skeleton"] => skeleton::run(&root()),
        ["mutate", options @ ..] => mutate::run(&root(), options),
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
