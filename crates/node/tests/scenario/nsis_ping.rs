//! The format of the NSIS Ping tool over the real GIST.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::NslpId;
use signalbox_gist::wire::MessageType;
use signalbox_node::Command;
use signalbox_node::ping::{self, Format, PingRequest};
use signalbox_ping::wire::nsis;
use signalbox_sim::LinkConfig;

use crate::net::{FAMILIES, Net, Role, message, path, replies};

const LIMIT: Duration = Duration::from_secs(60);

/// NSISPING-2-01, NSISPING-2-02: GIST carries it hop by hop to the nodes with the application; one without it and a router
/// without GIST stand between them. NSISPING-2.1.2-01, NSISPING-2.1.1.1-01: the records of the way there and back, over IPv4
/// and IPv6. NSISPING-2-05, NSISPING-2-06, NSISPING-2-07: the direction changes at the receiver only, and nothing follows
/// the message's arrival at the initiator. NSISPING-2.2-03, NSISPING-2.2-04: hops and length grow with each record.
#[test]
fn a_trace_of_the_nsis_format_meets_every_node_there_and_back() {
    for family in FAMILIES {
        let roles = [Role::Full, Role::Full, Role::WithoutPing, Role::Router, Role::Full, Role::Full];
        let mut net = Net::row(21, &roles, &LinkConfig::default());
        net.sim.capture_all();
        let dst = net.sim.address(net.last(), family);
        let request = PingRequest { count: Some(2), format: Format::Nsis, ..PingRequest::to(dst) };
        net.sim.command(net.first(), Command::Ping { id: 7, command: ping::Command::Start(request) });
        assert_eq!(net.done(7, LIMIT), (2, 2));
        let there: Vec<IpAddr> = [1, 4].map(|node| net.towards_first(node, family)).into();
        let back: Vec<IpAddr> = [4, 1].map(|node| net.towards_last(node, family)).into();
        for (_, reply) in replies(&net.sim, 7) {
            assert_eq!(path(reply), [&there[..], &[dst]].concat());
            assert_eq!(reply.back.iter().map(|hop| hop.address).collect::<Vec<_>>(), back);
            assert!(reply.reached_end && !reply.truncated);
            let times: Vec<_> = reply.hops.iter().map(|hop| hop.round_trip.unwrap()).collect();
            assert!(reply.rtt > times[0] && times[0] > times[1] && times[1] > times[2], "{times:?}");
            assert_eq!(times[2], Duration::ZERO);
        }
        // What each link carried, in the order of sending: downstream, then upstream.
        let mut stages = Vec::new();
        for captured in net.sim.captured() {
            let message = message(captured);
            if message.header.kind != MessageType::DATA || message.header.nslp != NslpId::NSIS_PING {
                continue;
            }
            let read = nsis::Message::parse(message.nslp_data.unwrap()).unwrap();
            let first_time = captured.from == net.nodes[0] || captured.from != net.nodes[2];
            if first_time && read.sequence == 1 && captured.from != net.nodes[3] {
                stages.push((message.mri.unwrap().mri.direction(), read.hops, read.octets()));
            }
        }
        use signalbox_core::Direction::{Downstream, Upstream};
        let expected = [
            (Downstream, 0, 40),
            (Downstream, 1, 64),
            (Downstream, 2, 88),
            (Upstream, 3, 112),
            (Upstream, 4, 136),
            (Upstream, 5, 160),
        ];
        let mut seen = stages;
        seen.dedup();
        assert_eq!(seen, expected, "{family:?}");
    }
}
