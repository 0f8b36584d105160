//! Certificates whose dates are judged by the wall clock, which is set while nodes run (RFC 5971 §5.7.3.1).

use core::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use signalbox_core::Time;
use signalbox_gist::engine::Transport;
use signalbox_node::{ChannelConfig, Command, Credentials, Node, Tls};
use signalbox_sim::{Family, LinkConfig, NodeId, Sim, topology};

use crate::cmode::over;
use crate::net::{Net, make, replies};

const SECOND: Duration = Duration::from_secs(1);
/// 2027-01-15 at the start.
const START_US: u64 = 1_800_000_000_000_000;
const MONTH_US: u64 = 31 * 24 * 3600 * 1_000_000;

/// Credentials of two nodes. The certificate of the second one ends on 2027-02-01.
fn credentials() -> [Credentials; 2] {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let anchors = params.self_signed(&key).unwrap().pem();
    let authority = Issuer::new(params, key);
    [("first.test", date_time_ymd(2030, 1, 1)), ("second.test", date_time_ymd(2027, 2, 1))].map(
        |(name, end)| {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new([name.to_owned()]).unwrap();
            params.not_after = end;
            let chain = params.signed_by(&key, &authority).unwrap().pem();
            Credentials::Certificates { chain, key: key.serialize_pem(), anchors: anchors.clone() }
        },
    )
}

/// Whether the first node has an association with a peer that proved its name.
fn is_associated(sim: &Sim<Node>, node: NodeId) -> bool {
    sim.engine(node).unwrap().associations().any(|one| one.authenticated.is_some())
}

/// (T23) [GIST-5.7.3.1-07] A node runs while its clock is set: the association with a peer whose certificate has ended by the new time
/// ends, and there is no other one, until the clock is set back. A node that judged by the clock of its start would keep both.
#[test]
fn a_clock_that_is_set_ends_associations_with_expired_certificates() {
    let mut sim = Sim::new(5);
    let nodes = credentials().map(|credentials| {
        let mut config = over(Transport::TlsTcp);
        config.wall_clock_us = START_US;
        let channels = ChannelConfig { tls: Some(Tls::new(credentials)), ..ChannelConfig::default() };
        config.gist.as_mut().unwrap().channels = channels;
        sim.add_engine("node", move |boot| make(boot, config.clone()))
    });
    let links = topology::chain(&mut sim, &nodes, &LinkConfig::default());
    let mut net = Net { sim, nodes: nodes.to_vec(), links };
    let [first, _] = nodes;
    let answered = |sim: &Sim<Node>, since: Time| {
        replies(sim, 1).iter().any(|(at, reply)| *at - reply.rtt > since && reply.reached_end)
    };
    net.ping(1, Family::V4, None);
    net.sim.expect("a reply", 30 * SECOND, |sim| answered(sim, Time::ZERO));
    assert!(is_associated(&net.sim, first));

    net.sim.command(first, Command::WallClock(START_US + MONTH_US));
    net.sim.run_for(5 * SECOND);
    let since = net.sim.now();
    for _ in 0..60 {
        net.sim.run_for(5 * SECOND);
        assert!(!is_associated(&net.sim, first));
    }
    assert!(!answered(&net.sim, since), "no message passes without the association");

    net.sim.command(first, Command::WallClock(START_US));
    let since = net.sim.now();
    net.sim.expect("a reply again", 900 * SECOND, |sim| answered(sim, since));
    assert!(is_associated(&net.sim, first));
}
