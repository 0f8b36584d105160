//! The classifier in the kernel: `bpf/traffic.c`, its maps, and the owner of each filter.
//!
//! [`Loaded`] is made at the start, for each configured link whether it exists or not. So the process needs no right to load
//! programs later, when a link appears.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use signalbox_core::traffic::{FlowFilter, ReserveError, TrafficSpec};

use super::config::LinkConfig;
use super::filter::{KEY, Key, SHAPES, Shape, encode};
use super::htb::BEST_EFFORT;
use super::object::{OBJECT, Object};
use super::signaling::{Kind, Signaling};
use super::{Flow, Statistics};
use crate::sys::bpf::{Map, MapKind, load_classifier};

// Octets of the structures in bpf/traffic.c.
const SHAPES_SIZE: usize = 32 + SHAPES * KEY;
const POLICY: usize = 64;
const STATE: usize = 64;
/// Number of tokens for one octet.
const TOKENS: u64 = 1_000_000_000;
/// Octets by which a packet of many segments may overdraw the bucket.
const DEBT: u64 = 1 << 20;
const NO_MARK: u8 = 0xff;

/// An installed filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Encoded {
    ipv6: bool,
    shape: Shape,
    key: Key,
}

/// A shape in use.
#[derive(Debug, Clone, Copy)]
struct Used {
    shape: Shape,
    number: u8,
    filters: u32,
}

/// A classifier that the kernel has accepted, with its maps, for one link after the other.
#[derive(Debug)]
pub(super) struct Loaded {
    fd: OwnedFd,
    shapes: Map,
    flows: Map,
    policies: Map,
    states: Map,
}

/// The classifier of one link.
#[derive(Debug)]
pub(super) struct Program {
    kernel: Loaded,
    link_header: u32,
    /// `struct signaling`.
    signaling: [u8; 12],
    /// The end of all reservations, nanoseconds of CLOCK_MONOTONIC; 0: no end.
    until: u64,
    most_flows: usize,
    /// The shapes in use for each IP version, the most specific first.
    used: [Vec<Used>; 2],
    /// The reservations that have a filter. The last one gets the filter's packets.
    owners: HashMap<[u8; KEY], Vec<u32>>,
}

/// The filters that a link can have: some reservations have several.
const fn most_flows(config: &LinkConfig) -> u32 {
    config.max_reservations + config.max_reservations / 2
}

/// The octets that Linux 5.10 counts as locked memory for the classifier of a link with its maps, at most: an element of a hash takes
/// 48 octets and an entry of a list beside its key and its value.
pub(super) fn locked_memory(config: &LinkConfig) -> u64 {
    const ELEMENT: usize = 48 + 2 * 16 + KEY + 8;
    /// The program, the shapes, and the rest of a page of each map.
    const FIXED: u64 = 128 * 1024;
    let slots = u64::from(config.max_reservations) + Kind::ALL.len() as u64;
    u64::from(most_flows(config)) * ELEMENT as u64 + slots * (POLICY + STATE) as u64 + FIXED
}

/// Writes the token buckets of signaling.
fn limit_signaling(policies: &Map, config: &LinkConfig) -> io::Result<()> {
    for kind in Kind::ALL {
        let traffic = kind.bucket(config.signaling);
        let flow = Flow { traffic: &traffic, queue: kind.class(), excess: BEST_EFFORT, mark_dscp: None };
        policies.update(&(config.max_reservations + kind as u32).to_ne_bytes(), &policy(&flow))?;
    }
    Ok(())
}

impl Loaded {
    /// Loads the classifier, with maps of the configured size.
    pub(super) fn load(config: &LinkConfig) -> io::Result<Self> {
        let broken = || io::Error::new(io::ErrorKind::InvalidData, "the object in this program is broken");
        let most = config.max_reservations;
        let most_flows = most_flows(config);
        let shapes = Map::create("sbx_shapes", MapKind::Array, 4, SHAPES_SIZE, 2)?;
        let flows = Map::create("sbx_flows", MapKind::Hash, KEY, 4, most_flows)?;
        // The last slots are those of signaling.
        let slots = most + Kind::ALL.len() as u32;
        let policies = Map::create("sbx_policies", MapKind::Array, 4, POLICY, slots)?;
        let states = Map::create("sbx_states", MapKind::Array, 4, STATE, slots)?;
        let object = Object::new(OBJECT).ok_or_else(broken)?;
        let fd_of = |name: &str| match name {
            "shapes" => Some(shapes.raw()),
            "flows" => Some(flows.raw()),
            "policies" => Some(policies.raw()),
            "states" => Some(states.raw()),
            _ => None,
        };
        let code = object.program("classifier", fd_of).ok_or_else(broken)?;
        let license = object.section("license").ok_or_else(broken)?;
        let fd = load_classifier("signalbox", &code, license)?;
        Ok(Self { fd, shapes, flows, policies, states })
    }

    /// The same program and maps, for another user of them.
    fn again(&self) -> io::Result<Self> {
        Ok(Self {
            fd: self.fd.try_clone()?,
            shapes: self.shapes.again()?,
            flows: self.flows.again()?,
            policies: self.policies.again()?,
            states: self.states.again()?,
        })
    }
}

impl Program {
    /// Uses the classifier at a link. What it knew of a link before is removed.
    pub(super) fn new(
        loaded: &Loaded,
        config: &LinkConfig,
        link_header: u32,
        signaling: Signaling,
    ) -> io::Result<Self> {
        let kernel = loaded.again()?;
        kernel.flows.clear(most_flows(config))?;
        limit_signaling(&kernel.policies, config)?;
        let signaling =
            if config.signaling == 0 { [0; 12] } else { signaling_of(signaling, config.max_reservations) };
        let program = Self {
            kernel,
            link_header,
            signaling,
            until: 0,
            most_flows: usize::try_from(most_flows(config)).unwrap_or(usize::MAX),
            used: [Vec::new(), Vec::new()],
            owners: HashMap::new(),
        };
        program.write_shapes(false)?;
        program.write_shapes(true)?;
        Ok(program)
    }

    /// Polices signaling at the rate of other settings.
    pub(super) fn set_rates(&self, config: &LinkConfig) -> io::Result<()> {
        limit_signaling(&self.kernel.policies, config)
    }

    /// Ends the effect of the program at a time of CLOCK_MONOTONIC, whether this process runs or not: packets are best effort
    /// from then on.
    pub(super) fn end_at(&mut self, until: Duration) -> io::Result<()> {
        self.until = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        self.write_shapes(false)?;
        self.write_shapes(true)
    }

    /// The descriptor of the program.
    pub(super) fn raw(&self) -> i32 {
        self.kernel.fd.as_raw_fd()
    }

    /// Encodes the filters that will replace `old`, or returns why they cannot be installed.
    pub(super) fn encode(
        &self,
        filters: &[FlowFilter],
        old: &[Encoded],
    ) -> Result<Vec<Encoded>, ReserveError> {
        let mut encoded: Vec<Encoded> = Vec::with_capacity(filters.len());
        let mut seen = HashSet::new();
        for filter in filters {
            let (shape, key) = encode(filter).ok_or(ReserveError::Unsupported)?;
            let one = Encoded { ipv6: !filter.is_ipv4(), shape, key };
            if filters.len() == 1 || seen.insert(one) {
                encoded.push(one);
            }
        }
        if encoded.is_empty() {
            return Err(ReserveError::Unsupported);
        }
        // New filters are added before old ones are removed.
        let new = encoded.iter().filter(|one| !old.contains(one));
        let mut more: Vec<(bool, Shape)> = Vec::new();
        let mut keys = 0;
        for one in new {
            keys += 1;
            let known = self.family(one.ipv6).iter().any(|used| used.shape == one.shape);
            if !known && !more.contains(&(one.ipv6, one.shape)) {
                more.push((one.ipv6, one.shape));
            }
        }
        let room =
            |ipv6| self.family(ipv6).len() + more.iter().filter(|(v6, _)| *v6 == ipv6).count() <= SHAPES;
        if keys + self.owners.len() > self.most_flows || !room(false) || !room(true) {
            return Err(ReserveError::Full);
        }
        Ok(encoded)
    }

    /// Writes the policy of `slot` and gives it the packets of `new` instead of those of `old`. Without `old` the slot
    /// begins with a full bucket.
    pub(super) fn install(
        &mut self,
        slot: u32,
        flow: &Flow<'_>,
        new: &[Encoded],
        old: &[Encoded],
    ) -> io::Result<()> {
        let policy = policy(flow);
        if old.is_empty() {
            self.kernel.states.update(&slot.to_ne_bytes(), &full(&policy))?;
        }
        self.kernel.policies.update(&slot.to_ne_bytes(), &policy)?;
        for (at, one) in new.iter().enumerate() {
            if !old.contains(one)
                && let Err(error) = self.add(slot, one)
            {
                // The added filters are removed again. The kernel accepts the removal of what it added a moment ago.
                for added in new.iter().take(at).filter(|one| !old.contains(one)) {
                    let _ = self.take(slot, added);
                }
                return Err(error);
            }
        }
        old.iter().filter(|one| !new.contains(one)).try_for_each(|one| self.take(slot, one))
    }

    /// Takes all packets from `slot`.
    pub(super) fn remove(&mut self, slot: u32, filters: &[Encoded]) -> io::Result<()> {
        filters.iter().map(|one| self.take(slot, one)).fold(Ok(()), io::Result::and)
    }

    /// The packets and octets that `slot` has counted.
    pub(super) fn statistics(&self, slot: u32) -> io::Result<Statistics> {
        let mut state = [0; STATE];
        self.kernel.states.lookup(&slot.to_ne_bytes(), &mut state)?;
        let number =
            |at: usize| state.get(at..).and_then(|s| s.first_chunk()).map_or(0, |v| u64::from_ne_bytes(*v));
        Ok(Statistics {
            packets: number(32),
            octets: number(40),
            policed_packets: number(48),
            policed_octets: Some(number(56)),
        })
    }

    fn add(&mut self, slot: u32, one: &Encoded) -> io::Result<()> {
        let used = &mut self.used[usize::from(one.ipv6)];
        let number = match used.iter_mut().find(|used| used.shape == one.shape) {
            Some(used) => {
                used.filters += 1;
                used.number
            }
            None => {
                let first = if one.ipv6 { SHAPES as u8 } else { 0 };
                let free = (first..).find(|number| used.iter().all(|used| used.number != *number));
                let number = free.ok_or_else(|| io::Error::from_raw_os_error(libc::E2BIG))?;
                used.push(Used { shape: one.shape, number, filters: 1 });
                used.sort_by_key(|used| std::cmp::Reverse((used.shape.specificity(), used.shape)));
                self.write_shapes(one.ipv6)?;
                number
            }
        };
        let key = one.key.numbered(number);
        let owners = self.owners.entry(key).or_default();
        owners.push(slot);
        self.kernel.flows.update(&key, &slot.to_ne_bytes()).inspect_err(|_| {
            // This restores the previous state. An error here would be the same one.
            let _ = self.take(slot, one);
        })
    }

    fn take(&mut self, slot: u32, one: &Encoded) -> io::Result<()> {
        let used = &mut self.used[usize::from(one.ipv6)];
        let Some(at) = used.iter().position(|used| used.shape == one.shape) else { return Ok(()) };
        let number = used[at].number;
        let key = one.key.numbered(number);
        let owners = self.owners.entry(key).or_default();
        owners.retain(|owner| *owner != slot);
        let result = match owners.last() {
            Some(last) => self.kernel.flows.update(&key, &last.to_ne_bytes()),
            None => {
                self.owners.remove(&key);
                self.kernel.flows.delete(&key)
            }
        };
        used[at].filters = used[at].filters.saturating_sub(1);
        if used[at].filters == 0 {
            used.remove(at);
            return result.and(self.write_shapes(one.ipv6));
        }
        result
    }

    fn family(&self, ipv6: bool) -> &[Used] {
        &self.used[usize::from(ipv6)]
    }

    fn write_shapes(&self, ipv6: bool) -> io::Result<()> {
        let used = self.family(ipv6);
        let mut value = Vec::with_capacity(SHAPES_SIZE);
        value.extend_from_slice(&u32::try_from(used.len()).unwrap_or(0).to_ne_bytes());
        value.extend_from_slice(&self.link_header.to_ne_bytes());
        value.extend_from_slice(&self.signaling);
        value.extend_from_slice(&[0; 4]);
        value.extend_from_slice(&self.until.to_ne_bytes());
        used.iter().take(SHAPES).for_each(|used| value.extend_from_slice(&used.shape.numbered(used.number)));
        value.resize(SHAPES_SIZE, 0);
        self.kernel.shapes.update(&u32::from(ipv6).to_ne_bytes(), &value)
    }
}

/// `struct signaling`.
fn signaling_of(signaling: Signaling, slot: u32) -> [u8; 12] {
    let mut octets = [0; 12];
    octets[..4].copy_from_slice(&signaling.mark.to_ne_bytes());
    octets[4..8].copy_from_slice(&slot.to_ne_bytes());
    octets[8..10].copy_from_slice(&signaling.port.to_be_bytes());
    octets
}

/// `struct policy`.
fn policy(flow: &Flow<'_>) -> [u8; POLICY] {
    let TrafficSpec { rate, burst, peak, min_policed, max_packet } = *flow.traffic;
    let bucket = |rate: u64, octets: u32| {
        let (rate, depth) = (rate.max(1), u64::from(octets) * TOKENS);
        [rate, depth, (depth + DEBT * TOKENS) / rate + 1]
    };
    let max_packet = if max_packet == 0 { u32::MAX } else { max_packet };
    let peak = peak.map_or([0; 3], |peak| bucket(peak, max_packet));
    let mut policy = [0; POLICY];
    let mut put = |at: usize, octets: &[u8]| policy[at..at + octets.len()].copy_from_slice(octets);
    for (at, value) in (0..).step_by(8).zip(bucket(rate, burst).into_iter().chain(peak)) {
        put(at, &value.to_ne_bytes());
    }
    put(48, &min_policed.to_ne_bytes());
    put(52, &max_packet.to_ne_bytes());
    put(56, &flow.queue.to_ne_bytes());
    put(58, &flow.excess.to_ne_bytes());
    put(60, &[flow.mark_dscp.map_or(NO_MARK, |dscp| dscp & 0x3f)]);
    policy
}

/// The `struct state` with full buckets. Empty ones would hold no more than the tokens since the machine started.
fn full(policy: &[u8; POLICY]) -> [u8; STATE] {
    let mut state = [0; STATE];
    state[..8].copy_from_slice(&policy[8..16]);
    state[16..24].copy_from_slice(&policy[32..40]);
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the sizes with those of the compiled program.
    #[test]
    fn the_maps_are_those_of_the_program() {
        let object = Object::new(OBJECT).unwrap();
        let sizes = [
            ("shapes", MapKind::Array, 4, SHAPES_SIZE),
            ("flows", MapKind::Hash, KEY, 4),
            ("policies", MapKind::Array, 4, POLICY),
            ("states", MapKind::Array, 4, STATE),
        ];
        for (name, kind, key, value) in sizes {
            let definition = object.data_of("maps", name, 20).unwrap();
            let numbers: Vec<u32> =
                definition.chunks_exact(4).map(|v| u32::from_le_bytes(v.try_into().unwrap())).collect();
            assert_eq!(numbers[..3], [kind as u32, key as u32, value as u32], "{name}");
        }
    }

    #[test]
    fn a_policy_is_laid_out_as_the_program_reads_it() {
        let traffic =
            TrafficSpec { rate: 1000, burst: 5, peak: Some(u64::MAX), min_policed: 64, max_packet: 1500 };
        let flow = Flow { traffic: &traffic, queue: 0x102, excess: 5, mark_dscp: Some(46) };
        let policy = policy(&flow);
        let number = |at: usize| u64::from_ne_bytes(policy[at..at + 8].try_into().unwrap());
        assert_eq!([number(0), number(8)], [1000, 5_000_000_000]);
        assert_eq!(number(16), (5 + DEBT) * 1_000_000 + 1);
        assert_eq!([number(24), number(32)], [u64::MAX, 1_500_000_000_000]);
        assert_eq!(policy[48..56], [64_u32, 1500].map(u32::to_ne_bytes).concat());
        assert_eq!(
            policy[56..61],
            [[0x02, 0x01], [5, 0]].concat().into_iter().chain([46]).collect::<Vec<_>>()
        );
    }

    #[test]
    fn signaling_is_laid_out_as_the_program_reads_it() {
        let octets = signaling_of(Signaling { mark: 0x5b00_010f, port: 270 }, 16_384);
        assert_eq!(octets[..8], [0x5b00_010f_u32, 16_384].map(u32::to_ne_bytes).concat());
        assert_eq!(octets[8..], [1, 14, 0, 0]);
    }

    /// A refill in the program must not overflow: elapsed time multiplied by the rate, added to a full bucket.
    #[test]
    fn no_bucket_overflows() {
        for rate in [1, 999, u64::from(u32::MAX), u64::MAX] {
            let traffic = TrafficSpec { rate, burst: u32::MAX, peak: None, min_policed: 0, max_packet: 0 };
            let flow = Flow { traffic: &traffic, queue: 1, excess: 0, mark_dscp: None };
            let policy = policy(&flow);
            let number = |at: usize| u128::from(u64::from_ne_bytes(policy[at..at + 8].try_into().unwrap()));
            let most = number(8) + (number(16) - 1) * number(0);
            assert!(most < i64::MAX as u128, "rate {rate}: {most}");
        }
    }
}
