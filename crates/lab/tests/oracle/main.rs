//! An oracle for what firewalls and NATs let pass: policies, topologies and requests at random, the netlink octets that the real
//! code emits for them, and a judge that knows the documentation only. CONTRIBUTING.md says how more draws are run.

#[cfg(feature = "namespace-tests")]
mod agreement;
mod asks;
mod draw;
mod enforcer;
mod holes;
mod judge;
mod kernel;
mod messages;
mod network;
mod octets;
mod policy;
mod restart;
#[cfg(feature = "namespace-tests")]
mod router;
mod rules;
mod written;
