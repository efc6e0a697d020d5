//! Whether a connection or a request is allowed.

use std::fmt;

use smallvec::SmallVec;

use crate::host::Host;
use crate::index::HostIndex;
use crate::path::RequestPath;
use crate::policy::Policy;
use crate::rule::{Mode, Rule};
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
    ///
    /// It is a tunnel only if every rule that allows it says so and no deny has to look at its requests.
    pub fn decide_connection(
        &self,
        scheme: Scheme,
        host: &Host,
        port: u16,
    ) -> ConnectionDecision<'_> {
        let mut is_partly_denied = false;
        for rule in self.rules_about(&self.denies, host) {
            if rule.covers(scheme, port) {
                if rule.is_total() {
                    return ConnectionDecision::Refuse(Refusal::by(rule));
                }
                is_partly_denied = true;
            }
        }
        let mut tunnel = None;
        let mut is_inspected = is_partly_denied;
        for layer in &self.layers {
            let mut code = RefusalCode::HostNotAllowed;
            let mut is_allowed = false;
            for rule in self.rules_about(layer, host) {
                if !rule.covers(scheme, port) {
                    code = RefusalCode::PortNotAllowed;
                    continue;
                }
                is_allowed = true;
                match rule.mode {
                    Mode::Inspect => is_inspected = true,
                    Mode::Tunnel => tunnel = tunnel.or(Some(rule)),
                }
            }
            if !is_allowed {
                return ConnectionDecision::Refuse(Refusal::because(code));
            }
        }
        match tunnel {
            Some(rule) if !is_inspected => ConnectionDecision::Tunnel(rule),
            Some(_) | None if self.layers.is_empty() => {
                ConnectionDecision::Refuse(Refusal::because(RefusalCode::HostNotAllowed))
            }
            Some(_) | None => ConnectionDecision::Inspect,
        }
    }

    /// Decides about a request: it is allowed when some `[[allow]]` matches and no `[[deny]]` does. Where a base
    /// is locked, the same must hold of the base alone.
    pub fn decide(&self, request: &Request<'_>) -> Decision<'_> {
        for rule in self.rules_about(&self.denies, request.host) {
            if rule.denies(request) {
                return Decision::Deny(Refusal::by(rule));
            }
        }
        let mut allowed: Option<Allowed<'_>> = None;
        for layer in &self.layers {
            let found = match self.decide_layer(layer, request) {
                Ok(found) => found,
                Err(code) => return Decision::Deny(Refusal::because(code)),
            };
            allowed = Some(match allowed {
                None => found,
                Some(mut before) => {
                    before
                        .secrets
                        .retain(|secret| found.secrets.contains(secret));
                    before
                }
            });
        }
        match allowed {
            Some(allowed) => Decision::Allow(allowed),
            None => Decision::Deny(Refusal::because(RefusalCode::HostNotAllowed)),
        }
    }

    fn decide_layer<'p>(
        &'p self,
        layer: &'p HostIndex,
        request: &Request<'_>,
    ) -> Result<Allowed<'p>, RefusalCode> {
        let mut missing = RefusalCode::HostNotAllowed;
        let mut first: Option<u32> = None;
        let mut secrets: SmallVec<[&str; 2]> = SmallVec::new();
        for id in layer.candidates(request.host) {
            let Some(rule) = self.rule(id) else {
                continue;
            };
            match rule.allows(request) {
                Ok(()) => {
                    first = Some(first.map_or(id, |before| before.min(id)));
                    if let Some(secret) = rule.secret().filter(|s| !secrets.contains(s)) {
                        secrets.push(secret);
                    }
                }
                Err(code) => missing = missing.max(code),
            }
        }
        let rule = first.and_then(|id| self.rule(id)).ok_or(missing)?;
        Ok(Allowed { rule, secrets })
    }

    fn rules_about<'p: 'h, 'h>(
        &'p self,
        index: &'h HostIndex,
        host: &'h Host,
    ) -> impl Iterator<Item = &'p Rule> + use<'p, 'h> {
        index.candidates(host).filter_map(|id| self.rule(id))
    }

    fn rule(&self, id: u32) -> Option<&Rule> {
        self.rules.get(id as usize)
    }
}

impl<'p> Refusal<'p> {
    fn because(code: RefusalCode) -> Self {
        Self {
            code,
            rule: None,
            reason: None,
        }
    }

    fn by(rule: &'p Rule) -> Self {
        Self {
            code: RefusalCode::DeniedByRule,
            rule: Some(rule),
            reason: rule.reason(),
        }
    }
}

#[cfg(test)]
mod tests;
