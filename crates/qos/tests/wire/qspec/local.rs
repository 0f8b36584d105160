//! Local QSPECs.

use signalbox_qos::wire::qspec::{
    Composer, EncodeError, Flags, Header, ObjectType, ParameterId, PhbClass, Problem, Procedure, Qspec,
    QspecType, Value,
};
use signalbox_wire::Writer;

use super::support::*;

const LOCAL: Header = Header { local: true, qspec_type: QspecType::RMD, procedure: Procedure::DESIRED };

fn around(initiator: Option<&[u8]>) -> Result<Vec<u8>, EncodeError> {
    let mut octets = Vec::new();
    let mut w = Writer::new(&mut octets);
    let mut composer = Composer::new(LOCAL, &mut w)?;
    composer
        .object(ObjectType::DESIRED, false, |o| o.put(Flags::default(), &Value::Phb(PhbClass::dscp(46))))?;
    composer.finish(initiator)?;
    Ok(octets)
}

/// QSPEC-4.1-01: I set, the local objects, and the whole Initiator QSPEC at the end; the length includes all of it.
#[test]
fn golden() {
    let initiator = desired_of(VOICE_HEX);
    let octets = around(Some(&initiator)).unwrap();
    let words = format!("0880000b 00000002 000c0001 b8000000 00000007 00000006 {VOICE_HEX}");
    assert_eq!(octets, hex(&words));
    let local = Qspec::parse(&octets).unwrap();
    assert_eq!(local.header, LOCAL);
    assert_eq!(local.objects().count(), 1);
    assert_eq!(local.encapsulated(), Some(&initiator[..]));
    let phb = local.desired().unwrap().value(ParameterId::PHB_CLASS);
    assert_eq!(phb, Some(Value::Phb(PhbClass::dscp(46))));
    assert_eq!(encode(&local).unwrap(), octets);
}

/// A Local QSPEC contains exactly one Initiator QSPEC, and an Initiator QSPEC contains no other QSPEC.
#[test]
fn only_so() {
    let initiator = desired_of(VOICE_HEX);
    let local = around(Some(&initiator)).unwrap();
    assert!(around(None).is_err());
    assert!(around(Some(&local)).is_err());
    assert!(around(Some(&[])).is_err());
    let mut octets = Vec::new();
    let mut w = Writer::new(&mut octets);
    let mut composer = Composer::new(Header::initiator(Procedure::DESIRED), &mut w).unwrap();
    composer.object(ObjectType::DESIRED, false, |o| o.put(Flags::default(), &Value::SlackTerm(1))).unwrap();
    assert!(composer.finish(Some(&initiator)).is_err());

    let nested =
        qspec_of(0x0880_0000, &format!("00000002 00070001 00000000 {}", signalbox_wire::hex(&local)));
    assert_eq!(Qspec::parse(&nested).unwrap_err().problem, Problem::NotInitiator);
    let newer = qspec_of(0x0880_0000, "00000002 00070001 00000000 10000001 00000000");
    let error = Qspec::parse(&newer).unwrap_err();
    assert_eq!((error.problem, error.offset), (Problem::Version, 16));
    let bare =
        qspec_of(0x0880_0000, &format!("{} {}", object_of(1, "00070001 00000000"), object_of(0, VOICE_HEX)));
    assert!(Qspec::parse(&bare).is_err(), "a Local QSPEC that ends with an object of its own");
}

/// Interior nodes do not check the encapsulated QSPEC: only the edges detect a bad value in it.
#[test]
fn what_is_inside_is_for_the_edges() {
    let initiator = desired_of("000e0001 08000000");
    let octets = around(Some(&initiator)).unwrap();
    let local = Qspec::parse(&octets).unwrap();
    assert!(Qspec::parse(local.encapsulated().unwrap()).is_err());
}
