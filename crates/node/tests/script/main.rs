//! One node, driven by single inputs.

mod inputs;
mod starts;
