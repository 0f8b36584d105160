//! Builds the name of the compiler in, which a record of instructions contains.

use std::process::Command;
use std::{env, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let compiler = env::var_os("RUSTC").ok_or_else(|| io::Error::other("cargo sets RUSTC"))?;
    let version = Command::new(compiler).arg("--version").output()?;
    println!("cargo::rustc-env=SIGNALBOX_COMPILER={}", String::from_utf8_lossy(&version.stdout).trim());
    Ok(())
}
