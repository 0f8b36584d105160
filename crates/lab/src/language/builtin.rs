//! The scenarios that come with the program. `build.rs` builds in every file of `scenarios/`.

const BUILTINS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/scenarios.rs"));

/// Returns name and text of each built-in scenario, `quickstart` first.
pub(crate) fn builtins() -> impl Iterator<Item = (&'static str, &'static str)> {
    BUILTINS.iter().copied()
}

/// Returns the text of the built-in scenario with this name.
pub(crate) fn builtin(name: &str) -> Option<&'static str> {
    builtins().find(|(known, _)| *known == name).map(|(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::read;

    /// Descriptions are printed in one line each.
    const DESCRIPTION_MAX: usize = 170;

    #[test]
    fn every_file_is_readable_under_its_own_name_and_listed_in_the_documentation() {
        let page = include_str!("../../../../docs/lab.md");
        assert_eq!(builtins().next().map(|(name, _)| name), Some("quickstart"));
        let mut rows = String::new();
        for (name, text) in builtins() {
            let scenario = read(&format!("{name}.toml"), text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(scenario.name, name);
            assert!(scenario.description.len() <= DESCRIPTION_MAX, "the description of {name} is too long");
            rows += &format!("| `{name}` | {} |\n", scenario.description);
        }
        assert!(page.contains(&rows), "docs/lab.md should have these rows, and no other scenario:\n{rows}");
        let after = page.split_once(&rows).map_or("", |(_, after)| after);
        assert!(after.starts_with('\n'), "docs/lab.md lists a scenario that has no file");
    }
}
