//! The command line as a whole: its status, its help, and the calls of it in the documentation.

use signalbox_cli::checks::Line;

use super::*;

fn line() -> Line {
    Line::new("signalbox", own_command_line())
}

#[test]
fn the_command_line_is_consistent() {
    command_line().debug_assert();
}

fn run_words(line: &str) -> Exit {
    run(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
}

#[test]
fn the_socket_is_an_option_of_commands_that_ask_the_daemon_only() {
    for line in ["signalbox show gist peers --socket /s", "signalbox show --socket /s gist peers"] {
        assert!(command_line().try_get_matches_from(line.split(' ')).is_ok(), "{line}");
    }
    let line = "signalbox decode --socket /s";
    assert!(command_line().try_get_matches_from(line.split(' ')).is_err(), "{line}");
}

#[test]
fn the_status_shows_wrong_arguments_and_a_missing_daemon() {
    assert_eq!(run_words("signalbox --version"), Exit::Yes);
    assert_eq!(run_words("signalbox reserve"), Exit::Usage);
    assert_eq!(run_words("signalbox --json show status"), Exit::Usage);
    assert_eq!(run_words("signalbox show status --socket /none/such"), Exit::Environment);
    assert_eq!(run_words("signalbox show status --json --socket /none/such"), Exit::Environment);
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
    // They print a script and a configuration.
    line().prints_json(&["completion", "config show"]);
}

#[test]
fn the_calls_in_the_documentation_can_be_parsed() {
    let count = line().parses_the_documentation();
    assert!(count > 50, "{count} calls");
}
