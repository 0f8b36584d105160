//! JSON Schemas (2020-12) of the lines, from the descriptors.

use std::collections::BTreeMap;

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use serde::ser::Error as _;
use serde_json::{Error, Map, Value, json};

use crate::object::{enum_name, is_event};
use crate::{ROWS, STREAMS, pool};

/// Last lines that the command prints by itself: the stream, and the type of the line. They have a time only.
const ENDS: [(&str, &str); 1] = [("rsvp", "released")];

/// All schemas, by the name of their file without its ending.
///
/// # Errors
/// A message is not in the descriptors.
pub fn schemas() -> Result<BTreeMap<String, Value>, Error> {
    let find = |name: String| {
        pool()?.get_message_by_name(&name).ok_or_else(|| Error::custom(format!("no descriptor of {name}")))
    };
    let mut all = BTreeMap::new();
    for (kind, name) in ROWS {
        let message = find(name())?;
        let mut definitions = Map::new();
        let line = line(kind, message.fields().collect(), &mut definitions);
        all.insert((*kind).to_owned(), document(&format!("A line of the type {kind}"), line, definitions));
    }
    for (stream, name) in STREAMS {
        let message = find(name())?;
        let mut definitions = Map::new();
        let mut lines = Vec::new();
        for event in message.fields().filter(is_event) {
            let Kind::Message(content) = event.kind() else { continue };
            let around = message.fields().filter(|field| !is_event(field));
            lines.push(line(event.name(), around.chain(content.fields()).collect(), &mut definitions));
        }
        for (_, end) in ENDS.iter().filter(|(of, _)| of == stream) {
            let time = json!({ "type": "integer", "minimum": 0 });
            let properties = json!({ "type": { "const": end }, "time_unix_us": time });
            lines.push(
                json!({ "type": "object", "required": ["type", "time_unix_us"], "properties": properties }),
            );
        }
        let title = format!("A line of the stream {stream}");
        all.insert((*stream).to_owned(), document(&title, json!({ "oneOf": lines }), definitions));
    }
    Ok(all)
}

fn document(title: &str, content: Value, definitions: Map<String, Value>) -> Value {
    let mut document = Map::new();
    document.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
    document.insert("title".to_owned(), title.into());
    if let Value::Object(content) = content {
        document.extend(content);
    }
    if !definitions.is_empty() {
        document.insert("$defs".to_owned(), definitions.into());
    }
    document.into()
}

/// An object that begins with its type.
fn line(kind: &str, fields: Vec<FieldDescriptor>, definitions: &mut Map<String, Value>) -> Value {
    let mut object = object(fields, definitions);
    object["properties"]["type"] = json!({ "const": kind });
    if let Some(required) = object["required"].as_array_mut() {
        required.insert(0, "type".into());
    }
    object
}

fn object(fields: Vec<FieldDescriptor>, definitions: &mut Map<String, Value>) -> Value {
    let required: Vec<_> = fields
        .iter()
        .filter(|field| !field.supports_presence())
        .map(|field| field.name().to_owned())
        .collect();
    let mut properties = Map::new();
    for field in fields {
        let one = content(&field.kind(), definitions);
        let schema = if field.is_list() { json!({ "type": "array", "items": one }) } else { one };
        properties.insert(field.name().to_owned(), schema);
    }
    json!({ "type": "object", "required": required, "properties": properties })
}

fn content(kind: &Kind, definitions: &mut Map<String, Value>) -> Value {
    match kind {
        Kind::Bool => json!({ "type": "boolean" }),
        Kind::Double | Kind::Float => json!({ "type": "number" }),
        Kind::Uint32 | Kind::Fixed32 | Kind::Uint64 | Kind::Fixed64 => {
            json!({ "type": "integer", "minimum": 0 })
        }
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 | Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
            json!({ "type": "integer" })
        }
        Kind::String => json!({ "type": "string" }),
        Kind::Bytes => json!({ "type": "string", "pattern": "^([0-9a-f]{2})*$" }),
        Kind::Enum(of) => {
            let names: Vec<_> = of.values().map(|value| enum_name(of, value.number())).collect();
            // A newer daemon may know more values.
            json!({ "type": "string", "anyOf": [{ "enum": names }, { "pattern": "^unknown_[0-9]+$" }] })
        }
        Kind::Message(message) => definition(message, definitions),
    }
}

/// A reference to the definition of a message, which is added if it is not there yet.
fn definition(message: &MessageDescriptor, definitions: &mut Map<String, Value>) -> Value {
    let name = message.full_name().to_owned();
    if !definitions.contains_key(&name) {
        // In place before its fields, so that a message may contain itself.
        definitions.insert(name.clone(), Value::Null);
        let object = object(message.fields().collect(), definitions);
        definitions.insert(name.clone(), object);
    }
    json!({ "$ref": format!("#/$defs/{name}") })
}
