//! The command line as a whole: its status, its help, and the calls of it in the documentation.

use std::path::Path;

use super::*;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

fn run_words(line: &str) -> Exit {
    run(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
}

#[test]
fn the_socket_is_an_option_of_commands_that_ask_the_daemon_only() {
    for line in ["signalbox show gist peers --socket /s", "signalbox show --socket /s gist peers"] {
        assert!(Cli::try_parse_from(line.split(' ')).is_ok(), "{line}");
    }
    for line in ["signalbox lab list --socket /s", "signalbox decode --socket /s"] {
        assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
    }
}

#[test]
fn the_status_shows_wrong_arguments_and_a_missing_daemon() {
    assert_eq!(run_words("signalbox --version"), Exit::Yes);
    assert_eq!(run_words("signalbox reserve"), Exit::Usage);
    assert_eq!(run_words("signalbox --json show status"), Exit::Usage);
    assert_eq!(run_words("signalbox show status --socket /none/such"), Exit::Environment);
    assert_eq!(run_words("signalbox show status --json --socket /none/such"), Exit::Environment);
}

/// What is done with a command that has no commands below it: itself, its words, and the help of it and of those above.
type Check<'a> = dyn FnMut(&clap::Command, &[String], &[String]) + 'a;

fn for_each_leaf(check: &mut Check<'_>) {
    fn walk(command: &clap::Command, (words, helps): (&[String], &[String]), check: &mut Check<'_>) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let words = [words, &[command.get_name().to_owned()]].concat();
        let helps = [helps, &[help]].concat();
        let below: Vec<_> = command.get_subcommands().filter(|sub| sub.get_name() != "help").collect();
        if below.is_empty() {
            check(command, &words, &helps);
        }
        for sub in below {
            walk(sub, (&words, &helps), check);
        }
    }
    walk(&Cli::command(), (&[], &[]), check);
}

/// The examples of a help text: the words of each call of `signalbox`, without what the shell does with it.
fn examples(help: &str) -> Vec<Vec<String>> {
    let help = help.replace("\\\n", "");
    let lines =
        help.lines().skip_while(|line| *line != "EXAMPLES:").skip(1).take_while(|line| !line.is_empty());
    let calls = lines.flat_map(|line| line.split_inclusive([')', '|']).flat_map(|part| part.split("&& ")));
    calls.filter_map(|call| call.split_once("signalbox ")).map(|(_, call)| words(call)).collect()
}

/// Splits a call as a shell does; it ends where the shell takes over.
fn words(call: &str) -> Vec<String> {
    let mut words = vec!["signalbox".to_owned()];
    let mut rest = call.trim_start();
    while let Some(first) = rest.chars().next().filter(|first| !"|&>)".contains(*first)) {
        let (word, behind) = match first {
            '\'' => rest[1..].split_once('\'').expect("a quotation ends"),
            _ => rest.split_at(rest.find([' ', ')']).unwrap_or(rest.len())),
        };
        words.push(word.to_owned());
        rest = behind.trim_start();
    }
    words
}

/// Fails if a call cannot be parsed. Files whose contents are an argument exist for it.
fn parses(mut call: Vec<String>, place: &str) {
    for word in call.iter_mut().filter(|word| word.starts_with('@')) {
        *word = concat!("@", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").to_owned();
    }
    if let Err(error) = Cli::try_parse_from(&call) {
        panic!("{place}: {call:?}: {error}");
    }
}

#[test]
fn every_command_explains_its_exit_status() {
    for_each_leaf(&mut |_, words, helps| {
        // Commands of one family that end in the same way are explained by the family.
        assert!(helps[1..].iter().any(|help| help.contains("EXIT STATUS:\n")), "{words:?}");
    });
}

#[test]
fn every_command_has_an_example_of_itself_and_all_examples_can_be_parsed() {
    for_each_leaf(&mut |_, words, helps| {
        let own = examples(helps.last().expect("its own"));
        assert!(own.iter().any(|example| example.starts_with(words)), "{words:?}: {own:?}");
        helps.iter().flat_map(|help| examples(help)).for_each(|example| parses(example, "help"));
    });
}

#[test]
fn every_command_that_prints_data_prints_it_as_json_too() {
    // They print a script, a configuration, what another command prints, and that it is done.
    let without = ["completion", "config show", "lab exec", "lab down"];
    for_each_leaf(&mut |command, words, _| {
        let json = command.get_arguments().any(|argument| argument.get_id() == "json");
        let shown = words[1] == "show";
        assert!(json || shown || without.contains(&&*words[1..].join(" ")), "{words:?}");
    });
}

/// Calls of `signalbox` in a page: lines of code, without a prompt and what explains them.
fn calls(page: &str) -> Vec<Vec<String>> {
    let mut code = false;
    let mut calls = Vec::new();
    for line in page.lines() {
        code ^= line.starts_with("```");
        let line = match line.split_once("# ").filter(|(prompt, _)| !prompt.contains(' ')) {
            Some((_, call)) => call,
            None => line,
        };
        let indented = line.starts_with("    ");
        if let Some(call) = line.trim_start().strip_prefix("signalbox ").filter(|_| code || indented) {
            let call = call.split("  ").next().and_then(|call| call.split(" #").next()).unwrap_or_default();
            calls.extend(Some(words(call)).filter(|_| !call.contains('…')));
        }
    }
    calls
}

#[test]
fn the_calls_in_the_documentation_can_be_parsed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|page| page.unwrap().path());
    let pages = docs.filter(|page| page.extension().is_some_and(|extension| extension == "md"));
    let mut count = 0;
    for page in pages.chain([root.join("README.md"), root.join("examples/README.md")]) {
        for call in calls(&std::fs::read_to_string(&page).unwrap()) {
            count += 1;
            parses(call, &page.to_string_lossy());
        }
    }
    assert!(count > 50, "{count} calls");
}
