//! The state of one session with one flow.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::pinhole::{Endpoint, Pinhole};
use signalbox_core::traffic::FlowFilter;
use signalbox_core::wheel::{Link, Timed};
use signalbox_core::{IfIndex, SessionId, Time};
use signalbox_resources::Passage;

use super::Way;
use super::bind::Binding;
use super::terms::NatfwTerms;
use crate::clients::shared::Hop;
use crate::engine::OwnedArrival;
use crate::wire::FlowId;
use crate::wire::natfw::{NatfwFilter, NatfwStatus, NatfwType};

/// Requests leave so far apart at least, also when the rules are about to expire: nodes of the path choose how long rules live.
pub(super) const LEAST_WAIT: Duration = Duration::from_secs(1);

/// Who sent a request, as far as it is proved.
#[derive(Debug, Clone)]
pub(super) struct Asker {
    pub(super) hop: Hop,
    /// It is on the inner side of the firewall.
    pub(super) inside: bool,
    /// The interface of the route to it.
    pub(super) at: IfIndex,
}

impl Asker {
    pub(super) fn of(arrival: &OwnedArrival, inside: bool, at: IfIndex) -> Self {
        Self { hop: Hop::of(arrival), inside, at }
    }

    /// Whether a message comes from the same node: the same key where one is proved, else the same address with no weaker proof.
    pub(super) fn sent(&self, arrival: &OwnedArrival) -> bool {
        let now = Hop::of(arrival);
        match (&self.hop.identity, &now.identity) {
            (Some(one), Some(other)) => one.key == other.key,
            (None, None) => self.hop.address == now.address && self.hop.proof <= now.proof,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

/// The last request in one direction that was accepted, or that prolongs what was.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) asker: Asker,
    /// Its number. What this node reports later names it.
    pub(super) number: u64,
}

/// One passage of a firewall.
#[derive(Debug)]
pub(super) struct Rule {
    /// Key of the pinhole in the kernel.
    pub(super) key: u64,
    pub(super) packets: FlowFilter,
    /// Their source after translation.
    pub(super) source: Option<Endpoint>,
    /// What the policy allowed: the packets, and, where a receiver inside asks for them without their sender, also that they come in.
    pub(super) passages: Vec<Passage>,
}

impl Rule {
    /// What the kernel does.
    pub(super) fn pinhole(&self) -> Pinhole {
        Pinhole { source: self.source, ..Pinhole::allow(self.packets) }
    }
}

/// Rules that the kernel is asked for, and the CREATE that waits for it.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) job: OwnedArrival,
    pub(super) asked: Asked,
    /// AGE of the CREATE.
    pub(super) age: u64,
    pub(super) way: Way,
    pub(super) rules: Vec<Rule>,
    /// When they begin, if not now.
    pub(super) start: Option<Time>,
    pub(super) lifetime: Duration,
    /// Keys of the pinholes about which the kernel has not answered.
    pub(super) missing: Vec<u64>,
    pub(super) failed: Option<NatfwStatus>,
}

/// A request whose RESPONSE has not passed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reply {
    pub(super) msg_id: u64,
    pub(super) kind: NatfwType,
    /// Direction of the request.
    pub(super) reverse: bool,
    pub(super) due: Time,
}

/// What a CREATE opened at this node.
#[derive(Debug, Default)]
pub(super) enum Opened {
    /// No CREATE was accepted, or its rules have ended.
    #[default]
    Nothing,
    /// A CREATE was accepted that needs no rules here: this node is its end, or no firewall.
    Elsewhere {
        /// Its AGE.
        age: u64,
    },
    /// There are rules that begin later. The kernel does not have them.
    Planned { age: u64, rules: Vec<Rule>, start: Time },
    /// The kernel has the rules.
    Active { age: u64, rules: Vec<Rule> },
}

impl Opened {
    /// AGE of the CREATE that was accepted.
    pub(super) const fn age(&self) -> Option<u64> {
        match self {
            Self::Nothing => None,
            Self::Elsewhere { age } | Self::Planned { age, .. } | Self::Active { age, .. } => Some(*age),
        }
    }

    /// A CREATE was accepted. Rules stay as they are.
    pub(super) fn accept(&mut self, new: u64) {
        match self {
            Self::Nothing => *self = Self::Elsewhere { age: new },
            Self::Elsewhere { age } | Self::Planned { age, .. } | Self::Active { age, .. } => *age = new,
        }
    }

    pub(super) fn rules(&self) -> &[Rule] {
        match self {
            Self::Nothing | Self::Elsewhere { .. } => &[],
            Self::Planned { rules, .. } | Self::Active { rules, .. } => rules,
        }
    }

    pub(super) fn rules_mut(&mut self) -> &mut [Rule] {
        match self {
            Self::Nothing | Self::Elsewhere { .. } => &mut [],
            Self::Planned { rules, .. } | Self::Active { rules, .. } => rules,
        }
    }

    pub(super) fn into_rules(self) -> Vec<Rule> {
        match self {
            Self::Nothing | Self::Elsewhere { .. } => Vec::new(),
            Self::Planned { rules, .. } | Self::Active { rules, .. } => rules,
        }
    }

    /// When the rules begin, if that is later.
    pub(super) const fn start(&self) -> Option<Time> {
        match self {
            Self::Planned { start, .. } => Some(*start),
            Self::Nothing | Self::Elsewhere { .. } | Self::Active { .. } => None,
        }
    }

    /// The rules that the kernel has.
    pub(super) fn active(&self) -> &[Rule] {
        match self {
            Self::Active { rules, .. } => rules,
            Self::Nothing | Self::Elsewhere { .. } | Self::Planned { .. } => &[],
        }
    }

    /// Whether the time of planned rules has come: from now on they are for the kernel.
    pub(super) fn begin(&mut self, now: Time) -> bool {
        match self {
            Self::Planned { age, rules, start } if *start <= now => {
                *self = Self::Active { age: *age, rules: core::mem::take(rules) };
                true
            }
            Self::Nothing | Self::Elsewhere { .. } | Self::Planned { .. } | Self::Active { .. } => false,
        }
    }
}

/// How the packets of a record go, compared with the request that asked for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// They go along the flow of the request.
    Along,
    /// They go against the flow of the request.
    Against,
    /// They go against the flow of a TRIGGER: this node sends the CREATE for them.
    Triggered,
}

impl Turn {
    pub(super) const fn is_back(self) -> bool {
        matches!(self, Self::Against | Self::Triggered)
    }
}

/// How this node answered a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// It sent the request on, or has nothing to answer.
    Unsent,
    Done,
    Refused(NatfwStatus),
}

/// The last request of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Last {
    pub(super) number: u64,
    pub(super) reverse: bool,
    pub(super) answer: Answer,
}

/// The last RESPONSE that passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Passed {
    /// Number of the request.
    pub(super) number: u64,
    /// It reported removed rules.
    pub(super) withdrawn: bool,
    /// A hash of the filters in it: they can be many.
    pub(super) filters: u64,
}

/// Stages of a request of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The first request is under way.
    Opening,
    /// The firewalls are open.
    Standing {
        /// When the rules of the path expire without a refresh.
        until: Time,
    },
    /// The firewalls are open, and the last refresh failed, or the request has moved to another flow.
    Failing { until: Time },
    /// The first request failed.
    Failed,
    /// RELEASE is under way.
    Closing,
    /// RELEASE is under way because a node removed its rules: the user has the last event.
    Lost,
}

impl Stage {
    /// When the rules of the path expire without a refresh; `None`: the firewalls are not open.
    pub(super) const fn stands_until(self) -> Option<Time> {
        match self {
            Self::Standing { until } | Self::Failing { until } => Some(until),
            Self::Opening | Self::Failed | Self::Closing | Self::Lost => None,
        }
    }

    pub(super) const fn is_standing(self) -> bool {
        self.stands_until().is_some()
    }

    /// How long this node waits before it sends a request again: `wait`, but at most half of the time until the rules of the path expire,
    /// so that what is lost is repeated before that.
    pub(super) fn in_time(self, now: Time, wait: Duration) -> Duration {
        self.stands_until().map_or(wait, |until| wait.min((until.since(now) / 2).max(LEAST_WAIT)))
    }

    pub(super) const fn is_closing(self) -> bool {
        matches!(self, Self::Closing | Self::Lost)
    }
}

/// The identifier of a session of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    /// The messaging layer draws it.
    Drawn,
    /// The request asks for this one, which the path may know.
    Wished(SessionId),
    /// The messaging layer has named the session.
    Named {
        session: SessionId,
        /// The request asked for one.
        wished: bool,
    },
}

impl Name {
    /// The identifier that the messaging layer gave.
    pub(super) const fn session(self) -> Option<SessionId> {
        match self {
            Self::Named { session, .. } => Some(session),
            Self::Drawn | Self::Wished(_) => None,
        }
    }

    /// The identifier that it gave, or that the request asks for.
    pub(super) const fn known(self) -> Option<SessionId> {
        match self {
            Self::Named { session, .. } | Self::Wished(session) => Some(session),
            Self::Drawn => None,
        }
    }

    pub(super) const fn is_wished(self) -> bool {
        matches!(self, Self::Wished(_) | Self::Named { wished: true, .. })
    }
}

/// A request of this node.
#[derive(Debug)]
pub(super) struct LocalRequest {
    /// The user's identifier.
    pub(super) id: u64,
    pub(super) name: Name,
    /// The flow before the source got another address, until the path grants the present one.
    pub(super) former: Option<Box<FlowId>>,
    /// PATH, CREATE or TRIGGER.
    pub(super) kind: NatfwType,
    pub(super) filters: Vec<NatfwFilter>,
    pub(super) terms: NatfwTerms,
    pub(super) lifetime: u32,
    pub(super) age: u64,
    pub(super) stage: Stage,
    /// Number of the last request for the passage: what nodes report later names it.
    pub(super) number: u64,
    /// Number of the request that waits for its answer.
    pub(super) waits: Option<u64>,
    /// When the last request left.
    pub(super) sent: Time,
    /// When the wait ends, or the next refresh is due.
    pub(super) due: Time,
    /// No request leaves before this time because a node reports that it has no passage.
    pub(super) early_from: Time,
    /// Number of a QUERY that waits.
    pub(super) query: Option<u64>,
}

/// The user who accepted what the other end of the path answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Receiver {
    /// No user accepts the packets, or the passage ended for the user.
    Absent,
    /// The passage was opened again after its end: the user has no event of that yet.
    Reopened(u64),
    /// The user had the event that it stands, and gets another one when it ends.
    Informed(u64),
}

impl Receiver {
    pub(super) const fn user(self) -> Option<u64> {
        match self {
            Self::Absent => None,
            Self::Reopened(user) | Self::Informed(user) => Some(user),
        }
    }
}

/// What the other end of the path sends next, and for which AGE.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answered {
    /// AGE of the request.
    pub(super) of: u64,
    /// AGE of what this node sends.
    pub(super) age: u64,
    /// Number of the last message that this node sent.
    pub(super) number: u64,
    /// This node sent more than one.
    pub(super) refreshed: bool,
    /// This node sends it against the flow of the request, not along the opposite flow.
    pub(super) back: bool,
    pub(super) receiver: Receiver,
}

/// Who began a session.
#[derive(Debug)]
pub(super) enum Origin {
    /// A user of this node.
    User(Box<LocalRequest>),
    /// Another node.
    Peer {
        session: SessionId,
        /// Whose share of the table the record takes.
        holder: IpAddr,
    },
}

impl Origin {
    pub(super) fn own(&self) -> Option<&LocalRequest> {
        match self {
            Self::User(own) => Some(own),
            Self::Peer { .. } => None,
        }
    }

    pub(super) fn own_mut(&mut self) -> Option<&mut LocalRequest> {
        match self {
            Self::User(own) => Some(own),
            Self::Peer { .. } => None,
        }
    }

    /// The identifier of the session; `None`: the messaging layer has not named it yet.
    pub(super) fn session(&self) -> Option<SessionId> {
        match self {
            Self::User(own) => own.name.session(),
            Self::Peer { session, .. } => Some(*session),
        }
    }
}

#[derive(Debug)]
pub(super) struct Record {
    pub(super) link: Link,
    pub(super) origin: Origin,
    pub(super) flow: FlowId,
    /// Who asked along the flow, and against it.
    pub(super) asked: [Option<Asked>; 2],
    /// The packets that PATH asked for, for the CREATE that answers it.
    pub(super) wanted: Option<Vec<NatfwFilter>>,
    /// The packets that the last CREATE opened.
    pub(super) filters: Vec<NatfwFilter>,
    /// The packets against the flow that the border of the scope shall ask for.
    pub(super) next_filters: Vec<NatfwFilter>,
    /// The outer end of the flow at a NAT.
    pub(super) binding: Option<Binding>,
    pub(super) opened: Opened,
    /// When the rules end.
    pub(super) rules_until: Time,
    pub(super) lifetime: Duration,
    pub(super) change: Option<Box<Change>>,
    /// When the record ends without a further request.
    pub(super) until: Time,
    pub(super) reply: Option<Reply>,
    pub(super) turn: Turn,
    pub(super) last: Option<Last>,
    pub(super) passed: Option<Passed>,
    /// No error leaves before this time.
    pub(super) errors_from: Time,
    pub(super) answered: Option<Answered>,
}

impl Timed for Record {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Record {
    pub(super) fn new(origin: Origin, flow: FlowId, until: Time) -> Self {
        Self {
            link: Link::default(),
            origin,
            flow,
            asked: [None, None],
            wanted: None,
            filters: Vec::new(),
            next_filters: Vec::new(),
            binding: None,
            opened: Opened::Nothing,
            rules_until: until,
            lifetime: Duration::ZERO,
            change: None,
            until,
            reply: None,
            turn: Turn::Along,
            last: None,
            passed: None,
            errors_from: Time::ZERO,
            answered: None,
        }
    }

    /// The last request in this direction that was accepted.
    pub(super) const fn asked(&mut self, reverse: bool) -> &mut Option<Asked> {
        let [along, against] = &mut self.asked;
        if reverse { against } else { along }
    }

    /// Who asked in this direction.
    pub(super) fn asker(&self, reverse: bool) -> Option<&Asker> {
        let [along, against] = &self.asked;
        let asked = if reverse { against } else { along };
        asked.as_ref().map(|asked| &asked.asker)
    }

    /// Whether a message comes from who asked in its direction.
    pub(super) fn is_of_asker(&self, arrival: &OwnedArrival) -> bool {
        self.asker(arrival.reverse).is_some_and(|asker| asker.sent(arrival))
    }

    /// Whether a message comes from who may end what it asked for: the one who asked in its direction, or whose request waits for
    /// the kernel. A PATH that no CREATE has answered is also ended by the next hop, which could refuse it.
    pub(super) fn is_of_owner(&self, arrival: &OwnedArrival) -> bool {
        let reverse = arrival.reverse;
        if let Some(change) = self.change.as_deref().filter(|change| change.job.reverse == reverse)
            && change.asked.asker.sent(arrival)
        {
            return true;
        }
        let pending = reverse && self.wanted.is_some() && self.change.is_none();
        match self.asker(reverse) {
            Some(asker) => asker.sent(arrival),
            None => pending,
        }
    }

    /// When something is due. A request of this node stays until its user closes it.
    pub(super) fn deadline(&self) -> Time {
        let end = self.origin.own().map_or(self.until, |own| own.due);
        let rules = (!self.opened.rules().is_empty()).then_some(self.rules_until);
        let reply = self.reply.map(|reply| reply.due);
        [rules, reply, self.opened.start()].into_iter().flatten().fold(end, Ord::min)
    }
}
