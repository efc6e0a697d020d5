//! The changes as a unified diff that `git apply` and `patch -p1` read.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use launcher::changes::{Change, Entry, Kept, Kind};
use serde_json::json;
use similar::TextDiff;

use super::show;
use crate::failure::Failure;
use crate::output::{self, bytes, data};

/// Prints the changes at these paths and below them; all, if there are none.
pub(crate) fn diff(kept: &Kept, paths: &[PathBuf], as_json: bool) -> Result<(), Failure> {
    let is_asked =
        |path: &Path| paths.is_empty() || paths.iter().any(|asked| path.starts_with(asked));
    let mut told = Vec::new();
    for change in kept
        .changes()
        .iter()
        .filter(|change| is_asked(&change.path))
    {
        let text = one(kept, change)?;
        if as_json {
            let mut value = show::told(change);
            value["diff"] = text.into();
            told.push(value);
        } else if !text.is_empty() {
            data(text.trim_end_matches('\n'));
        }
    }
    if as_json {
        output::json(&json!({ "changes": told }));
    }
    Ok(())
}

/// The diff of one change; empty for a folder, which a diff does not show.
fn one(kept: &Kept, change: &Change) -> Result<String, Failure> {
    let is_shown = |entry: &&Entry| matches!(entry.kind, Kind::File | Kind::Link);
    let was = change.was.as_ref().filter(is_shown);
    let now = change.now.as_ref().filter(is_shown);
    if was.is_none() && now.is_none() {
        return Ok(String::new());
    }
    let contents = kept
        .contents(change, LARGEST)
        .map_err(|error| Failure::ours("the changes cannot be read").because(error))?;
    let mut text = String::new();
    // As git shows it: a file that becomes a link is one removed and one added.
    if let (Some(was), Some(now)) = (was, now)
        && was.kind == now.kind
    {
        piece(&mut text, &change.path, Some(was), Some(now), &contents);
    } else {
        let (before, after) = contents;
        if was.is_some() {
            piece(&mut text, &change.path, was, None, &(before, Vec::new()));
        }
        if now.is_some() {
            piece(&mut text, &change.path, None, now, &(Vec::new(), after));
        }
    }
    Ok(text)
}

fn piece(
    text: &mut String,
    path: &Path,
    was: Option<&Entry>,
    now: Option<&Entry>,
    contents: &(Vec<u8>, Vec<u8>),
) {
    let (old, new) = (quoted("a/", path), quoted("b/", path));
    let _ = writeln!(text, "diff --git {old} {new}");
    match (was, now) {
        (None, Some(now)) => {
            let _ = writeln!(text, "new file mode {}", mode(now));
        }
        (Some(was), None) => {
            let _ = writeln!(text, "deleted file mode {}", mode(was));
        }
        (Some(was), Some(now)) if mode(was) != mode(now) => {
            let _ = writeln!(text, "old mode {}\nnew mode {}", mode(was), mode(now));
        }
        (_, _) => {}
    }
    let (before, after) = contents;
    if before == after {
        return;
    }
    let name = |entry: Option<&Entry>, name: &str| {
        entry.map_or_else(|| "/dev/null".to_owned(), |_| name.to_owned())
    };
    let (old, new) = (name(was, &old), name(now, &new));
    let is_large = |bytes: &[u8]| bytes.len() as u64 > LARGEST;
    match (readable(before), readable(after)) {
        (Some(before), Some(after))
            if !is_large(before.as_bytes()) && !is_large(after.as_bytes()) =>
        {
            let diff = TextDiff::configure()
                .timeout(LONGEST)
                .diff_lines(before, after);
            let shown = diff
                .unified_diff()
                .context_radius(3)
                .missing_newline_hint(true)
                .header(&old, &new)
                .to_string();
            text.push_str(&shown);
        }
        (Some(_), Some(_)) => {
            let sizes = [was, now].map(|entry| bytes(entry.map_or(0, |entry| entry.size)));
            let _ = writeln!(
                text,
                "Files {old} and {new} differ and are too large to compare ({} and {})",
                sizes[0], sizes[1]
            );
        }
        _ => {
            let _ = writeln!(text, "Binary files {old} and {new} differ");
        }
    }
}

/// Text as it is; `None` for what is none.
fn readable(bytes: &[u8]) -> Option<&str> {
    if bytes.contains(&0) {
        return None;
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        // Cut off within a character.
        Err(error) if bytes.len() as u64 > LARGEST && error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    }
}

/// A mode as git keeps it.
fn mode(entry: &Entry) -> &'static str {
    match entry.kind {
        Kind::Link => "120000",
        Kind::File if entry.mode & 0o100 != 0 => "100755",
        Kind::File | Kind::Folder | Kind::Special => "100644",
    }
}

/// A name as git writes it: in quotes where it could be taken for something else.
fn quoted(prefix: &str, path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    let is_plain = |byte: &u8| (0x20..0x7f).contains(byte) && *byte != b'"' && *byte != b'\\';
    if bytes.iter().all(is_plain) {
        return format!("{prefix}{}", path.display());
    }
    let mut text = format!("\"{prefix}");
    for byte in bytes {
        match byte {
            b'"' | b'\\' => {
                text.push('\\');
                text.push(char::from(*byte));
            }
            byte if is_plain(byte) => text.push(char::from(*byte)),
            byte => {
                let _ = write!(text, "\\{byte:03o}");
            }
        }
    }
    text.push('"');
    text
}

/// Larger files are named only.
const LARGEST: u64 = 4 << 20;
/// How long two files are compared in detail; then the rest counts as changed.
const LONGEST: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_could_be_taken_for_something_else_is_quoted() {
        assert_eq!(quoted("a/", Path::new("src/x y.rs")), "a/src/x y.rs");
        assert_eq!(
            quoted("b/", Path::new("a\n+++ b/\"evil\\")),
            r#""b/a\012+++ b/\"evil\\""#
        );
        assert_eq!(quoted("a/", Path::new("ü")), r#""a/\303\274""#);
    }
}
