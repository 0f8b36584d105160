//! One node, driven input by input.

mod inputs;
mod starts;
