//! From the text of a file to a [`Scenario`], or to the line that is wrong.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::{Family, Link, NamedCheck, Node, Route, Scenario, Tree, builtin, validate};
use crate::checks::CHECKS;
use crate::steps::{AnyStep, STEPS};
use crate::{kinds, protocols};

/// Why a scenario cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum ScenarioError {
    /// The file has a mistake.
    #[error("{file}:{line}: {what}")]
    Mistake {
        /// The file's name.
        file: String,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong, and what would be right.
        what: String,
    },
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

/// The scenario that is built in under this name, or the one in the file at this path.
pub(crate) fn find(name: &str) -> Result<Scenario, ScenarioError> {
    if let Some(text) = builtin(name) {
        return read(&format!("{name}.toml"), text);
    }
    if !name.contains('/') && Path::new(name).extension().is_none_or(|extension| extension != "toml") {
        let known = super::builtins().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
        return Err(ScenarioError::Unknown { name: name.to_owned(), known });
    }
    let text = std::fs::read_to_string(name)
        .map_err(|error| ScenarioError::Unreadable { file: name.to_owned(), cause: error.to_string() })?;
    read(name, &text)
}

/// Reads the text of a scenario file; `file` is its name in errors.
pub(crate) fn read(file: &str, text: &str) -> Result<Scenario, ScenarioError> {
    let scenario = parse(text).and_then(|scenario| validate::validate(&scenario).map(|()| scenario));
    scenario.map_err(|mistake| {
        let before = text.get(..mistake.at.start).unwrap_or("");
        let line = before.bytes().filter(|octet| *octet == b'\n').count() + 1;
        ScenarioError::Mistake { file: file.to_owned(), line, what: mistake.what }
    })
}

/// Everything but the arrays whose elements are read one by one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    name: Spanned<String>,
    description: String,
    #[serde(default)]
    family: Family,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    config: toml::Table,
    #[serde(default)]
    files: BTreeMap<String, String>,
    links: Vec<Link>,
    #[serde(default)]
    routes: Vec<Route>,
    #[serde(default)]
    multicast: Vec<Tree>,
}

fn parse(text: &str) -> Result<Scenario, Mistake> {
    let mut file = DeTable::parse(text)?.into_inner();
    let nodes = elements(&mut file, "nodes")?;
    let workload = elements(&mut file, "workload")?;
    let checks = elements(&mut file, "checks")?;
    let head: Head = decode(Spanned::new(0..0, DeValue::Table(file)))?;
    validate::name(&head.name, "a scenario")?;
    let Some(nodes) = nodes else { return Err(Mistake::new(0..0, "missing field `nodes`")) };
    Ok(Scenario {
        name: head.name.into_inner(),
        description: head.description,
        family: head.family,
        seed: head.seed,
        config: head.config,
        files: head.files,
        nodes: nodes.into_iter().map(node).collect::<Result<_, _>>()?,
        links: head.links,
        routes: head.routes,
        multicast: head.multicast,
        workload: workload.into_iter().flatten().map(step).collect::<Result<_, _>>()?,
        checks: checks.into_iter().flatten().map(check).collect::<Result<_, _>>()?,
    })
}

/// A table of an array: a node, a step or a check.
pub(crate) type Element<'i> = Spanned<DeTable<'i>>;

/// Takes an array of tables out of the file; `None` if the file has no such key.
fn elements<'i>(file: &mut DeTable<'i>, key: &str) -> Result<Option<Vec<Element<'i>>>, Mistake> {
    let Some(value) = file.remove(key) else { return Ok(None) };
    let at = value.span();
    let wrong = |at| Mistake::new(at, format!("`{key}` has to be written as [[{key}]] tables"));
    let DeValue::Array(array) = value.into_inner() else { return Err(wrong(at)) };
    let table = |element: Spanned<DeValue<'i>>| {
        let at = element.span();
        match element.into_inner() {
            DeValue::Table(table) => Ok(Spanned::new(at, table)),
            _ => Err(wrong(at)),
        }
    };
    array.into_iter().map(table).collect::<Result<_, _>>().map(Some)
}

/// Takes a string out of an element.
fn take(element: &mut Element<'_>, key: &str, of: &str) -> Result<Spanned<String>, Mistake> {
    let at = element.span();
    let value = element
        .get_mut()
        .remove(key)
        .ok_or_else(|| Mistake::new(at, format!("{of} lacks the key `{key}`")))?;
    decode(value)
}

fn decode<T: DeserializeOwned>(value: Spanned<DeValue<'_>>) -> Result<T, Mistake> {
    Ok(T::deserialize(ValueDeserializer::from(value))?)
}

/// Reads what is left of an element.
pub(crate) fn rest<T: DeserializeOwned>(element: Element<'_>) -> Result<T, Mistake> {
    let at = element.span();
    decode(Spanned::new(at.clone(), DeValue::Table(element.into_inner())))
        .map_err(|mistake: Mistake| if mistake.at.is_empty() { Mistake { at, ..mistake } } else { mistake })
}

/// Reads a node. Each protocol that a node may lack has a key of its name.
fn node(mut element: Element<'_>) -> Result<Node, Mistake> {
    let (mut runs, mut keys) = (protocols::Set::new(), String::new());
    for protocol in protocols::all() {
        let mut on = true;
        if let Some(default) = protocol.switch() {
            let given = element.get_mut().remove(protocol.name()).map(decode::<bool>).transpose()?;
            on = given.unwrap_or(default);
            keys += &format!(", `{}`", protocol.name());
        }
        if on {
            runs.insert(protocol.name());
        }
    }
    let mut node: Node =
        rest(element).map_err(|mistake| match mistake.what.starts_with("unknown field") {
            true => Mistake { what: mistake.what + &keys, ..mistake },
            false => mistake,
        })?;
    node.protocols = if node.daemon { runs } else { protocols::Set::new() };
    Ok(node)
}

fn step(mut element: Element<'_>) -> Result<Box<dyn AnyStep>, Mistake> {
    let kind = take(&mut element, "step", "a workload step")?;
    let kind = kinds::find(STEPS, &kind, "step", |step| step.kind.name)?;
    (kind.kind.parse)(element)
}

fn check(mut element: Element<'_>) -> Result<NamedCheck, Mistake> {
    let name = take(&mut element, "name", "a check")?.into_inner();
    let kind = take(&mut element, "kind", "a check")?;
    let kind = kinds::find(CHECKS, &kind, "kind of check", |check| check.name)?;
    Ok(NamedCheck { name, check: (kind.parse)(element)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = r#"name = "two"
description = "two hosts"

[[nodes]]
name = "a"

[[nodes]]
name = "b"

[[links]]
ends = ["a", "b"]

[[workload]]
step = "ping"
from = "a"
to = "b"

[[checks]]
name = "all nodes visited"
kind = "path"
hops = ["a", "b"]
"#;

    fn mistake(from: &str, to: &str) -> String {
        assert!(SOUND.contains(from), "{from}");
        read("two.toml", &SOUND.replacen(from, to, 1)).expect_err("has a mistake").to_string()
    }

    #[test]
    fn a_sound_file_is_read() {
        let scenario = read("two.toml", SOUND).expect("sound");
        assert_eq!((scenario.nodes.len(), scenario.links.len()), (2, 1));
        assert!(
            scenario.nodes.iter().all(|node| node.daemon && node.protocols.contains("ping") && !node.forward)
        );
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line_and_the_keys_that_exist() {
        let message = mistake("name = \"a\"", "name = \"a\"\nfroward = true");
        let fields = "expected one of `name`, `daemon`, `forward`, `certificate`, `config`, `ping`, `qos`";
        assert!(message.starts_with(&format!("two.toml:6: unknown field `froward`, {fields}")), "{message}");
        let message = mistake("from = \"a\"", "form = \"a\"");
        assert!(
            message.starts_with("two.toml:15: unknown field `form`, expected one of `from`, `to`"),
            "{message}"
        );
        let message = mistake("hops =", "hop =");
        assert!(message.starts_with("two.toml:21: unknown field `hop`, expected one of `hops`"), "{message}");
    }

    #[test]
    fn every_mistake_has_its_line_and_says_what_would_be_right() {
        for (from, to, line, right) in [
            ("name = \"two\"", "name = \"Two\"", 1, "use 1 to 24 of a-z, 0-9 and -"),
            ("name = \"b\"", "name = \"a\"", 8, "give it another name"),
            ("ends = [\"a\", \"b\"]", "ends = [\"a\", \"c\"]", 11, "expected one of a, b"),
            ("ends = [\"a\", \"b\"]", "ends = [\"a\", \"b\"]\nrate = \"fast\"", 12, "like \"10mbit\""),
            ("ends = [\"a\", \"b\"]", "ends = [\"a\", \"b\"]\nloss = 120.0", 12, "from 0 to 100"),
            ("step = \"ping\"", "step = \"pong\"", 14, "expected one of udp, ping"),
            ("step = \"ping\"\n", "", 13, "lacks the key `step`"),
            ("to = \"b\"", "to = \"c\"", 16, "unknown node `c`, expected one of a, b"),
            ("to = \"b\"", "to = \"b\"\nsessions = 0", 17, "between 1 and 1000"),
            ("kind = \"path\"", "kind = \"road\"", 20, "expected one of forwarding, path"),
            ("description =", "description", 2, ""),
        ] {
            let message = mistake(from, to);
            assert!(message.starts_with(&format!("two.toml:{line}: ")), "{message}");
            assert!(message.contains(right), "{message} lacks {right}");
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let message = find("quikstart").expect_err("no such scenario").to_string();
        assert!(message.contains("quickstart, gist-app-python"), "{message}");
        let message = find("./no-such.toml").expect_err("no such file").to_string();
        assert!(message.starts_with("cannot read scenario ./no-such.toml"), "{message}");
    }
}
