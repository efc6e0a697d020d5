//! A git server over HTTP with Basic: `git http-backend` behind the user `agent` and the real password.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Response;
use http_body_util::{BodyExt, Full};

use crate::support::origin::{Answer, Behaviour, Seen, answer};

/// Makes a bare repository `project.git` with one commit below `folder`.
pub(crate) fn repository(folder: &Path) -> PathBuf {
    let bare = folder.join("project.git");
    let work = folder.join("seed");
    git(
        folder,
        &[
            "init",
            "--quiet",
            "--bare",
            "--initial-branch=main",
            "project.git",
        ],
    );
    git(&bare, &["config", "http.receivepack", "true"]);
    git(folder, &["clone", "--quiet", "project.git", "seed"]);
    std::fs::write(work.join("README"), "the first commit\n").unwrap();
    git(&work, &["add", "README"]);
    git(&work, &["commit", "--quiet", "-m", "First"]);
    git(&work, &["push", "--quiet", "origin", "HEAD:main"]);
    bare
}

/// Runs git with settings of nobody.
pub(crate) fn git(folder: &Path, arguments: &[&str]) {
    let status = Command::new("git")
        .args(["-c", "user.name=Test", "-c", "user.email=test@example.com"])
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(
        status.success(),
        "git {arguments:?} in {}",
        folder.display()
    );
}

/// The server: 401 with a challenge unless the user and the real password arrive.
pub(crate) fn behaviour(repositories: &Path, user: &str, password: &str) -> Behaviour {
    let expected = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
    let repositories = repositories.to_path_buf();
    Arc::new(move |seen| {
        if seen.field("authorization") == expected {
            return backend(seen, &repositories);
        }
        let mut refusal = answer(401, "text/plain", "who are you?\n");
        refusal.headers_mut().insert(
            "www-authenticate",
            "Basic realm=\"stand-in\"".parse().unwrap(),
        );
        refusal
    })
}

fn backend(seen: &Seen, repositories: &Path) -> Answer {
    let mut child = Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", repositories)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_PROTOCOL", seen.field("git-protocol"))
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*")
        .env("REQUEST_METHOD", seen.method())
        .env("PATH_INFO", seen.path())
        .env("QUERY_STRING", seen.head.uri.query().unwrap_or_default())
        .env("CONTENT_TYPE", seen.field("content-type"))
        .env("HTTP_CONTENT_ENCODING", seen.field("content-encoding"))
        .env("CONTENT_LENGTH", seen.body.len().to_string())
        .env("REMOTE_USER", "agent")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let body = seen.body.clone();
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(&body);
    });
    let output = child.wait_with_output().unwrap().stdout;
    writer.join().unwrap();
    from_cgi(&output)
}

// RFC 3875 section 6: fields, an empty line, the body; `Status` is the status.
fn from_cgi(output: &[u8]) -> Answer {
    let Some(end) = output.windows(4).position(|w| w == b"\r\n\r\n") else {
        return answer(500, "text/plain", "git http-backend said nothing\n");
    };
    let mut response = Response::builder();
    for line in String::from_utf8_lossy(&output[..end]).lines() {
        let Some((name, value)) = line.split_once(": ") else {
            continue;
        };
        if name.eq_ignore_ascii_case("status") {
            let code: u16 = value[..3].parse().unwrap();
            response = response.status(code);
        } else {
            response = response.header(name, value);
        }
    }
    let body = output[end + 4..].to_vec();
    response.body(Full::new(body.into()).boxed()).unwrap()
}
