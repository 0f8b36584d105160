//! Reports to a service manager that the daemon is ready (the protocol of `sd_notify(3)`).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends `state` (`READY=1`, `STOPPING=1`) to the socket in `NOTIFY_SOCKET`, if there is one.
pub(crate) fn notify(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let name = name.as_encoded_bytes();
    let result = match name.strip_prefix(b"@") {
        Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name),
        None => {
            SocketAddr::from_pathname(std::path::Path::new(std::str::from_utf8(name).unwrap_or_default()))
        }
    }
    .and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = result {
        tracing::warn!(%error, "cannot send {state} to the service manager");
    }
}
