//! Declarations of keys.
//!
//! A section declares each key once: its name, where its value is kept, its kind with the range, and its meaning. Two
//! passes run over the same declarations. One reads a file into the settings. The other lists all keys with their
//! values, for `signalbox config show` and `docs/config.md`. The default of a key is the value that its place has
//! before a file is read.

use std::collections::{BTreeMap, HashSet};

use crate::findings::Findings;
use crate::kind::{Kind, KindError, quoted};
use crate::old;
use crate::tree::{Place, Table, Tree, Value};

/// Keys of one table.
pub(crate) struct Keys<'t> {
    /// The path of the table; empty for the whole file.
    path: String,
    /// The name of the group inside the table, with its dot.
    group: String,
    place: Place,
    /// What the files have; `None` where they have no such table, and when keys are listed.
    table: Option<&'t Table>,
    known: Vec<String>,
    /// The section whose values the keys take where they are absent.
    inherits: Option<&'static str>,
    pass: &'t mut Pass,
}

/// What is done with declarations.
pub(crate) enum Pass {
    Read(Findings),
    /// Keys are listed. If `samples` is true, each keyed table and each list of tables has one sample.
    List {
        lines: Vec<Line>,
        samples: bool,
    },
}

/// A table or a key in the list of all keys.
#[derive(Debug, Clone)]
pub(crate) enum Line {
    Table(TableLine),
    Key(KeyLine),
}

/// How a table is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `[name]`
    Plain,
    /// `[name.KEY]`, any number of them.
    Keyed,
    /// `[[name]]`
    List,
}

#[derive(Debug, Clone)]
pub(crate) struct TableLine {
    pub(crate) path: String,
    pub(crate) form: Form,
    pub(crate) meaning: &'static str,
    /// It is not in the settings, and stands for tables that may be.
    pub(crate) sample: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct KeyLine {
    pub(crate) name: String,
    /// The value as TOML; `Err`: what holds without one, in words.
    pub(crate) value: Result<String, &'static str>,
    pub(crate) example: String,
    pub(crate) range: String,
    pub(crate) meaning: &'static str,
    pub(crate) inherits: Option<&'static str>,
}

/// Reads a whole file, or lists all of its keys.
pub(crate) fn whole<'t>(table: Option<&'t Table>, pass: &'t mut Pass) -> Keys<'t> {
    Keys {
        path: String::new(),
        group: String::new(),
        place: Place::default(),
        table,
        known: Vec::new(),
        inherits: None,
        pass,
    }
}

/// A part of a path: quoted unless it is a bare key.
pub(crate) fn part(name: &str) -> String {
    let bare = name.bytes().all(|octet| octet.is_ascii_alphanumeric() || b"-_".contains(&octet));
    if bare && !name.is_empty() { name.to_owned() } else { quoted(name) }
}

impl Keys<'_> {
    fn full(&self, name: &str) -> String {
        let Self { path, group, .. } = self;
        if name.is_empty() {
            return path.clone();
        }
        if path.is_empty() { format!("{group}{name}") } else { format!("{path}.{group}{name}") }
    }

    fn declare(&mut self, name: &str) {
        self.known.push(name.to_owned());
    }

    /// A key with a default.
    pub(crate) fn key<K: Kind>(&mut self, name: &str, value: &mut K::Value, kind: K, meaning: &'static str) {
        self.declare(name);
        if let Pass::List { .. } = self.pass {
            return self.list(name, Ok(kind.show(value)), &kind, meaning);
        }
        if let Some(found) = self.read(name, &kind, || kind.show(value)) {
            *value = found;
        }
    }

    /// A key that may be absent; `absent` are the words for what holds then.
    pub(crate) fn option<K: Kind>(
        &mut self,
        name: &str,
        value: &mut Option<K::Value>,
        kind: K,
        absent: &'static str,
        meaning: &'static str,
    ) {
        self.declare(name);
        if let Pass::List { .. } = self.pass {
            let shown = value.as_ref().map(|value| kind.show(value)).ok_or(absent);
            return self.list(name, shown, &kind, meaning);
        }
        if let Some(found) = self.read(name, &kind, || kind.example()) {
            *value = Some(found);
        }
    }

    /// A key that must be there.
    pub(crate) fn needed<K: Kind>(
        &mut self,
        name: &str,
        value: &mut Option<K::Value>,
        kind: K,
        meaning: &'static str,
    ) {
        // Where the key is missing its example is needed.
        let example = (!self.given(name)).then(|| kind.example());
        self.option(name, value, kind, "needed", meaning);
        if let Some(example) = example {
            self.fault(&[name], &format!("missing: write {name} = {example}"));
        }
    }

    fn list<K: Kind>(
        &mut self,
        name: &str,
        value: Result<String, &'static str>,
        kind: &K,
        meaning: &'static str,
    ) {
        let line = KeyLine {
            name: format!("{}{name}", self.group),
            value,
            example: kind.example(),
            range: kind.range(),
            meaning,
            inherits: self.inherits,
        };
        if let Pass::List { lines, .. } = self.pass {
            lines.push(Line::Key(line));
        }
    }

    /// The value of a key in the files. `example` is only composed for a mistake: a file can have thousands of tables, each of which
    /// has all keys of its kind.
    fn read<K: Kind>(&mut self, name: &str, kind: &K, example: impl FnOnce() -> String) -> Option<K::Value> {
        let tree = self.table?.get(name)?;
        match kind.read(tree) {
            Ok(value) => Some(value),
            Err(KindError { place, what, others }) => {
                let (form, range) = (kind.form(), kind.range());
                let range = if range.is_empty() || form.contains(&range) {
                    String::new()
                } else {
                    format!(", {range}")
                };
                let right = format!("write {form}{range}, such as {name} = {}", example());
                self.error(place.unwrap_or(tree.place), name, format!("{what}: {right}"));
                // What is right was said with the first one.
                let key = self.full(name);
                if let Pass::Read(findings) = self.pass {
                    for KindError { place, what, .. } in others {
                        findings.error_of(place.unwrap_or(tree.place), &key, || what);
                    }
                }
                None
            }
        }
    }

    fn error(&mut self, place: Place, name: &str, message: String) {
        let key = self.full(name);
        if let Pass::Read(findings) = self.pass {
            findings.error(place, &key, message);
        }
    }

    /// Whether the files have a key.
    pub(crate) fn given(&self, name: &str) -> bool {
        self.table.is_some_and(|table| table.get(name).is_some())
    }

    /// Whether the files have any of these keys.
    pub(crate) fn gives_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.given(name))
    }

    /// Whether keys are listed, instead of read.
    pub(crate) const fn lists(&self) -> bool {
        matches!(self.pass, Pass::List { .. })
    }

    /// Whether keys are listed with samples of keyed tables.
    pub(crate) const fn samples(&self) -> bool {
        matches!(self.pass, Pass::List { samples: true, .. })
    }

    /// Whether the files have any of the keys that were declared up to now.
    pub(crate) fn gives_declared(&self) -> bool {
        self.known.iter().any(|name| self.given(name))
    }

    /// Whether the files have this table.
    pub(crate) const fn is_there(&self) -> bool {
        self.table.is_some()
    }

    /// A condition between keys of this table. It is not checked if one of them has a mistake of its own.
    pub(crate) fn check(&mut self, holds: bool, names: &[&str], message: &str) {
        if holds {
            return;
        }
        let mut keys = names.iter().map(|name| self.full(name));
        let bad = match &*self.pass {
            Pass::Read(findings) => keys.any(|key| findings.is_bad(&key)),
            Pass::List { .. } => true,
        };
        if !bad {
            self.fault(names, message);
        }
    }

    /// A mistake about keys of this table, placed at the first of them that is there, or at the table. Messages name the
    /// first key.
    pub(crate) fn fault(&mut self, names: &[&str], message: &str) {
        let (place, name) = (self.find(names), names.first().copied().unwrap_or(""));
        self.error(place, name, message.to_owned());
    }

    /// A warning about keys of this table.
    pub(crate) fn warn(&mut self, names: &[&str], message: &str) {
        let (place, key) = (self.find(names), self.full(names.first().copied().unwrap_or("")));
        if let Pass::Read(findings) = self.pass {
            findings.warning(place, &key, message);
        }
    }

    fn find(&self, names: &[&str]) -> Place {
        let find = |name: &&str| {
            let mut parts = name.split('.');
            let first = step(self.table?, parts.next()?)?;
            let last = parts.try_fold(first, |tree, part| match &tree.value {
                Value::Table(table) => step(table, part),
                _ => None,
            });
            Some(last?.place)
        };
        names.iter().find_map(find).unwrap_or(self.place)
    }

    /// A table of this table.
    pub(crate) fn table(&mut self, name: &str, meaning: &'static str, declare: impl FnOnce(&mut Keys<'_>)) {
        self.header(name, Form::Plain, meaning, false);
        self.inner(name, String::new(), declare);
    }

    /// A small table, whose keys are listed as keys of this table: `retry.first`.
    pub(crate) fn group(&mut self, name: &str, declare: impl FnOnce(&mut Keys<'_>)) {
        let group = format!("{}{name}.", self.group);
        self.inner(name, group, declare);
    }

    /// Keys that take the values of another section where they are absent.
    pub(crate) fn inheriting(&mut self, section: &'static str, declare: impl FnOnce(&mut Keys<'_>)) {
        let before = self.inherits.replace(section);
        declare(self);
        self.inherits = before;
    }

    fn header(&mut self, name: &str, form: Form, meaning: &'static str, sample: bool) {
        let path = self.full(name);
        if let Pass::List { lines, .. } = self.pass {
            lines.push(Line::Table(TableLine { path, form, meaning, sample }));
        }
    }

    fn inner(&mut self, name: &str, group: String, declare: impl FnOnce(&mut Keys<'_>)) {
        self.declare(name);
        let mut place = self.place;
        let mut table = None;
        match self.table.and_then(|table| table.get(name)) {
            Some(Tree { value: Value::Table(inner), place: at }) => (place, table) = (*at, Some(inner)),
            Some(Tree { value, place }) => {
                let message = format!("{value} is not a table: write [{}]", self.full(name));
                self.error(*place, name, message);
            }
            None => {}
        }
        // In a group, the path stays that of the table; when files are read, mistakes name the whole path.
        let listed = matches!(self.pass, Pass::List { .. });
        let (path, group) = if listed && !group.is_empty() {
            (self.path.clone(), group)
        } else {
            (self.full(&part(name)), String::new())
        };
        let inherits = self.inherits;
        let mut keys = Keys { path, group, place, table, known: Vec::new(), inherits, pass: self.pass };
        declare(&mut keys);
        keys.finish();
    }

    /// Tables by name: `[interfaces.eth1]`. `new` makes the settings of a name that is new.
    pub(crate) fn keyed<T>(
        &mut self,
        name: &str,
        (meaning, sample): (&'static str, &str),
        map: &mut BTreeMap<String, T>,
        new: impl Fn(&str) -> T,
        mut declare: impl FnMut(&mut Keys<'_>, &str, &mut T),
    ) {
        if let Pass::List { samples, .. } = self.pass {
            if *samples {
                self.header(&format!("{name}.{}", part(sample)), Form::Keyed, meaning, true);
                let mut value = new(sample);
                self.inner_of(name, sample, |keys| declare(keys, sample, &mut value));
            }
            for (key, value) in map {
                self.header(&format!("{name}.{}", part(key)), Form::Keyed, meaning, false);
                self.inner_of(name, key, |keys| declare(keys, key, value));
            }
            return;
        }
        self.inner(name, String::new(), |keys| {
            let names = keys.names();
            if names.len() > MOST_TABLES {
                keys.known = names;
                return keys.fault(&[""], &too_many(keys.known.len()));
            }
            for key in names {
                let value = map.entry(key.clone()).or_insert_with(|| new(&key));
                keys.inner(&key, String::new(), |keys| declare(keys, &key, value));
            }
        });
    }

    fn inner_of(&mut self, name: &str, key: &str, declare: impl FnOnce(&mut Keys<'_>)) {
        let path = format!("{}.{}", self.full(name), part(key));
        let inherits = self.inherits;
        let group = String::new();
        let mut keys = Keys {
            path,
            group,
            place: self.place,
            table: None,
            known: Vec::new(),
            inherits,
            pass: self.pass,
        };
        declare(&mut keys);
    }

    /// The keys that the files have in this table.
    pub(crate) fn names(&self) -> Vec<String> {
        self.table.map(|table| table.0.keys().cloned().collect()).unwrap_or_default()
    }

    /// Tables in order: `[[policy.rules]]`.
    pub(crate) fn array<T>(
        &mut self,
        name: &str,
        meaning: &'static str,
        list: &mut Vec<T>,
        new: impl Fn() -> T,
        mut declare: impl FnMut(&mut Keys<'_>, &mut T),
    ) {
        self.declare(name);
        if let Pass::List { samples, .. } = self.pass {
            if *samples {
                self.header(name, Form::List, meaning, true);
                self.element(name, None, Place::default(), |keys| declare(keys, &mut new()));
            }
            for value in list {
                self.header(name, Form::List, meaning, false);
                self.element(name, None, Place::default(), |keys| declare(keys, value));
            }
            return;
        }
        let Some(tree) = self.table.and_then(|table| table.get(name)) else { return };
        let Value::List(elements) = &tree.value else {
            let message = format!("{} is not a list of tables: write [[{}]]", tree.value, self.full(name));
            return self.error(tree.place, name, message);
        };
        if elements.len() > MOST_TABLES {
            return self.error(tree.place, name, too_many(elements.len()));
        }
        for (number, element) in (1..).zip(elements) {
            let Value::Table(table) = &element.value else {
                let message = format!("{} is not a table: write [[{}]]", element.value, self.full(name));
                self.error(element.place, name, message);
                continue;
            };
            let mut value = new();
            self.element(&format!("{name}[{number}]"), Some(table), element.place, |keys| {
                declare(keys, &mut value)
            });
            list.push(value);
        }
    }

    fn element(
        &mut self,
        name: &str,
        table: Option<&Table>,
        place: Place,
        declare: impl FnOnce(&mut Keys<'_>),
    ) {
        let path = self.full(name);
        let inherits = self.inherits;
        let mut keys =
            Keys { path, group: String::new(), place, table, known: Vec::new(), inherits, pass: self.pass };
        declare(&mut keys);
        keys.finish();
    }

    /// Reports the keys of the files that were not declared.
    pub(crate) fn finish(self) {
        let Some(table) = self.table else { return };
        let Pass::Read(findings) = self.pass else { return };
        let known: HashSet<&str> = self.known.iter().map(String::as_str).collect();
        for (name, (place, tree)) in &table.0 {
            if known.contains(name.as_str()) {
                continue;
            }
            if findings.is_full() {
                findings.count(*place);
                continue;
            }
            let key = if self.path.is_empty() { part(name) } else { format!("{}.{}", self.path, part(name)) };
            if old::report(findings, &key, *place, tree) {
                continue;
            }
            findings.error_of(*place, &key, || unknown(name, &self.known));
        }
    }
}

/// The value of a part of a path: `name`, or `name[2]` for the second element of a list.
fn step<'t>(table: &'t Table, part: &str) -> Option<&'t Tree> {
    let Some((name, number)) = part.strip_suffix(']').and_then(|part| part.split_once('[')) else {
        return table.get(part);
    };
    match &table.get(name)?.value {
        Value::List(list) => list.get(number.parse::<usize>().ok()?.checked_sub(1)?),
        _ => None,
    }
}

/// Tables of one kind that a configuration may have. Each costs the time of all keys that it can have.
const MOST_TABLES: usize = 16_384;

fn too_many(tables: usize) -> String {
    format!("{tables} tables: at most {MOST_TABLES}")
}

/// Octets of the longest name for which a similar key is looked for. The time for it grows with the length.
const LONGEST_NAME: usize = 64;

/// What to write instead of an unknown key.
fn unknown(name: &str, known: &[String]) -> String {
    let near = |known: &&String| strsim::damerau_levenshtein(name, known);
    let similar = known.iter().filter(|_| name.len() <= LONGEST_NAME).min_by_key(near);
    match similar.filter(|known| near(known) <= 2.max(name.len() / 3)) {
        Some(nearest) => format!("unknown key: is {nearest} meant?"),
        None => format!("unknown key: the keys here are {}", known.join(", ")),
    }
}
