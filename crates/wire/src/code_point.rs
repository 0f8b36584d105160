//! Code points with known and unknown values.

/// Declares a newtype over an integer with named constants. Unknown values keep their number when they are decoded,
/// printed and encoded; known values print their name.
///
/// ```
/// signalbox_wire::code_points! {
///     /// Colours of the semaphore.
///     pub struct Colour(u8) {
///         /// Stop.
///         RED = 0, "Red";
///         /// Go.
///         GREEN = 2, "Green";
///     }
/// }
/// assert_eq!(Colour::GREEN.to_string(), "Green");
/// assert_eq!(Colour(9).to_string(), "9");
/// assert_eq!(Colour(9).name(), None);
/// ```
#[macro_export]
macro_rules! code_points {
    ($(#[$meta:meta])* $vis:vis struct $name:ident($int:ty) {
        $($(#[$cmeta:meta])* $const:ident = $value:expr, $text:expr;)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis struct $name(pub $int);
        impl $name {
            $($(#[$cmeta])* pub const $const: Self = Self($value);)*

            /// The name of this value, if it is known.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }
        impl ::core::fmt::Display for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{}", self.0),
                }
            }
        }
        impl ::core::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                match self.name() {
                    Some(name) => write!(f, "{}({}: {})", stringify!($name), self.0, name),
                    None => write!(f, "{}({})", stringify!($name), self.0),
                }
            }
        }
    };
}
