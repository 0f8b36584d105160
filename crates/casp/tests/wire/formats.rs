//! Lengths and padding of objects, and the fields of flows.

use signalbox_casp::wire::{Body, ClientType, EncodeError, FlowForm, FlowId, MAX_CONTENTS, Signaling};

use crate::support::*;

/// CASP-4.3-02, CASP-4.3-03, CASP-4.3-04, CASP-4.3-06: 0 to 8 octets, padded with the fewest zeros, and another object
/// behind them.
#[test]
fn objects_are_padded_to_words() {
    let all = [1, 2, 3, 4, 5, 6, 7, 8];
    for octets in 0..=8 {
        let data = &all[..octets];
        let body = Body::Client { client: ClientType::PING, data };
        let sent = composed(&Signaling { body, ..Signaling::new(session(), flow()) });
        assert_eq!(sent[40..42], u16::try_from(4 + octets).unwrap().to_be_bytes());
        assert_eq!(sent.len(), 44 + octets.next_multiple_of(4));
        assert!(sent[44 + octets..].iter().all(|octet| *octet == 0));
        let more = [sent, hex("00086301 aabbccdd")].concat();
        let read = signaling(&more);
        assert_eq!(read.body, body);
        assert_eq!(read.kept().next().unwrap().contents, [0xaa, 0xbb, 0xcc, 0xdd]);
    }
}

/// CASP-G-03: padding that is not zero is ignored.
#[test]
fn padding_is_not_read() {
    let octets = with_objects(&[FLOW, "00090301 68656c6c 6fffffff"]);
    assert_eq!(signaling(&octets).body, Body::Client { client: ClientType::QOS, data: b"hello" });
}

/// CASP-A.3-01: 65,531 octets fit, one more does not.
#[test]
fn the_largest_object_has_65535_octets() {
    let data = vec![7; MAX_CONTENTS + 1];
    let message = |data| Signaling {
        body: Body::Client { client: ClientType::QOS, data },
        ..Signaling::new(session(), flow())
    };
    let octets = composed(&message(&data[..MAX_CONTENTS]));
    assert_eq!(octets.len(), 40 + 65_536);
    assert_eq!(signaling(&octets).body, message(&data[..MAX_CONTENTS]).body);
    let mut none = Vec::new();
    assert!(matches!(message(&data).encode(&mut none), Err(EncodeError::TooLong { octets: 65_536, .. })));
    assert!(none.is_empty());
}

/// CASP-A.1-05: each field of a flow is one of the data.
#[test]
fn a_flow_gives_the_filter_of_its_data() {
    assert_eq!(flow().filter().to_string(), "192.0.2.1 port 5004 > 198.51.100.7 port 5006 proto 17");
    let octets = with_objects(&[V8]);
    assert_eq!(signaling(&octets).flow.to_string(), "192.0.2.1 > 198.51.100.7 proto 50 spi 49374");
    let octets = body(V7);
    assert_eq!(signaling(&octets).flow.to_string(), "2001:db8::1 > 2001:db8:1::7 label 74565");
    let FlowId::V4Ports { src, dst, .. } = flow() else { unreachable!() };
    let icmp = FlowId::V4Ports { src, dst, src_port: 1, dst_port: 2, protocol: 1 };
    assert_eq!(icmp.to_string(), "192.0.2.1 > 198.51.100.7 proto 1");
    assert_eq!((flow().form(), flow().label(), flow().spi()), (FlowForm::IPV4_PORTS, 0, None));
}
