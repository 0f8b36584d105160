//! Reports to a service manager (the protocol of `sd_notify(3)`).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The connection to the service manager, if there is one; cheap to clone.
///
/// It is connected while the daemon has all its privileges, and stays usable without them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notifier {
    socket: Option<Arc<UnixDatagram>>,
    /// How often the service manager expects a watchdog notification.
    pub(crate) watchdog: Option<Duration>,
}

impl Notifier {
    /// Connects to the socket in `NOTIFY_SOCKET`.
    pub(crate) fn open() -> Self {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return Self::default() };
        let name = name.as_encoded_bytes();
        let address = match name.strip_prefix(b"@") {
            Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name),
            None => SocketAddr::from_pathname(Path::new(std::str::from_utf8(name).unwrap_or_default())),
        };
        let connected = address.and_then(|address| {
            let socket = UnixDatagram::unbound()?;
            socket.connect_addr(&address)?;
            Ok(socket)
        });
        match connected {
            Ok(socket) => Self { socket: Some(Arc::new(socket)), watchdog: watchdog() },
            Err(error) => {
                tracing::warn!(%error, "the service manager in NOTIFY_SOCKET cannot be reached");
                Self::default()
            }
        }
    }

    /// Sends `state`: `READY=1`, `RELOADING=1`, `STOPPING=1` or `WATCHDOG=1`.
    pub(crate) fn send(&self, state: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) = socket.send(state.as_bytes()) {
            tracing::warn!(%error, "cannot send {state} to the service manager");
        }
    }
}

/// The time in `WATCHDOG_USEC`, if it concerns this process.
fn watchdog() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let ours = std::env::var_os("WATCHDOG_PID").is_none()
        || number("WATCHDOG_PID") == Some(u64::from(std::process::id()));
    number("WATCHDOG_USEC").filter(|period| ours && *period > 0).map(Duration::from_micros)
}
