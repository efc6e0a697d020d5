//! Why one request is refused, before anybody is told.

use std::borrow::Cow;
use std::sync::Arc;

use policies::{Host, RefusalCode};
use sdk::Code;

/// A request that is not carried.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The stable code.
    pub(crate) code: Code,
    /// What the run is told to do about it, where the code alone does not say it.
    pub(crate) hint: Option<Cow<'static, str>>,
    /// The rule that decided; for the audit log only.
    pub(crate) rule: Option<Arc<str>>,
    /// The secret it is about; for the audit log only.
    pub(crate) secret: Option<Arc<str>>,
    /// The status, where that of the code says less than HTTP can.
    pub(crate) status: Option<u16>,
}

impl Refusal {
    pub(crate) fn new(code: Code) -> Self {
        Self {
            code,
            hint: None,
            rule: None,
            secret: None,
            status: None,
        }
    }

    pub(crate) fn with_hint(code: Code, hint: &'static str) -> Self {
        Self {
            hint: Some(Cow::Borrowed(hint)),
            ..Self::new(code)
        }
    }

    /// The bytes of the request can be read in more than one way.
    pub(crate) fn ambiguous(hint: &'static str) -> Self {
        Self::with_hint(Code::AmbiguousRequest, hint)
    }

    /// A request that no parser reads; with the status that says what is wrong with it.
    pub(crate) fn unreadable(status: u16) -> Self {
        let hint = match status {
            414 => "the target is too long",
            431 => "the header is too long, or has too many fields",
            _ => "the request is no HTTP, or can be read in more than one way",
        };
        Self {
            status: Some(status),
            ..Self::ambiguous(hint)
        }
    }

    pub(crate) fn status(&self) -> u16 {
        self.status.unwrap_or_else(|| self.code.status())
    }

    /// Whether the connection is not to be used again: where its next request begins is not certain.
    pub(crate) fn is_final(&self) -> bool {
        self.code == Code::AmbiguousRequest
    }
}

impl From<policies::Refusal<'_>> for Refusal {
    fn from(refusal: policies::Refusal<'_>) -> Self {
        Self {
            code: code(refusal.code),
            hint: refusal.reason.map(|reason| Cow::Owned(reason.to_owned())),
            rule: refusal.rule.map(|rule| Arc::clone(rule.label())),
            secret: None,
            status: None,
        }
    }
}

fn code(code: RefusalCode) -> Code {
    match code {
        RefusalCode::HostNotAllowed => Code::HostNotAllowed,
        RefusalCode::PortNotAllowed => Code::PortNotAllowed,
        RefusalCode::PathNotAllowed => Code::PathNotAllowed,
        RefusalCode::MethodNotAllowed => Code::MethodNotAllowed,
        RefusalCode::ConditionNotMet => Code::ConditionNotMet,
        RefusalCode::UpgradeNotAllowed => Code::UpgradeNotAllowed,
        RefusalCode::DeniedByRule => Code::DeniedByRule,
    }
}

/// What a run can do about a code, in its own terms.
pub(crate) fn advice(code: Code, host: Option<&Host>) -> Cow<'static, str> {
    let text = match code {
        Code::HostNotAllowed => {
            return match host {
                Some(host) => format!(
                    "{host} is not in the policy of this run; its owner can add it to valetkey.toml"
                )
                .into(),
                None => "the host is not in the policy of this run".into(),
            };
        }
        Code::PortNotAllowed => "the policy has this host, but not with this scheme and port",
        Code::MethodNotAllowed => "the policy has this host, but not with this method",
        Code::PathNotAllowed => "the policy has this host, but not this path",
        Code::ConditionNotMet => "the policy allows this only under a condition that is not met",
        Code::DeniedByRule => "the policy denies this",
        Code::TokenMissing => {
            "send the run token as the password of the user `run` in the proxy's URL"
        }
        Code::TokenInvalid => "the run token is not one of this broker",
        Code::TokenExpired => "the time of this run is over",
        Code::RunEnded => "the run has ended",
        Code::WrongDoor => "this door belongs to another run or step",
        Code::AddressNotAllowed => {
            "the host leads only to addresses inside; its owner can allow them in config.toml under [upstream.addresses]"
        }
        Code::ForeignCredential => {
            "send the placeholder from the environment, or no credential at all; it is put in on the way"
        }
        Code::PlaceholderMisplaced => {
            "a placeholder or token of this run was sent where it does not belong"
        }
        Code::AuthorityMismatch => {
            "the names in the tunnel, in TLS and in the request must be the same"
        }
        Code::AmbiguousRequest => "the request can be read in more than one way",
        Code::UpgradeNotAllowed => "no rule allows another protocol here",
        Code::CredentialUnavailable => "the owner's source of the secret gave nothing",
        Code::UpstreamUnreachable => "the host could not be reached",
        Code::UpstreamTls => "the host's certificate is not trusted here, or TLS failed",
        Code::UpstreamTimeout => "the host did not answer in time",
        Code::AuditUnavailable => "the audit log cannot be written, so nothing may pass",
        other => other.title(),
    };
    text.into()
}
