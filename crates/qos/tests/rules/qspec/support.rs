//! Requests, nodes, and the path along them.

use signalbox_qos::qspec::{Message, Offer, Passed, Wish, pass};
use signalbox_qos::wire::qspec::{
    Composer, Flags, Header, Object, ObjectType, ParameterId, Procedure, Qspec, Tmod, Value,
};
use signalbox_wire::Writer;

/// No flag is set.
pub(crate) const PLAIN: Flags = Flags { mandatory: false, error: false, not_supported: false };
/// The M flag.
pub(crate) const M: Flags = Flags::MANDATORY;

/// A TMOD of this rate; its other values have no meaning.
pub(crate) const fn tmod(rate: f32) -> Tmod {
    let peak = if rate > 1e6 { rate } else { 1e6 };
    Tmod { rate, bucket: 10_000.0, peak, min_policed: 64, max_packet: 1500 }
}

/// A node with this rate available, and unlimited other resources.
pub(crate) fn node(rate: f32) -> Offer {
    Offer::of(Tmod { rate, ..Offer::UNLIMITED })
}

/// A QSPEC with these objects.
pub(crate) fn qspec(procedure: Procedure, objects: &[(ObjectType, &[(Flags, Value<'_>)])]) -> Vec<u8> {
    let mut octets = Vec::new();
    let mut w = Writer::new(&mut octets);
    let mut composer = Composer::new(Header::initiator(procedure), &mut w).unwrap();
    for (kind, parameters) in objects {
        composer
            .object(*kind, false, |o| parameters.iter().try_for_each(|(flags, value)| o.put(*flags, value)))
            .unwrap();
    }
    composer.finish(None).unwrap();
    octets
}

pub(crate) fn compose(wish: &Wish<'_>) -> Vec<u8> {
    let mut octets = Vec::new();
    wish.compose(&mut octets).unwrap();
    octets
}

/// The QSPEC that leaves one node.
pub(crate) fn at(octets: &[u8], message: Message, offer: &Offer) -> (Vec<u8>, Passed) {
    let mut out = b"before".to_vec();
    let passed = pass(octets, message, offer, &mut out).unwrap_or_else(|e| panic!("{e}"));
    (out.split_off(6), passed)
}

/// The QSPEC that leaves the last of these nodes, and the result of each node.
pub(crate) fn along(octets: &[u8], message: Message, nodes: &[Offer]) -> (Vec<u8>, Vec<Passed>) {
    let mut octets = octets.to_vec();
    let mut said = Vec::new();
    for offer in nodes {
        let (next, passed) = at(&octets, message, offer);
        octets = next;
        said.push(passed);
    }
    (octets, said)
}

pub(crate) fn object(octets: &[u8], kind: ObjectType) -> Object<'_> {
    Qspec::frame(octets).unwrap().object(kind).unwrap_or_else(|| panic!("no {kind}"))
}

pub(crate) fn value(octets: &[u8], kind: ObjectType, id: ParameterId) -> Value<'_> {
    object(octets, kind).value(id).unwrap_or_else(|| panic!("no {id} in {kind}"))
}

pub(crate) fn flags(octets: &[u8], kind: ObjectType, id: ParameterId) -> Flags {
    object(octets, kind).parameter(id).unwrap_or_else(|| panic!("no {id} in {kind}")).flags
}

/// The rate r of TMOD-1.
pub(crate) fn rate(octets: &[u8], kind: ObjectType) -> f32 {
    match value(octets, kind, ParameterId::TMOD_1) {
        Value::Tmod1(tmod) => tmod.rate,
        other => panic!("{other}"),
    }
}

/// Values of all parameters.
pub(crate) fn values<'a>(octets: &'a [u8], kind: ObjectType) -> Vec<Value<'a>> {
    object(octets, kind).parameters().map(|p| p.value().unwrap()).collect()
}
