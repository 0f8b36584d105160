//! Bodies of the fuzz targets: properties that hold for every input. The targets in `fuzz/` are one line each,
//! and the tests replay `fuzz/corpus` through the same functions.
//!
//! Every function panics if its property does not hold.

use signalbox_core::NslpId;
use signalbox_wire::Writer;

use crate::wire::{
    Encapsulation, GistError, Header, Message, MessageType, ObjectType, error_object_for, find_mri,
    find_object, find_session, mri_encode, mri_parse, strip_magic,
};

#[cfg(feature = "kit")]
mod engine;
#[cfg(feature = "kit")]
mod gateway;
#[cfg(feature = "kit")]
pub use engine::gist_engine;
#[cfg(feature = "kit")]
pub use gateway::gist_gateway;

/// Octets that parse are encoded to a message that parses to the same. Octets that do not parse are reported in an Error
/// message that parses. Input: a UDP payload with magic number, or a message without it.
pub fn gist_message(data: &[u8]) {
    let octets = strip_magic(data).unwrap_or(data);
    let _ = (find_mri(octets), find_session(octets), find_object(octets, ObjectType::NLI));
    for encapsulation in [Encapsulation::Normal, Encapsulation::QMode, Encapsulation::Association] {
        match Message::parse(octets, encapsulation) {
            Ok(message) => reencodes(&message, encapsulation),
            Err(error) => {
                assert!(error.object_start <= error.offset, "{error}");
                assert!(error.offset <= octets.len(), "{error}: beyond {} octets", octets.len());
                let Some(object) = error_object_for(&error, octets, encapsulation) else { continue };
                assert!(GistError::CATALOGUE.contains(&object.error), "{error}");
                let mut report = Message::new(MessageType::ERROR, NslpId::NONE, 1);
                report.error = Some(object);
                reencodes(&report, Encapsulation::Association);
            }
        }
    }
}

/// `message` encodes; the octets parse to an equal message and encode to themselves.
fn reencodes(message: &Message<'_>, encapsulation: Encapsulation) {
    let encode = |message: &Message<'_>| {
        let mut octets = Vec::new();
        match message.encode(&mut Writer::new(&mut octets)) {
            Ok(()) => octets,
            Err(error) => panic!("{error}: {message:?}"),
        }
    };
    let once = encode(message);
    match Message::parse(&once, encapsulation) {
        Ok(again) => {
            assert_eq!(&again, message, "after encoding");
            assert_eq!(encode(&again), once, "encoding is stable");
        }
        Err(error) => panic!("{error}: {message:?}"),
    }
}

/// The same for an Error message with an Error object of any value. Input: the value, which is cut to whole words.
pub fn gist_error_object(data: &[u8]) {
    let value = data.chunks_exact(4).take(0xfff).flatten().copied();
    let mut octets = Header::new(MessageType::ERROR, NslpId::NONE, 1).octets().to_vec();
    octets.extend([0, 9, 0, 0]);
    octets.extend(value);
    let words = octets.len() / 4 - 3;
    for (at, length) in [(2, words + 1), (10, words)] {
        let length = u16::try_from(length).unwrap_or(0).to_be_bytes();
        octets.splice(at..at + 2, length);
    }
    gist_message(&octets);
}

/// Octets that parse as an MRI are encoded to an equal MRI. Input: the value of the object.
pub fn gist_mri(data: &[u8]) {
    let Ok(mri) = mri_parse(data) else { return };
    let mut octets = Vec::new();
    assert_eq!(mri_encode(&mri, &mut Writer::new(&mut octets)), Ok(()));
    assert_eq!(mri_parse(&octets), Ok(mri));
    assert_eq!(octets.len(), data.len(), "the flags decide the length");
}
