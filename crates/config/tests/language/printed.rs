//! The configurations that the documents print are safe as printed.

use std::net::{IpAddr, Ipv4Addr};

use signalbox_core::node::{Interface, Prefix};
use signalbox_core::traffic::{FlowFilter, TrafficSpec};
use signalbox_core::{IfIndex, ReserverId, Time};
use signalbox_node::resources::request::{GrantRequest, Neighbour, Owner, Proof, RequestedBy, Requester};
use signalbox_node::resources::{Config, Rate, Resources};

use crate::support::{read, root};

const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 66));

/// Every complete configuration with a rule for requesters in the documents: its place and its policy.
fn printed() -> Vec<(String, Config)> {
    let docs = std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.chain([root().join("README.md")]).filter(|path| path.extension() == Some("md".as_ref()));
    let mut found = Vec::new();
    for path in pages {
        let text = std::fs::read_to_string(&path).unwrap();
        for block in text.split("```toml").skip(1).filter_map(|rest| rest.split("```").next()) {
            let block = block.replace("version = 1\n", "");
            if let Ok(config) = read(&block) {
                let resources = config.settings(0, false).resources;
                if resources.rules.iter().any(|rule| !rule.from.is_empty() && rule.opens.is_empty()) {
                    found.push((path.display().to_string(), resources));
                }
            }
        }
    }
    found
}

/// Whether a request for a flow of `claimed` is granted to who sends it.
fn granted(config: &Config, requested_by: RequestedBy, claimed: IpAddr) -> bool {
    let eth1 = Interface {
        ifindex: IfIndex(2),
        name: "eth1".to_owned(),
        up: true,
        mtu: 1500,
        tunnel: false,
        addresses: Vec::new(),
    };
    let links = Config::of_link("eth1", Rate(12_500_000)).links;
    let mut resources = Resources::new(Config { links, ..config.clone() }, 0, [1; 32]).unwrap();
    resources.interfaces(&[eth1]);
    let flow = FlowFilter::between(Prefix::host(claimed), Prefix::host(IpAddr::from([203, 0, 114, 9])));
    let traffic = TrafficSpec { rate: 100_000, burst: 3000, peak: None, min_policed: 64, max_packet: 1500 };
    let owner = Owner { protocol: ReserverId::QOS, key: 1 };
    let requester = Requester::new(requested_by, None, Some(claimed));
    let ask = GrantRequest::new(owner, requester, IfIndex(2), flow, traffic);
    resources.admit(Time::ZERO, &ask).is_ok()
}

/// Threat T31: a host elsewhere that writes the address of the office (`--src`) is granted nothing, and the office is.
#[test]
fn a_stranger_gets_nothing_from_a_printed_configuration() {
    let printed = printed();
    assert!(printed.iter().any(|(path, _)| path.ends_with("README.md")), "README has a configuration");
    for (path, config) in printed {
        for net in config.rules.iter().filter(|rule| rule.opens.is_empty()).flat_map(|rule| &rule.from) {
            let IpAddr::V4(first) = net.0.addr else { panic!("{path}: an example of IPv6") };
            let office = IpAddr::V4(Ipv4Addr::from_bits(first.to_bits() | 7));
            let by =
                |address, proof| RequestedBy::Neighbour(Neighbour { address, ifindex: IfIndex(3), proof });
            for proof in [Proof::None, Proof::Link, Proof::Handshake] {
                assert!(!granted(&config, by(STRANGER, proof), office), "{path}: {proof}");
            }
            assert!(!granted(&config, RequestedBy::Unknown, office), "{path}");
            assert!(!granted(&config, by(office, Proof::None), office), "{path}");
            assert!(granted(&config, by(office, Proof::Handshake), office), "{path}: the office");
            let router = IpAddr::from([203, 0, 113, 1]);
            assert!(granted(&config, by(router, Proof::Handshake), office), "{path}: by the router");
        }
    }
}
