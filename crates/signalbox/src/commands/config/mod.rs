//! `signalbox config`: checks and shows configurations of signalboxd, without a daemon, and makes a daemon read its own
//! again.

mod reload;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use signalbox_config::{Finding, Level, Loaded};

use super::Run;
use crate::exit::Exit;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print all mistakes and warnings of a configuration.
    Check(CheckArgs),
    /// Print every key: with its default and meaning, or as a configuration sets it.
    Show(ShowArgs),
    /// Make the daemon read its configuration again, as SIGHUP does.
    Reload(reload::ReloadArgs),
}

const HELP: &str = concat!(
    "EXIT STATUS:\n  0  no mistake, or printed\n  1  the configuration has a mistake\n  2  the command line is wrong\n",
    "  3  the file cannot be read, or no daemon runs\n\n",
    "EXAMPLES:\n",
    "  signalbox config check /etc/signalbox/signalboxd.toml\n",
    "  signalbox config show --defaults | less\n",
    "  signalbox config reload\n\n",
    "docs/config.md describes every key.",
);

#[derive(Debug, Args)]
#[command(after_help = CHECK_EXAMPLES)]
struct CheckArgs {
    /// The configuration. The files that it includes are read as well, and the keys and certificates that it names.
    #[arg(value_name = "FILE", default_value = "/etc/signalbox/signalboxd.toml")]
    file: PathBuf,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

const CHECK_EXAMPLES: &str = concat!(
    "EXIT STATUS:\n  0  no mistake\n  1  a mistake\n  2  the command line is wrong\n  3  the file cannot be read\n\n",
    "EXAMPLES:\n",
    "  signalbox config check\n",
    "  signalbox config check r1.toml\n",
    "  signalbox config check r1.toml --json\n\n",
    "Each line names file, line, column and key, what is wrong, the range, and a right value. A warning is about a part\n",
    "without effect, or about policy rules on this machine that can take intercepted packets.",
);

#[derive(Debug, Args)]
#[command(after_help = SHOW_EXAMPLES)]
struct ShowArgs {
    /// Every key with its default, its range and its meaning.
    #[arg(long, required_unless_present = "effective")]
    defaults: bool,
    /// Every key that is in force with this configuration, with its value.
    #[arg(long, value_name = "FILE", conflicts_with = "defaults")]
    effective: Option<PathBuf>,
}

const SHOW_EXAMPLES: &str = concat!(
    "EXIT STATUS:\n  0  printed\n  1  the configuration has a mistake\n  2  the command line is wrong\n",
    "  3  the file cannot be read\n\n",
    "EXAMPLES:\n",
    "  signalbox config show --defaults | less\n",
    "  signalbox config show --effective /etc/signalbox/signalboxd.toml\n",
    "  diff <(signalbox config show --effective r1.toml) <(signalbox config show --effective r2.toml)\n\n",
    "What is printed is a configuration itself. Secrets are in files of their own, which it names only.",
);

impl Run for ConfigArgs {
    fn run(self) -> Result<Exit> {
        match self.command {
            ConfigCommand::Check(arguments) => check(&arguments),
            ConfigCommand::Show(arguments) => show(&arguments),
            ConfigCommand::Reload(arguments) => arguments.run(),
        }
    }
}

fn load(file: &Path) -> Result<Loaded> {
    signalbox_config::load(file)
        .with_context(|| format!("cannot read {}; give an existing file", file.display()))
}

fn check(arguments: &CheckArgs) -> Result<Exit> {
    let loaded = load(&arguments.file)?;
    let mut out = io::stdout().lock();
    for finding in &loaded.findings {
        print(&mut out, finding, arguments.json)?;
    }
    let machine_warnings = loaded.config.as_ref().map(|config| config.machine_warnings(&arguments.file));
    for finding in machine_warnings.into_iter().flatten() {
        print(&mut out, &finding, arguments.json)?;
    }
    if loaded.config.is_some() && !arguments.json {
        writeln!(out, "{}: OK", arguments.file.display())?;
    }
    Ok(Exit::yes_if(loaded.config.is_some()))
}

fn print(out: &mut impl Write, finding: &Finding, json: bool) -> Result<()> {
    if json {
        writeln!(out, "{}", serde_json::to_string(finding)?)?;
    } else {
        writeln!(out, "{finding}")?;
    }
    Ok(())
}

fn show(arguments: &ShowArgs) -> Result<Exit> {
    let mut out = io::stdout().lock();
    let Some(file) = &arguments.effective else {
        write!(out, "{}", signalbox_config::defaults())?;
        return Ok(Exit::Yes);
    };
    match load(file)?.usable() {
        Ok((config, _)) => {
            write!(out, "{}", config.effective())?;
            Ok(Exit::Yes)
        }
        Err(findings) => {
            for finding in findings.iter().filter(|finding| finding.level == Level::Error) {
                writeln!(io::stderr(), "signalbox: {finding}")?;
            }
            Ok(Exit::No)
        }
    }
}
