//! Whether a packet that passes was allowed, by docs/natfw.md, docs/casp.md, the rules, and who asked for what. The judge looks at one
//! packet at a time, not at what a request covers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use signalbox_core::Time;
use signalbox_node::resources::config::Opening;

use crate::kernel::{Fate, Packet, Tuple};
use crate::policy::{OUTSIDE, Protocol};
use crate::rules::{Policy, Rule, Token, covers, valid};

/// What a host asked for and still wants.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) by: usize,
    pub(crate) what: What,
    pub(crate) token: Option<Token>,
    /// The number of the policy at that time.
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
        ports: [u16; 2],
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
            Self::Open { src, dst, protocol, ports: [src_port, dst_port], .. } => {
                Some(Tuple { src, dst, protocol, src_port, dst_port })
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

/// What the judge knows.
pub(crate) struct Judge {
    pub(crate) protocol: Protocol,
    pub(crate) addresses: Vec<IpAddr>,
    /// The firewall is the border of its network.
    pub(crate) edge: bool,
    /// The policies so far; the last one is in force.
    pub(crate) policies: Vec<Policy>,
    /// Each request in the forms that it may have: one, unless a change of it was not granted.
    pub(crate) asked: BTreeMap<u64, Vec<Asked>>,
    /// The reservations of receivers so far. What a sender opened while one stood outlives it.
    pub(crate) reserved: Vec<Asked>,
    /// Flows that began, as they arrived and as they left.
    pub(crate) flows: Vec<(Tuple, Tuple)>,
}

impl Judge {
    /// A request, or a form that one may have from now on.
    pub(crate) fn ask(&mut self, id: u64, asked: Asked) {
        if let What::Expose { .. } = asked.what {
            self.reserved.push(asked.clone());
        }
        self.asked.entry(id).or_default().push(asked);
    }

    /// A request that only prolongs what stands, or shortens it. It is not known which one of several forms stands, nor, with CASP, whether
    /// the request that had this AGE first was granted.
    pub(crate) fn refresh(&mut self, id: u64, until: Time) {
        let forms = self.asked.entry(id).or_default();
        let is_known = forms.len() == 1 && self.protocol == Protocol::Natfw;
        for asked in forms {
            asked.until = asked.until.filter(|_| !is_known).max(Some(until));
        }
    }

    /// Requests that nothing refreshed end.
    pub(crate) fn expire(&mut self, now: Time) {
        self.asked.values_mut().for_each(|forms| {
            forms.retain(|asked| asked.until.is_none_or(|until| until > now));
        });
    }

    /// The host with an address.
    fn host_at(&self, address: IpAddr) -> Option<usize> {
        self.addresses.iter().position(|one| *one == address)
    }

    /// Whether an address is on the same side as a host. A host may not ask for a host of the other side.
    fn is_beside(&self, address: IpAddr, host: usize) -> bool {
        (self.host_at(address) == Some(OUTSIDE)) == (host == OUTSIDE)
    }

    /// The direction of a flow; `None`: no rule opens such a flow.
    fn opening(&self, src: IpAddr, dst: IpAddr) -> Option<Opening> {
        let inside = |address| self.host_at(address).is_some_and(|at| at != OUTSIDE);
        match (inside(src), inside(dst)) {
            (true, false) => Some(Opening::Outward),
            (false, true) => Some(Opening::Inward),
            (true, true) => Some(Opening::Between),
            (false, false) => None,
        }
    }

    /// What the first rule of a policy about a packet says, in one of its forms; `None`: there is no such rule.
    fn ruled(
        &self,
        policy: &Policy,
        opening: Opening,
        (from, known, token): Asker<'_>,
        [arrived, left]: [&Tuple; 2],
    ) -> Option<bool> {
        let [of_asker, src, dst] =
            [from, arrived.src, left.dst].map(|address| policy.zone(self.host_at(address)));
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

    /// Whether a host inside asked for packets like this one, and is allowed to by a policy: that of now or, for a sender that asks,
    /// that of the time of the host's request.
    fn invites(&self, policy: &Policy, opening: Opening, forms: [&Tuple; 2], opened: bool) -> bool {
        let [arrived, left] = forms;
        let mut all = self.reserved.iter().filter(|_| opened).chain(self.asked.values().flatten());
        all.any(|Asked { by, what, token, at, .. }| {
            let What::Expose { protocol, port, second, sender } = what else { return false };
            let own = self.addresses[*by];
            let asker = (own, true, token);
            let allowed =
                |policy| self.ruled(policy, Opening::Reserve, asker, forms) != Some(false) && valid(token);
            // A sender that asks is invited by any reservation; the edge opens for the one that the receiver names.
            (opened || self.edge && *sender == Some(arrived.src))
                && (own, *protocol) == (left.dst, left.protocol)
                && (*port..=*port + u16::from(*second)).contains(&left.dst_port)
                && allowed(&self.policies[*at])
                && (opened
                    || allowed(policy)
                        && covers(token, forms)
                        && self.ruled(policy, opening, asker, forms).unwrap_or(opening == Opening::Inward))
        })
    }

    /// Whether the first packet of a flow may pass: all policies since the request allow it.
    fn allows(&self, arrived: &Tuple, left: &Tuple) -> bool {
        let Some(opening) = self.opening(arrived.src, left.dst) else { return false };
        let (forms, mut all) = ([arrived, left], self.asked.values().flatten());
        match self.protocol {
            Protocol::Natfw => {
                let now = self.policies.last().unwrap();
                all.any(|asked| self.opens(asked, opening, forms))
                    || opening != Opening::Outward && self.invites(now, opening, forms, false)
            }
            Protocol::Casp => {
                all.any(|asked| self.sender_opens(asked, opening, forms))
                    || self.asked.values().flatten().any(|asked| self.receiver_opens(asked, opening, forms))
            }
        }
    }

    /// Whether a sender that asks by NATFW opens the way of a packet.
    fn opens(&self, Asked { by, what, token, at, .. }: &Asked, opening: Opening, forms: [&Tuple; 2]) -> bool {
        let What::Open { src, dst, protocol, ports, second } = what else { return false };
        let ([arrived, _], own) = (forms, self.addresses[*by]);
        let mut up = [false, *second].map(u16::from).into_iter();
        (*src, *dst, *protocol) == (arrived.src, arrived.dst, arrived.protocol)
            && up.any(|up| ports.map(|port| port + up) == [arrived.src_port, arrived.dst_port])
            && self.is_beside(*src, *by)
            && valid(token)
            && covers(token, forms)
            && self.policies[*at..].iter().all(|policy| {
                self.ruled(policy, opening, (own, false, token), forms).unwrap_or_else(|| match opening {
                    Opening::Outward => own == *src,
                    Opening::Inward => self.invites(policy, opening, forms, true),
                    _ => false,
                })
            })
    }

    /// Whether a host is ready to receive what senders ask for by CASP.
    fn accepts(&self, host: IpAddr) -> bool {
        let mut all = self.asked.values().flatten();
        all.any(|asked| matches!(asked.what, What::Accept) && self.addresses[asked.by] == host)
    }

    /// Whether the sender of a flow opens the way of a packet by CASP: by its CREATE, or towards the outside by its PATH. Only a CREATE
    /// has a token.
    fn sender_opens(&self, asked: &Asked, opening: Opening, forms: [&Tuple; 2]) -> bool {
        let Asked { by, what: What::Passage(passage), token, at, .. } = asked else { return false };
        let ([arrived, left], own) = (forms, self.addresses[*by]);
        let none = &None;
        let (may, token) = if passage.by_receiver {
            (opening == Opening::Outward && self.accepts(left.dst), none)
        } else {
            (valid(token) && covers(token, forms), token)
        };
        let default = opening == Opening::Outward && own == passage.src;
        may && passage.along
            && passage.has(arrived)
            && self.is_beside(passage.src, *by)
            && self.policies[*at..]
                .iter()
                .all(|policy| self.ruled(policy, opening, (own, false, token), forms).unwrap_or(default))
    }

    /// Whether the receiver of a flow opens the way of a packet by CASP: by the CREATE that answers PATH, or at the border for a host
    /// inside that wants packets against the flow that it names.
    fn receiver_opens(&self, asked: &Asked, opening: Opening, forms: [&Tuple; 2]) -> bool {
        let Asked { by, what: What::Passage(passage), at, .. } = asked else { return false };
        let ([arrived, _], own) = (forms, self.addresses[*by]);
        let back =
            passage.back && self.edge && passage.has(&arrived.answer()) && self.is_beside(arrived.dst, *by);
        let answered = passage.by_receiver && passage.has(arrived) && self.accepts(arrived.dst);
        let receiver = if back { own } else { arrived.dst };
        let ruled = |policy, opening| self.ruled(policy, opening, (receiver, true, &None), forms);
        (back || answered)
            && self.policies[*at..].iter().all(|policy| match opening {
                Opening::Inward => {
                    ruled(policy, Opening::Reserve).unwrap_or(receiver == arrived.dst)
                        && ruled(policy, opening).unwrap_or(true)
                }
                Opening::Between => ruled(policy, opening).unwrap_or(false),
                _ => false,
            })
    }

    /// Compares what became of a packet with the policy.
    pub(crate) fn judge(&mut self, packet: &Packet, fate: &Fate) -> Result<(), String> {
        let Fate::Passed(left) = fate else { return Ok(()) };
        let (arrived, left) = (packet.tuple(), left.tuple());
        let answers = self.flows.iter().find(|(_, other)| other.answer() == arrived);
        let answers = answers.filter(|(first, _)| first.answer() == left);
        if answers.is_some_and(|(first, left)| self.allows(first, left)) {
            return Ok(());
        }
        if self.allows(&arrived, &left) {
            self.flows.push((arrived, left));
            return Ok(());
        }
        let (asked, rules) = (&self.asked, &self.policies);
        Err(format!("{arrived:?} leaves as {left:?}\nasked: {asked:#?}\nrules: {rules:#?}"))
    }
}
