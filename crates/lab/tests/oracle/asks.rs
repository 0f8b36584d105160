//! What hosts ask for, at random.

use std::net::IpAddr;

use signalbox_core::node::Prefix;
use signalbox_core::traffic::FlowFilter;
use signalbox_node::Command;
use signalbox_node::casp::{self, NatfwPackets, NatfwScope, NatfwTerms};
use signalbox_node::natfw::{self, ExposeRequest, OpenRequest, Options};

use crate::draw::Draw;
use crate::enforcer::Enforcer;
use crate::judge::{Asked, Passage, What};
use crate::kernel::{TCP, UDP};
use crate::network::OUTSIDE;
use crate::policy::{Protocol, World};
use crate::rules::{Token, port};

/// The first identifier of those who accept what senders ask for.
const ACCEPTING: u64 = 1000;

impl World {
    /// One of the hosts inside.
    fn inner(&self, draw: &mut Draw) -> usize {
        let network = &self.judge.network;
        let all: Vec<_> = (0..network.hosts.len()).filter(|at| network.is_within(*at)).collect();
        draw.one(&all)
    }

    /// The two ends of a flow.
    fn ends(&self, draw: &mut Draw) -> [usize; 2] {
        let number = self.hosts.len() as u64;
        let [by, mut to] = [(); 2].map(|()| usize::try_from(draw.below(number)).unwrap());
        let by = self.writer.as_ref().filter(|_| draw.percent(40)).map_or(by, |writer| writer.at);
        if to == by && by == OUTSIDE {
            let others: Vec<_> = (0..self.hosts.len()).filter(|at| *at != by).collect();
            to = draw.one(&others);
        } else if to == by {
            to = OUTSIDE;
        }
        [by, to]
    }

    fn is_writer(&self, host: usize) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.at == host)
    }

    /// A host asks for something, changes or ends what it asked for, or a firewall changes.
    pub(crate) fn ask(&mut self, draw: &mut Draw, id: u64, enforcers: &mut [Enforcer]) {
        if draw.percent(20) {
            return self.operate(draw, enforcers);
        }
        if self.writer.is_some() && draw.percent(50) && self.change(draw) {
            return;
        }
        if draw.percent(25) && self.close(draw) {
            return;
        }
        match self.judge.protocol {
            Protocol::Natfw => self.ask_natfw(draw, id),
            Protocol::Casp => self.ask_casp(draw, id),
        }
    }

    /// A host ends what it asked for by a command. False: no host has.
    fn close(&mut self, draw: &mut Draw) -> bool {
        let all = self
            .judge
            .wanted
            .asked
            .iter()
            .filter(|(_, forms)| forms.iter().all(|one| !self.is_writer(one.by)));
        let all: Vec<u64> = all.map(|(id, _)| *id).collect();
        if all.is_empty() {
            return false;
        }
        let id = draw.one(&all);
        for Asked { by, what, .. } in self.judge.end(id) {
            self.past.extend(what.packet());
            let command = match self.judge.protocol {
                Protocol::Natfw => Command::Natfw { id, command: natfw::Command::Close },
                Protocol::Casp => Command::Casp { id, command: casp::Command::Close },
            };
            self.sim.command(self.hosts[by], command);
        }
        true
    }

    /// A request with a command, or by messages that the test writes.
    fn enter(&mut self, draw: &mut Draw, id: u64, asked: Asked, proxy: bool, command: Command) {
        let by = asked.by;
        if self.is_writer(by) {
            return self.write(draw, id, asked.what, asked.token, proxy);
        }
        self.judge.ask(id, asked);
        self.sim.command(self.hosts[by], command);
    }

    fn ask_natfw(&mut self, draw: &mut Draw, id: u64) {
        let protocol = draw.one(&[UDP, UDP, TCP]);
        let (token, at) = (Token::draw(draw, &self.judge.network), self.judge.present());
        let options = Options {
            second_port: draw.percent(40),
            proxy: draw.percent(30),
            token: token.as_ref().map(Token::attributes),
            ..Options::default()
        };
        let (second, proxy, until) = (options.second_port, options.proxy, None);
        if draw.percent(25) {
            let by = self.inner(draw);
            let (port, outside) = (port(draw), self.judge.network.beyond(by));
            let from = if draw.percent(70) { outside } else { self.judge.network.hosts[self.inner(draw)] };
            let own = self.judge.network.hosts[by];
            // A message that the test writes has no place for a sender with IPv6.
            let has_place = own.is_ipv4() || !self.is_writer(by);
            let sender = Some(from).filter(|from| proxy && *from != own && has_place);
            let asked = Asked { by, what: What::Expose { protocol, port, second, sender }, token, at, until };
            let request = ExposeRequest {
                address: None,
                protocol,
                port,
                from: sender.map(Prefix::host),
                from_port: None,
                towards: outside,
                path_coupled: false,
                block: false,
                publish: None,
                bindings: false,
                options,
            };
            let command = Command::Natfw { id, command: natfw::Command::Expose(request) };
            return self.enter(draw, id, asked, proxy, command);
        }
        let [by, to] = self.ends(draw);
        let (mut dst, mut dst_port) = (self.judge.network.hosts[to], port(draw));
        if !self.external.is_empty() && draw.percent(40) {
            (dst, dst_port) = draw.one(&self.external);
        }
        if draw.percent(90) {
            dst = self.judge.network.known_to(by, dst);
        }
        let other = self.other(draw, dst);
        let src = other.unwrap_or(self.judge.network.hosts[by]);
        // `signalbox reserve --pinhole` without --sport asks so.
        let src_port = draw.percent(90).then(|| port(draw));
        let what = What::Open { src, dst, protocol, src_port, dst_port, second };
        let asked = Asked { by, what, token, at, until };
        let (protocol, dst_port) = (Some(protocol), Some(dst_port));
        let request = OpenRequest { src: other, dst, protocol, src_port, dst_port, options };
        let command = Command::Natfw { id, command: natfw::Command::Open(request) };
        self.enter(draw, id, asked, proxy, command);
    }

    /// Sometimes the source of a request is not the host that asks.
    fn other(&self, draw: &mut Draw, dst: IpAddr) -> Option<IpAddr> {
        draw.percent(15).then(|| draw.one(&self.judge.network.hosts)).filter(|other| *other != dst)
    }

    /// Some hosts accept what senders ask for by CASP.
    pub(crate) fn accept(&mut self, draw: &mut Draw) {
        for (by, id) in (0..self.hosts.len()).zip(ACCEPTING..) {
            if self.is_writer(by) || draw.percent(40) {
                continue;
            }
            let any = Prefix::all_like(self.judge.network.hosts[by]);
            let command = casp::Command::Accept(FlowFilter::between(any, any));
            self.judge.ask(id, Asked { by, what: What::Accept, token: None, at: 0, until: None });
            self.sim.command(self.hosts[by], Command::Casp { id, command });
        }
    }

    fn ask_casp(&mut self, draw: &mut Draw, id: u64) {
        let [by, to] = self.ends(draw);
        let (dst, own) = (self.judge.network.hosts[to], self.judge.network.hosts[by]);
        let token = Token::draw(draw, &self.judge.network);
        let at = self.judge.present();
        let by_receiver = !self.is_writer(by) && draw.percent(40);
        let packets = if by_receiver || self.is_writer(by) {
            NatfwPackets::Along
        } else {
            draw.one(&[NatfwPackets::Along, NatfwPackets::Along, NatfwPackets::Both, NatfwPackets::Against])
        };
        let (other, protocol) = (self.other(draw, dst), draw.one(&[UDP, UDP, TCP]));
        let [src_port, dst_port] = [(); 2].map(|()| draw.percent(90).then(|| port(draw)));
        let further = if self.is_writer(by) && dst_port.is_some() { draw.below(3) } else { 0 };
        let passage = Passage {
            src: other.unwrap_or(own),
            dst,
            protocol: Some(protocol).filter(|_| src_port.is_some() || dst_port.is_some() || draw.percent(50)),
            src_port,
            dst_port,
            further: u16::try_from(further).unwrap(),
            along: packets != NatfwPackets::Against,
            back: packets != NatfwPackets::Along,
            by_receiver,
        };
        let needed = packets != NatfwPackets::Along;
        let scope = (needed || !by_receiver && draw.percent(20)).then_some(NatfwScope::Local);
        let tokens = token.as_ref().map(|token| token.object(id * 100, self.sim.now())).unwrap_or_default();
        let request = casp::OpenRequest {
            dst,
            src: other,
            protocol: passage.protocol,
            src_port,
            dst_port,
            receiver_initiated: by_receiver,
            lifetime: None,
            terms: NatfwTerms { scope, packets, tokens, ..NatfwTerms::default() },
            session: None,
        };
        let asked = Asked { by, what: What::Passage(passage), token, at, until: None };
        let command = Command::Casp { id, command: casp::Command::Open(Box::new(request)) };
        self.enter(draw, id, asked, false, command);
    }
}
