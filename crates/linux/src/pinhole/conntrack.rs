//! The flows of connection tracking, over ctnetlink: those that pinholes let in are found by their mark, and deleted; of any one
//! the translation is read.

use std::io;
use std::net::{IpAddr, SocketAddr};

use netlink_sys::protocols::NETLINK_NETFILTER;

use signalbox_core::pinhole::Translation;

use super::flow::Tuple;
use crate::netlink::Batch;
use crate::netlink::codec::{self, Attributes, Connection, Message, NESTED, find};
use crate::netlink::nftables::{NFPROTO_IPV4, NFPROTO_IPV6, about};

const SUBSYSTEM: u16 = 1; // NFNL_SUBSYS_CTNETLINK
const CT_GET: u16 = SUBSYSTEM << 8 | 1;
const CT_DELETE: u16 = SUBSYSTEM << 8 | 2;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_STATUS: u16 = 3;
const CTA_MARK: u16 = 8;
const CTA_ID: u16 = 12;
const CTA_MARK_MASK: u16 = 21;
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_IP_V6_DST: u16 = 4;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_SRC_PORT: u16 = 2;
const CTA_PROTO_DST_PORT: u16 = 3;
/// The other side has answered.
const SEEN_REPLY: u32 = 1 << 1; // IPS_SEEN_REPLY
/// Identifier, type and code, of ICMP and of ICMPv6.
const CTA_PROTO_ICMP: [[u16; 3]; 2] = [[4, 5, 6], [7, 8, 9]];

/// A flow of connection tracking.
struct Tracked {
    family: u8,
    /// It has our mark.
    marked: bool,
    answered: bool,
    /// The attributes that identify it to the kernel.
    tuple: Vec<u8>,
    id: Vec<u8>,
    /// Its first packet; `None`: it is of a kind that pinholes cannot let in.
    first: Option<Tuple>,
    /// An answer to it, which has the ends after translation, inverted.
    answer: Option<Tuple>,
}

/// The connections to ctnetlink.
pub(super) struct Flows {
    mark: u32,
    connection: Connection,
    /// The connection of a walk over all flows, and whether there is one.
    walk: Connection,
    walking: bool,
    deletions: Batch,
}

impl Flows {
    pub(super) fn open(mark: u32) -> io::Result<Self> {
        Ok(Self {
            mark,
            connection: Connection::open_for(NETLINK_NETFILTER)?,
            walk: Connection::open_for(NETLINK_NETFILTER)?,
            walking: false,
            deletions: Batch::open(NETLINK_NETFILTER)?,
        })
    }

    /// Notes the flow that this packet began for deletion, if a pinhole let it in.
    pub(super) fn end(&mut self, tuple: &Tuple) -> io::Result<()> {
        self.note(tuple, |flow| flow.marked)
    }

    /// Notes the flow that this packet began for deletion, if no pinhole let it in and it has no answer: it would never get a
    /// binding, because the kernel decides about the translation of a flow only once.
    pub(super) fn begin_anew(&mut self, tuple: &Tuple) -> io::Result<()> {
        self.note(tuple, |flow| !flow.marked && !flow.answered)
    }

    /// How the kernel translates this packet, as the first one of a flow or as an answer; `None`: it tracks no flow of it,
    /// or one that it does not translate.
    pub(super) fn translation(&mut self, tuple: &Tuple) -> io::Result<Option<Translation>> {
        let mark = self.mark;
        let mut found = None;
        get(&mut self.connection, tuple, |message| found = translation(message, tuple, mark))?;
        Ok(found)
    }

    fn note(&mut self, tuple: &Tuple, wanted: impl Fn(&Tracked) -> bool) -> io::Result<()> {
        let (mark, deletions) = (self.mark, &mut self.deletions);
        get(&mut self.connection, tuple, |message| {
            // The kernel also finds flows in which this packet is an answer.
            if let Some(flow) = parse(message, mark).filter(|flow| flow.first == Some(*tuple))
                && wanted(&flow)
            {
                delete(deletions, &flow);
            }
        })
    }

    /// Begins a walk over all flows with our mark. [`Self::step`] goes on with it.
    pub(super) fn begin_walk(&mut self) -> io::Result<()> {
        let mark = self.mark.to_be_bytes();
        // An unfinished walk is left: its answers have an older number.
        if std::mem::take(&mut self.walking) {
            self.walk = Connection::open_for(NETLINK_NETFILTER)?;
        }
        self.walk
            .begin(CT_GET, libc::NLM_F_DUMP, &about(0))
            .attribute(CTA_MARK, &mark)
            .attribute(CTA_MARK_MASK, &mark)
            .send()?;
        self.walking = true;
        Ok(())
    }

    /// Whether a walk goes on.
    pub(super) const fn is_walking(&self) -> bool {
        self.walking
    }

    /// Reads one portion of the walk, and notes the flows for deletion of which `keep` is false for the first packet and an answer.
    pub(super) fn step(&mut self, keep: impl Fn(&Tuple, &Tuple) -> bool) -> io::Result<()> {
        let (mark, deletions) = (self.mark, &mut self.deletions);
        let result = self.walk.receive(&mut |message: &Message<'_>| {
            let Some(flow) = parse(message, mark).filter(|flow| flow.marked) else { return };
            let ends = flow.first.as_ref().zip(flow.answer.as_ref());
            if !ends.is_some_and(|(first, answer)| keep(first, answer)) {
                delete(deletions, &flow);
            }
        });
        self.walking = matches!(result, Ok(false));
        if result.is_err() {
            // The kernel may go on with its list, and would refuse another one to the same socket.
            self.walk = Connection::open_for(NETLINK_NETFILTER)?;
        }
        result.map(drop)
    }

    /// Deletes the noted flows, and adds to `ended` how many were deleted.
    ///
    /// # Errors
    /// The first refusal of a flow that is still there. The others are deleted.
    pub(super) fn delete(&mut self, ended: &mut u64) -> io::Result<()> {
        let noted = self.deletions.len();
        let refused = self.deletions.send()?;
        *ended += noted.saturating_sub(refused.len()) as u64;
        // The kernel knows no such flow: it ended by itself.
        let mut left = refused.into_iter().filter(|(_, error)| error.raw_os_error() != Some(libc::ENOENT));
        left.next().map_or(Ok(()), |(_, error)| Err(error))
    }
}

/// Calls `each` with the flow in which this packet is the first one or an answer, if the kernel has one.
fn get(connection: &mut Connection, tuple: &Tuple, each: impl FnMut(&Message<'_>)) -> io::Result<()> {
    let family = if tuple.src.is_ipv4() { NFPROTO_IPV4 } else { NFPROTO_IPV6 };
    // An acknowledgement would be one more datagram to read: there is one answer, or an error.
    connection.begin(CT_GET, 0, &about(family)).nest(CTA_TUPLE_ORIG, |octets| compose(tuple, octets));
    match connection.ask(each) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        result => result,
    }
}

fn delete(deletions: &mut Batch, flow: &Tracked) {
    deletions
        .begin(CT_DELETE, 0, &about(flow.family))
        .attribute(CTA_TUPLE_ORIG | NESTED, &flow.tuple)
        .attribute(CTA_ID, &flow.id);
}

/// 32 bits of a flow. The kernel leaves out a mark of 0.
fn bits(attributes: Attributes<'_>, kind: u16) -> u32 {
    let octets = find(attributes, kind).and_then(|value| value.first_chunk());
    octets.map_or(0, |octets| u32::from_be_bytes(*octets))
}

/// The translation of this packet by the flow of a message.
fn translation(message: &Message<'_>, packet: &Tuple, mark: u32) -> Option<Translation> {
    let (_, attributes) = message.split::<4>()?;
    let tuple = |kind| first_packet(find(attributes, kind)?);
    let (first, answer) = (tuple(CTA_TUPLE_ORIG)?, tuple(CTA_TUPLE_REPLY)?);
    // The other direction has the ends after translation, inverted.
    let inverse = if first == *packet { answer } else { first };
    let translated = Translation {
        source: SocketAddr::new(inverse.dst, inverse.dst_port),
        destination: SocketAddr::new(inverse.src, inverse.src_port),
        by_pinhole: bits(attributes, CTA_MARK) & mark == mark,
    };
    let ends = (SocketAddr::new(packet.src, packet.src_port), SocketAddr::new(packet.dst, packet.dst_port));
    ((translated.source, translated.destination) != ends).then_some(translated)
}

/// The flow of a message.
fn parse(message: &Message<'_>, mark: u32) -> Option<Tracked> {
    let (fixed, attributes) = message.split::<4>()?;
    let bits = |kind| bits(attributes, kind);
    let (tuple, id) = (find(attributes, CTA_TUPLE_ORIG)?, find(attributes, CTA_ID)?);
    Some(Tracked {
        family: fixed[0],
        marked: bits(CTA_MARK) & mark == mark,
        answered: bits(CTA_STATUS) & SEEN_REPLY != 0,
        tuple: tuple.to_vec(),
        id: id.to_vec(),
        first: first_packet(tuple),
        answer: find(attributes, CTA_TUPLE_REPLY).and_then(first_packet),
    })
}

fn first_packet(tuple: &[u8]) -> Option<Tuple> {
    let inner = |kind| find(Attributes(tuple), kind).map(Attributes);
    let (addresses, ports) = (inner(CTA_TUPLE_IP)?, inner(CTA_TUPLE_PROTO)?);
    let v4 = |kind| find(addresses, kind)?.first_chunk::<4>().map(|octets| IpAddr::from(*octets));
    let v6 = |kind| find(addresses, kind)?.first_chunk::<16>().map(|octets| IpAddr::from(*octets));
    let octet = |kind| find(ports, kind)?.first().copied();
    let port = |kind| find(ports, kind)?.first_chunk().map(|octets| u16::from_be_bytes(*octets));
    let mut icmp = CTA_PROTO_ICMP.into_iter().filter_map(|[identifier, kind, code]| {
        Some((port(identifier)?, u16::from_be_bytes([octet(kind)?, octet(code)?])))
    });
    let (src_port, dst_port) = match (port(CTA_PROTO_SRC_PORT), port(CTA_PROTO_DST_PORT)) {
        (Some(source), Some(destination)) => (source, destination),
        _ => icmp.next().unwrap_or((0, 0)),
    };
    Some(Tuple {
        src: v4(CTA_IP_V4_SRC).or_else(|| v6(CTA_IP_V6_SRC))?,
        dst: v4(CTA_IP_V4_DST).or_else(|| v6(CTA_IP_V6_DST))?,
        protocol: octet(CTA_PROTO_NUM)?,
        src_port,
        dst_port,
    })
}

/// Appends the attributes of a packet with ports.
fn compose(tuple: &Tuple, octets: &mut Vec<u8>) {
    let address = |octets: &mut Vec<u8>, address: IpAddr, kinds: [u16; 2]| match address {
        IpAddr::V4(v4) => codec::put(octets, kinds[0], &v4.octets()),
        IpAddr::V6(v6) => codec::put(octets, kinds[1], &v6.octets()),
    };
    codec::nest(octets, CTA_TUPLE_IP, |octets| {
        address(octets, tuple.src, [CTA_IP_V4_SRC, CTA_IP_V6_SRC]);
        address(octets, tuple.dst, [CTA_IP_V4_DST, CTA_IP_V6_DST]);
    });
    codec::nest(octets, CTA_TUPLE_PROTO, |octets| {
        codec::put(octets, CTA_PROTO_NUM, &[tuple.protocol]);
        codec::put(octets, CTA_PROTO_SRC_PORT, &tuple.src_port.to_be_bytes());
        codec::put(octets, CTA_PROTO_DST_PORT, &tuple.dst_port.to_be_bytes());
    });
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use signalbox_core::node::Prefix;
    use signalbox_core::pinhole::{OpenerId, Pinhole};
    use signalbox_core::traffic::FlowFilter;

    use super::*;
    use crate::netlink::codec::Messages;
    use crate::netlink::nftables;
    use crate::pinhole::{PinholeConfig, Pinholes};
    use crate::simulated::{self, Kernel, Shared};

    const CT_NEW: i32 = (SUBSYSTEM as i32) << 8;
    /// GETTABLE, GETSETELEM and GETGEN of nftables, and what asks for one flow.
    const QUESTIONS: [u16; 4] = [nftables::message(1), nftables::message(13), nftables::message(16), CT_GET];

    /// A kernel that tracks one flow, and fails to list it so many times.
    struct Tracking {
        flow: Vec<u8>,
        failures: u32,
        deleted: u32,
    }

    impl Kernel for Tracking {
        fn ask(&mut self, _: isize, requests: &[u8]) -> Vec<Vec<u8>> {
            let mut answers = Vec::new();
            for request in Messages(requests) {
                let flags = i32::from(request.flags);
                let mut answer = |kind, flags, body: &[u8]| {
                    answers.push(simulated::message(kind, flags, request.sequence, body));
                };
                let listed = flags & libc::NLM_F_DUMP == libc::NLM_F_DUMP;
                if listed && request.kind == CT_GET && self.failures > 0 {
                    self.failures -= 1;
                    answer(libc::NLMSG_ERROR, 0, &(-libc::ENOBUFS).to_ne_bytes());
                } else if listed {
                    if request.kind == CT_GET {
                        answer(CT_NEW, libc::NLM_F_MULTI, &self.flow);
                    }
                    answer(libc::NLMSG_DONE, libc::NLM_F_MULTI, &[0; 4]);
                } else if flags & libc::NLM_F_ACK != 0 {
                    self.deleted += u32::from(request.kind == CT_DELETE);
                    answer(libc::NLMSG_ERROR, 0, &[0; 4]);
                } else if QUESTIONS.contains(&request.kind) {
                    answer(libc::NLMSG_ERROR, 0, &(-libc::ENOENT).to_ne_bytes());
                }
            }
            answers
        }
    }

    /// What passed by a pinhole that is closed ends with the next list that the kernel gives.
    #[test]
    fn flows_of_a_closed_pinhole_end_although_the_kernel_fails_once_to_list_them() {
        let [src, dst] = ["10.0.0.1", "10.0.0.2"].map(|address| address.parse().unwrap());
        let first = Tuple { src, dst, protocol: 17, src_port: 1000, dst_port: 5004 };
        let answer = Tuple { src: dst, dst: src, src_port: 5004, dst_port: 1000, ..first };
        let config = PinholeConfig::default();
        let mut flow = about(NFPROTO_IPV4).to_vec();
        codec::nest(&mut flow, CTA_TUPLE_ORIG, |octets| compose(&first, octets));
        codec::nest(&mut flow, CTA_TUPLE_REPLY, |octets| compose(&answer, octets));
        codec::put(&mut flow, CTA_MARK, &config.mark.to_be_bytes());
        codec::put(&mut flow, CTA_ID, &[0, 0, 0, 7]);
        let kernel = Arc::new(Mutex::new(Tracking { flow, failures: 1, deleted: 0 }));
        let deleted = || kernel.lock().unwrap().deleted;
        let shared: Shared = kernel.clone();
        simulated::run(&shared, || {
            let mut pinholes = Pinholes::open(&config).unwrap();
            // From any port, so that the kernel has to list its flows.
            let ends = FlowFilter::between(Prefix::host(src), Prefix::host(dst));
            let packets = FlowFilter { protocol: Some(17), dst_port: Some(5004), ..ends };
            let id = OpenerId::NATFW.pinhole(1);
            pinholes.request(id, Pinhole::allow(packets), Duration::from_secs(60));
            assert_eq!(pinholes.flush(), [(id, Ok(()))]);
            pinholes.release(id);
            pinholes.flush();
            assert_eq!(deleted(), 0, "the kernel has failed");
            while deleted() == 0 {
                let next = pinholes.wait_time().expect("the flow stands, and nothing is left to do");
                std::thread::sleep(next);
                pinholes.flush();
            }
            assert_eq!(deleted(), 1);
        });
    }

    #[test]
    fn a_tuple_is_read_as_it_is_written() {
        for (src, dst) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
            let tuple = Tuple { src, dst, protocol: 6, src_port: 1000, dst_port: 80 };
            let mut octets = Vec::new();
            compose(&tuple, &mut octets);
            assert_eq!(first_packet(&octets), Some(tuple));
            for cut in 0..octets.len() - 4 {
                let read = first_packet(&octets[..cut]);
                assert!(read.is_none_or(|read| read != tuple), "{cut}");
            }
        }
    }
}
