//! A request as a person writes it, and whether it would be allowed.

use crate::authority::{Authority, AuthorityError};
use crate::decide::{ConnectionDecision, Decision, Fields, NoFields, Request};
use crate::path::{PathError, RequestPath};
use crate::policy::Policy;
use crate::scheme::Scheme;
use crate::slot::is_token;

/// A request such as `POST https://api.openai.com/v1/files`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The method.
    pub method: String,
    /// The scheme.
    pub scheme: Scheme,
    /// The host and port.
    pub authority: Authority,
    /// The path and query.
    pub target: RequestPath,
}

/// Why a text is not such a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SampleError {
    /// Not a method, a space and a URL.
    #[error("a request is a method and a URL, such as `GET https://api.example.com/v1/items`")]
    Shape,
    /// The host or port is wrong.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The path is wrong.
    #[error(transparent)]
    Path(#[from] PathError),
}

/// A `[[test]]`: a request and whether it is to be allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// The request.
    pub sample: Sample,
    /// Whether it is to be allowed.
    pub is_allowed: bool,
    /// The file it stands in.
    pub file: String,
    /// The line.
    pub line: usize,
}

impl Sample {
    /// Reads `METHOD URL`.
    pub fn parse(text: &str) -> Result<Self, SampleError> {
        let (method, url) = text.split_once(' ').ok_or(SampleError::Shape)?;
        let (scheme, rest) = url.split_once("://").ok_or(SampleError::Shape)?;
        let scheme = Scheme::parse(scheme).ok_or(SampleError::Shape)?;
        if !is_token(method) {
            return Err(SampleError::Shape);
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        Ok(Self {
            method: method.to_owned(),
            scheme,
            authority: Authority::parse(authority, Some(scheme.default_port()))?,
            target: RequestPath::parse(target)?,
        })
    }

    /// What the policy decides about it, without any header fields.
    pub fn decide<'p>(&self, policy: &'p Policy) -> Decision<'p> {
        self.decide_with(policy, &NoFields)
    }

    /// What the policy decides about it with these header fields.
    pub fn decide_with<'p>(&self, policy: &'p Policy, headers: &dyn Fields) -> Decision<'p> {
        let Authority { host, port } = &self.authority;
        match policy.decide_connection(self.scheme, host, *port) {
            ConnectionDecision::Refuse(refusal) => Decision::Deny(refusal),
            ConnectionDecision::Inspect | ConnectionDecision::Tunnel(_) => {
                policy.decide(&Request {
                    scheme: self.scheme,
                    host,
                    port: *port,
                    method: &self.method,
                    target: &self.target,
                    headers,
                    upgrade: false,
                })
            }
        }
    }
}

impl Expectation {
    /// Whether the policy decides as expected.
    pub fn is_met(&self, policy: &Policy) -> bool {
        match self.sample.decide(policy) {
            Decision::Allow(_) => self.is_allowed,
            Decision::Deny(_) => !self.is_allowed,
        }
    }
}
