//! Whether a connection or a request is allowed.

use std::fmt;

use smallvec::SmallVec;

use crate::host::Host;
use crate::path::RequestPath;
use crate::policy::Policy;
use crate::rule::Rule;
use crate::scheme::Scheme;

/// A request to be decided.
#[derive(Clone, Copy)]
pub struct Request<'r> {
    /// How it is carried.
    pub scheme: Scheme,
    /// To which host.
    pub host: &'r Host,
    /// On which port.
    pub port: u16,
    /// The method, as it came: methods are case-sensitive.
    pub method: &'r str,
    /// The path and query.
    pub target: &'r RequestPath,
    /// The header.
    pub headers: &'r dyn Fields,
    /// Whether it asks for another protocol (`Upgrade`, extended CONNECT).
    pub upgrade: bool,
}

/// The header of a request.
pub trait Fields {
    /// Every value of the field of this name (in lower case), one for each field line.
    fn values(&self, name: &str) -> Vec<&[u8]>;
}

/// No header at all.
#[derive(Clone, Copy, Debug)]
pub struct NoFields;

impl Fields for NoFields {
    fn values(&self, _name: &str) -> Vec<&[u8]> {
        Vec::new()
    }
}

/// What is to be done with a connection whose requests were not seen yet.
#[derive(Clone, Debug)]
pub enum ConnectionDecision<'p> {
    /// It is refused; nothing is resolved or dialled for it.
    Refuse(Refusal<'p>),
    /// It is opened up and each request in it is decided.
    Inspect,
    /// It is passed through unread, as this rule says.
    Tunnel(&'p Rule),
}

/// Whether a request may go out.
#[derive(Clone, Debug)]
pub enum Decision<'p> {
    /// It may not.
    Deny(Refusal<'p>),
    /// It may.
    Allow(Allowed<'p>),
}

/// Why a request may go out.
#[derive(Clone, Debug)]
pub struct Allowed<'p> {
    /// The first rule that allows it.
    pub rule: &'p Rule,
    /// The distinct secrets of all rules that allow it.
    pub secrets: SmallVec<[&'p str; 2]>,
}

/// Why a request may not go out.
#[derive(Clone, Debug)]
pub struct Refusal<'p> {
    /// The stable code.
    pub code: RefusalCode,
    /// The `[[deny]]` that refused it.
    pub rule: Option<&'p Rule>,
    /// What that rule tells the code that asked.
    pub reason: Option<&'p str>,
}

/// The codes with which a policy refuses; their names are those of every denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RefusalCode {
    /// No rule allows the host.
    HostNotAllowed,
    /// No rule allows this port or scheme of the host.
    PortNotAllowed,
    /// No rule allows the path.
    PathNotAllowed,
    /// The path is allowed, but not with this method.
    MethodNotAllowed,
    /// A condition of the rule does not hold or cannot be evaluated.
    ConditionNotMet,
    /// No rule allows another protocol here.
    UpgradeNotAllowed,
    /// A `[[deny]]` matches.
    DeniedByRule,
}

impl RefusalCode {
    /// The code as it is written on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HostNotAllowed => "host-not-allowed",
            Self::PortNotAllowed => "port-not-allowed",
            Self::PathNotAllowed => "path-not-allowed",
            Self::MethodNotAllowed => "method-not-allowed",
            Self::ConditionNotMet => "condition-not-met",
            Self::UpgradeNotAllowed => "upgrade-not-allowed",
            Self::DeniedByRule => "denied-by-rule",
        }
    }
}

impl fmt::Display for RefusalCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Policy {
    /// Decides about a connection before any of its requests is seen.
    pub fn decide_connection(
        &self,
        _scheme: Scheme,
        _host: &Host,
        _port: u16,
    ) -> ConnectionDecision<'_> {
        ConnectionDecision::Refuse(Refusal {
            code: RefusalCode::HostNotAllowed,
            rule: None,
            reason: None,
        })
    }

    /// Decides about a request: it is allowed when some `[[allow]]` matches and no `[[deny]]` does.
    pub fn decide(&self, _request: &Request<'_>) -> Decision<'_> {
        Decision::Deny(Refusal {
            code: RefusalCode::HostNotAllowed,
            rule: None,
            reason: None,
        })
    }
}
