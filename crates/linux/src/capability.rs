//! A check of what the daemon needs from this machine, made by trying it.

use crate::error::OpenError;
use crate::intercept;
use crate::io::{Io, IoConfig};

/// Tries everything that [`Io::open`] does for `config` and undoes it at once. The result lists all that is missing; it
/// is empty if the daemon can run.
#[must_use]
pub fn check(config: &IoConfig) -> Vec<OpenError> {
    let mut missing = Vec::new();
    // The helper says what it lacks.
    if config.helper.is_some() {
        return Io::open(config).err().into_iter().collect();
    }
    // The check without interception comes first: otherwise the first refusal would hide the others.
    if let Err(error) = Io::open(&IoConfig { intercept: false, ..config.clone() }) {
        missing.push(error);
    }
    if intercept::is_wanted(config)
        && let Err(error) = intercept::check(config)
        && !missing.iter().any(|known| known.id == error.id)
    {
        missing.push(error);
    }
    missing
}
