//! Properties that always hold.

mod engine;
#[path = "../script/rig.rs"]
#[expect(dead_code, reason = "the scripts use the rest")]
mod rig;
mod storm;
