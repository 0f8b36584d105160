//! The commands that the program of the lab carries out.

/// The program, and the package that has it.
pub const PROGRAM: &str = "signalbox-lab";

/// The command of the program that prints the words of its command line; it is hidden.
pub const WORDS: &str = "words";

/// The commands, with the line of each in a list of commands.
pub const COMMANDS: [(&str, &str); 4] = [
    ("replay", "Give a new node the inputs that a daemon recorded, and print what it does"),
    ("lab", "Networks of namespaces on this machine, and scenarios that run in them"),
    (
        "sim",
        "Scenarios in virtual time: the same engines without a kernel, with any number of seeds and faults",
    ),
    ("bench", "Measure the engines and the daemon on this machine"),
];

/// Whether the program carries out the command of this name.
#[must_use]
pub fn has(name: &str) -> bool {
    COMMANDS.iter().any(|(command, _)| *command == name)
}
