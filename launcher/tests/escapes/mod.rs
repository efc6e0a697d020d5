//! Each known way out of a sandbox: tried, seen to be closed, and seen to be open without the layers that close it.

mod calls;
mod files;
mod kernel;
mod limits;
mod links;
mod network;
mod processes;
mod switch;
mod terminal;

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use launcher::{Finished, Layer, Weaken};
use sdk::report::{Failure, Outcome};

use crate::support::{Box, PROBES, escape};

/// One way out.
pub(crate) struct Way {
    /// The row of the list that it is, for a message.
    pub(crate) row: &'static str,
    /// What is run inside, by a shell.
    pub(crate) line: &'static str,
    /// What it answers when the way is closed.
    pub(crate) closed: &'static [&'static str],
    /// The layers that close it. Each alone would do, unless the table says otherwise.
    pub(crate) layers: &'static [Layer],
    /// What it answers without them.
    pub(crate) open: Open,
}

/// What is seen without the layers.
pub(crate) enum Open {
    /// One of these. A last `*` stands for anything.
    Answers(&'static [&'static str]),
    /// It stays closed, by something that cannot be switched off: this.
    Never(&'static str),
}

/// Tries a table of ways, as root and as an ordinary user.
pub(crate) fn try_all(test: &str, ways: &[Way]) {
    as_both(test, || {
        let mut wrong = Vec::new();
        for way in ways {
            let answer = attempt(way.line, &[]);
            if !is_one_of(&answer, way.closed) {
                wrong.push(format!("{} is not closed: {answer:?}", way.row));
            }
            let answer = attempt(way.line, way.layers);
            let (expected, what) = match &way.open {
                Open::Answers(answers) => (*answers, "is closed without its layers"),
                Open::Never(reason) => (way.closed, *reason),
            };
            if !is_one_of(&answer, expected) {
                wrong.push(format!("{}: {what}: {answer:?}", way.row));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

/// What a line of shell answers in a sandbox without some layers.
pub(crate) fn attempt(line: &str, off: &[Layer]) -> String {
    // As careless callers leave one open: a folder of the host, which a program of theirs would inherit.
    let folder = fs::File::open("/").unwrap();
    let _leaked: OwnedFd = rustix::io::dup(&folder).unwrap();
    answer(&sandbox(line, off).run())
}

/// A sandbox for a line of shell, without some layers. Its home on the host holds a secret.
pub(crate) fn sandbox(line: &str, off: &[Layer]) -> Box {
    let sandbox = Box::shell(line).with(|spec| spec.weaken = Weaken::without(off));
    let program = sandbox.work().join("escape");
    fs::write(&program, escape()).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let home = sandbox.folder.path().join("home");
    fs::write(home.join("secret"), "test-secret-home").unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(sandbox.work().join(".env"), "KEY=test-secret-hidden").unwrap();
    sandbox
}

/// What was printed, or how it ended instead.
pub(crate) fn answer(finished: &Finished) -> String {
    match &finished.outcome {
        Outcome::Failed(Failure::Signal(signal)) => format!("signal {signal}"),
        Outcome::Failed(Failure::SetupFailed(why)) => format!("not started: {why}"),
        _ => format!("{}{}", finished.stdout.text, finished.stderr.text)
            .trim()
            .to_owned(),
    }
}

pub(crate) fn is_one_of(answer: &str, expected: &[&str]) -> bool {
    expected.iter().any(|one| match one.strip_suffix('*') {
        Some(start) => answer.starts_with(start),
        None => answer == *one,
    })
}

/// Runs a test's body as an ordinary user and, if root runs the tests, as root, with a secret in the environment.
pub(crate) fn as_both(test: &str, body: impl FnOnce()) {
    if std::env::var_os("SECRET_TOKEN").is_some() {
        return body();
    }
    let own = std::env::current_exe().unwrap();
    again(&own, test, None);
    if rustix::process::geteuid().is_root() {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let copy = folder.path().join("tests");
        if fs::hard_link(&own, &copy).is_err() {
            fs::copy(&own, &copy).unwrap();
        }
        again(&copy, test, Some(1001));
    }
}

fn again(program: &std::path::Path, test: &str, user: Option<u32>) {
    let mut command = Command::new(program);
    command
        .args(["--exact", test, "--nocapture"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("SECRET_TOKEN", "test-secret-hunter2")
        .envs(std::env::var_os(PROBES).map(|path| (PROBES, path)))
        .current_dir("/");
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "as {}:\n{text}\n{}",
        user.map_or("the tests' user", |_| "an ordinary user"),
        String::from_utf8_lossy(&output.stderr)
    );
}
