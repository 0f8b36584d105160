//! SCTP associations (RFC 6084) in memory, in virtual time.

mod hostile;
mod lifecycle;
mod net;
mod transfer;
