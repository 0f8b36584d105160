//! Priorities (RFC 5975 §5.2.8 to §5.2.10, RFC 5976 §3.2).

use super::code_points::{AdmissionPriority, RestorationPriority};

/// Preemption and Defending Priority: higher values are more important.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Preemption {
    /// Compared with the defending priority of admitted flows when this one asks; never above `defending`.
    pub preemption: u16,
    /// What defends this flow once it is admitted.
    pub defending: u16,
}

/// Admission Priority. Values that follow no rule of §5.2.9 can be read, but only those of the two constructors
/// are made here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Admission {
    /// Counts from end to end and is never changed on the way; [`AdmissionPriority::LOCAL`] if only `priority`
    /// counts.
    pub y2171: AdmissionPriority,
    /// Counts in a local domain.
    pub priority: u8,
}

impl Admission {
    /// A priority of Y.2171: both fields say the same.
    #[must_use]
    pub const fn y2171(priority: AdmissionPriority) -> Self {
        Self { y2171: priority, priority: priority.0 }
    }

    /// A priority in the style of RSVP for emergencies: what it means is a local matter; higher is more
    /// important.
    #[must_use]
    pub const fn local(priority: u8) -> Self {
        Self { y2171: AdmissionPriority::LOCAL, priority }
    }
}

/// RPH Priority, with the numbers that IANA has for the namespaces of RFC 4412.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rph {
    /// RPH Namespace.
    pub namespace: u16,
    /// RPH Priority.
    pub priority: u8,
}

/// Restoration Priority (RFC 5976 §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Restoration {
    /// Urgency.
    pub priority: RestorationPriority,
    /// Time to restore (4 bits): 0 unspecified, 1 within 200 ms, 2 within 2 s.
    pub time: u8,
    /// Extent of restoration (4 bits): 0 unspecified, 1–5 shares of high and medium priority as §3.2 lists them.
    pub extent: u8,
}
