//! The queues of a link: HTB with a class for best effort, one for the excess of reservations, two for signaling, one
//! for each service with a shared class, and a pool of classes for reservations.
//!
//! The kernel makes each class under a lock of all network namespaces, and walks all classes of the link for it: 20 ms for 500, 90 ms
//! for 1,000. Classes of the pool are therefore made some at a time ([`super::ahead`]), or by the request that gives one its rate for
//! its first reservation, and stay. To change one takes the same time whatever their number.

use std::collections::BTreeSet;
use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;
use signalbox_core::traffic::ServiceClass;

use super::config::LinkConfig;
use super::signaling;
use crate::netlink::Batch;
use crate::netlink::codec::{Attributes, Connection, u32_of};
use crate::netlink::interfaces;

/// Major number of our qdisc, which identifies it: "SB".
pub(super) const MAJOR: u32 = 0x5342 << 16;
/// Major number of the queue of best effort.
const LEAF: u32 = 0x5343 << 16;
/// Major number of the queue of excess.
const EXCESS_LEAF: u32 = 0x5344 << 16;
/// Major number of the bounded queue of the first class of the pool; those of the others follow.
const OWN_LEAF: u32 = 0x6000;
/// What a bounded queue has room for: the octets of this part of a second, and 16 packets.
const PARTS_OF_SECOND: u64 = 5;
const PACKETS: u64 = 16 * 1500;
const ROOT_CLASS: u16 = 1;
/// Minor number of the class of all packets without a reservation.
pub(super) const BEST_EFFORT: u16 = 2;
/// Minor number of the class of packets that this node's daemon sends.
pub(super) const OWN_SIGNALING: u16 = 3;
/// Minor number of the class of other signaling.
pub(super) const PASSING_SIGNALING: u16 = 4;
/// Minor number of the class of what exceeds reservations. It is best effort of a lower priority. Otherwise it would
/// displace senders that reduce their rate after a loss (RFC 2211 §9).
pub(super) const EXCESS: u16 = 5;
const GUARANTEED: u16 = 0x10;
/// Minor number of the shared class of reservations for which no own class was left.
pub(super) const CONTROLLED_LOAD: u16 = 0x11;
const DSCP: u16 = 0x40;
const POOL: u16 = 0x100;
/// Most classes of the pool.
pub(super) const MOST_CLASSES: u16 = 2000;

// Priorities of the classes when they borrow spare bandwidth.
const FIRST: u32 = 0;
const OWN: u32 = 1;
const SHARED: u32 = 2;
const BEHIND: u32 = 6;
const LAST: u32 = 7;

/// Rate of a class while it is not in use, octets a second.
const IDLE: u64 = 125;
/// Least size of the queue of best effort, which otherwise holds 100 ms of the link, in octets: one bundle of segments (GSO) has up to
/// 65,536, and a queue that is shorter never takes it.
const LEAST_QUEUE: u64 = 70_000;

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STAB: u16 = 8;
const TCA_STAB_BASE: u16 = 1;
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;
const TCA_BPF_CLASSID: u16 = 3;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
/// The name of our filter.
const NAME: &[u8] = b"signalbox\0";
/// Number of classes beside the pool.
const FIXED_CLASSES: usize = 7 + 64;
/// How often the list of all qdiscs is read that lacks one.
const TRIES: u32 = 10;
/// Parent of the qdisc at the interface's root.
const TC_H_ROOT: u32 = 0xffff_ffff;
const ETH_P_ALL: u16 = 3;
/// Link layer for which the kernel computes rates instead of reading them from tables.
const TC_LINKLAYER_ETHERNET: u8 = 1;

/// Whether a class belongs to the pool, and so to one reservation.
pub(super) const fn is_own(minor: u16) -> bool {
    minor >= POOL
}

/// The minor number of the class with an own queue.
pub(super) const fn own(number: u16) -> u16 {
    POOL + number
}

/// The minor number of the shared class of a service.
pub(super) fn shared(service: ServiceClass) -> u16 {
    match service {
        ServiceClass::Guaranteed => GUARANTEED,
        ServiceClass::ControlledLoad => CONTROLLED_LOAD,
        ServiceClass::Dscp(dscp) => DSCP + u16::from(dscp & 0x3f),
    }
}

/// Whether `queue` is a class that reservations of this treatment can have at a link with `classes` own queues.
pub(super) const fn is_for_reservations(queue: u16, classes: u16) -> bool {
    matches!(queue, GUARANTEED | CONTROLLED_LOAD)
        || queue >= DSCP && queue < DSCP + 64
        || queue >= POOL && queue - POOL < classes
}

/// The number of a class, as packets carry it.
pub(super) const fn class_id(minor: u16) -> u32 {
    MAJOR | minor as u32
}

/// The qdisc at an interface's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Root {
    /// The kernel's own default.
    Default,
    /// A qdisc of ours, of this process or an earlier one.
    Ours,
    /// A qdisc of another program: kind and handle as `tc` shows it.
    Foreign(String),
}

/// Reads the qdisc at the interface's root.
///
/// The kernel tells the handle only in its list of all qdiscs, or by a report to all who listen. That list goes on at a number, and can
/// lack some without a sign when an interface is removed meanwhile. It never has the kinds that do nothing. So the interface itself is
/// asked whether it has another kind.
///
/// # Errors
/// The kernel refuses, or its list lacks the qdisc each time.
pub(super) fn root(connection: &mut Connection, ifindex: u32) -> io::Result<Root> {
    for _ in 0..TRIES {
        let mut found = None;
        roots(connection, |at, root| {
            if at == ifindex {
                found = Some(root);
            }
        })?;
        if let Some(root) = found {
            return Ok(root);
        }
        match interfaces::queueing(connection, ifindex)?.as_deref() {
            None | Some("noqueue" | "noop") => return Ok(Root::Default),
            Some(_) => {}
        }
    }
    Err(io::ErrorKind::Interrupted.into())
}

/// The interfaces that have our qdisc.
pub(super) fn ours(connection: &mut Connection) -> io::Result<Vec<u32>> {
    let mut ours = Vec::new();
    roots(connection, |at, root| {
        if root == Root::Ours {
            ours.push(at);
        }
    })?;
    Ok(ours)
}

/// Reads the qdisc at each interface's root, except the kinds that do nothing.
fn roots(connection: &mut Connection, mut each: impl FnMut(u32, Root)) -> io::Result<()> {
    connection.begin(libc::RTM_GETQDISC, libc::NLM_F_DUMP, &message(0, 0, 0)).transact(|answer| {
        let Some((fixed, attributes)) = answer.split::<20>() else { return };
        let number = |at: usize| fixed.get(at..).and_then(u32_of);
        let (Some(ifindex), Some(handle), Some(TC_H_ROOT)) = (number(4), number(8), number(12)) else {
            return;
        };
        let (mut kind, mut default_class) = (String::new(), None);
        for (attribute, data) in attributes {
            match attribute {
                TCA_KIND => kind = String::from_utf8_lossy(data).trim_end_matches('\0').to_owned(),
                TCA_OPTIONS => {
                    let global = Attributes(data).find(|(kind, _)| *kind == TCA_HTB_INIT);
                    default_class = global.and_then(|(_, data)| u32_of(data.get(8..)?));
                }
                _ => {}
            }
        }
        if handle == MAJOR && kind == "htb" && default_class == Some(BEST_EFFORT.into()) {
            each(ifindex, Root::Ours);
        } else if handle != 0 {
            each(ifindex, Root::Foreign(format!("{kind} {:x}:", handle >> 16)));
        } else {
            each(ifindex, Root::Default);
        }
    })
}

/// Removes our qdisc with everything attached to it. The kernel then installs its default.
pub(super) fn remove(connection: &mut Connection, ifindex: u32) -> io::Result<()> {
    let removed = connection
        .begin(libc::RTM_DELQDISC, libc::NLM_F_ACK, &message(ifindex, MAJOR, TC_H_ROOT))
        .transact(|_| {});
    match removed {
        // The qdisc was removed with its interface, or by another program: then the root has another handle (EINVAL).
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENOENT | libc::EINVAL)) => {
            Ok(())
        }
        result => result,
    }
}

/// The requests for one link.
#[derive(Debug, Clone)]
pub(super) struct Queues {
    ifindex: u32,
    rate: u64,
}

impl Queues {
    pub(super) const fn new(ifindex: u32, rate: u64) -> Self {
        Self { ifindex, rate }
    }

    /// Makes all queues except those of the pool. `link_header` octets of each packet do not belong to IP and are not counted.
    pub(super) fn make(&self, config: &LinkConfig, link_header: u32) -> io::Result<()> {
        let mut batch = Batch::open(NETLINK_ROUTE)?;
        let create = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let replace = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        let options = [3, 10, u32::from(BEST_EFFORT), 0, 0].map(u32::to_ne_bytes).concat(); // version, r2q, default
        let overhead = i32::try_from(link_header).unwrap_or(0).wrapping_neg();
        batch
            .begin(libc::RTM_NEWQDISC, replace, &message(self.ifindex, MAJOR, TC_H_ROOT))
            .attribute(TCA_KIND, b"htb\0")
            .nest(TCA_OPTIONS, |batch| batch.attribute(TCA_HTB_INIT, &options))
            .nest(TCA_STAB, |batch| batch.attribute(TCA_STAB_BASE, &size_table(overhead)));
        let root = class_id(ROOT_CLASS);
        self.of_link(&mut batch, create, config);
        for minor in [GUARANTEED, CONTROLLED_LOAD].into_iter().chain((0..64).map(|dscp| DSCP + dscp)) {
            self.class(&mut batch, create, minor, root, [IDLE, self.rate], priority(minor));
        }
        self.tails(&mut batch, create);
        match batch.send()?.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    /// Appends a request to make a class of the pool, if it is not there.
    pub(super) fn make_idle(&self, batch: &mut Batch, minor: u16) {
        let create = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        self.class(batch, create, minor, class_id(ROOT_CLASS), [IDLE, self.rate], priority(minor));
    }

    /// Appends requests for the classes whose rates are the link's own.
    fn of_link(&self, batch: &mut Batch, flags: i32, config: &LinkConfig) {
        let root = class_id(ROOT_CLASS);
        self.class(batch, flags, ROOT_CLASS, MAJOR, [self.rate; 2], FIRST);
        self.rest(batch, flags, config);
        for minor in [OWN_SIGNALING, PASSING_SIGNALING] {
            let sure = signaling::class_rate(minor, config.signaling).max(IDLE);
            self.class(batch, flags, minor, root, [sure, self.rate], FIRST);
        }
    }

    /// Appends requests that guarantee best effort what reservations and signaling leave.
    fn rest(&self, batch: &mut Batch, flags: i32, config: &LinkConfig) {
        let root = class_id(ROOT_CLASS);
        let taken = config.reservable.saturating_add(config.signaling);
        let rest = self.rate.saturating_sub(taken).max(self.rate / 100).max(IDLE);
        // The least rate that keeps excess traffic served at all.
        let scraps = (rest / 16).max(IDLE);
        let sure = rest.saturating_sub(scraps).max(IDLE);
        self.class(batch, flags, BEST_EFFORT, root, [sure, self.rate], BEHIND);
        self.class(batch, flags, EXCESS, root, [scraps, self.rate], LAST);
    }

    /// Takes another rate of the link, and appends requests for the classes whose rates follow from it.
    pub(super) fn change_link(&mut self, batch: &mut Batch, config: &LinkConfig) {
        self.rate = config.rate;
        self.of_link(batch, 0, config);
        self.tails(batch, 0);
    }

    /// Appends requests for the lengths of the queues of best effort.
    fn tails(&self, batch: &mut Batch, flags: i32) {
        let queue = (self.rate / 10).max(LEAST_QUEUE);
        for (leaf, minor) in [(LEAF, BEST_EFFORT), (EXCESS_LEAF, EXCESS)] {
            batch
                .begin(libc::RTM_NEWQDISC, flags, &message(self.ifindex, leaf, class_id(minor)))
                .attribute(TCA_KIND, b"bfifo\0")
                .attribute(TCA_OPTIONS, &u32::try_from(queue).unwrap_or(u32::MAX).to_ne_bytes());
        }
    }

    /// Appends a request to serve a class at `rate` at least and at `ceiling` at most, octets a second. With `last`,
    /// the class gets bandwidth beyond `rate` only after all others, best effort included. A class of the pool is made if it is not
    /// there.
    pub(super) fn change(&self, batch: &mut Batch, minor: u16, rate: u64, ceiling: Option<u64>, last: bool) {
        let rate = rate.max(IDLE);
        let rates = [rate, ceiling.unwrap_or(self.rate).max(rate)];
        let priority = if last { LAST } else { priority(minor) };
        let flags = if is_own(minor) { libc::NLM_F_CREATE } else { 0 };
        self.class(batch, flags, minor, class_id(ROOT_CLASS), rates, priority);
    }

    /// Appends a request for a bounded queue of a class of the pool: without one it has room for as many packets as the interface says, a
    /// thousand as a rule. `burst` octets have room at least.
    pub(super) fn bound(&self, batch: &mut Batch, minor: u16, rate: u64, burst: u32) {
        let room = (rate / PARTS_OF_SECOND).saturating_add(PACKETS).max(burst.into());
        batch
            .begin(
                libc::RTM_NEWQDISC,
                libc::NLM_F_CREATE,
                &message(self.ifindex, own_leaf(minor), class_id(minor)),
            )
            .attribute(TCA_KIND, b"bfifo\0")
            .attribute(TCA_OPTIONS, &u32::try_from(room).unwrap_or(u32::MAX).to_ne_bytes());
    }

    /// Appends a request that takes this bound away.
    pub(super) fn unbound(&self, batch: &mut Batch, minor: u16) {
        batch.begin(libc::RTM_DELQDISC, 0, &message(self.ifindex, own_leaf(minor), class_id(minor)));
    }

    fn class(&self, batch: &mut Batch, flags: i32, minor: u16, parent: u32, rates: [u64; 2], priority: u32) {
        let [rate, ceiling] = rates;
        let mut parameters = Vec::with_capacity(44);
        for rate in rates {
            // No cell log, overhead or least packet size.
            parameters.extend_from_slice(&[0, TC_LINKLAYER_ETHERNET, 0, 0, 0, 0, 0, 0]);
            parameters.extend_from_slice(&u32::try_from(rate).unwrap_or(u32::MAX).to_ne_bytes());
        }
        let quantum = 2000; // octets served in one turn of borrowing: about a packet
        for value in [burst(rate), burst(ceiling), quantum, 0, priority] {
            parameters.extend_from_slice(&value.to_ne_bytes());
        }
        batch
            .begin(libc::RTM_NEWTCLASS, flags, &message(self.ifindex, class_id(minor), parent))
            .attribute(TCA_KIND, b"htb\0")
            .nest(TCA_OPTIONS, |batch| {
                batch
                    .attribute(TCA_HTB_PARMS, &parameters)
                    .attribute(TCA_HTB_RATE64, &rate.to_ne_bytes())
                    .attribute(TCA_HTB_CEIL64, &ceiling.to_ne_bytes())
            });
    }

    /// Attaches a classifier to the qdisc. The one that is there is replaced: no packet passes without a classifier.
    pub(super) fn classify(&self, connection: &mut Connection, program: i32) -> io::Result<()> {
        let mut options = Vec::new();
        let class = class_id(BEST_EFFORT);
        for (kind, data) in [
            (TCA_BPF_FD, &program.to_ne_bytes()[..]),
            (TCA_BPF_NAME, &[NAME, b"\0\0"].concat()),
            (TCA_BPF_FLAGS, &TCA_BPF_FLAG_ACT_DIRECT.to_ne_bytes()),
            (TCA_BPF_CLASSID, &class.to_ne_bytes()), // its major number is that of the classes that it selects
        ] {
            options.extend_from_slice(&(4 + data.len() as u16).to_ne_bytes());
            options.extend_from_slice(&kind.to_ne_bytes());
            options.extend_from_slice(data);
        }
        let mut fixed = message(self.ifindex, 1, MAJOR);
        let (preference, protocol) = (1_u32, u32::from(ETH_P_ALL.to_be()));
        fixed[16..20].copy_from_slice(&(preference << 16 | protocol).to_ne_bytes());
        let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE;
        connection
            .begin(libc::RTM_NEWTFILTER, flags, &fixed)
            .attribute(TCA_KIND, b"bpf\0")
            .attribute(TCA_OPTIONS, &options)
            .transact(|_| {})
    }

    /// Whether the queues of best effort and of excess are there, all classes beside the pool, and these classes of the pool.
    ///
    /// Only the classes of this link are asked for, which name their queues. The kernel's list of the queues of all links can lack some: it
    /// goes on at a number, and the numbers change when an interface is removed meanwhile.
    pub(super) fn are_whole(&self, connection: &mut Connection, pool: &BTreeSet<u16>) -> io::Result<bool> {
        let (mut leaves, mut fixed_classes, mut of_pool) = (0, 0, 0);
        let number = |fixed: &[u8; 20], at: usize| fixed.get(at..).and_then(u32_of);
        let everything = message(self.ifindex, 0, 0);
        connection.begin(libc::RTM_GETTCLASS, libc::NLM_F_DUMP, &everything).transact(|answer| {
            let Some((fixed, _)) = answer.split::<20>() else { return };
            let Some(minor) = number(fixed, 8).and_then(|class| u16::try_from(class ^ MAJOR).ok()) else {
                return;
            };
            let leaf = [(BEST_EFFORT, LEAF), (EXCESS, EXCESS_LEAF)]
                .contains(&(minor, number(fixed, 16).unwrap_or(0)));
            leaves += usize::from(leaf);
            fixed_classes += usize::from(!is_own(minor));
            of_pool += usize::from(pool.contains(&minor));
        })?;
        Ok(leaves == 2 && fixed_classes == FIXED_CLASSES && of_pool == pool.len())
    }

    /// Whether our eBPF filter is attached to the qdisc.
    pub(super) fn are_classified(&self, connection: &mut Connection) -> io::Result<bool> {
        let mut found = false;
        let filters = message(self.ifindex, 0, MAJOR);
        connection.begin(libc::RTM_GETTFILTER, libc::NLM_F_DUMP, &filters).transact(|answer| {
            let Some((_, mut attributes)) = answer.split::<20>() else { return };
            let Some((_, options)) = attributes.find(|(kind, _)| *kind == TCA_OPTIONS) else { return };
            found |= Attributes(options).any(|(kind, name)| kind == TCA_BPF_NAME && name == NAME);
        })?;
        Ok(found)
    }

    /// The counters of a class: packets sent, octets sent, packets dropped.
    pub(super) fn sent(&self, connection: &mut Connection, minor: u16) -> io::Result<[u64; 3]> {
        let mut sent = [0; 3];
        connection // Without the echo only other sockets would receive the answer.
            .begin(
                libc::RTM_GETTCLASS,
                libc::NLM_F_ECHO | libc::NLM_F_ACK,
                &message(self.ifindex, class_id(minor), 0),
            )
            .transact(|answer| {
                let Some((_, mut attributes)) = answer.split::<20>() else { return };
                let Some((_, statistics)) = attributes.find(|(kind, _)| *kind == TCA_STATS2) else { return };
                for (kind, data) in Attributes(statistics) {
                    let number = |at: usize| data.get(at..).and_then(u32_of).map_or(0, u64::from);
                    match kind {
                        TCA_STATS_BASIC => {
                            let octets = data.first_chunk().map_or(0, |octets| u64::from_ne_bytes(*octets));
                            (sent[0], sent[1]) = (number(8), octets);
                        }
                        TCA_STATS_QUEUE => sent[2] = number(8),
                        _ => {}
                    }
                }
            })?;
        Ok(sent)
    }
}

/// The number of the bounded queue of a class of the pool.
const fn own_leaf(minor: u16) -> u32 {
    (OWN_LEAF + (minor - POOL) as u32) << 16
}

const fn priority(minor: u16) -> u32 {
    match minor {
        GUARANTEED => FIRST,
        CONTROLLED_LOAD => SHARED,
        // Expedited forwarding and voice-admit (RFC 3246, RFC 5865).
        minor if minor == DSCP + 46 || minor == DSCP + 44 => FIRST,
        POOL.. => OWN,
        _ => SHARED,
    }
}

/// The burst of a class, as time in units of 64 ns: two full packets, and the octets of two milliseconds, because the
/// kernel's timers may be that late.
fn burst(rate: u64) -> u32 {
    const NANOSECONDS: u64 = 1_000_000_000;
    let nanoseconds = (3200 * NANOSECONDS / rate.max(1)).saturating_add(2_000_000);
    u32::try_from(nanoseconds >> 6).unwrap_or(u32::MAX)
}

/// The `struct tc_sizespec` with only `overhead` set.
fn size_table(overhead: i32) -> Vec<u8> {
    let mut table = vec![0; 4]; // cell_log, size_log, cell_align
    for value in [overhead, i32::from(TC_LINKLAYER_ETHERNET), 0, 0, 0] {
        table.extend_from_slice(&value.to_ne_bytes()); // overhead, linklayer, mpu, mtu, tsize
    }
    table
}

/// `struct tcmsg`.
fn message(ifindex: u32, handle: u32, parent: u32) -> [u8; 20] {
    let mut message = [0; 20];
    for (at, value) in [(4, ifindex), (8, handle), (12, parent)] {
        message[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    message
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::netlink::codec::{Messages, attribute};
    use crate::simulated::{self, Kernel, Shared};

    #[test]
    fn classes_have_numbers_of_their_own() {
        let services = [ServiceClass::Guaranteed, ServiceClass::ControlledLoad].into_iter();
        let minors: Vec<u16> = [ROOT_CLASS, BEST_EFFORT, OWN_SIGNALING, PASSING_SIGNALING, EXCESS]
            .into_iter()
            .chain(services.chain((0..64).map(ServiceClass::Dscp)).map(shared))
            .chain((0..MOST_CLASSES).map(own))
            .collect();
        assert_eq!(minors.iter().collect::<BTreeSet<_>>().len(), minors.len());
        assert_eq!(minors.len(), FIXED_CLASSES + usize::from(MOST_CLASSES));
        // The kernel gives numbers from 8000: on to queues without one.
        let leaves: BTreeSet<u32> = (0..MOST_CLASSES).map(|number| own_leaf(own(number))).collect();
        assert!(leaves.len() == usize::from(MOST_CLASSES) && leaves.iter().all(|leaf| leaf >> 16 < 0x8000));
        assert!(![MAJOR, LEAF, EXCESS_LEAF].iter().any(|taken| leaves.contains(taken)));
        assert_eq!(shared(ServiceClass::Dscp(0x7f)), shared(ServiceClass::Dscp(0x3f)));
    }

    /// A kernel with one link of ours, whose classes have these leaves. Its list of all queues is empty.
    struct Listing(Vec<(u16, u32)>);

    impl Kernel for Listing {
        fn ask(&mut self, _: isize, requests: &[u8]) -> Vec<Vec<u8>> {
            let request = Messages(requests).next().unwrap();
            let answer =
                |kind, body: &[u8]| simulated::message(kind, libc::NLM_F_MULTI, request.sequence, body);
            let classes = self.0.iter().filter(|_| request.kind == libc::RTM_GETTCLASS);
            let classes = classes.map(|(minor, leaf)| {
                let mut fixed = message(7, class_id(*minor), MAJOR);
                fixed[16..].copy_from_slice(&leaf.to_ne_bytes());
                answer(libc::RTM_NEWTCLASS.into(), &fixed)
            });
            classes.chain([answer(libc::NLMSG_DONE, &[0; 4])]).collect()
        }
    }

    #[test]
    fn a_link_is_whole_whatever_the_kernel_lists_of_others() {
        let dscps = (0..64).map(|dscp| shared(ServiceClass::Dscp(dscp)));
        let minors =
            [ROOT_CLASS, BEST_EFFORT, OWN_SIGNALING, PASSING_SIGNALING, EXCESS, GUARANTEED, CONTROLLED_LOAD];
        let minors: Vec<u16> = minors.into_iter().chain(dscps).chain([own(3)]).collect();
        let whole = |without: u16, excess: u32| {
            let leaf = |minor| match minor {
                BEST_EFFORT => LEAF,
                EXCESS => excess,
                _ => 0,
            };
            let there = minors.iter().filter(|minor| **minor != without);
            let kernel: Shared =
                Arc::new(Mutex::new(Listing(there.map(|minor| (*minor, leaf(*minor))).collect())));
            let mut connection = simulated::run(&kernel, Connection::open).unwrap();
            Queues::new(7, 1_000_000).are_whole(&mut connection, &BTreeSet::from([own(3)])).unwrap()
        };
        assert!(whole(0, EXCESS_LEAF));
        // A queue in the place of ours, and classes that are missing.
        assert!(!whole(0, 0x8001 << 16) && !whole(own(3), EXCESS_LEAF) && !whole(EXCESS, EXCESS_LEAF));
    }

    /// A kernel with our qdisc at link 7, of this kind by what the link says. Its list of qdiscs lacks it so many times.
    struct Lacking {
        times: u32,
        kind: &'static [u8],
        asked: Vec<u16>,
    }

    impl Kernel for Lacking {
        fn ask(&mut self, _: isize, requests: &[u8]) -> Vec<Vec<u8>> {
            let request = Messages(requests).next().unwrap();
            self.asked.push(request.kind);
            let answer = |kind, flags, body: &[u8]| simulated::message(kind, flags, request.sequence, body);
            if request.kind == libc::RTM_GETLINK {
                let body = [&[0; 16][..], &attribute(6, self.kind)].concat();
                return vec![answer(libc::RTM_NEWLINK.into(), 0, &body)];
            }
            let mut list = vec![answer(libc::NLMSG_DONE, libc::NLM_F_MULTI, &[0; 4])];
            if self.times > 0 {
                self.times -= 1;
            } else {
                let init =
                    attribute(TCA_HTB_INIT, &[3, 10, u32::from(BEST_EFFORT)].map(u32::to_ne_bytes).concat());
                let attributes = [attribute(TCA_KIND, b"htb\0"), attribute(TCA_OPTIONS, &init)].concat();
                let body = [&message(7, MAJOR, TC_H_ROOT)[..], &attributes].concat();
                list.insert(0, answer(libc::RTM_NEWQDISC.into(), libc::NLM_F_MULTI, &body));
            }
            list
        }
    }

    /// A list that lacks our qdisc is no sign that it is gone, unless the link says so: one of another program would be replaced.
    #[test]
    fn a_qdisc_that_the_list_lacks_is_looked_for() {
        let ask = |times, kind| {
            let kernel = Arc::new(Mutex::new(Lacking { times, kind, asked: Vec::new() }));
            let shared: Shared = kernel.clone();
            let mut connection = simulated::run(&shared, Connection::open).unwrap();
            let found = root(&mut connection, 7).map_err(|error| error.kind());
            (found, kernel.lock().unwrap().asked.len())
        };
        assert_eq!(ask(0, b"htb\0"), (Ok(Root::Ours), 1));
        assert_eq!(ask(3, b"htb\0"), (Ok(Root::Ours), 7));
        assert_eq!(ask(1, b"noqueue\0"), (Ok(Root::Default), 2));
        assert_eq!(ask(u32::MAX, b"htb\0"), (Err(io::ErrorKind::Interrupted), 20));
    }

    #[test]
    fn a_burst_is_time() {
        assert_eq!(burst(1_250_000), ((3200 * 800 + 2_000_000) >> 6) as u32);
        assert_eq!(burst(0), u32::try_from((3_200_000_000_000_u64 + 2_000_000) >> 6).unwrap_or(u32::MAX));
    }
}
