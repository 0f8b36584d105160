//! Contents of the objects of the QoS client.

use signalbox_wire::{Reader, Short, Writer};

/// Service numbers of RFC 2210.
const GUARANTEED: u8 = 2;
const CONTROLLED_LOAD: u8 = 5;
/// Parameters of RFC 2215: token bucket, and RSpec of guaranteed service.
const TOKEN_BUCKET: u8 = 127;
const RSPEC: u8 = 130;

/// An IntServ flowspec, octet for octet that of RFC 2210. The values are as received: finite, and none below zero except
/// that the peak rate may be infinite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Flowspec {
    /// Token rate r, octets a second.
    pub rate: f32,
    /// Bucket depth b, octets.
    pub bucket: f32,
    /// Peak rate p, octets a second; infinite: not known.
    pub peak: f32,
    /// Minimum policed unit m, octets.
    pub min_policed: u32,
    /// Maximum packet size M, octets.
    pub max_packet: u32,
    /// Rate R in octets a second and slack in microseconds: the service is guaranteed. Otherwise it is controlled load.
    pub guaranteed: Option<(f32, u32)>,
}

fn header(r: &mut Reader<'_>) -> Result<(u8, u8, u16), Short> {
    let [high, low] = r.array()?;
    Ok((high, low, r.u16()?))
}

fn number(r: &mut Reader<'_>) -> Result<f32, Short> {
    r.u32().map(f32::from_bits)
}

fn counts(value: f32) -> bool {
    value.is_finite() && value >= 0.0
}

impl Flowspec {
    /// Reads the contents of the object; `None`: they are no flowspec of a known service with valid values.
    #[must_use]
    pub fn parse(contents: &[u8]) -> Option<Self> {
        let mut r = Reader::new(contents);
        let parsed = Self::read(&mut r).ok().flatten()?;
        r.is_empty().then_some(parsed)
    }

    fn read(r: &mut Reader<'_>) -> Result<Option<Self>, Short> {
        let (version, _, overall) = header(r)?;
        let (service, _, length) = header(r)?;
        let (bucket, _, of_bucket) = header(r)?;
        let fits = match service {
            CONTROLLED_LOAD => (overall, length) == (7, 6),
            GUARANTEED => (overall, length) == (10, 9),
            _ => false,
        };
        if version >> 4 != 0 || !fits || (bucket, of_bucket) != (TOKEN_BUCKET, 5) {
            return Ok(None);
        }
        let (rate, bucket, peak) = (number(r)?, number(r)?, number(r)?);
        let (min_policed, max_packet) = (r.u32()?, r.u32()?);
        let guaranteed = if service == GUARANTEED {
            let (parameter, _, length) = header(r)?;
            let (served, slack) = (number(r)?, r.u32()?);
            if (parameter, length) != (RSPEC, 2) || !counts(served) {
                return Ok(None);
            }
            Some((served, slack))
        } else {
            None
        };
        let valid = counts(rate) && counts(bucket) && (counts(peak) || peak == f32::INFINITY);
        Ok(valid.then_some(Self { rate, bucket, peak, min_policed, max_packet, guaranteed }))
    }

    /// Appends the contents of the object.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let (service, overall) =
            if self.guaranteed.is_some() { (GUARANTEED, 10) } else { (CONTROLLED_LOAD, 7) };
        w.bytes(&[0, 0]);
        w.u16(overall);
        w.bytes(&[service, 0]);
        w.u16(overall - 1);
        w.bytes(&[TOKEN_BUCKET, 0]);
        w.u16(5);
        for value in [self.rate, self.bucket, self.peak] {
            w.u32(value.to_bits());
        }
        w.u32(self.min_policed);
        w.u32(self.max_packet);
        if let Some((rate, slack)) = self.guaranteed {
            w.bytes(&[RSPEC, 0]);
            w.u16(2);
            w.u32(rate.to_bits());
            w.u32(slack);
        }
    }

    /// The flowspec between `least` and this one that has token rate `rate`: bucket and peak are at the same fraction of the
    /// way between the two, packet sizes are the smaller ones.
    #[must_use]
    pub fn lowered(&self, least: &Self, rate: f32) -> Self {
        let span = self.rate - least.rate;
        let fraction = if span > 0.0 { ((rate - least.rate) / span).clamp(0.0, 1.0) } else { 1.0 };
        let between = |least: f32, most: f32| {
            if least.is_finite() && most.is_finite() {
                least + (most - least) * fraction
            } else {
                most.min(least)
            }
        };
        Self {
            rate: rate.clamp(least.rate.min(self.rate), self.rate),
            bucket: between(least.bucket, self.bucket),
            peak: between(least.peak, self.peak),
            min_policed: self.min_policed.min(least.min_policed),
            max_packet: self.max_packet.min(least.max_packet),
            guaranteed: self.guaranteed,
        }
    }
}

/// PARTIAL_RESERVATION: nodes that failed, and nodes that may. All counters stop at their ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Partial {
    /// Nodes where admission control failed or could not be carried out.
    pub failed: u16,
    /// Nodes that have no CASP or no QoS client.
    pub indeterminate: u16,
    /// Failures that are still allowed.
    pub failures_allowed: u16,
    /// Indeterminate nodes that are still allowed.
    pub indeterminate_allowed: u16,
    /// Hop count that the last node with the client saw.
    pub last_hops: u8,
}

impl Partial {
    /// Reads the contents of the object.
    #[must_use]
    pub fn parse(contents: &[u8]) -> Option<Self> {
        let mut r = Reader::new(contents);
        let mut next = || r.u16().ok();
        let (failed, indeterminate) = (next()?, next()?);
        let (failures_allowed, indeterminate_allowed) = (next()?, next()?);
        let [last_hops, ..] = r.array::<4>().ok()?;
        let parsed = Self { failed, indeterminate, failures_allowed, indeterminate_allowed, last_hops };
        r.is_empty().then_some(parsed)
    }

    /// Appends the contents of the object.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(self.failed);
        w.u16(self.indeterminate);
        w.u16(self.failures_allowed);
        w.u16(self.indeterminate_allowed);
        w.bytes(&[self.last_hops, 0, 0, 0]);
    }

    /// Counts a node that failed. Whether that was still allowed; only then the allowance goes down.
    pub const fn count_failed(&mut self) -> bool {
        self.failed = self.failed.saturating_add(1);
        let allowed = self.failures_allowed > 0;
        self.failures_allowed = self.failures_allowed.saturating_sub(1);
        allowed
    }

    /// Counts the nodes without the client between the last one that had it and this one. Whether so many were still allowed.
    pub fn count_indeterminate(&mut self, hops: u8) -> bool {
        let unaware = u16::from(hops.saturating_sub(self.last_hops).saturating_sub(1));
        self.last_hops = hops;
        self.indeterminate = self.indeterminate.saturating_add(unaware);
        let allowed = unaware <= self.indeterminate_allowed;
        self.indeterminate_allowed = self.indeterminate_allowed.saturating_sub(unaware);
        allowed
    }
}

/// BANDWIDTH: the most that is wanted and the least that is accepted, octets a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bandwidth {
    /// Upper bound.
    pub upper: f32,
    /// Lower bound.
    pub lower: f32,
}

impl Bandwidth {
    /// Reads the contents of the object; `None`: they are not two numbers in order.
    #[must_use]
    pub fn parse(contents: &[u8]) -> Option<Self> {
        let mut r = Reader::new(contents);
        let (upper, lower) = (number(&mut r).ok()?, number(&mut r).ok()?);
        let valid = counts(upper) && counts(lower) && upper >= lower && r.is_empty();
        valid.then_some(Self { upper, lower })
    }

    /// Appends the contents of the object.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.upper.to_bits());
        w.u32(self.lower.to_bits());
    }
}

/// LOCAL: data for a segment of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Local<'a> {
    /// The item.
    pub id: u16,
    /// 1 authorization token, 2 DSCP, 3 aggregation, 4 reservation priority, 5 accounting, 6 operator.
    pub kind: u8,
    /// The segment: an inner one has the higher number.
    pub scope: u8,
    /// Opaque.
    pub data: &'a [u8],
}

impl<'a> Local<'a> {
    /// Reads the contents of the object.
    #[must_use]
    pub fn parse(contents: &'a [u8]) -> Option<Self> {
        let mut r = Reader::new(contents);
        let id = r.u16().ok()?;
        let [kind, scope] = r.array().ok()?;
        Some(Self { id, kind, scope, data: r.take_rest() })
    }

    /// Appends the contents of the object.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(self.id);
        w.bytes(&[self.kind, self.scope]);
        w.bytes(self.data);
    }
}

/// What the node that failed adds to an Error: the rate that it could still give, and a text for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// Octets a second; `None`: the node does not say.
    pub available: Option<u64>,
    /// The rule or limit that refused; empty: the node does not say.
    pub note: &'a str,
}

impl<'a> Refusal<'a> {
    /// Octets of the text, at most.
    pub const MAX_NOTE: usize = 128;
    /// The rate that stands for none.
    const NOT_SAID: u64 = u64::MAX;

    /// Parses the contents of the object.
    #[must_use]
    pub fn parse(contents: &'a [u8]) -> Option<Self> {
        let (rate, text) = contents.split_first_chunk()?;
        let available = Some(u64::from_be_bytes(*rate)).filter(|rate| *rate != Self::NOT_SAID);
        let note = core::str::from_utf8(text).ok().filter(|note| note.len() <= Self::MAX_NOTE)?;
        Some(Self { available, note })
    }

    /// The beginning of a text.
    #[must_use]
    pub fn new(available: Option<u64>, note: &'a str) -> Self {
        Self { available, note: signalbox_wire::beginning(note, Self::MAX_NOTE) }
    }

    /// Writes the contents of the object.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.available.unwrap_or(Self::NOT_SAID));
        w.bytes(self.note.as_bytes());
    }

    /// The text without control characters: a stranger may have written it.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        let text: String = self.note.chars().filter(|one| !one.is_control()).collect();
        (!text.is_empty()).then_some(text)
    }
}
