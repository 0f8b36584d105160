//! The limit of the errors that a client sends.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::shares::{RateShares, source};
use signalbox_core::{KeyedHasher, Time};

/// Errors of a session leave so far apart.
const APART: Duration = Duration::from_secs(1);
/// Errors about sessions without a record in a second, for each source.
const WITHOUT_RECORD: u32 = 10;

/// The limit of the errors about sessions without a record.
#[derive(Debug)]
pub(in crate::clients) struct Errors(RateShares);

impl Errors {
    pub(in crate::clients) fn new(hasher: KeyedHasher) -> Self {
        Self(RateShares::new(WITHOUT_RECORD, hasher))
    }

    /// Whether an error may leave now. `from`: no error about the session leaves before this time, if it has a record. `to`: the node
    /// that gets it.
    pub(in crate::clients) fn allow(&mut self, now: Time, from: Option<&mut Time>, to: IpAddr) -> bool {
        let Some(from) = from else { return self.0.allow(now, &source(to)) };
        let allowed = *from <= now;
        if allowed {
            *from = now + APART;
        }
        allowed
    }
}
