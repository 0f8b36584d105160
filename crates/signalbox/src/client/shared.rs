//! Connections of a command that makes many calls.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use tokio::sync::OnceCell;
use tonic::transport::Channel;

use super::channel;

/// A connection that several calls share. It is opened when the first of them begins: calls wait for one another, and the daemon closes
/// a connection that has none for some seconds.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    socket: Arc<Path>,
    channel: Arc<OnceCell<Channel>>,
}

impl Shared {
    /// One to the daemon that listens at `socket`.
    pub(crate) fn to(socket: &Path) -> Self {
        Self { socket: socket.into(), channel: Arc::default() }
    }

    /// The connection, for a call that begins now.
    ///
    /// # Errors
    /// Those of [`channel`].
    pub(crate) async fn channel(&self) -> Result<Channel> {
        self.channel.get_or_try_init(|| channel(&self.socket)).await.cloned()
    }
}
