//! Writes the JSON Schemas into a directory, or with `--check` compares them: `cargo xtask schema [--check]`.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap_or_else(|| "docs/schema".to_owned());
    let check = arguments.next().as_deref() == Some("--check");
    match run(Path::new(&directory), check) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("schema: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(directory: &Path, check: bool) -> Result<bool, Box<dyn std::error::Error>> {
    let mut current = true;
    for (name, schema) in signalbox_json::schemas()? {
        let file = directory.join(format!("{name}.json"));
        let text = serde_json::to_string_pretty(&schema)? + "\n";
        if !check {
            std::fs::write(&file, text)?;
        } else if std::fs::read_to_string(&file).ok().as_deref() != Some(text.as_str()) {
            eprintln!("{} is not current: run cargo xtask schema, commit the result", file.display());
            current = false;
        }
    }
    Ok(current)
}
