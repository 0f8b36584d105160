//! The state machines of GIST and RSVP, explored by [`signalbox_sim::explore`]: in networks of two to four nodes, all
//! runs with a bounded number of lost, doubled and delayed messages and of restarts. The real nodes run, with shorter
//! timers.
//!
//! `SIGNALBOX_FAULTS` in the environment is the number of faults in each run instead of the one in the test, and
//! `--nocapture` shows the number of states.

mod gist;
#[path = "../scenario/rsvp/net.rs"]
mod host;
#[path = "../scenario/kernel.rs"]
mod kernel;
mod rsvp;

use signalbox_sim::explore::{Bounds, Explored, Model, explore};

/// Explores a model with this number of faults, of which one may be a restart.
fn explored(name: &str, model: &impl Model, faults: u32) -> Explored {
    let faults = std::env::var("SIGNALBOX_FAULTS").map_or(faults, |text| text.parse().unwrap());
    match explore(model, Bounds { faults, restarts: 1 }) {
        Ok(explored) => {
            eprintln!("{name}, {faults} faults: {explored}");
            explored
        }
        Err(broken) => panic!("{name}, {faults} faults: {broken}"),
    }
}
