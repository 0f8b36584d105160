//! Processing of the QSPEC of a RESERVE or QUERY at a node (RFC 5975 §3.2, §4.2, §4.3).

use signalbox_wire::Writer;

use super::combine::{class_for, is_stronger_class, lowered, meets, weaker_class};
use super::demand::Demand;
use super::messages::{Message, available_is_collected, check};
use super::offer::Offer;
use crate::wire::qspec::{
    Composer, EncodeError, ExcessTreatment, Flags, Object, ObjectType, Outcome, Parameter, ParameterId,
    Problem, Qspec, QspecError, Value,
};

/// The result of a QSPEC at a node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Passed {
    /// A parameter cannot be satisfied, here or at an earlier stateless node. The E and N flags show which. A stateful
    /// node answers with the QSPEC and 4/0x07, a stateless one forwards it (RFC 5975 §4.2.4).
    pub failed: bool,
    /// A node does not support a parameter. The initiator decides whether it accepts the reservation (RFC 5975
    /// §4.2.2).
    pub not_supported: bool,
    /// The resources to reserve here. It has no meaning after a failure.
    pub demand: Demand,
}

impl Passed {
    /// The outcome in the INFO-SPEC, if this node answers (RFC 5975 §4.2.3).
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        if self.failed { Outcome::FAILURE } else { Outcome::SUCCESS }
    }
}

/// Appends to `out` the QSPEC for the next node, and returns the resources to reserve at this one (RFC 5975 §3.2,
/// §4.2).
///
/// QoS Available is lowered to `offer` if the message collects it. Flags are set on parameters that are not supported
/// or cannot be satisfied. Everything else is unchanged, unknown parameters included. Of a Local QSPEC only the local
/// objects count. A RESPONSE or NOTIFY is copied.
///
/// # Errors
/// [`QspecError`], which has precedence over any failure: the QSPEC is malformed or has a higher version. Nothing is
/// appended; [`malformed`](super::malformed) makes the QSPEC of the RESPONSE.
pub fn pass(octets: &[u8], message: Message, offer: &Offer, out: &mut Vec<u8>) -> Result<Passed, QspecError> {
    let qspec = Qspec::parse(octets)?;
    check(&qspec, message)?;
    let asks = matches!(message, Message::Reserve | Message::Query);
    let collects = available_is_collected(qspec.header.procedure, message);
    let node = Node { qspec, message, offer, asks, collects };
    let mut w = Writer::new(out);
    if let Err(error) = node.write(&mut w) {
        w.abandon();
        return Err(not_encodable(&error));
    }
    let all = || qspec.objects().flat_map(|object| object.parameters().map(|p| node.judge(&p)));
    Ok(Passed {
        failed: qspec.objects().any(|object| object.error) || all().any(|judged| judged.failed),
        not_supported: all()
            .any(|judged| judged.flags.not_supported && judged.value.id() != ParameterId::TMOD_1),
        demand: Demand::of(&qspec, offer, |parameter| node.judge(parameter).value),
    })
}

/// A parsed QSPEC of the same length can always be encoded. If not, the message is refused.
pub(super) const fn not_encodable(_: &EncodeError) -> QspecError {
    QspecError::header(Problem::Value, "QSPEC", 0, 0)
}

/// The processing of one QSPEC at one node.
struct Node<'a, 'o> {
    qspec: Qspec<'a>,
    message: Message,
    offer: &'o Offer,
    /// Nodes interpret the message.
    asks: bool,
    /// QoS Available is lowered.
    collects: bool,
}

/// A parameter for the next node.
struct Judged<'a> {
    flags: Flags,
    value: Value<'a>,
    failed: bool,
}

impl<'a> Node<'a, '_> {
    fn write(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        let mut composer = Composer::new(self.qspec.header, w)?;
        for object in self.qspec.objects() {
            let judged = || object.parameters().map(|parameter| self.judge(&parameter));
            let error = object.error || judged().any(|judged| judged.failed);
            composer.object(object.kind, error, |composer| {
                judged().try_for_each(|judged| composer.put(judged.flags, &judged.value))
            })?;
        }
        composer.finish(self.qspec.encapsulated())
    }

    fn judge(&self, parameter: &Parameter<'a>) -> Judged<'a> {
        // The parser checked the value.
        let unread = Value::Unknown { id: parameter.id, octets: parameter.octets };
        let value = parameter.value().unwrap_or(unread);
        let mut judged = Judged { flags: parameter.flags, value, failed: false };
        if self.asks {
            if self.offer.understands(&value) {
                let (value, vague) = self.update(parameter.object, &value);
                judged.value = value;
                judged.flags.not_supported |= vague;
                judged.flags.error |= self.is_unsatisfied(parameter.object, &value);
            } else {
                judged.flags.not_supported = true;
            }
        }
        // A node that supports a parameter but has only a bound sets N too, without a failure. Therefore the E flag of
        // the object reports a failure to later nodes, which answer for a stateless one.
        let ignored = !self.offer.understands(&value);
        judged.failed = judged.flags.error || (self.asks && ignored && parameter.is_mandatory());
        judged
    }

    /// The object that nodes write into, if the message collects.
    fn collected(&self) -> Option<Object<'a>> {
        self.qspec.available().filter(|_| self.collects)
    }

    /// A parameter's value for the next node, and whether N is set.
    fn update(&self, object: ObjectType, value: &Value<'a>) -> (Value<'a>, bool) {
        if !self.collects || object != ObjectType::AVAILABLE {
            return (*value, false);
        }
        if let Some(summed) = self.offer.quality.add_to(value) {
            return summed;
        }
        let left = match *value {
            Value::Tmod1(tmod) => Value::Tmod1(lowered(tmod, self.offer.limit)),
            Value::Tmod2(tmod) => Value::Tmod2(lowered(tmod, self.offer.limit)),
            Value::TmodExtension(bucket) => {
                Value::TmodExtension(bucket.min(self.offer.limit.bucket).max(1.0))
            }
            Value::Y1541(class) => Value::Y1541(self.class(class)),
            Value::Phb(class) => Value::Phb(self.offer.phb.unwrap_or(class)),
            other => other,
        };
        (left, false)
    }

    /// The class that holds for this node and for the path up to it.
    fn class(&self, class: u8) -> u8 {
        let own = self.offer.y1541.map_or(class, |own| weaker_class(class, own));
        let collected = |id| {
            let value = self.collected()?.value(id)?;
            self.offer.quality.add_to(&value).map(|(value, _)| value)
        };
        let latency = match collected(ParameterId::PATH_LATENCY) {
            Some(Value::PathLatency(us)) => Some(us),
            _ => None,
        };
        let jitter = match collected(ParameterId::PATH_JITTER) {
            Some(Value::PathJitter(jitter)) => Some(jitter),
            _ => None,
        };
        let loss = match collected(ParameterId::PATH_PLR) {
            Some(Value::PathPlr(loss)) => Some(loss),
            _ => None,
        };
        class_for(own, latency, jitter, loss)
    }

    /// Whether E is set on a parameter with this value.
    fn is_unsatisfied(&self, object: ObjectType, value: &Value<'a>) -> bool {
        let shapeless =
            matches!(value, Value::Excess(e) if e.treatment == ExcessTreatment::SHAPE) && !self.has_tmod();
        shapeless
            || match object {
                ObjectType::DESIRED => self.message == Message::Reserve && self.is_beyond(value),
                ObjectType::AVAILABLE if self.collects => {
                    let minimum = self.qspec.minimum().and_then(|o| o.value(value.id()));
                    self.is_too_little(value)
                        || minimum.is_some_and(|least| meets(value, &least) == Some(false))
                }
                ObjectType::MINIMUM => {
                    let available = self.collected().and_then(|o| o.value(value.id()));
                    let lowered = available.map(|value| self.update(ObjectType::AVAILABLE, &value).0);
                    lowered.is_some_and(|lowered| meets(&lowered, value) == Some(false))
                }
                _ => false,
            }
    }

    fn has_tmod(&self) -> bool {
        self.qspec
            .objects()
            .any(|o| o.parameter(ParameterId::TMOD_1).is_some() || o.parameter(ParameterId::TMOD_2).is_some())
    }

    /// Whether the desired QoS exceeds this node and is not negotiable.
    fn is_beyond(&self, desired: &Value<'a>) -> bool {
        if self.collected().is_some_and(|available| available.parameter(desired.id()).is_some()) {
            return false;
        }
        let limit = &self.offer.limit;
        match *desired {
            Value::Tmod1(tmod) | Value::Tmod2(tmod) => {
                tmod.rate > limit.rate || tmod.bucket > limit.bucket || tmod.max_packet > limit.max_packet
            }
            Value::TmodExtension(bucket) => bucket.is_finite() && bucket > limit.bucket,
            Value::Y1541(class) => self.offer.y1541.is_some_and(|own| !is_stronger_class(own, class)),
            _ => false,
        }
    }

    /// Whether no resources are left, or no packet fits. A QUERY reports this by the value alone.
    fn is_too_little(&self, lowered: &Value<'a>) -> bool {
        let limit = &self.offer.limit;
        match *lowered {
            Value::Tmod1(tmod) | Value::Tmod2(tmod) if self.message == Message::Reserve => {
                limit.rate < 1.0 || limit.bucket < 1.0 || tmod.max_packet < limit.min_policed
            }
            _ => false,
        }
    }
}
