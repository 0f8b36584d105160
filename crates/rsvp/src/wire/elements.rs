//! Policy elements that are parsed and composed: preemption priorities (RFC 3181) and identities in plain text (RFC
//! 3182 §4.1, §4.4).
//!
//! RFC 3182 prints P-Type 3 for applications, which is that of priorities in RFC 3181; the registry has 5.

use super::code_points::Class;
use super::object::Objects;
use super::policy::{PolicyData, PolicyElement};
use crate::error::EncodeError;

/// P-Types.
const AUTH_USER: u16 = 2;
const PREEMPTION_PRI: u16 = 3;
const AUTH_APP: u16 = 5;

/// A-Types of RFC 3182 §3.3; the SubType of both is ASCII text.
const POLICY_LOCATOR: u8 = 1;
const CREDENTIAL: u8 = 2;
const ASCII: u8 = 1;

/// Octets of a header of an object, an element, or an attribute.
const HEADER: usize = 4;
/// "Take priority of highest QoS" (RFC 3181 §4).
const MERGE_STRATEGY: u8 = 1;

/// PREEMPTION_PRI (RFC 3181): priorities of a request against others; the higher wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Preemption {
    /// Priority against grants of others.
    pub setup: u16,
    /// Priority against requests of others.
    pub defending: u16,
}

impl Preemption {
    /// Parses an element (RFC 3181 §4); `None`: another P-Type, or a wrong length.
    #[must_use]
    pub fn of(element: &PolicyElement<'_>) -> Option<Self> {
        let &[_, _, _, _, s1, s0, d1, d0] = element.data else { return None };
        (element.p_type == PREEMPTION_PRI)
            .then(|| Self { setup: u16::from_be_bytes([s1, s0]), defending: u16::from_be_bytes([d1, d0]) })
    }

    /// The higher one of each priority.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { setup: self.setup.max(other.setup), defending: self.defending.max(other.defending) }
    }
}

/// AUTH_DATA with a credential in plain text (RFC 3182 §4.1, §4.4). It is not proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity<'a> {
    /// The identity is that of an application, not of a user.
    pub application: bool,
    /// Login name of the user, or name of the application.
    pub name: &'a str,
    /// Distinguished name of the policy.
    pub locator: Option<&'a str>,
}

impl<'a> Identity<'a> {
    /// Parses an element (RFC 3182 §3); `None`: another P-Type, a credential that is not in ASCII, or malformed
    /// attributes.
    #[must_use]
    pub fn of(element: &PolicyElement<'a>) -> Option<Self> {
        let application = match element.p_type {
            AUTH_USER => false,
            AUTH_APP => true,
            _ => return None,
        };
        let (mut name, mut locator) = (None, None);
        let mut rest = element.data;
        while !rest.is_empty() {
            let &[l1, l0, a_type, sub_type] = rest.first_chunk()?;
            let length = usize::from(u16::from_be_bytes([l1, l0]));
            let value = rest.get(HEADER..length)?;
            rest = rest.get(length.next_multiple_of(4)..)?;
            match (a_type, sub_type) {
                (CREDENTIAL, ASCII) if name.is_none() => name = Some(text(value)?),
                (POLICY_LOCATOR, ASCII) if locator.is_none() => locator = Some(text(value)?),
                // A ticket or certificate cannot be checked here; a second credential is ambiguous.
                (CREDENTIAL, _) => return None,
                _ => {}
            }
        }
        Some(Self { application, name: name?, locator })
    }
}

/// Printable text; `None`: the octets are not printable.
fn text(octets: &[u8]) -> Option<&str> {
    let printable = !octets.is_empty() && octets.iter().all(|octet| (b' '..=b'~').contains(octet));
    core::str::from_utf8(octets).ok().filter(|_| printable)
}

/// The elements of a list of POLICY_DATA objects (RFC 2750 §3.3). Objects that cannot be parsed have none.
pub fn elements(objects: &[u8]) -> impl Iterator<Item = PolicyElement<'_>> {
    let objects = Objects::at(objects, 0).map_while(Result::ok);
    let policy = objects.filter(|object| object.kind.class == Class::POLICY_DATA).map(PolicyData::of);
    policy.filter_map(|policy| policy.elements().ok()).flatten()
}

/// Composes a POLICY_DATA object with these elements and no options (RFC 2750 §3.1); empty if there are no elements.
///
/// # Errors
/// [`EncodeError::ObjectLength`] if the object would be too long.
pub fn policy_data(
    preemption: Option<Preemption>,
    identities: &[Identity<'_>],
) -> Result<Vec<u8>, EncodeError> {
    if preemption.is_none() && identities.is_empty() {
        return Ok(Vec::new());
    }
    // Data Offset: the elements follow the two fixed words.
    let mut octets = vec![0, 0, Class::POLICY_DATA.0, 1, 0, 8, 0, 0];
    if let Some(Preemption { setup, defending }) = preemption {
        element(&mut octets, PREEMPTION_PRI, |octets| {
            octets.extend_from_slice(&[0, MERGE_STRATEGY, 0, 0]);
            octets.extend_from_slice(&setup.to_be_bytes());
            octets.extend_from_slice(&defending.to_be_bytes());
        })?;
    }
    for identity in identities {
        element(&mut octets, if identity.application { AUTH_APP } else { AUTH_USER }, |octets| {
            if let Some(locator) = identity.locator {
                attribute(octets, POLICY_LOCATOR, locator);
            }
            attribute(octets, CREDENTIAL, identity.name);
        })?;
    }
    let length = length_of(octets.len())?;
    octets.splice(..2, length);
    Ok(octets)
}

fn length_of(octets: usize) -> Result<[u8; 2], EncodeError> {
    let long = || EncodeError::ObjectLength { class: Class::POLICY_DATA, octets };
    u16::try_from(octets).map(u16::to_be_bytes).map_err(|_| long())
}

fn element(octets: &mut Vec<u8>, p_type: u16, data: impl FnOnce(&mut Vec<u8>)) -> Result<(), EncodeError> {
    let start = octets.len();
    octets.extend_from_slice(&[0, 0]);
    octets.extend_from_slice(&p_type.to_be_bytes());
    data(octets);
    let length = length_of(octets.len() - start)?;
    octets.splice(start..start + 2, length);
    Ok(())
}

/// Writes an attribute in ASCII: its length is without padding, the next one is aligned to a word (RFC 3182 §3.3).
fn attribute(octets: &mut Vec<u8>, a_type: u8, value: &str) {
    // A value that is too long makes the element too long as well.
    let length = u16::try_from(value.len() + HEADER).unwrap_or(u16::MAX);
    octets.extend_from_slice(&length.to_be_bytes());
    octets.extend_from_slice(&[a_type, ASCII]);
    octets.extend_from_slice(value.as_bytes());
    octets.resize(octets.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: Identity<'_> =
        Identity { application: false, name: "ann", locator: Some("CN=Ann, O=Example") };

    fn read(objects: &[u8]) -> Vec<Identity<'_>> {
        elements(objects).filter_map(|element| Identity::of(&element)).collect()
    }

    #[test]
    fn octets_are_those_of_the_rfcs() {
        let octets = policy_data(
            Some(Preemption { setup: 5, defending: 7 }),
            &[Identity { application: true, name: "vic.exe", locator: None }],
        );
        let expected = [
            &[0, 36, 14, 1, 0, 8, 0, 0, 0, 12, 0, 3, 0, 1, 0, 0, 0, 5, 0, 7, 0, 16, 0, 5, 0, 11, 2, 1][..],
            b"vic.exe\0",
        ];
        assert_eq!(octets.unwrap(), expected.concat());
        assert_eq!(policy_data(None, &[]).unwrap(), []);
    }

    #[test]
    fn what_is_written_is_read() {
        let vic = Identity { application: true, name: "vic.exe", locator: None };
        let strong = Preemption { setup: 1, defending: 2 };
        let octets = policy_data(Some(strong), &[ANN, vic]).unwrap();
        assert_eq!(read(&octets), [ANN, vic]);
        assert_eq!(elements(&octets).find_map(|element| Preemption::of(&element)), Some(strong));
        let long = "x".repeat(70_000);
        assert!(policy_data(None, &[Identity { name: &long, ..ANN }]).is_err());
    }

    #[test]
    fn what_is_no_plain_identity_is_none() {
        let of = |data: &[u8]| {
            Identity::of(&PolicyElement { p_type: AUTH_USER, data }).map(|identity| identity.name.to_owned())
        };
        assert_eq!(of(b"\0\x07\x02\x01ann\0"), Some("ann".to_owned()));
        for other in [
            &b""[..],
            b"\0\x07\x02\x03ann\0",                    // a Kerberos ticket
            b"\0\x07\x02\x01ann\0\0\x07\x02\x04ann\0", // and a certificate
            b"\0\x07\x02\x01ann\0\0\x07\x02\x01bob\0", // two credentials
            b"\0\x07\x02\x01ann",                      // not padded
            b"\0\x03\x02\x01ann\0",                    // shorter than its header
            b"\0\x09\x02\x01ann\0",                    // longer than what is there
            b"\0\x04\x02\x01",                         // an empty name
            b"\0\x07\x02\x01a\nn\0",                   // not printable
            b"\0\x06\x01\x01CN\0\0",                   // a locator alone
        ] {
            assert_eq!(of(other), None, "{other:?}");
        }
        assert_eq!(Identity::of(&PolicyElement { p_type: 3, data: b"\0\x07\x02\x01ann\0" }), None);
    }
}
