//! Lines of JSON, and whether the schemas in `docs/schema` describe them.

use std::path::PathBuf;

use serde_json::{Value, json};
use signalbox_api::{gist, ping, rsvp, v1};
use signalbox_json::{Events, Row, event, row, value};

fn parse(line: &str) -> Value {
    assert!(line.starts_with(r#"{"type":""#), "{line}");
    serde_json::from_str(line).unwrap()
}

fn schema(name: &str) -> Value {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
    let text = std::fs::read_to_string(root.join(format!("{name}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Compares a value with a schema, of which it knows the keywords that the schemas use. Other than JSON Schema it
/// refuses properties that are not named, so that a wrong name is noticed.
fn compare(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let fail = || Err(format!("{value} does not match {schema}"));
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.strip_prefix("#/$defs/").unwrap();
        return compare(root, &root["$defs"][name], value);
    }
    if let Some(constant) = schema.get("const")
        && constant != value
    {
        return fail();
    }
    if let Some(names) = schema["enum"].as_array()
        && !names.contains(value)
    {
        return fail();
    }
    for (keyword, several) in [("anyOf", true), ("oneOf", false)] {
        if let Some(schemas) = schema[keyword].as_array() {
            let found = schemas.iter().filter(|schema| compare(root, schema, value).is_ok()).count();
            if found == 0 || (found > 1 && !several) {
                return Err(format!("{value} matches {found} of {keyword}"));
            }
        }
    }
    match (schema["type"].as_str(), value) {
        (None, _) | (Some("boolean"), Value::Bool(_)) | (Some("number"), Value::Number(_)) => Ok(()),
        (Some("integer"), Value::Number(number)) if number.is_u64() || number.is_i64() => Ok(()),
        (Some("string"), Value::String(text)) => {
            let hexadecimal = schema["pattern"].is_string();
            let digits = text.len() % 2 == 0 && text.bytes().all(|c| b"0123456789abcdef".contains(&c));
            if hexadecimal && !digits { fail() } else { Ok(()) }
        }
        (Some("array"), Value::Array(elements)) => {
            elements.iter().try_for_each(|element| compare(root, &schema["items"], element))
        }
        (Some("object"), Value::Object(object)) => {
            let required = schema["required"].as_array().unwrap();
            if let Some(missing) = required.iter().find(|name| !object.contains_key(name.as_str().unwrap())) {
                return Err(format!("{missing} is missing in {value}"));
            }
            object.iter().try_for_each(|(name, value)| match schema["properties"].get(name) {
                Some(schema) => compare(root, schema, value),
                None => Err(format!("{name} is in no schema")),
            })
        }
        _ => fail(),
    }
}

fn checked_row<R: Row>(message: &R) -> Value {
    let line = parse(&row(message).unwrap());
    let schema = schema(R::TYPE);
    compare(&schema, &schema, &line).unwrap();
    line
}

fn checked_event<E: Events>(response: &E) -> Value {
    let line = parse(&event(response).unwrap().unwrap());
    let schema = schema(E::STREAM);
    compare(&schema, &schema, &line).unwrap();
    line
}

#[test]
fn a_row_has_all_fields_without_presence_and_no_absent_one() {
    let reservation = v1::Reservation {
        id: "7".into(),
        protocol: v1::Protocol::Rsvp.into(),
        flows: vec![v1::FlowSpec { destination: Some("10.0.1.2".into()), ..Default::default() }],
        service: Some(v1::Service { service: Some(v1::service::Service::Dscp(46)) }),
        traffic: Some(v1::TokenBucket { rate_octets_per_s: u64::MAX, ..Default::default() }),
        ..Default::default()
    };
    assert_eq!(
        checked_row(&reservation),
        json!({
            "type": "reservation",
            "id": "7",
            "protocol": "rsvp",
            "flows": [{ "destination": "10.0.1.2" }],
            "service": { "dscp": 46 },
            "traffic": { "rate_octets_per_s": u64::MAX },
            "enforced": false,
        })
    );
}

#[test]
fn octets_are_digits_and_enumerations_lower_case() {
    let session = gist::v1::Session {
        session_id: vec![0xab; 16],
        downstream: Some(gist::v1::RoutingState {
            state: gist::v1::State::AwaitingResponse.into(),
            role: 99,
            ..Default::default()
        }),
        ..Default::default()
    };
    let line = checked_row(&session);
    assert_eq!(line["session_id"], "ab".repeat(16));
    let state = &line["downstream"];
    assert_eq!((&state["state"], &state["role"]), (&json!("awaiting_response"), &json!("unknown_99")));
    assert!(line.get("upstream").is_none() && line["queued_messages"].is_u64());
}

#[test]
fn an_event_has_its_name_its_time_and_its_fields() {
    let granted = v1::PathGrant { gaps: true, ..Default::default() };
    let response = v1::ReserveResponse {
        time_unix_us: 1_700_000_000_000_000,
        event: Some(v1::reserve_response::Event::Granted(granted)),
    };
    let expected = json!({
        "type": "granted",
        "time_unix_us": 1_700_000_000_000_000_u64,
        "hops": [],
        "gaps": true,
        "rerouted": false,
    });
    assert_eq!(checked_event(&response), expected);
    let unknown = v1::ReserveResponse { time_unix_us: 1, event: None };
    assert!(event(&unknown).unwrap().is_none(), "an event of a newer daemon");
}

#[test]
fn every_stream_has_a_schema_that_real_events_match() {
    let reply =
        ping::v1::PingReply { rtt_us: 1250, hops: vec![ping::v1::Hop::default()], ..Default::default() };
    let reply =
        ping::v1::PingResponse { time_unix_us: 1, event: Some(ping::v1::ping_response::Event::Reply(reply)) };
    assert_eq!(checked_event(&reply)["rtt_us"], 1250);
    let selector = Some(rsvp::v1::filter::Selector::SourcePort(9));
    let removed = rsvp::v1::Filter { source: Some("10.0.0.1".into()), selector };
    let removed = rsvp::v1::SessionResponse {
        time_unix_us: 1,
        upcall: Some(rsvp::v1::session_response::Upcall::PathRemoved(removed)),
    };
    assert_eq!(checked_event(&removed)["type"], "path_removed");
    let refused = v1::Failure {
        cause: v1::Cause::Admission.into(),
        code: Some(v1::failure::Code::Qos(v1::QosCode { class: 2, code: 5 })),
        ..Default::default()
    };
    let refused = v1::QueryResponse { answer: Some(v1::query_response::Answer::Failed(refused)) };
    assert_eq!(checked_event(&refused)["qos"], json!({ "class": 2, "code": 5 }));
}

/// The last line of `rsvp send` and `rsvp receive` is the command's own.
#[test]
fn the_last_line_of_an_rsvp_session_has_a_schema() {
    let schema = schema("rsvp");
    compare(&schema, &schema, &json!({ "type": "released", "time_unix_us": 1 })).unwrap();
}

/// The page about the schemas names every row and every stream.
#[test]
fn the_page_names_each_schema() {
    let page = include_str!("../../../docs/schema/README.md");
    for (name, _) in signalbox_json::ROWS.iter().chain(signalbox_json::STREAMS) {
        assert!(page.contains(&format!("`{name}`")), "docs/schema/README.md lacks {name}");
    }
}

#[test]
fn metrics_are_rows() {
    let value = Some(v1::sample::Value::Gauge(0.5));
    let label = v1::Label { name: "protocol".into(), value: "gist".into() };
    let family = v1::MetricFamily {
        name: "signalbox_sessions".into(),
        kind: v1::MetricKind::Gauge.into(),
        samples: vec![v1::Sample { labels: vec![label], value }],
        ..Default::default()
    };
    let line = checked_row(&family);
    assert_eq!((&line["kind"], &line["samples"][0]["gauge"]), (&json!("gauge"), &json!(0.5)));
}

#[test]
fn a_line_that_breaks_the_rules_matches_no_schema() {
    let schema = schema("interface");
    let good = parse(&row(&v1::Interface::default()).unwrap());
    compare(&schema, &schema, &good).unwrap();
    for (name, wrong) in [("up", json!(1)), ("reserved_octets_per_s", json!("1")), ("rate", json!(1))] {
        let mut line = good.clone();
        line[name] = wrong;
        assert!(compare(&schema, &schema, &line).is_err(), "{name}");
    }
    let part = value(&v1::InterfaceRef { name: "eth0".into(), index: 2 }).unwrap();
    assert_eq!(part, json!({ "name": "eth0", "index": 2 }));
}

#[test]
fn the_schemas_in_the_repository_are_current() {
    for (name, generated) in signalbox_json::schemas().unwrap() {
        assert!(schema(&name) == generated, "run cargo xtask schema: {name}.json");
    }
}
