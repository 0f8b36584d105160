//! The files of a configuration: the file itself, and those that it includes.

use std::io;
use std::path::{Path, PathBuf};

use signalbox_linux::files as of_machine;

use crate::findings::Findings;
use crate::tree::{Place, Table, Value};

/// Files that one configuration may include.
const MOST: usize = 256;
/// Octets of the largest one.
const LARGEST: u64 = 1 << 20;

/// Adds the text of the file at `path` and of the files that it includes to `findings`, and merges them. Unless `read`
/// is set, files that it includes are not read.
pub(crate) fn load(path: &Path, text: String, read: bool, findings: &mut Findings) -> Table {
    let mut table = add(path, text, findings);
    if !read {
        if let Some((place, _)) = patterns(&table, findings).first() {
            let message = "the files are not read, this check is of one text only: give signalbox config check the file";
            findings.warning(*place, "include", message);
        }
        return table;
    }
    let directory = path.parent().unwrap_or(Path::new(""));
    let mut files = Vec::new();
    for (place, pattern) in patterns(&table, findings) {
        match matching(directory, &pattern) {
            Ok(found) => files.extend(found.into_iter().map(|file| (place, file))),
            Err(error) => findings.error(place, "include", format!("cannot list {pattern}: {error}")),
        }
    }
    if let Some((place, _)) = files.get(MOST) {
        findings.error(*place, "include", format!("{} files: at most {MOST}", files.len()));
        return table;
    }
    for (place, file) in files {
        match of_machine::read_text(&file, LARGEST) {
            Ok(text) => {
                let mut over = add(&file, text, findings);
                if let Some((place, _)) = over.0.remove("include") {
                    findings.error(place, "include", "an included file cannot include others: remove it");
                }
                table.merge(over);
            }
            Err(error) => {
                findings.error(place, "include", format!("cannot read {}: {error}", file.display()))
            }
        }
    }
    table
}

fn add(path: &Path, text: String, findings: &mut Findings) -> Table {
    let file = findings.source(path.to_owned(), text.clone());
    let (table, errors) = Table::parse(file, &text);
    for (place, message) in errors {
        findings.error(place, "", message);
    }
    table
}

/// The patterns of `include`; `Keys` reports those that are no text.
fn patterns(table: &Table, findings: &mut Findings) -> Vec<(Place, String)> {
    let Some(tree) = table.get("include") else { return Vec::new() };
    let one = [tree.clone()];
    let list = match &tree.value {
        Value::List(list) => list.as_slice(),
        _ => &one,
    };
    let mut patterns = Vec::new();
    for tree in list {
        match &tree.value {
            Value::Text(text)
                if Path::new(text).parent().is_some_and(|parent| parent.to_string_lossy().contains('*')) =>
            {
                let message =
                    format!("{text:?}: * stands in the name of the file only, such as \"conf.d/*.toml\"");
                findings.error(tree.place, "include", message);
            }
            Value::Text(text) => patterns.push((tree.place, text.clone())),
            _ => {}
        }
    }
    patterns
}

/// The files that a pattern names, in the order of their names. A pattern without `*` names one file.
fn matching(directory: &Path, pattern: &str) -> io::Result<Vec<PathBuf>> {
    let pattern = directory.join(pattern);
    let name = pattern.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Some((before, after)) = name.split_once('*') else { return Ok(vec![pattern]) };
    let entries = match std::fs::read_dir(pattern.parent().unwrap_or(Path::new("."))) {
        Ok(entries) => entries,
        // Without the directory there is no such file.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let fits =
            name.len() >= before.len() + after.len() && name.starts_with(before) && name.ends_with(after);
        // Hidden files, such as those of editors, do not belong to the configuration.
        if fits && !name.starts_with('.') {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}
