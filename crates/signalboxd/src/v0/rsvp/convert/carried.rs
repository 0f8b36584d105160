//! POLICY_DATA (RFC 2750) and ADSPEC (RFC 2210) objects at the edge of the API.

use signalbox_api::v0;
use signalbox_node::resources::intserv::{Bandwidth, ErrorTerms, Latency};
use signalbox_node::rsvp::{Adspec, Identity, Overrides, Preemption, RawAdspec, elements, policy_data};
use tonic::Status;

/// The POLICY_DATA objects that a client asks for. The engine checks those that the client has composed itself.
pub(super) fn policy(field: &str, asked: Option<&v0::RsvpPolicy>) -> Result<Box<[u8]>, Status> {
    let Some(asked) = asked else { return Ok(Box::default()) };
    let wrong = |what: &str| Status::invalid_argument(format!("{field}.{what}"));
    let number = |name: &str, value: u32| {
        u16::try_from(value).map_err(|_| wrong(&format!("preemption.{name}: between 0 and 65535")))
    };
    let preemption = match &asked.preemption {
        Some(v0::RsvpPreemption { setup, defending }) => {
            Some(Preemption { setup: number("setup", *setup)?, defending: number("defending", *defending)? })
        }
        None => None,
    };
    let printable = |text: &str| text.bytes().all(|octet| (b' '..=b'~').contains(&octet));
    let mut identities = Vec::new();
    for v0::RsvpIdentity { application, name, locator } in &asked.identities {
        if name.is_empty() || !printable(name) || !printable(locator) {
            return Err(wrong("identities: a name, and a locator if any, in printable ASCII"));
        }
        let locator = (!locator.is_empty()).then_some(locator.as_str());
        identities.push(Identity { application: *application, name, locator });
    }
    let made = policy_data(preemption, &identities).map_err(|error| wrong(&error.to_string()))?;
    Ok([&asked.octets[..], &made].concat().into_boxed_slice())
}

/// Received POLICY_DATA objects and their content; `None` if there are none.
pub(super) fn policy_to_api(octets: &[u8]) -> Option<v0::RsvpPolicy> {
    let says = elements(octets).filter_map(|element| Preemption::of(&element)).reduce(Preemption::max);
    let preemption =
        says.map(|says| v0::RsvpPreemption { setup: says.setup.into(), defending: says.defending.into() });
    let identities = elements(octets).filter_map(|element| Identity::of(&element));
    let identities = identities.map(|Identity { application, name, locator }| v0::RsvpIdentity {
        application,
        name: name.to_owned(),
        locator: locator.unwrap_or_default().to_owned(),
    });
    let policy = v0::RsvpPolicy { octets: octets.to_vec(), preemption, identities: identities.collect() };
    (!octets.is_empty()).then_some(policy)
}

/// A received ADSPEC object.
pub(super) fn adspec_object_to_api(object: &[u8]) -> Option<v0::RsvpAdspec> {
    Some(adspec_to_api(&RawAdspec::from_octets(object)?.read().ok()?))
}

/// The content of an ADSPEC.
pub(super) fn adspec_to_api(adspec: &Adspec) -> v0::RsvpAdspec {
    let general = &adspec.general;
    v0::RsvpAdspec {
        broken: general.broken,
        hops: general.hops.into(),
        bandwidth: bandwidth(general.bandwidth),
        latency_us: latency(general.latency),
        mtu: general.mtu,
        guaranteed: adspec.guaranteed.map(|one| service(one.broken, one.overrides, one.terms)),
        controlled_load: adspec.controlled_load.map(|one| service(one.broken, one.overrides, None)),
    }
}

fn service(broken: bool, own: Overrides, terms: Option<ErrorTerms>) -> v0::RsvpAdspecService {
    v0::RsvpAdspecService {
        broken,
        hops: own.hops.map(Into::into),
        bandwidth: own.bandwidth.and_then(bandwidth),
        latency_us: own.latency.and_then(latency),
        mtu: own.mtu,
        terms: terms.map(|ErrorTerms { c_tot, d_tot, c_sum, d_sum }| v0::RsvpErrorTerms {
            c_tot,
            d_tot_us: d_tot,
            c_sum,
            d_sum_us: d_sum,
        }),
    }
}

fn bandwidth(of: Bandwidth) -> Option<f64> {
    (of != Bandwidth::UNKNOWN).then(|| of.value().into())
}

fn latency(of: Latency) -> Option<u32> {
    (of != Latency::INDETERMINATE).then_some(of.0)
}
