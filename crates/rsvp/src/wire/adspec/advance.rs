//! An ADSPEC advanced by one hop: composed with the services of this node (RFC 2210 §3.3, RFC 2215 §2).

use signalbox_resources::intserv::{ErrorTerms, Path, compose_override};
use signalbox_wire::{LengthOverflow, Reader, Writer};

use super::super::code_points::Class;
use super::super::intserv::{Fragment, SpecFault, message};
use super::{
    BANDWIDTH, CONTROLLED_LOAD, GENERAL, GUARANTEED, HOPS, LATENCY, LocalService, LocalServices, MTU,
    Overrides, RawAdspec, Services, Value, bad, general, next_fragment, parameter, parameters, write_header,
    write_overrides, write_terms,
};

impl RawAdspec<'_> {
    /// Appends this object as it leaves by an interface with the services `local` (RFC 2210 §3.3): general parameters
    /// composed, break bits set where a service is missing, an empty guaranteed fragment expanded, overrides composed
    /// or inserted, lengths corrected. Unknown services and parameters stay as they are, except for the break bit.
    ///
    /// # Errors
    /// 21/5 as [`RawAdspec::read`]; nothing is appended then.
    pub fn advance(&self, local: &LocalServices, out: &mut Vec<u8>) -> Result<(), SpecFault> {
        let mut w = Writer::new(out);
        match compose(self, local, &mut w) {
            Ok(()) => Ok(()),
            Err(fault) => {
                w.abandon();
                Err(fault)
            }
        }
    }
}

fn too_long(_: LengthOverflow) -> SpecFault {
    bad("too long for its length field")
}

fn compose(arriving: &RawAdspec<'_>, local: &LocalServices, w: &mut Writer<'_>) -> Result<(), SpecFault> {
    let mut all = message(arriving.octets).ok_or(bad("length or version of the message header"))?;
    let object = w.open_u16();
    w.u8(Class::ADSPEC.0);
    w.u8(2);
    w.u16(0);
    let words = w.open_u16();
    let first = super::super::intserv::fragment(&mut all.clone()).ok_or(bad("length of a service"))?;
    let (path, mut rest) = general(&mut all)?;
    let composed = path.composed(&local.general);
    let values = Overrides {
        hops: Some(composed.hops),
        bandwidth: Some(composed.bandwidth),
        latency: Some(composed.latency),
        mtu: Some(composed.mtu),
    };
    copy_fragment(w, first.rest, GENERAL, composed.broken, None, &values)?;
    let mut seen = Services::default();
    while !rest.is_empty() {
        let fragment = next_fragment(&mut rest, &mut seen)?;
        let service = match fragment.number {
            GUARANTEED => local.guaranteed.as_ref(),
            CONTROLLED_LOAD => local.controlled_load.as_ref(),
            _ => None,
        };
        match service {
            Some(service) => service_fragment(w, fragment, service, &path, &local.general)?,
            None => {
                // A service that is missing here: only the break bit is set.
                let octets = fragment.rest.peek_rest();
                let words = u32::try_from(octets.len() / 4).unwrap_or(u32::MAX);
                write_header(w, fragment.number, true, words);
                w.bytes(octets);
            }
        }
    }
    let length = w.since(&words);
    w.close_u16(words, length / 4, u16::MAX, 0).map_err(too_long)?;
    let length = w.since(&object) + 2;
    w.close_u16(object, length, u16::MAX, 0).map_err(too_long)
}

/// Writes the fragment of a service that this node supports.
fn service_fragment(
    w: &mut Writer<'_>,
    fragment: Fragment<'_>,
    service: &LocalService,
    arriving_all: &Path,
    local_all: &Path,
) -> Result<(), SpecFault> {
    let (terms, arriving) = parameters(&mut fragment.clone())?;
    let local = &service.overrides;
    let composed = Overrides {
        hops: compose_override(
            (arriving.hops, arriving_all.hops),
            (local.hops, local_all.hops),
            u8::saturating_add,
        ),
        bandwidth: compose_override(
            (arriving.bandwidth, arriving_all.bandwidth),
            (local.bandwidth, local_all.bandwidth),
            |a, b| a.composed(b),
        ),
        latency: compose_override(
            (arriving.latency, arriving_all.latency),
            (local.latency, local_all.latency),
            |a, b| a.composed(b),
        ),
        mtu: compose_override((arriving.mtu, arriving_all.mtu), (local.mtu, local_all.mtu), u32::min),
    };
    // Controlled load has no terms; a node with guaranteed service fills an empty fragment.
    let terms = (fragment.number == GUARANTEED).then(|| {
        let terms = terms.unwrap_or_default();
        let terms = if service.reshapes { terms.reshaped() } else { terms };
        terms.plus(service.terms)
    });
    copy_fragment(w, fragment.rest, fragment.number, fragment.broken, terms, &composed)
}

/// Writes a fragment with these values, in ascending order of parameters, and the unknown parameters at their places.
fn copy_fragment(
    w: &mut Writer<'_>,
    mut rest: Reader<'_>,
    number: u8,
    broken: bool,
    terms: Option<ErrorTerms>,
    values: &Overrides,
) -> Result<(), SpecFault> {
    w.u8(number);
    w.u8(if broken { 0x80 } else { 0 });
    let length = w.open_u16();
    if let Some(terms) = terms {
        write_terms(w, &terms);
    }
    // The last general parameter that was written.
    let mut written = 0;
    while !rest.is_empty() {
        match parameter(&mut rest)? {
            (133..=136, Value::Word(_)) if terms.is_some() => {} // composed, written above
            (HOPS | BANDWIDTH | LATENCY | MTU, Value::Word(_)) => {} // composed, written at their places
            (number, Value::Word(word)) => {
                write_header(w, number, false, 1);
                w.u32(word);
            }
            (number, Value::Other { flag, octets }) => {
                if (1..128).contains(&number) && number > written {
                    write_overrides(w, values, written + 1..=number);
                    written = number;
                }
                write_header(w, number, flag, u32::try_from(octets.len() / 4).unwrap_or(u32::MAX));
                w.bytes(octets);
            }
        }
    }
    if written < u8::MAX {
        write_overrides(w, values, written + 1..=u8::MAX);
    }
    let words = w.since(&length) / 4;
    w.close_u16(length, words, u16::MAX, 0).map_err(too_long)
}
