//! An oracle for what firewalls and NATs let pass: policies, topologies and requests at random, the netlink octets that the real
//! code emits for them, and a judge that knows the documentation only. CONTRIBUTING.md says how more draws are run.

#[cfg(feature = "namespace-tests")]
mod agreement;
mod asks;
mod draw;
mod holes;
mod judge;
mod kernel;
mod messages;
mod octets;
mod policy;
mod rules;
mod written;
