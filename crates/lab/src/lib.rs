//! The lab: topologies in network namespaces, scenarios that are TOML files, and the checks that prove them.
//!
//! `scenario` reads the file, `plan` decides names, addresses and routes without touching anything, `net`
//! carries the plan out and takes it down again, `run` does the workload, `capture` and `checks` judge it from
//! outside the daemons. `docs/lab.md` describes the format.

mod plan;
mod scenario;
mod units;
