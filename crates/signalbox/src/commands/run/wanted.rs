//! Which flows of the program have reservations.

use std::collections::{BTreeSet, HashSet};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;

use anyhow::{Context, Result};
use signalbox_core::node::Prefix;
use signalbox_linux::launch::{Socket, Transport};

use super::flow::Flow;
use crate::arguments::values::prefix;

/// Most flows of a program that are known at a time.
pub(super) const MOST: usize = 4096;

/// A port, or several in a row.
pub(super) type Ports = RangeInclusive<u16>;

/// Parses a port, or the first and the last of several.
pub(super) fn ports(text: &str) -> Result<Ports, String> {
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match port(first).zip(port(last)) {
        Some((first, last)) if first <= last => Ok(first..=last),
        _ => Err("use a port, or the first and the last one, such as 5004 or 5004-5010".to_owned()),
    }
}

/// The flows that have reservations.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Destinations; all if it is empty.
    to: Vec<Prefix>,
    /// Destination ports; all if it is empty.
    ports: Vec<Ports>,
    transport: Option<Transport>,
    /// Also connections that others opened.
    accepted: bool,
}

/// What was found at one moment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) flows: BTreeSet<Flow>,
    /// The port of a socket whose destinations are not known.
    pub(super) unknown: Option<u16>,
}

impl Wanted {
    /// Those to these destinations and ports, of this protocol.
    ///
    /// # Errors
    /// A host name has no address.
    pub(super) fn new(
        to: &[String],
        ports: &[Ports],
        transport: Option<Transport>,
        accepted: bool,
    ) -> Result<Self> {
        let mut prefixes = Vec::new();
        for destination in to {
            match prefix(destination) {
                Ok((addr, length)) => {
                    let whole = Prefix::host(addr);
                    let len = length.and_then(|length| u8::try_from(length).ok()).unwrap_or(whole.len);
                    prefixes.push(Prefix { addr, len });
                }
                Err(_) => {
                    let found = (destination.as_str(), 0)
                        .to_socket_addrs()
                        .with_context(|| format!("cannot resolve the host name {destination}"))?;
                    prefixes.extend(found.map(|address| Prefix::host(address.ip())));
                }
            }
        }
        Ok(Self { to: prefixes, ports: ports.to_vec(), transport, accepted })
    }

    /// The flows of these sockets.
    pub(super) fn flows(&self, sockets: &[Socket]) -> Found {
        let listening: HashSet<u16> =
            sockets.iter().filter(|socket| socket.listens).map(|socket| socket.local.port()).collect();
        let mut found = Found::default();
        let of_transport = |socket: &&Socket| self.transport.is_none_or(|wanted| wanted == socket.transport);
        for socket in sockets.iter().filter(of_transport).filter(|socket| !socket.listens) {
            let own = socket.local.ip();
            let source = Some(own).filter(|own| !own.is_unspecified());
            let flow = |destination| Flow {
                transport: socket.transport,
                source,
                source_port: socket.local.port(),
                destination,
            };
            match socket.remote {
                Some(remote) => {
                    let accepted =
                        socket.transport == Transport::Tcp && listening.contains(&socket.local.port());
                    if self.wants(remote) && self.leaves(source, remote.ip()) && (self.accepted || !accepted)
                    {
                        found.flows.insert(flow(remote));
                    }
                }
                // A port that is not set yet: it has sent nothing.
                None if socket.transport == Transport::Udp && socket.local.port() != 0 => {
                    let mut named = self.named().filter(|to| reaches(socket, to.ip())).peekable();
                    if named.peek().is_none() && own.is_unspecified() {
                        found.unknown = found.unknown.or(Some(socket.local.port()));
                    }
                    found.flows.extend(named.filter(|to| self.leaves(source, to.ip())).map(flow));
                }
                None => {}
            }
            while found.flows.len() > MOST {
                found.flows.pop_last();
            }
        }
        found
    }

    /// Whether packets leave this host, to somewhere that a reservation can be made for. One to this host itself is asked for where the user
    /// names it: the daemon then says what it thinks of that.
    fn leaves(&self, source: Option<IpAddr>, to: IpAddr) -> bool {
        if to.is_loopback() {
            return self.to.iter().any(|prefix| prefix.addr.is_loopback() && prefix.contains(to));
        }
        let on_link = matches!(to, IpAddr::V6(to) if to.is_unicast_link_local());
        !on_link && source != Some(to)
    }

    fn wants(&self, to: SocketAddr) -> bool {
        let destination = self.to.is_empty() || self.to.iter().any(|prefix| prefix.contains(to.ip()));
        destination && (self.ports.is_empty() || self.ports.iter().any(|ports| ports.contains(&to.port())))
    }

    /// The destinations that the user names completely.
    fn named(&self) -> impl Iterator<Item = SocketAddr> {
        let hosts =
            self.to.iter().filter(|prefix| **prefix == Prefix::host(prefix.addr)).map(|prefix| prefix.addr);
        let ports =
            || self.ports.iter().filter(|ports| ports.start() == ports.end()).map(|ports| *ports.start());
        hosts.flat_map(move |host| ports().map(move |port| SocketAddr::new(host, port)))
    }
}

/// Whether a socket without a peer can send to an address.
fn reaches(socket: &Socket, to: IpAddr) -> bool {
    let own = socket.local.ip();
    own.is_ipv4() == to.is_ipv4() || own.is_ipv6() && own.is_unspecified() && !socket.only_ipv6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(transport: Transport, local: &str, remote: Option<&str>) -> Socket {
        let address = |text: &str| text.parse().unwrap();
        let (listens, only_ipv6) = (remote.is_none() && transport == Transport::Tcp, false);
        Socket { transport, local: address(local), remote: remote.map(address), listens, only_ipv6 }
    }

    fn wanted(to: &[&str], dports: &[&str]) -> Wanted {
        let to: Vec<String> = to.iter().map(|&to| to.to_owned()).collect();
        let dports: Vec<Ports> = dports.iter().map(|text| ports(text).unwrap()).collect();
        Wanted::new(&to, &dports, None, false).unwrap()
    }

    fn destinations(found: &Found) -> Vec<String> {
        found.flows.iter().map(|flow| flow.destination.to_string()).collect()
    }

    #[test]
    fn connected_sockets_are_flows_and_those_within_this_host_are_not() {
        use Transport::{Tcp, Udp};
        let sockets = [
            socket(Tcp, "10.0.0.1:40000", Some("10.0.9.9:443")),
            socket(Udp, "[2001:db8::1]:40001", Some("[2001:db8::9]:5004")),
            socket(Udp, "127.0.0.1:40002", Some("127.0.0.53:53")),
            socket(Tcp, "10.0.0.1:40003", Some("10.0.0.1:80")),
            socket(Udp, "[fe80::1]:40004", Some("[fe80::2]:5004")),
        ];
        let all = wanted(&[], &[]).flows(&sockets);
        assert_eq!(destinations(&all), ["10.0.9.9:443", "[2001:db8::9]:5004"]);
        assert_eq!(all.unknown, None);
        assert_eq!(all.flows.first().unwrap().source_port, 40_000);
        for (to, dports, left) in [
            (&["10.0.0.0/16"][..], &[][..], &["10.0.9.9:443"][..]),
            (&["2001:db8::9"], &["5000-5010"], &["[2001:db8::9]:5004"]),
            (&[], &["443", "80"], &["10.0.9.9:443"]),
            (&["10.0.9.8"], &[], &[]),
            (&["0.0.0.0/0"], &["53"], &[]),
            (&["127.0.0.0/8"], &["53"], &["127.0.0.53:53"]),
        ] {
            assert_eq!(destinations(&wanted(to, dports).flows(&sockets)), left, "{to:?} {dports:?}");
        }
        let udp = Wanted { transport: Some(Udp), ..wanted(&[], &[]) };
        assert_eq!(destinations(&udp.flows(&sockets)), ["[2001:db8::9]:5004"]);
    }

    #[test]
    fn connections_that_others_open_are_left_unless_they_are_wanted() {
        let server = [
            socket(Transport::Tcp, "0.0.0.0:80", None),
            socket(Transport::Tcp, "10.0.0.1:80", Some("10.0.9.9:40000")),
            socket(Transport::Tcp, "10.0.0.1:40001", Some("10.0.9.9:5432")),
        ];
        let own = wanted(&[], &[]);
        assert_eq!(destinations(&own.flows(&server)), ["10.0.9.9:5432"]);
        let both = Wanted { accepted: true, ..own };
        assert_eq!(destinations(&both.flows(&server)), ["10.0.9.9:40000", "10.0.9.9:5432"]);
    }

    #[test]
    fn a_sender_without_a_peer_sends_to_what_the_user_names() {
        let sockets = [socket(Transport::Udp, "0.0.0.0:40000", None)];
        let named = wanted(&["10.0.9.9", "10.0.9.8", "2001:db8::9"], &["5004"]).flows(&sockets);
        assert_eq!(destinations(&named), ["10.0.9.8:5004", "10.0.9.9:5004"]);
        assert!(named.flows.iter().all(|flow| flow.source.is_none() && flow.source_port == 40_000));
        // A socket of IPv6 for any address sends both.
        let dual = [socket(Transport::Udp, "[::]:40000", None)];
        let named = wanted(&["10.0.9.9", "2001:db8::9"], &["5004"]);
        assert_eq!(destinations(&named.flows(&dual)), ["10.0.9.9:5004", "[2001:db8::9]:5004"]);
        let only = [Socket { only_ipv6: true, ..dual[0] }];
        assert_eq!(destinations(&named.flows(&only)), ["[2001:db8::9]:5004"]);
        for (to, dports) in [(&["10.0.9.9"][..], &[][..]), (&["10.0.0.0/8"], &["5004"]), (&[], &["5004"])] {
            let found = wanted(to, dports).flows(&sockets);
            assert_eq!((found.flows.len(), found.unknown), (0, Some(40_000)), "{to:?} {dports:?}");
        }
    }

    #[test]
    fn ports_are_one_or_several_in_a_row() {
        assert_eq!((ports("5004"), ports("1-65535")), (Ok(5004..=5004), Ok(1..=65_535)));
        for wrong in ["0", "5-4", "http", "1-", ""] {
            assert!(ports(wrong).unwrap_err().contains("5004"), "{wrong}");
        }
        assert!(Wanted::new(&["no such host".to_owned()], &[], None, false).is_err());
    }
}
