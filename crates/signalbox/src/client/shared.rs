//! Connections of a command that makes many calls.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use tokio::sync::Mutex;
use tonic::transport::Channel;

use super::channel;

/// A connection that several calls share. It is opened when the first of them begins: calls wait for one another, and the daemon closes
/// a connection that has none for some seconds. It is made again for calls that the daemon has left.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    socket: Arc<Path>,
    /// The number of connections so far, and the one in use.
    held: Arc<Mutex<(u32, Option<Channel>)>>,
}

impl Shared {
    /// One to the daemon that listens at `socket`.
    pub(crate) fn to(socket: &Path) -> Self {
        Self { socket: socket.into(), held: Arc::default() }
    }

    /// The connection, for a call that begins now, and its number. `failed`: the number of the one that did not serve.
    ///
    /// # Errors
    /// Those of [`channel`].
    pub(crate) async fn channel(&self, failed: Option<u32>) -> Result<(u32, Channel)> {
        let mut held = self.held.lock().await;
        let number = held.0;
        if let Some(open) = held.1.as_ref().filter(|_| failed != Some(number)) {
            return Ok((number, open.clone()));
        }
        *held = (number + 1, None);
        let open = channel(&self.socket).await?;
        held.1 = Some(open.clone());
        Ok((number + 1, open))
    }
}
