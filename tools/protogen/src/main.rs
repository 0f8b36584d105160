//! Makes the Rust code of the gRPC API and its descriptors from the proto files, without protoc.
//!
//! The result is checked in, so that a normal build needs no generator.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use anyhow::{Context, Result, bail};
use prost::Message;

/// The descriptors of all proto files, for reflection, JSON and the comparison with the released API.
const DESCRIPTORS: &str = "descriptors.bin";

fn main() -> Result<ExitCode> {
    let check = match env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [flag] if flag == "--check" => true,
        other => bail!("unknown arguments {other:?}; the only one is --check"),
    };
    let api = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/api");
    let target = api.join("src/generated");
    let made = generate(&api.join("proto"))?;
    let changed: Vec<&String> =
        made.iter().filter(|(name, made)| fs::read(target.join(name)).ok().as_ref() != Some(made)).map(|(name, _)| name).collect();
    if changed.is_empty() {
        println!("the generated code agrees with crates/api/proto");
    } else if check {
        println!("{changed:?} do not agree with crates/api/proto: run protogen without --check and commit the result");
        return Ok(ExitCode::FAILURE);
    } else {
        for name in changed {
            let path = target.join(name);
            fs::write(&path, &made[name]).with_context(|| format!("cannot write {}", path.display()))?;
            println!("wrote {}", path.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// All generated files by name.
fn generate(include: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut protos = Vec::new();
    find(include, &mut protos)?;
    let descriptors = protox::Compiler::new([include])?
        .include_source_info(true)
        .include_imports(true)
        .open_files(&protos)?
        .file_descriptor_set();
    let out: PathBuf = env::temp_dir().join(format!("signalbox-protogen-{}", std::process::id()));
    fs::create_dir_all(&out)?;
    let mut config = prost_build::Config::new();
    config.enable_type_names();
    let result = tonic_prost_build::configure()
        .build_transport(false)
        .emit_rerun_if_changed(false)
        .out_dir(&out)
        .compile_fds_with_config(descriptors.clone(), config)
        .context("cannot generate")
        .and_then(|()| collect(&out));
    fs::remove_dir_all(&out)?;
    let mut made = result?;
    made.insert(DESCRIPTORS.to_owned(), descriptors.encode_to_vec());
    Ok(made)
}

/// The proto files under a directory, in a fixed order.
fn find(directory: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(directory)?.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>()?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            find(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            found.push(path);
        }
    }
    Ok(())
}

fn collect(out: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut made = BTreeMap::new();
    for entry in fs::read_dir(out)? {
        let path = entry?.path();
        let name = path.file_name().context("a file has a name")?.to_string_lossy().into_owned();
        let code = fs::read_to_string(&path).context("the generator wrote no text")?;
        made.insert(name, format!("// Made by tools/protogen from crates/api/proto; do not edit.\n{code}").into_bytes());
    }
    Ok(made)
}
