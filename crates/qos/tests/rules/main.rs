//! Rules and arithmetic.

mod engine;
mod qspec;
