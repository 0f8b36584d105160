//! Errors for the person who runs the program: an id, what is wrong, what to do.

use std::io;

/// A thing that the program needs from the kernel and does not get.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{id}: {cause}; {remedy}")]
pub struct OpenError {
    /// A short constant name to search for: `missing-net-admin`, `port-in-use`, ...
    pub id: &'static str,
    /// The cause, with the message of the kernel or the tool.
    pub cause: String,
    /// The action that helps.
    pub remedy: String,
}

const PRIVILEGES: &str = "run as root, or give the program the capabilities: \
    setcap cap_net_admin,cap_net_raw,cap_net_bind_service+ep <program>";

impl OpenError {
    pub(crate) fn new(id: &'static str, cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { id, cause: cause.into(), remedy: remedy.into() }
    }

    /// CAP_NET_ADMIN is missing: `what` was refused.
    pub(crate) fn net_admin(what: &str, error: &io::Error) -> Self {
        Self::new("missing-net-admin", format!("{what} needs CAP_NET_ADMIN ({error})"), PRIVILEGES)
    }

    /// CAP_NET_RAW is missing: `what` was refused.
    pub(crate) fn net_raw(what: &str, error: &io::Error) -> Self {
        Self::new("missing-net-raw", format!("{what} needs CAP_NET_RAW ({error})"), PRIVILEGES)
    }

    /// CAP_NET_BIND_SERVICE is missing for `port`.
    pub(crate) fn bind_service(port: u16, error: &io::Error) -> Self {
        Self::new("missing-net-bind-service", format!("UDP port {port} is privileged ({error})"), PRIVILEGES)
    }

    /// A call that should work failed.
    pub(crate) fn system(what: &str, error: &io::Error) -> Self {
        Self::new(
            "system-call",
            format!("{what}: {error}"),
            "see the kernel log; the kernel may lack the feature",
        )
    }
}
