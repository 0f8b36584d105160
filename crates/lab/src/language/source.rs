//! The text of a scenario and of those that it extends, as one table.
//!
//! Each text has its own range of places, one behind the other, so that a place says in which file a mistake is.

use std::path::Path;

use ring::digest::{Context, SHA256};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::builtin;
use super::load::{Mistake, ScenarioError};

/// A longer chain of `extends` is a mistake.
const DEPTH_MAX: usize = 8;

/// The name of the text that holds the parameters of the command line.
const SET: &str = "--set";

/// The file of a scenario, or of one that it extends.
#[derive(Debug)]
struct Source {
    file: String,
    /// Where its text begins.
    start: usize,
    /// Its text behind so much empty space that places in it are places in all texts.
    padded: String,
}

/// The texts of a scenario: its own first, then that of the scenario that it extends, and so on.
#[derive(Debug)]
pub(super) struct Sources(Vec<Source>);

/// Returns the name and the text of a scenario: one that is built in, or the file at a path.
pub(super) fn text_of(name: &str) -> Result<(String, String), ScenarioError> {
    if let Some(text) = builtin(name) {
        return Ok((format!("{name}.toml"), text.to_owned()));
    }
    if !name.contains('/') && Path::new(name).extension().is_none_or(|extension| extension != "toml") {
        let known = super::builtins().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
        return Err(ScenarioError::Unknown { name: name.to_owned(), known });
    }
    match std::fs::read_to_string(name) {
        Ok(text) => Ok((name.to_owned(), text)),
        Err(error) => Err(ScenarioError::Unreadable { file: name.to_owned(), cause: error.to_string() }),
    }
}

impl Sources {
    /// Reads the scenarios that a text extends. `set` are parameters with their values, which lie over all texts.
    pub(super) fn of(file: &str, text: &str, set: &[(String, String)]) -> Result<Self, ScenarioError> {
        let mut sources = Vec::new();
        let mut start = 0;
        if !set.is_empty() {
            let quoted = |value: &String| match DeValue::parse(value) {
                Ok(_) => value.clone(),
                Err(_) => toml::Value::from(value.as_str()).to_string(),
            };
            let lines = set.iter().map(|(name, value)| format!("params.{name} = {}\n", quoted(value)));
            let padded: String = lines.collect();
            start = padded.len() + 1;
            sources.push(Source { file: SET.to_owned(), start: 0, padded });
        }
        sources.push(Source { file: file.to_owned(), start, padded: " ".repeat(start) + text });
        while let Some(base) = extended(&sources[sources.len() - 1].padded) {
            let start = sources.iter().map(|source| source.padded.len()).max().unwrap_or(0) + 1;
            let (file, text) = text_of(&base)?;
            if sources.len() == DEPTH_MAX || sources.iter().any(|source| source.file == file) {
                let cause = format!("it extends itself, or more than {DEPTH_MAX} scenarios");
                return Err(ScenarioError::Unreadable { file, cause });
            }
            sources.push(Source { file, start, padded: " ".repeat(start) + &text });
        }
        Ok(Self(sources))
    }

    /// Returns one table: what each text says goes over what the text that it extends says. Mistakes of TOML are added
    /// to `mistakes`.
    pub(super) fn table(&self, mistakes: &mut Vec<Mistake>) -> DeTable<'_> {
        let mut tables = self.0.iter().map(|source| {
            let (table, errors) = DeTable::parse_recoverable(&source.padded);
            mistakes.extend(errors.into_iter().map(Mistake::from));
            table.into_inner()
        });
        let first = tables.next().unwrap_or_default();
        if self.0[0].file != SET {
            return tables.fold(first, |over, under| extend(under, over));
        }
        let own = tables.next().unwrap_or_default();
        let file = tables.fold(own, |over, under| extend(under, over));
        let params = |table: &DeTable<'_>| -> Vec<String> {
            let params = table.get("params").and_then(|params| params.get_ref().as_table());
            params.into_iter().flat_map(|params| params.keys()).map(|key| key.get_ref().to_string()).collect()
        };
        let known = params(&file);
        for name in params(&first).iter().filter(|name| !known.contains(name)) {
            let what = format!("no parameter `{name}`, expected one of {}", known.join(", "));
            mistakes.push(Mistake::new(0..0, what));
        }
        extend(file, first)
    }

    /// Returns the digest of the text of the scenario and of those that it extends, one behind the other, in hexadecimal.
    pub(super) fn digest(&self) -> String {
        let mut context = Context::new(&SHA256);
        for source in self.0.iter().filter(|source| source.file != SET) {
            context.update(source.padded.get(source.start..).unwrap_or_default().as_bytes());
        }
        context.finish().as_ref().iter().map(|octet| format!("{octet:02x}")).collect()
    }

    /// Whether a place is in the scenario itself or in the command line, and not in a scenario that it extends.
    pub(super) fn is_own(&self, at: usize) -> bool {
        let own = self.0.iter().map(|source| source.file.as_str()).find(|file| *file != SET);
        let (file, _) = self.place(at);
        file == SET || Some(file) == own
    }

    /// Returns file and line of a place.
    pub(super) fn place(&self, at: usize) -> (&str, usize) {
        let source = self.0.iter().rfind(|source| source.start <= at).or(self.0.first());
        let Some(source) = source else { return ("", 1) };
        let before = source.padded.get(..at.min(source.padded.len())).unwrap_or("");
        (&source.file, before.bytes().filter(|octet| *octet == b'\n').count() + 1)
    }
}

/// Returns the scenario that a text extends.
fn extended(text: &str) -> Option<String> {
    let (table, _) = DeTable::parse_recoverable(text);
    table.get_ref().get("extends")?.get_ref().as_str().map(str::to_owned)
}

/// Puts a scenario over the one that it extends. Tables are merged key by key. A step with the `id` of a step of the other
/// scenario replaces that one, as does a check with the same `expect`; other steps and checks follow behind.
fn extend<'i>(mut under: DeTable<'i>, over: DeTable<'i>) -> DeTable<'i> {
    for (key, value) in over {
        let name = key.get_ref().to_string();
        let identity = match name.as_str() {
            "steps" => Some("id"),
            "checks" => Some("expect"),
            _ => None,
        };
        match (under.get_mut(name.as_str()), identity) {
            (Some(known), Some(identity)) => replace(known, value, identity),
            (Some(known), None) if name != "params" || known.get_ref().is_table() => merge(known, value),
            _ => {
                under.insert(key, value);
            }
        }
    }
    under
}

/// Merges one value over another, table by table.
pub(super) fn merge<'i>(under: &mut Spanned<DeValue<'i>>, over: Spanned<DeValue<'i>>) {
    let at = over.span();
    match (under.get_mut(), over.into_inner()) {
        (DeValue::Table(under), DeValue::Table(over)) => {
            for (key, value) in over {
                match under.get_mut(key.get_ref().as_ref()) {
                    Some(known) => merge(known, value),
                    None => {
                        under.insert(key, value);
                    }
                }
            }
        }
        (_, over) => *under = Spanned::new(at, over),
    }
}

fn replace<'i>(under: &mut Spanned<DeValue<'i>>, over: Spanned<DeValue<'i>>, identity: &str) {
    let at = over.span();
    let (DeValue::Array(known), DeValue::Array(new)) = (under.get_mut(), over.into_inner()) else {
        // The loader reports that it is no list.
        *under = Spanned::new(at, DeValue::Boolean(false));
        return;
    };
    let name = |value: &Spanned<DeValue<'i>>| -> Option<String> {
        Some(value.get_ref().as_table()?.get(identity)?.get_ref().as_str()?.to_owned())
    };
    for element in new {
        let wanted = name(&element);
        match known.iter_mut().find(|known| wanted.is_some() && name(known) == wanted) {
            Some(known) => *known = element,
            None => known.push(element),
        }
    }
}

/// Puts the values of parameters into all texts and keys of a table: `${NAME}` alone is the value, `${NAME}` in a text its text.
pub(super) fn substitute<'i>(value: &mut DeValue<'i>, params: &DeTable<'i>) {
    match value {
        DeValue::Table(table) => {
            let named: Vec<_> = table.keys().filter(|key| key.get_ref().contains("${")).cloned().collect();
            for key in named {
                if let Some(value) = table.remove(key.get_ref().as_ref()) {
                    let name = filled(key.get_ref(), params);
                    table.insert(Spanned::new(key.span(), name.into()), value);
                }
            }
            table.iter_mut().for_each(|(_, value)| substitute(value.get_mut(), params));
        }
        DeValue::Array(array) => array.iter_mut().for_each(|value| substitute(value.get_mut(), params)),
        DeValue::String(text) if text.contains("${") => {
            let whole = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
            if let Some(param) = whole.and_then(|name| params.get(name)) {
                *value = param.get_ref().clone();
                return;
            }
            *text = filled(text, params).into();
        }
        _ => {}
    }
}

/// Returns a text with the values of the parameters that it names.
fn filled(text: &str, params: &DeTable<'_>) -> String {
    let mut new = text.to_owned();
    for (name, param) in params {
        new = new.replace(&format!("${{{}}}", name.get_ref()), &plain(param.get_ref()));
    }
    new
}

/// Whether a text or a key in a value names a parameter.
pub(super) fn names(value: &DeValue<'_>, param: &str) -> bool {
    let named = |text: &str| text.contains(&format!("${{{param}}}"));
    match value {
        DeValue::Table(table) => {
            table.iter().any(|(key, value)| named(key.get_ref()) || names(value.get_ref(), param))
        }
        DeValue::Array(array) => array.iter().any(|value| names(value.get_ref(), param)),
        DeValue::String(text) => named(text),
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => false,
    }
}

/// Returns the text of a parameter inside another text.
fn plain(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => String::new(),
    }
}
