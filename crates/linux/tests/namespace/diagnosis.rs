//! A requester of RSVP diagnostics on the kernel: its request arrives with the requested TTL and alert, it receives a
//! reply, and a traceroute finds the nodes on the path.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use signalbox_linux::diagnosis::Requester;

use super::network::{Addresses, Network, PATIENCE, families, ip};
use super::rsvp::{end, receive_one};

#[test]
fn requests_replies_and_a_traceroute() {
    let net = Network::new("diagnosis");
    let mut node = end(&net.b, false);
    let routers = [ip("10.1.0.2"), ip("fd01::2")];
    for (Addresses { a: from, b: to }, router) in families().into_iter().zip(routers) {
        net.a
            .run(|| {
                let requester = Requester::open(to, 255).unwrap();
                assert_eq!((requester.address().ip(), requester.mtu()), (from, 1500));
                requester.send(to, b"a request").unwrap();
                let got = receive_one(&mut node);
                assert_eq!((got.src, got.dst, got.payload.as_slice()), (from, to, &b"a request"[..]));
                // One router decremented the TTL. With IPv6 the packet has the alert of all RSVP packets.
                assert_eq!((got.ttl, got.alert), (254, to.is_ipv6()));

                let mut buffer = [0; 100];
                assert_eq!(requester.receive(&mut buffer, Duration::from_millis(1)).unwrap(), None);
                let replier = net.b.run(|| UdpSocket::bind(SocketAddr::new(to, 0)).unwrap()).unwrap();
                replier.send_to(b"a reply", requester.address()).unwrap();
                assert_eq!(requester.receive(&mut buffer, PATIENCE).unwrap(), Some(&b"a reply"[..]));

                assert_eq!(requester.trace(to, 30, PATIENCE).unwrap(), [router, to]);
            })
            .unwrap();
    }
    let nowhere = net.r.run(|| Requester::open(ip("198.51.100.1"), 255).unwrap_err()).unwrap();
    assert_eq!(nowhere.id, "no-route");
}
