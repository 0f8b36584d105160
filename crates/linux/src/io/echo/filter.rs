//! Which packets are Echo messages with a magic number: the rules of nftables that pass them to the queue, and the filters of
//! raw sockets.

use std::io;

use netlink_sys::protocols::NETLINK_NETFILTER;
use signalbox_core::{Interfaces, Match, Unproved};
use socket2::SockFilter;

use crate::error::OpenError;
use crate::netlink::Batch;
use crate::netlink::nftables::expression::{self, Compare, Header, Queueing};
use crate::netlink::nftables::{self, Hook, LAST, NFPROTO_IPV4, NFPROTO_IPV6, transact};
use crate::scope::Scope;

/// Octets of the hop-by-hop options header that holds nothing but a Router Alert.
pub(super) const HOP_BY_HOP: usize = 8;
/// Prefix of the names of our tables, in families `ip` and `ip6`; the magic number follows.
const TABLE: &str = "signalbox_echo";
/// The chains of messages to other nodes, and of requests to this node.
const PASSING: &str = "passing";
const ARRIVING: &str = "arriving";
/// Ends of the names of the chains behind them, in which the source of a message is compared with the routes.
const COMPARED: &str = "_compared";

/// Conditions on 32-bit words of a packet, which must all hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule(Vec<Match>);

impl Rule {
    /// The rules of the packets to intercept, from the IP header on: requests and, if `replies`, replies. Packets with other
    /// options than a Router Alert are left to the kernel, and so are fragments.
    pub(super) fn of(ipv6: bool, magic: u32, matches: &[Match], replies: bool) -> Vec<Self> {
        let word = |offset, mask, value| Match { offset, mask, value };
        let starts = if ipv6 {
            [
                (40, vec![word(4, 0x0000_ff00, 0x0000_3a00)]),
                (48, vec![word(4, 0x0000_ff00, 0), Match::word(40, 0x3a00_0502)]),
            ]
        } else {
            // Neither MF nor an offset; protocol 1.
            let whole = word(6, 0x3fff_00ff, 1);
            [
                (20, vec![word(0, 0xff00_0000, 0x4500_0000), whole]),
                (24, vec![word(0, 0xff00_0000, 0x4600_0000), whole, Match::word(20, 0x9404_0000)]),
            ]
        };
        // The type, and code 0.
        let echo = match (ipv6, replies) {
            (true, true) => (0xfeff_0000, 0x8000_0000),
            (true, false) => (0xffff_0000, 0x8000_0000),
            (false, true) => (0xf7ff_0000, 0),
            (false, false) => (0xffff_0000, 0x0800_0000),
        };
        let rule = |(start, mut conditions): (u16, Vec<Match>)| {
            conditions.push(word(start, echo.0, echo.1));
            conditions.push(Match::word(start + 8, magic));
            conditions.extend(matches.iter().map(|m| Match { offset: start + m.offset, ..*m }));
            Self(conditions)
        };
        starts.into_iter().map(rule).collect()
    }

    /// The rules of the Destination Unreachables about Echo Requests with the magic number, as a raw socket receives them: from
    /// the IPv4 header on, or from the ICMPv6 header on.
    pub(super) fn unreachables(ipv6: bool, magic: u32) -> Vec<Self> {
        let word = |offset, mask, value| Match { offset, mask, value };
        // Each begins with the quoted header: its conditions, and the offset of the quoted Echo Request.
        let (error, quoted) = if ipv6 {
            let error = vec![word(0, 0xff00_0000, 0x0100_0000)];
            let inner = 8;
            let plain = (vec![word(inner + 4, 0x0000_ff00, 0x0000_3a00)], inner + 40);
            let alert = vec![word(inner + 4, 0x0000_ff00, 0), word(inner + 40, 0xffff_0000, 0x3a00_0000)];
            (error, [plain, (alert, inner + 48)])
        } else {
            let whole = word(6, 0x3fff_00ff, 1);
            let error = vec![word(0, 0xff00_0000, 0x4500_0000), whole, word(20, 0xff00_0000, 0x0300_0000)];
            let inner = |first: u32| vec![word(28, 0xff00_0000, first), word(36, 0x00ff_0000, 0x0001_0000)];
            (error, [(inner(0x4500_0000), 48), (inner(0x4600_0000), 52)])
        };
        let request = if ipv6 { 0x8000_0000 } else { 0x0800_0000 };
        let rule = |(conditions, echo): (Vec<Match>, u16)| {
            let about = [word(echo, 0xff00_0000, request), Match::word(echo + 8, magic)];
            Self(error.iter().copied().chain(conditions).chain(about).collect())
        };
        quoted.into_iter().map(rule).collect()
    }

    /// The rules of the replies that a raw socket receives: from the IPv4 header on, or from the ICMPv6 header on.
    pub(super) fn replies(ipv6: bool, magic: u32) -> Vec<Self> {
        let starts: &[u16] = if ipv6 { &[0] } else { &[20, 24] };
        let rule = |start: &u16| {
            let reply =
                Match { offset: *start, mask: 0xffff_0000, value: if ipv6 { 0x8100_0000 } else { 0 } };
            let length = Match { offset: 0, mask: 0x0f00_0000, value: u32::from(*start / 4) << 24 };
            let mut conditions = vec![reply, Match::word(start + 8, magic)];
            conditions.extend((!ipv6).then_some(length));
            Self(conditions)
        };
        starts.iter().map(rule).collect()
    }
}

const LOAD_WORD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K

/// The filter that takes packets of any of the rules.
pub(super) fn program(rules: &[Rule]) -> Vec<SockFilter> {
    let step = SockFilter::new;
    let mut program = Vec::new();
    for Rule(conditions) in rules {
        for (at, condition) in conditions.iter().enumerate() {
            // Each condition has three steps, and the last one of the rule is the return.
            let rest = (conditions.len() - at - 1) * 3 + 1;
            program.push(step(LOAD_WORD, 0, 0, condition.offset.into()));
            program.push(step(AND, 0, 0, condition.mask));
            program.push(step(JUMP_EQUAL, 0, u8::try_from(rest).unwrap_or(u8::MAX), condition.value));
        }
        program.push(step(RETURN, 0, 0, u32::MAX));
    }
    program.push(step(RETURN, 0, 0, 0));
    program
}

/// The rules that pass packets to a queue of this process, behind the rules of others. They exist as long as this value, or as
/// this process.
pub(super) struct Divert {
    requests: Batch,
    name: String,
    family: u8,
    laid: bool,
}

/// What is passed to a queue.
pub(super) struct Diverted<'a> {
    pub(super) ipv6: bool,
    pub(super) magic: u32,
    pub(super) matches: &'a [Match],
    /// The interfaces by which it comes in.
    pub(super) interfaces: &'a Interfaces,
    /// The number of the queue.
    pub(super) queue: u16,
    /// Messages that do not come from where their source is are no messages.
    pub(super) unproved: Option<&'a Unproved>,
    /// Whose messages.
    pub(super) scope: &'a Scope,
}

impl Divert {
    /// Installs a table of this process. A process listens at the queue already.
    pub(super) fn lay(diverted: &Diverted<'_>) -> Result<Self, OpenError> {
        let (family, words) = if diverted.ipv6 { (NFPROTO_IPV6, "IPv6") } else { (NFPROTO_IPV4, "IPv4") };
        let name = diverted.scope.name(&format!("{TABLE}_{:08x}", diverted.magic));
        let explain = |error: io::Error| match error.raw_os_error() {
            Some(libc::EPERM) => OpenError::net_admin("intercepting ICMP Echo", &error),
            Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOENT) => OpenError::new(
                "echo-queue-unsupported",
                format!("the kernel does not take an nftables table with an owner and a queue ({error})"),
                format!(
                    "interception over {words} needs Linux 5.12 or newer with nf_tables and nft_queue, or nft_compat and \
                     xt_NFQUEUE; or switch {words} off in the configuration"
                ),
            ),
            Some(libc::EBUSY | libc::EEXIST) => OpenError::new(
                "echo-in-use",
                format!("the nftables table {name} for {words} belongs to another process ({error})"),
                "stop the other daemon in this network namespace",
            ),
            _ => OpenError::system("intercepting ICMP Echo", &error),
        };
        let mut requests = Batch::open(NETLINK_NETFILTER).map_err(explain)?;
        let mut lay = |diverted: &Diverted<'_>, how| {
            transact(&mut requests, |requests| compose(requests, family, &name, diverted, how))
        };
        let unsupported =
            |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOENT));
        let mut either = |diverted: &Diverted<'_>| match lay(diverted, Queueing::Expression) {
            Err(error) if unsupported(&error) => lay(diverted, Queueing::Target),
            result => result,
        };
        let mut result = either(diverted);
        if diverted.unproved.is_some() && result.as_ref().is_err_and(unsupported) {
            result = either(&Diverted { unproved: None, ..*diverted });
            if result.is_ok() {
                tracing::warn!(
                    "the kernel does not compare the source of a message with the route to it (nft_fib, from Linux 5.19 on): \
                     filter forged sources by rp_filter"
                );
            }
        }
        result.map_err(explain)?;
        Ok(Self { requests, name, family, laid: true })
    }

    /// Removes the table.
    pub(super) fn remove(mut self) -> Result<(), OpenError> {
        self.take_away().map_err(|error| OpenError::system("removing the interception of ICMP Echo", &error))
    }

    fn take_away(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.laid) {
            return Ok(());
        }
        let Self { requests, name, family, .. } = self;
        let removed = transact(requests, |requests| nftables::delete_table(requests, *family, name));
        match removed {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            result => result,
        }
    }
}

impl Drop for Divert {
    fn drop(&mut self) {
        if let Err(error) = self.take_away() {
            tracing::warn!(%error, table = self.name, "an interception rule stays behind");
        }
    }
}

/// Appends the table with its chains and rules.
fn compose(requests: &mut Batch, family: u8, name: &str, diverted: &Diverted<'_>, how: Queueing) {
    let Diverted { ipv6, magic, matches, interfaces, queue, unproved, scope } = *diverted;
    nftables::table(requests, family, name, libc::NLM_F_EXCL, true);
    let chains = [(PASSING, Hook::Forward, true), (ARRIVING, Hook::Input, false)];
    for (chain, hook, replies) in chains {
        let place = (name, chain);
        let compared = unproved.map(|_| format!("{chain}{COMPARED}"));
        if let (Some(Unproved { at, .. }), Some(chain)) = (unproved, &compared) {
            compose_compared(requests, family, (name, chain), at, (queue, how, scope));
        }
        nftables::base_chain(requests, family, place, "filter", (hook, LAST));
        nftables::rule(requests, family, place, |rule| {
            expression::was_broadcast(rule);
            expression::accept(rule);
        });
        let named = |wanted: bool| interfaces.named.iter().filter(move |(_, one)| *one == wanted);
        // What comes in by other interfaces goes on as on a router without the daemon.
        let mut from = vec![None];
        if interfaces.others {
            for (interface, _) in named(false) {
                nftables::rule(requests, family, place, |rule| {
                    scope.arrived_by(rule, interface);
                    expression::accept(rule);
                });
            }
        } else {
            from = named(true).map(|(interface, _)| Some(interface)).collect();
        }
        for interface in from {
            for Rule(conditions) in Rule::of(ipv6, magic, matches, replies) {
                nftables::rule(requests, family, place, |rule| {
                    scope.packets(rule);
                    if !scope.is_all() {
                        expression::has_mark(rule, 0);
                    }
                    if let Some(interface) = interface {
                        scope.arrived_by(rule, interface);
                    }
                    for condition in &conditions {
                        expression::load(rule, Header::Network, (condition.offset.into(), 4));
                        if condition.mask != u32::MAX {
                            expression::mask(rule, &condition.mask.to_be_bytes());
                        }
                        expression::compare(rule, Compare::Equal, &condition.value.to_be_bytes());
                    }
                    match &compared {
                        Some(compared) => expression::go_to(rule, compared),
                        None => to_queue(rule, (queue, how, scope)),
                    }
                });
            }
        }
    }
}

/// Passes the message to a queue.
fn to_queue(rule: &mut Batch, (queue, how, scope): (u16, Queueing, &Scope)) {
    if !scope.is_all() {
        expression::mark_below(rule);
    }
    expression::queue(rule, queue, how);
}

/// Appends a chain that passes messages from where their source is to the queue. Others go on as on a router without the daemon.
fn compose_compared(
    requests: &mut Batch,
    family: u8,
    place: (&str, &str),
    Interfaces { named, others }: &Interfaces,
    to: (u16, Queueing, &Scope),
) {
    nftables::inner_chain(requests, family, place);
    for (interface, _) in named.iter().filter(|(_, compared)| compared != others) {
        nftables::rule(requests, family, place, |rule| {
            to.2.arrived_by(rule, interface);
            if *others {
                to_queue(rule, to);
            } else {
                expression::came_from_its_source(rule, false);
                expression::counter(rule);
                expression::accept(rule);
            }
        });
    }
    if *others {
        nftables::rule(requests, family, place, |rule| {
            expression::came_from_its_source(rule, false);
            expression::counter(rule);
            expression::accept(rule);
        });
    }
    nftables::rule(requests, family, place, |rule| to_queue(rule, to));
}
