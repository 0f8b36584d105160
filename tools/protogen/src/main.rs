//! Makes the Rust code of the control API from its proto files, without protoc.
//!
//! The result is checked in, so that a normal build needs no generator.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use anyhow::{Context, Result, bail};

const PROTOS: [&str; 3] =
    ["signalbox/v1/application.proto", "signalbox/v1/control.proto", "signalbox/v1/rsvp.proto"];
const GENERATED: &str = "signalbox.v1.rs";

fn main() -> Result<ExitCode> {
    let check = match env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [flag] if flag == "--check" => true,
        other => bail!("unknown arguments {other:?}; the only one is --check"),
    };
    let api = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/api");
    let target = api.join("src/generated").join(GENERATED);
    let made = generate(&api.join("proto"))?;
    let had = fs::read_to_string(&target).unwrap_or_default();
    if made == had {
        println!("{GENERATED} agrees with {}", PROTOS.join(" and "));
    } else if check {
        println!(
            "{GENERATED} does not agree with crates/api/proto: run protogen without --check and commit the result"
        );
        return Ok(ExitCode::FAILURE);
    } else {
        fs::write(&target, made).with_context(|| format!("cannot write {}", target.display()))?;
        println!("wrote {}", target.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn generate(include: &Path) -> Result<String> {
    let descriptors = protox::compile(PROTOS, [include])?;
    let out: PathBuf = env::temp_dir().join(format!("signalbox-protogen-{}", std::process::id()));
    fs::create_dir_all(&out)?;
    let result = tonic_prost_build::configure()
        .build_transport(false)
        .emit_rerun_if_changed(false)
        .out_dir(&out)
        .compile_fds(descriptors)
        .context("cannot generate")
        .and_then(|()| fs::read_to_string(out.join(GENERATED)).context("the generator wrote no file"));
    fs::remove_dir_all(&out)?;
    Ok(format!("// Made by tools/protogen from crates/api/proto; do not edit.\n{}", result?))
}
