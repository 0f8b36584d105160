//! Flags of a header or object.

/// Declares a newtype over an unsigned integer with a named constant for each flag. Bits without a name keep their value
/// when they are decoded, printed and encoded.
///
/// ```
/// signalbox_wire::flags! {
///     /// Flags of the semaphore.
///     pub struct Lights(pub u8) {
///         /// Stop.
///         RED = 0x80, "red";
///         /// Go.
///         GREEN = 0x20, "green";
///     }
/// }
/// let both = Lights::RED.with(Lights::GREEN);
/// assert!(both.contains(Lights::RED) && !Lights::RED.contains(both));
/// assert_eq!(both.without(Lights::RED), Lights::GREEN);
/// assert_eq!(both.names().collect::<Vec<_>>(), ["red", "green"]);
/// assert_eq!(format!("{:?}", Lights(0x21)), "Lights(0x21 green)");
/// ```
#[macro_export]
macro_rules! flags {
    ($(#[$meta:meta])* $vis:vis struct $name:ident($field:vis $int:ty) {
        $($(#[$fmeta:meta])* $flag:ident = $bit:expr, $text:expr;)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        $vis struct $name($field $int);
        impl $name {
            $($(#[$fmeta])* pub const $flag: Self = Self($bit);)*

            /// Whether all bits of `other` are set.
            #[must_use]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// These bits and those of `other`.
            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// These bits and, if `on`, those of `other`.
            #[must_use]
            pub const fn with_if(self, other: Self, on: bool) -> Self {
                if on { self.with(other) } else { self }
            }

            /// These bits without those of `other`.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }

            /// The bits that both have.
            #[must_use]
            pub const fn only(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }

            /// Names of the flags that are set.
            pub fn names(self) -> impl Iterator<Item = &'static str> {
                [$((Self::$flag, $text)),*].into_iter().filter(move |(flag, _)| self.contains(*flag)).map(|(_, name)| name)
            }
        }
        impl ::core::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                let width = 2 + 2 * ::core::mem::size_of::<$int>();
                write!(f, "{}({:#0width$x}", stringify!($name), self.0)?;
                self.names().try_for_each(|name| write!(f, " {name}"))?;
                f.write_str(")")
            }
        }
    };
}
