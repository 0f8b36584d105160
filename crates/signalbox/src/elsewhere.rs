//! The commands that another program carries out, which takes the place of this one: those of the lab.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context, Error, anyhow};
use signalbox_cli::asks_for_json;
use signalbox_cli::exit::{self, Exit};
use signalbox_cli::lab::{COMMANDS, PROGRAM, WORDS, has};
use signalbox_cli::words::Words;
use signalbox_linux::program::find;

/// The command of another program that the arguments name, or ask for help about.
pub(crate) fn wanted(arguments: &[OsString]) -> Option<&str> {
    let word = |at: usize| arguments.get(at).and_then(|word| word.to_str());
    let name = if word(1) == Some("help") { word(2) } else { word(1) };
    name.filter(|name| has(name))
}

/// Starts the other program in the place of this one, with the same arguments and under the same name. Returns if it cannot be
/// started.
pub(crate) fn run(command: &str, arguments: &[OsString]) -> Exit {
    exit::report(&start(command, arguments), asks_for_json(arguments))
}

fn start(command: &str, arguments: &[OsString]) -> Error {
    let Some(program) = find(PROGRAM) else {
        let release = if cfg!(debug_assertions) { "" } else { " --release" };
        return anyhow!(
            "`signalbox {command}` needs the program {PROGRAM}, which is neither beside this one nor in PATH: install the package \
             {PROGRAM}, or build it (cargo build{release} -p signalbox-lab-command)"
        );
    };
    let name = arguments.first().map_or(OsStr::new("signalbox"), OsString::as_os_str);
    let mut lab = Command::new(&program);
    lab.arg0(name).args(arguments.iter().skip(1));
    // A lab that was found in PATH runs the command and the daemon of this build all the same.
    for (variable, name) in [("SIGNALBOX", "signalbox"), ("SIGNALBOXD", "signalboxd")] {
        let beside =
            std::env::current_exe().ok().map(|own| own.with_file_name(name)).filter(|file| file.is_file());
        if let (None, Some(beside)) = (std::env::var_os(variable), beside) {
            lab.env(variable, beside);
        }
    }
    Error::from(lab.exec()).context(format!("cannot start {}", program.display()))
}

/// The commands, for the list of all of them.
pub(crate) fn commands() -> impl Iterator<Item = clap::Command> {
    COMMANDS.into_iter().map(|(name, about)| clap::Command::new(name).about(about))
}

/// The command line with all words of these commands, if the program is there.
pub(crate) fn all_words() -> clap::Command {
    match words() {
        Ok(words) => crate::own_command_line().subcommands(words.into_iter().map(Words::command)),
        // Shells complete the rest.
        Err(_) => crate::command_line(),
    }
}

fn words() -> anyhow::Result<Vec<Words>> {
    let program = find(PROGRAM).context("it is not there")?;
    let output = Command::new(program).arg(WORDS).output()?;
    Ok(serde_json::from_slice(&output.stdout)?)
}
