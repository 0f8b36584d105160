//! Whether a packet that passes a firewall was allowed there, by docs/natfw.md, docs/casp.md, the rules of that firewall, and who asked
//! for what. The judge looks at one packet at a time, not at what a request covers. Of two firewalls, each one is judged by what it knows:
//! the node from which it has the request, and the packet as it comes there.

use std::collections::BTreeMap;
use std::net::IpAddr;

use signalbox_core::Time;
use signalbox_node::resources::config::Opening;

use crate::kernel::Tuple;
use crate::network::Network;
use crate::policy::Protocol;
use crate::rules::{Policy, Rule, Token, covers, valid};

/// What a host asked for and still wants.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) by: usize,
    pub(crate) what: What,
    pub(crate) token: Option<Token>,
    /// The number of the policies at that time.
    pub(crate) at: usize,
    /// When it ends without a further request; `None`: its host refreshes it.
    pub(crate) until: Option<Time>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    Open {
        /// Sometimes that of another host.
        src: IpAddr,
        dst: IpAddr,
        protocol: u8,
        /// `None`: any source port.
        src_port: Option<u16>,
        dst_port: u16,
        second: bool,
    },
    /// To be reached at a port, by one sender if the edge opens for it.
    Expose { protocol: u8, port: u16, second: bool, sender: Option<IpAddr> },
    /// Packets of a flow, by CASP.
    Passage(Passage),
    /// To receive what senders ask for by CASP.
    Accept,
}

/// A request of CASP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Passage {
    /// Sometimes that of another host.
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    /// `None`: any.
    pub(crate) protocol: Option<u8>,
    pub(crate) src_port: Option<u16>,
    pub(crate) dst_port: Option<u16>,
    /// The number of further ports after the destination port.
    pub(crate) further: u16,
    /// For the packets of the flow, and for those against it.
    pub(crate) along: bool,
    pub(crate) back: bool,
    /// The receiver opens, if it accepts the packets.
    pub(crate) by_receiver: bool,
}

impl What {
    /// Source and destination of the packets that it names.
    pub(crate) const fn ends(&self) -> Option<[IpAddr; 2]> {
        match *self {
            Self::Open { src, dst, .. } | Self::Passage(Passage { src, dst, .. }) => Some([src, dst]),
            Self::Expose { .. } | Self::Accept => None,
        }
    }

    /// A packet that it is for.
    pub(crate) fn packet(&self) -> Option<Tuple> {
        match *self {
            Self::Open { src, dst, protocol, src_port, dst_port, .. } => {
                Some(Tuple { src, dst, protocol, src_port: src_port?, dst_port })
            }
            Self::Passage(Passage { src, dst, protocol, src_port, dst_port, along, .. }) => {
                let (src_port, dst_port) = (src_port?, dst_port?);
                let packet = Tuple { src, dst, protocol: protocol?, src_port, dst_port };
                Some(if along { packet } else { packet.answer() })
            }
            Self::Expose { .. } | Self::Accept => None,
        }
    }
}

impl Passage {
    /// Whether a packet is one of the flow.
    fn has(&self, packet: &Tuple) -> bool {
        (self.src, self.dst) == (packet.src, packet.dst)
            && self.protocol.is_none_or(|protocol| protocol == packet.protocol)
            && self.src_port.is_none_or(|port| port == packet.src_port)
            && self.dst_port.is_none_or(|port| (port..=port + self.further).contains(&packet.dst_port))
    }
}

/// Who asks for packets, with the token that counts, and whether it is known by which interface they come in.
type Asker<'a> = (IpAddr, bool, &'a Option<Token>);

/// A packet that passes a firewall.
#[derive(Debug, Clone)]
pub(crate) struct Crossing {
    /// The firewall.
    pub(crate) at: usize,
    /// As its host sent it.
    pub(crate) first: Tuple,
    /// As it comes to the firewall, and as it leaves.
    pub(crate) arrived: Tuple,
    pub(crate) left: Tuple,
    /// As a host gets it; `None`: it does not come so far.
    pub(crate) last: Option<Tuple>,
}

/// What hosts want.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    /// Each request in the forms that it may have: one, unless a change of it was not granted.
    pub(crate) asked: BTreeMap<u64, Vec<Asked>>,
    /// The reservations of receivers so far. What a sender opened while one stood outlives it.
    reserved: Vec<Asked>,
    ended: Vec<Ended>,
}

/// A former request. Its host ended it, but no message tells that to the firewalls in `stands`: there it may stand for its lifetime.
#[derive(Debug, Clone)]
struct Ended {
    asked: Asked,
    stands: Vec<usize>,
}

/// What a daemon that crashed left open.
struct Former {
    wanted: Wanted,
    /// The number of the policies until then.
    policies: usize,
    since: Since,
    /// The time when the next daemon closes the pinholes that no host asked for again.
    until: Time,
}

/// Since when requests count at a firewall: those before may come again at any time since, and are judged then.
#[derive(Debug, Clone, Copy, Default)]
struct Since {
    /// All.
    all: usize,
    /// Those that a stop does not leave to the next daemon: of CASP, and with a token.
    left_out: usize,
    /// Those that a policy refused when the daemon started may come again later: a stop ends what they had, and their hosts do not
    /// learn of it.
    again: usize,
    /// When the policy or the daemon changed last. Requests of before may have no session since.
    changed: usize,
}

/// Why a packet may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// A host asks for it.
    Request,
    /// A crash left it open.
    Left,
}

/// What the judge knows.
pub(crate) struct Judge {
    pub(crate) protocol: Protocol,
    pub(crate) network: Network,
    /// The policies so far, one for each firewall; the last ones are in force.
    pub(crate) policies: Vec<Vec<Policy>>,
    pub(crate) wanted: Wanted,
    /// What was left at each firewall by daemons before the present one.
    former: Vec<Vec<Former>>,
    since: Vec<Since>,
    /// The packets that began flows at each firewall.
    begun: Vec<Vec<Crossing>>,
    /// Flows that began, as their hosts sent and got them.
    pub(crate) flows: Vec<(Tuple, Tuple)>,
}

impl Judge {
    pub(crate) fn new(protocol: Protocol, network: Network, policies: Vec<Policy>) -> Self {
        let places = network.places.len();
        Self {
            protocol,
            network,
            policies: vec![policies],
            wanted: Wanted::default(),
            former: (0..places).map(|_| Vec::new()).collect(),
            since: vec![Since::default(); places],
            begun: vec![Vec::new(); places],
            flows: Vec::new(),
        }
    }

    /// The number of the policies in force.
    pub(crate) const fn present(&self) -> usize {
        self.policies.len() - 1
    }

    /// Another policy is in force at a firewall from now on.
    pub(crate) fn changed(&mut self, at: usize, policy: Policy) {
        let mut policies = self.policies.last().unwrap().clone();
        policies[at] = policy;
        self.policies.push(policies);
        self.since[at].changed = self.present();
    }

    /// A daemon stops, and gives its sessions to the next one.
    pub(crate) fn stopped(&mut self, at: usize, policy: Policy) {
        self.changed(at, policy);
        self.since[at].left_out = self.present();
        self.since[at].again = self.present();
        // What was left by a crash ends.
        self.former[at].clear();
    }

    /// A daemon crashes. What is open stands until this time.
    pub(crate) fn crashed(&mut self, at: usize, policy: Policy, until: Time) {
        let wanted = self.wanted.clone();
        self.former[at].iter_mut().for_each(|former| former.until = until);
        let since = self.since[at];
        self.former[at].push(Former { wanted, policies: self.policies.len(), since, until });
        self.changed(at, policy);
        let present = self.present();
        self.since[at] = Since { all: present, left_out: present, again: present, changed: present };
    }

    /// A request, or a form that one may have from now on.
    pub(crate) fn ask(&mut self, id: u64, asked: Asked) {
        if let What::Expose { .. } = asked.what {
            self.wanted.reserved.push(asked.clone());
        }
        self.wanted.asked.entry(id).or_default().push(asked);
    }

    /// A host ends a request. The result is the forms that it had.
    pub(crate) fn end(&mut self, id: u64) -> Vec<Asked> {
        let forms = self.wanted.asked.remove(&id).unwrap_or_default();
        let ended: Vec<_> = forms.iter().map(|asked| self.ended(asked.clone(), None)).collect();
        self.wanted.ended.extend(ended);
        forms
    }

    /// The last form of a request takes the place of the others.
    pub(crate) fn replace(&mut self, id: u64) {
        let Some(forms) = self.wanted.asked.get_mut(&id) else { return };
        let Some(last) = forms.pop() else { return };
        let former = std::mem::replace(forms, vec![last.clone()]);
        let next = self.network.way(last.by, last.what.ends());
        let ended: Vec<_> = former.into_iter().map(|asked| self.ended(asked, Some(&next))).collect();
        self.wanted.ended.extend(ended);
    }

    /// A form of a request ends. `next`: where the request goes in its next form.
    fn ended(&self, asked: Asked, next: Option<&[usize]>) -> Ended {
        let natfw = self.protocol == Protocol::Natfw;
        // A daemon that does not know the request does not send its end on. The daemon before it had the request, or with NATFW
        // another policy ended it, and only a NOTIFY over a messaging association says so.
        let forgot = |since: &Since| asked.at < if natfw { since.changed } else { since.left_out };
        let is_missed = |at: usize| match next.filter(|_| natfw) {
            // With CASP, the former flow is ended where it was.
            Some(next) => !next.contains(&at),
            None => (0..).zip(&self.since).any(|(other, since)| other != at && forgot(since)),
        };
        let stands = (0..self.since.len()).filter(|at| is_missed(*at)).collect();
        Ended { asked, stands }
    }

    /// A request that only prolongs what stands, or shortens it. It is not known which one of several forms stands, nor, with CASP, whether
    /// the request that had this AGE first was granted.
    pub(crate) fn refresh(&mut self, id: u64, until: Time) {
        let forms = self.wanted.asked.entry(id).or_default();
        // The first of two firewalls may refuse it, and then it does not come to the other one.
        let is_known = forms.len() == 1 && self.protocol == Protocol::Natfw && self.since.len() == 1;
        for asked in forms {
            asked.until = asked.until.filter(|_| !is_known).max(Some(until));
        }
    }

    /// Requests that nothing refreshed end.
    pub(crate) fn expire(&mut self, now: Time) {
        self.wanted.asked.values_mut().for_each(|forms| {
            forms.retain(|asked| asked.until.is_none_or(|until| until > now));
        });
        self.wanted.ended.retain(|one| one.asked.until.is_none_or(|until| until > now));
        self.former.iter_mut().for_each(|all| all.retain(|former| former.until > now));
    }

    /// By what the first packet of a flow may pass a firewall; `None`: by nothing.
    fn allows(&self, crossing: &Crossing) -> Option<By> {
        let look = |wanted, policies, since| Look { judge: self, wanted, policies, since, crossing };
        if look(&self.wanted, &self.policies[..], self.since[crossing.at]).allows() {
            return Some(By::Request);
        }
        let mut former = self.former[crossing.at].iter();
        let is_left = former.any(|one| look(&one.wanted, &self.policies[..one.policies], one.since).allows());
        is_left.then_some(By::Left)
    }

    /// Whether the daemon of a firewall has ended before.
    pub(crate) fn has_ended(&self, at: usize) -> bool {
        self.since[at].left_out > 0
    }

    /// Compares a packet that passed a firewall with the policy there.
    pub(crate) fn judge(&mut self, crossing: Crossing) -> Result<By, String> {
        let Crossing { at, arrived, left, .. } = crossing;
        let mut begun = self.begun[at].iter();
        let answers = begun.find(|first| (first.left.answer(), first.arrived.answer()) == (arrived, left));
        if let Some(by) = answers.and_then(|first| self.allows(first)) {
            return Ok(by);
        }
        if let Some(by) = self.allows(&crossing) {
            self.begun[at].push(crossing);
            return Ok(by);
        }
        let (asked, rules) = (&self.wanted.asked, &self.policies);
        let network = &self.network;
        Err(format!("{crossing:#?}\nasked: {asked:#?}\nrules: {rules:#?}\n{network:#?}"))
    }
}

/// One packet at one firewall, by what hosts want and by the policies up to now, or up to a crash.
struct Look<'a> {
    judge: &'a Judge,
    wanted: &'a Wanted,
    policies: &'a [Vec<Policy>],
    since: Since,
    crossing: &'a Crossing,
}

impl Look<'_> {
    fn all(&self) -> impl Iterator<Item = &Asked> {
        let stays = |one: &&Ended| {
            one.stands.contains(&self.crossing.at) && one.asked.at >= self.since_when(&one.asked)
        };
        let ended = self.wanted.ended.iter().filter(stays).map(|one| &one.asked);
        self.wanted.asked.values().flatten().chain(ended)
    }

    /// The number of the policies since which requests of this kind are known here.
    fn since_when(&self, asked: &Asked) -> usize {
        let Since { all, left_out, .. } = self.since;
        let is_left_out = self.judge.protocol == Protocol::Casp || asked.token.is_some();
        if is_left_out { all.max(left_out) } else { all }
    }

    /// Whether the first packet of a flow may pass: all policies since the request allow it.
    fn allows(&self) -> bool {
        let Some(opening) = self.opening() else { return false };
        match self.judge.protocol {
            Protocol::Natfw => {
                self.all().any(|asked| self.opens(asked, opening))
                    || opening != Opening::Outward && self.invites(self.present(), opening, false)
                    || self.all().any(|asked| self.edge_opens(asked, opening))
            }
            Protocol::Casp => self.all().any(|asked| {
                self.sender_opens(asked, opening)
                    || self.receiver_opens(asked, opening)
                    || self.border_opens(asked, opening)
            }),
        }
    }

    /// A policy of this firewall.
    fn policy(&self, number: usize) -> &Policy {
        &self.policies[number][self.crossing.at]
    }

    fn present(&self) -> &Policy {
        self.policy(self.policies.len() - 1)
    }

    /// The numbers of the policies since which a request may stand.
    fn starts(&self, asked: &Asked) -> impl Iterator<Item = usize> + use<> {
        let since = self.since_when(asked);
        let known = asked.at >= since;
        let again = if known { self.since.again } else { since };
        let later = if again > asked.at { again..self.policies.len() } else { 0..0 };
        known.then_some(asked.at).into_iter().chain(later)
    }

    /// Whether a request stands: all policies since it came allow it.
    fn stands(&self, asked: &Asked, allowed: impl Fn(&Policy) -> bool) -> bool {
        self.starts(asked).any(|from| (from..self.policies.len()).all(|number| allowed(self.policy(number))))
    }

    /// Whether an address is on the same side as the node that asks. It may not ask for a host of the other side.
    fn is_beside(&self, address: IpAddr, neighbor: IpAddr) -> bool {
        let Judge { network, .. } = self.judge;
        let [one, other] = [address, neighbor].map(|one| network.interface(self.crossing.at, one));
        network.is_outside(self.crossing.at, one) == network.is_outside(self.crossing.at, other)
    }

    /// The direction of a flow; `None`: no rule opens such a flow.
    fn opening(&self) -> Option<Opening> {
        let Crossing { at, arrived, left, .. } = *self.crossing;
        let network = &self.judge.network;
        let [from, to] = [arrived.src, left.dst].map(|address| network.interface(at, address));
        let inside = |interface: Option<usize>| interface.is_some() && !network.is_outside(at, interface);
        match (inside(from), inside(to)) {
            (true, false) => Some(Opening::Outward),
            (false, true) => Some(Opening::Inward),
            (true, true) => Some(Opening::Between),
            (false, false) => None,
        }
    }

    /// What the first rule of a policy about the packet says, in one of its forms; `None`: there is no such rule.
    fn ruled(&self, policy: &Policy, opening: Opening, (from, known, token): Asker<'_>) -> Option<bool> {
        let Crossing { at, ref arrived, ref left, .. } = *self.crossing;
        let zone = |address| policy.zone(self.judge.network.interface(at, address));
        let [of_asker, src, dst] = [from, arrived.src, left.dst].map(zone);
        // The zone of another host is not that of the one that asks for it.
        let known = opening == Opening::Reserve || known || src == of_asker;
        let zones = [Some(src).filter(|_| known), Some(dst)];
        let about = |rule: &&Rule| {
            let mut forms = [arrived, left].into_iter();
            rule.is_between(zones)
                && (!rule.token || token.is_some())
                && forms.any(|form| rule.is_about(opening, from, form))
        };
        policy.rules.iter().find(about).map(|rule| rule.allows)
    }

    /// Whether a token is for the packet.
    fn covers(&self, token: &Option<Token>) -> bool {
        valid(token) && covers(token, [&self.crossing.arrived, &self.crossing.left])
    }

    /// Whether a host inside asked for packets like this one, and is allowed to by a policy: that of now or, for a sender that asks,
    /// that of the time of the host's request.
    fn invites(&self, policy: &Policy, opening: Opening, opened: bool) -> bool {
        let Crossing { at, arrived, left, last, .. } = *self.crossing;
        let network = &self.judge.network;
        let mut all = self.wanted.reserved.iter().filter(|_| opened).chain(self.all());
        all.any(|asked| {
            let Asked { by, what: What::Expose { protocol, port, second, sender }, token, .. } = asked else {
                return false;
            };
            let own = network.neighbor(at, *by);
            let asker = (own, true, token);
            let reserves = |policy| {
                valid(token) && self.ruled(policy, Opening::Reserve, asker).unwrap_or(own == left.dst)
            };
            // Where the packet comes no further, the host is not known to which a NAT leads.
            let is_for_host = last.is_none_or(|last| {
                last.dst == network.hosts[*by]
                    && (*port..=*port + u16::from(*second)).contains(&last.dst_port)
            });
            let way = [own, left.dst].map(|address| network.interface(at, address));
            // A sender that asks is invited by any reservation; the edge opens for the one that the receiver names.
            (opened || network.border_of(*by) == Some(at) && *sender == Some(arrived.src))
                && *protocol == left.protocol
                && is_for_host
                && way[0] == way[1]
                && network.comes_from_inside(at, *by)
                && std::iter::once(asked.at)
                    .chain(self.starts(asked))
                    .any(|number| reserves(self.policy(number)))
                && (opened
                    || reserves(policy)
                        && self.covers(token)
                        && self.ruled(policy, opening, asker).unwrap_or(opening == Opening::Inward))
        })
    }

    /// Whether the policies let the node that asks for the packets of a sender open their way.
    fn sender_may(&self, asked: &Asked, opening: Opening, asker: Asker<'_>) -> bool {
        let (own, ..) = asker;
        self.stands(asked, |policy| {
            self.ruled(policy, opening, asker).unwrap_or_else(|| match opening {
                Opening::Outward => own == self.crossing.arrived.src,
                Opening::Inward => {
                    self.judge.protocol == Protocol::Natfw && self.invites(policy, opening, true)
                }
                _ => false,
            })
        })
    }

    /// Whether a sender that asks by NATFW opens the way of the packet.
    fn opens(&self, asked: &Asked, opening: Opening) -> bool {
        let Asked { by, what: What::Open { src, dst, protocol, src_port, dst_port, second }, token, .. } =
            asked
        else {
            return false;
        };
        let Crossing { at, first, arrived, .. } = *self.crossing;
        let own = self.judge.network.neighbor(at, *by);
        let mut up = [false, *second].map(u16::from).into_iter();
        (*src, *dst, *protocol) == (first.src, first.dst, first.protocol)
            && up.any(|up| {
                src_port.is_none_or(|port| port + up == first.src_port) && dst_port + up == first.dst_port
            })
            && self.is_beside(arrived.src, own)
            && self.covers(token)
            && self.sender_may(asked, opening, (own, false, token))
    }

    /// Whether an edge that opens for a host further inside asks for the packet here, in the place of its sender.
    fn edge_opens(&self, asked: &Asked, opening: Opening) -> bool {
        let Asked { by, what: What::Expose { protocol, port, second, sender: Some(sender) }, .. } = asked
        else {
            return false;
        };
        let Crossing { at, arrived, last, .. } = *self.crossing;
        let network = &self.judge.network;
        let is_for_host = last.is_none_or(|last| {
            last.dst == network.hosts[*by] && (*port..=*port + u16::from(*second)).contains(&last.dst_port)
        });
        network.border_of(*by).is_some_and(|edge| edge != at)
            && (*sender, *protocol) == (arrived.src, arrived.protocol)
            && is_for_host
            && self.sender_may(asked, opening, (network.between[1 - at], false, &None))
    }

    /// Whether a host is ready to receive what senders ask for by CASP.
    fn accepts(&self, host: IpAddr) -> bool {
        self.all()
            .any(|asked| matches!(asked.what, What::Accept) && self.judge.network.hosts[asked.by] == host)
    }

    /// Whether the sender of a flow opens the way of the packet by CASP: by its CREATE, or towards the outside by its PATH. Only a CREATE
    /// has a token, which the first firewall takes out.
    fn sender_opens(&self, asked: &Asked, opening: Opening) -> bool {
        let Asked { by, what: What::Passage(passage), token, .. } = asked else { return false };
        let Crossing { at, first, arrived, .. } = *self.crossing;
        let own = self.judge.network.neighbor(at, *by);
        let is_first = self.judge.network.place_of(*by) == at;
        let none = &None;
        let (may, token) = if passage.by_receiver {
            (opening == Opening::Outward && self.accepts(first.dst), none)
        } else if is_first {
            (self.covers(token), token)
        } else {
            (valid(token), none)
        };
        may && passage.along
            && passage.has(&first)
            && self.is_beside(arrived.src, own)
            && self.sender_may(asked, opening, (own, false, token))
    }

    /// Whether a receiver may open the way of the packet by CASP.
    fn receiver_may(&self, asked: &Asked, opening: Opening, receiver: IpAddr) -> bool {
        let ruled = |policy: &Policy, opening| self.ruled(policy, opening, (receiver, true, &None));
        self.stands(asked, |policy| match opening {
            Opening::Inward => {
                ruled(policy, Opening::Reserve).unwrap_or(receiver == self.crossing.left.dst)
                    && ruled(policy, opening).unwrap_or(true)
            }
            Opening::Between => ruled(policy, opening).unwrap_or(false),
            _ => false,
        })
    }

    /// Whether the receiver of a flow opens the way of the packet by CASP: by the CREATE that answers PATH.
    fn receiver_opens(&self, asked: &Asked, opening: Opening) -> bool {
        let Asked { what: What::Passage(passage), .. } = asked else { return false };
        let Crossing { at, first, .. } = *self.crossing;
        let network = &self.judge.network;
        let Some(host) = network.host_at(first.dst) else { return false };
        passage.by_receiver
            && passage.has(&first)
            && self.accepts(first.dst)
            && self.receiver_may(asked, opening, network.neighbor(at, host))
    }

    /// Whether a host inside opens the way of packets against the flow that it names by CASP: at the border of its network, and before.
    fn border_opens(&self, asked: &Asked, opening: Opening) -> bool {
        let Asked { by, what: What::Passage(passage), .. } = asked else { return false };
        let Crossing { at, left, last, .. } = *self.crossing;
        let network = &self.judge.network;
        let mut flow = last.unwrap_or(left).answer();
        if last.is_none() && network.is_of_nat(left.dst) {
            // It is not known to which host the NAT leads.
            (flow.src, flow.src_port) = (passage.src, passage.src_port.unwrap_or(flow.src_port));
        }
        let Some(border) = network.border_of(*by).filter(|_| passage.back && passage.has(&flow)) else {
            return false;
        };
        let own = network.neighbor(at, *by);
        if border == at || passage.along && network.place_of(*by) == at {
            return self.is_beside(left.dst, own) && self.receiver_may(asked, opening, own);
        }
        // TRIGGER leaves nothing before the border, which asks in the place of the sender.
        !passage.along
            && network.place_of(*by) == at
            && self.sender_may(asked, opening, (network.between[1 - at], false, &None))
    }
}
