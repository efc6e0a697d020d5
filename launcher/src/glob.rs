//! Patterns of files to hide, as a policy writes them.
//!
//! `*` stands for anything within one name, `?` for one character, `**` for any number of folders. A pattern without
//! `/` counts at any depth; one with `/` counts from the workspace's top. A trailing `/` or `/**` names the folder.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A parsed pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glob {
    segments: Vec<Vec<u8>>,
}

impl Glob {
    /// Parses a pattern; the error says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let trimmed = text.trim_start_matches("./");
        let trimmed = trimmed.trim_end_matches("/**").trim_end_matches('/');
        let (anchored, rest) = match trimmed.strip_prefix('/') {
            Some(rest) => (true, rest),
            None => (trimmed.contains('/'), trimmed),
        };
        if rest.is_empty() || rest == "**" {
            return Err(
                "it would hide the whole workspace; set `workspace.mode = \"none\"`".into(),
            );
        }
        let mut segments: Vec<Vec<u8>> = Vec::new();
        if !anchored {
            segments.push(b"**".to_vec());
        }
        for segment in rest.split('/') {
            match segment {
                "" | "." => return Err("it has an empty part".into()),
                ".." => return Err("it leads out of the workspace".into()),
                _ if segment.contains('\0') => return Err("it holds a NUL byte".into()),
                _ => segments.push(segment.as_bytes().to_vec()),
            }
        }
        Ok(Self { segments })
    }

    /// Whether a path relative to the workspace is meant.
    pub(crate) fn matches(&self, path: &Path) -> bool {
        let folder = path.parent().unwrap_or(Path::new(""));
        path.file_name()
            .is_some_and(|name| self.matches_in(folder, name.as_bytes()))
    }

    /// Whether what is called `name` in a folder relative to the workspace is meant.
    pub(crate) fn matches_in(&self, folder: &Path, name: &[u8]) -> bool {
        match &self.segments[..] {
            // What most patterns are.
            [any, last] if any == b"**" && last != b"**" => name_matches(last, name),
            segments => {
                let names = folder.iter().map(OsStrExt::as_bytes);
                let names: Vec<&[u8]> = names.chain([name]).collect();
                path_matches(segments, &names)
            }
        }
    }
}

fn path_matches(segments: &[Vec<u8>], names: &[&[u8]]) -> bool {
    // Dynamic, not recursive: a pattern of many `**` must not take exponential time.
    let mut reachable = vec![false; names.len() + 1];
    reachable[0] = true;
    for segment in segments {
        let mut next = vec![false; names.len() + 1];
        if segment == b"**" {
            let mut any = false;
            for (at, reached) in reachable.iter().enumerate() {
                any |= reached;
                next[at] = any;
            }
        } else {
            for (at, name) in names.iter().enumerate() {
                next[at + 1] = reachable[at] && name_matches(segment, name);
            }
        }
        reachable = next;
    }
    reachable[names.len()]
}

/// Matches one name, with `*` and `?`.
pub(crate) fn name_matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut in_name) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, in_name));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[in_name] => {
                at += 1;
                in_name += 1;
            }
            _ => match star {
                Some((star_at, taken)) => {
                    star = Some((star_at, taken + 1));
                    at = star_at + 1;
                    in_name = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        Glob::parse(pattern).unwrap().matches(Path::new(path))
    }

    #[test]
    fn a_bare_name_counts_at_any_depth() {
        assert!(matches("*.sqlite", "a.sqlite"));
        assert!(matches("*.sqlite", "data/deep/a.sqlite"));
        assert!(!matches("*.sqlite", "a.sqlite.txt"));
    }

    #[test]
    fn a_path_counts_from_the_top() {
        assert!(matches("config/prod.*", "config/prod.yaml"));
        assert!(!matches("config/prod.*", "other/config/prod.yaml"));
        assert!(matches("**/prod.yaml", "other/config/prod.yaml"));
        assert!(matches("/secret", "secret"));
        assert!(!matches("/secret", "a/secret"));
    }

    #[test]
    fn a_folder_is_hidden_as_a_whole() {
        assert!(matches("secrets/**", "secrets"));
        assert!(matches("secrets/", "a/secrets"));
    }

    #[test]
    fn what_leads_out_is_refused() {
        assert!(Glob::parse("../x").is_err());
        assert!(Glob::parse("**").is_err());
        assert!(Glob::parse("a//b").is_err());
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = "**/a*a*a*a*a*a*b/".repeat(12) + "x";
        let path = format!("{}y", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaa/".repeat(40));
        assert!(!matches(&pattern, &path));
    }
}
