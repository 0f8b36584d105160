//! Room for the maps of eBPF before Linux 5.11, which counts them as locked memory: all that the processes of a user have in
//! maps and programs together must stay below the limit of the process that makes one more (RLIMIT_MEMLOCK).
//!
//! The kernel does not say how much others of the user have. So the limit is raised when it is too low, step by step, and no further than
//! so many processes with the same links would need.

use std::io;

use capctl::{Cap, CapState};

use super::bpf;
use super::config::LinkConfig;
use crate::sys::kernel_version;

/// The first kernel that counts maps as memory of their control group instead.
const UNCOUNTED: (u32, u32) = (5, 11);
/// The limit is doubled so often: room for the maps of 64 processes.
const STEPS: u32 = 6;

/// How far the limit is raised for the links of a configuration.
#[derive(Debug)]
pub(super) struct Room {
    needed: u64,
    /// The steps that are left; 0: no more is to be had.
    left: u32,
    /// The limit that was set; `None`: the one before stays.
    raised: Option<u64>,
}

/// Whether the kernel can take eBPF programs of this process: without these rights it refuses them, whatever the limit is.
fn may_load() -> bool {
    // CAP_BPF is a part of CAP_SYS_ADMIN since Linux 5.8. Where nothing is known, the kernel says it.
    CapState::get_current()
        .map_or(true, |state| [Cap::BPF, Cap::SYS_ADMIN].into_iter().any(|right| state.effective.has(right)))
}

impl Room {
    /// Room for the maps of these links, on this kernel.
    pub(super) fn here(links: &[LinkConfig]) -> Self {
        Self::new(links, kernel_version().filter(|_| may_load()))
    }

    /// Room for the maps of these links, on a kernel of this version.
    fn new(links: &[LinkConfig], kernel: Option<(u32, u32)>) -> Self {
        let counts = kernel.is_some_and(|kernel| kernel < UNCOUNTED);
        let needed = links.iter().map(bpf::locked_memory).fold(0, u64::saturating_add);
        Self { needed, left: if counts { STEPS + 1 } else { 0 }, raised: None }
    }

    /// The kernel has decided about the maps of one more link: what was done for them is logged, once for all steps.
    pub(super) fn settle(&mut self) {
        if let Some(octets) = self.raised.take() {
            tracing::info!(octets, "the limit of locked memory is raised for maps of eBPF");
        }
    }

    /// Raises the limit by `raise`, if the kernel may have refused a map or a program for it. True: another try may succeed.
    pub(super) fn grow(
        &mut self,
        refused: &io::Error,
        mut raise: impl FnMut(u64) -> io::Result<u64>,
    ) -> bool {
        // The kernel refuses a process without the capability in the same way.
        if refused.raw_os_error() != Some(libc::EPERM) {
            return false;
        }
        while self.left > 0 {
            let wanted = self.needed.saturating_mul(1 << (STEPS + 1 - self.left));
            self.left -= 1;
            match raise(wanted) {
                Ok(limit) if limit == wanted => {
                    self.raised = Some(limit);
                    return true;
                }
                // It was that high, and is too low all the same.
                Ok(limit) if limit > wanted => {}
                result => {
                    self.left = 0;
                    let limit = result.as_ref().ok();
                    let error = result.as_ref().err();
                    tracing::warn!(
                        limit,
                        error = error.map(tracing::field::display),
                        wanted,
                        "the limit of locked memory stays too low: before Linux 5.11 the maps of eBPF count, so raise it (LimitMEMLOCK= of the unit, or ulimit -l)"
                    );
                    // A part of the way may be enough.
                    return limit.is_some();
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(kernel: Option<(u32, u32)>) -> Room {
        let links = ["a", "b"].map(|name| LinkConfig::new(name, 1_000_000));
        Room::new(&links, kernel)
    }

    fn error(number: i32) -> io::Error {
        io::Error::from_raw_os_error(number)
    }

    /// Maps of two links with 16,384 reservations each: what Linux 5.10 counts for them.
    #[test]
    fn what_is_needed_is_what_the_kernel_counts() {
        let needed = room(Some((5, 10))).needed;
        assert!((10_000_000..20_000_000).contains(&needed), "{needed}");
    }

    #[test]
    fn the_limit_is_raised_step_by_step_and_no_further() {
        let (mut room, mut asked) = (room(Some((5, 10))), Vec::new());
        let needed = room.needed;
        let mut grow = || {
            room.grow(&error(libc::EPERM), |octets| {
                asked.push(octets);
                Ok(octets)
            })
        };
        // A process that lacks the capability is refused each time.
        assert_eq!([(); 9].map(|()| grow()), [true, true, true, true, true, true, true, false, false]);
        assert_eq!(asked, [1, 2, 4, 8, 16, 32, 64].map(|times| times * needed));
        // One line of the log for all of them, with the last limit.
        assert_eq!(room.raised, Some(64 * needed));
        room.settle();
        assert_eq!(room.raised, None);
    }

    #[test]
    fn a_step_below_the_present_limit_is_no_try() {
        let mut room = room(Some((5, 10)));
        let present = room.needed * 5;
        assert!(room.grow(&error(libc::EPERM), |octets| Ok(octets.max(present))));
        assert_eq!(room.left, STEPS - 3, "four steps were taken");
    }

    #[test]
    fn what_the_system_does_not_allow_ends_the_tries() {
        let half = room(Some((5, 10))).needed / 2;
        let mut limited = room(Some((5, 10)));
        assert!(limited.grow(&error(libc::EPERM), |_| Ok(half)), "half of it may be enough");
        assert!(!limited.grow(&error(libc::EPERM), |_| panic!("it was the last try")));
        let mut refused = room(Some((5, 10)));
        assert!(!refused.grow(&error(libc::EPERM), |_| Err(error(libc::EPERM))));
        assert!(!refused.grow(&error(libc::EPERM), |_| panic!("it was the last try")));
    }

    /// A newer kernel, one of an unknown version, and another reason.
    #[test]
    fn nothing_is_raised_where_the_limit_is_not_the_reason() {
        for kernel in [Some((5, 11)), Some((6, 1)), None] {
            assert!(!room(kernel).grow(&error(libc::EPERM), |_| panic!("{kernel:?}")));
        }
        assert!(!room(Some((5, 10))).grow(&error(libc::ENOMEM), |_| panic!("ENOMEM")));
    }
}
