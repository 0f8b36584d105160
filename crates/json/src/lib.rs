//! API messages as lines of JSON, and the JSON Schemas of these lines.
//!
//! The command prints with `--json` one object a line. The fields come from the descriptors of the proto files, so that
//! no name is written twice:
//!
//! - The first key is `type`: the name of a row ([`rows`](ROWS)), or of the event in a stream ([`STREAMS`]). The fields
//!   of the event's message stand in the object itself.
//! - Field names are those of the proto files.
//! - Octets are hexadecimal digits in lower case. 64-bit integers are numbers. Enumerations are their values' names in
//!   lower case, without prefix.
//! - A field without presence is always there. An optional field or message that is absent is left out.

mod object;
mod schema;

use std::sync::OnceLock;

use prost::{Message, Name};
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde::ser::Error as _;
use serde_json::Error;
use signalbox_api::{boomerang, casp, gist, mapping, ping, qos, rsvp, v1};

use object::{Line, Object};
pub use schema::schemas;

/// The version of the schemas: `signalbox --version --json` prints it. It changes when a field is removed or changes
/// its meaning.
pub const SCHEMA: u32 = 1;

/// A message that is a row of a table.
pub trait Row: Message + Name {
    /// The value of `type`.
    const TYPE: &'static str;
}

/// A response of a call that has a `oneof` of events.
pub trait Events: Message + Name {
    /// The name of the schema of all its lines.
    const STREAM: &'static str;
}

macro_rules! lines {
    (rows { $($row:literal => $row_message:ty,)* } streams { $($stream:literal => $stream_message:ty,)* }) => {
        $(impl Row for $row_message {
            const TYPE: &'static str = $row;
        })*
        $(impl Events for $stream_message {
            const STREAM: &'static str = $stream;
        })*
        /// The types of rows, with the full names of their messages.
        pub const ROWS: &[(&str, fn() -> String)] = &[$(($row, <$row_message as Name>::full_name),)*];
        /// The streams of events, with the full names of their messages.
        pub const STREAMS: &[(&str, fn() -> String)] = &[$(($stream, <$stream_message as Name>::full_name),)*];
    };
}

lines! {
    rows {
        "node" => v1::GetNodeResponse,
        "interface" => v1::Interface,
        "metric" => v1::MetricFamily,
        "config" => v1::GetConfigResponse,
        "config_reload" => v1::ReloadConfigResponse,
        "policy_decision" => v1::TestPolicyResponse,
        "reservation" => v1::Reservation,
        "decision" => v1::Decision,
        "pinhole" => v1::Pinhole,
        "standing_request" => v1::StandingRequest,
        "gist_session" => gist::v1::Session,
        "gist_peer" => gist::v1::Peer,
        "gist_association" => gist::v1::Association,
        "gist_binding" => gist::v1::Binding,
        "mapping" => mapping::v1::Mapping,
        "qos_session" => qos::v1::Session,
        "rsvp_session" => rsvp::v1::Session,
        "rsvp_neighbor" => rsvp::v1::Neighbor,
        "rsvp_interface" => rsvp::v1::InterfaceState,
        "boomerang_guesses" => boomerang::v1::Guesses,
        "boomerang_flow" => boomerang::v1::Flow,
        "casp_session" => casp::v1::Session,
        "casp_peer" => casp::v1::Peer,
    }
    streams {
        "reserve" => v1::ReserveResponse,
        "query" => v1::QueryResponse,
        "open" => v1::OpenPinholeResponse,
        "ping" => ping::v1::PingResponse,
        "rsvp" => rsvp::v1::SessionResponse,
        "watch" => v1::WatchEventsResponse,
    }
}

/// A row as one line, without its end.
///
/// # Errors
/// The message is not in the descriptors.
pub fn row<R: Row>(message: &R) -> Result<String, Error> {
    let message = dynamic(message)?;
    serde_json::to_string(&Line { kind: R::TYPE, outer: &message, event: None })
}

/// An event as one line, without its end; `None` for an event that this program does not know.
///
/// # Errors
/// The message is not in the descriptors.
pub fn event<E: Events>(response: &E) -> Result<Option<String>, Error> {
    let outer = dynamic(response)?;
    let Some(field) = object::event_field(&outer) else { return Ok(None) };
    let value = outer.get_field(&field);
    let event = value.as_message().ok_or_else(|| Error::custom("an event is a message"))?;
    serde_json::to_string(&Line { kind: field.name(), outer: &outer, event: Some(event) }).map(Some)
}

/// A message as a value, by the same rules, for a part of another object.
///
/// # Errors
/// The message is not in the descriptors.
pub fn value<M: Message + Name>(message: &M) -> Result<serde_json::Value, Error> {
    serde_json::to_value(Object(&dynamic(message)?))
}

fn pool() -> Result<&'static DescriptorPool, Error> {
    static POOL: OnceLock<Result<DescriptorPool, String>> = OnceLock::new();
    POOL.get_or_init(|| DescriptorPool::decode(signalbox_api::DESCRIPTORS).map_err(|e| e.to_string()))
        .as_ref()
        .map_err(Error::custom)
}

fn dynamic<M: Message + Name>(message: &M) -> Result<DynamicMessage, Error> {
    let name = M::full_name();
    let descriptor = pool()?
        .get_message_by_name(&name)
        .ok_or_else(|| Error::custom(format!("no descriptor of {name}")))?;
    let mut dynamic = DynamicMessage::new(descriptor);
    dynamic.transcode_from(message).map_err(Error::custom)?;
    Ok(dynamic)
}
