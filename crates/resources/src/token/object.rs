//! The attributes of a SESSION_AUTH object (RFC 5981 §3.2).

use signalbox_core::node::Prefix;

use super::{PortList, Token};
use crate::units::Ports;

const AUTH_ENT_ID: u8 = 1;
const SESSION_ID: u8 = 2;
const SOURCE_ADDR: u8 = 3;
const DEST_ADDR: u8 = 4;
const START_TIME: u8 = 5;
const END_TIME: u8 = 6;
const AUTHENTICATION_DATA: u8 = 8;
/// From 1900, where NTP begins, to 1970, in seconds.
const NTP_TO_UNIX: u64 = 2_208_988_800;

/// The contents of a token, and what signs them.
pub(super) struct Signed<'a> {
    pub(super) token: Token,
    pub(super) key: u32,
    pub(super) octets: &'a [u8],
    pub(super) tag: &'a [u8],
}

/// Parses the attributes of a SESSION-AUTH object (RFC 5981 §3.2). `None`: they are cut, lack the entity, or do not end with
/// the authentication data.
pub(super) fn read(value: &[u8]) -> Option<Signed<'_>> {
    let mut rest = value;
    let mut token = Token::default();
    while !rest.is_empty() {
        let before = value.len() - rest.len();
        let ([l1, l0, kind, sub], behind) = rest.split_first_chunk()?;
        let (kind, sub) = (*kind, *sub);
        let length = usize::from(u16::from_be_bytes([*l1, *l0])).checked_sub(4)?;
        let (padded, behind) = behind.split_at_checked(length.next_multiple_of(4))?;
        let octets = padded.get(..length)?;
        rest = behind;
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
                let whole = rest.is_empty() && !token.entity.is_empty();
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
        // It limits the packets in a way that this node cannot judge (an SPI): the token is for none of them.
        _ => return None,
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
