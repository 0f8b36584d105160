//! The objects of each message (RFC 5975 §4.3, tables 1 to 3).

use crate::wire::qspec::{ObjectType, ParameterId, Problem, Procedure, Qspec, QspecError};

/// The QoS NSLP message that carries a QSPEC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Message {
    /// A reservation.
    Reserve,
    /// A query.
    Query,
    /// A response.
    Response,
    /// A notification. The QoS model decides on its objects (RFC 5975 §4.3.5).
    Notify,
}

/// Mandatory and optional objects.
type Objects = (&'static [ObjectType], &'static [ObjectType]);

/// The row of the tables; `None` if the procedure has no such message.
const fn row(procedure: Procedure, message: Message) -> Option<Objects> {
    use ObjectType as O;
    Some(match (procedure, message) {
        (Procedure::DESIRED, Message::Reserve)
        | (Procedure::RECEIVER_DESIRED, Message::Query | Message::Reserve) => (&[O::DESIRED], &[]),
        (Procedure::AVAILABLE, Message::Reserve)
        | (Procedure::RECEIVER_COLLECTED, Message::Query | Message::Reserve) => {
            (&[O::DESIRED, O::AVAILABLE], &[])
        }
        (Procedure::MINIMUM, Message::Reserve) => (&[O::DESIRED, O::AVAILABLE, O::MINIMUM], &[]),
        (Procedure::RECEIVER_AVAILABLE, Message::Query) => (&[O::DESIRED], &[O::MINIMUM]),
        (Procedure::RECEIVER_AVAILABLE, Message::Reserve) => (&[O::DESIRED, O::AVAILABLE], &[O::MINIMUM]),
        (Procedure::DESIRED | Procedure::RECEIVER_DESIRED, Message::Response) => (&[O::RESERVED], &[]),
        (Procedure::QUERY, Message::Query | Message::Response) => (&[O::AVAILABLE], &[]),
        (_, Message::Response) => (&[O::RESERVED, O::AVAILABLE], &[]),
        _ => return None,
    })
}

/// Whether nodes write their resources into QoS Available of this message (RFC 5975 §3.2). In a RESPONSE, and in a
/// RESERVE whose QUERY collected it, they must not.
#[must_use]
pub const fn available_is_collected(procedure: Procedure, message: Message) -> bool {
    matches!(
        (procedure, message),
        (Procedure::AVAILABLE | Procedure::MINIMUM | Procedure::RECEIVER_AVAILABLE, Message::Reserve)
            | (Procedure::RECEIVER_COLLECTED | Procedure::QUERY, Message::Query)
    )
}

/// Whether the procedure needs a RESPONSE, so that the initiator should send an RII (RFC 5975 §4.3): without it the
/// initiator does not learn the available resources.
#[must_use]
pub const fn wants_response(procedure: Procedure) -> bool {
    !matches!(procedure, Procedure::DESIRED | Procedure::RECEIVER_DESIRED)
}

/// All faults of a QSPEC in this message: those of [`Qspec::faults`], objects that the procedure lacks or does not
/// allow, and a missing TMOD-1.
pub fn faults<'a>(qspec: &Qspec<'a>, message: Message) -> impl Iterator<Item = QspecError> + use<'a> {
    let qspec = *qspec;
    qspec.faults().chain(of_message(qspec, message))
}

/// Checks a QSPEC in its message (RFC 5975 §4.3). It does not apply to the QSPEC of a RESPONSE or NOTIFY with an
/// error, which contains the faulty parts of another message (§4.2.4).
///
/// # Errors
/// [`QspecError`]: the first fault.
pub fn check(qspec: &Qspec<'_>, message: Message) -> Result<(), QspecError> {
    faults(qspec, message).next().map_or(Ok(()), Err)
}

/// The faults of its objects in this message; none if the procedure is not assigned, which is a fault by itself.
fn of_message<'a>(qspec: Qspec<'a>, message: Message) -> impl Iterator<Item = QspecError> + use<'a> {
    let procedure = qspec.header.procedure;
    let judged = procedure.is_assigned() && message != Message::Notify;
    let row = row(procedure, message);
    let unknown_message = (judged && row.is_none())
        .then(|| QspecError::header(Problem::NotAllowed, "QSPEC Procedure", 1, procedure.0.into()));
    let (needed, optional) = row.filter(|_| judged).unwrap_or_default();
    let missing = needed.iter().filter(move |kind| qspec.object(**kind).is_none()).map(|kind| QspecError {
        value: kind.0.into(),
        object: Some(*kind),
        ..QspecError::header(Problem::Missing, "object", 0, 0)
    });
    let extra = qspec
        .objects()
        .filter(move |o| {
            judged
                && row.is_some()
                && !o.kind.is_private()
                && !needed.contains(&o.kind)
                && !optional.contains(&o.kind)
        })
        .map(|o| QspecError::object(Problem::NotAllowed, o.kind, o.start, "Object Type", o.start));
    unknown_message.into_iter().chain(missing).chain(extra).chain(without_tmod(&qspec, message))
}

/// The Initiator QSPEC of a request always has a traffic model (RFC 5975 §3.3.1). The domain decides on the objects of
/// a Local QSPEC.
fn without_tmod(qspec: &Qspec<'_>, message: Message) -> Option<QspecError> {
    if qspec.header.local || !matches!(message, Message::Reserve | Message::Query) {
        return None;
    }
    let object =
        if qspec.header.procedure == Procedure::QUERY { qspec.available() } else { qspec.desired() }?;
    if object.parameter(ParameterId::TMOD_1).is_some() {
        return None;
    }
    Some(QspecError::object(Problem::Missing, object.kind, object.start, "TMOD-1", object.start))
}
