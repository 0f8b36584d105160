//! All keys as TOML.

use std::collections::{BTreeMap, BTreeSet};

use crate::keys::{Form, KeyLine, Line, TableLine};

/// Columns of a comment.
const WIDTH: usize = 100;

/// Every key with its value. Keys without a value are left out.
pub(crate) fn effective(lines: &[Line]) -> String {
    let mut text = String::new();
    let mut header = None;
    for line in lines {
        match line {
            // A table is written with its first key.
            Line::Table(table) => header = Some(bracketed(table)),
            Line::Key(KeyLine { name, value: Ok(value), .. }) => {
                if let Some(header) = header.take() {
                    text += &format!("\n{header}\n");
                }
                text += &format!("{name} = {value}\n");
            }
            Line::Key(_) => {}
        }
    }
    text
}

/// The keys that have another value in one of two lists than in the other, in the order of their names.
pub(crate) fn differences(one: &[Line], other: &[Line]) -> Vec<String> {
    let (one, other) = (values(one), values(other));
    let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    keys.into_iter().filter(|key| one.get(*key) != other.get(*key)).cloned().collect()
}

/// The value of each key that has one. A table of a list has its number, from 1.
fn values(lines: &[Line]) -> BTreeMap<String, &str> {
    let mut values = BTreeMap::new();
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut table = String::new();
    for line in lines {
        match line {
            Line::Table(TableLine { path, form: Form::List, .. }) => {
                let number = numbers.entry(path).or_default();
                *number += 1;
                table = format!("{path}[{number}].");
            }
            Line::Table(TableLine { path, .. }) => table = format!("{path}."),
            Line::Key(KeyLine { name, value: Ok(value), .. }) => {
                values.insert(format!("{table}{name}"), value.as_str());
            }
            Line::Key(_) => {}
        }
    }
    values
}

/// Every key with its default, and its range and meaning as comments. A key without a default is a comment itself.
pub(crate) fn defaults(lines: &[Line]) -> String {
    let mut text = String::new();
    let mut sample = false;
    for line in lines {
        match line {
            Line::Table(table) => {
                sample = table.sample || (sample && is_below(&table.path, &text));
                let mark = if sample { "#" } else { "" };
                text += "\n";
                comment(&mut text, table.meaning);
                text += &format!("{mark}{}\n", bracketed(table));
            }
            Line::Key(key) => {
                let range = if key.range.is_empty() { String::new() } else { format!(" ({})", key.range) };
                match key.inherits {
                    Some(section) => comment(&mut text, &format!("As in {section}{range}.")),
                    None => comment(&mut text, &format!("{}{range}", key.meaning)),
                }
                let value = key.value.as_ref().unwrap_or(&key.example);
                let mark = if sample || key.value.is_err() { "#" } else { "" };
                text += &format!("{mark}{} = {value}\n", key.name);
            }
        }
    }
    text
}

/// Whether a table is inside the last sample, which is a comment.
fn is_below(path: &str, text: &str) -> bool {
    let last = text.lines().rev().find_map(|line| line.strip_prefix("#[").filter(|line| line.ends_with(']')));
    let first = |path: &str| path.trim_start_matches('[').split(['.', ']']).next().unwrap_or("").to_owned();
    last.is_some_and(|last| first(last) == first(path))
}

pub(crate) fn bracketed(table: &TableLine) -> String {
    match table.form {
        Form::List => format!("[[{}]]", table.path),
        Form::Plain | Form::Keyed => format!("[{}]", table.path),
    }
}

/// Appends a comment, wrapped between words.
fn comment(text: &mut String, words: &str) {
    let mut line = String::new();
    for word in words.split_whitespace() {
        if !line.is_empty() && line.len() + word.len() + 3 > WIDTH {
            *text += &format!("# {line}\n");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    if !line.is_empty() {
        *text += &format!("# {line}\n");
    }
}
