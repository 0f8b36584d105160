//! Where the files and sockets of a lab are.

use std::path::{Path, PathBuf};

/// Where the state of all labs is.
pub(crate) const DIRECTORY: &str = "/run/signalbox/lab";

/// Returns the directory of the configurations, sockets and logs of a lab.
pub(crate) fn directory(lab: &str) -> PathBuf {
    Path::new(DIRECTORY).join(lab)
}

/// Returns the path of the control socket of a node.
pub(crate) fn socket(lab: &str, node: &str) -> PathBuf {
    directory(lab).join(format!("{node}.sock"))
}
