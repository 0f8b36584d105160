//! Bodies of the fuzz targets: properties that hold for all octets.

#[cfg(feature = "engine")]
mod engine;

#[cfg(feature = "engine")]
pub use engine::engine as pcp_engine;
use signalbox_wire::Writer;

use crate::NatPmpError;
use crate::error::Answer;
use crate::wire::{
    HEADER_OCTETS, MAX_OCTETS, NatPmpMessage, NatPmpRequest, NatPmpResponse, Options, Request, Response,
    ResultCode, refusal,
};

fn composed(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut octets = Vec::new();
    write(&mut Writer::new(&mut octets));
    octets
}

/// What is known of options composes to the same option.
fn options(options: &Options<'_>, octets: usize) {
    let mut number = 0;
    for option in options.iter() {
        number += 1;
        let Ok(Some(known)) = option.known() else { continue };
        let again = composed(|w| known.encode(w));
        let read = match Options::from_octets(&again) {
            Ok(read) => read,
            Err(error) => panic!("a composed option cannot be read: {error}"),
        };
        let read: Vec<_> = read.iter().map(|option| option.known()).collect();
        assert_eq!(read, [Ok(Some(known))]);
    }
    assert!(number <= octets / 4, "{number} options in {octets} octets");
}

/// Reads octets as a request and as a response of PCP. What can be read composes to a message with the same contents. What a server
/// answers is no longer than a message may be, whole words, and no longer than the request and the header.
///
/// # Panics
/// If one of these properties does not hold.
pub fn pcp_message(octets: &[u8]) {
    match Request::parse(octets) {
        Ok(request) => {
            options(&request.options, octets.len());
            let again = composed(|w| request.encode(w));
            assert_eq!(again.len(), octets.len());
            let read = match Request::parse(&again) {
                Ok(read) => read,
                Err(error) => panic!("a composed request cannot be read: {error}"),
            };
            assert_eq!(read, request);
        }
        Err(error) => {
            let Answer::Refuse(code) = error.answer() else { return responses(octets) };
            assert_ne!(code, ResultCode::SUCCESS);
            let answer = composed(|w| refusal(octets, false, code, 30, 1, w));
            assert!(answer.len() <= MAX_OCTETS && answer.len().is_multiple_of(4));
            assert!(answer.len() <= octets.len().next_multiple_of(4).max(HEADER_OCTETS));
            assert_eq!((answer.first(), answer.get(3)), (Some(&2), Some(&code.0)));
        }
    }
    responses(octets);
}

fn responses(octets: &[u8]) {
    if let Ok(response) = Response::parse(octets) {
        options(&response.options, octets.len());
        let again = composed(|w| response.encode(w));
        let read = match Response::parse(&again) {
            Ok(read) => read,
            Err(error) => panic!("a composed response cannot be read: {error}"),
        };
        assert_eq!(read, response);
    }
}

/// Reads octets as a message of NAT-PMP. What can be read composes to the same contents; the answer to an unknown opcode is as long
/// as the request.
///
/// # Panics
/// If one of these properties does not hold.
pub fn nat_pmp_message(octets: &[u8]) {
    if let Ok(message) = NatPmpMessage::parse(octets) {
        let again = composed(|w| message.encode(w));
        assert!(again.len() <= octets.len());
        assert_eq!(NatPmpMessage::parse(&again), Ok(message));
    }
    if let Err(NatPmpError::Opcode { .. }) = NatPmpRequest::parse(octets) {
        let answer = composed(|w| NatPmpResponse::unsupported_opcode(octets, w));
        assert!(answer.len() <= octets.len().max(4));
    }
}
