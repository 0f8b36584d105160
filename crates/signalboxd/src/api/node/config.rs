//! Checks of a configuration that a client sends.

use std::path::Path;

use signalbox_api::v1;
use signalbox_config::{Config, Finding, Level};

/// The name of the text that a client sent, as no file has it.
const TEXT: &str = "";

/// What is wrong with a configuration, and which keys differ from those in `force`.
///
/// No file is read: a client that may use the socket might not be allowed to read what the daemon can.
pub(super) fn check(toml: &str, force: &Config) -> v1::CheckConfigResponse {
    let checked = signalbox_config::parse(Path::new(TEXT), toml);
    let machine_warnings =
        checked.config.as_ref().map(|config| config.machine_warnings(Path::new(TEXT))).unwrap_or_default();
    let problems = checked.findings.into_iter().chain(machine_warnings).map(problem).collect();
    let Some(config) = checked.config else {
        return v1::CheckConfigResponse { problems, ..Default::default() };
    };
    let reload = force.reload(&config);
    v1::CheckConfigResponse { problems, needs_restart: reload.needs_restart, reloadable: reload.applied }
}

pub(in super::super) fn problem(finding: Finding) -> v1::ConfigProblem {
    let severity = match finding.level {
        Level::Error => v1::Severity::Error,
        Level::Warning => v1::Severity::Warning,
    };
    let file = finding.file.to_string_lossy().into_owned();
    v1::ConfigProblem {
        severity: severity.into(),
        file: Some(file).filter(|file| file != TEXT),
        line: u32::try_from(finding.line).ok(),
        column: u32::try_from(finding.column).ok(),
        key: Some(finding.key).filter(|key| !key.is_empty()),
        message: finding.message,
    }
}
