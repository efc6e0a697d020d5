//! How a refusal looks: one object for every door.

use serde::{Deserialize, Serialize};

use crate::{RequestId, RunId};

/// Why a request was refused; stable, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Code {
    /// No run token came with the request.
    TokenMissing,
    /// The token is malformed, or not signed by this broker.
    TokenInvalid,
    /// The token's time is over.
    TokenExpired,
    /// The run has ended, or was revoked.
    RunEnded,
    /// The token belongs to another run or step than the door it came through.
    WrongDoor,
    /// No rule names the host.
    HostNotAllowed,
    /// A rule names the host, but not on this scheme and port.
    PortNotAllowed,
    /// A rule names the host, but not this method.
    MethodNotAllowed,
    /// A rule names the host, but not this path.
    PathNotAllowed,
    /// A rule would allow the request, had its condition been met.
    ConditionNotMet,
    /// A `[[deny]]` rule matches.
    DeniedByRule,
    /// The host resolves only to addresses that may not be dialled.
    AddressNotAllowed,
    /// A credential slot holds something that this run was not given.
    ForeignCredential,
    /// A placeholder was sent where it does not belong.
    PlaceholderMisplaced,
    /// Two names were given for one destination.
    AuthorityMismatch,
    /// The request can be read in more than one way.
    AmbiguousRequest,
    /// No rule allows a protocol upgrade here.
    UpgradeNotAllowed,
    /// The owner said no to this request.
    ApprovalRefused,
    /// The owner did not answer in time.
    ApprovalTimeout,
    /// The run has spent its budget.
    BudgetExhausted,
    /// The run asks faster than it may.
    RateLimited,
    /// The run has as many connections as it may.
    TooManyConnections,
    /// The secret's source did not give its value.
    CredentialUnavailable,
    /// The upstream could not be reached.
    UpstreamUnreachable,
    /// The upstream's certificate or TLS handshake is not acceptable.
    UpstreamTls,
    /// The upstream did not answer in time.
    UpstreamTimeout,
    /// The audit log cannot be written, so nothing may pass.
    AuditUnavailable,
    /// The policy is being replaced.
    PolicyReloading,
    /// The run tried to find a secret out by parts.
    SecretProbing,
}

impl Code {
    /// The code as it stands in headers, bodies and the audit log.
    pub fn as_str(self) -> &'static str {
        self.facts().0
    }

    /// The HTTP status that a refusal with this code has at a forward proxy.
    ///
    /// A gateway answers 401 where this says 407.
    pub fn status(self) -> u16 {
        self.facts().1
    }

    /// Whether the same request may succeed later without anybody changing anything.
    pub fn is_retryable(self) -> bool {
        matches!(self.status(), 429 | 502 | 503 | 504)
    }

    /// A short sentence for people.
    pub fn title(self) -> &'static str {
        self.facts().2
    }

    fn facts(self) -> (&'static str, u16, &'static str) {
        match self {
            Self::TokenMissing => ("token-missing", 407, "run token missing"),
            Self::TokenInvalid => ("token-invalid", 407, "run token not valid"),
            Self::TokenExpired => ("token-expired", 407, "run token expired"),
            Self::RunEnded => ("run-ended", 407, "run has ended"),
            Self::WrongDoor => ("wrong-door", 407, "token belongs to another run or step"),
            Self::HostNotAllowed => ("host-not-allowed", 403, "host not allowed"),
            Self::PortNotAllowed => ("port-not-allowed", 403, "scheme or port not allowed"),
            Self::MethodNotAllowed => ("method-not-allowed", 403, "method not allowed"),
            Self::PathNotAllowed => ("path-not-allowed", 403, "path not allowed"),
            Self::ConditionNotMet => ("condition-not-met", 403, "condition not met"),
            Self::DeniedByRule => ("denied-by-rule", 403, "denied by a rule"),
            Self::AddressNotAllowed => ("address-not-allowed", 403, "address not allowed"),
            Self::ForeignCredential => ("foreign-credential", 403, "foreign credential"),
            Self::PlaceholderMisplaced => ("placeholder-misplaced", 403, "placeholder misplaced"),
            Self::AuthorityMismatch => ("authority-mismatch", 421, "two names for one destination"),
            Self::AmbiguousRequest => ("ambiguous-request", 400, "ambiguous request"),
            Self::UpgradeNotAllowed => ("upgrade-not-allowed", 403, "upgrade not allowed"),
            Self::ApprovalRefused => ("approval-refused", 403, "the owner refused"),
            Self::ApprovalTimeout => ("approval-timeout", 403, "the owner did not answer"),
            Self::BudgetExhausted => ("budget-exhausted", 403, "budget exhausted"),
            Self::RateLimited => ("rate-limited", 429, "too many requests"),
            Self::TooManyConnections => ("too-many-connections", 429, "too many connections"),
            Self::CredentialUnavailable => {
                ("credential-unavailable", 503, "credential not available")
            }
            Self::UpstreamUnreachable => ("upstream-unreachable", 502, "upstream not reachable"),
            Self::UpstreamTls => ("upstream-tls", 502, "upstream TLS not acceptable"),
            Self::UpstreamTimeout => ("upstream-timeout", 504, "upstream did not answer in time"),
            Self::AuditUnavailable => ("audit-unavailable", 503, "audit log not available"),
            Self::PolicyReloading => ("policy-reloading", 503, "policy is being replaced"),
            Self::SecretProbing => ("secret-probing", 403, "secret probing"),
        }
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why one request was refused, as the run is told (RFC 9457).
///
/// It holds the code, what the run itself asked for and what its owner can do. It never holds a rule's text, the name
/// of a secret, or anything about the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    /// `urn:valetkey:denial:CODE`.
    #[serde(rename = "type")]
    pub kind: String,
    /// A short sentence.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The stable code.
    pub code: Code,
    /// The run, once it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The request, as the audit log names it.
    pub request: RequestId,
    /// The host asked for, once it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The method asked for, once it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The digest of the run's policy, once the run is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Whether trying again may help.
    pub retryable: bool,
    /// What to do about it.
    pub hint: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_written_the_same_everywhere() {
        for code in [Code::HostNotAllowed, Code::UpstreamTls, Code::SecretProbing] {
            let json = serde_json::to_string(&code).unwrap();
            assert_eq!(json, format!("\"{code}\""));
        }
    }
}
