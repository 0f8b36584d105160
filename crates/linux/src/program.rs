//! Where programs are.

use std::env;
use std::path::PathBuf;

use crate::sys;

/// The path of the program `name`: beside the program that runs now, or else in `PATH`.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    let beside = env::current_exe().ok().map(|own| own.with_file_name(name));
    beside.filter(|file| file.is_file()).or_else(|| sys::find_in_path(name))
}
