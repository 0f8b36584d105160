//! Builds the scenarios in: every TOML file of `scenarios/`, as a list of name and text; and the programs that they run, as a list of path
//! and text, so that a scenario runs where there is no source tree.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The scenario that a new user runs first stands first; the others follow in alphabetical order.
const FIRST: &str = "quickstart";
/// The directories of programs, and what they are called in the program.
const PROGRAMS: [(&str, &str); 3] =
    [("scenarios", ""), ("examples/pathping", "pathping/"), ("examples/casp-token", "casp-token/")];

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let mut files = files(&root.join("scenarios"), "toml")?;
    files.sort_by_key(|path| {
        let stem = path.file_stem().unwrap_or_default().to_owned();
        (stem != FIRST, stem)
    });
    let scenarios = files.into_iter().map(|path| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        (name, path)
    });
    write("scenarios.rs", scenarios)?;
    let mut programs = Vec::new();
    for (directory, name) in PROGRAMS {
        let directory = root.join(directory);
        for path in files_below(&directory)? {
            let place = path.strip_prefix(&directory).map_err(io::Error::other)?.to_string_lossy();
            programs.push((format!("{name}{place}"), path));
        }
    }
    write("programs.rs", programs)
}

/// Writes a list of names and texts as an expression.
fn write(list: &str, files: impl IntoIterator<Item = (String, PathBuf)>) -> io::Result<()> {
    let mut text = String::from("&[\n");
    for (name, path) in files {
        println!("cargo::rerun-if-changed={}", path.display());
        let path = path.to_string_lossy();
        // Writing to a string does not fail.
        let _ = writeln!(text, "    ({name:?}, include_str!({path:?})),");
    }
    text.push_str("]\n");
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo sets OUT_DIR"))?;
    fs::write(Path::new(&out).join(list), text)
}

/// The files of a directory whose names end so.
fn files(directory: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    println!("cargo::rerun-if-changed={}", directory.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_file() && path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The programs of a directory and of those below it.
fn files_below(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = files(directory, "py")?;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            all.extend(files_below(&path)?);
        }
    }
    all.sort();
    Ok(all)
}
