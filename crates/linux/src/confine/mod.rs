//! Confinement of the daemon: after its start it keeps only the privileges that it needs.
//!
//! * `user` finds the user as which the daemon runs.
//! * `capabilities` gives up the user root and all capabilities but those that are needed.
//! * `files` limits the files that can be opened (landlock).
//! * `calls` limits the system calls (seccomp). A refused one is logged and returns EPERM.
//!
//! Everything holds for the thread that calls [`confine`] and for the threads that it starts later. Nothing can be undone.

mod calls;
mod capabilities;
mod files;
mod user;

use capctl::prctl;

use crate::error::OpenError;

pub use capabilities::Needs;
pub use files::{FileAccess, Files};
pub(crate) use user::NOBODY;
pub use user::User;

/// What a process gives up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Confinement {
    /// The user to become if the process is root; `None`: it stays who it is.
    pub user: Option<User>,
    /// The capabilities to keep; `None`: all that it has. A process that becomes another user loses the rest.
    pub capabilities: Option<Needs>,
    /// The files that can be opened; `None`: all.
    pub files: Option<Files>,
    /// Whether system calls are limited.
    pub system_calls: bool,
    /// Whether raw sockets are opened later, as the helper does for a daemon.
    pub opens_raw: bool,
}

/// What was given up, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confined {
    /// The user that the process is now.
    pub user: u32,
    /// The capabilities that it has kept.
    pub capabilities: Vec<&'static str>,
    /// How the kernel limits files.
    pub files: FileAccess,
    /// Whether system calls are limited.
    pub system_calls: bool,
}

/// Gives up what `confinement` does not keep.
///
/// # Errors
/// The kernel refuses a part. The process must end then: it may have given up some parts.
pub fn confine(confinement: &Confinement) -> Result<Confined, OpenError> {
    let Confinement { user, capabilities, files, system_calls, opens_raw } = confinement;
    prctl::set_no_new_privs().map_err(|error| refused("no_new_privs", &error.into()))?;
    // The files are opened while the process may still reach all of them.
    let rules = files.as_ref().map(files::prepare).transpose()?;
    capabilities::reduce(user.as_ref(), *capabilities)
        .map_err(|error| refused("giving up user and capabilities", &error))?;
    let (user, capabilities) = (nix::unistd::geteuid().as_raw(), capabilities::kept());
    let files = rules.map_or(Ok(FileAccess::Unlimited), files::restrict)?;
    if *system_calls {
        calls::restrict(*opens_raw)?;
    }
    Ok(Confined { user, capabilities, files, system_calls: *system_calls })
}

fn refused(what: &str, error: &std::io::Error) -> OpenError {
    OpenError::new(
        "not-confined",
        format!("{what}: {error}"),
        "switch this part off in [privileges] of the configuration if the system does not support it",
    )
}
