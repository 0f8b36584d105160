//! Reads configurations, and makes files for them.

use std::path::{Path, PathBuf};

use signalbox_config::{Config, Finding, Level, parse};

/// Reads a file after `version = 1`, which is its first line.
pub(crate) fn read(text: &str) -> Result<Config, Vec<String>> {
    let text = format!("version = 1\n{text}");
    let loaded = parse(Path::new("node.toml"), &text).usable();
    loaded.map(|(config, _)| config).map_err(errors)
}

/// The mistakes without the warnings.
pub(crate) fn errors(findings: Vec<Finding>) -> Vec<String> {
    lines(findings.into_iter().filter(|one| one.level == Level::Error).collect())
}

pub(crate) fn lines(findings: Vec<Finding>) -> Vec<String> {
    findings.iter().map(Finding::to_string).collect()
}

pub(crate) fn settings(text: &str) -> signalbox_node::Config {
    read(text).unwrap_or_else(|mistakes| panic!("{mistakes:#?}")).settings(0, false)
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A directory of this test, removed at its end.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("signalbox-config-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn write(&self, name: &str, mode: u32, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Mistakes and warnings of a file after `version = 1`.
pub(crate) fn warnings(text: &str) -> Vec<String> {
    lines(parse(Path::new("node.toml"), &format!("version = 1\n{text}")).findings)
}
