//! POLICY_DATA (RFC 2750) and ADSPEC (RFC 2210) objects at the edge of the API.

use signalbox_api::rsvp::v1;
use signalbox_api::v1::Priority;
use signalbox_node::resources::intserv::{Bandwidth, ErrorTerms, Latency};
use signalbox_node::rsvp::{Adspec, Identity, Overrides, Preemption, RawAdspec, elements, policy_data};

use crate::api::errors::FieldError;
use crate::api::held::whole;
use crate::api::types::number;

/// The POLICY_DATA objects that a client asks for. The engine checks those that the client has composed itself.
pub(super) fn policy(field: &str, asked: Option<&v1::PolicyData>) -> Result<Box<[u8]>, FieldError> {
    let Some(asked) = asked else { return Ok(Box::default()) };
    let value = |name: &str, value| number(&format!("{field}.priority.{name}"), value, 0, 0xffff);
    let preemption = match &asked.priority {
        Some(Priority { setup, defending }) => Some(Preemption {
            setup: value("setup", *setup)?,
            defending: value("defending", defending.unwrap_or(*setup))?,
        }),
        None => None,
    };
    let printable = |text: &str| text.bytes().all(|octet| (b' '..=b'~').contains(&octet));
    let mut identities = Vec::new();
    for v1::Identity { kind, name, locator } in &asked.identities {
        let name_field = format!("{field}.identities");
        if name.is_empty() || !printable(name) || !locator.as_deref().is_none_or(printable) {
            let what = "a name, and a locator if any, in printable ASCII";
            return Err(FieldError::new(name_field, what));
        }
        let application = match v1::IdentityKind::try_from(*kind) {
            Ok(v1::IdentityKind::Unspecified | v1::IdentityKind::User) => false,
            Ok(v1::IdentityKind::Application) => true,
            Err(_) => return Err(FieldError::new(name_field, "of a user or an application")),
        };
        identities.push(Identity { application, name, locator: locator.as_deref() });
    }
    let made = policy_data(preemption, &identities).map_err(|error| FieldError::new(field, error))?;
    Ok([&asked.octets[..], &made].concat().into_boxed_slice())
}

/// Received POLICY_DATA objects and their content; `None` if there are none.
pub(in super::super) fn policy_to_api(octets: &[u8]) -> Option<v1::PolicyData> {
    let says = elements(octets).filter_map(|element| Preemption::of(&element)).reduce(Preemption::max);
    let priority =
        says.map(|says| Priority { setup: says.setup.into(), defending: Some(says.defending.into()) });
    let identities = elements(octets).filter_map(|element| Identity::of(&element));
    let identities = identities.map(|Identity { application, name, locator }| v1::Identity {
        kind: if application { v1::IdentityKind::Application } else { v1::IdentityKind::User }.into(),
        name: name.to_owned(),
        locator: locator.map(ToOwned::to_owned),
    });
    let policy = v1::PolicyData { octets: octets.to_vec(), priority, identities: identities.collect() };
    (!octets.is_empty()).then_some(policy)
}

/// A received ADSPEC object.
pub(super) fn adspec_object_to_api(object: &[u8]) -> Option<v1::Adspec> {
    Some(adspec_to_api(&RawAdspec::from_octets(object)?.read().ok()?))
}

/// The content of an ADSPEC.
pub(in super::super) fn adspec_to_api(adspec: &Adspec) -> v1::Adspec {
    let general = &adspec.general;
    v1::Adspec {
        broken: general.broken,
        hops: general.hops.into(),
        bandwidth_octets_per_s: bandwidth(general.bandwidth),
        latency_us: latency(general.latency),
        mtu_octets: general.mtu,
        guaranteed: adspec.guaranteed.map(|one| service(one.broken, one.overrides, one.terms)),
        controlled_load: adspec.controlled_load.map(|one| service(one.broken, one.overrides, None)),
    }
}

fn service(broken: bool, own: Overrides, terms: Option<ErrorTerms>) -> v1::AdspecService {
    v1::AdspecService {
        broken,
        hops: own.hops.map(Into::into),
        bandwidth_octets_per_s: own.bandwidth.and_then(bandwidth),
        latency_us: own.latency.and_then(latency),
        mtu_octets: own.mtu,
        error_terms: terms.map(|ErrorTerms { c_tot, d_tot, c_sum, d_sum }| v1::ErrorTerms {
            c_tot_octets: c_tot,
            d_tot_us: d_tot,
            c_sum_octets: c_sum,
            d_sum_us: d_sum,
        }),
    }
}

fn bandwidth(of: Bandwidth) -> Option<u64> {
    (of != Bandwidth::UNKNOWN).then(|| whole(of.value()))
}

fn latency(of: Latency) -> Option<u64> {
    (of != Latency::INDETERMINATE).then_some(of.0.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> v1::PolicyData {
        v1::PolicyData {
            octets: Vec::new(),
            priority: Some(Priority { setup: 5, defending: Some(7) }),
            identities: vec![v1::Identity {
                kind: v1::IdentityKind::User.into(),
                name: "ann".into(),
                locator: Some("CN=Ann".into()),
            }],
        }
    }

    #[test]
    fn a_policy_is_converted_and_back() {
        let made = policy("sender.policy", Some(&asked())).unwrap();
        assert_eq!(policy_to_api(&made), Some(v1::PolicyData { octets: made.to_vec(), ..asked() }));
        // Own objects come first.
        let as_octets = v1::PolicyData { octets: made.to_vec(), ..v1::PolicyData::default() };
        assert_eq!(policy("", Some(&as_octets)).unwrap(), made);
        assert_eq!((policy("", None).unwrap(), policy_to_api(&[])), (Box::default(), None));
    }

    #[test]
    fn what_cannot_be_names_its_field() {
        let error = |asked: v1::PolicyData| policy("reserve.policy", Some(&asked)).unwrap_err().to_string();
        let strong = Some(Priority { setup: 65_536, defending: None });
        assert_eq!(
            error(v1::PolicyData { priority: strong, ..asked() }),
            "reserve.policy.priority.setup: 65536, but 0 to 65535 are possible"
        );
        for (name, locator) in [("", "CN=Ann"), ("änn", ""), ("ann", "CN=\n")] {
            let identity = v1::Identity { kind: 2, name: name.into(), locator: Some(locator.into()) };
            assert!(error(v1::PolicyData { identities: vec![identity], ..asked() }).contains("identities"));
        }
    }

    #[test]
    fn unknown_values_of_a_path_are_absent() {
        let mut adspec = Adspec::START;
        adspec.general.bandwidth = Bandwidth::UNKNOWN;
        adspec.general.latency = Latency::INDETERMINATE;
        adspec.controlled_load = None;
        let adspec = adspec_to_api(&adspec);
        assert_eq!(
            (adspec.bandwidth_octets_per_s, adspec.latency_us, adspec.controlled_load),
            (None, None, None)
        );
        assert_eq!(adspec.guaranteed.unwrap().error_terms, Some(v1::ErrorTerms::default()));
        assert_eq!(adspec_object_to_api(b"none"), None);
    }
}
