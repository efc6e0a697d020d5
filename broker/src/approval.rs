//! Whether the owner said yes to a policy.

use std::path::{Path, PathBuf};

use policies::{Digest, Policy};

use crate::Error;

/// Decides whether a policy may be used in a project: nothing in it needs a yes, its digest was named by the owner, or
/// its digest is the one approved last.
pub(crate) fn check(
    policy: &Policy,
    project: &Path,
    named: Option<&Digest>,
    approved: Option<&str>,
) -> Result<(), Error> {
    let digest = policy.digest();
    let is_approved = match named {
        // What the owner names is meant: an approval of something else does not help.
        Some(named) => named == digest,
        None => !policy.needs_approval() || approved == Some(digest.to_string().as_str()),
    };
    if is_approved {
        Ok(())
    } else {
        Err(Error::NotApproved {
            project: project.to_owned(),
            digest: *digest,
        })
    }
}

/// The one name of a project's folder: approvals and bindings must not depend on how it was reached.
pub(crate) fn canonical(project: &Path) -> Result<PathBuf, Error> {
    std::fs::canonicalize(project).map_err(|source| Error::Project {
        path: project.to_owned(),
        source,
    })
}

/// A short form of a digest for people to type: it shows that they looked at this very policy.
pub fn short_code(digest: &Digest) -> String {
    digest
        .as_bytes()
        .iter()
        .take(8)
        .enumerate()
        .flat_map(|(at, byte)| {
            let dash = (at == 4).then_some('-');
            // No vowels and no look-alikes: it spells no word and is read one way only.
            dash.into_iter()
                .chain([char::from(LETTERS[usize::from(byte & 15)])])
        })
        .collect()
}

const LETTERS: &[u8; 16] = b"23456789bcdfghjk";

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        let text = r#"{"version": 1, "allow": [{"host": "api.example.com"}]}"#;
        Policy::from_json(text).unwrap()
    }

    #[test]
    fn a_policy_that_asks_for_nothing_needs_no_yes() {
        let policy = Policy::default_for_no_file();
        assert!(check(&policy, Path::new("/p"), None, None).is_ok());
    }

    #[test]
    fn a_policy_that_asks_for_something_needs_a_yes_to_this_very_digest() {
        let policy = policy();
        let (project, digest) = (Path::new("/p"), policy.digest());
        let other = "sha256:".to_owned() + &"0".repeat(64);
        assert!(check(&policy, project, None, None).is_err());
        assert!(check(&policy, project, None, Some(&other)).is_err());
        assert!(check(&policy, project, None, Some(&digest.to_string())).is_ok());
    }

    #[test]
    fn a_digest_that_was_named_must_be_the_policys() {
        let policy = policy();
        let project = Path::new("/p");
        let other = ("sha256:".to_owned() + &"0".repeat(64)).parse().unwrap();
        assert!(check(&policy, project, Some(policy.digest()), None).is_ok());
        let approved = policy.digest().to_string();
        assert!(check(&policy, project, Some(&other), Some(&approved)).is_err());
    }

    #[test]
    fn a_short_code_is_eight_letters_in_two_groups() {
        let code = short_code(Policy::default_for_no_file().digest());
        assert_eq!(code.len(), 9);
        assert_eq!(code.as_bytes()[4], b'-');
    }
}
