//! Where programs are.

use std::env;
use std::path::PathBuf;

use crate::sys;

/// The path of the program `name`: beside the program that runs now, in the `sbin` beside its directory, or else in `PATH`.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    let own = env::current_exe().ok();
    let beside = own.as_deref().map(|own| own.with_file_name(name));
    // What is installed in `bin` has the daemon in the `sbin` beside it, which the `PATH` of an ordinary user lacks.
    let sbin = own.as_deref().and_then(|own| Some(own.parent()?.parent()?.join("sbin").join(name)));
    let near = [beside, sbin].into_iter().flatten().find(|file| file.is_file());
    near.or_else(|| sys::find_in_path(name))
}
