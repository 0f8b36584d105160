//! Local QSPECs: processing at the edges of a domain with its own QoS model (RFC 5975 §4.1, §4.2.5).

use super::answer::append;
use super::combine::{common_tmod, lowered, weaker_class};
use super::offer::Supported;
use crate::wire::qspec::{
    Admission, Composer, Flags, Header, Jitter, Object, ObjectType, Parameter, ParameterId, PhbClass, Qspec,
    QspecError, QspecType, Tmod, Value,
};

/// The translation of an Initiator QSPEC at the ingress of a domain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Translation {
    /// The QoS model of the domain.
    pub qspec_type: QspecType,
    /// The parameters that its nodes support. Others are left out. An object without any of them keeps all.
    pub keep: Supported,
    /// Whether the domain has a rate only: then the token rate becomes the peak rate, if that is known.
    pub peak_only: bool,
    /// The Admission Priority for the Y.2171 priorities 0, 1 and 2; `None`: the same numbers. The Y.2171 field itself
    /// never changes.
    pub admission: Option<[u8; 3]>,
    /// The PHB Class of flows inside the domain, added to QoS Desired.
    pub phb: Option<PhbClass>,
}

impl Translation {
    fn value<'a>(&self, value: Value<'a>) -> Value<'a> {
        let peak = |tmod: Tmod| {
            let rate = if self.peak_only && tmod.peak.is_finite() { tmod.peak } else { tmod.rate };
            Tmod { rate, ..tmod }
        };
        match value {
            Value::Tmod1(tmod) => Value::Tmod1(peak(tmod)),
            Value::Tmod2(tmod) => Value::Tmod2(peak(tmod)),
            Value::Admission(admission) => Value::Admission(self.admission(admission)),
            other => other,
        }
    }

    fn admission(&self, admission: Admission) -> Admission {
        let local = self.admission.and_then(|map| map.get(usize::from(admission.y2171.0)).copied());
        Admission { priority: local.unwrap_or(admission.priority), ..admission }
    }
}

/// Appends to `out` the Local QSPEC that encapsulates an Initiator QSPEC at the ingress of a domain (RFC 5975 §4.1).
/// It never requests less than the Initiator QSPEC.
///
/// # Errors
/// [`QspecError`] if `initiator` is no valid Initiator QSPEC, or too long to be encapsulated; nothing is appended.
pub fn enter(initiator: &[u8], translation: &Translation, out: &mut Vec<u8>) -> Result<(), QspecError> {
    let qspec = Qspec::parse(initiator)?;
    append(out, |w| {
        let header =
            Header { local: true, qspec_type: translation.qspec_type, procedure: qspec.header.procedure };
        let mut composer = Composer::new(header, w)?;
        for object in qspec.objects() {
            let kept = |p: &Parameter<'_>| translation.keep.has(p.id);
            let all = !object.parameters().any(|p| kept(&p));
            let phb = translation.phb.filter(|_| object.kind == ObjectType::DESIRED);
            composer.object(object.kind, object.error, |o| {
                for p in object.parameters().filter(|p| all || kept(p)) {
                    match p.value() {
                        Ok(Value::Phb(_)) if phb.is_some() => {}
                        Ok(value) => o.put(p.flags, &translation.value(value))?,
                        Err(_) => o.copy(&p)?,
                    }
                }
                phb.map_or(Ok(()), |class| o.put(Flags::default(), &Value::Phb(class)))
            })?;
        }
        composer.finish(Some(initiator))
    })
}

/// Whether a Local QSPEC requests no less than the Initiator QSPEC in it: the rates, bucket and packet size of TMOD-1
/// in each object that both have, and the Y.2171 priority (RFC 5975 §4.1, §5.2.9). Parameters that only one of them
/// has are not compared.
#[must_use]
pub fn is_consistent(local: &Qspec<'_>) -> bool {
    let Some(initiator) = local.encapsulated().and_then(|octets| Qspec::frame(octets).ok()) else {
        return false;
    };
    initiator.objects().all(|wanted| {
        let Some(given) = local.object(wanted.kind) else { return true };
        wanted.parameters().all(|wanted| match (wanted.value(), given.value(wanted.id)) {
            (Ok(Value::Tmod1(wanted)), Some(Value::Tmod1(given))) => {
                let least = common_tmod(wanted, given);
                (least.rate, least.bucket, least.peak) == (wanted.rate, wanted.bucket, wanted.peak)
                    && least.max_packet == wanted.max_packet
            }
            (Ok(Value::Admission(wanted)), Some(Value::Admission(given))) => wanted.y2171 == given.y2171,
            _ => true,
        })
    })
}

/// Appends to `out` the Initiator QSPEC of a Local QSPEC at the egress, with the results of the domain (RFC 5975
/// §4.1): values of QoS Available are lowered to those inside, flags are copied, sums that the domain did not update
/// get N, and an error of a parameter that the Initiator QSPEC does not have is set on its first object.
///
/// # Errors
/// [`QspecError`] if `octets` are no valid Local QSPEC, or do not contain a valid Initiator QSPEC; nothing is
/// appended.
pub fn leave(octets: &[u8], out: &mut Vec<u8>) -> Result<(), QspecError> {
    let local = Qspec::parse(octets)?;
    let Some(initiator) = local.encapsulated() else {
        return Err(QspecError::header(crate::wire::qspec::Problem::NotInitiator, "I", 0, 0));
    };
    let initiator = Qspec::parse(initiator)?;
    let first = initiator.objects().next().map(|object| object.kind);
    let is_homeless = |object: &Object<'_>| {
        let outside = initiator.object(object.kind);
        let lost = |p: Parameter<'_>| p.flags.error && outside.is_none_or(|o| o.parameter(p.id).is_none());
        (object.error && outside.is_none()) || object.parameters().any(lost)
    };
    let homeless = local.objects().any(|object| is_homeless(&object));
    append(out, |w| {
        let mut composer = Composer::new(initiator.header, w)?;
        for object in initiator.objects() {
            let inside = local.object(object.kind);
            let error =
                object.error || inside.is_some_and(|o| o.error) || (homeless && first == Some(object.kind));
            composer.object(object.kind, error, |o| {
                object.parameters().try_for_each(|p| {
                    let (flags, value) = merged(&p, inside.and_then(|o| o.parameter(p.id)).as_ref());
                    match value {
                        Some(value) => o.put(flags, &value),
                        None => o.copy(&Parameter { flags, ..p }),
                    }
                })
            })?;
        }
        composer.finish(None)
    })
}

/// A parameter of the Initiator QSPEC with the result inside; without a value: unchanged.
fn merged<'a>(p: &Parameter<'a>, inside: Option<&Parameter<'a>>) -> (Flags, Option<Value<'a>>) {
    let available = p.object == ObjectType::AVAILABLE;
    let Some(inside) = inside else {
        let summed = [
            ParameterId::PATH_LATENCY,
            ParameterId::PATH_JITTER,
            ParameterId::PATH_PLR,
            ParameterId::PATH_PER,
        ];
        let vague = available && summed.contains(&p.id);
        return (Flags { not_supported: p.flags.not_supported || vague, ..p.flags }, None);
    };
    let flags = Flags {
        error: p.flags.error || inside.flags.error,
        not_supported: p.flags.not_supported || inside.flags.not_supported,
        ..p.flags
    };
    let (Ok(outside), Ok(inside)) = (p.value(), inside.value()) else { return (flags, None) };
    let value = match (outside, inside) {
        _ if !available => return (flags, None),
        (Value::Tmod1(a), Value::Tmod1(b)) => Value::Tmod1(lowered(a, b)),
        (Value::Tmod2(a), Value::Tmod2(b)) => Value::Tmod2(lowered(a, b)),
        (Value::TmodExtension(a), Value::TmodExtension(b)) => Value::TmodExtension(a.min(b)),
        (Value::PathLatency(a), Value::PathLatency(b)) => Value::PathLatency(a.max(b)),
        (Value::PathJitter(a), Value::PathJitter(b)) => Value::PathJitter(Jitter {
            variance: a.variance.max(b.variance),
            percentile: a.percentile.max(b.percentile),
            minimum: a.minimum.max(b.minimum),
        }),
        (Value::PathPlr(a), Value::PathPlr(b)) => Value::PathPlr(a.max(b)),
        (Value::PathPer(a), Value::PathPer(b)) => Value::PathPer(a.max(b)),
        (Value::Y1541(a), Value::Y1541(b)) => Value::Y1541(weaker_class(a, b)),
        (Value::Phb(_), Value::Phb(inside)) => Value::Phb(inside),
        _ => return (flags, None),
    };
    (flags, Some(value))
}
