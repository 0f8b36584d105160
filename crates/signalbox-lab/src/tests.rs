//! The command line as a whole, and its words as `signalbox` has them.

use clap::ValueEnum;
use clap_complete::Shell;
use signalbox_cli::checks::Line;
use signalbox_cli::lab::{COMMANDS, WORDS};

use super::*;

fn line() -> Line {
    Line::new("signalbox", command_line())
}

#[test]
fn the_command_line_is_consistent() {
    command_line().debug_assert();
}

#[test]
fn every_command_explains_its_exit_status() {
    line().explains_its_exit_status();
}

#[test]
fn every_command_has_an_example_of_itself_and_all_examples_can_be_parsed() {
    line().has_examples();
}

#[test]
fn every_command_that_prints_data_prints_it_as_json_too() {
    // They print what another command prints, and that it is done.
    line().prints_json(&["lab exec", "lab down"]);
}

#[test]
fn the_calls_in_the_documentation_can_be_parsed() {
    let count = line().parses_the_documentation();
    assert!(count > 30, "{count} calls");
}

/// `signalbox` starts this program for these commands, and lists them in its help.
#[test]
fn signalbox_knows_all_commands() {
    let line = command_line();
    let about = |command: &clap::Command| command.get_about().map(ToString::to_string).unwrap_or_default();
    let listed = line.get_subcommands().filter(|command| !command.is_hide_set());
    let listed: Vec<_> = listed.map(|command| (command.get_name().to_owned(), about(command))).collect();
    assert_eq!(listed, COMMANDS.map(|(name, about)| (name.to_owned(), about.to_owned())));
    assert!(line.find_subcommand(WORDS).is_some());
}

/// A script that completes words is the same, whether it is made from the commands or from their words.
#[test]
fn shells_complete_the_same_words_in_signalbox() {
    let script = |shell, commands: Vec<clap::Command>| {
        let mut script = Vec::new();
        let mut line = clap::Command::new("signalbox").subcommands(commands);
        clap_complete::generate(shell, &mut line, "signalbox", &mut script);
        String::from_utf8(script).unwrap()
    };
    let line = command_line();
    let own = || line.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    let words = serde_json::to_string(&Words::below(&line)).unwrap();
    for shell in Shell::value_variants() {
        let words: Vec<Words> = serde_json::from_str(&words).unwrap();
        let from_words = script(*shell, words.into_iter().map(Words::command).collect());
        assert!(from_words.contains("campaign"), "{shell}");
        assert_eq!(from_words, script(*shell, own()), "{shell}");
    }
}

/// An experiment of `papers/` runs commands of this program. Those that run a scenario name one, and parameters that it has.
#[test]
fn the_commands_of_the_papers_can_be_parsed_and_their_scenarios_are_sound() {
    let commands = signalbox_reproduce::commands().unwrap_or_else(|error| panic!("{error:#}"));
    assert!(commands.len() > 40, "{} commands", commands.len());
    let parse = |words: &[&str]| {
        let words = ["signalbox"].iter().chain(words).copied();
        command_line().try_get_matches_from(words).unwrap_or_else(|error| panic!("{error}"))
    };
    for command in &commands {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        parse(&words);
        assert!(words.contains(&"--json"), "{words:?} prints nothing that can be read");
        let ["lab", "run", name, options @ ..] = &words[..] else { continue };
        let sets = options.windows(2).filter(|pair| pair[0] == "--set").flatten().copied();
        let check: Vec<&str> = ["lab", "check", name].into_iter().chain(sets).collect();
        let matches = parse(&check);
        let command = <Command as clap::FromArgMatches>::from_arg_matches(&matches)
            .unwrap_or_else(|error| panic!("{error}"));
        let exit = command.run().unwrap_or_else(|error| panic!("{check:?}: {error:#}"));
        assert_eq!(format!("{exit:?}"), format!("{:?}", Exit::Of(ExitCode::SUCCESS)), "{check:?}");
    }
}
