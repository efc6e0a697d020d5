//! A secret that a program prints.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use zeroize::Zeroizing;

use crate::credential::CredentialError;

use super::{MOST, clear, place};

/// What a program prints, if it ends well and in time.
///
/// It is started without a shell, in a process group of its own, with nothing of our environment but what finds programs
/// and the owner's home. What it prints on standard error is not shown: it may hold the secret.
pub(super) async fn read(argv: &[String]) -> Result<Zeroizing<Vec<u8>>, CredentialError> {
    let Some((program, arguments)) = argv.split_first() else {
        return Err(CredentialError::Source("there is no program".to_owned()));
    };
    let failed = |why: String| CredentialError::Source(format!("`{program}` {why}"));
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        // Not in the project: its files are the agent's, and must neither run nor steer a program that holds a secret.
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    for name in KEPT {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    // Without knowing the folder, nobody could tell which programs are the project's.
    let here = std::env::current_dir()
        .map_err(|error| failed(format!("is not started: no working folder: {error}")))?;
    command.env(
        "PATH",
        safe_path(&std::env::var_os("PATH").unwrap_or_default(), &here),
    );
    let child = command
        .spawn()
        .map_err(|error| failed(format!("cannot be started: {error}")))?;
    let mut group = Group(child);
    let (value, status) = tokio::time::timeout(PATIENCE, group.output())
        .await
        .map_err(|_| failed(format!("did not end within {} seconds", PATIENCE.as_secs())))??;
    if status.success() {
        Ok(value)
    } else {
        Err(failed(format!("ended with {status}")))
    }
}

/// The folders in which programs are found: absolute ones, and none in the folder that the owner works in, which is the
/// project of an agent.
fn safe_path(path: &OsStr, here: &Path) -> OsString {
    let is_safe = |folder: &PathBuf| {
        let real = folder.canonicalize().unwrap_or_else(|_| folder.clone());
        let is_root = here.parent().is_none();
        folder.is_absolute() && (is_root || !(real.starts_with(here) || folder.starts_with(here)))
    };
    std::env::join_paths(std::env::split_paths(path).filter(is_safe)).unwrap_or_default()
}

/// A program with everything it started; all of it ends when the value is dropped.
struct Group(Child);

impl Group {
    async fn output(&mut self) -> Result<(Zeroizing<Vec<u8>>, ExitStatus), CredentialError> {
        let cannot = |error: std::io::Error| {
            CredentialError::Source(format!("a program's output cannot be read: {error}"))
        };
        let mut value = place();
        let mut buffer = Zeroizing::new([0; 4096]);
        if let Some(stdout) = &mut self.0.stdout {
            loop {
                let count = stdout.read(&mut buffer[..]).await.map_err(cannot)?;
                if count == 0 {
                    break;
                }
                if value.len() + count > MOST {
                    return Err(CredentialError::TooLong(MOST));
                }
                value.extend_from_slice(&buffer[..count]);
                clear(&mut buffer[..count]);
            }
        }
        let status = self.0.wait().await.map_err(cannot)?;
        Ok((value, status))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Gone already if it was waited for: then its number may be another's.
        let group = self
            .0
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        if let Some(group) = group {
            // There is nobody to tell, and nothing else to do.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Long enough for a password manager that asks its owner's fingerprint.
const PATIENCE: Duration = Duration::from_secs(30);

/// What finds programs and their settings; none of it is a secret.
const KEPT: [&str; 8] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
    "TMPDIR",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_the_project_are_not_found_and_the_owners_are() {
        let path = OsStr::new("/usr/bin:.:bin:/home/owner/project/.venv/bin:/home/owner/bin");
        let safe = safe_path(path, Path::new("/home/owner/project"));
        assert_eq!(safe, "/usr/bin:/home/owner/bin");
        assert_eq!(
            safe_path(path, Path::new("/")),
            "/usr/bin:/home/owner/project/.venv/bin:/home/owner/bin"
        );
    }
}
