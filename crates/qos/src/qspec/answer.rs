//! The QSPECs of RESPONSEs and of RESERVEs that answer a QUERY (RFC 5975 §4.3).

use signalbox_wire::Writer;

use super::messages::{Message, check};
use super::pass::not_encodable;
use super::seed::start_of;
use crate::wire::qspec::{
    Composer, EncodeError, MessageSequence, Object, ObjectType, ParameterId, Problem, Procedure, Qspec,
    QspecError, Tmod, Value,
};

/// Runs `compose`, and removes its octets if it fails.
pub(super) fn append(
    out: &mut Vec<u8>,
    compose: impl FnOnce(&mut Writer<'_>) -> Result<(), EncodeError>,
) -> Result<(), QspecError> {
    let mut w = Writer::new(out);
    match compose(&mut w) {
        Ok(()) => Ok(()),
        Err(error) => {
            w.abandon();
            Err(not_encodable(&error))
        }
    }
}

/// Appends `object` as an object of type `kind` with unchanged flags and values.
fn copy(composer: &mut Composer<'_, '_>, kind: ObjectType, object: &Object<'_>) -> Result<(), EncodeError> {
    composer.object(kind, object.error, |o| object.parameters().try_for_each(|p| o.copy(&p)))
}

/// Appends the objects for private or experimental use.
fn copy_private(composer: &mut Composer<'_, '_>, qspec: &Qspec<'_>) -> Result<(), EncodeError> {
    qspec.objects().filter(|o| o.kind.is_private()).try_for_each(|o| copy(composer, o.kind, &o))
}

/// Appends to `out` the QSPEC of a successful RESPONSE to a RESERVE or QUERY (RFC 5975 §4.3). `octets` are the QSPEC
/// that [`pass`](super::pass) made at this last node.
///
/// QoS Reserved has the parameters of QoS Desired, with the values of QoS Available where that has them; QoS
/// Available is copied whole; traffic handling directives come back with the values with which they arrived.
///
/// # Errors
/// [`QspecError`] if `octets` are no valid QSPEC of `request`; nothing is appended.
pub fn respond(octets: &[u8], request: Message, out: &mut Vec<u8>) -> Result<(), QspecError> {
    let qspec = Qspec::parse(octets)?;
    check(&qspec, request)?;
    append(out, |w| {
        let mut composer = Composer::new(qspec.header, w)?;
        let available = qspec.available();
        if let Some(desired) = qspec.desired() {
            composer.object(ObjectType::RESERVED, desired.error, |o| {
                desired.parameters().try_for_each(|desired| {
                    let current = available.and_then(|a| a.parameter(desired.id));
                    o.copy(&current.unwrap_or(desired))
                })
            })?;
        }
        if let Some(available) = available {
            copy(&mut composer, ObjectType::AVAILABLE, &available)?;
        }
        copy_private(&mut composer, &qspec)?;
        composer.finish(qspec.encapsulated())
    })
}

/// Appends to `out` the QSPEC of the RESERVE with which a receiver answers a QUERY (RFC 5975 §4.3.2). `octets` are the
/// QSPEC that [`pass`](super::pass) made at this node.
///
/// # Errors
/// [`QspecError`] if `octets` are no valid QSPEC of such a QUERY; nothing is appended.
pub fn reserve_for(octets: &[u8], out: &mut Vec<u8>) -> Result<(), QspecError> {
    let qspec = Qspec::parse(octets)?;
    check(&qspec, Message::Query)?;
    let procedure = qspec.header.procedure;
    if procedure.sequence() != MessageSequence::RECEIVER_INITIATED {
        return Err(QspecError::header(Problem::NotAllowed, "QSPEC Procedure", 1, procedure.0.into()));
    }
    append(out, |w| {
        let mut composer = Composer::new(qspec.header, w)?;
        let collected = qspec.available();
        if let Some(desired) = qspec.desired() {
            composer.object(ObjectType::DESIRED, desired.error, |o| {
                desired.parameters().try_for_each(|desired| {
                    let current = collected.and_then(|a| a.parameter(desired.id));
                    o.copy(&current.unwrap_or(desired))
                })
            })?;
            if procedure == Procedure::RECEIVER_AVAILABLE {
                composer.object(ObjectType::AVAILABLE, false, |o| {
                    desired.parameters().try_for_each(|p| match p.value().ok().and_then(|v| start_of(&v)) {
                        Some(value) => o.put(p.flags, &value),
                        None => Ok(()),
                    })
                })?;
            }
        }
        for object in [collected, qspec.minimum()].into_iter().flatten() {
            copy(&mut composer, object.kind, &object)?;
        }
        copy_private(&mut composer, &qspec)?;
        composer.finish(qspec.encapsulated())
    })
}

/// Whether a RESERVE with the QSPEC `reserve` is for what a QUERY with RESERVE-INIT and the QSPEC `query` asks for, perhaps for smaller
/// packets ([`with_packets`]). A QUERY that collects what its path can give asks for nothing exactly.
#[must_use]
pub fn answers(reserve: &[u8], query: &[u8]) -> bool {
    let (Ok(reserve), Ok(query)) = (Qspec::frame(reserve), Qspec::frame(query)) else { return true };
    query.available().is_some()
        || (terms(reserve.desired()).eq(terms(query.desired()))
            && terms(reserve.minimum()).eq(terms(query.minimum())))
}

/// The values of an object, for packets of any size.
fn terms(object: Option<Object<'_>>) -> impl Iterator<Item = (ParameterId, Option<Value<'_>>)> {
    let any_size = |value| match value {
        Value::Tmod1(tmod) => Value::Tmod1(Tmod { max_packet: 0, ..tmod }),
        Value::Tmod2(tmod) => Value::Tmod2(Tmod { max_packet: 0, ..tmod }),
        other => other,
    };
    let parameters = object.into_iter().flat_map(|object| object.parameters());
    parameters.map(move |parameter| (parameter.id, parameter.value().ok().map(any_size)))
}

/// Appends to `out` the QSPEC `octets` of a RESERVE for packets of at most `most` octets: where a node of the path refused larger ones, the
/// RESERVE is repeated with it.
///
/// # Errors
/// [`QspecError`] if `octets` are no valid QSPEC, or a TMOD counts each packet with more than `most` octets; nothing is appended.
pub fn with_packets(octets: &[u8], most: u32, out: &mut Vec<u8>) -> Result<(), QspecError> {
    let qspec = Qspec::parse(octets)?;
    let smaller = |tmod: Tmod| Tmod { max_packet: tmod.max_packet.min(most), ..tmod };
    append(out, |w| {
        let mut composer = Composer::new(qspec.header, w)?;
        for object in qspec.objects() {
            composer.object(object.kind, object.error, |o| {
                object.parameters().try_for_each(|parameter| match parameter.value() {
                    Ok(Value::Tmod1(tmod)) => o.put(parameter.flags, &Value::Tmod1(smaller(tmod))),
                    Ok(Value::Tmod2(tmod)) => o.put(parameter.flags, &Value::Tmod2(smaller(tmod))),
                    Ok(_) | Err(_) => o.copy(&parameter),
                })
            })?;
        }
        composer.finish(qspec.encapsulated())
    })
}
