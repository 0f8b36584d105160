//! Messages in one line.

use signalbox_core::NslpId;
use signalbox_gist::wire::{Encapsulation, Header, Message, strip_magic};
use signalbox_ping::wire as ping;

/// Returns a UDP payload in one line: message type, application, flow and session, and the error code of an Error; or
/// the reason why it cannot be decoded.
#[must_use]
pub fn summary(payload: &[u8]) -> String {
    let Some(octets) = strip_magic(payload) else {
        return format!("{} octets without the GIST magic number", payload.len());
    };
    let header = match Header::parse(octets) {
        Ok(header) => header,
        Err(error) => return format!("not understood: {error}"),
    };
    match Message::parse(octets, Encapsulation::of(&header, true)) {
        Ok(message) => line(&message),
        Err(error) => format!("{} not understood: {error}", header.kind),
    }
}

fn line(message: &Message<'_>) -> String {
    let header = &message.header;
    let mut parts = vec![header.kind.to_string(), format!("NSLP {}", header.nslp)];
    if let Some(error) = &message.error {
        parts.push(error.error.to_string());
    }
    if let Some(data) = message.nslp_data {
        let probe = match header.nslp {
            NslpId::PING => {
                ping::Message::parse(data).ok().map(|ping| format!("{} {}", ping.kind, ping.sequence))
            }
            NslpId::NSIS_PING => {
                ping::nsis::Message::parse(data).ok().map(|ping| format!("NSIS Ping {}", ping.sequence))
            }
            _ => None,
        };
        parts.push(probe.unwrap_or_else(|| format!("{} octets of data", data.len())));
    }
    if let Some(object) = &message.mri {
        parts.push(format!("{} {}", object.mri, object.mri.direction()));
    }
    if let Some(session) = message.session {
        parts.push(format!("session {session}"));
    }
    parts.push(format!("hops {}", header.hops));
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_message_is_said() {
        assert_eq!(summary(b"abc"), "3 octets without the GIST magic number");
        let cut = summary(&[0x4e, 0x04, 0xbd, 0xa5, 1]);
        assert!(cut.starts_with("not understood: "), "{cut}");
    }
}
