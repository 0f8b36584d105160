//! Bodies of the fuzz targets: properties that hold for all octets.

#[cfg(feature = "kit")]
mod engine;

#[cfg(feature = "kit")]
pub use engine::boomerang_engine;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::wire::{Ends, Flags, Message, checksum_is_valid, edit};

fn ends(ipv6: bool) -> Ends {
    if ipv6 {
        Ends { src: IpAddr::V6(Ipv6Addr::LOCALHOST), dst: IpAddr::V6(Ipv6Addr::LOCALHOST) }
    } else {
        Ends { src: IpAddr::V4(Ipv4Addr::LOCALHOST), dst: IpAddr::V4(Ipv4Addr::LOCALHOST) }
    }
}

/// Reads octets as an ICMP and as an ICMPv6 message. What can be read whole composes to the same octets with a correct
/// checksum. A refusal changes flags, KEY and checksum only, and still parses.
///
/// # Panics
/// If one of these properties does not hold.
pub fn message(octets: &[u8]) {
    for ipv6 in [false, true] {
        let Ok(message) = Message::parse(octets, ipv6) else { continue };
        let ends = ends(ipv6);
        let mut refused = octets.to_vec();
        edit::refuse(&mut refused, message.flags);
        edit::set_checksum(&mut refused, &ends);
        assert!(checksum_is_valid(&ends, &refused));
        let differing = refused.iter().zip(octets).enumerate().filter(|(_, (new, old))| new != old);
        for (at, _) in differing {
            assert!(matches!(at, 2 | 3 | 18 | 19 | 24..32), "octet {at} changed");
        }
        match Message::parse(&refused, ipv6) {
            Ok(again) => {
                let flags = message.flags.with(Flags::NACK);
                assert_eq!(again, Message { flags, key: 0, ..message });
            }
            Err(error) => panic!("a refusal made the message unreadable: {error}"),
        }
        let Some(body) = message.body else { continue };
        assert!(body.options.iter().count() <= octets.len() / 4);
        let mut composed = Vec::new();
        message.encode(&ends, &mut composed);
        assert_eq!(composed.get(4..), octets.get(4..), "composed again");
        assert!(checksum_is_valid(&ends, &composed));
    }
}
