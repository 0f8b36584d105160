//! SESSION-AUTH objects (RFC 5981) as tokens for policy rules.

use std::sync::Arc;

use signalbox_core::Time;
use signalbox_core::node::Prefix;
use signalbox_resources::Resources;
use signalbox_resources::token::{PortList, Token, TokenError};
use signalbox_resources::units::Ports;
use signalbox_wire::Reader;

use crate::wire::Carried;

const AUTH_ENT_ID: u8 = 1;
const SESSION_ID: u8 = 2;
const SOURCE_ADDR: u8 = 3;
const DEST_ADDR: u8 = 4;
const START_TIME: u8 = 5;
const END_TIME: u8 = 6;
const AUTHENTICATION_DATA: u8 = 8;
/// From 1900, where NTP begins, to 1970, in seconds.
const NTP_TO_UNIX: u64 = 2_208_988_800;

/// The verified token of a message, if any: signed with a key that this node has (RFC 5981 §4.1: shared symmetric
/// keys). An object with another signature is forwarded and has no effect here (§3.1).
pub(super) fn verified(
    resources: &Resources,
    now: Time,
    auth: &Carried<'_>,
) -> Result<Option<Arc<Token>>, TokenError> {
    let mut error = None;
    for object in auth.iter() {
        let Some(signed) = read(object.value) else { continue };
        match resources.verify_token(now, &signed.token.entity, signed.key, signed.octets, signed.tag) {
            Ok(()) => return Ok(Some(Arc::new(signed.token))),
            // It may be signed for another node, and another object for this one.
            Err(TokenError::UnknownKey) => {}
            Err(other) => error = Some(other),
        }
    }
    error.map_or(Ok(None), Err)
}

struct Signed<'a> {
    token: Token,
    key: u32,
    octets: &'a [u8],
    tag: &'a [u8],
}

/// Parses the attributes of a SESSION-AUTH object (RFC 5981 §3.2). `None`: they are cut, lack the entity, or do not end with
/// the authentication data.
fn read(value: &[u8]) -> Option<Signed<'_>> {
    let mut r = Reader::new(value);
    let mut token = Token::default();
    while !r.is_empty() {
        let before = value.len() - r.left();
        let [l1, l0, kind, sub] = r.array().ok()?;
        let length = usize::from(u16::from_be_bytes([l1, l0])).checked_sub(4)?;
        let padded = length.next_multiple_of(4);
        let octets = r.take(padded).ok()?.get(..length)?;
        match kind {
            AUTH_ENT_ID => token.entity = entity(sub, octets)?,
            SESSION_ID => token.session = octets.to_vec(),
            SOURCE_ADDR => address(sub, octets, &mut token.sources, &mut token.source_ports)?,
            DEST_ADDR => address(sub, octets, &mut token.destinations, &mut token.destination_ports)?,
            START_TIME => token.start_us = Some(ntp_us(octets)?),
            END_TIME => token.end_us = Some(ntp_us(octets)?),
            AUTHENTICATION_DATA => {
                let (key, tag) = octets.split_first_chunk()?;
                let signed = value.get(..before)?;
                // It has to be the last one (§3.2.8).
                let whole = r.is_empty() && !token.entity.is_empty();
                return whole.then_some(Signed { token, key: u32::from_be_bytes(*key), octets: signed, tag });
            }
            _ => {}
        }
    }
    None
}

fn entity(sub: u8, octets: &[u8]) -> Option<String> {
    Some(match sub {
        1 => core::net::Ipv4Addr::from(<[u8; 4]>::try_from(octets).ok()?).to_string(),
        2 => core::net::Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?).to_string(),
        _ => core::str::from_utf8(octets).ok()?.to_owned(),
    })
}

fn address(sub: u8, octets: &[u8], addresses: &mut Vec<Prefix>, ports: &mut Vec<PortList>) -> Option<()> {
    let protocol = match sub {
        1 => {
            addresses.push(Prefix::host(<[u8; 4]>::try_from(octets).ok()?.into()));
            return Some(());
        }
        2 => {
            addresses.push(Prefix::host(<[u8; 16]>::try_from(octets).ok()?.into()));
            return Some(());
        }
        3 => 17,
        4 => 6,
        _ => return Some(()),
    };
    ports.extend(octets.as_chunks().0.iter().map(|port| {
        let port = u16::from_be_bytes(*port);
        PortList { protocol, ports: Ports { from: port, to: port } }
    }));
    Some(())
}

/// An NTP timestamp as microseconds since 1970.
fn ntp_us(octets: &[u8]) -> Option<u64> {
    let (seconds, fraction) = octets.split_first_chunk::<4>()?;
    let seconds = u64::from(u32::from_be_bytes(*seconds)).checked_sub(NTP_TO_UNIX)?;
    let fraction = u64::from(u32::from_be_bytes(fraction.try_into().ok()?));
    Some(seconds * 1_000_000 + ((fraction * 1_000_000) >> 32))
}
