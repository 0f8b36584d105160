//! Parts of records that few records have.

use core::ops::{Deref, DerefMut};

/// A vector that takes 8 octets while it is empty, instead of 24. With items it takes 32 more than a [`Vec`].
///
/// It is read like a [`Vec`]. Writing through [`DerefMut`] allocates; the methods here do not, if there is nothing to do, and
/// release the memory with the last item.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::box_collection, reason = "the vector itself is what most records do without")]
pub struct RareVec<T>(Option<Box<Vec<T>>>);

impl<T> Default for RareVec<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: 'static> RareVec<T> {
    const EMPTY: &'static Vec<T> = &Vec::new();

    /// An empty vector.
    #[must_use]
    pub const fn new() -> Self {
        Self(None)
    }

    /// Adds an item at the end. The first one gets the room of one, because most vectors stay short.
    pub fn push(&mut self, item: T) {
        match &mut self.0 {
            Some(items) => items.push(item),
            None => self.0 = Some(Box::new(vec![item])),
        }
    }

    /// Removes the items for which `keep` is false.
    pub fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        if let Some(items) = &mut self.0 {
            items.retain(keep);
        }
        self.release();
    }

    /// Removes an item, and puts the last one in its place.
    ///
    /// # Panics
    /// It panics if there is no item at `index`, as a [`Vec`] does.
    pub fn swap_remove(&mut self, index: usize) -> T {
        let item = (**self).swap_remove(index);
        self.release();
        item
    }

    /// The item at `index`.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.0.as_mut()?.get_mut(index)
    }

    /// All items, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().flat_map(|items| items.iter_mut())
    }

    /// Removes all items.
    pub fn clear(&mut self) {
        self.0 = None;
    }

    fn release(&mut self) {
        self.0.take_if(|items| items.is_empty());
    }
}

impl<T: 'static> Deref for RareVec<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        self.0.as_deref().unwrap_or(Self::EMPTY)
    }
}

impl<T: 'static> DerefMut for RareVec<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        self.0.get_or_insert_default()
    }
}

impl<T> From<Vec<T>> for RareVec<T> {
    fn from(items: Vec<T>) -> Self {
        Self((!items.is_empty()).then(|| Box::new(items)))
    }
}

impl<T> IntoIterator for RareVec<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.map(|items| *items).unwrap_or_default().into_iter()
    }
}

/// Fields of a record that are empty in most records, in 8 octets while all of them are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rare<T>(Option<Box<T>>);

/// Fields of which all may be empty.
pub trait Empty: PartialEq + 'static {
    /// All of them are empty.
    const EMPTY: Self;
    /// The same to refer to.
    const NOTHING: &'static Self;
}

impl<T> Default for Rare<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Empty> Rare<T> {
    /// Changes fields. They have memory of their own afterwards unless all of them are empty.
    pub fn change<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        match &mut self.0 {
            Some(fields) => {
                let result = change(fields);
                self.0.take_if(|fields| **fields == T::EMPTY);
                result
            }
            None => {
                let mut fields = T::EMPTY;
                let result = change(&mut fields);
                if fields != T::EMPTY {
                    self.0 = Some(Box::new(fields));
                }
                result
            }
        }
    }
}

impl<T: Empty> Deref for Rare<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::NOTHING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_memory_only_with_items() {
        let mut rare = RareVec::new();
        assert_eq!(size_of_val(&rare), 8);
        assert!(rare.is_empty() && rare.get_mut(0).is_none());
        rare.retain(|_: &u8| true);
        rare.push(1);
        rare.push(2);
        assert_eq!((rare.swap_remove(0), rare.len(), rare.last()), (1, 1, Some(&2)));
        rare.retain(|item| *item != 2);
        assert_eq!(rare, RareVec::new());
        rare.push(3);
        assert_eq!(rare.clone().into_iter().collect::<Vec<_>>(), [3]);
        rare.clear();
        assert_eq!((rare.0.is_none(), RareVec::from(Vec::<u8>::new())), (true, rare));
    }

    #[test]
    fn fields_take_memory_only_while_one_is_not_empty() {
        #[derive(Debug, PartialEq)]
        struct Fields {
            number: Option<u64>,
            items: RareVec<u8>,
        }
        impl Empty for Fields {
            const EMPTY: Self = Self { number: None, items: RareVec::new() };
            const NOTHING: &'static Self = &Self::EMPTY;
        }
        let mut rare = Rare::<Fields>::default();
        assert_eq!((size_of_val(&rare), rare.items.len()), (8, 0));
        assert_eq!(rare.change(|fields| fields.number.take()), None);
        assert!(rare == Rare(None), "nothing was stored");
        rare.change(|fields| fields.items.push(1));
        assert_eq!((rare.number, &**rare.items), (None, &[1][..]));
        rare.change(|fields| fields.number = Some(2));
        rare.change(|fields| fields.items.clear());
        assert!(rare != Rare(None), "the number is still there");
        rare.change(|fields| fields.number = None);
        assert!(rare == Rare(None), "the memory is free again");
    }
}
