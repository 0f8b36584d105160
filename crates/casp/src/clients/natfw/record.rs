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
use crate::clients::hop::Hop;
use crate::engine::OwnedArrival;
use crate::wire::FlowId;
use crate::wire::natfw::{NatfwFilter, NatfwStatus, NatfwType};

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
    /// The kernel has not answered.
    pub(super) opening: bool,
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
    pub(super) asker: Asker,
    pub(super) way: Way,
    pub(super) rules: Vec<Rule>,
    /// When they begin, if not now.
    pub(super) start: Option<Time>,
    pub(super) lifetime: Duration,
    /// Answers of the kernel that are missing.
    pub(super) missing: usize,
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

/// Stages of a request of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The first request is under way.
    Opening,
    /// The firewalls are open.
    Standing,
    /// The first request failed.
    Failed,
    /// RELEASE is under way.
    Closing,
}

/// A request of this node.
#[derive(Debug)]
pub(super) struct Own {
    /// The user's identifier.
    pub(super) id: u64,
    /// PATH, CREATE or TRIGGER.
    pub(super) kind: NatfwType,
    pub(super) filters: Vec<NatfwFilter>,
    pub(super) terms: NatfwTerms,
    pub(super) lifetime: u32,
    pub(super) age: u64,
    pub(super) stage: Stage,
    /// When the rules of the path expire without a refresh.
    pub(super) stands_until: Time,
    /// The last refresh failed.
    pub(super) failing: bool,
    /// A node removed its rules: the user has the last event.
    pub(super) lost: bool,
    /// Number of the last request for the passage: what nodes report later names it.
    pub(super) number: u64,
    /// Number of the request that waits for its answer.
    pub(super) waits: Option<u64>,
    /// When the wait ends, or the next refresh is due.
    pub(super) due: Time,
    /// Number of a QUERY that waits.
    pub(super) query: Option<u64>,
    /// The identifier that the session gets, which the path may know; `None`: the messaging layer draws it.
    pub(super) kept: Option<SessionId>,
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
    /// The user who accepted it; `None`: it has none, or it ended.
    pub(super) user: Option<u64>,
    /// The user had the event that it stands, and gets another one when it ends.
    pub(super) informed: bool,
}

#[derive(Debug)]
pub(super) struct Record {
    pub(super) link: Link,
    /// `None`: the messaging layer has not named it yet.
    pub(super) session: Option<SessionId>,
    pub(super) flow: FlowId,
    /// The flow of a request of this node before its source got another address, until the path grants the present one.
    pub(super) former: Option<Box<FlowId>>,
    /// Whose share of the table the record takes.
    pub(super) holder: Option<IpAddr>,
    /// Who asked along the flow, and against it.
    pub(super) askers: [Option<Asker>; 2],
    /// AGE of the PATH and of the CREATE that were accepted.
    pub(super) path_age: Option<u64>,
    pub(super) create_age: Option<u64>,
    /// The packets that PATH asked for, and those that CREATE opened.
    pub(super) wanted: Vec<NatfwFilter>,
    pub(super) filters: Vec<NatfwFilter>,
    /// The packets against the flow that the border of the scope shall ask for.
    pub(super) next_filters: Vec<NatfwFilter>,
    /// The outer end of the flow at a NAT.
    pub(super) binding: Option<Binding>,
    pub(super) rules: Vec<Rule>,
    /// When the rules end; and when they begin, if that is later.
    pub(super) rules_until: Time,
    pub(super) start: Option<Time>,
    pub(super) lifetime: Duration,
    pub(super) change: Option<Box<Change>>,
    /// When the record ends without a further request.
    pub(super) until: Time,
    pub(super) reply: Option<Reply>,
    /// Number of the last request along the flow that was accepted.
    pub(super) number: Option<u64>,
    /// Number of the last CREATE against the flow that was accepted.
    pub(super) number_back: Option<u64>,
    /// The packets go against the flow of the request that asked for them.
    pub(super) back: bool,
    /// This node sends the CREATE for the packets, because TRIGGER asked for it.
    pub(super) triggered: bool,
    /// The last request: its number, its direction, and how this node answered it.
    pub(super) last: Option<(u64, bool, Option<NatfwStatus>)>,
    /// The request whose RESPONSE passed, whether it reported removed rules, and a hash of the filters in it: they can be many.
    pub(super) passed: Option<(u64, bool, u64)>,
    /// When the last error left.
    pub(super) error_at: Option<Time>,
    pub(super) answered: Option<Answered>,
    pub(super) own: Option<Box<Own>>,
}

impl Timed for Record {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Record {
    pub(super) fn new(session: Option<SessionId>, flow: FlowId, holder: Option<IpAddr>, until: Time) -> Self {
        Self {
            link: Link::default(),
            session,
            flow,
            former: None,
            holder,
            askers: [None, None],
            path_age: None,
            create_age: None,
            wanted: Vec::new(),
            filters: Vec::new(),
            next_filters: Vec::new(),
            binding: None,
            rules: Vec::new(),
            rules_until: until,
            start: None,
            lifetime: Duration::ZERO,
            change: None,
            until,
            reply: None,
            number: None,
            number_back: None,
            back: false,
            triggered: false,
            last: None,
            passed: None,
            error_at: None,
            answered: None,
            own: None,
        }
    }

    /// Who asked in this direction.
    pub(super) const fn asker(&mut self, reverse: bool) -> &mut Option<Asker> {
        let [along, against] = &mut self.askers;
        if reverse { against } else { along }
    }

    /// Whether a message comes from who asked in its direction.
    pub(super) fn is_of_asker(&mut self, arrival: &OwnedArrival) -> bool {
        self.asker(arrival.reverse).as_ref().is_some_and(|asker| asker.sent(arrival))
    }

    /// Whether a message comes from who may end what it asked for: the one who asked in its direction, or whose request waits for
    /// the kernel. A PATH that no CREATE has answered is also ended by the next hop, which could refuse it.
    pub(super) fn is_of_owner(&mut self, arrival: &OwnedArrival) -> bool {
        let reverse = arrival.reverse;
        if let Some(change) = self.change.as_deref().filter(|change| change.job.reverse == reverse)
            && change.asker.sent(arrival)
        {
            return true;
        }
        let pending = reverse && self.path_age.is_some() && self.change.is_none();
        match self.asker(reverse) {
            Some(asker) => asker.sent(arrival),
            None => pending,
        }
    }

    /// When something is due. A request of this node stays until its user closes it.
    pub(super) fn deadline(&self) -> Time {
        let end = self.own.as_ref().map_or(self.until, |own| own.due);
        let rules = (!self.rules.is_empty()).then_some(self.rules_until);
        let reply = self.reply.map(|reply| reply.due);
        [rules, reply, self.start].into_iter().flatten().fold(end, Ord::min)
    }
}
