//! The configurations that the documents print are safe as printed.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use signalbox_core::node::{Interface, Prefix};
use signalbox_core::traffic::{FlowFilter, TrafficSpec};
use signalbox_core::{IfIndex, ReserverId, Time};
use signalbox_node::resources::request::{GrantRequest, Neighbor, Owner, Proof, RequestedBy, Requester};
use signalbox_node::resources::units::Trusted;
use signalbox_node::resources::{Config, Rate, Resources};

use crate::support::{read, root};

const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 66));

/// Every complete configuration in the documents and below `etc/`, there also with the lines that are commented out: its place and its
/// policy.
fn all() -> Vec<(String, Config)> {
    let paths = |directory: &str| {
        let entries = std::fs::read_dir(root().join(directory)).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let has = |path: &PathBuf, extension: &str| path.extension() == Some(extension.as_ref());
    let pages = paths("docs").into_iter().chain([root().join("README.md")]).filter(|path| has(path, "md"));
    let mut texts = Vec::new();
    for path in pages {
        let text = std::fs::read_to_string(&path).unwrap();
        let blocks = text.split("```toml").skip(1).filter_map(|rest| rest.split("```").next());
        texts.extend(blocks.map(|block| (path.display().to_string(), block.to_owned())));
    }
    for path in paths("etc").into_iter().filter(|path| has(path, "toml")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text
            .lines()
            .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line));
        let whole = lines.collect::<Vec<_>>().join("\n");
        texts.extend([text, whole].map(|text| (path.display().to_string(), text)));
    }
    let sound = texts.into_iter().filter_map(|(path, text)| {
        let config = read(&text.replace("version = 1\n", "")).ok()?;
        Some((path, config.settings(0, false).resources))
    });
    sound.collect()
}

/// Those with a rule for requesters.
fn printed() -> Vec<(String, Config)> {
    let for_requesters =
        |config: &Config| config.rules.iter().any(|rule| !rule.from.is_empty() && rule.opens.is_empty());
    all().into_iter().filter(|(_, config)| for_requesters(config)).collect()
}

/// A host of which no printed configuration speaks gets nothing from any of them, whatever address it writes.
#[test]
fn a_host_that_no_configuration_names_gets_nothing() {
    let all = all();
    assert!(all.iter().filter(|(path, _)| path.ends_with("signalboxd.toml")).count() == 2, "{}", all.len());
    for (path, config) in all {
        for proof in [Proof::None, Proof::Link, Proof::Handshake] {
            let stranger =
                || RequestedBy::Neighbor(Neighbor { address: STRANGER, ifindex: IfIndex(3), proof });
            for claimed in [STRANGER, IpAddr::from([192, 0, 2, 7]), IpAddr::from([10, 0, 0, 7])] {
                assert!(!granted(&config, stranger(), claimed), "{path}: {proof} for {claimed}");
            }
        }
    }
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
    let request = GrantRequest::new(owner, requester, IfIndex(2), flow, traffic);
    resources.admit(Time::ZERO, &request).is_ok()
}

/// Threat T31 (SEC-T31-01): a host elsewhere that writes the address of the office (`--src`) is granted nothing, and the office is.
#[test]
fn a_stranger_gets_nothing_from_a_printed_configuration() {
    let printed = printed();
    for file in ["README.md", "signalboxd.toml"] {
        assert!(printed.iter().any(|(path, _)| path.ends_with(file)), "{file} has a configuration");
    }
    for (path, config) in printed {
        for net in config.rules.iter().filter(|rule| rule.opens.is_empty()).flat_map(|rule| &rule.from) {
            let IpAddr::V4(first) = net.0.addr else { panic!("{path}: an example of IPv6") };
            let office = IpAddr::V4(Ipv4Addr::from_bits(first.to_bits() | 7));
            let by = |address, proof| RequestedBy::Neighbor(Neighbor { address, ifindex: IfIndex(3), proof });
            for proof in [Proof::None, Proof::Link, Proof::Handshake] {
                assert!(!granted(&config, by(STRANGER, proof), office), "{path}: {proof}");
            }
            assert!(!granted(&config, RequestedBy::Unknown, office), "{path}");
            assert!(!granted(&config, by(office, Proof::None), office), "{path}");
            assert!(granted(&config, by(office, Proof::Handshake), office), "{path}: the office");
            let router = IpAddr::from([203, 0, 113, 1]);
            // The file to begin with trusts no network yet.
            let trusts = config.trusted.iter().any(|trusted| matches!(trusted, Trusted::Neighbors(_)));
            assert!(
                !trusts || granted(&config, by(router, Proof::Handshake), office),
                "{path}: by the router"
            );
        }
    }
}
