//! USER_ERROR_SPEC (RFC 5284): what the node that refused adds to its error. Its class is 11bbbbbb, so nodes that do not know it forward it.
//!
//! The texts of all organizations are for people and are read. The subobject with the rate is of this suite, which has no enterprise number: it
//! writes 0, which belongs to no organization.

use signalbox_wire::Reader;

use super::code_points::Class;
use super::object::RawObject;

/// The class of the object. It stays one of the unknown ones, which are forwarded.
pub(crate) const CLASS: Class = Class(194);
const C_TYPE: u8 = 1;
/// Subobject of this suite: the rate that the node could still give, octets a second.
const AVAILABLE: u16 = 1;
/// Octets of the text, at most: one octet counts them, and they are padded to words.
const MAX_NOTE: usize = 128;

/// What the node that refused adds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct UserError {
    /// Rate that it could still give, octets a second.
    pub available: Option<u64>,
    /// The rule or limit that refused.
    pub note: Option<String>,
}

impl UserError {
    /// The whole object; empty if there is nothing to say.
    #[must_use]
    pub fn object(&self) -> Vec<u8> {
        let mut octets = Vec::new();
        if *self == Self::default() {
            return octets;
        }
        let note = self.note.as_deref().unwrap_or_default();
        let note = signalbox_wire::beginning(note, MAX_NOTE);
        let length = u8::try_from(note.len().next_multiple_of(4)).unwrap_or(0);
        // Length, Class-Num and C-Type; enterprise number; Sub Org, length of the text, User Error Value.
        octets.extend([0, 0, CLASS.0, C_TYPE, 0, 0, 0, 0, 0, length, 0, 0]);
        octets.extend(note.as_bytes());
        octets.resize(octets.len().next_multiple_of(4), 0);
        if let Some(available) = self.available {
            octets.extend(AVAILABLE.to_be_bytes());
            octets.extend(12_u16.to_be_bytes());
            octets.extend(available.to_be_bytes());
        }
        let length = u16::try_from(octets.len()).unwrap_or(u16::MAX).to_be_bytes();
        if let Some(place) = octets.first_chunk_mut() {
            *place = length;
        }
        octets
    }

    /// The first object of the class among others. Contents that do not have the format say nothing.
    #[must_use]
    pub fn among<'a>(mut objects: impl Iterator<Item = RawObject<'a>>) -> Option<Self> {
        let of_class = |object: &RawObject<'a>| object.kind.class == CLASS && object.kind.c_type == C_TYPE;
        let object = objects.find(of_class)?;
        let mut r = Reader::new(object.content());
        let enterprise = r.u32().ok()?;
        let [sub_org, length, _, _] = r.array().ok()?;
        let text = r.take(usize::from(length).next_multiple_of(4)).ok()?;
        let text = core::str::from_utf8(text.get(..usize::from(length))?).unwrap_or_default();
        // A stranger may have written it.
        let note: String = text.chars().filter(|one| !one.is_control()).collect();
        let note = Some(note).filter(|note| !note.is_empty());
        let mut available = None;
        while let (0, 0, Ok(kind), Ok(size)) = (enterprise, sub_org, r.u16(), r.u16()) {
            let Ok(value) = r.take(usize::from(size).saturating_sub(4)) else { break };
            if kind == AVAILABLE {
                available = value.try_into().ok().map(u64::from_be_bytes);
            }
        }
        Some(Self { available, note }).filter(|one| *one != Self::default())
    }
}

#[cfg(test)]
mod tests {
    use super::super::object::Objects;
    use super::*;

    fn read(octets: &[u8]) -> Option<UserError> {
        UserError::among(Objects::at(octets, 0).filter_map(Result::ok))
    }

    #[test]
    fn what_is_written_is_read() {
        let all = UserError { available: Some(125_000), note: Some("rule 1".to_owned()) };
        let expected = [
            0, 32, 194, 1, 0, 0, 0, 0, 0, 8, 0, 0, b'r', b'u', b'l', b'e', b' ', b'1', 0, 0, 0, 1, 0, 12, 0,
            0, 0, 0, 0, 1, 0xe8, 0x48,
        ];
        assert_eq!(all.object(), expected);
        for one in [
            all,
            UserError { available: Some(0), note: None },
            UserError { available: None, note: Some("ä".repeat(64)) },
        ] {
            assert_eq!(read(&one.object()), Some(one.clone()));
        }
        assert_eq!(UserError::default().object(), []);
        let long = UserError { available: None, note: Some("ä".repeat(99)) };
        assert_eq!(read(&long.object()).unwrap().note, Some("ä".repeat(64)));
    }

    /// Another organization's subobjects have another meaning; its text is for people, too.
    #[test]
    fn only_texts_of_others_are_read() {
        let mut octets = UserError { available: Some(7), note: Some("no\u{1b}\n!".to_owned()) }.object();
        octets[7] = 9;
        assert_eq!(read(&octets), Some(UserError { available: None, note: Some("no!".to_owned()) }));
    }

    #[test]
    fn damaged_objects_say_nothing() {
        let whole = UserError { available: Some(7), note: Some("no".to_owned()) }.object();
        for length in (4..whole.len()).step_by(4) {
            let mut octets = whole[..length].to_vec();
            octets[1] = u8::try_from(length).unwrap();
            assert!(read(&octets).is_none_or(|one| one.available.is_none()), "{length}");
        }
        for place in 4..whole.len() {
            let mut octets = whole.clone();
            octets[place] = 0xff;
            let _ = read(&octets);
        }
    }
}
