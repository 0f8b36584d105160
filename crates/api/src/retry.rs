//! When somebody who holds something asks for it again after a loss: the same for the command and for the daemon's standing
//! requests.

use std::time::{Duration, SystemTime};

use crate::v1;

/// The wait before the first new request.
const FIRST: Duration = Duration::from_millis(250);
/// The longest wait where nothing on the path refused: whatever is missing may be there again at any moment.
const SOON: Duration = Duration::from_secs(2);
/// The longest wait after a refusal that is no decision of a rule, at first.
const LATER: Duration = Duration::from_secs(4);
/// The wait after this number of refusals.
const PATIENT: (u32, Duration) = (30, Duration::from_secs(30));

/// Attempts after a loss that a rule may refuse before that counts: some 12 s. While routes change, a node can take the packets of a
/// flow for those of another side, and judge by the rule for that side.
const UNSETTLED: u32 = 6;

/// How soon it is worth asking again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Nothing answers.
    Soon,
    /// A node refused.
    Later,
    /// A rule or an administrator decided: asking again changes nothing, unless the rule changes.
    Never,
}

impl Pace {
    /// After this failure. `own`: the address of this host in the flow.
    #[must_use]
    pub fn after(failure: &v1::Failure, own: Option<&str>) -> Self {
        let by_this_host = own.is_some() && failure.node.as_deref() == own;
        match failure.cause() {
            v1::Cause::NoAnswer | v1::Cause::NoRoute | v1::Cause::Kernel | v1::Cause::Expired => Self::Soon,
            v1::Cause::Policy => Self::Never,
            _ if by_this_host => Self::Soon,
            v1::Cause::Admission
            | v1::Cause::Preempted
            | v1::Cause::Conflict
            | v1::Cause::Protocol
            | v1::Cause::Unspecified => Self::Later,
        }
    }

    /// After the failure of a passage that stood. Where a NAT lost it, a node behind refuses its session as that of another peer, with
    /// the code of an authorization that failed (RFC 5973 §4.2.5): a new session may be granted.
    #[must_use]
    pub fn after_standing(failure: &v1::Failure, own: Option<&str>) -> Self {
        let refused = Some(v1::failure::Code::Natfw(v1::NatfwCode { class: 5, code: 2 }));
        if failure.code == refused { Self::Later } else { Self::after(failure, own) }
    }
}

/// The waits between requests until one is granted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits {
    attempts: u32,
    /// It was granted once.
    stood: bool,
}

impl Waits {
    /// Nothing was asked for again yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { attempts: 0, stood: false }
    }

    /// It is granted: the next loss is the first again.
    pub const fn granted(&mut self) {
        *self = Self { attempts: 0, stood: true };
    }

    /// Something else is wanted from now on.
    pub const fn anew(&mut self) {
        *self = Self::new();
    }

    /// Whether it was granted once.
    #[must_use]
    pub const fn stood(&self) -> bool {
        self.stood
    }

    /// The pace after a loss or a refusal. What stood is asked for again also where a rule refuses it soon after a loss: routes may not be
    /// settled.
    #[must_use]
    pub const fn pace(&self, pace: Pace) -> Pace {
        match pace {
            Pace::Never if self.stood && 0 < self.attempts && self.attempts <= UNSETTLED => Pace::Later,
            pace => pace,
        }
    }

    /// The requests that were made again since it was granted.
    #[must_use]
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The wait before the next request.
    pub fn next(&mut self, pace: Pace) -> Duration {
        let doubled = FIRST.saturating_mul(2_u32.saturating_pow(self.attempts));
        let wait = match pace {
            Pace::Soon => doubled.min(SOON),
            Pace::Later if self.attempts < PATIENT.0 => doubled.min(LATER),
            Pace::Later | Pace::Never => PATIENT.1,
        };
        self.attempts = self.attempts.saturating_add(1);
        wait
    }
}

/// A wait and up to an eighth of it: what many lost at the same moment they do not ask for at the same moment.
#[must_use]
pub fn spread(wait: Duration) -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    wait + wait.mul_f64(f64::from(now % 1000) / 8000.0)
}
