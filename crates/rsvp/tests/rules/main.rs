//! Properties that always hold.

mod engine;
mod storm;
