//! State that is shown to users.

use super::Ping;

impl Ping {
    /// Number of running pings that this node started.
    #[must_use]
    pub const fn running(&self) -> u32 {
        self.sessions.len()
    }

    /// Number of messages whose status GIST has not reported yet.
    #[must_use]
    pub const fn watched(&self) -> u32 {
        self.out.watched()
    }
}
