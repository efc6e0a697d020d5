//! The value of a secret, on its way to one request.

use zeroize::Zeroizing;

/// The value of a secret.
///
/// It has no `Debug`, `Display`, `Clone` or `Serialize`, and its memory is cleared when it is dropped.
pub struct Credential {
    value: Zeroizing<Box<str>>,
}

impl Credential {
    /// Takes a value, if it can stand in a header field: not empty, no control characters.
    pub(crate) fn parse(value: &Zeroizing<Vec<u8>>) -> Result<Self, CredentialError> {
        let text = std::str::from_utf8(value).map_err(|_| CredentialError::NotText)?;
        if text.is_empty() {
            return Err(CredentialError::Empty);
        }
        if text.chars().any(char::is_control) {
            return Err(CredentialError::NotText);
        }
        Ok(Self {
            value: Zeroizing::new(text.into()),
        })
    }

    /// The value itself. It must reach nothing but the request it was released for.
    pub fn danger_expose(&self) -> &str {
        &self.value
    }
}

/// Why a credential was not released. No variant holds anything of a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// The run has ended.
    #[error("the run has ended")]
    RunEnded,
    /// The grant is not one of this run.
    #[error("secret `{0}` is not granted to this run")]
    NotGranted(String),
    /// The owner does not let the secret go there.
    #[error("secret `{secret}` may not be sent to `{destination}`")]
    OutsideBinding {
        /// The secret.
        secret: String,
        /// Where it was to go.
        destination: String,
    },
    /// The value is empty.
    #[error("the secret is empty")]
    Empty,
    /// The value is not text, or holds control characters.
    #[error("the secret holds bytes that cannot stand in a request")]
    NotText,
    /// The value is longer than a header field may be.
    #[error("the secret is longer than {0} bytes")]
    TooLong(usize),
    /// The source did not give the value.
    #[error("{0}")]
    Source(String),
    /// The use could not be written down, so it does not happen.
    #[error("the audit log cannot be written")]
    AuditUnavailable,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<Credential, CredentialError> {
        Credential::parse(&Zeroizing::new(bytes.to_vec()))
    }

    #[test]
    fn a_key_is_kept_as_it_is() {
        let credential = parse(b"test-secret-openai").ok().unwrap();
        assert_eq!(credential.danger_expose(), "test-secret-openai");
    }

    #[test]
    fn a_value_that_would_split_a_header_is_refused() {
        for value in [&b"test-secret\r\nx: y"[..], b"a\0b", b"\xff\xfe", b""] {
            assert!(parse(value).is_err());
        }
    }
}
