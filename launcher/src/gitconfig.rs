//! What a run sees of a repository's `.git/config`: what git needs to read the repository, nothing else.
//!
//! Credentials, credential programs, included files, hook paths, filters, aliases and URL rewriting are left out.

/// Keys that stay, as `section.key` in lower case; the subsection does not matter.
const KEPT: &[&str] = &[
    "branch.merge",
    "branch.rebase",
    "branch.remote",
    "core.autocrlf",
    "core.bare",
    "core.eol",
    "core.filemode",
    "core.ignorecase",
    "core.logallrefupdates",
    "core.precomposeunicode",
    "core.quotepath",
    "core.repositoryformatversion",
    "core.safecrlf",
    "core.sparsecheckout",
    "core.sparsecheckoutcone",
    "core.symlinks",
    "core.worktree",
    "extensions.compatobjectformat",
    "extensions.noop",
    "extensions.objectformat",
    "extensions.partialclone",
    "extensions.preciousobjects",
    "extensions.refstorage",
    "extensions.worktreeconfig",
    "index.sparse",
    "index.version",
    "init.defaultbranch",
    "merge.conflictstyle",
    "pull.ff",
    "pull.rebase",
    "push.autosetupremote",
    "push.default",
    "remote.fetch",
    "remote.partialclonefilter",
    "remote.promisor",
    "remote.push",
    "remote.pushurl",
    "remote.tagopt",
    "remote.url",
    "submodule.active",
    "submodule.url",
    "user.email",
    "user.name",
];

/// The sanitised copy of a configuration. What cannot be read as one becomes empty.
pub(crate) fn sanitised(text: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(text);
    let mut kept = String::new();
    let mut section = String::new();
    // Written once something of it is kept.
    let mut header = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mut line = line.trim().to_owned();
        // A line that ends in a backslash goes on in the next one.
        while line.ends_with('\\') && !line.ends_with("\\\\") {
            line.pop();
            match lines.next() {
                Some(next) => line.push_str(next.trim()),
                None => break,
            }
        }
        if line.starts_with('[') {
            let Some(end) = header_end(&line) else {
                return Vec::new();
            };
            section = name_of(&line[1..end]);
            // `[section] key = value` on one line is legal; what follows the header is read as a line of its own.
            let (name, rest) = line.split_at(end + 1);
            header = format!("{}\n", without_user(name));
            line = rest.trim().to_owned();
        }
        if let Some(entry) = entry(&section, &line) {
            kept.push_str(&std::mem::take(&mut header));
            kept.push('\t');
            kept.push_str(&entry);
            kept.push('\n');
        }
    }
    kept.into_bytes()
}

/// The entry as it stays, or nothing.
fn entry(section: &str, line: &str) -> Option<String> {
    if line.is_empty() || line.starts_with(['#', ';']) {
        return None;
    }
    let (key, value) = match line.split_once('=') {
        Some((key, value)) => (key.trim(), value.trim()),
        None => (line, "true"),
    };
    let key = key.to_ascii_lowercase();
    let is_kept = KEPT
        .binary_search(&format!("{section}.{key}").as_str())
        .is_ok();
    is_kept.then(|| format!("{key} = {}", without_user(value)))
}

/// A value or header without the user, the password and the query of the URL in it: each may be a credential.
fn without_user(value: &str) -> String {
    let Some((scheme, rest)) = value.split_once("://") else {
        return value.to_owned();
    };
    let (url, behind) = rest.split_at(rest.find('"').unwrap_or(rest.len()));
    let url = &url[..url.find(['?', '#']).unwrap_or(url.len())];
    let (host, path) = url.split_at(url.find('/').unwrap_or(url.len()));
    let host = match host.rsplit_once('@') {
        // `git` and `ssh` URLs need their user; a password never.
        Some((user, _)) if scheme.ends_with("ssh") && !user.contains(':') => host,
        Some((_, host)) => host,
        None => host,
    };
    format!("{scheme}://{host}{path}{behind}")
}

/// Where a `[section "subsection"]` header ends; a subsection may hold `]` and escaped quotes.
fn header_end(line: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, character) in line.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ']' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

fn name_of(header: &str) -> String {
    let end = header
        .find(|character: char| character.is_whitespace() || character == '.' || character == '"')
        .unwrap_or(header.len());
    header[..end].to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(text: &str) -> String {
        String::from_utf8(sanitised(text.as_bytes())).unwrap()
    }

    #[test]
    fn the_list_is_sorted() {
        assert!(KEPT.is_sorted());
    }

    #[test]
    fn what_git_needs_stays() {
        let text =
            "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = https://example.com/a.git\n";
        assert_eq!(clean(text), text);
    }

    #[test]
    fn credentials_in_urls_go() {
        let text = "[remote \"origin\"]\nurl = https://user:test-secret@example.com/a.git\n";
        assert!(clean(text).contains("url = https://example.com/a.git"));
        for text in [
            "[remote \"origin\"]\nurl = \"https://example.com/a.git?access_token=test-secret\"\n",
            "[remote \"https://user:test-secret@example.com/a.git\"]\npromisor = true\n",
            "[branch \"https://example.com/a?test-secret\"]\nmerge = x\n",
            "[remote \"origin\"]\nurl = https://test-secret@example.com\n",
        ] {
            assert!(!clean(text).contains("test-secret"), "{}", clean(text));
            assert!(
                clean(text).contains("https://example.com"),
                "{}",
                clean(text)
            );
        }
        let ssh = "[remote \"origin\"]\nurl = ssh://git@example.com/a.git\n";
        assert!(clean(ssh).contains("ssh://git@example.com/a.git"));
    }

    #[test]
    fn what_runs_programs_or_reads_other_files_goes() {
        for text in [
            "[core]\n\thooksPath = /tmp/hooks\n",
            "[core]\n\tsshCommand = evil\n",
            "[core]\n\tfsmonitor = evil\n",
            "[include]\n\tpath = /etc/passwd\n",
            "[includeIf \"gitdir:/\"]\n\tpath = x\n",
            "[credential]\n\thelper = store\n",
            "[http \"https://example.com\"]\n\textraheader = AUTHORIZATION: basic dGVzdA==\n",
            "[url \"https://x:test-secret@example.com/\"]\n\tinsteadOf = https://example.com/\n",
            "[alias]\n\tst = !evil\n",
            "[core] hooksPath = evil\n",
            "[core]\nhooks\\\nPath = evil\n",
        ] {
            assert_eq!(clean(text), "");
        }
    }

    #[test]
    fn junk_becomes_empty() {
        assert_eq!(clean("[core\nbare = true\n"), "");
    }
}
