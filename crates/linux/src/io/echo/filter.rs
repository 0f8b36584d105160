//! Which packets are Echo messages with a magic number. The filter of the packet socket and the rules of nftables are made
//! of the same conditions, so that the kernel drops exactly what the socket receives.

use std::io;

use netlink_sys::protocols::NETLINK_NETFILTER;
use signalbox_core::Match;
use socket2::SockFilter;

use crate::error::OpenError;
use crate::netlink::Batch;
use crate::netlink::nftables::expression::{self, Compare, Header};
use crate::netlink::nftables::{self, Hook, NFPROTO_IPV4, NFPROTO_IPV6, begin, end};

/// Octets of the hop-by-hop options header that holds nothing but a Router Alert.
pub(super) const HOP_BY_HOP: usize = 8;
/// Prefix of the names of our tables, in families `ip` and `ip6`; the magic number follows.
const TABLE: &str = "signalbox_echo";
const CHAIN: &str = "passing";

/// Conditions on 32-bit words of a packet, which must all hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule(Vec<Match>);

impl Rule {
    /// The rules of the packets to intercept, from the IP header on. Packets with other options than a Router Alert are
    /// left to the kernel, and so are fragments.
    pub(super) fn of(ipv6: bool, magic: u32, matches: &[Match]) -> Vec<Self> {
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
        // Both types, and code 0.
        let echo = if ipv6 { (0xfeff_0000, 0x8000_0000) } else { (0xf7ff_0000, 0) };
        let rule = |(start, mut conditions): (u16, Vec<Match>)| {
            conditions.push(word(start, echo.0, echo.1));
            conditions.push(Match::word(start + 8, magic));
            conditions.extend(matches.iter().map(|m| Match { offset: start + m.offset, ..*m }));
            Self(conditions)
        };
        starts.into_iter().map(rule).collect()
    }

    /// The rules of the Destination Unreachables about Echo Requests with the magic number: from the IP header on, or with
    /// `headless` as a raw socket of ICMPv6 receives them, from the ICMPv6 header on.
    pub(super) fn unreachables(ipv6: bool, magic: u32, headless: bool) -> Vec<Self> {
        let word = |offset, mask, value| Match { offset, mask, value };
        // Each begins with the quoted header: its conditions, and the offset of the quoted Echo Request.
        let (error, quoted) = if ipv6 {
            let outer = (!headless).then(|| word(4, 0x0000_ff00, 0x0000_3a00));
            let icmp = if headless { 0 } else { 40 };
            let error: Vec<Match> = outer.into_iter().chain([word(icmp, 0xff00_0000, 0x0100_0000)]).collect();
            let inner = icmp + 8;
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
/// The offset at which a filter reads whether the packet is for this host (SKF_AD_OFF + SKF_AD_PKTTYPE).
const PACKET_TYPE: u32 = 0xffff_f004;

/// What the destination of a packet to a multicast group begins with.
pub(super) const fn group_word(ipv6: bool) -> Match {
    if ipv6 {
        Match { offset: 24, mask: 0xff00_0000, value: 0xff00_0000 }
    } else {
        Match { offset: 16, mask: 0xf000_0000, value: 0xe000_0000 }
    }
}

/// The filter that takes packets of any of the rules. With `frames` it takes only those that came in and are for this host's
/// link-layer address or, if that word is so, for a multicast one.
pub(super) fn program(rules: &[Rule], frames: Option<Match>) -> Vec<SockFilter> {
    let step = SockFilter::new;
    let mut program = Vec::new();
    if let Some(group) = frames {
        program.push(step(LOAD_WORD, 0, 0, PACKET_TYPE));
        program.push(step(JUMP_EQUAL, 5, 0, libc::PACKET_HOST.into()));
        program.push(step(JUMP_EQUAL, 0, 3, libc::PACKET_MULTICAST.into()));
        program.push(step(LOAD_WORD, 0, 0, group.offset.into()));
        program.push(step(AND, 0, 0, group.mask));
        program.push(step(JUMP_EQUAL, 1, 0, group.value));
        program.push(step(RETURN, 0, 0, 0));
    }
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

/// The rules by which the kernel drops packets that the socket has received. They exist as long as this value, or as this
/// process.
pub(super) struct Veto {
    requests: Batch,
    name: String,
    family: u8,
    laid: bool,
}

impl Veto {
    /// Installs a table of this process with one rule for each of `rules`.
    pub(super) fn lay(ipv6: bool, magic: u32, rules: &[Rule]) -> Result<Self, OpenError> {
        let (family, words) = if ipv6 { (NFPROTO_IPV6, "IPv6") } else { (NFPROTO_IPV4, "IPv4") };
        let name = format!("{TABLE}_{magic:08x}");
        let system = |error: io::Error| match error.raw_os_error() {
            Some(libc::EPERM) => OpenError::net_admin("intercepting ICMP Echo", &error),
            Some(libc::EOPNOTSUPP | libc::EINVAL) => OpenError::new(
                "owned-tables-unsupported",
                format!("the kernel does not take an nftables table with an owner ({error})"),
                format!(
                    "interception over {words} needs Linux 5.12 or newer with nf_tables; or switch {words} off in the configuration"
                ),
            ),
            Some(libc::EBUSY | libc::EEXIST) => OpenError::new(
                "echo-in-use",
                format!("the nftables table {name} for {words} belongs to another process ({error})"),
                "stop the other daemon in this network namespace",
            ),
            _ => OpenError::system("intercepting ICMP Echo", &error),
        };
        let mut requests = Batch::open(NETLINK_NETFILTER).map_err(system)?;
        begin(&mut requests);
        nftables::table(&mut requests, family, &name, libc::NLM_F_EXCL, true);
        nftables::chain(&mut requests, family, (&name, CHAIN), Hook::Prerouting);
        for Rule(conditions) in rules {
            nftables::rule(&mut requests, family, (&name, CHAIN), |rule| {
                for condition in conditions {
                    expression::load(rule, Header::Network, (condition.offset.into(), 4));
                    if condition.mask != u32::MAX {
                        expression::mask(rule, &condition.mask.to_be_bytes());
                    }
                    expression::compare(rule, Compare::Equal, &condition.value.to_be_bytes());
                }
                expression::drop(rule);
            });
        }
        end(&mut requests);
        let refused = requests.send_transaction().map_err(system)?.into_iter().next();
        match refused {
            Some((_, error)) => Err(system(error)),
            None => Ok(Self { requests, name, family, laid: true }),
        }
    }

    /// Removes the table.
    pub(super) fn remove(mut self) -> Result<(), OpenError> {
        self.take_away().map_err(|error| OpenError::system("removing the interception of ICMP Echo", &error))
    }

    fn take_away(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.laid) {
            return Ok(());
        }
        begin(&mut self.requests);
        nftables::delete_table(&mut self.requests, self.family, &self.name);
        end(&mut self.requests);
        let refused = self.requests.send_transaction()?.into_iter().next().map(|(_, error)| error);
        refused.filter(|error| error.raw_os_error() != Some(libc::ENOENT)).map_or(Ok(()), Err)
    }
}

impl Drop for Veto {
    fn drop(&mut self) {
        if let Err(error) = self.take_away() {
            tracing::warn!(%error, table = self.name, "an interception rule stays behind");
        }
    }
}
