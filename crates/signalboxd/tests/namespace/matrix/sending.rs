//! What the node itself sends because its users ask.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use signalbox_linux::capture::{Capture, CaptureConfig};
use signalbox_linux::topology;

use super::messages::{GIST_PORT, MAGIC, NATFW, PING, QOS, SCOUT_PORT, UDP, octets};
use super::{QUIET, name, put, remove, rules};
use crate::firewall::Net;
use crate::net::LONG;
use crate::user_requests::UserRequest;

const SETTINGS: &str = "node.protocols = [\"gist\", \"qos\", \"ping\", \"natfw\", \"rsvp\", \"boomerang\", \"casp\"]\n\
     [policy]\ndefault = \"deny\"\n[casp]\nclients = [\"qos\"]\nprivate_flows = true\npeers = [\"10.0.0.0/8\", \"fd00::/8\"]\n\
     [interfaces.right]\ncapacity = \"100mbit\"\n";

const USER_REQUESTS: [UserRequest; 7] = [
    UserRequest::Qos,
    UserRequest::Rsvp,
    UserRequest::Boomerang,
    UserRequest::Casp,
    UserRequest::Create,
    UserRequest::External,
    UserRequest::Ping,
];

/// Whether an IP packet is a message of a request, between these ends.
fn is_of(request: UserRequest, packet: &[u8], [src, dst]: &[IpAddr; 2]) -> bool {
    let has = |part: &[u8]| packet.windows(part.len()).any(|window| window == part);
    let port = |port: u16| has(&[port.to_be_bytes(), port.to_be_bytes()].concat());
    // Magic number, version, hops, length and NSLPID.
    let gist = |nslp: u16| {
        let head = packet.windows(10).find(|window| window.starts_with(&MAGIC));
        port(GIST_PORT) && head.is_some_and(|head| head.ends_with(&nslp.to_be_bytes()))
    };
    // The octet of the routing method follows common header and TLV header.
    let method = |method: u8| {
        packet.windows(17).find(|window| window.starts_with(&MAGIC)).is_some_and(|head| head[16] == method)
    };
    let message = match request {
        UserRequest::Qos => gist(QOS),
        UserRequest::Ping => gist(PING),
        UserRequest::Create => gist(NATFW) && method(0),
        UserRequest::External => gist(NATFW) && method(1),
        UserRequest::Boomerang => has(&[0x47, 0x11, 0x47, 0x11]),
        UserRequest::Casp | UserRequest::CaspCreate => port(SCOUT_PORT),
        // Class and type of the object SESSION, and a flow of UDP.
        UserRequest::Rsvp => {
            has(&[&[1, if dst.is_ipv4() { 1 } else { 2 }][..], &octets(*dst), &[UDP]].concat())
        }
    };
    message && has(&[octets(*src), octets(*dst)].concat())
}

/// What the node itself sends is judged by output and postrouting, whichever protocol it is of.
#[tokio::test]
async fn rules_of_the_administrator_judge_what_a_node_sends() {
    let net = Net::new("sending", SETTINGS).await;
    let node = net.host().connect().await.expect("it runs");
    let mut wrong = Vec::new();
    for (number, rule) in (0_u16..).zip(rules()) {
        let judged = rule.is_some_and(|(hook, _)| ["output", "postrouting"].contains(&hook));
        put(&net, rule);
        let mut link = Capture::open(net.b(), "veth", CaptureConfig::default()).unwrap();
        let (mut sent, mut calls) = (Vec::new(), Vec::new());
        // Each destination is new: a search for a node is not repeated for a time.
        let ends = |src: &str, net: &str| {
            [src.parse::<IpAddr>().unwrap(), format!("{net}{}", 100 + number).parse().unwrap()]
        };
        for (ends, length) in [(ends("10.78.0.1", "10.78.0."), 24), (ends("fd78::1", "fd78::"), 64)] {
            topology::add_address(net.b(), "veth", ends[1], length).unwrap();
            for (request, port) in USER_REQUESTS.into_iter().zip(5000 + number * 10..) {
                let call = request.begin(&node, ends, port).await;
                calls.push(call.unwrap_or_else(|status| panic!("{request:?} to {}: {status}", ends[1])));
                sent.push((request, ends, false));
            }
        }
        let begin = Instant::now();
        loop {
            let read = link.read(Duration::from_millis(20), |frame| {
                for (request, ends, seen) in &mut sent {
                    *seen |= !frame.outgoing && is_of(*request, frame.octets, ends);
                }
            });
            read.unwrap();
            let missing = !judged && sent.iter().any(|(_, _, seen)| !seen);
            let time = begin.elapsed();
            if time > LONG || !missing && time > QUIET {
                break;
            }
        }
        for (request, [_, dst], seen) in sent {
            if seen == judged {
                let what = if seen { "is seen" } else { "is not seen" };
                wrong.push(format!("{}: {request:?} to {dst} {what}", name(rule)));
            }
        }
        remove(&net, rule);
        drop(calls);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
