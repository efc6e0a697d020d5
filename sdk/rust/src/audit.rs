//! What one line of the audit log says.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Code, RequestId, RunId};

/// The version of the line format that this crate writes.
pub const VERSION: u32 = 1;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum EventKind {
    /// A run was created, with its policy frozen.
    #[serde(rename = "run.created")]
    RunCreated,
    /// A run goes on in another process than before.
    #[serde(rename = "run.resumed")]
    RunResumed,
    /// A run token was signed.
    #[serde(rename = "token.minted")]
    TokenMinted,
    /// A token was presented and refused.
    #[serde(rename = "token.refused")]
    TokenRefused,
    /// A run ended: its token is revoked and its secrets are forgotten.
    #[serde(rename = "run.ended")]
    RunEnded,
    /// A request was allowed and is about to leave.
    #[serde(rename = "request.started")]
    RequestStarted,
    /// A started request ended.
    #[serde(rename = "request.finished")]
    RequestFinished,
    /// A request was refused.
    #[serde(rename = "request.denied")]
    RequestDenied,
    /// A name was asked for that no rule can reach.
    #[serde(rename = "dns.refused")]
    DnsRefused,
    /// A secret's value was read for a run.
    #[serde(rename = "secret.used")]
    SecretUsed,
    /// A run tried to find a secret out by parts.
    #[serde(rename = "secret.probing")]
    SecretProbing,
    /// A placeholder or run token was sent where it does not belong.
    #[serde(rename = "placeholder.misplaced")]
    PlaceholderMisplaced,
    /// The owner approved a policy.
    #[serde(rename = "policy.approved")]
    PolicyApproved,
    /// The probe after start-up or a reload was refused, as it must be.
    #[serde(rename = "probe.passed")]
    ProbePassed,
    /// The probe after start-up or a reload was not refused; nothing is served.
    #[serde(rename = "probe.failed")]
    ProbeFailed,
    /// The log was opened after a crash and its torn last line was cut off.
    #[serde(rename = "log.repaired")]
    LogRepaired,
}

/// Through which kind of door a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Door {
    /// The forward proxy: CONNECT or absolute-form.
    Proxy,
    /// A sandbox's own network.
    Transparent,
    /// SOCKS5.
    Socks,
    /// A base URL.
    Gateway,
    /// A sandbox's own resolver.
    Dns,
}

/// One event. The writer of the log adds `v`, `seq`, `time`, `prev` and `hash`.
///
/// It never holds a header's value, a query's value, a body or a token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The run it concerns, if one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The step within the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Arc<str>>,
    /// What happened.
    pub event: EventKind,
    /// The request, for request events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Request>,
    /// Why it was refused, or how it failed after it had started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// The rule that decided, as `file:line` or the rule's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Arc<str>>,
    /// The digest of the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Arc<str>>,
    /// The owner's name of the secret that was put in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<Arc<str>>,
    /// The HTTP status that the run saw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Bytes of body the run sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_in: Option<u64>,
    /// Bytes of body the run received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_out: Option<u64>,
    /// Milliseconds from the request's arrival.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ms: Option<Timings>,
    /// The TLS that was spoken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// How many renderings of a secret were taken out of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redactions: Option<u64>,
    /// Anything else a person needs, in a few words of ours; never text from the run or the upstream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl Event {
    /// An event of which nothing but the kind is known yet.
    pub fn new(event: EventKind) -> Self {
        Self {
            run: None,
            step: None,
            event,
            request: None,
            code: None,
            rule: None,
            policy: None,
            secret: None,
            status: None,
            bytes_in: None,
            bytes_out: None,
            ms: None,
            tls: None,
            redactions: None,
            detail: None,
        }
    }
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The request's name; the same in its started and its final record.
    pub id: RequestId,
    /// Where it came in.
    pub door: Door,
    /// The method, or `CONNECT` for a tunnel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<Cow<'static, str>>,
    /// `http`, `https` or `tcp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<Cow<'static, str>>,
    /// The canonical host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Arc<str>>,
    /// The port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The address that was dialled; only in final records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<std::net::IpAddr>,
    /// The canonical path; its template where a credential is put into the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The names of the query's parameters, without their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub query_names: Vec<String>,
}

/// Milliseconds from the request's arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timings {
    /// Until the answer's head was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<f64>,
    /// Until the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
}

/// The TLS that was spoken with the upstream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tls {
    /// `1.2` or `1.3`.
    pub version: Cow<'static, str>,
    /// The protocol agreed by ALPN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alpn: Option<Cow<'static, str>>,
}
