//! Reports of ICMP about packets that could not be delivered, from the error queue of the socket at whose port they were
//! sent. A packet of a raw socket with the same source port counts, too: the kernel looks the port up.
//!
//! Reports take a part of the socket's receive buffer, and a limited number is read in a turn.

use std::io;

use signalbox_core::Entry;
use socket2::Socket;

use super::entry::Undeliverable;
use crate::sys::cmsg::Messages;
use crate::sys::{self, set_option, sockaddr};

/// Most reports of one socket in one turn.
const MOST: usize = 64;
/// Octets of a packet's payload that are read.
const QUOTED: usize = 256;
/// The start of `struct sock_extended_err`: the error, its origin, type and code.
const HEAD: usize = 7;
/// Origins: ICMP and ICMPv6.
const ICMP: u8 = 2;
const ICMPV6: u8 = 3;
/// Destination Unreachable of ICMP (RFC 792) and of ICMPv6 (RFC 4443 §3.1).
const UNREACHABLE: u8 = 3;
const UNREACHABLE_V6: u8 = 1;
/// The code of ICMP that asks for smaller packets (RFC 1191).
const TOO_BIG: u8 = 4;

/// Makes the kernel keep reports for a socket.
pub(super) fn switch_on(socket: &Socket, ipv6: bool) -> io::Result<()> {
    let (level, option) =
        if ipv6 { (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) } else { (libc::IPPROTO_IP, libc::IP_RECVERR) };
    set_option(socket, level, option, 1)
}

/// Reads the reports that wait at a socket of an entry.
pub(super) fn read(entry: Entry, socket: &Socket, to: &mut Vec<Undeliverable>) {
    for _ in 0..MOST {
        let mut quoted = [0; QUOTED];
        let Ok(Some(error)) = sys::receive_error(socket, &mut quoted) else { return };
        let dst = sockaddr::decode(&error.name).map(|dst| dst.ip());
        if let Some(dst) = dst.filter(|_| is_undeliverable(&error.control)) {
            let quoted = quoted.get(..error.length).unwrap_or_default().to_vec();
            to.push(Undeliverable { entry, dst, quoted });
        }
    }
}

/// Whether the control messages of an error describe a Destination Unreachable.
fn is_undeliverable(control: &[u8]) -> bool {
    Messages(control).any(|(level, kind, data)| {
        let Some(&[_, _, _, _, origin, of, code]) = data.first_chunk::<HEAD>() else { return false };
        match (level, kind, origin) {
            (libc::IPPROTO_IP, libc::IP_RECVERR, ICMP) => of == UNREACHABLE && code != TOO_BIG,
            (libc::IPPROTO_IPV6, libc::IPV6_RECVERR, ICMPV6) => of == UNREACHABLE_V6,
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::cmsg;

    #[test]
    fn only_unreachable_destinations_count() {
        for (level, kind, origin, of, code, counts) in [
            (libc::IPPROTO_IP, libc::IP_RECVERR, ICMP, 3, 3, true),
            (libc::IPPROTO_IP, libc::IP_RECVERR, ICMP, 3, 1, true),
            (libc::IPPROTO_IP, libc::IP_RECVERR, ICMP, 3, 4, false),
            (libc::IPPROTO_IP, libc::IP_RECVERR, ICMP, 11, 0, false),
            // An error of this node itself.
            (libc::IPPROTO_IP, libc::IP_RECVERR, 1, 3, 3, false),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVERR, ICMPV6, 1, 4, true),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVERR, ICMPV6, 2, 0, false),
        ] {
            let mut control = Vec::new();
            cmsg::push(
                &mut control,
                level,
                kind,
                &[111, 0, 0, 0, origin, of, code, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            );
            assert_eq!(is_undeliverable(&control), counts, "{origin} {of} {code}");
        }
        assert!(!is_undeliverable(&[1, 2, 3]));
    }
}
