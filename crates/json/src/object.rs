//! Messages as JSON objects.

use prost_reflect::{DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, ReflectMessage, Value};
use serde::ser::{Error as _, Serialize, SerializeMap, SerializeSeq, Serializer};

/// A message as an object.
pub(crate) struct Object<'a>(pub(crate) &'a DynamicMessage);

/// A message as an object that begins with its type. The fields of the event follow those of the message around it.
pub(crate) struct Line<'a> {
    pub(crate) kind: &'a str,
    pub(crate) outer: &'a DynamicMessage,
    pub(crate) event: Option<&'a DynamicMessage>,
}

/// The field of the event in a response.
pub(crate) fn event_field(response: &DynamicMessage) -> Option<FieldDescriptor> {
    response.descriptor().fields().find(|field| is_event(field) && response.has_field(field))
}

/// Whether a field is one of the alternatives of a `oneof` with a name.
pub(crate) fn is_event(field: &FieldDescriptor) -> bool {
    field.containing_oneof().is_some_and(|oneof| !oneof.is_synthetic())
}

/// The name of an enumeration's value: in lower case, without the enumeration's name in front. A value that is not in
/// the descriptors is `unknown_` and its number.
pub(crate) fn enum_name(of: &EnumDescriptor, number: i32) -> String {
    match of.get_value(number) {
        Some(value) => {
            let name = value.name().to_lowercase();
            name.strip_prefix(&prefix(of.name())).map(str::to_owned).unwrap_or(name)
        }
        None => format!("unknown_{number}"),
    }
}

/// `AssociationState` becomes `association_state_`.
fn prefix(name: &str) -> String {
    let mut prefix = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !prefix.is_empty() {
            prefix.push('_');
        }
        prefix.extend(c.to_lowercase());
    }
    prefix + "_"
}

fn fields<M: SerializeMap>(
    map: &mut M,
    message: &DynamicMessage,
    wanted: impl Fn(&FieldDescriptor) -> bool,
) -> Result<(), M::Error> {
    for field in message.descriptor().fields().filter(wanted) {
        if field.supports_presence() && !message.has_field(&field) {
            continue;
        }
        let value = message.get_field(&field);
        map.serialize_entry(field.name(), &Content { value: &value, kind: &field.kind() })?;
    }
    Ok(())
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        fields(&mut map, self.0, |_| true)?;
        map.end()
    }
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", self.kind)?;
        fields(&mut map, self.outer, |field| self.event.is_none() || !is_event(field))?;
        if let Some(event) = self.event {
            fields(&mut map, event, |_| true)?;
        }
        map.end()
    }
}

struct Content<'a> {
    value: &'a Value,
    kind: &'a Kind,
}

impl Serialize for Content<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.value {
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::I32(value) => serializer.serialize_i32(*value),
            Value::I64(value) => serializer.serialize_i64(*value),
            Value::U32(value) => serializer.serialize_u32(*value),
            Value::U64(value) => serializer.serialize_u64(*value),
            Value::F32(value) => serializer.serialize_f32(*value),
            Value::F64(value) => serializer.serialize_f64(*value),
            Value::String(value) => serializer.serialize_str(value),
            Value::Bytes(octets) => {
                let digits: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
                serializer.serialize_str(&digits)
            }
            Value::EnumNumber(number) => match self.kind {
                Kind::Enum(of) => serializer.serialize_str(&enum_name(of, *number)),
                _ => Err(S::Error::custom("a number of no enumeration")),
            },
            Value::Message(message) => Object(message).serialize(serializer),
            Value::List(list) => {
                let mut seq = serializer.serialize_seq(Some(list.len()))?;
                for value in list {
                    seq.serialize_element(&Content { value, kind: self.kind })?;
                }
                seq.end()
            }
            Value::Map(_) => Err(S::Error::custom("the API has no maps")),
        }
    }
}
