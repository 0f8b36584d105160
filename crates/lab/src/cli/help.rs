//! The form of help texts.

/// Composes the help text of a command: the meanings of its exit statuses, if they are given, and examples without the name
/// of the program. Given are a text about all statuses, or the meanings of 0 and 1, or of 0, 1 and 3.
macro_rules! help {
    ([$text:literal], $($example:literal),+ $(,)?) => {
        concat!("EXIT STATUS:\n  ", $text, "\n\n", $crate::cli::help::help!($($example),+))
    };
    ([$zero:literal, $one:literal $(,)?], $($example:literal),+ $(,)?) => {
        concat!(
            "EXIT STATUS:\n  0  ",
            $zero,
            "\n  1  ",
            $one,
            "\n  2  the command line is wrong\n\n",
            $crate::cli::help::help!($($example),+)
        )
    };
    ([$zero:literal, $one:literal, $three:literal $(,)?], $($example:literal),+ $(,)?) => {
        concat!(
            "EXIT STATUS:\n  0  ",
            $zero,
            "\n  1  ",
            $one,
            "\n  2  the command line is wrong\n  3  ",
            $three,
            "\n\n",
            $crate::cli::help::help!($($example),+)
        )
    };
    ($($example:literal),+ $(,)?) => { concat!("EXAMPLES:", $("\n  signalbox ", $example),+) };
}
pub(crate) use help;
