//! The table of docs/security.md that names the tests of each threat.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The sources of a directory by the names of their files.
fn sources(directory: &Path, all: &mut BTreeMap<String, Vec<PathBuf>>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.entry(name).or_default().push(path);
        }
    }
}

/// Each threat has tests, and each of them exists: a scenario, or a function of a file.
#[test]
fn the_tests_of_each_threat_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = BTreeMap::new();
    sources(&root.join("crates"), &mut files);
    let page = fs::read_to_string(root.join("docs/security.md")).unwrap();
    let section = page.lines().skip_while(|line| *line != "## Tests by threat").skip(1);
    let rows = section.take_while(|line| !line.starts_with("## ")).filter(|line| line.starts_with("| "));
    let is_threat = |row: &str| row.as_bytes().get(3).is_some_and(u8::is_ascii_digit);
    let mut threats = BTreeSet::new();
    for row in rows {
        let tests: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        if is_threat(row) {
            assert!(threats.insert(row[2..5].to_owned()), "two rows of one threat: {row}");
            assert!(!tests.is_empty(), "{row}");
        }
        for test in tests {
            let found = match test.split_once("::") {
                None => root.join("scenarios").join(test).with_extension("toml").exists(),
                Some((file, function)) => {
                    let wanted = format!("fn {function}(");
                    let mut of_name = files.get(file).into_iter().flatten();
                    of_name.any(|path| fs::read_to_string(path).unwrap().contains(&wanted))
                }
            };
            assert!(found, "{test} does not exist: {row}");
        }
    }
    assert_eq!(threats.len(), 53);
}
