//! `bench list`: the names of the benchmarks.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Command, Subcommand as _};
use serde_json::{Value, json};
use signalbox_lab::object;

use super::{BenchCommand, print};

/// Options of `bench list`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
EXAMPLES:
  signalbox bench list
  signalbox bench list --json | jq -r '.benchmarks[].name'")]
pub struct ListArgs {
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(args: &ListArgs) -> Result<ExitCode> {
    let all = all();
    if args.json {
        let list: Vec<Value> =
            all.iter().map(|(name, about)| json!({"name": name, "about": about})).collect();
        print(&object::line("bench_list", &json!({"benchmarks": list}))?);
    } else {
        let width = all.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        let lines: Vec<_> = all.iter().map(|(name, about)| format!("{name:width$}  {about}")).collect();
        print(&lines.join("\n"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns each benchmark, as it stands behind `signalbox bench`, and a line about it.
fn all() -> Vec<(String, String)> {
    let about = |command: &Command| command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut all = Vec::new();
    for command in BenchCommand::augment_subcommands(Command::new("bench")).get_subcommands() {
        let name = command.get_name();
        let group = about(command);
        let members: Vec<_> = command.get_subcommands().collect();
        for member in &members {
            all.push((format!("{name} {}", member.get_name()), about(member)));
        }
        if members.is_empty() && name != "list" {
            all.push((name.to_owned(), group));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_benchmark_has_a_name_and_a_line() {
        let all = all();
        let names: Vec<_> = all.iter().map(|(name, _)| &**name).collect();
        assert!(names.contains(&"engine gist") && names.contains(&"forward rsvp"), "{names:?}");
        assert!(names.contains(&"instructions") && !names.contains(&"list"), "{names:?}");
        for (name, about) in &all {
            assert!(about.len() > 20 && !about.contains('\n'), "{name}: {about}");
        }
    }
}
