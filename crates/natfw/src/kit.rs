//! What tests and benchmarks of the application for firewalls and NATs have in common: the messages of its peers. The feature `kit` has
//! it; no program of users needs it.
//!
//! ```
//! use signalbox_natfw::kit::{create, octets};
//! use signalbox_natfw::wire::Message;
//!
//! assert_eq!(Message::parse(&octets(&create(1, 30))).unwrap().lifetime, Some(30));
//! ```

use signalbox_wire::Writer;

use crate::wire::{DataTerminal, FlowInfo, Info, Message, MessageType};

/// A CREATE that asks for this lifetime, seconds; 0: a deletion.
pub fn create(msn: u32, lifetime: u32) -> Message<'static> {
    Message {
        lifetime: Some(lifetime),
        msn: Some(msn),
        efi: Some(FlowInfo::ALLOW),
        ..Message::new(MessageType::CREATE)
    }
}

/// An EXTERNAL for this port of UDP.
pub fn external(msn: u32, lifetime: u32, port: u16) -> Message<'static> {
    Message {
        terminal: Some(DataTerminal::receiver(17, port)),
        kind: MessageType::EXTERNAL,
        ..create(msn, lifetime)
    }
}

/// The RESPONSE to a request that was granted.
pub fn success(msn: u32, lifetime: u32) -> Message<'static> {
    Message {
        lifetime: Some(lifetime),
        msn: Some(msn),
        info: Some(Info::PROCESSED.into()),
        ..Message::new(MessageType::RESPONSE)
    }
}

/// The RESPONSE to a request that was refused.
pub fn error(msn: u32, info: Info) -> Message<'static> {
    Message { msn: Some(msn), info: Some(info.into()), ..Message::new(MessageType::RESPONSE) }
}

/// A NOTIFY.
pub fn notify(info: Info) -> Message<'static> {
    Message { info: Some(info.into()), ..Message::new(MessageType::NOTIFY) }
}

/// The octets of a message.
pub fn octets(message: &Message<'_>) -> Vec<u8> {
    let mut octets = Vec::new();
    message.encode(&mut Writer::new(&mut octets));
    octets
}
