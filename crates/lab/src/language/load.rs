//! From the text of a file to a [`Scenario`], or to all its mistakes with their lines.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use signalbox_units::Span;
use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::checks::CHECKS;
use super::kinds;
use super::source::{Sources, names, substitute, text_of};
use super::steps::STEPS;
use super::{Family, NamedCheck, NamedStep, Requirement, Route, Scenario, Tree, sweep, topology, validate};

/// The version of the language.
const VERSION: u32 = 2;

/// Why a scenario cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum ScenarioError {
    /// The file has mistakes.
    #[error("{}", .0.join("\n"))]
    Mistakes(
        /// Each with file and line, what is wrong, and what would be right.
        Vec<String>,
    ),
    /// The file cannot be read.
    #[error("cannot read scenario {file}: {cause}; give the path of a readable TOML file")]
    Unreadable {
        /// The file's name.
        file: String,
        /// The error of the system.
        cause: String,
    },
    /// No scenario has this name.
    #[error("no scenario {name:?}; there are {known}; a file is given by its path, like ./mine.toml")]
    Unknown {
        /// The name.
        name: String,
        /// The names that exist.
        known: String,
    },
}

/// A mistake before it is known on which line it stands.
#[derive(Debug)]
pub(crate) struct Mistake {
    pub(crate) at: Range<usize>,
    pub(crate) what: String,
}

impl Mistake {
    pub(crate) fn new(at: Range<usize>, what: impl Into<String>) -> Self {
        Self { at, what: what.into() }
    }
}

impl From<toml::de::Error> for Mistake {
    fn from(error: toml::de::Error) -> Self {
        // The parser's messages may span lines; an error is one line here.
        Self::new(error.span().unwrap_or(0..0), error.message().replace('\n', "; "))
    }
}

/// The scenario that is built in under this name, or the one in the file at this path; `set` are values of its parameters.
pub(crate) fn find(name: &str, set: &[(String, String)]) -> Result<Scenario, ScenarioError> {
    let (file, text) = text_of(name)?;
    read_with(&file, &text, set)
}

/// Reads the text of a scenario file; `file` is its name in errors.
pub(crate) fn read(file: &str, text: &str) -> Result<Scenario, ScenarioError> {
    read_with(file, text, &[])
}

/// Reads the text of a scenario file with other values of its parameters.
pub(super) fn read_with(file: &str, text: &str, set: &[(String, String)]) -> Result<Scenario, ScenarioError> {
    let sources = Sources::of(file, text, set)?;
    let mut mistakes = Vec::new();
    let table = sources.table(&mut mistakes);
    // What another scenario has for a step that this one replaces is no mistake of this one.
    if mistakes.is_empty() {
        mistakes.extend(unused(&table).into_iter().filter(|mistake| sources.is_own(mistake.at.start)));
    }
    let scenario =
        parse(table, &mut mistakes).map(|scenario| Scenario { digest: sources.digest(), ..scenario });
    if let Some(scenario) = &scenario {
        // What cannot be read would be missed here, and reported again.
        if mistakes.is_empty() {
            validate::validate(scenario, &mut mistakes);
        }
    }
    if let (Some(scenario), true) = (scenario, mistakes.is_empty()) {
        return Ok(scenario);
    }
    mistakes.sort_by_key(|mistake| mistake.at.start);
    let mut lines: Vec<String> = mistakes
        .into_iter()
        .map(|mistake| {
            let (file, line) = sources.place(mistake.at.start);
            format!("{file}:{line}: {}", mistake.what)
        })
        .collect();
    lines.dedup();
    Err(ScenarioError::Mistakes(lines))
}

/// Everything but the network, the steps and the checks.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    version: Spanned<u32>,
    name: Spanned<String>,
    description: String,
    #[serde(rename = "extends")]
    _extends: Option<String>,
    #[serde(default)]
    requires: Vec<Requirement>,
    timeout: Option<Span>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    family: Family,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    config: toml::Table,
    #[serde(default)]
    files: BTreeMap<String, String>,
    #[serde(default)]
    routes: Vec<Route>,
    #[serde(default)]
    multicast: Vec<Tree>,
}

fn parse(mut file: DeTable<'_>, mistakes: &mut Vec<Mistake>) -> Option<Scenario> {
    let parameters = parameters(&mut file, mistakes);
    let sweep = sweep::read(&mut file, &parameters, mistakes);
    let (nodes, links) = topology::read(&mut file, mistakes);
    let steps = elements(&mut file, "steps", mistakes);
    let checks = elements(&mut file, "checks", mistakes);
    let workload = steps.into_iter().filter_map(|element| kept(step(element), mistakes)).collect();
    let checks = checks.into_iter().filter_map(|element| kept(check(element), mistakes)).collect();
    let head: Head = match decode(Spanned::new(0..0, DeValue::Table(file))) {
        Ok(head) => head,
        Err(mistake) => {
            mistakes.push(mistake);
            return None;
        }
    };
    if *head.version.as_ref() != VERSION {
        let what =
            format!("this program reads version {VERSION} of the language; write `version = {VERSION}`");
        mistakes.push(Mistake::new(head.version.span(), what));
    }
    if let Err(mistake) = validate::name(&head.name, "a scenario") {
        mistakes.push(mistake);
    }
    Some(Scenario {
        name: head.name.into_inner(),
        digest: String::new(),
        parameters,
        sweep,
        description: head.description,
        requires: head.requires,
        timeout: head.timeout,
        tags: head.tags,
        family: head.family,
        seed: head.seed,
        config: head.config,
        files: head.files,
        nodes,
        links,
        routes: head.routes,
        multicast: head.multicast,
        workload,
        checks,
    })
}

fn kept<T>(read: Result<T, Vec<Mistake>>, mistakes: &mut Vec<Mistake>) -> Option<T> {
    read.map_err(|found| mistakes.extend(found)).ok()
}

/// Takes `[params]` out of the file and puts its values where they are named. Returns them.
fn parameters(file: &mut DeTable<'_>, mistakes: &mut Vec<Mistake>) -> toml::Table {
    let params = topology::table(file, "params", mistakes).map(Spanned::into_inner).unwrap_or_default();
    for (_, value) in file.iter_mut() {
        substitute(value.get_mut(), &params);
    }
    let read = |(name, value): (Spanned<_>, Spanned<DeValue<'_>>)| {
        let name: std::borrow::Cow<'_, str> = name.into_inner();
        Some((name.into_owned(), kept(decode(value).map_err(|mistake| vec![mistake]), mistakes)?))
    };
    params.into_iter().filter_map(read).collect()
}

/// Parameters that no text names: a value for them would change nothing.
fn unused(file: &DeTable<'_>) -> Vec<Mistake> {
    let params = file.get("params").and_then(|params| params.get_ref().as_table());
    let named = |name: &str| {
        let mut rest = file.iter().filter(|(key, _)| key.get_ref() != "params");
        rest.any(|(_, value)| names(value.get_ref(), name))
    };
    let unused = params.into_iter().flatten().filter(|(name, _)| !named(name.get_ref()));
    unused
        .map(|(name, value)| {
            let name = name.get_ref();
            let what = format!(
                "the parameter `{name}` is named nowhere: write \"${{{name}}}\" where its value belongs"
            );
            Mistake::new(value.span(), what)
        })
        .collect()
}

/// A table of an array: a step or a check.
pub(crate) type Element<'i> = Spanned<DeTable<'i>>;

/// Takes an array of tables out of the file.
fn elements<'i>(file: &mut DeTable<'i>, key: &str, mistakes: &mut Vec<Mistake>) -> Vec<Element<'i>> {
    let Some(value) = file.remove(key) else { return Vec::new() };
    let at = value.span();
    let wrong = |at| Mistake::new(at, format!("`{key}` has to be written as [[{key}]] tables"));
    let DeValue::Array(array) = value.into_inner() else {
        mistakes.push(wrong(at));
        return Vec::new();
    };
    let mut found = Vec::new();
    for element in array {
        let at = element.span();
        match element.into_inner() {
            DeValue::Table(table) => found.push(Spanned::new(at, table)),
            _ => mistakes.push(wrong(at)),
        }
    }
    found
}

/// Takes a text out of an element.
fn take(element: &mut Element<'_>, key: &str) -> Result<Option<Spanned<String>>, Mistake> {
    element.get_mut().remove(key).map(decode).transpose()
}

pub(super) fn decode<T: DeserializeOwned>(value: Spanned<DeValue<'_>>) -> Result<T, Mistake> {
    Ok(T::deserialize(ValueDeserializer::from(value))?)
}

/// Reads what is left of an element.
pub(crate) fn rest<T: DeserializeOwned>(element: Element<'_>) -> Result<T, Mistake> {
    let at = element.span();
    decode(Spanned::new(at.clone(), DeValue::Table(element.into_inner())))
        .map_err(|mistake: Mistake| if mistake.at.is_empty() { Mistake { at, ..mistake } } else { mistake })
}

fn step(mut element: Element<'_>) -> Result<NamedStep, Vec<Mistake>> {
    let id = take(&mut element, "id").map_err(|mistake| vec![mistake])?;
    let kinds = STEPS.iter().map(|step| (step.name, step.keys));
    let kind = kinds::splice(kinds, &mut element, "step")?;
    let at = element.span();
    let kind = &STEPS[kind];
    Ok(NamedStep { id, at, kind: kind.name, step: (kind.parse)(element).map_err(|mistake| vec![mistake])? })
}

fn check(mut element: Element<'_>) -> Result<NamedCheck, Vec<Mistake>> {
    let at = element.span();
    let name = take(&mut element, "expect").map_err(|mistake| vec![mistake])?;
    let Some(name) = name else {
        let what = "a check lacks `expect`, which says what has to hold, like `expect = \"nothing is lost\"`";
        return Err(vec![Mistake::new(at, what)]);
    };
    let kind = kinds::splice(CHECKS.iter().map(|kind| (kind.name, kind.keys)), &mut element, "check")?;
    let check = (CHECKS[kind].parse)(element).map_err(|mistake| vec![mistake])?;
    Ok(NamedCheck { name: name.into_inner(), at, check })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = r#"version = 2
name = "two"
description = "two hosts"

[topology]
chain = ["a", "b"]

[params]
count = 3

[nodes.a]
protocols = ["gist", "ping"]

[[steps]]
id = "first"
ping = { from = "a", to = "b", count = "${count}" }

[[checks]]
expect = "all nodes visited"
path = ["a", "b"]
ping = "first"
"#;

    fn mistakes(changes: &[(&str, &str)]) -> String {
        let mut text = SOUND.to_owned();
        for (from, to) in changes {
            assert!(text.contains(from), "{from}");
            text = text.replacen(from, to, 1);
        }
        read("two.toml", &text).expect_err("has a mistake").to_string()
    }

    #[test]
    fn a_sound_file_is_read_with_the_defaults_of_its_network() {
        let scenario = read("two.toml", SOUND).expect("sound");
        assert_eq!((scenario.nodes.len(), scenario.links.len()), (2, 1));
        assert!(
            scenario.nodes.iter().all(|node| node.daemon && node.protocols.contains("ping") && !node.forward)
        );
        assert_eq!(scenario.workload[0].kind, "ping");
        let defaults = "[topology.all_links]\nrate = \"8mbit\"\n[links.b-c]\nrate = \"1mbit\"\n[nodes.c]\ndaemon = false\n";
        let scenario = read("two.toml", &format!("{SOUND}{defaults}")).expect("sound");
        let rates: Vec<_> = scenario.links.iter().filter_map(|link| Some(link.rate?.0)).collect();
        assert_eq!(rates, [8_000_000, 1_000_000]);
        assert_eq!(scenario.nodes.iter().map(|node| node.forward).collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn all_mistakes_are_reported_at_once_with_line_and_what_would_be_right() {
        let text = mistakes(&[
            ("[\"gist\", \"ping\"]", "[\"gist\", \"pong\"]"),
            ("count = \"${count}\"", "cuont = \"${count}\""),
            ("path = [\"a\", \"b\"]\nping = \"first\"", "paht = [\"a\"]"),
        ]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(
            lines[0].starts_with("two.toml:12: unknown protocol `pong`, expected one of gist, ping"),
            "{text}"
        );
        assert!(
            lines[1].starts_with("two.toml:16: unknown field `cuont`, expected one of `from`, `to`"),
            "{text}"
        );
        assert!(lines[2].starts_with("two.toml:18: a check has one of the keys show, messages"), "{text}");
    }

    #[test]
    fn every_mistake_has_its_line() {
        for (from, to, line, right) in [
            ("version = 2", "version = 1", 1, "write `version = 2`"),
            ("name = \"two\"", "name = \"Two\"", 2, "use 1 to 24 of a-z, 0-9 and -"),
            ("[\"a\", \"b\"]\n\n[params]", "[\"a\", \"a\"]\n\n[params]", 6, "a link joins two nodes"),
            ("[nodes.a]", "[links.ab]\n[nodes.a]", 11, "like [links.h1-r1]"),
            ("[nodes.a]", "[links.a-c]\n[nodes.a]", 11, "expected one of a, b"),
            ("from = \"a\", ", "", 14, "`ping` lacks the key `from` (node)"),
            ("to = \"b\"", "to = \"c\"", 16, "unknown node `c`, expected one of a, b"),
            ("to = \"b\"", "to = \"b\", sessions = 0", 16, "between 1 and 1000"),
            (
                "ping = \"first\"",
                "ping = \"second\"",
                21,
                "no earlier ping step has the id `second`, expected one of first",
            ),
            ("description =", "description", 3, ""),
        ] {
            let message = mistakes(&[(from, to)]);
            assert!(message.contains(&format!("two.toml:{line}: ")), "{message} is not on line {line}");
            assert!(message.contains(right), "{message} lacks {right}");
        }
    }

    #[test]
    fn parameters_are_set_and_unknown_ones_refused() {
        let set = |name: &str, value: &str| read_with("two.toml", SOUND, &[(name.into(), value.into())]);
        let five = set("count", "5").expect("sound");
        assert_eq!(five.parameters["count"], toml::Value::from(5));
        let plain = read("two.toml", SOUND).expect("sound");
        assert_eq!((plain.parameters["count"].as_integer(), &plain.digest), (Some(3), &five.digest));
        assert_eq!(plain.digest.len(), 64);
        let other = read("two.toml", &SOUND.replace("two hosts", "hosts")).expect("sound");
        assert_ne!(plain.digest, other.digest);
        let refused = set("count", "many").expect_err("no number").to_string();
        assert!(refused.contains("invalid type: string \"many\""), "{refused}");
        let refused = set("cuont", "5").expect_err("unknown").to_string();
        assert!(refused.contains("no parameter `cuont`, expected one of count"), "{refused}");
    }

    #[test]
    fn a_scenario_that_extends_another_replaces_what_it_names() {
        let text = "version = 2\nname = \"mine\"\nextends = \"quickstart\"\n[links.r1-r2]\nrate = \"5mbit\"\n\
                    [[checks]]\nexpect = \"the signal visits every node\"\npath = [\"h1\", \"r1\"]\n";
        let (base, mine) = (find("quickstart", &[]).expect("sound"), read("mine.toml", text).expect("sound"));
        assert_eq!((mine.name.as_str(), &mine.description), ("mine", &base.description));
        assert_eq!((mine.checks.len(), mine.workload.len()), (base.checks.len(), base.workload.len()));
        assert_eq!(mine.links[1].rate.map(|rate| rate.0), Some(5_000_000));
        let wrong = read("mine.toml", &text.replace("\"r1\"]", "\"x\"]")).expect_err("a mistake").to_string();
        assert!(wrong.starts_with("mine.toml:8: unknown node `x`"), "{wrong}");
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let message = find("quikstart", &[]).expect_err("no such scenario").to_string();
        assert!(message.contains("quickstart, boomerang,"), "{message}");
        let message = find("./no-such.toml", &[]).expect_err("no such file").to_string();
        assert!(message.starts_with("cannot read scenario ./no-such.toml"), "{message}");
    }
}
