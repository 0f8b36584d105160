//! A kernel of nf_tables and connection tracking, as far as pinholes need it: it reads the netlink octets that
//! `signalbox_linux::pinhole` emits, answers them, and lets packets pass by them alone. The test `agreement` compares it with
//! the real kernel.

mod flows;
mod octets;
mod packet;
mod rules;
mod sets;
mod tables;

use std::net::IpAddr;

use signalbox_linux::simulated;

#[cfg(feature = "namespace-tests")]
pub(crate) use octets::{errors, flush};
pub(crate) use packet::{ICMP, ICMPV6, Packet, TCP, Tuple, UDP, has_ports};

use flows::{Flows, Tracked};
use octets::{Attributes, Message, NLM_F_ACK, NLM_F_DUMP};
use rules::Passing;
use tables::{Hook, Tables};

/// The bit of the mark that flows of pinholes have, as docs/natfw.md gives it.
pub(crate) const BIT: u32 = 0x1000_0000;
/// A protocol that the operator's ruleset lets pass.
pub(crate) const CONTROL: u8 = 254;

const NETFILTER: isize = 12;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const GETSETELEM: u16 = 10 << 8 | 13;
const NEWSETELEM: u16 = 10 << 8 | 12;
const CT_GET: u16 = 1 << 8 | 1;
const ENOENT: i32 = 2;

/// What becomes of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It leaves in this form.
    Passed(Packet),
    Dropped,
    /// It is for this node itself, which takes none.
    Local,
    /// The kernel chooses a port that the rules do not give.
    Clash,
}

/// A transaction as it was sent, and the error numbers of the answer.
#[cfg(feature = "namespace-tests")]
pub(crate) struct Transaction {
    pub(crate) requests: Vec<u8>,
    pub(crate) errors: Vec<(u32, i32)>,
    /// The number of the request that the kernel acknowledges.
    pub(crate) acknowledged: u32,
}

/// The kernel of a firewall or NAT.
#[derive(Default)]
pub(crate) struct Kernel {
    tables: Tables,
    flows: Flows,
    /// The addresses of this node.
    local: Vec<IpAddr>,
    /// Requests to it fail.
    unreachable: bool,
    /// What was sent, if it is kept.
    #[cfg(feature = "namespace-tests")]
    log: Option<Vec<Transaction>>,
}

impl simulated::Kernel for Kernel {
    fn ask(&mut self, protocol: isize, requests: &[u8]) -> Vec<Vec<u8>> {
        assert_eq!(protocol, NETFILTER);
        if self.unreachable {
            return Vec::new();
        }
        let messages = octets::messages(requests);
        if messages[0].kind == BATCH_BEGIN {
            return vec![self.transact(requests, &messages)];
        }
        messages.iter().flat_map(|message| self.answer(message)).collect()
    }
}

impl Kernel {
    /// A kernel without rules, of a node with these addresses.
    pub(crate) fn new(local: Vec<IpAddr>) -> Self {
        Self { local, ..Self::default() }
    }

    /// The same, which keeps what is sent to it.
    #[cfg(feature = "namespace-tests")]
    pub(crate) fn logging(local: Vec<IpAddr>) -> Self {
        Self { log: Some(Vec::new()), ..Self::new(local) }
    }

    /// What was sent since the last time.
    #[cfg(feature = "namespace-tests")]
    pub(crate) fn take_log(&mut self) -> Vec<Transaction> {
        self.log.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The node has these addresses from now on.
    pub(crate) fn is_at(&mut self, local: Vec<IpAddr>) {
        self.local = local;
    }

    /// From now on requests come to it, or are lost.
    pub(crate) const fn is_reachable(&mut self, reachable: bool) {
        self.unreachable = !reachable;
    }

    /// Forgets all flows.
    pub(crate) fn forget(&mut self) {
        self.flows = Flows::default();
    }

    /// Carries out all requests or none.
    fn transact(&mut self, requests: &[u8], messages: &[Message<'_>]) -> Vec<u8> {
        let (end, changes) = messages[1..].split_last().unwrap();
        assert_eq!(end.kind, BATCH_END, "{} octets without an end", requests.len());
        let before = self.tables.clone();
        let (mut answer, mut failed) = (Vec::new(), false);
        for message in changes {
            let result = self.tables.change(message);
            failed |= result.is_err();
            if result.is_err() || message.flags & NLM_F_ACK != 0 {
                answer.extend(octets::result(message.sequence, result.err().unwrap_or(0)));
            }
        }
        if failed {
            self.tables = before;
        }
        #[cfg(feature = "namespace-tests")]
        if let Some(log) = &mut self.log {
            let last = changes.iter().find(|change| change.flags & NLM_F_ACK != 0).unwrap();
            log.push(Transaction {
                requests: requests.to_vec(),
                errors: errors(&answer),
                acknowledged: last.sequence,
            });
        }
        answer
    }

    /// Answers a question.
    fn answer(&self, message: &Message<'_>) -> Vec<Vec<u8>> {
        let of_all = message.flags & NLM_F_DUMP == NLM_F_DUMP;
        match message.kind {
            GETSETELEM => match self.elements(message) {
                Ok(elements) => {
                    let body = [&[1, 0, 0, 0][..], &octets::nest(3, &elements)].concat();
                    let answer = octets::message(NEWSETELEM, 0, message.sequence, &body);
                    vec![answer, octets::done(message.sequence)][..1 + usize::from(of_all)].to_vec()
                }
                Err(error) => vec![octets::result(message.sequence, error)],
            },
            // What ends with its pinhole stays known here, with its mark: no rule may let it pass.
            CT_GET if of_all => vec![octets::done(message.sequence)],
            CT_GET => vec![octets::result(message.sequence, ENOENT)],
            other => panic!("question {other:#x}"),
        }
    }

    fn elements(&self, message: &Message<'_>) -> Result<Vec<Vec<u8>>, i32> {
        let asked = message.attributes(&[1, 2, 3]);
        let sets = &self.tables.get(&asked.text(1).unwrap())?.sets;
        let set = sets.get(&asked.text(2).unwrap()).ok_or(ENOENT)?;
        let Some(list) = asked.nested(3) else { return Ok(set.read_all()) };
        list.each().into_iter().map(|(_, item)| set.read(Attributes(item))).collect()
    }

    /// Lets a packet of another node pass, beside a ruleset of the operator that drops by default and accepts flows with the
    /// bit, answers, and the control protocol.
    pub(crate) fn forward(&mut self, packet: &Packet) -> Fate {
        let Some(mut tracked) = self.flows.track(packet) else {
            // The operator's ruleset drops what belongs to no flow.
            return Fate::Dropped;
        };
        let fate = self.judge(packet, &mut tracked);
        self.flows.keep(&tracked, matches!(fate, Fate::Passed(_)));
        fate
    }

    fn judge(&self, packet: &Packet, tracked: &mut Tracked) -> Fate {
        let (first, direction) = (tracked.is_new(), tracked.direction);
        if !self.tables.pass(
            Hook::Prerouting,
            first,
            &mut Passing::new(packet, Some(&mut tracked.flow), direction),
        ) {
            return Fate::Dropped;
        }
        let routed = tracked.after(packet);
        if self.local.contains(&routed.dst) {
            return Fate::Local;
        }
        let accepted = tracked.flow.is_established(direction)
            || tracked.flow.mark & BIT != 0
            || packet.protocol == CONTROL;
        if !accepted {
            return Fate::Dropped;
        }
        let passing = &mut Passing::new(&routed, Some(&mut tracked.flow), direction);
        if !self.tables.pass(Hook::Postrouting, first, passing) {
            return Fate::Dropped;
        }
        if first && self.flows.clashes(tracked) {
            return Fate::Clash;
        }
        Fate::Passed(tracked.after(packet))
    }
}
