//! Connection mode (RFC 5971 §4.4.3, §4.4.5, §5.4, §5.7, §6.4).

mod across_nat;
mod authorise;
mod handshake;
mod kit;
mod machine;
mod negotiate;
mod pair;
mod retry;
mod sctp;
mod sender;
mod shares;
mod transfer;
