//! The lab: topologies in network namespaces, scenarios that are TOML files, and the checks that prove them.
//!
//! `scenario` reads the file, `plan` decides names, addresses and routes without touching anything, `net`
//! carries the plan out and takes it down again, `run` does the workload, `capture` and `checks` judge it from
//! outside the daemons. `docs/lab.md` describes the format. `bench` measures, `replay` repeats a recorded node.

pub mod bench;
mod certificates;
mod checks;
pub mod cli;
mod command;
mod cost;
mod daemon;
mod dissect;
mod evidence;
mod flood;
mod kernel;
mod lab;
mod net;
mod observe;
mod plan;
mod plot;
mod program;
mod queues;
pub mod replay;
mod report;
mod resend;
mod reserve;
mod run;
mod scenario;
mod state;
mod traffic;
mod units;
mod wait;
