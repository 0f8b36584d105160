//! NATFW NSLP, Boomerang and CASP.

use core::time::Duration;
use std::collections::BTreeSet;
use std::rc::Rc;

use signalbox_core::{SessionId, Time};
use signalbox_node::resources::{Config as Resources, Rate, config::LinkConfig as Capacity};
use signalbox_node::{Command, Config, Node, boomerang, casp, natfw};
use signalbox_sim::{Family, LinkConfig, LinkId, NodeId, Packet, Sim, topology};

use super::meter::{Meter, Metered, child};
use crate::boomerang::net::request;
use crate::hostile::catalogue::{Sample, name, notifications};
use crate::hostile::net::{casp_message, passage, with_checksum};
use crate::natfw::net::expose;
use crate::net::WALL_US;

const MS: Duration = Duration::from_millis(1);

struct Net {
    sim: Sim<Metered>,
    /// Sender, router and receiver. The inputs of the router are counted.
    nodes: [NodeId; 3],
    links: Vec<LinkId>,
    meter: Rc<Meter>,
}

impl Net {
    /// `change` gives each node its protocols.
    fn new(change: impl Fn(&str, &mut Config)) -> Self {
        let mut sim = Sim::new(1);
        let meter = Rc::new(Meter::default());
        let nodes = ["sender", "router", "receiver"].map(|name| {
            let meter = if name == "router" { meter.clone() } else { Rc::default() };
            let links = (0..2).map(|n| Capacity::new(&format!("eth{n}"), Some(Rate(1_250_000_000))));
            let mut config = Config {
                wall_clock_us: WALL_US,
                resources: Resources { links: links.collect(), ..Resources::default() },
                ..Config::empty()
            };
            change(name, &mut config);
            sim.add_engine(name, move |boot| {
                Metered::new(Node::new(config.clone(), boot.seed).unwrap(), meter.clone())
            })
        });
        let links = topology::chain(&mut sim, &nodes, &LinkConfig::default());
        sim.run_for(Duration::ZERO);
        Self { sim, nodes, links, meter }
    }

    fn command(&mut self, command: Command) {
        self.sim.command(self.nodes[0], command);
    }

    /// The sessions of the NATFW NSLP at a node.
    fn passages(&self, node: usize) -> BTreeSet<SessionId> {
        let natfw = self.sim.engine(self.nodes[node]).unwrap().node.natfw().unwrap();
        let (mut all, mut from) = (BTreeSet::new(), Some(0));
        while let Some(at) = from {
            from = natfw.walk(Time::ZERO, at, |view| all.insert(view.session));
        }
        all
    }

    /// The address of the receiver.
    fn far(&self) -> core::net::IpAddr {
        self.sim.address(self.nodes[2], Family::V4)
    }

    /// Sessions number 1 to `count`.
    fn fill(&mut self, count: u16, open: impl Fn(&Self, u16) -> Command) {
        for id in 1..=count {
            let command = open(self, id);
            self.command(command);
            self.sim.run_for(2 * MS);
        }
        self.sim.run_for(1000 * MS);
        for link in self.links.clone() {
            self.sim.capture(link);
        }
    }

    /// Lives with these commands. Then the packets of the neighbors arrive again, and from a stranger.
    fn live(&mut self, life: u16, commands: impl IntoIterator<Item = Command>) {
        let before = self.sim.captured().count();
        for command in commands {
            self.command(command);
            self.counted(life, 200 * MS);
        }
        let router = self.nodes[1];
        let came = self.sim.captured().skip(before).filter(|one| one.to == router);
        let came = came.filter(|one| [1, 17].contains(&one.packet.protocol));
        let mut samples: Vec<Sample> = came
            .map(|one| Sample { name: name(&one.packet), packet: one.packet.clone(), link: one.link })
            .collect();
        samples.extend(notifications(&samples));
        for Sample { packet, link, .. } in samples {
            let mut stranger = packet.clone();
            stranger.src.set_ip("198.51.100.7".parse().unwrap());
            for packet in [packet, with_checksum(stranger)] {
                self.inject(link, packet, life);
            }
        }
    }

    fn inject(&mut self, link: LinkId, packet: Packet, life: u16) {
        self.sim.inject(link, self.nodes[1], packet);
        self.counted(life, 2 * MS);
    }

    /// Runs for so long and counts.
    fn counted(&mut self, life: u16, time: Duration) {
        self.meter.start(life);
        self.sim.run_for(time);
    }
}

/// The life of one passage beside the others, a reservation of an external address, and packets of strangers.
#[test]
fn natfw() {
    let Some(sessions) = child() else { return super::compare("cost::others::natfw") };
    let mut net = Net::new(|name, config| {
        // Over datagrams, so that each message is an input of its own.
        let mut natfw = natfw::Config { reliable: false, ..natfw::Config::default() };
        if name == "router" {
            (natfw.middlebox, natfw.edge) = (natfw::Middlebox::Firewall, true);
            (natfw.inside, natfw.outside) = (vec!["eth0".into()], vec!["eth1".into()]);
        }
        (config.natfw, config.gist) = (Some(natfw), Config::default().gist);
        crate::net::gist(config).dmode_rate = 100_000;
    });
    net.fill(sessions, |net, id| passage(net.far(), id));
    let open = |net: &Net| net.sim.pinholes(net.nodes[1]).count();
    assert_eq!(open(&net), usize::from(sessions));
    for life in super::LIVES {
        let id = sessions + 2 * life;
        let exposed = natfw::Command::Expose(expose(net.far()));
        let close = |id: u16| Command::Natfw { id: id.into(), command: natfw::Command::Close };
        let commands = [
            passage(net.far(), id),
            Command::Natfw { id: (id + 1).into(), command: exposed },
            close(id),
            close(id + 1),
        ];
        net.live(life, commands);
        // The neighbor's datagram, once more, opens the passage again.
        assert!(open(&net) <= usize::from(sessions + life), "{}", open(&net));
    }
    net.meter.stop();
}

/// The life of one passage over messaging associations, which the receiver ends: the router gets a NOTIFY that it takes.
#[test]
fn natfw_over_associations() {
    let Some(sessions) = child() else { return super::compare("cost::others::natfw_over_associations") };
    let mut net = Net::new(|name, config| {
        let mut natfw = natfw::Config::default();
        if name == "router" {
            (natfw.middlebox, natfw.edge) = (natfw::Middlebox::Firewall, true);
            (natfw.inside, natfw.outside) = (vec!["eth0".into()], vec!["eth1".into()]);
        }
        (config.natfw, config.gist) = (Some(natfw), Config::default().gist);
        let gist = crate::net::gist(config);
        (gist.dmode_rate, gist.associations.tcp_port) = (100_000, Some(270));
    });
    net.fill(sessions, |net, id| passage(net.far(), id));
    let open = |net: &Net| net.sim.pinholes(net.nodes[1]).count();
    assert_eq!(open(&net), usize::from(sessions));
    for life in super::LIVES {
        let before = net.passages(2);
        net.command(passage(net.far(), sessions + life));
        net.counted(life, 200 * MS);
        assert_eq!(open(&net), usize::from(sessions) + 1);
        let new = net.passages(2).difference(&before).copied().next().unwrap();
        let delete = Command::Natfw { id: 0, command: natfw::Command::Delete(new) };
        net.sim.command(net.nodes[2], delete);
        net.counted(life, 200 * MS);
        assert_eq!(open(&net), usize::from(sessions), "the NOTIFY ended the passage");
    }
    net.meter.stop();
}

/// The life of one reservation beside the others, and packets of strangers.
#[test]
fn boomerang() {
    let Some(sessions) = child() else { return super::compare("cost::others::boomerang") };
    let mut net = Net::new(|_, config| config.boomerang = Some(boomerang::Config::default()));
    let command = |id: u16, command| Command::Boomerang { id: id.into(), command };
    let open =
        |net: &Net, id| command(id, boomerang::Command::Open(request(net.far(), id, &[(64_000, 32_000)])));
    net.fill(sessions, open);
    let held = |net: &Net| net.sim.reservations(net.nodes[1]).count();
    assert_eq!(held(&net), 2 * usize::from(sessions));
    for life in super::LIVES {
        let id = sessions + life;
        let less = boomerang::Rates { forward: 32_000, reverse: 16_000 };
        let commands = [
            open(&net, id),
            command(id, boomerang::Command::Change(less)),
            command(id, boomerang::Command::Close),
        ];
        net.live(life, commands);
        // A stranger reserves for itself, because the policy allows it; each duplicate of a message is passed on only.
        assert!(held(&net) <= 2 * usize::from(sessions + 2 * life), "{}", held(&net));
    }
    net.meter.stop();
}

/// The life of one session over datagrams beside the others, and packets of strangers.
#[test]
fn casp() {
    casp_over(casp::Transport::Udp, "cost::others::casp");
}

/// The same over a connection for each hop.
#[test]
fn casp_over_connections() {
    casp_over(casp::Transport::Tcp, "cost::others::casp_over_connections");
}

fn casp_over(transport: casp::Transport, name: &str) {
    let Some(sessions) = child() else { return super::compare(name) };
    let mut net = Net::new(|_, config| {
        let mut casp = casp::Config::default();
        casp.engine.transport = transport;
        config.casp = Some(casp);
    });
    net.command(Command::Casp { id: 1, command: casp::Command::Register { client: 200, stateless: false } });
    let near = net.sim.address(net.nodes[0], Family::V4);
    let message = |net: &Net, id: u16, tear_down| {
        casp_message([near, net.far()], SessionId(u128::from(id).to_be_bytes()), id, tear_down)
    };
    net.fill(sessions, |net, id| message(net, id, false));
    let known = |net: &Net| net.sim.engine(net.nodes[1]).unwrap().node.casp().unwrap().session_count();
    assert_eq!(known(&net), u32::from(sessions));
    for life in super::LIVES {
        let id = sessions + life;
        let ping = casp::Command::Ping(casp::PingRequest::to(net.far()));
        let commands = [
            message(&net, id, false),
            message(&net, id, false),
            Command::Casp { id: 2, command: ping },
            message(&net, id, true),
        ];
        net.live(life, commands);
    }
    net.meter.stop();
}
