//! Octets of PCP and NAT-PMP: what the RFCs draw, what servers answer to octets that they cannot read, and damaged messages.

mod corpus;
mod damaged;
mod nat_pmp;
mod options;
mod pcp;
mod support;
