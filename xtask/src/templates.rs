//! Templates of issues and changes: GitHub and GitLab read them at different places, and both get the same text.

use std::fs;

#[test]
fn both_forges_have_the_same_templates() {
    let root = crate::root();
    let read = |path: &str| fs::read_to_string(root.join(path)).expect("the template is there");
    for (github, gitlab) in [
        ("ISSUE_TEMPLATE/bug.md", "issue_templates/bug.md"),
        ("ISSUE_TEMPLATE/feature.md", "issue_templates/feature.md"),
        ("PULL_REQUEST_TEMPLATE.md", "merge_request_templates/Default.md"),
    ] {
        let (github, gitlab) = (read(&format!(".github/{github}")), read(&format!(".gitlab/{gitlab}")));
        // GitHub's have a head with a name, between two lines of hyphens.
        let text = github.strip_prefix("---\n").and_then(|rest| rest.split_once("---\n\n"));
        assert_eq!(text.map_or(github.as_str(), |(_, text)| text), gitlab);
    }
}
