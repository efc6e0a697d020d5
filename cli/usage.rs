//! What is said of a command line that is none.

use std::ffi::OsStr;
use std::process::ExitCode;

use clap::error::ErrorKind;
use serde_json::json;

use crate::output;

/// Tells help, the version, or what is wrong with the arguments; a program that asked for JSON gets that.
pub(crate) fn told(error: &clap::Error) -> ExitCode {
    let is_mistake = error.use_stderr();
    if is_mistake && wants_json(std::env::args_os().skip(1)) {
        output::json(&mistake(error));
    } else {
        // A reader that went away is no error of ours.
        let _ = error.print();
    }
    match u8::try_from(error.exit_code()) {
        Ok(code) => ExitCode::from(code),
        Err(_) => ExitCode::FAILURE,
    }
}

fn mistake(error: &clap::Error) -> serde_json::Value {
    let text = error.render().to_string();
    let mut lines = text.lines();
    let message = lines.next().unwrap_or_default();
    let hint = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            "`valetkey --help` lists the commands".to_owned()
        }
        _ => lines
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect::<Vec<_>>()
            .join("; "),
    };
    json!({"error": {
        "code": "usage",
        "message": message.strip_prefix("error: ").unwrap_or(message),
        "hint": hint,
        "exit": error.exit_code(),
    }})
}

/// Whether `--json` stands among the arguments, before those of a command to run.
fn wants_json(arguments: impl Iterator<Item = impl AsRef<OsStr>>) -> bool {
    arguments
        .take_while(|argument| argument.as_ref() != "--")
        .any(|argument| argument.as_ref() == "--json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_of_a_command_to_run_is_not_ours() {
        assert!(wants_json(["run", "--json", "--", "x"].iter()));
        assert!(!wants_json(["run", "--", "x", "--json"].iter()));
    }
}
