//! Links between the pages of the repository: each leads to a file and a heading that exist.

use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path, PathBuf};

/// The pages for readers: README and its like, and everything in these folders.
const FOLDERS: [&str; 3] = ["", "docs", "examples"];

/// The page that is made with the site.
const MADE: &str = "docs/commands.md";
/// The list of pages of the site that mdBook makes.
const SUMMARY: &str = "docs/site/SUMMARY.md";

#[test]
fn links_lead_to_files_and_headings() {
    let root = crate::root();
    let mut pages = BTreeMap::new();
    for folder in FOLDERS {
        collect(&root.join(folder), !folder.is_empty(), &mut pages);
    }
    let anchors: HashMap<&Path, Vec<String>> =
        pages.iter().map(|(path, text)| (path.as_path(), anchors(text))).collect();
    let mut broken = Vec::new();
    for (path, text) in &pages {
        // The summary of the site names pages by their paths in the repository.
        let from = if path.ends_with(SUMMARY) { Some(root.as_path()) } else { path.parent() };
        for link in links(text) {
            let (file, anchor) =
                link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
            let target = match file {
                "" => path.clone(),
                _ => normal(&from.expect("a file has a folder").join(file)),
            };
            let known = match (anchor, anchors.get(target.as_path())) {
                (Some(anchor), Some(anchors)) => anchors.iter().any(|one| one == anchor),
                _ => target.exists() || target.ends_with(MADE),
            };
            if !known {
                broken.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(pages.len() > 20, "{} pages", pages.len());
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Adds the pages of a folder and, if `deep`, of those in it.
fn collect(folder: &Path, deep: bool, pages: &mut BTreeMap<PathBuf, String>) {
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() && deep {
            collect(&path, deep, pages);
        } else if path.extension().is_some_and(|end| end == "md") {
            let text = std::fs::read_to_string(&path).expect("it can be read");
            pages.insert(path, text);
        }
    }
}

/// The lines outside of blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// Targets of links in the repository.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let parts = prose(text).flat_map(|line| line.split("](").skip(1));
    let targets = parts.filter_map(|part| part.split_once(')').map(|(target, _)| target));
    targets.filter(|target| !target.contains("://"))
}

/// The anchors of the headings, as the web interface of a repository makes them: lower case, blanks as hyphens, no other
/// punctuation.
fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let words = headings.filter_map(|line| line.split_once(' ').map(|(_, words)| words.to_lowercase()));
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    words.map(|words| words.chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).collect()).collect()
}

/// The path without `..`.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut whole, part| {
        if part == Component::ParentDir {
            whole.pop();
        } else {
            whole.push(part);
        }
        whole
    })
}
