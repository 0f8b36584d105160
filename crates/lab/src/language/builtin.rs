//! The scenarios that come with the program, and the programs that they run. `build.rs` builds in every file of `scenarios/`.

/// What stands in a command for the directory of the programs that come with the lab.
pub(crate) const PROGRAMS: &str = "{lab_programs}";

/// Path and text of each program.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/programs.rs"));

const BUILTINS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/scenarios.rs"));

/// Returns name and text of each built-in scenario, `quickstart` first.
pub(crate) fn builtins() -> impl Iterator<Item = (&'static str, &'static str)> {
    BUILTINS.iter().copied()
}

/// Returns the text of the built-in scenario with this name.
pub(crate) fn builtin(name: &str) -> Option<&'static str> {
    builtins().find(|(known, _)| *known == name).map(|(_, text)| text)
}

/// Returns path and text of each program that comes with the lab. The path is relative to their directory.
pub(crate) fn programs() -> impl Iterator<Item = (&'static str, &'static str)> {
    FILES.iter().copied()
}

/// Returns the first path in a command, behind [`PROGRAMS`], at which there is no program.
pub(crate) fn missing_program(word: &str) -> Option<&str> {
    let ends = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_'));
    let named = word.split(PROGRAMS).skip(1).filter_map(|rest| rest.strip_prefix('/'));
    let mut paths = named.map(|rest| rest.split(ends).next().unwrap_or_default());
    paths.find(|path| programs().all(|(known, _)| known != *path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_of_built_in_scenarios_come_with_the_lab() {
        for (name, text) in builtins() {
            assert_eq!(missing_program(text), None, "{name}");
            for place in ["scenarios/", "examples/"] {
                let outside = text.lines().find(|line| {
                    !line.starts_with('#') && !line.starts_with("description") && line.contains(place)
                });
                assert_eq!(outside, None, "{name} needs the source tree");
            }
        }
        assert_eq!(missing_program("x {lab_programs}/attack.py 1; {lab_programs}/no.py"), Some("no.py"));
        assert!(programs().any(|(path, _)| path == "pathping/signalbox/v1/types_pb2.py"));
    }
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
