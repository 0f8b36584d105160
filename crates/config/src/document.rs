//! `docs/config.md`.

use crate::keys::{Form, KeyLine, Line, TableLine};
use crate::show::bracketed;

const BEFORE: &str = include_str!("document/before.md");
const AFTER: &str = include_str!("document/after.md");

/// The whole page.
pub(crate) fn document(lines: &[Line]) -> String {
    let mut text = BEFORE.to_owned();
    let mut keys: Vec<&KeyLine> = Vec::new();
    let mut inherited: Vec<&str> = Vec::new();
    for line in lines {
        match line {
            Line::Key(key) if key.inherits.is_some() => inherited.push(&key.name),
            Line::Key(key) => keys.push(key),
            Line::Table(table) => {
                finish(&mut text, &mut keys, &mut inherited);
                // The tables of an interface that are those of a protocol's section are named there.
                if !is_inherited(table, lines) {
                    heading(&mut text, table);
                }
            }
        }
    }
    finish(&mut text, &mut keys, &mut inherited);
    text + AFTER
}

/// Whether the first key of a table is one of another section.
fn is_inherited(table: &TableLine, lines: &[Line]) -> bool {
    let at = lines.iter().position(|line| matches!(line, Line::Table(other) if other.path == table.path));
    let next = at.and_then(|at| lines.get(at + 1));
    matches!(next, Some(Line::Key(key)) if key.inherits.is_some())
}

fn heading(text: &mut String, table: &TableLine) {
    let depth = if table.path.contains('.') { "###" } else { "##" };
    let name = match table.form {
        Form::Keyed if table.path.contains("services") => "[interfaces.NAME.services.SERVICE]".to_owned(),
        _ => bracketed(table).replace("interfaces.eth1", "interfaces.NAME"),
    };
    *text += &format!("\n{depth} `{name}`\n");
    if !table.meaning.is_empty() {
        *text += &format!("\n{}\n", table.meaning);
    }
}

fn finish(text: &mut String, keys: &mut Vec<&KeyLine>, inherited: &mut Vec<&str>) {
    if !keys.is_empty() {
        *text += "\n| key | default | range | meaning |\n|---|---|---|---|\n";
    }
    for KeyLine { name, value, range, meaning, .. } in keys.drain(..) {
        let value = match value {
            Ok(value) => format!("`{value}`"),
            Err(absent) => (*absent).to_owned(),
        };
        // The name of the machine on which the page is generated is not the default.
        let value = if name == "name" && value == "`\"r1\"`" { "host name".to_owned() } else { value };
        *text += &format!("| `{name}` | {value} | {range} | {meaning} |\n");
    }
    if !inherited.is_empty() && !text.ends_with(SAME) {
        *text += SAME;
    }
    inherited.clear();
}

const SAME: &str = "\nFurther keys are `refresh`, `refresh_multiple`, `max_lifetime`, `slew_max`, `repair_delay`, `dscp`, `distant_hops`, \
                    `any_source` and `any_destination`, and the tables \
                    `refresh_reduction`, `hello` and `integrity`, as in `[rsvp]`. A key that is absent has the value of \
                    `[rsvp]`.\n";
