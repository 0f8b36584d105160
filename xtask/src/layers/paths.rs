//! The paths in a Rust source that begin with `crate`, `self` or `super`, wherever they stand, and the modules of the root to which they lead.
//!
//! The reader knows comments, literals, groups of `use` and modules in the file, and nothing else of the language.

/// A part of a source that matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    /// `::`
    Separator,
    /// `{`
    Open,
    /// `}`
    Close,
    Other(char),
}

/// The items of the crate's root that paths name, each with its line. `depth` is the number of modules from the root to the source.
pub(super) fn items_of_root(text: &str, depth: usize) -> Vec<(usize, String)> {
    let mut paths = Paths { tokens: tokens(text), found: Vec::new() };
    // The braces around each module in the file.
    let mut modules = Vec::new();
    let (mut braces, mut at) = (0_usize, 0);
    while let Some(token) = paths.token(at) {
        match token {
            Token::Open => braces += 1,
            Token::Close => {
                braces = braces.saturating_sub(1);
                modules.pop_if(|outside| *outside == braces);
            }
            Token::Word("mod") if paths.token(at + 2) == Some(Token::Open) => modules.push(braces),
            Token::Word("crate" | "self" | "super") if paths.begins(at) => {
                at = paths.read(at, Some(depth + modules.len()));
                continue;
            }
            Token::Word(_) | Token::Separator | Token::Other(_) => {}
        }
        at += 1;
    }
    paths.found
}

struct Paths<'a> {
    /// Each with its line.
    tokens: Vec<(usize, Token<'a>)>,
    found: Vec<(usize, String)>,
}

impl<'a> Paths<'a> {
    fn token(&self, at: usize) -> Option<Token<'a>> {
        self.tokens.get(at).map(|(_, token)| *token)
    }

    /// Whether the word at this place is the first one of a path.
    fn begins(&self, at: usize) -> bool {
        let before = at.checked_sub(1).and_then(|before| self.token(before));
        before != Some(Token::Separator) && self.token(at + 1) == Some(Token::Separator)
    }

    /// Reads a path, and returns where it ends. `depth` is the depth of the module from which it goes on; `None` is below an item that
    /// the path has named.
    fn read(&mut self, mut at: usize, mut depth: Option<usize>) -> usize {
        loop {
            match self.token(at) {
                Some(Token::Word("self")) => {}
                Some(Token::Word("crate")) => depth = Some(0),
                Some(Token::Word("super")) => depth = depth.and_then(|depth| depth.checked_sub(1)),
                Some(Token::Word(word)) => {
                    if depth == Some(0) {
                        let line = self.tokens.get(at).map_or(0, |(line, _)| *line);
                        self.found.push((line, word.to_owned()));
                    }
                    depth = None;
                }
                Some(Token::Open) => return self.read_group(at + 1, depth),
                _ => return at,
            }
            if self.token(at + 1) != Some(Token::Separator) {
                return at + 1;
            }
            at += 2;
        }
    }

    /// Reads the paths of a group, and returns where it ends.
    fn read_group(&mut self, mut at: usize, depth: Option<usize>) -> usize {
        loop {
            at = self.read(at, depth);
            // Behind a path there may be another name for it.
            loop {
                let token = self.token(at);
                at += 1;
                match token {
                    None | Some(Token::Close) => return at,
                    Some(Token::Other(',')) => break,
                    Some(_) => {}
                }
            }
        }
    }
}

fn tokens(text: &str) -> Vec<(usize, Token<'_>)> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let (token, length) = token(rest, first);
        let (taken, behind) = rest.split_at(length);
        tokens.extend(token.map(|token| (line, token)));
        line += taken.matches('\n').count();
        rest = behind;
    }
    tokens
}

/// The token at the beginning of a text, if there is one, and the octets up to the next.
fn token(text: &str, first: char) -> (Option<Token<'_>>, usize) {
    let word = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    // A prefix of a literal looks like a word.
    if let Some(length) = comment(text).or_else(|| literal(text, word)) {
        return (None, length);
    }
    let behind = first.len_utf8();
    match first {
        _ if word > 0 => (text.get(..word).map(Token::Word), word),
        '{' => (Some(Token::Open), behind),
        '}' => (Some(Token::Close), behind),
        ':' if text.starts_with("::") => (Some(Token::Separator), 2),
        c if c.is_whitespace() => (None, behind),
        c => (Some(Token::Other(c)), behind),
    }
}

/// The length of the comment at the beginning of a text.
fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    Some(text.strip_prefix("/*")?.find("*/")? + 4)
}

/// The length of the string or character at the beginning of a text, whose first word may be its prefix.
fn literal(text: &str, word: usize) -> Option<usize> {
    let (prefix, rest) = text.split_at(word);
    match prefix {
        "r" | "br" | "cr" => {
            let hashes = rest.len() - rest.trim_start_matches('#').len();
            let inside = rest.get(hashes..)?.strip_prefix('"')?;
            let end = format!("\"{}", "#".repeat(hashes));
            Some(text.len() - inside.len() + inside.find(&end)? + end.len())
        }
        "" | "b" | "c" if rest.starts_with('"') => {
            let mut inside = rest.char_indices().skip(1);
            while let Some((at, c)) = inside.next() {
                match c {
                    '"' => return Some(word + at + 1),
                    '\\' => drop(inside.next()),
                    _ => {}
                }
            }
            None
        }
        "" | "b" if rest.starts_with("'\\") => Some(word + 3 + rest.get(3..)?.find('\'')? + 1),
        "" | "b" if rest.starts_with('\'') => {
            // Anything longer than one character is a lifetime.
            let (end, quote) = rest.char_indices().nth(2)?;
            (quote == '\'').then_some(word + end + 1)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, depth: usize) -> Vec<(usize, String)> {
        items_of_root(text, depth)
    }

    fn one(line: usize, word: &str) -> Vec<(usize, String)> {
        vec![(line, word.to_owned())]
    }

    #[test]
    fn a_path_of_super_is_seen_wherever_it_stands() {
        for text in [
            "use super::super::top;",
            "pub(super) fn f() -> super::super::top::A { loop {} }",
            "fn f() { let a = g(super::super::top::a(), 'x'); }",
            "impl<'a> From<super::super::top::A<'a>> for B {}",
            "use super::{super::top::{A, B}, c};",
            "use self::super::super::top;",
        ] {
            assert_eq!(found(text, 2), one(1, "top"), "{text}");
            assert_eq!(found(text, 3), [], "{text}: it does not reach the root");
        }
    }

    #[test]
    fn a_module_in_the_file_is_one_step_more() {
        let text = "mod tests {\n    use super::super::top;\n    fn f() { {} }\n    type A = super::a::A;\n}\ntype B = super::ground::B;\n";
        assert_eq!(found(text, 1), [(2, "top".to_owned()), (6, "ground".to_owned())]);
    }

    #[test]
    fn a_group_names_several() {
        let text =
            "use crate::{\n    ground::{self, A as B},\n    middle as m,\n    top::*,\n};\nuse crate::a;";
        let expected = [(2, "ground"), (3, "middle"), (4, "top"), (6, "a")];
        assert_eq!(found(text, 1), expected.map(|(line, word)| (line, word.to_owned())));
    }

    #[test]
    fn comments_and_literals_name_nothing_and_hide_nothing() {
        let text = r###"
            // crate::a, "
            /* crate::b { */
            const A: &str = "// crate::c \" {";
            const B: [&str; 2] = [r"crate::d \", r#"crate::e " {"#];
            const C: [char; 4] = ['{', '"', '\'', '\u{7b}'];
            const D: &[u8] = b"{";
            fn f<'a>(a: &'a str) -> crate::top::A<'a> { other::crate_name::f(a) }
        "###;
        assert_eq!(found(text, 1), one(8, "top"));
        assert_eq!(found("mod m {}\ntype A = super::top::A;", 1), one(2, "top"));
    }
}
