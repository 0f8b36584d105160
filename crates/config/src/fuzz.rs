//! The body of the fuzz target: a property that holds for every input. The target in `fuzz/` is one line, and the tests
//! run it with changed texts.

use std::path::Path;

use crate::{Level, parse};

/// A text is a configuration or has at least one mistake, never both. Each finding has a text. A configuration that is shown
/// with all its values is the same configuration. Input: a text, read as the file `signalboxd.toml`.
///
/// # Panics
/// The property does not hold.
pub fn config(octets: &[u8]) {
    let Ok(text) = core::str::from_utf8(octets) else { return };
    let path = Path::new("signalboxd.toml");
    let loaded = parse(path, text);
    let mistakes = loaded.findings.iter().filter(|finding| finding.level == Level::Error).count();
    assert_eq!(loaded.config.is_none(), mistakes > 0, "{:?}", loaded.findings);
    for finding in &loaded.findings {
        assert!(!finding.to_string().is_empty());
    }
    if let Some(config) = loaded.config {
        let shown = config.effective();
        let again = parse(path, &shown);
        let findings = again.findings;
        assert_eq!(again.config.map(|config| config.effective()).as_ref(), Some(&shown), "{findings:?}");
    }
}
