//! The objects of each message.

use signalbox_rsvp::wire::{Class, ErrorCode, Fault, Message, MessageType, Refusal, Style};

use super::support::{
    ACK, CONFIRM, CONTROLLED, ERROR, FF, FILTER, FILTER_2, HOP, INTEGRITY, MESSAGE_ID, POLICY, SCOPE, SE,
    SESSION, TEMPLATE, TIME, TSPEC, WF, accepts, error, fault, hex, message,
};

const PATH: [&str; 5] = [SESSION, HOP, TIME, TEMPLATE, TSPEC];
const RESV: [&str; 6] = [SESSION, HOP, TIME, FF, CONTROLLED, FILTER];

fn all() -> Vec<(u8, Vec<&'static str>)> {
    vec![
        (1, PATH.to_vec()),
        (2, RESV.to_vec()),
        (3, vec![SESSION, ERROR, TEMPLATE]),
        (4, vec![SESSION, HOP, ERROR, FF]),
        (5, vec![SESSION, HOP, TEMPLATE]),
        (6, vec![SESSION, HOP, FF, FILTER]),
        (7, vec![SESSION, ERROR, CONFIRM, FF]),
    ]
}

/// Proves RSVP-2.1-01, RSVP-3.1.2-06, RSVP-3.1.2-07, RSVP-3.1.2-08, RSVP-3.1.3-03 and RSVP-3.1.4-03: each mandatory
/// object is missed.
#[test]
fn demanded_objects() {
    for (kind, objects) in all() {
        assert!(accepts(kind, &objects), "{}", MessageType(kind));
        for (left_out, object) in objects.iter().enumerate() {
            if [CONTROLLED, FILTER].contains(object) {
                continue;
            }
            let mut fewer = objects.clone();
            fewer.remove(left_out);
            let expected = if *object == FF && matches!(kind, 2 | 6) { Fault::Order } else { Fault::Missing };
            assert_eq!(fault(kind, &fewer), expected, "{} without {object}", MessageType(kind));
        }
    }
}

/// Proves RSVP-3.1-02, RSVP-3.1.3-01 and RSVP-3.1.4-01: objects without a fixed place may come anywhere before the STYLE.
#[test]
fn free_order() {
    let mut order = [SESSION, HOP, TIME, POLICY, TEMPLATE, TSPEC];
    for turn in 0..order.len() {
        order.rotate_left(1);
        assert!(accepts(1, &order), "rotation {turn}");
        order.reverse();
        assert!(accepts(1, &order), "rotation {turn}, reversed");
        order.reverse();
    }
    let mut order = [SESSION, HOP, TIME, CONFIRM, SCOPE, POLICY];
    for turn in 0..order.len() {
        order.rotate_left(1);
        let tail = [SE, CONTROLLED, FILTER, FILTER_2];
        assert!(accepts(2, &[&order[..], &tail[..]].concat()), "rotation {turn}");
    }
    // INTEGRITY comes first, STYLE and flow descriptors last.
    assert!(accepts(1, &[INTEGRITY, SESSION, HOP, TIME, TEMPLATE, TSPEC]));
    assert_eq!(fault(1, &[SESSION, INTEGRITY, HOP, TIME, TEMPLATE, TSPEC]), Fault::Order);
    assert_eq!(fault(2, &[SESSION, HOP, FF, CONTROLLED, FILTER, TIME]), Fault::Order);
    assert_eq!(fault(2, &[SESSION, HOP, TIME, CONTROLLED, FILTER, FF]), Fault::Order);
    assert_eq!(fault(2, &[SESSION, HOP, TIME, FF, CONTROLLED, POLICY, FILTER]), Fault::Order);
}

/// Proves RSVPINT-2747-2.1-06 and RSVPINT-2747-2.1-07.
#[test]
fn integrity_once_and_first() {
    for (kind, objects) in all() {
        let first = [&[INTEGRITY][..], &objects].concat();
        assert!(accepts(kind, &first), "{}", MessageType(kind));
        let last = [&objects[..], &[INTEGRITY]].concat();
        assert_eq!(fault(kind, &last), Fault::Order, "{}", MessageType(kind));
        let twice = [&[INTEGRITY, INTEGRITY][..], &objects].concat();
        assert_eq!(fault(kind, &twice), Fault::Order, "{}", MessageType(kind));
        let after_null = [&["00040000", INTEGRITY][..], &objects].concat();
        assert_eq!(fault(kind, &after_null), Fault::Order, "{}", MessageType(kind));
    }
}

/// Proves RSVPRR-2961-4-02 and RSVPRR-2961-4.1-01.
#[test]
fn acknowledgments_then_name_then_the_rest() {
    for (kind, objects) in all() {
        let nack = "000c1802 00abcdef 00000005";
        let with = |front: &[&'static str]| [front, &objects[..]].concat();
        assert!(accepts(kind, &with(&[INTEGRITY, ACK, nack, ACK, MESSAGE_ID])));
        assert!(accepts(kind, &with(&[ACK])));
        assert!(accepts(kind, &with(&[MESSAGE_ID])));
        assert_eq!(fault(kind, &with(&[MESSAGE_ID, ACK])), Fault::Order);
        assert_eq!(fault(kind, &with(&[ACK, INTEGRITY, MESSAGE_ID])), Fault::Order);
        assert_eq!(fault(kind, &with(&[MESSAGE_ID, MESSAGE_ID])), Fault::Order);
        let mut behind = objects.clone();
        behind.insert(1, MESSAGE_ID);
        assert_eq!(fault(kind, &behind), Fault::Order);
        behind[1] = ACK;
        assert_eq!(fault(kind, &behind), Fault::Order);
    }
}

/// Proves RSVP-3.1.2-09: known classes in messages where they are illegal.
#[test]
fn classes_in_wrong_messages() {
    let extra = [
        (POLICY, &[1, 2, 3, 4][..]),
        (SCOPE, &[2, 4, 6]),
        (CONFIRM, &[2, 7]),
        (TIME, &[1, 2]),
        (ERROR, &[3, 4, 7]),
        (TSPEC, &[1, 3, 5]),
        ("000c1601 00000001 00000000", &[20]),
        ("00141901 00000001 00000001 00000002 00000003", &[15]),
    ];
    for (kind, objects) in all() {
        for (object, legal) in extra {
            if objects.contains(&object) {
                continue;
            }
            let mut more = objects.clone();
            more.insert(1, object);
            if legal.contains(&kind) {
                assert!(accepts(kind, &more), "{object} in {}", MessageType(kind));
            } else {
                assert_eq!(fault(kind, &more), Fault::NotAllowed, "{object} in {}", MessageType(kind));
            }
        }
    }
}

/// Proves RSVP-3.1.4-06, RSVP-3.1.4-07, RSVP-3.1.4-08 and RSVP-3.1.4-09: flow descriptors that do not fit the style;
/// RSVP-3.1.8-04: a ResvErr has one.
#[test]
fn flow_descriptors() {
    let resv = |tail: &[&'static str]| [&[SESSION, HOP, TIME][..], tail].concat();
    for wrong in [
        &[WF][..],
        &[WF, CONTROLLED, FILTER],
        &[WF, CONTROLLED, CONTROLLED],
        &[FF, FILTER],
        &[FF, FILTER, CONTROLLED],
        &[FF, CONTROLLED],
        &[FF, CONTROLLED, CONTROLLED, FILTER],
        &[FF, CONTROLLED, FILTER, CONTROLLED],
        &[SE, CONTROLLED],
        &[SE, FILTER],
        &[SE, FILTER, CONTROLLED],
        &[SE, CONTROLLED, FILTER, CONTROLLED, FILTER_2],
    ] {
        assert_eq!(fault(2, &resv(wrong)), Fault::DescriptorCount, "{wrong:?}");
    }
    // "<flow descriptor list> ::= <empty>": no request.
    assert!(accepts(2, &resv(&[FF])) && accepts(2, &resv(&[SE])));

    let resv_err = |tail: &[&'static str]| [&[SESSION, HOP, ERROR][..], tail].concat();
    for right in
        [&[WF, CONTROLLED][..], &[FF, CONTROLLED, FILTER], &[SE, CONTROLLED, FILTER, FILTER_2], &[FF]]
    {
        assert!(accepts(4, &resv_err(right)), "{right:?}");
    }
    assert_eq!(fault(4, &resv_err(&[FF, CONTROLLED, FILTER, FILTER_2])), Fault::DescriptorCount);
    assert_eq!(fault(4, &resv_err(&[WF, CONTROLLED, CONTROLLED])), Fault::DescriptorCount);

    let tear = |tail: &[&'static str]| [&[SESSION, HOP][..], tail].concat();
    for right in
        [&[WF][..], &[WF, CONTROLLED], &[FF, FILTER], &[FF, CONTROLLED, FILTER], &[SE, FILTER, FILTER_2]]
    {
        assert!(accepts(6, &tear(right)), "{right:?}");
    }
    assert_eq!(fault(6, &tear(&[SE])), Fault::DescriptorCount);
}

/// Proves RSVP-3.1.2-02: invalid object lengths, in any object.
#[test]
fn object_lengths() {
    let good = message(1, &PATH);
    let mut at = 8;
    while at < good.len() {
        for length in [0_u16, 1, 3, 5, 6, 65532, 65535] {
            let mut octets = good.clone();
            octets[at..at + 2].copy_from_slice(&length.to_be_bytes());
            assert_eq!(error(&octets).fault, Fault::ObjectLength, "{length} at {at}");
        }
        at += usize::from(good[at + 1]);
    }
    // A valid length that is wrong for the type.
    assert_eq!(fault(1, &["00080101 0a00000a", HOP, TIME, TEMPLATE, TSPEC]), Fault::ObjectLength);
    assert_eq!(
        fault(1, &[SESSION, "00100301 0a000101 00000002 00000000", TIME, TEMPLATE, TSPEC]),
        Fault::ObjectLength
    );
}

/// Proves RSVP-3.1.2-05: NULL objects anywhere, of any C-Type and length.
#[test]
fn null_objects() {
    let long = format!("00400077 {}", "ffffffff".repeat(15));
    for null in ["00040000", &long] {
        for (kind, objects) in all() {
            for at in 0..=objects.len() {
                let mut more = objects.clone();
                more.insert(at, null);
                assert!(accepts(kind, &more), "{null} at {at} of {}", MessageType(kind));
            }
        }
        let octets =
            message(2, &[null, SESSION, null, HOP, TIME, null, SE, null, CONTROLLED, null, FILTER, null]);
        assert_eq!(Message::parse(&octets).unwrap().flows().count(), 1);
    }
}

/// Proves RSVP-3.1.2-04: all classes of RFC 2205 are known.
#[test]
fn known_classes() {
    for class in [0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15] {
        assert!(Class(class).name().is_some(), "class {class}");
    }
    let full = [
        INTEGRITY,
        SESSION,
        HOP,
        TIME,
        POLICY,
        TEMPLATE,
        TSPEC,
        "00300d02 0000000a 01000008 04000001 00000001 \
        06000001 47f42400 08000001 00000064 0a000001 000005dc 05000000",
    ];
    assert!(accepts(1, &full));
}

/// Proves RSVP-3.10-01, RSVP-3.10-08, RSVP-3.1.2-10, RSVP-B-14 and RSVP-B-15 for the format: the errors by which a Path
/// or Resv is rejected.
#[test]
fn refused() {
    let refusal = |kind: u8, objects: &[&str]| Message::parse(&message(kind, objects)).unwrap().refusal;
    let unknown_class = Some(Refusal { code: ErrorCode::UNKNOWN_CLASS, value: 0x6403 });
    let strange = "00086403 00000000";
    assert_eq!(refusal(1, &[&PATH[..], &[strange]].concat()), unknown_class);
    assert_eq!(refusal(2, &[SESSION, HOP, TIME, strange, FF, CONTROLLED, FILTER]), unknown_class);
    let c_type = |value| Some(Refusal { code: ErrorCode::UNKNOWN_C_TYPE, value });
    assert_eq!(
        refusal(2, &[SESSION, HOP, TIME, FF, CONTROLLED, "000c0a4d 0a000001 00000fa0"]),
        c_type(0x0a4d)
    );
    assert_eq!(refusal(2, &[SESSION, HOP, TIME, FF, "00080901 00000000", FILTER]), c_type(0x0901));
    let session = "000c014d 0a00000a 11001388";
    let octets = message(1, &[session, HOP, TIME, TEMPLATE, TSPEC]);
    let read = Message::parse(&octets).unwrap();
    assert_eq!((read.refusal, read.session), (c_type(0x014d), None));
    assert_eq!(read.object(Class::SESSION).unwrap().octets, hex(session), "to be returned as it came");
    // The error has no destination.
    assert_eq!(fault(1, &[SESSION, "000c034d 0a000101 00000002", TIME, TEMPLATE, TSPEC]), Fault::Missing);
    // The first one counts.
    assert_eq!(
        refusal(1, &[&[session, HOP, TIME, TEMPLATE, TSPEC][..], &[strange]].concat()),
        c_type(0x014d)
    );
}

/// Proves RSVP-A.7-03 and RSVP-B-09 for the format.
#[test]
fn styles_that_are_none() {
    for vector in [0_u32, 0x09, 0x01, 0x08, 0x11 | 0x0a, 0x13, 0x1f] {
        let style = format!("00080801 {vector:08x}");
        let read = message(2, &[SESSION, HOP, TIME, &style, CONTROLLED, FILTER]);
        let read = Message::parse(&read).unwrap();
        assert_eq!(read.refusal, Some(Refusal { code: ErrorCode::UNKNOWN_STYLE, value: 0 }), "{vector:#x}");
        assert_eq!((read.style, read.flows().count()), (None, 0));
        assert_eq!(fault(6, &[SESSION, HOP, &style, FILTER]), Fault::UnknownStyle);
    }
}

/// Proves RSVP-A.7-04: high bits are ignored.
#[test]
fn unknown_bits_of_the_option_vector() {
    let read = message(2, &[SESSION, HOP, TIME, "00080801 ff800012", CONTROLLED, FILTER]);
    assert_eq!(Message::parse(&read).unwrap().style, Some(Style::Se));
}

/// Proves RSVP-3.10-09 for the format: errors of these messages are not answered.
#[test]
fn only_path_and_resv_are_refused() {
    for (kind, objects) in all().split_off(2) {
        let mut strange = objects.clone();
        strange.insert(1, "00086403 00000000");
        assert_eq!(fault(kind, &strange), Fault::UnknownClass, "{}", MessageType(kind));
        strange[1] = "00080702 00000000";
        if kind == 4 {
            assert_eq!(fault(kind, &strange), Fault::ObjectLength);
            strange[1] = "00080703 00000000";
            assert_eq!(fault(kind, &strange), Fault::UnknownCType);
        }
    }
}

/// Proves RSVP-3.10-02 and RSVP-3.10-03 for the format: by the high bits.
#[test]
fn unknown_classes_by_their_high_bits() {
    let (ignored, kept) = ("0008be01 11111111", "000cfa01 22222222 33333333");
    for (kind, objects) in all() {
        for at in 1..=objects.len() {
            let mut more = objects.clone();
            more.insert(at, kept);
            more.insert(at, ignored);
            let octets = message(kind, &more);
            let read = Message::parse(&octets).unwrap();
            assert_eq!(read.refusal, None);
            assert_eq!(read.kept().map(|object| object.octets).collect::<Vec<_>>(), [hex(kept)]);
        }
    }
}

/// All other objects may come once.
#[test]
fn duplicates() {
    for object in PATH {
        assert_eq!(fault(1, &[&PATH[..], &[object]].concat()), Fault::Duplicate, "{object}");
    }
    assert_eq!(fault(2, &[SESSION, HOP, TIME, SCOPE, SCOPE, FF]), Fault::Duplicate);
    assert!(accepts(1, &[&PATH[..], &[POLICY, POLICY]].concat()), "any number of POLICY_DATA");
}
