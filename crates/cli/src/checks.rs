//! Checks of the command line of a program, for its tests: its help, and the calls of it in the documentation.

use std::path::Path;

use clap::Command;

/// The command line of a program.
#[derive(Debug)]
pub struct Line {
    /// The word by which people call it.
    name: &'static str,
    command: Command,
}

/// What is done with a command that has no commands below it: itself, its words, and the help of it and of those above.
type Check<'a> = dyn FnMut(&Command, &[String], &[String]) + 'a;

impl Line {
    /// The command line `command` of a program that people call by the word `name`.
    #[must_use]
    pub fn new(name: &'static str, command: Command) -> Self {
        Self { name, command }
    }

    fn for_each_leaf(&self, check: &mut Check<'_>) {
        fn walk(command: &Command, (words, helps): (&[String], &[String]), check: &mut Check<'_>) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let helps = [helps, &[help]].concat();
            let hidden = |below: &Command| below.is_hide_set() || below.get_name() == "help";
            let below: Vec<_> = command.get_subcommands().filter(|below| !hidden(below)).collect();
            if below.is_empty() {
                check(command, words, &helps);
            }
            for below in below {
                walk(below, (&[words, &[below.get_name().to_owned()]].concat(), &helps), check);
            }
        }
        walk(&self.command, (&[self.name.to_owned()], &[]), check);
    }

    /// Fails if a command does not explain its exit status.
    pub fn explains_its_exit_status(&self) {
        self.for_each_leaf(&mut |_, words, helps| {
            // Commands of one family that end in the same way are explained by the family.
            assert!(helps[1..].iter().any(|help| help.contains("EXIT STATUS:\n")), "{words:?}");
        });
    }

    /// Fails if a command has no example of itself, or if an example cannot be parsed.
    pub fn has_examples(&self) {
        self.for_each_leaf(&mut |_, words, helps| {
            let own = self.examples(helps.last().expect("its own"));
            assert!(own.iter().any(|example| example.starts_with(words)), "{words:?}: {own:?}");
            let all = helps.iter().flat_map(|help| self.examples(help));
            all.filter(|example| self.is_own(example)).for_each(|example| self.parses(example, "help"));
        });
    }

    /// Fails if a command has no option `--json`, except for those `without` it. What `show` and `net` show has the option above.
    pub fn prints_json(&self, without: &[&str]) {
        self.for_each_leaf(&mut |command, words, _| {
            let json = command.get_arguments().any(|argument| argument.get_id() == "json");
            let shown = ["show", "net"].contains(&words[1].as_str());
            assert!(json || shown || without.contains(&&*words[1..].join(" ")), "{words:?}");
        });
    }

    /// Fails if a call of the program in the documentation cannot be parsed. Returns the number of calls.
    #[must_use]
    pub fn parses_the_documentation(&self) -> usize {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let docs = std::fs::read_dir(root.join("docs")).expect("it is there");
        let docs = docs.map(|page| page.expect("it can be read").path());
        let pages = docs.filter(|page| page.extension().is_some_and(|extension| extension == "md"));
        let mut count = 0;
        for page in pages.chain([root.join("README.md"), root.join("examples/README.md")]) {
            let text = std::fs::read_to_string(&page).expect("it can be read");
            for call in self.calls(&text).into_iter().filter(|call| self.is_own(call)) {
                count += 1;
                self.parses(call, &page.to_string_lossy());
            }
        }
        count
    }

    /// Whether a call is of one of the commands, and not of another program that has the same name for people. An option is, too.
    fn is_own(&self, call: &[String]) -> bool {
        let Some(word) = call.get(1) else { return true };
        let others_know = self.command.get_name() != self.name || crate::lab::has(word);
        self.command.find_subcommand(word).is_some() || !others_know
    }

    /// Fails if a call cannot be parsed. Files whose contents are an argument exist for it.
    fn parses(&self, mut call: Vec<String>, place: &str) {
        for word in call.iter_mut().filter(|word| word.starts_with('@')) {
            *word = concat!("@", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").to_owned();
        }
        if let Err(error) = self.command.clone().try_get_matches_from(&call) {
            panic!("{place}: {call:?}: {error}");
        }
    }

    /// The examples of a help text: the words of each call of the program, without what the shell does with it.
    fn examples(&self, help: &str) -> Vec<Vec<String>> {
        let help = help.replace("\\\n", "");
        let lines =
            help.lines().skip_while(|line| *line != "EXAMPLES:").skip(1).take_while(|line| !line.is_empty());
        let calls =
            lines.flat_map(|line| line.split_inclusive([')', '|']).flat_map(|part| part.split("&& ")));
        let name = format!("{} ", self.name);
        calls.filter_map(|call| call.split_once(&name)).map(|(_, call)| self.words(call)).collect()
    }

    /// Splits a call as a shell does; it ends where the shell takes over.
    fn words(&self, call: &str) -> Vec<String> {
        let mut words = vec![self.name.to_owned()];
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

    /// Calls of the program in a page: lines of code, without a prompt and what explains them.
    fn calls(&self, page: &str) -> Vec<Vec<String>> {
        let mut code = false;
        let mut calls = Vec::new();
        let name = format!("{} ", self.name);
        for line in page.lines() {
            code ^= line.starts_with("```");
            let line = match line.split_once("# ").filter(|(prompt, _)| !prompt.contains(' ')) {
                Some((_, call)) => call,
                None => line,
            };
            let indented = line.starts_with("    ");
            if let Some(call) = line.trim_start().strip_prefix(&name).filter(|_| code || indented) {
                let call =
                    call.split("  ").next().and_then(|call| call.split(" #").next()).unwrap_or_default();
                calls.extend(Some(self.words(call)).filter(|_| !call.contains('…')));
            }
        }
        calls
    }
}
