//! ADSPEC (RFC 2210 §3.3): the services of a path; parsed, written, and composed with those of one more hop.

mod advance;

use signalbox_resources::intserv::{Bandwidth, ErrorTerms, Given, Latency, LocalTerms, Path};
use signalbox_wire::{Reader, Writer};

use super::code_points::{Class, TrafficControlValue};
use super::intserv::{Fragment, Service, SpecFault, any_parameter, fragment, message};
use super::object::{RawObject, whole};

/// Service number of the general parameters.
const GENERAL: u8 = 1;
const GUARANTEED: u8 = Service::Guaranteed.number();
const CONTROLLED_LOAD: u8 = Service::ControlledLoad.number();

/// Composed general parameters (RFC 2215 §3): NUMBER_OF_IS_HOPS, AVAILABLE_PATH_BANDWIDTH, MINIMUM_PATH_LATENCY,
/// PATH_MTU.
const HOPS: u8 = 4;
const BANDWIDTH: u8 = 6;
const LATENCY: u8 = 8;
const MTU: u8 = 10;
/// Ctot, Dtot, Csum and Dsum of guaranteed service (RFC 2212).
const TERMS: core::ops::RangeInclusive<u8> = 133..=136;

const fn bad(why: &'static str) -> SpecFault {
    SpecFault::new(TrafficControlValue::BAD_ADSPEC, why)
}

/// General parameters of one service where they differ; `None`: those for all services apply.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Overrides {
    /// Number of nodes with integrated services (NUMBER_OF_IS_HOPS).
    pub hops: Option<u8>,
    /// Bandwidth of the narrowest link (AVAILABLE_PATH_BANDWIDTH).
    pub bandwidth: Option<Bandwidth>,
    /// Latency without queueing (MINIMUM_PATH_LATENCY).
    pub latency: Option<Latency>,
    /// Largest packet, octets (PATH_MTU).
    pub mtu: Option<u32>,
}

impl Overrides {
    /// Complete parameters: those that are missing come from the values for all services.
    #[must_use]
    pub fn over(&self, general: &Path) -> Path {
        Path {
            broken: general.broken,
            hops: self.hops.unwrap_or(general.hops),
            bandwidth: self.bandwidth.unwrap_or(general.bandwidth),
            latency: self.latency.unwrap_or(general.latency),
            mtu: self.mtu.unwrap_or(general.mtu),
        }
    }
}

/// Parameters of guaranteed service (RFC 2212).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Guaranteed {
    /// The break bit: some RSVP node on the path lacks the service, and the rest is not reliable.
    pub broken: bool,
    /// Composed error terms; `None`: no node so far has the service (the empty fragment).
    pub terms: Option<ErrorTerms>,
    /// General parameters that differ for the service.
    pub overrides: Overrides,
}

/// Parameters of controlled load (RFC 2211).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ControlledLoad {
    /// The break bit: some RSVP node on the path lacks the service, and the rest is not reliable.
    pub broken: bool,
    /// General parameters that differ for the service.
    pub overrides: Overrides,
}

/// The contents of an ADSPEC (RFC 2210 §3.3). Receivers should not request services that are not listed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adspec {
    /// General parameters for all services.
    pub general: Path,
    /// Guaranteed service.
    pub guaranteed: Option<Guaranteed>,
    /// Controlled load.
    pub controlled_load: Option<ControlledLoad>,
}

impl Adspec {
    /// The ADSPEC of a sender host that offers both services (RFC 2210 §3.3).
    pub const START: Self = Self {
        general: Path::START,
        guaranteed: Some(Guaranteed {
            broken: false,
            terms: Some(ErrorTerms { c_tot: 0, d_tot: 0, c_sum: 0, d_sum: 0 }),
            overrides: Overrides { hops: None, bandwidth: None, latency: None, mtu: None },
        }),
        controlled_load: Some(ControlledLoad {
            broken: false,
            overrides: Overrides { hops: None, bandwidth: None, latency: None, mtu: None },
        }),
    };

    /// General parameters for `service`; `None`: the path does not offer it.
    #[must_use]
    pub fn path(&self, service: Service) -> Option<Path> {
        let (broken, overrides) = match service {
            Service::Guaranteed => self.guaranteed.map(|g| (g.broken, g.overrides))?,
            Service::ControlledLoad => self.controlled_load.map(|c| (c.broken, c.overrides))?,
        };
        let mut path = overrides.over(&self.general);
        path.broken |= broken;
        Some(path)
    }

    /// Appends the contents of the object (RFC 2210 §3.3).
    pub(crate) fn write(&self, w: &mut Writer<'_>) {
        let guaranteed = self.guaranteed.map(|g| {
            let words = overrides_words(&g.overrides) + if g.terms.is_some() { 8 } else { 0 };
            (g, words)
        });
        let controlled = self.controlled_load.map(|c| (c, overrides_words(&c.overrides)));
        let words =
            9 + guaranteed.map_or(0, |(_, words)| words + 1) + controlled.map_or(0, |(_, words)| words + 1);
        w.u32(words);
        write_header(w, GENERAL, self.general.broken, 8);
        let all = Overrides {
            hops: Some(self.general.hops),
            bandwidth: Some(self.general.bandwidth),
            latency: Some(self.general.latency),
            mtu: Some(self.general.mtu),
        };
        write_overrides(w, &all, 0..=u8::MAX);
        if let Some((guaranteed, words)) = guaranteed {
            write_header(w, GUARANTEED, guaranteed.broken, words);
            if let Some(terms) = guaranteed.terms {
                write_terms(w, &terms);
            }
            write_overrides(w, &guaranteed.overrides, 0..=u8::MAX);
        }
        if let Some((controlled, words)) = controlled {
            write_header(w, CONTROLLED_LOAD, controlled.broken, words);
            write_overrides(w, &controlled.overrides, 0..=u8::MAX);
        }
    }
}

fn overrides_words(overrides: &Overrides) -> u32 {
    let there = [
        overrides.hops.is_some(),
        overrides.bandwidth.is_some(),
        overrides.latency.is_some(),
        overrides.mtu.is_some(),
    ];
    there.into_iter().map(|there| if there { 2 } else { 0 }).sum()
}

fn write_header(w: &mut Writer<'_>, number: u8, flag: bool, words: u32) {
    w.u32(u32::from(number) << 24 | if flag { 1 << 23 } else { 0 } | words);
}

fn write_terms(w: &mut Writer<'_>, terms: &ErrorTerms) {
    for (number, value) in TERMS.zip([terms.c_tot, terms.d_tot, terms.c_sum, terms.d_sum]) {
        write_header(w, number, false, 1);
        w.u32(value);
    }
}

/// Writes the parameters with numbers in `range`.
fn write_overrides(w: &mut Writer<'_>, overrides: &Overrides, range: core::ops::RangeInclusive<u8>) {
    let values = [
        (HOPS, overrides.hops.map(u32::from)),
        (BANDWIDTH, overrides.bandwidth.map(|bandwidth| bandwidth.value().to_bits())),
        (LATENCY, overrides.latency.map(|latency| latency.0)),
        (MTU, overrides.mtu),
    ];
    for (number, value) in values {
        if let Some(value) = value
            && range.contains(&number)
        {
            write_header(w, number, false, 1);
            w.u32(value);
        }
    }
}

/// Services of this node at one outgoing interface, which an ADSPEC is composed with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LocalServices {
    /// General parameters for all services; `broken` if nodes without RSVP lie before this one.
    pub general: Path,
    /// Guaranteed service; `None`: not supported here.
    pub guaranteed: Option<LocalService>,
    /// Controlled load; `None`: not supported here.
    pub controlled_load: Option<LocalService>,
}

/// One service at one outgoing interface.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LocalService {
    /// General parameters that differ for the service.
    pub overrides: Overrides,
    /// Error terms, for guaranteed service only.
    pub terms: LocalTerms,
    /// The flow is reshaped here: Csum and Dsum start again (RFC 2212).
    pub reshapes: bool,
}

/// An ADSPEC object whose contents were not parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawAdspec<'a> {
    octets: &'a [u8],
}

impl<'a> RawAdspec<'a> {
    pub(crate) const fn of(object: &RawObject<'a>) -> Self {
        Self { octets: object.octets }
    }

    /// An ADSPEC from a whole object with its header; `None`: the object is of another class.
    #[must_use]
    pub fn from_octets(object: &'a [u8]) -> Option<Self> {
        whole(object, Class::ADSPEC).map(|object| Self::of(&object))
    }

    /// The whole object with its header.
    #[must_use]
    pub const fn octets(&self) -> &'a [u8] {
        self.octets
    }

    /// Parses the contents (RFC 2210 §3.3).
    ///
    /// # Errors
    /// 21/5 for bad contents: lengths, a service twice, a bandwidth that is not a number.
    pub fn read(&self) -> Result<Adspec, SpecFault> {
        let mut all = message(self.octets).ok_or(bad("length or version of the message header"))?;
        let (general, mut rest) = general(&mut all)?;
        let mut adspec = Adspec { general, guaranteed: None, controlled_load: None };
        let mut seen = Services::default();
        while !rest.is_empty() {
            let mut fragment = next_fragment(&mut rest, &mut seen)?;
            match fragment.number {
                GUARANTEED => {
                    let (terms, overrides) = parameters(&mut fragment)?;
                    adspec.guaranteed = Some(Guaranteed { broken: fragment.broken, terms, overrides });
                }
                CONTROLLED_LOAD => {
                    let (_, overrides) = parameters(&mut fragment)?;
                    adspec.controlled_load = Some(ControlledLoad { broken: fragment.broken, overrides });
                }
                _ => {}
            }
        }
        Ok(adspec)
    }

    /// What can be parsed of bad contents: without the services whose parameters are bad, and without all that follows
    /// a wrong length. `None`: the general parameters cannot be parsed.
    #[must_use]
    pub fn read_part(&self) -> Option<Adspec> {
        let mut all = message(self.octets)?;
        let (general, mut rest) = general(&mut all).ok()?;
        let mut adspec = Adspec { general, guaranteed: None, controlled_load: None };
        while let Some(mut fragment) = fragment(&mut rest) {
            let broken = fragment.broken;
            match (fragment.number, parameters(&mut fragment)) {
                (GUARANTEED, Ok((terms, overrides))) => {
                    adspec.guaranteed.get_or_insert(Guaranteed { broken, terms, overrides });
                }
                (CONTROLLED_LOAD, Ok((_, overrides))) => {
                    adspec.controlled_load.get_or_insert(ControlledLoad { broken, overrides });
                }
                _ => {}
            }
        }
        Some(adspec)
    }
}

/// Parses the general fragment, which comes first; returns the rest.
fn general<'a>(all: &mut Reader<'a>) -> Result<(Path, Reader<'a>), SpecFault> {
    let mut first = fragment(all).ok_or(bad("length of a service"))?;
    if first.number != GENERAL {
        return Err(bad("the general parameters do not come first"));
    }
    let (_, values) = parameters(&mut first)?;
    let Overrides { hops, bandwidth, latency, mtu } = values;
    Ok((Given::path(first.broken, hops, bandwidth, latency, mtu), *all))
}

/// The services of an ADSPEC so far.
#[derive(Debug, Default)]
struct Services([u64; 4]);

impl Services {
    /// Enters a service; `false`: it was there, or is that of the general parameters.
    fn enter(&mut self, number: u8) -> bool {
        let (word, bit) = (usize::from(number / 64), 1 << (number % 64));
        let Some(word) = self.0.get_mut(word).filter(|word| number != GENERAL && **word & bit == 0) else {
            return false;
        };
        *word |= bit;
        true
    }
}

/// The next fragment. Each service comes once. RFC 2210 §3.3 demands ascending order, but not all nodes keep it.
fn next_fragment<'a>(rest: &mut Reader<'a>, seen: &mut Services) -> Result<Fragment<'a>, SpecFault> {
    let fragment = fragment(rest).ok_or(bad("length of a service"))?;
    if seen.enter(fragment.number) { Ok(fragment) } else { Err(bad("a service comes twice")) }
}

/// Parses error terms and general parameters of one fragment; unknown parameters are skipped.
fn parameters(fragment: &mut Fragment<'_>) -> Result<(Option<ErrorTerms>, Overrides), SpecFault> {
    let mut terms = [None; 4];
    let mut overrides = Overrides::default();
    while !fragment.rest.is_empty() {
        let (number, value) = parameter(&mut fragment.rest)?;
        match (number, value) {
            (HOPS, Value::Word(hops)) => overrides.hops = Some(u8::try_from(hops).unwrap_or(u8::MAX)),
            (BANDWIDTH, Value::Word(bits)) => overrides.bandwidth = Some(bandwidth(bits)?),
            (LATENCY, Value::Word(latency)) => overrides.latency = Some(Latency(latency)),
            (MTU, Value::Word(mtu)) => overrides.mtu = Some(Given::mtu(mtu)),
            (133..=136, Value::Word(term)) => {
                if let Some(slot) = terms.get_mut(usize::from(number - TERMS.start())) {
                    *slot = Some(term);
                }
            }
            _ => {}
        }
    }
    match terms {
        [None, None, None, None] => Ok((None, overrides)),
        [Some(c_tot), Some(d_tot), Some(c_sum), Some(d_sum)] => {
            Ok((Some(ErrorTerms { c_tot, d_tot, c_sum, d_sum }), overrides))
        }
        _ => Err(bad("error terms incomplete")),
    }
}

/// The value of a parameter; unknown ones stay octets.
enum Value<'a> {
    Word(u32),
    Other { flag: bool, octets: &'a [u8] },
}

fn parameter<'a>(rest: &mut Reader<'a>) -> Result<(u8, Value<'a>), SpecFault> {
    let (number, flag, mut value) = any_parameter(rest).ok_or(bad("length of a parameter"))?;
    if flag || !matches!(number, HOPS | BANDWIDTH | LATENCY | MTU | 133..=136) {
        return Ok((number, Value::Other { flag, octets: value.take_rest() }));
    }
    match (value.u32(), value.is_empty()) {
        (Ok(word), true) => Ok((number, Value::Word(word))),
        _ => Err(bad("length of a parameter")),
    }
}

fn bandwidth(bits: u32) -> Result<Bandwidth, SpecFault> {
    let value = f32::from_bits(bits);
    Given::bandwidth(value).map_err(|_| bad("bandwidth is no number from 1 to 40e12, nor 0"))
}
