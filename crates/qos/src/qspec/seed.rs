//! The QSPEC of an initiator (RFC 5975 §3.3, §4.3).

use signalbox_wire::Writer;

use super::combine::lowered;
use super::offer::Quality;
use crate::wire::qspec::{
    Composer, EncodeError, Flags, Header, Jitter, ObjectComposer, ObjectType, Procedure, QspecType, Tmod,
    Value,
};

/// Path qualities to collect, in addition to those that other parameters need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collect {
    /// Path Latency.
    pub latency: bool,
    /// Path Jitter.
    pub jitter: bool,
    /// Path PLR.
    pub plr: bool,
    /// Path PER.
    pub per: bool,
}

const NO_JITTER: Jitter = Jitter { variance: 0, percentile: 0, minimum: 0 };

impl Collect {
    fn values(self) -> impl Iterator<Item = Value<'static>> {
        [
            (self.latency, Value::PathLatency(0)),
            (self.jitter, Value::PathJitter(NO_JITTER)),
            (self.plr, Value::PathPlr(0.0)),
            (self.per, Value::PathPer(0.0)),
        ]
        .into_iter()
        .filter_map(|(wanted, value)| wanted.then_some(value))
    }
}

/// The first value of a desired parameter in QoS Available: sums start at zero, values that nodes lower start with the
/// desired value. `None` for other parameters.
pub(super) const fn start_of<'a>(desired: &Value<'a>) -> Option<Value<'a>> {
    Some(match *desired {
        Value::Tmod1(_) | Value::Tmod2(_) | Value::TmodExtension(_) | Value::Y1541(_) => *desired,
        Value::PathLatency(_) => Value::PathLatency(0),
        Value::PathJitter(_) => Value::PathJitter(NO_JITTER),
        Value::PathPlr(_) => Value::PathPlr(0.0),
        Value::PathPer(_) => Value::PathPer(0.0),
        _ => return None,
    })
}

/// The request of an initiator. QoS Desired contains all of it, for each procedure. QoS Available follows from it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wish<'a> {
    /// The QSPEC procedure.
    pub procedure: Procedure,
    /// The QoS model.
    pub qspec_type: QspecType,
    /// TMOD-1 and others. M is set on parameters that every node must support.
    pub desired: &'a [(Flags, Value<'a>)],
    /// Minimum QoS, for the two procedures that have it.
    pub minimum: &'a [(Flags, Value<'a>)],
    /// Further path qualities, for the procedures that have QoS Available.
    pub collect: Collect,
    /// Capacity of the link by which the traffic comes to the initiator; `None`: there is no such link, or it has no
    /// limit.
    pub ingress_limit: Option<Tmod>,
    /// Delay and loss of that link; `None`: there is no such link.
    pub ingress: Option<Quality>,
}

impl<'a> Wish<'a> {
    /// A request for exactly `desired`.
    #[must_use]
    pub const fn of(procedure: Procedure, desired: &'a [(Flags, Value<'a>)]) -> Self {
        Self {
            procedure,
            qspec_type: QspecType::DEFAULT,
            desired,
            minimum: &[],
            collect: Collect { latency: false, jitter: false, plr: false, per: false },
            ingress_limit: None,
            ingress: None,
        }
    }

    /// Appends to `out` the Initiator QSPEC of the first message (RFC 5975 §4.3): the RESERVE of a sender, the QUERY
    /// of a sender whose receiver reserves, or a QUERY for resources.
    ///
    /// # Errors
    /// [`EncodeError`]: a value that must not be sent, a parameter that occurs twice, or a missing minimum. Nothing is
    /// appended.
    pub fn compose(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut w = Writer::new(out);
        let composed = self.objects(&mut w);
        if composed.is_err() {
            w.abandon();
        }
        composed
    }

    fn objects(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        use Procedure as P;
        let mut composer =
            Composer::new(Header { qspec_type: self.qspec_type, ..Header::initiator(self.procedure) }, w)?;
        if self.procedure != P::QUERY {
            composer.object(ObjectType::DESIRED, false, |o| put_all(o, self.desired))?;
        }
        if matches!(self.procedure, P::AVAILABLE | P::MINIMUM | P::RECEIVER_COLLECTED | P::QUERY) {
            composer.object(ObjectType::AVAILABLE, false, |o| self.available(o))?;
        }
        let negotiable = self.procedure == P::RECEIVER_AVAILABLE && !self.minimum.is_empty();
        if self.procedure == P::MINIMUM || negotiable {
            composer.object(ObjectType::MINIMUM, false, |o| put_all(o, self.minimum))?;
        }
        composer.finish(None)
    }

    fn available(&self, o: &mut ObjectComposer<'_, '_>) -> Result<(), EncodeError> {
        let started = self.desired.iter().filter_map(|(flags, value)| Some((*flags, start_of(value)?)));
        for (flags, value) in started {
            self.put_start(o, flags, value)?;
        }
        for value in self.collect.values() {
            if !self.desired.iter().any(|(_, desired)| desired.id() == value.id()) {
                self.put_start(o, Flags::default(), value)?;
            }
        }
        Ok(())
    }

    /// Appends a parameter with the share of the ingress link.
    fn put_start(
        &self,
        o: &mut ObjectComposer<'_, '_>,
        flags: Flags,
        value: Value<'_>,
    ) -> Result<(), EncodeError> {
        if let Some((sum, vague)) = self.ingress.and_then(|quality| quality.add_to(&value)) {
            return o.put(Flags { not_supported: flags.not_supported || vague, ..flags }, &sum);
        }
        let value = match (value, self.ingress_limit) {
            (Value::Tmod1(tmod), Some(limit)) => Value::Tmod1(lowered(tmod, limit)),
            (Value::Tmod2(tmod), Some(limit)) => Value::Tmod2(lowered(tmod, limit)),
            (value, _) => value,
        };
        o.put(flags, &value)
    }
}

fn put_all(o: &mut ObjectComposer<'_, '_>, parameters: &[(Flags, Value<'_>)]) -> Result<(), EncodeError> {
    parameters.iter().try_for_each(|(flags, value)| o.put(*flags, value))
}
