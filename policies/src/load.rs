//! How the text of a policy and its bases become a policy.

use crate::diagnostic::Diagnostic;
use crate::host::Host;
use crate::policy::Policy;
use crate::scheme::Scheme;

/// A policy file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The file's name, as diagnostics show it and as it is given back to [`Sources`].
    pub name: String,
    /// Its whole text.
    pub text: String,
}

/// Where a host of packages is, as the owner's own client is configured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// How it is reached.
    pub scheme: Scheme,
    /// The host.
    pub host: Host,
    /// The port.
    pub port: u16,
    /// The path below which everything is, such as `/simple`; `/` for all of the host.
    pub path: String,
}

/// Gives what a policy refers to; the one who implements it does the reading.
pub trait Sources {
    /// The file that `extends` of the file `from` names by a relative path without `..`.
    ///
    /// It must refuse what leaves the policy's folder, through symbolic links too.
    fn document(&mut self, from: &str, path: &str) -> Result<Document, String>;

    /// The hosts that the owner's clients take packages from, for a preset such as `python-packages`.
    fn packages(&mut self, preset: &str) -> Result<Vec<Origin>, String>;
}

/// Reads a policy with everything it extends. Every error is reported, not only the first.
pub fn load(root: Document, _sources: &mut dyn Sources) -> Result<Policy, Vec<Diagnostic>> {
    Err(vec![Diagnostic::of_file(&root.name, "not supported yet")])
}
