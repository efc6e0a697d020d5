//! What a run reached, counted from its audit events.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use crate::audit::{Event, EventKind};
use crate::report::{Denied, Reached};
use crate::{Code, RequestId};

/// Counts of a run's requests, by host.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    hosts: BTreeMap<String, Host>,
    denied: BTreeMap<(Option<String>, Code), u64>,
    failed: BTreeMap<(Option<String>, Code), u64>,
    /// Requests that were started and have no final record yet.
    open: HashSet<RequestId>,
    alarms: u64,
}

#[derive(Clone, Debug, Default)]
struct Host {
    requests: u64,
    denied: u64,
    bytes_in: u64,
    bytes_out: u64,
    secrets: BTreeSet<String>,
}

impl Tally {
    /// Takes one more event into account.
    pub fn add(&mut self, event: &Event) {
        let request = event.request.as_ref();
        let host = request.and_then(|request| request.host.as_deref().map(str::to_owned));
        match event.event {
            EventKind::RequestStarted => {
                self.open.extend(request.map(|request| request.id.clone()));
                if let Some(host) = host {
                    let entry = self.hosts.entry(host).or_default();
                    entry.requests += 1;
                    entry
                        .secrets
                        .extend(event.secret.as_deref().map(str::to_owned));
                }
            }
            EventKind::RequestFinished => {
                self.open_no_more(request);
                if let Some(host) = host {
                    let entry = self.hosts.entry(host).or_default();
                    entry.bytes_in += event.bytes_in.unwrap_or(0);
                    entry.bytes_out += event.bytes_out.unwrap_or(0);
                    entry
                        .secrets
                        .extend(event.secret.as_deref().map(str::to_owned));
                }
            }
            EventKind::RequestDenied | EventKind::TokenRefused => {
                let was_started = self.open_no_more(request);
                let is_refusal = event.code.is_some_and(|code| !is_failure(code));
                if let Some(host) = &host {
                    let entry = self.hosts.entry(host.clone()).or_default();
                    entry.denied += u64::from(is_refusal);
                    // It was let through by the policy and did not arrive all the same.
                    entry.requests -= u64::from(was_started && entry.requests > 0);
                }
                if let Some(code) = event.code {
                    let counts = if is_refusal {
                        &mut self.denied
                    } else {
                        &mut self.failed
                    };
                    *counts.entry((host, code)).or_default() += 1;
                }
            }
            EventKind::PlaceholderMisplaced | EventKind::SecretProbing => self.alarms += 1,
            EventKind::RunCreated
            | EventKind::RunResumed
            | EventKind::TokenMinted
            | EventKind::RunEnded
            | EventKind::DnsRefused
            | EventKind::SecretUsed
            | EventKind::PolicyApproved
            | EventKind::ProbePassed
            | EventKind::ProbeFailed
            | EventKind::LogRepaired => {}
        }
    }

    /// The hosts that at least one request was let through to.
    pub fn reached(&self) -> Vec<Reached> {
        self.hosts
            .iter()
            .filter(|(_, host)| host.requests > 0)
            .map(|(name, host)| Reached {
                host: name.clone(),
                requests: host.requests,
                denied: host.denied,
                bytes_in: host.bytes_in,
                bytes_out: host.bytes_out,
                secrets: host.secrets.iter().cloned().collect(),
            })
            .collect()
    }

    /// What was refused.
    pub fn denied(&self) -> Vec<Denied> {
        listed(&self.denied)
    }

    /// What was allowed and did not succeed: an upstream that could not be reached, a secret that could not be read.
    pub fn failed(&self) -> Vec<Denied> {
        listed(&self.failed)
    }

    /// How many requests were refused.
    pub fn refusals(&self) -> u64 {
        self.denied.values().sum()
    }

    /// How often a placeholder or token was found where it does not belong.
    pub fn alarms(&self) -> u64 {
        self.alarms
    }
}

/// Counts of a run's requests, as a whole and step by step.
#[derive(Clone, Debug, Default)]
pub struct Tallies {
    whole: Tally,
    steps: BTreeMap<Arc<str>, Tally>,
}

impl Tallies {
    /// Takes one more event into account.
    pub fn add(&mut self, event: &Event) {
        self.whole.add(event);
        if let Some(step) = &event.step {
            self.steps.entry(Arc::clone(step)).or_default().add(event);
        }
    }

    /// What all steps did together.
    pub fn whole(&self) -> &Tally {
        &self.whole
    }

    /// What one step did; nothing if no event names it.
    pub fn step(&self, name: &str) -> Tally {
        self.steps.get(name).cloned().unwrap_or_default()
    }
}

impl Tally {
    /// Takes a request off the open ones. Whether it was one.
    fn open_no_more(&mut self, request: Option<&crate::audit::Request>) -> bool {
        request.is_some_and(|request| self.open.remove(&request.id))
    }
}

fn listed(counts: &BTreeMap<(Option<String>, Code), u64>) -> Vec<Denied> {
    counts
        .iter()
        .map(|((host, code), times)| Denied {
            host: host.clone(),
            code: *code,
            times: *times,
        })
        .collect()
}

/// Whether a code says that something did not work, and not that somebody refused it.
fn is_failure(code: Code) -> bool {
    matches!(
        code,
        Code::UpstreamUnreachable
            | Code::UpstreamTls
            | Code::UpstreamTimeout
            | Code::CredentialUnavailable
            | Code::AuditUnavailable
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RequestId;
    use crate::audit::{Door, Request};

    fn event(kind: EventKind, host: &str, code: Option<Code>) -> Event {
        let mut event = Event::new(kind);
        event.code = code;
        event.request = Some(Request {
            id: RequestId::new(1, 1),
            door: Door::Proxy,
            method: None,
            scheme: None,
            host: Some(host.into()),
            port: None,
            ip: None,
            path: None,
            query_names: Vec::new(),
        });
        event
    }

    #[test]
    fn a_refused_host_is_not_a_reached_one() {
        let mut tally = Tally::default();
        tally.add(&event(EventKind::RequestStarted, "a.example", None));
        tally.add(&event(EventKind::RequestFinished, "a.example", None));
        tally.add(&event(
            EventKind::RequestDenied,
            "b.example",
            Some(Code::HostNotAllowed),
        ));
        let reached: Vec<String> = tally.reached().into_iter().map(|r| r.host).collect();
        assert_eq!(reached, ["a.example"]);
        assert_eq!(tally.refusals(), 1);
    }

    #[test]
    fn a_host_that_could_not_be_reached_is_neither_reached_nor_refused() {
        let mut tally = Tally::default();
        tally.add(&event(EventKind::RequestStarted, "a.example", None));
        let code = Some(Code::UpstreamUnreachable);
        tally.add(&event(EventKind::RequestDenied, "a.example", code));
        assert!(tally.reached().is_empty());
        assert_eq!(tally.refusals(), 0);
        assert_eq!(tally.failed()[0].times, 1);
    }

    #[test]
    fn a_request_that_failed_after_it_started_is_counted_once() {
        let mut tally = Tally::default();
        tally.add(&event(EventKind::RequestStarted, "a.example", None));
        tally.add(&event(
            EventKind::RequestFinished,
            "a.example",
            Some(Code::UpstreamTimeout),
        ));
        assert_eq!(tally.reached()[0].requests, 1);
        assert_eq!(tally.refusals(), 0);
    }
}
