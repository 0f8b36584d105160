//! Hop counts that reach zero and tables that are full.

use core::time::Duration;

use signalbox_gist::wire::{GistError, MessageType};
use signalbox_node::Config;
use signalbox_node::ping::{self, PingRequest};
use signalbox_sim::{Family, LinkConfig, Sim, topology};

use crate::net::{Net, QUIET, all_sessions, config, full, gist, header, make, message, replies, total};

const LIMIT: Duration = Duration::from_secs(60);

/// A row whose nodes run with these settings.
fn row(seed: u64, configs: Vec<Config>) -> Net {
    let mut sim = Sim::new(seed);
    let nodes: Vec<_> = configs
        .into_iter()
        .enumerate()
        .map(|(n, config)| sim.add_engine(format!("n{n}"), move |boot| make(boot, config.clone())))
        .collect();
    let links = topology::chain(&mut sim, &nodes, &LinkConfig::default());
    Net { sim, nodes, links }
}

/// GIST-4.3.1-09, GIST-4.3.4-11: a Query whose hop count reaches zero on the path is answered with an Error to its
/// sender, and is not forwarded.
#[test]
fn a_query_runs_out_of_hops() {
    let mut first = config();
    gist(&mut first).hops = 2;
    let without = Config { ping: None, ..config() };
    let mut net = row(1, vec![first, without.clone(), without.clone(), without, config()]);
    net.sim.capture_all();
    net.ping(1, Family::V4, Some(1));
    assert_eq!(net.done(1, LIMIT), (1, 0));
    let queries = |link: usize| {
        let link = net.links[link];
        net.sim.captured().filter(|c| c.link == link && header(c).kind == MessageType::QUERY).count()
    };
    assert!(queries(0) > 0 && queries(1) > 0);
    assert_eq!((queries(2), queries(3)), (0, 0));
    let error = net.sim.captured().find(|c| header(c).kind == MessageType::ERROR).unwrap();
    assert_eq!(error.from, net.nodes[2]);
    assert_eq!(message(error).error.unwrap().error, GistError::HOP_LIMIT_EXCEEDED);
    assert_eq!(all_sessions(&net.sim), 0);
}

/// GIST-4.3.3-04: the application forwards the hop count, so that its messages cannot loop for ever. It sends none on with
/// count 1, which would be that of a node that preserves no count.
#[test]
fn data_runs_out_of_hops_among_applications() {
    let mut first = config();
    gist(&mut first).hops = 3;
    let mut net = row(2, vec![first, config(), config(), config(), config()]);
    net.ping(1, Family::V4, Some(2));
    assert_eq!(net.done(1, LIMIT), (2, 0));
    assert_eq!(net.sim.engine(net.nodes[2]).unwrap().counter("ping", "hop_limit"), 2);
    assert_eq!(net.sessions(3), 0);
}

/// A node whose table of sessions is full refuses new sessions and continues to serve the existing ones.
#[test]
fn a_full_table_keeps_what_it_holds() {
    let mut middle = config();
    gist(&mut middle).max_sessions = 2;
    let mut net = row(3, vec![config(), middle, config()]);
    for id in 1..=3 {
        net.ping(id, Family::V4, Some(10));
        net.sim.run_for(Duration::from_millis(500));
    }
    assert_eq!(net.done(1, LIMIT), (10, 10));
    assert_eq!(net.done(2, LIMIT), (10, 10));
    let (_, received) = net.done(3, LIMIT);
    assert!(received < 10, "the third session was not kept out");
    assert!(total(&net.sim, "gist", "sessions_full") > 0);
    net.sim.run_for(QUIET);
    assert_eq!(all_sessions(&net.sim), 0);
}

/// GIST-5.3.3-19, GIST-5.3.3-23: a node sends no more than its rate of messages, for any number of requests.
#[test]
fn the_rate_of_own_messages_is_bounded() {
    let mut first = config();
    gist(&mut first).dmode_rate = 10;
    gist(&mut first).dmode_burst = 5;
    let mut net = row(4, vec![first, config()]);
    net.sim.capture(net.links[0]);
    let dst = net.sim.address(net.last(), Family::V4);
    let interval = Duration::from_millis(10);
    let request = PingRequest { count: Some(1000), interval, ..PingRequest::to(dst) };
    net.sim.command(
        net.first(),
        signalbox_node::Command::Ping { id: 1, command: ping::Command::Start(request) },
    );
    net.done(1, LIMIT);
    let first = net.first();
    let times: Vec<_> = net.sim.captured().filter(|c| c.from == first).map(|c| c.at).collect();
    for (n, from) in times.iter().enumerate() {
        let within = times[n..].iter().filter(|t| t.since(*from) < Duration::from_secs(1)).count();
        assert!(within <= 16, "{within} messages within a second of {from}");
    }
    assert!(total(&net.sim, "gist", "dmode_limited") > 0);
}

/// GIST-5.3.3-25: the rate follows the speed that the kernel knows of a link, unless the configuration has a capacity.
#[test]
fn the_rate_follows_the_speed_of_a_link() {
    let messages = |declared: Option<u64>, speed: u64| {
        let mut first = config();
        gist(&mut first).dmode_by_link = true;
        gist(&mut first).dmode_burst = 5;
        let capacity = declared.map(signalbox_node::resources::Rate);
        let declared = signalbox_node::resources::config::LinkConfig::new("*", capacity);
        first.resources.links.push(declared);
        let mut net = row(6, vec![first, config()]);
        net.sim.capture(net.links[0]);
        let first = net.first();
        let speeds = vec![(signalbox_core::IfIndex(1), speed), (signalbox_core::IfIndex(77), 1)];
        net.sim.command(first, signalbox_node::Command::LinkSpeeds(speeds));
        let dst = net.sim.address(net.last(), Family::V4);
        let interval = Duration::from_millis(10);
        let request = PingRequest { count: Some(1000), interval, ..PingRequest::to(dst) };
        net.sim
            .command(first, signalbox_node::Command::Ping { id: 1, command: ping::Command::Start(request) });
        net.sim.run_for(Duration::from_secs(20));
        net.sim.captured().filter(|c| c.from == first).count()
    };
    // 5 % of 100 kbit/s is about one message of 576 octets a second.
    let counts = [messages(None, 12_500), messages(None, 37_500), messages(Some(37_500), 12_500)];
    assert!((10..=26).contains(&counts[0]), "{counts:?}");
    assert!((28..=70).contains(&counts[1]), "{counts:?}");
    assert!((28..=70).contains(&counts[2]), "{counts:?}");
}

/// Two nodes whose routes point at each other would show a message that loops.
#[test]
fn a_routing_loop_ends_by_itself() {
    let mut sim = Sim::new(5);
    let nodes = sim.add_engines(3, full);
    let links = topology::chain(&mut sim, &nodes, &LinkConfig::default());
    let lost = signalbox_core::node::Prefix { addr: "198.51.100.0".parse().unwrap(), len: 24 };
    for (node, link) in [(0, 0), (1, 1), (2, 1)] {
        sim.set_route(nodes[node], lost, signalbox_sim::NextHop::Link(links[link]));
    }
    sim.capture_all();
    let request = PingRequest { count: Some(1), ..PingRequest::to("198.51.100.7".parse().unwrap()) };
    sim.command(nodes[0], signalbox_node::Command::Ping { id: 1, command: ping::Command::Start(request) });
    sim.run_for(Duration::from_secs(10));
    assert!(replies(&sim, 1).iter().all(|(_, reply)| !reply.reached_end));
    let packets = sim.captured().count();
    assert!(packets < 2000, "{packets} packets for one message");
    sim.run_for(Duration::from_secs(120));
    assert_eq!(all_sessions(&sim), 0);
}
