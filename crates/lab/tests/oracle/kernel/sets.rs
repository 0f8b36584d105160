//! Sets and maps of nf_tables, and their elements.

use super::octets::{Attributes, attribute, nest};
use super::rules::words;

pub(crate) const ENOENT: i32 = 2;
pub(crate) const EEXIST: i32 = 17;
pub(crate) const ENFILE: i32 = 23;

const INTERVAL: u32 = 4;
const MAP: u32 = 8;
const TIMEOUT: u32 = 16;
const CONCAT: u32 = 128;

/// A set or map.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Set {
    /// Octets of the key.
    key: usize,
    /// Octets of a map's values.
    value: Option<usize>,
    /// Octets of each field of a set of ranges.
    fields: Option<Vec<usize>>,
    size: usize,
    elements: Vec<Element>,
}

/// An element.
#[derive(Debug, Clone, PartialEq)]
struct Element {
    key: Vec<u8>,
    end: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    /// Milliseconds.
    timeout: u64,
}

impl Element {
    fn parse(item: Attributes<'_>) -> Self {
        let item = item.only(&[1, 2, 4, 5, 10]); // KEY, DATA, TIMEOUT, EXPIRATION, KEY_END
        let octets = |kind| item.nested(kind).map(|data| data.only(&[1]).find(1).unwrap().to_vec());
        assert_eq!(item.long(4), item.long(5), "an element expires after its timeout");
        Self {
            key: octets(1).unwrap(),
            end: octets(10),
            value: octets(2),
            timeout: item.long(4).unwrap_or(0),
        }
    }

    fn octets(&self) -> Vec<u8> {
        let data = |kind, octets: &[u8]| nest(kind, &[attribute(1, octets)]);
        let mut item = vec![data(1, &self.key)];
        item.extend(self.end.iter().map(|end| data(10, end)));
        item.extend(self.value.iter().map(|value| data(2, value)));
        item.extend([attribute(4, &self.timeout.to_be_bytes()), attribute(5, &self.timeout.to_be_bytes())]);
        nest(1, &item)
    }
}

impl Set {
    /// The set of a NEWSET request, and its name.
    pub(crate) fn parse(request: Attributes<'_>) -> (String, Self) {
        let flags = request.number(3).unwrap();
        assert_eq!(flags & !(INTERVAL | MAP | TIMEOUT | CONCAT), 0, "flags {flags:#x}");
        let description = request.nested(9).unwrap().only(&[1, 2]);
        let fields = description.nested(2).map(|fields| {
            let lengths = fields.each().into_iter().map(|(_, field)| Attributes(field).number(1).unwrap());
            lengths.map(|length| length as usize).collect::<Vec<_>>()
        });
        assert_eq!(fields.is_some(), flags & INTERVAL != 0, "ranges have fields");
        let set = Self {
            key: request.number(5).unwrap() as usize,
            value: (flags & MAP != 0).then(|| request.number(7).unwrap() as usize),
            fields,
            size: description.number(1).unwrap() as usize,
            elements: Vec::new(),
        };
        (request.text(2).unwrap(), set)
    }

    /// Whether a set that exists has the form of this one.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        Self { elements: Vec::new(), ..self.clone() } == Self { elements: Vec::new(), ..other.clone() }
    }

    /// The number of octets of a key.
    pub(crate) const fn key(&self) -> usize {
        self.key
    }

    /// Whether the element has this key: with a range, each field is between those of both ends.
    fn has(&self, element: &Element, key: &[u8]) -> bool {
        let (Some(fields), Some(end)) = (&self.fields, &element.end) else { return element.key == key };
        let mut at = 0;
        fields.iter().all(|octets| {
            let field = at..at + octets;
            at += 4 * words(*octets);
            element.key[field.clone()] <= key[field.clone()] && key[field.clone()] <= end[field]
        })
    }

    /// What the element with this key has; `None`: there is no such element.
    pub(crate) fn find(&self, key: &[u8]) -> Option<&[u8]> {
        let found = self.elements.iter().find(|element| self.has(element, key))?;
        Some(found.value.as_deref().unwrap_or(&[]))
    }

    /// Adds an element, or prolongs it.
    pub(crate) fn add(&mut self, item: Attributes<'_>, exclusive: bool) -> Result<(), i32> {
        let new = Element::parse(item);
        assert_eq!((new.key.len(), new.end.is_some()), (self.key, self.fields.is_some()));
        assert_eq!(new.value.as_ref().map(Vec::len), self.value, "values of one length");
        // Of ranges, the kernel compares the ends with those that are there.
        let ends = [Some(&new.key), new.end.as_ref()];
        let same = ends
            .into_iter()
            .flatten()
            .find_map(|key| self.elements.iter().position(|element| self.has(element, key)));
        match same {
            Some(at) => {
                let old = &mut self.elements[at];
                let equal = (&old.key, &old.end, &old.value) == (&new.key, &new.end, &new.value);
                if !equal || exclusive {
                    return Err(EEXIST);
                }
                old.timeout = new.timeout;
            }
            None if self.elements.len() >= self.size => return Err(ENFILE),
            None => self.elements.push(new),
        }
        Ok(())
    }

    /// Removes the element with the key that the request has.
    pub(crate) fn remove(&mut self, item: Attributes<'_>) -> Result<(), i32> {
        let key = Element::parse(item).key;
        let at = self.elements.iter().position(|element| self.has(element, &key)).ok_or(ENOENT)?;
        self.elements.remove(at);
        Ok(())
    }

    /// The element with the key that the request has, as octets.
    pub(crate) fn read(&self, item: Attributes<'_>) -> Result<Vec<u8>, i32> {
        let key = Element::parse(item).key;
        self.elements.iter().find(|element| self.has(element, &key)).map(Element::octets).ok_or(ENOENT)
    }

    /// All elements, as octets.
    pub(crate) fn read_all(&self) -> Vec<Vec<u8>> {
        self.elements.iter().map(Element::octets).collect()
    }
}
