//! The QSPECs of errors (RFC 5975 §4.2.3, §4.2.4).

use super::answer::append;
use super::messages::{Message, faults};
use crate::wire::qspec::{
    Composer, EncodeError, Flags, Object, Outcome, Parameter, ParameterId, Qspec, QspecError,
};

/// Most octets of faulty parameters in [`malformed`].
const MAX_QUOTED: usize = 256;

/// Appends to `out` the QSPEC of a RESPONSE with 4/0x07 after a refusal of admission control (RFC 5975 §4.2.4).
/// `octets` are the result of [`pass`](super::pass), or the received QSPEC.
///
/// E is set on `blame` in QoS Desired, or else in QoS Available, and on its object. If no parameter caused the refusal
/// (`None`), or no object has it, only the object gets E (§4.2.1).
///
/// # Errors
/// [`QspecError`] if `octets` are no valid QSPEC; nothing is appended.
pub fn refuse(octets: &[u8], blame: Option<ParameterId>, out: &mut Vec<u8>) -> Result<(), QspecError> {
    let qspec = Qspec::parse(octets)?;
    let mut objects = [qspec.desired(), qspec.available()].into_iter().flatten();
    let has = |object: &Object<'_>| blame.is_some_and(|id| object.parameter(id).is_some());
    let target = objects.clone().find(has).or_else(|| objects.next()).or_else(|| qspec.objects().next());
    append(out, |w| {
        let mut composer = Composer::new(qspec.header, w)?;
        for object in qspec.objects() {
            let is_target = target.is_some_and(|target| target.kind == object.kind);
            composer.object(object.kind, object.error || is_target, |o| {
                object.parameters().try_for_each(|p| {
                    let error = p.flags.error || (is_target && blame == Some(p.id));
                    o.copy(&Parameter { flags: Flags { error, ..p.flags }, ..p })
                })
            })?;
        }
        composer.finish(qspec.encapsulated())
    })
}

/// Appends to `out` the QSPEC for the INFO-SPEC 3/0x0c of a stateful node: only the faulty parameters of `octets`,
/// unchanged, with E on them and on their objects (RFC 5975 §4.2.4). Their number is limited. Returns false, and
/// appends nothing, if no parameter is faulty or the parts cannot be found.
pub fn malformed(octets: &[u8], message: Message, out: &mut Vec<u8>) -> bool {
    let Ok(qspec) = Qspec::frame(octets) else { return false };
    // A Local QSPEC is shown without the QSPEC that it encapsulates, which was not examined.
    let header = crate::wire::qspec::Header { local: false, ..qspec.header };
    let composed = append(out, |w| {
        let mut composer = Composer::new(header, w)?;
        let mut room = MAX_QUOTED;
        for object in qspec.objects() {
            let wrong = |p: &Parameter<'_>| {
                faults(&qspec, message).any(|e| e.parameter == Some(p.id) && e.object_start == object.start)
            };
            if !object.parameters().any(|p| wrong(&p) && p.octets.len() <= room) {
                continue;
            }
            composer.object(object.kind, true, |o| {
                let mut quoted: Option<ParameterId> = None;
                for p in object.parameters().filter(wrong) {
                    // Of a parameter that occurs twice, one copy is sufficient.
                    if p.octets.len() > room || quoted == Some(p.id) {
                        continue;
                    }
                    match o.quote(Flags { error: true, ..p.flags }, &p) {
                        Ok(()) => room -= p.octets.len(),
                        Err(EncodeError::DuplicateParameter(_)) => {}
                        Err(error) => return Err(error),
                    }
                    quoted = Some(p.id);
                }
                Ok(())
            })?;
        }
        composer.finish(None)
    });
    composed.is_ok()
}

/// Appends to `out` a malformed QSPEC as a stateless node forwards it: all of it, with E on each faulty parameter and
/// on its object (RFC 5975 §4.2.4). Returns false, and appends nothing, if the parts cannot be found. Then the message
/// is forwarded unchanged.
pub fn flagged(octets: &[u8], message: Message, out: &mut Vec<u8>) -> bool {
    let Ok(qspec) = Qspec::frame(octets) else { return false };
    let start = out.len();
    out.extend_from_slice(octets);
    let Some(copy) = out.get_mut(start..) else { return false };
    for fault in faults(&qspec, message).filter(|fault| fault.object_start != 0) {
        let mut flag = |at: usize, bit: u8| {
            if let Some(octet) = copy.get_mut(at) {
                *octet |= bit;
            }
        };
        flag(fault.object_start, Flags::OBJECT_E);
        if fault.parameter.is_some() {
            flag(fault.parameter_start, Flags::E);
        }
    }
    true
}

/// The parameters that caused this outcome, for the initiator: those with E and, after a failure, also mandatory ones
/// that were not supported. Use [`Qspec::frame`] to read the QSPEC of a RESPONSE.
pub fn blamed<'a>(qspec: &Qspec<'a>, outcome: Outcome) -> impl Iterator<Item = Parameter<'a>> + use<'a> {
    qspec.objects().flat_map(|object| object.parameters()).filter(move |p| {
        let not_understood = p.flags.not_supported && p.flags.mandatory && p.id != ParameterId::TMOD_1;
        p.flags.error || (outcome == Outcome::FAILURE && not_understood)
    })
}
