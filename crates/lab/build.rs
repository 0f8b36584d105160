//! Builds the scenarios in: every TOML file of `scenarios/`, as a list of name and text.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The scenario that a new user runs first stands first; the others follow in alphabetical order.
const FIRST: &str = "quickstart";

fn main() -> io::Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").canonicalize()?;
    println!("cargo::rerun-if-changed={}", directory.display());
    let mut files = fs::read_dir(&directory)?
        .map(|entry| Ok(entry?.path()))
        .filter(|path| path.as_ref().is_ok_and(|path| path.extension().is_some_and(|e| e == "toml")))
        .collect::<io::Result<Vec<PathBuf>>>()?;
    files.sort_by_key(|path| {
        let stem = path.file_stem().unwrap_or_default().to_owned();
        (stem != FIRST, stem)
    });
    let mut list = String::from("&[\n");
    for path in &files {
        println!("cargo::rerun-if-changed={}", path.display());
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let path = path.to_string_lossy();
        // Writing to a string does not fail.
        let _ = writeln!(list, "    ({name:?}, include_str!({path:?})),");
    }
    list.push_str("]\n");
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo sets OUT_DIR"))?;
    fs::write(Path::new(&out).join("scenarios.rs"), list)
}
