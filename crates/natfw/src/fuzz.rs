//! Bodies of the fuzz targets: properties that hold for all octets.

use signalbox_wire::Writer;

use crate::wire::{Message, sequence_number};

/// Reads `octets` as a message. What can be read composes to octets that parse to the same message, and composing is
/// stable. For other octets the error names a place inside.
///
/// # Panics
/// If one of these properties does not hold.
pub fn message(octets: &[u8]) {
    let number = sequence_number(octets);
    let message = match Message::parse(octets) {
        Ok(message) => message,
        Err(error) => {
            assert!(error.offset <= octets.len(), "{error}: beyond {} octets", octets.len());
            assert!(error.info.name().is_some());
            return;
        }
    };
    assert_eq!(number, message.msn);
    let once = encode(&message);
    match Message::parse(&once) {
        Ok(again) => {
            assert_eq!(again, Message { foreign: false, ..message });
            assert_eq!(encode(&again), once, "encoding is stable");
        }
        Err(error) => panic!("{error}: our own message is not understood"),
    }
}

fn encode(message: &Message<'_>) -> Vec<u8> {
    let mut octets = Vec::new();
    message.encode(&mut Writer::new(&mut octets));
    octets
}
