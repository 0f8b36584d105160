//! Bodies of the fuzz targets: properties that hold for all octets.

#[cfg(feature = "kit")]
mod client;
#[cfg(feature = "kit")]
mod engine;
#[cfg(feature = "kit")]
mod natfw_client;
#[cfg(feature = "kit")]
mod qos_client;

#[cfg(feature = "kit")]
pub use engine::casp_engine;
#[cfg(feature = "kit")]
pub use natfw_client::casp_natfw_client;
#[cfg(feature = "kit")]
pub use qos_client::casp_qos_client;

use crate::wire::natfw::{NatfwMessage, NatfwValue};
use crate::wire::qos::QosMessage;
use crate::wire::{Message, frame, framed};

/// Reads octets as a message and as a stream. What can be read composes to a message that reads the same, and composes
/// again to the same octets.
///
/// # Panics
/// If one of these properties does not hold.
pub fn message(octets: &[u8]) {
    let mut rest = octets;
    while let Ok(Some(length)) = frame(rest, 70_000) {
        let Some((one, behind)) = rest.split_at_checked(length) else { break };
        assert!(one.len() >= 24);
        whole(one.get(4..).unwrap_or_default());
        rest = behind;
    }
    whole(octets);
}

fn whole(octets: &[u8]) {
    let message = match Message::parse(octets) {
        Ok(message) => message,
        Err(error) => {
            assert!(error.offset() <= octets.len().max(20), "{error}");
            return;
        }
    };
    let mut first = Vec::new();
    if message.encode(&mut first).is_err() {
        assert!(first.is_empty());
        return;
    }
    let again = match Message::parse(&first) {
        Ok(again) => again,
        Err(error) => panic!("composed octets cannot be read: {error}"),
    };
    if let (Message::Signaling(a), Message::Signaling(b)) = (&message, &again) {
        assert_eq!((a.flags, a.ttd, a.hops, a.session), (b.flags, b.ttd, b.hops, b.session));
        assert_eq!((a.flow, a.timeout, a.body), (b.flow, b.timeout, b.body));
        let contents = |m: &crate::wire::Signaling<'_>| {
            m.kept().map(|object| (object.class, object.c_type, object.contents.to_vec())).collect::<Vec<_>>()
        };
        assert_eq!(contents(a), contents(b));
    }
    let mut second = Vec::new();
    let composed = framed(&mut second, |octets| again.encode(octets));
    assert!(composed.is_ok() && second.get(4..) == Some(&first[..]));
    assert_eq!(frame(&second, u32::MAX), Ok(Some(second.len())));
}

/// Reads octets as a message of the QoS client. What can be read composes to a message that reads the same.
///
/// # Panics
/// If this property does not hold.
pub fn qos(octets: &[u8]) {
    let Ok(message) = QosMessage::parse(octets) else { return };
    let mut composed = Vec::new();
    if message.encode(&mut composed).is_err() {
        return;
    }
    let again = match QosMessage::parse(&composed) {
        Ok(again) => again,
        Err(fault) => panic!("composed octets cannot be read: {fault}"),
    };
    let mut second = Vec::new();
    assert!(again.encode(&mut second).is_ok() && second == composed);
}

/// Reads octets as a message of the client for firewalls and NATs. What can be read composes to a message of the same
/// values.
///
/// # Panics
/// If this property does not hold.
pub fn natfw(octets: &[u8]) {
    let Ok(message) = NatfwMessage::parse(octets) else { return };
    let values: Vec<NatfwValue<'_>> = message.values().collect();
    let mut composed = Vec::new();
    let result = NatfwMessage::compose(message.kind, &values, &mut composed);
    assert!(result.is_ok(), "a message that was read fits");
    let again = match NatfwMessage::parse(&composed) {
        Ok(again) => again,
        Err(fault) => panic!("composed octets cannot be read: {fault}"),
    };
    assert_eq!(again.values().count(), values.len());
    let kinds = |message: &NatfwMessage<'_>| message.values().map(|value| value.kind()).collect::<Vec<_>>();
    assert_eq!(kinds(&again), kinds(&message));
}
