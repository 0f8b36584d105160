//! The commands of the lab, which another program carries out. A script stands for that program.
#![allow(missing_docs, reason = "tests")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The directory of the script.
const BESIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/beside");

/// A directory with the command, in which the program of the lab is or is not.
struct Installed(PathBuf);

impl Installed {
    fn new(name: &str) -> Self {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        // A link: the command finds what is beside the file that it is started from.
        fs::hard_link(env!("CARGO_BIN_EXE_signalbox"), directory.join("signalbox")).unwrap();
        Self(directory)
    }

    fn with_the_lab(self) -> Self {
        symlink(Path::new(BESIDE).join("signalbox-lab"), self.0.join("signalbox-lab")).unwrap();
        self
    }

    fn run(&self, path: &str, words: &[&str]) -> Output {
        Command::new(self.0.join("signalbox")).args(words).env("PATH", path).output().unwrap()
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(octets: &[u8]) -> &str {
    std::str::from_utf8(octets).unwrap()
}

fn assert_called(output: &Output, words: &str) {
    assert_eq!(text(&output.stdout), format!("called: {words}\n"));
    assert_eq!(text(&output.stderr), "complains\n");
    assert_eq!(output.status.code(), Some(77));
}

#[test]
fn the_program_beside_the_command_has_all_words_and_its_status_is_that_of_the_command() {
    let installed = Installed::new("beside").with_the_lab();
    for words in [
        &["lab", "run", "quickstart", "--json"][..],
        &["lab", "exec", "h1", "--", "signalbox", "show", "status"],
        &["sim", "--help"],
        &["bench"],
        &["replay", "-"],
        &["help", "lab", "run"],
    ] {
        assert_called(&installed.run("/nowhere", words), &words.join(" "));
    }
}

#[test]
fn the_program_is_found_in_path() {
    let installed = Installed::new("path");
    assert_called(&installed.run(&format!("/nowhere:{BESIDE}"), &["sim", "list"]), "sim list");
}

#[test]
fn a_missing_program_is_a_fault_of_the_environment_and_the_error_names_its_package() {
    let installed = Installed::new("missing");
    let missing = installed.run("/nowhere", &["lab", "list"]);
    assert_eq!(missing.status.code(), Some(3));
    assert!(text(&missing.stderr).contains(": install the package signalbox-lab,"), "{missing:?}");
    let missing = installed.run("/nowhere", &["lab", "list", "--json"]);
    assert_eq!(missing.status.code(), Some(3));
    assert!(
        text(&missing.stderr).starts_with("{\"type\":\"error\",\"reason\":\"environment\","),
        "{missing:?}"
    );
}

#[test]
fn the_help_lists_the_commands_of_the_lab_also_without_the_program() {
    let help = Installed::new("help").run("/nowhere", &["--help"]);
    let help = text(&help.stdout);
    for command in ["lab", "sim", "bench", "replay"] {
        let listed =
            |line: &str| line.strip_prefix(&format!("  {command} ")).is_some_and(|about| about.len() > 30);
        assert!(help.lines().any(listed), "{command}: {help}");
    }
}

#[test]
fn a_shell_completes_the_words_that_the_program_names() {
    let alone = Installed::new("words");
    let script = alone.run("/nowhere", &["completion", "bash"]);
    assert!(script.status.success());
    assert!(
        text(&script.stdout).contains(" replay lab sim bench") && !text(&script.stdout).contains("juggle")
    );
    let script = alone.with_the_lab().run("/nowhere", &["completion", "bash"]);
    assert!(script.status.success());
    assert!(text(&script.stdout).contains("juggle") && text(&script.stdout).contains("reserve"));
}
