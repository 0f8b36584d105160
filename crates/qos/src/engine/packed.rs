//! Optional numbers of records without the octets that alignment adds: `Option<u64>` takes 16.

use core::fmt;
use core::marker::PhantomData;

use signalbox_core::service::{SiiHandle, StateHandle};
use signalbox_resources::GrantId;

use crate::wire::Rsn;

/// What can be stored as a [`Packed`]: any 64-bit number is a value of it.
pub(super) trait Number: Copy {
    fn number(self) -> u64;
    fn of(number: u64) -> Self;
}

/// A number that may be absent, in 9 octets.
pub(super) struct Packed<T>(Option<[u8; 8]>, PhantomData<T>);

impl<T: Number> Packed<T> {
    pub(super) const NONE: Self = Self(None, PhantomData);

    pub(super) fn get(self) -> Option<T> {
        self.0.map(|octets| T::of(u64::from_ne_bytes(octets)))
    }

    pub(super) const fn is_some(self) -> bool {
        self.0.is_some()
    }

    pub(super) const fn is_none(self) -> bool {
        self.0.is_none()
    }

    /// The number, which is absent afterwards.
    pub(super) fn take(&mut self) -> Option<T> {
        core::mem::replace(self, Self::NONE).get()
    }
}

impl<T: Number> From<Option<T>> for Packed<T> {
    fn from(value: Option<T>) -> Self {
        Self(value.map(|value| value.number().to_ne_bytes()), PhantomData)
    }
}

impl<T> Clone for Packed<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Packed<T> {}

impl<T> PartialEq for Packed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Eq for Packed<T> {}

impl<T: Number + fmt::Debug> fmt::Debug for Packed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

macro_rules! handles {
    ($($handle:ident)*) => {$(
        impl Number for $handle {
            fn number(self) -> u64 {
                self.0
            }

            fn of(number: u64) -> Self {
                Self(number)
            }
        }
    )*};
}

handles!(SiiHandle StateHandle GrantId);

impl Number for Rsn {
    fn number(self) -> u64 {
        u64::from(self.epoch) << 32 | u64::from(self.number)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the two halves are taken apart")]
    fn of(number: u64) -> Self {
        Self { number: number as u32, epoch: (number >> 32) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_can_be_stored() {
        assert_eq!(size_of::<Packed<SiiHandle>>(), 9);
        for number in [0, 1, u64::MAX] {
            let mut packed = Packed::from(Some(SiiHandle(number)));
            assert_eq!((packed.get(), packed.is_some()), (Some(SiiHandle(number)), true));
            assert_eq!(
                (packed.take(), packed.get(), packed.is_none()),
                (Some(SiiHandle(number)), None, true)
            );
        }
        let rsn = Rsn { number: 1, epoch: u32::MAX };
        assert_eq!(Packed::from(Some(rsn)).get(), Some(rsn));
    }
}
