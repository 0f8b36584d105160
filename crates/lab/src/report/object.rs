//! The lines of JSON that the lab, the simulator and the benchmarks print. Each is an object whose first field says what it is.

use serde::Serialize;

#[derive(Serialize)]
struct Object<'a, T: Serialize> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(flatten)]
    rest: &'a T,
}

/// Returns an object of this type as a line. `docs/schema` describes the types.
///
/// # Errors
/// `rest` is no object.
pub fn line<T: Serialize>(kind: &str, rest: &T) -> serde_json::Result<String> {
    serde_json::to_string(&Object { kind, rest })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_type_stands_in_front() {
        let text = line("lab_check", &json!({"ok": true, "checks": 3})).expect("an object");
        assert_eq!(text, r#"{"type":"lab_check","checks":3,"ok":true}"#);
        assert!(line("lab_check", &json!([1])).is_err());
    }
}
