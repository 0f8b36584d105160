//! The words of commands as JSON: what a script that completes them in a shell needs to know, for a program that does not have these
//! commands itself.

use clap::builder::{PossibleValue, PossibleValuesParser, ValueRange};
use clap::{Arg, ArgAction, Command, ValueHint};
use serde::{Deserialize, Serialize};

/// A command.
#[derive(Debug, Serialize, Deserialize)]
pub struct Words {
    name: String,
    about: Option<String>,
    arguments: Vec<Argument>,
    below: Vec<Words>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Argument {
    name: String,
    help: Option<String>,
    short: Option<char>,
    long: Option<String>,
    /// Whether no value follows.
    flag: bool,
    /// Whether it can be given several times.
    repeated: bool,
    required: bool,
    /// Whether it stands behind `--`.
    last: bool,
    /// The least and the greatest number of values.
    number: Option<(usize, usize)>,
    value_names: Vec<String>,
    /// A kind of values that shells know.
    hint: String,
    values: Vec<Value>,
    conflicts: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Value {
    name: String,
    help: Option<String>,
    hidden: bool,
}

impl Words {
    /// The words of the commands below this one that its help lists.
    #[must_use]
    pub fn below(command: &Command) -> Vec<Self> {
        command.get_subcommands().filter(|below| !below.is_hide_set()).map(Self::of).collect()
    }

    fn of(command: &Command) -> Self {
        Self {
            name: command.get_name().to_owned(),
            about: command.get_about().map(ToString::to_string),
            arguments: command.get_arguments().map(|arg| Argument::of(command, arg)).collect(),
            below: Self::below(command),
        }
    }

    /// Makes a command with these words. It completes them, and takes no values from a command line.
    #[must_use]
    pub fn command(self) -> Command {
        let mut command = Command::new(self.name);
        if let Some(about) = self.about {
            command = command.about(about);
        }
        command
            .args(self.arguments.into_iter().map(Argument::arg))
            .subcommands(self.below.into_iter().map(Self::command))
    }
}

impl Argument {
    fn of(command: &Command, arg: &Arg) -> Self {
        let action = arg.get_action();
        let conflicts = command.get_arg_conflicts_with(arg);
        Self {
            name: arg.get_id().to_string(),
            help: arg.get_help().map(ToString::to_string),
            short: arg.get_short(),
            long: arg.get_long().map(str::to_owned),
            flag: !action.takes_values(),
            repeated: matches!(action, ArgAction::Append | ArgAction::Count),
            required: arg.is_required_set(),
            last: arg.is_last_set(),
            number: arg.get_num_args().map(|range| (range.min_values(), range.max_values())),
            value_names: arg.get_value_names().into_iter().flatten().map(ToString::to_string).collect(),
            hint: format!("{:?}", arg.get_value_hint()),
            values: arg.get_possible_values().iter().map(Value::of).collect(),
            conflicts: conflicts.into_iter().map(|other| other.get_id().to_string()).collect(),
        }
    }

    fn arg(self) -> Arg {
        let action = match (self.flag, self.repeated) {
            (true, true) => ArgAction::Count,
            (true, false) => ArgAction::SetTrue,
            (false, true) => ArgAction::Append,
            (false, false) => ArgAction::Set,
        };
        let mut arg = Arg::new(self.name)
            .action(action)
            .required(self.required)
            .last(self.last)
            .conflicts_with_all(self.conflicts);
        if let Some(short) = self.short {
            arg = arg.short(short);
        }
        if let Some(long) = self.long {
            arg = arg.long(long);
        }
        if let Some(help) = self.help {
            arg = arg.help(help);
        }
        if self.flag {
            return arg;
        }
        if let Some((least, most)) = self.number {
            arg = arg.num_args(ValueRange::new(least..=most));
        }
        if !self.value_names.is_empty() {
            arg = arg.value_names(self.value_names);
        }
        if !self.values.is_empty() {
            arg = arg.value_parser(PossibleValuesParser::new(self.values.into_iter().map(Value::possible)));
        }
        arg.value_hint(self.hint.parse().unwrap_or(ValueHint::Unknown))
    }
}

impl Value {
    fn of(value: &PossibleValue) -> Self {
        Self {
            name: value.get_name().to_owned(),
            help: value.get_help().map(ToString::to_string),
            hidden: value.is_hide_set(),
        }
    }

    fn possible(self) -> PossibleValue {
        let value = PossibleValue::new(self.name).hide(self.hidden);
        match self.help {
            Some(help) => value.help(help),
            None => value,
        }
    }
}
