//! Values that many records share while there are few different ones at a time. Each record holds an [`Arc`].
//!
//! An [`Interner`](crate::Interner) finds every equal value, and counts references for it. The table here has a fixed size and
//! finds only values that were stored lately: a miss costs memory, and nothing else.

use std::sync::Arc;

/// Places of the table, a power of two.
const PLACES: usize = 512;

/// The values that were stored last, each at a place by its number.
///
/// Numbers need no secret. A peer that makes values for one place only takes the memory that its records would have without
/// sharing.
#[derive(Debug)]
pub struct Recent<T: ?Sized>([Option<Arc<T>>; PLACES]);

impl<T: ?Sized> Default for Recent<T> {
    fn default() -> Self {
        Self([const { None }; PLACES])
    }
}

impl<T: ?Sized + ToOwned + PartialEq> Recent<T>
where
    Arc<T>: From<T::Owned>,
{
    /// The value, in the storage of an equal one if that was the last one of its place. Equal values have equal numbers; see
    /// [`sum`].
    pub fn shared(&mut self, number: u64, value: &T) -> Arc<T> {
        let place = usize::try_from(number % PLACES as u64).unwrap_or_default();
        let Some(place) = self.0.get_mut(place) else { return Arc::from(value.to_owned()) };
        match place {
            Some(known) if **known == *value => Arc::clone(known),
            other => Arc::clone(other.insert(Arc::from(value.to_owned()))),
        }
    }
}

/// A number for octets, for [`Recent::shared`].
#[must_use]
pub fn sum(octets: &[u8]) -> u64 {
    octets.iter().fold(0, |sum: u64, octet| sum.wrapping_mul(31).wrapping_add(u64::from(*octet)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_stored_once() {
        let mut recent = Recent::<[u8]>::default();
        let mut shared = |octets: &[u8]| recent.shared(sum(octets), octets);
        let first = shared(&[1, 2]);
        assert!(Arc::ptr_eq(&first, &shared(&[1, 2])));
        assert!(!Arc::ptr_eq(&first, &shared(&[1, 3])));
        assert!(Arc::ptr_eq(&first, &shared(&[1, 2])), "another place");
    }

    #[test]
    fn another_value_of_the_same_place_replaces_the_first() {
        let mut recent = Recent::<[u8]>::default();
        let first = recent.shared(1, &[1]);
        assert_eq!(*recent.shared(1 + PLACES as u64, &[2]), [2]);
        let again = recent.shared(1, &[1]);
        assert_eq!((&*again, Arc::ptr_eq(&first, &again)), (&[1][..], false));
        assert_eq!(Arc::strong_count(&first), 1, "the table does not keep what it replaced");
    }
}
