//! What a node does with the QSPEC of a RESERVE or QUERY that passes (RFC 5975 §3.2, §4.2, §4.3).

use signalbox_wire::Writer;

use super::combine::{class_for, is_stronger_class, lowered, meets, weaker_class};
use super::demand::Demand;
use super::messages::{Message, available_is_collected, check};
use super::offer::Offer;
use crate::wire::qspec::{
    Composer, EncodeError, ExcessTreatment, Flags, Object, ObjectType, Outcome, Parameter, ParameterId,
    Problem, Qspec, QspecError, Value,
};

/// What became of a QSPEC at a node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Passed {
    /// Something cannot be satisfied, here or at a node before that had no state to say so: E and N flags tell what.
    /// A node with state answers with the QSPEC and 4/0x07, one without passes it on (§4.2.4).
    pub failed: bool,
    /// Some node supports some parameter not; the initiator may keep the reservation or not (§4.2.2).
    pub not_supported: bool,
    /// What is to be reserved here. After a failure it has no meaning.
    pub demand: Demand,
}

impl Passed {
    /// What the INFO-SPEC would say if this node answered.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        if self.failed { Outcome::FAILURE } else { Outcome::SUCCESS }
    }
}

/// Appends to `out` the QSPEC that goes to the next node, and says what to reserve at this one.
///
/// QoS Available is lowered to what `offer` has where the message collects it; flags are set where parameters are
/// not supported or cannot be satisfied; everything else stays as it came, unknown parameters included. Of a Local
/// QSPEC only the local objects count. A RESPONSE or NOTIFY is copied.
///
/// # Errors
/// [`QspecError`], which has precedence over any failure: the QSPEC is malformed or of a newer version, nothing is
/// appended, and [`malformed`](super::malformed) makes what is sent back.
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

/// What was parsed and stays as long as it was can always be encoded; should it not, the message is refused.
pub(super) const fn not_encodable(_: &EncodeError) -> QspecError {
    QspecError::header(Problem::Value, "QSPEC", 0, 0)
}

/// One node and one QSPEC.
struct Node<'a, 'o> {
    qspec: Qspec<'a>,
    message: Message,
    offer: &'o Offer,
    /// The message is one that nodes interpret.
    asks: bool,
    /// QoS Available is to be lowered.
    collects: bool,
}

/// A parameter as it leaves the node.
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
        // Parsing checked the value.
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
        // A node that understands a parameter and can only give a bound sets N as well, and that is no failure. So the
        // object's E tells of the failure, to nodes further on that have to answer for one without state.
        let ignored = !self.offer.understands(&value);
        judged.failed = judged.flags.error || (self.asks && ignored && parameter.is_mandatory());
        judged
    }

    /// The object that nodes write into, if the message collects.
    fn collected(&self) -> Option<Object<'a>> {
        self.qspec.available().filter(|_| self.collects)
    }

    /// A parameter's value when it leaves the node, and whether N has to be set.
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

    /// The class that holds for this node and for what was collected up to it.
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

    /// Whether E has to be set on a parameter with this value.
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

    /// Whether what is desired, and not negotiable, is more than this node has.
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

    /// Whether nothing is left to reserve, or no packet fits; whoever only asks is told so by the value alone.
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
