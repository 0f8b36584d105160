//! `signalbox lab`: list, steps, checks, up, exec, check, expect, soak, down, run, sweep.

mod arguments;
mod help;
mod once;
mod runs;
pub mod sim;
mod soak;
mod sweep;

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::json;
use signalbox_linux::netns;

use crate::language::checks::CHECKS;
use crate::language::kinds;
use crate::language::steps::STEPS;
use crate::language::{Scenario, builtins, find, read};
use crate::plan::{NAMESPACE_PREFIX, Plan, PlannedInterface, namespace};
use crate::plan::{configuration, places};
use crate::report::object;
use crate::report::sweep::Swept;
use crate::run::evidence::{Outcome, Verdict};
use crate::run::lab::Lab;
use crate::run::{Run, expectation, kernel, net, requires, wait};

pub(crate) use arguments::Set;
pub use arguments::{LAB_HELP, LabCommand};

/// Exit status of a scenario of which a check fails.
const CHECK_FAILED: u8 = 1;
/// The type of the objects of `lab check`.
const CHECKED: &str = "lab_check";

/// Does what the command says; the status is 0 if all is well and 1 if a check of a scenario fails.
///
/// # Errors
/// A mistake in a scenario file; a missing right, tool or program; a lab that exists already or does not exist.
pub fn run(command: LabCommand) -> Result<ExitCode> {
    match command {
        LabCommand::List { names: true, .. } => list_names(),
        LabCommand::List { json, .. } => list(json),
        LabCommand::Steps { json } => {
            let text = kinds::describe(STEPS.iter().map(|kind| (kind.name, kind.meaning, kind.keys)));
            explain(json, "lab_steps", &json!({ "steps": STEPS }), &text)
        }
        LabCommand::Checks { json } => {
            let text = kinds::describe(CHECKS.iter().map(|kind| (kind.name, kind.meaning, kind.keys)));
            explain(json, "lab_checks", &json!({ "checks": CHECKS }), &text)
        }
        LabCommand::Up { name, json } => {
            need_root("up")?;
            up(&checked(&name, &[])?, json)
        }
        LabCommand::Exec { node, command } => {
            need_root("exec")?;
            exec(&node, &command)
        }
        LabCommand::Check { names, set, json } => check(&names, set.values(), json),
        LabCommand::Expect { name, json } => {
            need_root("expect")?;
            expect(&checked(&name, &[])?, json)
        }
        LabCommand::Down { name, all: _ } => {
            need_root("down")?;
            down(name.as_deref())
        }
        LabCommand::Soak { name, time, json } => {
            need_root("soak")?;
            soak_scenario(&checked(&name, &[])?, time, json)
        }
        LabCommand::Run { names, repeat, seed, junit, csv, set, json, pcap, plot, keep } => {
            // Mistakes in the files are reported before anything is made.
            let mut scenarios =
                names.iter().map(|name| checked(name, set.values())).collect::<Result<Vec<_>>>()?;
            if let Some(seed) = seed {
                scenarios.iter_mut().for_each(|scenario| scenario.seed = seed);
            }
            let order = runs::Order { repeat, json, keep, pcap, plot, junit, csv };
            order.check(&scenarios)?;
            if !nix::unistd::geteuid().is_root() {
                if keep {
                    bail!("--keep needs root: without it the network ends with this command");
                }
                return without_root();
            }
            runs::run_all(&scenarios, &order)
        }
        LabCommand::Sweep { name, out, repeat, measure, seed, set, json } => {
            let order = sweep::Order { name: &name, set: set.values(), repeat, measure, seed, out: &out };
            let order = order.checked()?;
            if !nix::unistd::geteuid().is_root() {
                return without_root();
            }
            print_sweep(&order.run()?, &out, json)
        }
    }
}

/// Returns a scenario in which no mistake can be found without running it: neither in its own file nor in the configurations of its
/// daemons.
fn checked(name: &str, set: &[(String, String)]) -> Result<Scenario> {
    let scenario = find(name, set)?;
    configuration::check(name, &scenario)?;
    Ok(scenario)
}

/// The same for all values of its sweep, without the parameters that are set.
fn checked_everywhere(name: &str, set: &[(String, String)]) -> Result<Scenario> {
    let scenario = checked(name, set)?;
    if let Some(mut swept) = scenario.sweep.clone() {
        swept.over.retain(|axis| set.iter().all(|(name, _)| *name != axis.name));
        sweep::at_points(name, set, &swept)?;
    }
    Ok(scenario)
}

/// Prints the result of a sweep, and says where the files are.
fn print_sweep(swept: &Swept, out: &Path, json: bool) -> Result<ExitCode> {
    let mut to = io::stdout().lock();
    if json {
        writeln!(to, "{}", object::line("lab_sweep", swept)?)?;
    } else {
        write!(to, "{}", swept.text())?;
        writeln!(to, "the results are in {}", out.display())?;
    }
    Ok(if swept.failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(CHECK_FAILED) })
}

fn check(names: &[String], set: &[(String, String)], json: bool) -> Result<ExitCode> {
    let mut out = io::stdout().lock();
    let mut sound = true;
    for name in names {
        match checked_everywhere(name, set) {
            Ok(scenario) => {
                let (steps, checks) = (scenario.workload.len(), scenario.checks.len());
                let runs = scenario.sweep.as_ref().map(|sweep| (sweep.points().len(), sweep.repeat));
                if json {
                    let mut line = json!({"scenario": name, "ok": true, "steps": steps, "checks": checks});
                    if let Some((points, repeat)) = runs {
                        line["sweep"] = json!({"points": points, "repeat": repeat});
                    }
                    writeln!(out, "{}", object::line(CHECKED, &line)?)?;
                } else {
                    let runs = runs.map(|(points, repeat)| {
                        format!(", a sweep of {points} points with {repeat} runs each")
                    });
                    writeln!(
                        out,
                        "{name}: sound, {steps} steps, {checks} checks{}",
                        runs.unwrap_or_default()
                    )?;
                }
            }
            Err(mistakes) => {
                sound = false;
                if json {
                    let mistakes: Vec<_> = mistakes.to_string().lines().map(str::to_owned).collect();
                    let line = json!({"scenario": name, "ok": false, "mistakes": mistakes});
                    writeln!(out, "{}", object::line(CHECKED, &line)?)?;
                } else {
                    writeln!(out, "{mistakes}")?;
                }
            }
        }
    }
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::from(CHECK_FAILED) })
}

fn expect(scenario: &Scenario, json: bool) -> Result<ExitCode> {
    wait::catch_signals()?;
    let plan = Plan::new(scenario);
    if !net::standing()?.contains(&plan.name) {
        bail!("the lab {0} does not stand; `signalbox lab up {0}` makes it", plan.name);
    }
    let runs = |node: &usize| places::socket(&plan.name, &plan.nodes[*node].name).exists();
    let running: Vec<usize> = (0..plan.nodes.len()).filter(runs).collect();
    let verdicts = expectation::observe(&scenario.checks, &plan, &running)?;
    let outcome = |(number, verdict): (usize, Verdict)| Outcome::new(&scenario.checks[number].name, verdict);
    let outcomes: Vec<_> = verdicts.into_iter().map(outcome).collect();
    if outcomes.is_empty() {
        bail!("{} has no check of the kind `show`, which a standing lab can answer", scenario.name);
    }
    let ok = outcomes.iter().all(|outcome| outcome.ok);
    let mut out = io::stdout().lock();
    if json {
        let judged = json!({"scenario": scenario.name, "ok": ok, "checks": outcomes});
        writeln!(out, "{}", object::line("lab_expect", &judged)?)?;
    } else {
        for outcome in &outcomes {
            let word = if outcome.ok { "ok" } else { "FAILED" };
            writeln!(out, "{word:6}  {}\n         {}", outcome.name, outcome.detail)?;
        }
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::from(CHECK_FAILED) })
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

fn explain(json: bool, kind: &str, value: &serde_json::Value, text: &str) -> Result<ExitCode> {
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", object::line(kind, value)?)?;
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
            .map(|scenario| {
                json!({"name": scenario.name, "description": scenario.description, "tags": scenario.tags})
            })
            .collect();
        let all = json!({"scenarios": rows, "standing": standing});
        writeln!(out, "{}", object::line("lab_list", &all)?)?;
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

fn up(scenario: &Scenario, json: bool) -> Result<ExitCode> {
    wait::catch_signals()?;
    let mut lab = Lab::make(Plan::new(scenario))?;
    if let Err(error) = lab.start_all().and_then(|()| lab.leave()) {
        return Err(lab.abandon(error));
    }
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", object::line("lab_up", &nodes(&lab.plan))?)?;
        return Ok(ExitCode::SUCCESS);
    }
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

/// Returns a lab and its nodes as JSON.
fn nodes(plan: &Plan) -> serde_json::Value {
    let interface = |one: &PlannedInterface| json!({"name": one.name, "address": one.address.to_string()});
    let nodes: Vec<_> = plan
        .nodes
        .iter()
        .map(|node| {
            let interfaces: Vec<_> = node.interfaces.iter().map(interface).collect();
            json!({
                "name": node.name,
                "namespace": node.namespace,
                "daemon": node.daemon,
                "socket": places::socket(&plan.name, &node.name),
                "interfaces": interfaces,
            })
        })
        .collect();
    json!({"lab": plan.name, "nodes": nodes})
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
    child.args(words).env("SIGNALBOX_SOCKET", places::socket(lab, node));
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

fn soak_scenario(scenario: &Scenario, time: Duration, json: bool) -> Result<ExitCode> {
    wait::catch_signals()?;
    if let Some(why) = requires::lacking(scenario)? {
        bail!("{}: {why}", scenario.name);
    }
    let progress = |what: &str| {
        // Progress that cannot be printed is no reason to fail.
        let _ = writeln!(io::stderr(), "{}: {what}", scenario.name);
    };
    let mut lab = Lab::make(Plan::new(scenario))?;
    let samples = Run::start(scenario, &mut lab, &progress).and_then(|mut run| soak::soak(&mut run, time));
    let courses = match samples {
        Ok(samples) => samples.courses(),
        Err(error) => {
            show_logs(&lab);
            return Err(lab.abandon(error));
        }
    };
    lab.down()?;
    let flat = courses.iter().all(|course| course.flat);
    let mut out = io::stdout().lock();
    if json {
        let soaked = json!({ "scenario": scenario.name, "ok": flat, "daemons": courses });
        writeln!(out, "{}", object::line("lab_soak", &soaked)?)?;
    } else {
        write!(out, "{}", soak::text(&courses))?;
    }
    Ok(if flat { ExitCode::SUCCESS } else { ExitCode::from(CHECK_FAILED) })
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
        #[command(subcommand)]
        lab: LabCommand,
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        let cli = Cli::try_parse_from(["lab", "exec", "h1", "--", "ip", "address"]).expect("sound");
        assert!(matches!(cli.lab, LabCommand::Exec { command, .. } if command == ["ip", "address"]));
        assert!(Cli::try_parse_from(["lab", "exec", "h1"]).is_err());
    }

    /// What `lab check` calls sound starts: a client that CASP does not choose, and an application without GIST, are no surprise later.
    #[test]
    fn what_a_daemon_would_refuse_is_refused_when_the_scenario_is_read() {
        let path = std::env::temp_dir().join(format!("signalbox-lab-check-{}.toml", std::process::id()));
        let text = "version = 2\nname = \"x\"\ndescription = \"\"\n[nodes.a]\nprotocols = [\"casp\"]\n\
                    config = { casp = { clients = [\"ping\"] } }\n";
        std::fs::write(&path, text).expect("the directory is writable");
        let name = path.display().to_string();
        let said = checked(&name, &[]).expect_err("a mistake").to_string();
        assert!(said.contains("the configuration of a: casp.clients: "), "{said}");
        let status = check(&[name], &[], true).expect("it can be checked");
        assert_eq!(format!("{status:?}"), format!("{:?}", ExitCode::from(CHECK_FAILED)));
        std::fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn a_mistake_in_a_file_is_reported_before_anything_is_made() {
        let path = std::env::temp_dir().join(format!("signalbox-lab-{}.toml", std::process::id()));
        std::fs::write(&path, "version = 2\nname = \"x\"\ndescription = \"\"\nnods = []\n")
            .expect("the directory is writable");
        let cli = Cli::try_parse_from(["lab".as_ref(), "run".as_ref(), path.as_os_str()]).expect("sound");
        let said = run(cli.lab).expect_err("a mistake").to_string();
        assert!(said.contains(".toml:4: unknown field `nods`"), "{said}");
        std::fs::remove_file(&path).expect("ours");
    }
}
