//! Where the value of a secret is, and how it is read.

use std::path::PathBuf;
use std::sync::Arc;

use zeroize::{Zeroize, Zeroizing};

use crate::credential::{Credential, CredentialError};
use crate::store::Store;

mod command;
mod file;

/// Where the owner keeps a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A variable of the broker's own environment.
    Env(String),
    /// A file.
    File(PathBuf),
    /// The output of a program, given as its arguments; no shell reads them.
    Command(Vec<String>),
    /// Our encrypted store, under this name.
    Store(String),
}

impl Source {
    /// The kind, as it is written in `secrets.toml`.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Env(_) => "env",
            Self::File(_) => "file",
            Self::Command(_) => "command",
            Self::Store(_) => "store",
        }
    }

    /// Reads the value. One line end at its end is not part of it.
    pub(crate) async fn read(&self, store: &Arc<Store>) -> Result<Credential, CredentialError> {
        let mut value = match self {
            Self::Env(name) => env(name)?,
            Self::File(path) => {
                let path = path.clone();
                blocking(move || file::read(&path)).await?
            }
            Self::Command(argv) => command::read(argv).await?,
            Self::Store(name) => {
                let (store, name) = (Arc::clone(store), name.clone());
                blocking(move || kept(&store, &name)).await?
            }
        };
        if value.len() > MOST {
            return Err(CredentialError::TooLong(MOST));
        }
        strip_line_end(&mut value);
        Credential::parse(&value)
    }
}

fn env(name: &str) -> Result<Zeroizing<Vec<u8>>, CredentialError> {
    use std::os::unix::ffi::OsStringExt;
    match std::env::var_os(name) {
        Some(value) => Ok(Zeroizing::new(value.into_vec())),
        None => Err(CredentialError::Source(format!(
            "the variable `{name}` is not set where the broker was started"
        ))),
    }
}

fn kept(store: &Store, name: &str) -> Result<Zeroizing<Vec<u8>>, CredentialError> {
    match store.secret_value(name) {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Err(CredentialError::Source(format!(
            "the store has no secret `{name}`; add it with `valetkey secret add {name}`"
        ))),
        Err(error) => Err(CredentialError::Source(error.to_string())),
    }
}

/// Runs what may wait for a disk away from the threads that carry requests.
async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, CredentialError> + Send + 'static,
) -> Result<T, CredentialError> {
    tokio::task::spawn_blocking(read).await.unwrap_or_else(|_| {
        Err(CredentialError::Source(
            "the source was not read".to_owned(),
        ))
    })
}

fn strip_line_end(value: &mut Zeroizing<Vec<u8>>) {
    for end in [b'\n', b'\r'] {
        if value.last() == Some(&end) {
            value.pop();
        } else {
            return;
        }
    }
}

/// A place for a value of which nothing is left behind: it never grows, because growing copies.
fn place() -> Zeroizing<Vec<u8>> {
    Zeroizing::new(Vec::with_capacity(MOST + 1))
}

/// Clears a buffer that a value passed through.
fn clear(buffer: &mut [u8]) {
    buffer.zeroize();
}

/// The longest value: more does not fit into a header field anywhere.
pub(crate) const MOST: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use crate::store::StoredSecret;
    use crate::store::tests::Fixture;

    use super::*;

    async fn read(source: Source) -> Result<String, CredentialError> {
        let fixture = Fixture::new();
        let store = fixture.store();
        let secret = StoredSecret {
            name: "kept".to_owned(),
            binding: None,
        };
        store.put_secret(&secret, "test-secret-kept", 1).unwrap();
        let credential = source.read(&store).await?;
        Ok(credential.danger_expose().to_owned())
    }

    fn command(argv: &[&str]) -> Source {
        Source::Command(argv.iter().map(|&argument| argument.to_owned()).collect())
    }

    #[tokio::test]
    async fn a_variable_is_read() {
        // Always there, and no secret.
        let value = read(Source::Env("CARGO_PKG_NAME".to_owned())).await;
        assert_eq!(value.unwrap(), "valetkey-broker");
    }

    #[tokio::test]
    async fn a_variable_that_is_not_set_is_named() {
        let error = read(Source::Env("VALETKEY_TEST_UNSET".to_owned()))
            .await
            .unwrap_err();
        assert!(error.to_string().contains("`VALETKEY_TEST_UNSET`"));
    }

    #[tokio::test]
    async fn a_kept_value_is_read() {
        assert_eq!(
            read(Source::Store("kept".to_owned())).await.unwrap(),
            "test-secret-kept"
        );
        assert!(read(Source::Store("other".to_owned())).await.is_err());
    }

    #[tokio::test]
    async fn one_line_end_of_a_file_is_not_part_of_the_value() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        for text in ["test-secret", "test-secret\n", "test-secret\r\n"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(
                read(Source::File(path.clone())).await.unwrap(),
                "test-secret"
            );
        }
        std::fs::write(&path, "test-secret\n\n").unwrap();
        assert!(read(Source::File(path)).await.is_err());
    }

    #[tokio::test]
    async fn a_file_too_large_for_a_secret_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "a".repeat(MOST)).unwrap();
        assert!(read(Source::File(path.clone())).await.is_ok());
        std::fs::write(&path, "a".repeat(MOST + 1)).unwrap();
        assert!(read(Source::File(path)).await.is_err());
        // It has no end, and is no regular file.
        assert!(read(Source::File("/dev/zero".into())).await.is_err());
    }

    #[tokio::test]
    async fn the_output_of_a_program_is_read() {
        let value = read(command(&["printf", "%s\n", "test-secret"])).await;
        assert_eq!(value.unwrap(), "test-secret");
    }

    #[tokio::test]
    async fn no_shell_reads_the_arguments() {
        let value = read(command(&["printf", "%s", "$HOME;`id`"])).await;
        assert_eq!(value.unwrap(), "$HOME;`id`");
    }

    #[tokio::test]
    async fn a_program_sees_a_clean_environment() {
        // Cargo sets this for the test; the program must not see it.
        let value = read(command(&["sh", "-c", "echo \"[$CARGO_PKG_NAME]\""])).await;
        assert_eq!(value.unwrap(), "[]");
    }

    #[tokio::test]
    async fn a_program_that_fails_gives_nothing_and_shows_nothing() {
        let program = ["sh", "-c", "echo test-secret; echo test-secret >&2; exit 3"];
        let error = read(command(&program)).await.unwrap_err().to_string();
        assert!(error.contains("ended with"), "{error}");
        assert!(!error.contains("test-secret"), "{error}");
        assert!(read(command(&["/nonexistent/program"])).await.is_err());
    }

    #[tokio::test]
    async fn a_program_that_never_stops_talking_is_stopped() {
        assert_eq!(
            read(command(&["yes"])).await.unwrap_err(),
            CredentialError::TooLong(MOST)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_that_hangs_is_stopped() {
        let error = read(command(&["sleep", "1000"])).await.unwrap_err();
        assert!(error.to_string().contains("did not end"));
    }
}
