//! Rules and arithmetic.

mod qspec;
