//! The text that people and dissectors read.

use signalbox_qos::wire::qspec::{Field, Qspec, Value};

use super::support::*;

#[test]
fn a_qspec_in_words() {
    let desired = object_of(0x8000, &format!("{VOICE_HEX} 000c0001 b8000000 e12c0001 01020304"));
    let available = object_of(1, "20030001 ffffffff 00050001 3727c5ac 000e0001 09000000");
    let octets = qspec_of(0x1000, &format!("{desired} {available}"));
    let text = Qspec::frame(&octets).unwrap().to_string();
    assert_eq!(
        text,
        "Initiator QSPEC, type default, procedure sender-initiated, desired and available\n\
         QoS Desired [E]: TMOD-1 rate=10000 bucket=2000 peak=inf min_policed=200 max_packet=200 [M]; \
         PHB Class dscp=46 set=false; 300 octets=01020304 [M E N]\n\
         QoS Available: Path Latency latency_us=indeterminate [N]; Path PLR ratio=1e-5; \
         Y.1541 QoS Class 09000000 (value out of range)"
    );
}

#[test]
fn a_local_one_shows_what_is_in_it() {
    let octets = hex(&format!("0880000b 00000002 000c0001 b8000000 00000007 00000006 {VOICE_HEX}"));
    let text = Qspec::parse(&octets).unwrap().to_string();
    assert!(text.starts_with("Local QSPEC, type RMD-QOSM, procedure sender-initiated, desired\n"), "{text}");
    assert!(text.contains("\nencapsulated Initiator QSPEC, type default"), "{text}");
}

/// Every value has fields, with names of one word that differ from each other.
#[test]
fn fields_have_names() {
    let octets = desired_of(ALL_PARAMETERS);
    for parameter in Qspec::parse(&octets).unwrap().desired().unwrap().parameters() {
        let mut names = Vec::new();
        parameter.value().unwrap().fields(|name, _| names.push(name));
        assert!(!names.is_empty(), "{}", parameter.id);
        assert!(names.iter().all(|name| !name.contains(' ')));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
    let mut fields = Vec::new();
    Value::PathLatency(7).fields(|name, field| fields.push((name, field)));
    assert_eq!(fields, [("latency_us", Field::Named(7, None))]);
}
