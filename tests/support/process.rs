//! Starting a program: its output kept for the search, and the program ended with the test.

use std::io::Write;
use std::process::{Command, ExitStatus, Output, Stdio};

/// How a program ended and what it printed.
pub(crate) struct Finished {
    pub(crate) program: String,
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    pub(crate) fn from_output(program: String, output: Output) -> Self {
        Self {
            program,
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    /// Both streams, for looking for a word.
    pub(crate) fn all(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// Fails, showing the output, unless the program exited with 0.
    #[track_caller]
    pub(crate) fn passed(self) -> Self {
        self.exited(0)
    }

    /// Fails, showing the output, unless the program exited with `code`.
    #[track_caller]
    pub(crate) fn exited(self, code: i32) -> Self {
        assert!(
            self.status.code() == Some(code),
            "{} ended with {}, not {code}\n--- stdout\n{}\n--- stderr\n{}",
            self.program,
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }

    /// Fails, showing the output, unless `text` was printed.
    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(
            self.all().contains(text),
            "{} did not say `{text}`\n--- stdout\n{}\n--- stderr\n{}",
            self.program,
            self.stdout,
            self.stderr
        );
        self
    }

    /// Fails, showing the output, if `text` was printed.
    #[track_caller]
    pub(crate) fn says_nothing_of(self, text: &str) -> Self {
        assert!(
            !self.all().contains(text),
            "{} said `{text}`\n--- stdout\n{}\n--- stderr\n{}",
            self.program,
            self.stdout,
            self.stderr
        );
        self
    }

    /// Standard output's last line, read as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        let text = self.stdout.trim_end();
        serde_json::from_str(text)
            .or_else(|_| serde_json::from_str(text.lines().last().unwrap_or_default()))
            .unwrap_or_else(|error| {
                panic!(
                    "{} printed no JSON ({error})\n--- stdout\n{}\n--- stderr\n{}",
                    self.program, self.stdout, self.stderr
                )
            })
    }
}

/// Runs a program to its end, with `input` on its standard input.
pub(crate) fn finish(mut command: Command, input: &str) -> Finished {
    let program = format!(
        "{:?} {:?}",
        command.get_program(),
        first_arguments(&command)
    );
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}; `tests/run` installs what is missing"));
    let mut stdin = child.stdin.take().unwrap();
    // A program that does not read its input is no fault of the test.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    Finished::from_output(program, child.wait_with_output().unwrap())
}

fn first_arguments(command: &Command) -> Vec<String> {
    let arguments = command.get_args().take(4);
    arguments
        .map(|a| a.to_string_lossy().chars().take(60).collect())
        .collect()
}
