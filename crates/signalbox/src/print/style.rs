//! Colour, on a terminal only.

use std::io::IsTerminal;
use std::sync::OnceLock;

use anstyle::{AnsiColor, Style};

/// What a text means.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Tone {
    Heading,
    Good,
    Bad,
}

/// The text in the colour of its tone, if standard output is a terminal and `NO_COLOR` is not set.
pub(crate) fn paint(tone: Tone, text: &str) -> String {
    if !is_on() {
        return text.to_owned();
    }
    let style = match tone {
        Tone::Heading => Style::new().bold(),
        Tone::Good => AnsiColor::Green.on_default(),
        Tone::Bad => AnsiColor::Red.on_default(),
    };
    format!("{style}{text}{style:#}")
}

static ON: OnceLock<bool> = OnceLock::new();

/// What is printed goes to no terminal, wherever standard output goes. Without effect after the first text.
pub(crate) fn without_terminal() {
    let _ = ON.set(false);
}

/// Whether colors are wanted: standard output is a terminal, and `NO_COLOR` is not set.
pub(crate) fn is_on() -> bool {
    *ON.get_or_init(|| {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        !refused && !dumb && std::io::stdout().is_terminal()
    })
}
