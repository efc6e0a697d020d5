//! What one `[[allow]]` or `[[deny]]` says, and whether it matches a request.

use std::fmt;
use std::sync::Arc;

use crate::condition::{Condition, Outcome};
use crate::decide::{RefusalCode, Request};
use crate::path::RequestPath;
use crate::path_pattern::{Case, PathPattern};
use crate::pattern::HostPattern;
use crate::scheme::Scheme;

/// A rule of an effective policy.
#[derive(Clone, Debug)]
pub struct Rule {
    pub(crate) effect: Effect,
    pub(crate) name: Option<String>,
    pub(crate) provider: Option<String>,
    pub(crate) secret: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) mode: Mode,
    pub(crate) hosts: Vec<HostPattern>,
    /// Empty: every port, which only a deny can say.
    pub(crate) ports: Vec<u16>,
    /// `None`: both, which only a deny can say.
    pub(crate) scheme: Option<Scheme>,
    /// Empty: every endpoint.
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) file: Arc<str>,
    pub(crate) line: usize,
    /// What the audit log calls it.
    pub(crate) label: Arc<str>,
}

/// Whether a rule gives or takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effect {
    /// `[[deny]]`.
    Deny,
    /// `[[allow]]`.
    Allow,
}

/// Whether requests are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// Every request is judged.
    Inspect,
    /// Bytes pass unread.
    Tunnel,
}

/// A method and a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Endpoint {
    /// `None`: every method.
    pub(crate) method: Option<String>,
    pub(crate) path: PathPattern,
    /// What the catalogue refuses of it, for this endpoint does not name it.
    pub(crate) refused: Arc<[Refused]>,
}

/// An endpoint that the catalogue refuses unless a rule names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Refused {
    /// `None`: every method.
    pub(crate) method: Option<String>,
    pub(crate) path: PathPattern,
}

impl Rule {
    /// Where the rule was written, as `file:line`.
    pub fn origin(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }

    /// What the audit log calls it: its name, or where it was written.
    pub fn label(&self) -> &Arc<str> {
        &self.label
    }

    /// The rule's name, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The owner's name of the secret that it uses.
    pub fn secret(&self) -> Option<&str> {
        self.secret.as_deref()
    }

    /// The catalogue provider that it uses.
    pub fn provider(&self) -> Option<&str> {
        self.provider.as_deref()
    }

    /// What a `[[deny]]` tells the code that asked.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// The hosts that it means.
    pub fn hosts(&self) -> &[HostPattern] {
        &self.hosts
    }

    /// The ports that it means; empty for a deny of every port.
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Whether the rule is about this scheme and port of its hosts.
    pub(crate) fn covers(&self, scheme: Scheme, port: u16) -> bool {
        (self.ports.is_empty() || self.ports.contains(&port))
            && self.scheme.is_none_or(|meant| meant == scheme)
    }

    /// Whether a deny leaves nothing of its hosts and ports.
    pub(crate) fn is_total(&self) -> bool {
        self.endpoints.is_empty() && self.conditions.is_empty()
    }

    /// Whether an allow matches a request to one of its hosts; if not, what was missing.
    pub(crate) fn allows(&self, request: &Request<'_>) -> Result<(), RefusalCode> {
        if !self.covers(request.scheme, request.port) {
            return Err(RefusalCode::PortNotAllowed);
        }
        self.allows_endpoint(request)?;
        let is_met =
            |condition: &Condition| match condition.evaluate(request.target, request.headers) {
                Outcome::Holds => true,
                Outcome::Fails | Outcome::Unknown => false,
            };
        if !self.conditions.iter().all(is_met) {
            return Err(RefusalCode::ConditionNotMet);
        }
        // No rule of this version allows another protocol.
        if request.upgrade {
            return Err(RefusalCode::UpgradeNotAllowed);
        }
        Ok(())
    }

    fn allows_endpoint(&self, request: &Request<'_>) -> Result<(), RefusalCode> {
        if self.endpoints.is_empty() {
            return Ok(());
        }
        let mut missing = RefusalCode::PathNotAllowed;
        for endpoint in &self.endpoints {
            match endpoint.allows(request.method, request.target) {
                Ok(()) => return Ok(()),
                Err(code) => missing = missing.max(code),
            }
        }
        Err(missing)
    }

    /// Whether a deny matches a request to one of its hosts.
    pub(crate) fn denies(&self, request: &Request<'_>) -> bool {
        let is_not_ruled_out =
            |condition: &Condition| match condition.evaluate(request.target, request.headers) {
                Outcome::Holds | Outcome::Unknown => true,
                Outcome::Fails => false,
            };
        self.covers(request.scheme, request.port)
            && (self.endpoints.is_empty()
                || self
                    .endpoints
                    .iter()
                    .any(|endpoint| endpoint.denies(request.method, request.target)))
            && self.conditions.iter().all(is_not_ruled_out)
    }
}

impl Endpoint {
    /// Under both readings of the path, and nothing that the catalogue refuses under either.
    fn allows(&self, method: &str, target: &RequestPath) -> Result<(), RefusalCode> {
        let is_meant = self.path.matches_strict(target.strict(), Case::Sensitive)
            && target
                .loose()
                .is_none_or(|loose| self.path.matches_loose(loose, Case::Sensitive));
        if !is_meant
            || self
                .refused
                .iter()
                .any(|refused| refused.is(method, target))
        {
            return Err(RefusalCode::PathNotAllowed);
        }
        match &self.method {
            Some(meant) if meant != method => Err(RefusalCode::MethodNotAllowed),
            Some(_) | None => Ok(()),
        }
    }

    /// Under either reading of the path.
    fn denies(&self, method: &str, target: &RequestPath) -> bool {
        is_method(self.method.as_deref(), method) && is_hit(&self.path, target)
    }

    /// Whether the endpoint names a refused one: it means nothing beyond it.
    pub(crate) fn names(&self, refused: &Refused) -> bool {
        (refused.method.is_none() || refused.method == self.method)
            && self.path.is_within(&refused.path)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method.as_deref().unwrap_or("*"), self.path)
    }
}

impl Refused {
    fn is(&self, method: &str, target: &RequestPath) -> bool {
        is_method(self.method.as_deref(), method) && is_hit(&self.path, target)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method.as_deref().unwrap_or("*"), self.path)
    }
}

/// Whether a server could take the method for one that is denied.
fn is_method(denied: Option<&str>, method: &str) -> bool {
    denied.is_none_or(|denied| denied.eq_ignore_ascii_case(method))
}

/// Whether a server could read the path as one that is denied.
fn is_hit(path: &PathPattern, target: &RequestPath) -> bool {
    path.matches_strict(target.strict(), Case::Insensitive)
        || target
            .loose()
            .is_some_and(|loose| path.matches_loose(loose, Case::Insensitive))
}
