//! The exit status of all commands, and what becomes of errors.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Exit {
    /// The answer is yes.
    Yes,
    /// The answer is no: refused, lost, unanswered, or less than was asked.
    No,
    /// The command line is wrong.
    Usage,
    /// The command could not ask: no daemon, a missing right, a protocol that does not run.
    Environment,
    /// The status of a part that has its own, such as the command that `lab exec` runs.
    Of(ExitCode),
}

impl Exit {
    /// `Yes` if it holds.
    #[must_use]
    pub const fn yes_if(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Yes => Self::SUCCESS,
            Exit::No => Self::from(1),
            Exit::Usage => Self::from(2),
            Exit::Environment => Self::from(3),
            Exit::Of(status) => status,
        }
    }
}

/// The part of a help text about the exit status, from the meaning of 0 and that of 1.
#[macro_export]
macro_rules! exit_status {
    ($yes:literal, $no:literal) => {
        concat!(
            "EXIT STATUS:\n  0  ",
            $yes,
            "\n  1  ",
            $no,
            "\n  2  the command line is wrong\n",
            "  3  no daemon, a missing right, or a protocol that does not run\n\n"
        )
    };
    ($yes:literal) => {
        concat!(
            "EXIT STATUS:\n  0  ",
            $yes,
            "\n  2  the command line is wrong\n",
            "  3  no daemon, a missing right, or a protocol that does not run\n\n"
        )
    };
}
pub use crate::exit_status;

/// A mistake in the command line that the parser of arguments cannot find.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Returns from the function with a [`Usage`](crate::exit::Usage) error.
#[macro_export]
macro_rules! usage {
    ($($text:tt)*) => { return Err($crate::exit::Usage(format!($($text)*)).into()) };
}
pub use crate::usage;

/// A request that the daemon refused.
#[derive(Debug)]
pub struct Refusal {
    /// How the command ends.
    pub exit: Exit,
    /// For programs, in lower case.
    pub reason: String,
    /// For people.
    pub message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

/// No daemon answers at the socket.
#[derive(Debug)]
pub struct NoDaemon(pub String);

impl fmt::Display for NoDaemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoDaemon {}

/// An error as a line of JSON.
#[derive(Debug, Serialize)]
struct Line<'a> {
    r#type: &'a str,
    reason: &'a str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
}

/// Prints an error on standard error, as text or as a line of JSON, and returns the exit status.
pub fn report(error: &anyhow::Error, json: bool) -> Exit {
    // The reader of the output closed it, as `head` does.
    if is_broken_pipe(error) {
        return Exit::Yes;
    }
    let (exit, reason) = classify(error);
    // The exit status remains correct even if the message cannot be written.
    let _ = if json {
        let causes: Vec<String> = error.chain().skip(1).map(ToString::to_string).collect();
        let cause = (!causes.is_empty()).then(|| causes.join(": "));
        let line = Line { r#type: "error", reason, message: error.to_string(), cause };
        writeln!(io::stderr(), "{}", serde_json::to_string(&line).unwrap_or_default())
    } else {
        writeln!(io::stderr(), "signalbox: {error:#}")
    };
    exit
}

/// Prints a mistake in the command line.
pub(crate) fn report_usage(message: &clap::Error, json: bool) -> Exit {
    if !message.use_stderr() {
        let _ = message.print();
        return Exit::Yes;
    }
    if !json {
        let _ = message.print();
        return Exit::Usage;
    }
    report(&Usage(mistake(&message.to_string())).into(), true)
}

/// What is wrong, in one line, by the text for people: what the arguments would be follows it there.
fn mistake(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let words: Vec<&str> = lines
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .collect();
    let text = words.join(" ");
    text.strip_prefix("error: ").unwrap_or(&text).to_owned()
}

fn classify(error: &anyhow::Error) -> (Exit, &str) {
    for cause in error.chain() {
        if cause.is::<Usage>() {
            return (Exit::Usage, "usage");
        }
        if cause.is::<NoDaemon>() {
            return (Exit::Environment, "no_daemon");
        }
        if let Some(refusal) = cause.downcast_ref::<Refusal>() {
            return (refusal.exit, &refusal.reason);
        }
    }
    (Exit::Environment, "environment")
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_pipe_is_recognised_below_other_errors() {
        let error = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe)).context("printing");
        assert!(is_broken_pipe(&error));
        assert!(!is_broken_pipe(&anyhow::anyhow!("else")));
    }

    /// The message for programs names the missing arguments, too.
    #[test]
    fn a_mistake_is_one_line() {
        let command = clap::Command::new("reserve").arg(clap::arg!(--rate <RATE>).required(true));
        let missing = command.arg(clap::arg!(<DESTINATION>)).try_get_matches_from(["reserve"]).unwrap_err();
        let text = "the following required arguments were not provided: --rate <RATE> <DESTINATION>";
        assert_eq!(mistake(&missing.to_string()), text);
        assert_eq!(mistake("error: no\n\nFor more information, try '--help'.\n"), "no");
    }

    #[test]
    fn the_status_follows_from_the_kind_of_error() {
        let usage = anyhow::Error::from(Usage("--x".into())).context("reading");
        assert_eq!(classify(&usage), (Exit::Usage, "usage"));
        let refusal = Refusal { exit: Exit::No, reason: "no_such_reservation".into(), message: "7".into() };
        assert_eq!(classify(&refusal.into()), (Exit::No, "no_such_reservation"));
        assert_eq!(classify(&anyhow::anyhow!("no right")), (Exit::Environment, "environment"));
    }
}
