//! A host whose requests the test writes itself, as a program of its own would at that host. It changes what it asked for in the same
//! session: other packets, another lifetime, another token.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use signalbox_core::mri::{Direction, LooseEnd, PathCoupled};
use signalbox_core::service::{IndicationOf, RecvMessageOf, RequestOf, SendMessageOf, TransferAttributes};
use signalbox_core::{Mri, NslpId, SessionId};
use signalbox_node::casp::{self, ClientEvent, FlowId, SendRequestOf, VerdictOf};
use signalbox_node::gist::Registration;
use signalbox_node::natfw;
use signalbox_node::{ApplicationCommand, ApplicationEvent, Command, Event};

use crate::draw::Draw;
use crate::judge::{Asked, Passage, What};
use crate::messages::{self, Answer, Casp, Natfw};
use crate::policy::{Protocol, World};
use crate::rules::{Token, port};

/// The identifier of the program.
const PROGRAM: u64 = 2000;
/// The number of CASP's client for firewalls.
const CLIENT: u8 = 2;
/// More than a request needs to arrive.
const ARRIVAL: Duration = Duration::from_millis(900);

/// The host, and its sessions by their requests.
pub(crate) struct Writer {
    pub(crate) at: usize,
    sessions: BTreeMap<u64, Session>,
}

struct Session {
    id: SessionId,
    number: u32,
    age: u64,
    /// What it asked for last.
    what: What,
    token: Option<Token>,
    proxy: bool,
    /// Whether the answer to the last request says which forms of it stand.
    waits: bool,
}

impl Writer {
    pub(crate) const fn new(at: usize) -> Self {
        Self { at, sessions: BTreeMap::new() }
    }

    /// The request whose last form an answer is to.
    fn answered(&mut self, session: SessionId, answer: Answer) -> Option<u64> {
        let mut all = self.sessions.iter_mut();
        let (request, one) = all.find(|(_, one)| (one.id, one.number.into()) == (session, answer.number))?;
        std::mem::take(&mut one.waits).then_some(*request)
    }
}

/// The MRI of a request of NATFW.
fn mri(what: &What, own: IpAddr, outside: IpAddr) -> Mri {
    match *what {
        What::Open { src, dst, protocol, src_port, dst_port, .. } => Mri::PathCoupled(PathCoupled {
            protocol: Some(protocol),
            src_port,
            dst_port: Some(dst_port),
            ..PathCoupled::between(src, dst)
        }),
        _ => Mri::LooseEnd(LooseEnd { src: own, dst: outside, direction: Direction::Downstream }),
    }
}

/// The flow of a request of CASP.
fn flow(what: &What) -> Option<FlowId> {
    let What::Passage(Passage { src, dst, protocol, src_port, dst_port, .. }) = *what else { return None };
    let [src_port, dst_port] = [src_port, dst_port].map(Option::unwrap_or_default);
    let protocol = protocol.unwrap_or_default();
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            Some(FlowId::V4Ports { src, dst, src_port, dst_port, protocol })
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            Some(FlowId::V6Ports { src, dst, src_port, dst_port, protocol })
        }
        _ => None,
    }
}

/// The same request with one thing changed, or nothing. It still passes the firewall.
fn changed(draw: &mut Draw, former: &What, hosts: &[IpAddr], own: IpAddr) -> What {
    let mut what = former.clone();
    match &mut what {
        What::Open { src, dst, src_port, dst_port, second, .. } => match draw.below(6) {
            0 => (*src_port, *dst_port) = (Some(port(draw)), port(draw)),
            1 => *dst_port = port(draw),
            2 => *second = !*second,
            3 => *dst = draw.one(hosts),
            4 => *src = draw.one(hosts),
            _ => {}
        },
        What::Expose { port: own, second, sender, .. } => match draw.below(4) {
            0 => *own = port(draw),
            1 => *second = !*second,
            2 if sender.is_some() => *sender = Some(draw.one(hosts)),
            _ => {}
        },
        What::Passage(passage) => match draw.below(6) {
            0 => (passage.src_port, passage.dst_port) = (Some(port(draw)), Some(port(draw))),
            1 | 2 => passage.further = u16::try_from(draw.below(3)).unwrap(),
            3 => passage.dst = draw.one(hosts),
            4 => passage.src = draw.one(hosts),
            _ => {}
        },
        What::Accept => {}
    }
    let passes = |[src, dst]: [IpAddr; 2]| src != dst && dst != own;
    if what.ends().is_none_or(passes) { what } else { former.clone() }
}

impl World {
    /// The host takes part without the application.
    pub(crate) fn register(&mut self) {
        match self.judge.protocol {
            Protocol::Natfw => {
                let (router_alert, v6) = NslpId::NATFW.router_alert();
                let registration =
                    Registration { router_alert, router_alert_v6: Some(v6), ..Registration::default() };
                self.gist(ApplicationCommand::Register { nslp: NslpId::NATFW, registration });
            }
            Protocol::Casp => self.client(casp::Command::Register { client: CLIENT, stateless: false }),
        }
    }

    fn gist(&mut self, command: ApplicationCommand) {
        let Some(writer) = &self.writer else { return };
        self.sim.command(self.hosts[writer.at], Command::Gist { id: PROGRAM, command });
    }

    fn client(&mut self, command: casp::Command) {
        let Some(writer) = &self.writer else { return };
        self.sim.command(self.hosts[writer.at], Command::Casp { id: PROGRAM, command });
    }

    /// Begins a request.
    pub(crate) fn write(
        &mut self,
        draw: &mut Draw,
        request: u64,
        what: What,
        token: Option<Token>,
        proxy: bool,
    ) {
        let Some(writer) = &mut self.writer else { return };
        let mut id = [0x5e; 16];
        id[..4].copy_from_slice(&u32::try_from(request + 1).unwrap().to_be_bytes());
        let session = Session { id: SessionId(id), number: 0, age: 1, what, token, proxy, waits: false };
        writer.sessions.insert(request, session);
        self.send(draw, request, false);
    }

    /// Sends a request in its present form, which only prolongs what stands if it `refreshes`.
    fn send(&mut self, draw: &mut Draw, request: u64, refreshes: bool) {
        let (lifetime, now, at) = (draw.one(&[1, 3, 600, 600]), self.sim.now(), self.judge.present());
        let Some(writer) = &mut self.writer else { return };
        let (by, Some(session)) = (writer.at, writer.sessions.get_mut(&request)) else { return };
        session.number += 1;
        session.waits = !refreshes;
        let (what, token) = (session.what.clone(), session.token.clone());
        let until = now + Duration::from_secs(lifetime.into()) + ARRIVAL;
        if refreshes {
            self.judge.refresh(request, until);
        }
        self.judge.ask(request, Asked { by, what, token, at, until: Some(until) });
        self.transmit(request, lifetime);
    }

    /// Gives the messaging layer the message of a request.
    fn transmit(&mut self, request: u64, lifetime: u32) {
        let now = self.sim.now();
        let Some(Writer { at, sessions }) = &self.writer else { return };
        let Some(Session { id, number, age, what, token, proxy, .. }) = sessions.get(&request) else {
            return;
        };
        let network = &self.judge.network;
        let (own, outside) = (network.hosts[*at], network.beyond(*at));
        match (self.judge.protocol, what, flow(what)) {
            (Protocol::Casp, What::Passage(passage), Some(flow)) => {
                let number = u64::from(*number);
                let token = token.as_ref().map(|token| token.object(request * 100 + number, now));
                let create = Casp { passage, number, age: *age, lifetime, token: token.unwrap_or_default() };
                let data = create.octets().as_slice().into();
                let send = SendRequestOf { hold: true, ..SendRequestOf::new(Some(*id), flow, data) };
                self.client(casp::Command::Request(casp::RequestOf::Send(send)));
            }
            _ => {
                let token = token.as_ref().map(Token::attributes);
                let (session, proxy) = (*id, *proxy);
                let message = Natfw { what, session, number: *number, lifetime, proxy, token };
                let (data, mri) = (message.octets(), mri(what, own, outside));
                self.post(session, mri, None, &data);
            }
        }
    }

    /// Sends a message over GIST.
    fn post(
        &mut self,
        session: SessionId,
        mri: Mri,
        state: Option<signalbox_core::service::StateHandle>,
        data: &[u8],
    ) {
        let message = SendMessageOf {
            data: data.into(),
            handle: None,
            nslp: NslpId::NATFW,
            session,
            mri,
            state,
            sii: None,
            attributes: TransferAttributes::default(),
            timeout: None,
            ip_ttl: None,
            hops: None,
        };
        self.gist(ApplicationCommand::Request(RequestOf::SendMessage(message)));
    }

    /// Changes a request of the host, or ends one. False: it has no request.
    pub(crate) fn change(&mut self, draw: &mut Draw) -> bool {
        let Some(writer) = &mut self.writer else { return false };
        let all: Vec<u64> = writer.sessions.keys().copied().collect();
        if all.is_empty() {
            return false;
        }
        let request = draw.one(&all);
        self.past.extend(writer.sessions[&request].what.packet());
        if draw.percent(15) {
            self.release(draw, request);
            return true;
        }
        let network = &self.judge.network;
        let (hosts, own) = (&network.hosts, network.hosts[writer.at]);
        let session = writer.sessions.get_mut(&request).unwrap();
        let what = changed(draw, &session.what, hosts, own);
        if draw.percent(30) {
            session.token = Token::draw(draw, network);
        }
        let (before, after) = (flow(&session.what), flow(&what));
        // What a node takes for a refresh stands as before: with NATFW the same request, with CASP the same AGE. An application that gives
        // other packets the AGE of the former ones has still to be judged.
        let refreshes = match self.judge.protocol {
            Protocol::Natfw => what == session.what,
            Protocol::Casp => before == after && draw.percent(30),
        };
        session.what = what;
        session.age += u64::from(!refreshes);
        let id = session.id;
        self.send(draw, request, refreshes);
        if let Some(former) = before.filter(|_| before != after) {
            // A session of CASP has both flows until one is torn down.
            self.tear_down(id, former);
            self.keep(request, true);
        }
        true
    }

    /// Which form of a request stands: the last one, or those before. The host goes on with what stands.
    fn keep(&mut self, request: u64, last: bool) {
        if last {
            self.judge.replace(request);
        }
        let Some(forms) = self.judge.wanted.asked.get_mut(&request) else { return };
        if !last {
            forms.pop();
        }
        let session = self.writer.as_mut().and_then(|writer| writer.sessions.get_mut(&request));
        if let (Some(session), Some(asked)) = (session, forms.last()) {
            (session.what, session.token) = (asked.what.clone(), asked.token.clone());
        }
    }

    fn tear_down(&mut self, id: SessionId, flow: FlowId) {
        let nothing = SendRequestOf::new(Some(id), flow, [][..].into());
        let send = SendRequestOf { tear_down: true, data: None, ..nothing };
        self.client(casp::Command::Request(casp::RequestOf::Send(send)));
    }

    /// Ends a request.
    fn release(&mut self, draw: &mut Draw, request: u64) {
        let Some(session) = self.writer.as_mut().and_then(|writer| writer.sessions.get_mut(&request)) else {
            return;
        };
        session.number += 1;
        let (id, number) = (session.id, session.number);
        match flow(&session.what) {
            Some(flow) if draw.percent(50) => self.tear_down(id, flow),
            Some(flow) => {
                let data = messages::casp_release(number.into()).as_slice().into();
                let send = SendRequestOf::new(Some(id), flow, data);
                self.client(casp::Command::Request(casp::RequestOf::Send(send)));
            }
            None => self.transmit(request, 0),
        }
        self.judge.end(request);
        self.writer.as_mut().unwrap().sessions.remove(&request);
    }

    /// Takes the messages that the host received: answers to its requests, and requests of others, which it grants.
    pub(crate) fn receive(&mut self) {
        for event in self.sim.take_events() {
            let (session, answer) = match event.event {
                Event::Gist {
                    event: ApplicationEvent::Indication(IndicationOf::RecvMessage(message)),
                    ..
                } => {
                    let Some(answer) = messages::natfw_answer(message.data.as_slice()) else {
                        self.grant(&message);
                        continue;
                    };
                    (message.session, answer)
                }
                Event::Casp { event: casp::Event::Client(ClientEvent::Indication(arrived)), .. } => {
                    let casp::IndicationOf::Received(message) = arrived else { continue };
                    let verdict = casp::RequestOf::Verdict { id: message.id, verdict: VerdictOf::Consume };
                    self.client(casp::Command::Request(verdict));
                    let Some(answer) = messages::casp_answer(message.data.as_slice()) else { continue };
                    (message.session, answer)
                }
                Event::Natfw { event: natfw::NatfwEvent::Granted(granted), .. } => {
                    if let Some((address, Some(port))) = granted.external {
                        self.external.push((address.into(), port));
                    }
                    continue;
                }
                _ => continue,
            };
            let request = self.writer.as_mut().and_then(|writer| writer.answered(session, answer));
            // What a firewall of CASP has opened stands if a node behind it refuses.
            if let Some(request) =
                request.filter(|_| answer.granted || self.judge.protocol == Protocol::Natfw)
            {
                self.keep(request, answer.granted);
            }
        }
    }

    /// Answers a request of NATFW that ends at the host.
    fn grant(&mut self, received: &RecvMessageOf<signalbox_core::octets::Octets>) {
        if let Some(answer) = messages::natfw_granted(received.data.as_slice()) {
            self.post(received.session, received.mri.inverted(), received.state, &answer);
        }
    }
}
