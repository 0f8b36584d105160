//! `signalbox lab`: list, steps, checks, up, exec, down, run.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use serde_json::json;
use signalbox_linux::netns;

use crate::lab::Lab;
use crate::plan::{NAMESPACE_PREFIX, Plan, namespace};
use crate::report::Report;
use crate::run::Run;
use crate::scenario::{Scenario, builtins, find, read};
use crate::{checks, kernel, kinds, net, plot, state, steps, wait};

/// Exit status of a scenario of which a check fails.
const CHECK_FAILED: u8 = 1;

/// Arguments of `signalbox lab`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct LabArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: LabCommand,
}

/// What the lab can do.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// List the scenarios that are built in, and the labs that stand.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// Print only the names of the scenarios, one a line.
        #[arg(long, conflicts_with = "json")]
        names: bool,
    },
    /// Explain the steps that the workload of a scenario can have, with their keys.
    Steps {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Explain the checks that a scenario can have, with their keys.
    Checks {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Make the network of a scenario and start its daemons, to look around by hand.
    Up {
        /// A scenario's name, or the path of a TOML file.
        name: String,
    },
    /// Run a command inside a node of a standing lab.
    Exec {
        /// The node: NODE, or LAB/NODE where several labs stand.
        node: String,
        /// The command and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Take a lab down, also what a crash left of it.
    Down {
        /// The lab's name.
        #[arg(required_unless_present = "all")]
        name: Option<String>,
        /// All labs that stand, whoever made them.
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// Run a scenario: make the network, do the workload, check, take down.
    Run {
        /// A scenario's name, or the path of a TOML file.
        name: String,
        /// End with one JSON object on standard output.
        #[arg(long)]
        json: bool,
        /// Write the packets of each link into this directory, as LINK.pcap.
        #[arg(long, value_name = "DIR")]
        pcap: Option<PathBuf>,
        /// Draw loss, delay and goodput of the flows of the scenario into this file, as SVG.
        #[arg(long, value_name = "FILE")]
        plot: Option<PathBuf>,
        /// Leave the network and the daemons standing.
        #[arg(long)]
        keep: bool,
    },
}

const EXAMPLES: &str = "\
Examples:
  signalbox lab list
  signalbox lab steps
  signalbox lab run quickstart
  signalbox lab run ./mine.toml --json --pcap captures
  signalbox lab up quickstart
  signalbox lab exec h1 -- signalbox ping 10.0.3.2 --count 3
  signalbox lab down quickstart

Exit status: 0 all checks hold, 1 a check fails, 2 the command line is wrong, 3 a missing right, tool or program, or a mistake in
a scenario.

Needs root, or a kernel that allows user namespaces (then only `list`, `steps`, `checks` and `run`, and nothing outlives the run).";

/// Does what the arguments say; the status is 0 if all is well and 1 if a check of a scenario fails.
///
/// # Errors
/// A mistake in a scenario file; a missing right, tool or program; a lab that exists already or does not exist.
pub fn run(arguments: LabArgs) -> Result<ExitCode> {
    match arguments.command {
        LabCommand::List { names: true, .. } => list_names(),
        LabCommand::List { json, .. } => list(json),
        LabCommand::Steps { json } => {
            let steps: Vec<_> = steps::STEPS.iter().map(|step| &step.kind).collect();
            let text = kinds::describe(steps.iter().map(|kind| (kind.name, kind.meaning, kind.keys)));
            explain(json, &json!({ "steps": steps }), &text)
        }
        LabCommand::Checks { json } => {
            let checks = checks::CHECKS;
            let text = kinds::describe(checks.iter().map(|kind| (kind.name, kind.meaning, kind.keys)));
            explain(json, &json!({ "checks": checks }), &text)
        }
        LabCommand::Up { name } => {
            need_root("up")?;
            up(&find(&name)?)
        }
        LabCommand::Exec { node, command } => {
            need_root("exec")?;
            exec(&node, &command)
        }
        LabCommand::Down { name, all: _ } => {
            need_root("down")?;
            down(name.as_deref())
        }
        LabCommand::Run { name, json, pcap, plot, keep } => {
            // A mistake in the file is reported before anything is made.
            let scenario = find(&name)?;
            if !nix::unistd::geteuid().is_root() {
                if keep {
                    bail!("--keep needs root: without it the network ends with this command");
                }
                return without_root();
            }
            run_scenario(&scenario, json, [pcap.as_deref(), plot.as_deref()], keep)
        }
    }
}

fn need_root(command: &str) -> Result<()> {
    if nix::unistd::geteuid().is_root() && !netns::inside_user_namespace() {
        return Ok(());
    }
    bail!(
        "`lab {command}` needs root, since what it makes outlives the command; `lab run` works without, where the kernel allows"
    )
}

/// Runs this command again as root of a user namespace.
fn without_root() -> Result<ExitCode> {
    let status = netns::reexec_in_user_namespace().map_err(|error| {
        anyhow!(
            "network namespaces need root, and this kernel allows no user namespace ({error}); run as root"
        )
    })?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

fn explain(json: bool, value: &serde_json::Value, text: &str) -> Result<ExitCode> {
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{value}")?;
    } else {
        write!(out, "{text}")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn list_names() -> Result<ExitCode> {
    let mut out = io::stdout().lock();
    for (name, _) in builtins() {
        writeln!(out, "{name}")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn list(json: bool) -> Result<ExitCode> {
    let standing = if nix::unistd::geteuid().is_root() { net::standing()? } else { Vec::new() };
    let mut out = io::stdout().lock();
    let mut scenarios = Vec::new();
    for (name, text) in builtins() {
        scenarios.push(read(&format!("{name}.toml"), text)?);
    }
    if json {
        let rows: Vec<_> = scenarios
            .iter()
            .map(|scenario| json!({"name": scenario.name, "description": scenario.description}))
            .collect();
        writeln!(out, "{}", json!({"scenarios": rows, "standing": standing}))?;
        return Ok(ExitCode::SUCCESS);
    }
    let width = scenarios.iter().map(|scenario| scenario.name.len()).max().unwrap_or(0);
    for scenario in &scenarios {
        writeln!(out, "{:width$}  {}", scenario.name, scenario.description)?;
    }
    if !standing.is_empty() {
        writeln!(out, "\nstanding: {}", standing.join(", "))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn up(scenario: &Scenario) -> Result<ExitCode> {
    wait::catch_signals()?;
    let mut lab = Lab::make(Plan::new(scenario))?;
    if let Err(error) = lab.start_all() {
        return Err(lab.abandon(error));
    }
    let mut out = io::stdout().lock();
    for node in &lab.plan.nodes {
        let addresses: Vec<_> = node
            .interfaces
            .iter()
            .map(|interface| format!("{} {}", interface.name, interface.address))
            .collect();
        let runs = if node.daemon { "signalboxd" } else { "no daemon" };
        writeln!(out, "{:8}  {:28}  {runs:10}  {}", node.name, node.namespace, addresses.join(", "))?;
    }
    writeln!(
        out,
        "\nlook around: signalbox lab exec NODE -- COMMAND; end: signalbox lab down {}",
        scenario.name
    )?;
    Ok(ExitCode::SUCCESS)
}

fn exec(node: &str, command: &[String]) -> Result<ExitCode> {
    let standing = net::standing()?;
    let candidates: Vec<(&str, &str)> = match node.split_once('/') {
        Some((lab, node)) => vec![(lab, node)],
        None => standing.iter().map(|lab| (lab.as_str(), node)).collect(),
    };
    let existing = netns::list(NAMESPACE_PREFIX)?;
    let mut found = candidates.into_iter().filter(|(lab, node)| existing.contains(&namespace(lab, node)));
    let Some((lab, node)) = found.next() else {
        bail!("no standing lab has a node {node}; there are {}", or_none(&existing.join(", ")));
    };
    if let Some((other, _)) = found.next() {
        bail!("{lab} and {other} both have a node {node}; say {lab}/{node} or {other}/{node}");
    }
    let (program, words) = command.split_first().context("no command")?;
    let mut child = Command::new(program);
    child.args(words).env("SIGNALBOX_SOCKET", state::socket(lab, node));
    let namespace = kernel::namespace(&namespace(lab, node))?;
    let status = namespace.run(|| child.status())?.with_context(|| format!("cannot run {program}"))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

fn down(name: Option<&str>) -> Result<ExitCode> {
    let labs = match name {
        Some(name) => vec![name.to_owned()],
        None => net::standing()?,
    };
    let mut out = io::stdout().lock();
    for lab in &labs {
        let found = net::remove(lab).with_context(|| format!("cannot take down {lab}"))?;
        writeln!(out, "{lab}: {}", if found { "taken down" } else { "nothing stands" })?;
    }
    if labs.is_empty() {
        writeln!(out, "no lab stands")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn run_scenario(
    scenario: &Scenario,
    json: bool,
    [pcap, plot]: [Option<&Path>; 2],
    keep: bool,
) -> Result<ExitCode> {
    wait::catch_signals()?;
    let progress = |what: &str| {
        // Progress that cannot be printed is no reason to fail.
        let _ = writeln!(io::stderr(), "{}: {what}", scenario.name);
    };
    progress("making the network");
    let mut lab = Lab::make(Plan::new(scenario))?;
    let evidence = Run::start(scenario, &mut lab, &progress).and_then(|mut run| {
        run.work()?;
        run.finish(keep, pcap)
    });
    let evidence = match evidence {
        Ok(evidence) => evidence,
        Err(error) => {
            show_logs(&lab);
            return Err(lab.abandon(error));
        }
    };
    let outcomes = scenario.checks.iter().map(|check| checks::judge(check, &evidence)).collect();
    let report = Report::new(scenario, outcomes, &evidence);
    if !report.ok {
        show_logs(&lab);
    }
    if !keep {
        lab.down()?;
    }
    if let Some(file) = plot {
        let svg = plot::svg(&scenario.name, &evidence);
        let svg = svg.with_context(|| format!("{} has no flow to draw", scenario.name))?;
        std::fs::write(file, svg).with_context(|| format!("cannot write {}", file.display()))?;
    }
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
    } else {
        write!(out, "{}", report.text(scenario, &evidence))?;
    }
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::from(CHECK_FAILED) })
}

fn show_logs(lab: &Lab) {
    for (node, tail) in lab.logs() {
        // As above.
        let _ = writeln!(io::stderr(), "{node}{tail}");
    }
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        lab: LabArgs,
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        let cli = Cli::try_parse_from(["lab", "exec", "h1", "--", "ip", "address"]).expect("sound");
        assert!(matches!(cli.lab.command, LabCommand::Exec { command, .. } if command == ["ip", "address"]));
        assert!(Cli::try_parse_from(["lab", "exec", "h1"]).is_err());
    }

    #[test]
    fn a_mistake_in_a_file_is_told_before_anything_is_made() {
        let path = std::env::temp_dir().join(format!("signalbox-lab-{}.toml", std::process::id()));
        std::fs::write(&path, "name = \"x\"\nnods = []\n").expect("the directory is writable");
        let cli = Cli::try_parse_from(["lab".as_ref(), "run".as_ref(), path.as_os_str()]).expect("sound");
        let said = run(cli.lab).expect_err("a mistake").to_string();
        assert!(said.contains(".toml:2: unknown field `nods`"), "{said}");
        std::fs::remove_file(&path).expect("ours");
    }
}
