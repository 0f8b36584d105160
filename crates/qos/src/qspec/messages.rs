//! Which objects are in which message (RFC 5975 §4.3, tables 1 to 3).

use crate::wire::qspec::{ObjectType, ParameterId, Problem, Procedure, Qspec, QspecError};

/// The message of QoS NSLP that carries a QSPEC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Message {
    /// It reserves.
    Reserve,
    /// It asks.
    Query,
    /// It answers.
    Response,
    /// It tells. Which objects it carries is left to the QoS model (§4.3.5).
    Notify,
}

/// The objects that must be there, and those that may.
type Objects = (&'static [ObjectType], &'static [ObjectType]);

/// The row of the tables; `None` where the procedure has no such message.
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

/// Whether nodes that this message passes write what they have into QoS Available (§3.2): in a RESPONSE, and in
/// a RESERVE whose QUERY collected it, they must not.
#[must_use]
pub const fn available_is_collected(procedure: Procedure, message: Message) -> bool {
    matches!(
        (procedure, message),
        (Procedure::AVAILABLE | Procedure::MINIMUM | Procedure::RECEIVER_AVAILABLE, Message::Reserve)
            | (Procedure::RECEIVER_COLLECTED | Procedure::QUERY, Message::Query)
    )
}

/// Whether the procedure makes sense only with a RESPONSE, so that the initiator should ask for one with a request
/// identification (§4.3): without it nobody learns what is available.
#[must_use]
pub const fn wants_response(procedure: Procedure) -> bool {
    !matches!(procedure, Procedure::DESIRED | Procedure::RECEIVER_DESIRED)
}

/// Everything that is wrong with a QSPEC in this message: what [`Qspec::faults`] finds, objects that the
/// procedure lacks or does not have there, and a missing TMOD-1.
pub fn faults<'a>(qspec: &Qspec<'a>, message: Message) -> impl Iterator<Item = QspecError> + use<'a> {
    let qspec = *qspec;
    qspec.faults().chain(of_message(qspec, message))
}

/// Checks a QSPEC for its message. The QSPEC of a RESPONSE or NOTIFY that reports an error is not subject to this: it
/// shows the faulty parts of another message (§4.2.4).
///
/// # Errors
/// [`QspecError`]: the first fault.
pub fn check(qspec: &Qspec<'_>, message: Message) -> Result<(), QspecError> {
    faults(qspec, message).next().map_or(Ok(()), Err)
}

/// What is wrong with it in this message; nothing if the procedure is not assigned, which is a fault by itself.
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

/// The Initiator QSPEC of a request always says how much traffic there is (§3.3.1). What a Local QSPEC needs is up to
/// its domain.
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
