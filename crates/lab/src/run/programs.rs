//! The programs that come with the lab, as files: `run` steps start them.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::language::{PROGRAMS, programs};
use crate::plan::places;

/// Returns the directory of the programs in a lab, for a command that names it. They are written when a command does so for the first
/// time, and end with the lab.
pub(crate) fn directory(lab: &str, command: &[String]) -> Result<String> {
    let directory = places::directory(lab).join("programs");
    if command.iter().any(|word| word.contains(PROGRAMS)) && !directory.exists() {
        write(&directory)
            .with_context(|| format!("cannot write the programs into {}", directory.display()))?;
    }
    Ok(directory.display().to_string())
}

fn write(directory: &Path) -> Result<()> {
    for (path, text) in programs() {
        let file = directory.join(path);
        fs::create_dir_all(file.parent().unwrap_or(directory))?;
        fs::write(file, text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::scratch::Scratch;

    #[test]
    fn programs_are_written_with_what_they_import() {
        let scratch = Scratch::new("programs").unwrap();
        write(scratch.path()).unwrap();
        let text = fs::read_to_string(scratch.join("gist_nat.py")).unwrap();
        assert!(text.contains("import attack") && scratch.join("attack.py").is_file());
        assert!(scratch.join("pathping/signalbox/casp/v1/client_pb2.py").is_file());
    }
}
