//! Builds the experiments in: every TOML file below `papers/experiments`, as a list of its place and text.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let papers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers").canonicalize()?;
    println!("cargo::rerun-if-changed={}", papers.display());
    let root = papers.join("experiments");
    let mut list = String::from("&[\n");
    for paper in entries(&root)? {
        for file in entries(&paper)?.iter().filter(|file| file.extension().is_some_and(|end| end == "toml")) {
            let place = file.strip_prefix(&root).map_err(io::Error::other)?.with_extension("");
            // Writing to a string does not fail.
            let _ = writeln!(
                list,
                "    ({:?}, include_str!({:?})),",
                place.to_string_lossy(),
                file.to_string_lossy()
            );
        }
    }
    list.push_str("]\n");
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo sets OUT_DIR"))?;
    fs::write(Path::new(&out).join("experiments.rs"), list)
}

fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    println!("cargo::rerun-if-changed={}", directory.display());
    let mut all = fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    all.sort();
    Ok(all)
}
