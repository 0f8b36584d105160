//! A program: its arguments from the command line, what it does, and how it ends.

use std::ffi::OsString;
use std::io::{self, Write};

use anyhow::Result;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::exit::{self, Exit};

/// The arguments of a command, which carry it out.
pub trait Run {
    /// Carries the command out, prints the result, and returns the exit status.
    ///
    /// # Errors
    /// The daemon cannot be reached or refuses, or the arguments contradict each other.
    fn run(self) -> Result<Exit>;
}

impl<T: Run> Run for Box<T> {
    fn run(self) -> Result<Exit> {
        (*self).run()
    }
}

/// The command line of a program with the commands `C`.
#[derive(Debug, Parser)]
#[command(disable_version_flag = true)]
struct Cli<C: Subcommand> {
    /// Print the version; with --json also that of the JSON schemas.
    #[arg(short = 'V', long)]
    version: bool,
    #[arg(long, requires = "version", hide = true)]
    json: bool,
    #[command(subcommand)]
    command: Option<C>,
}

/// What a program prints as its version.
#[derive(Debug, Clone, Copy)]
pub struct Version {
    /// That of the program.
    pub program: &'static str,
    /// That of the JSON schemas.
    pub schema: u32,
}

/// The command line of a program with the commands `C`. Its name and its help are left to the program.
#[must_use]
pub fn command_line<C: Subcommand>() -> clap::Command {
    Cli::<C>::command()
}

/// Carries out the command that the arguments name, and reports an error. `line` is [`command_line`], completed.
pub fn run<C: Subcommand + Run>(mut line: clap::Command, version: Version, arguments: &[OsString]) -> Exit {
    let json = asks_for_json(arguments);
    let cli = line
        .try_get_matches_from_mut(arguments)
        .and_then(|matches| Cli::<C>::from_arg_matches(&matches).map_err(|error| error.format(&mut line)));
    let outcome = match cli {
        Ok(Cli { version: true, json, .. }) => print_version(line.get_name(), version, json),
        Ok(Cli { command: Some(command), .. }) => command.run(),
        Ok(Cli { command: None, .. }) => {
            let _ = line.print_help();
            return Exit::Usage;
        }
        Err(message) => return exit::report_usage(&message, json),
    };
    outcome.unwrap_or_else(|error| exit::report(&error, json))
}

/// Whether errors are to be printed as JSON, also that of a command line that cannot be parsed. What follows `--` is another
/// command's.
#[must_use]
pub fn asks_for_json(arguments: &[OsString]) -> bool {
    arguments.iter().take_while(|word| *word != "--").any(|word| word == "--json")
}

fn print_version(name: &str, version: Version, json: bool) -> Result<Exit> {
    let Version { program, schema } = version;
    let mut out = io::stdout();
    if json {
        writeln!(out, r#"{{"type":"version","version":"{program}","schema":{schema}}}"#)?;
    } else {
        writeln!(out, "{name} {program}")?;
    }
    Ok(Exit::Yes)
}
