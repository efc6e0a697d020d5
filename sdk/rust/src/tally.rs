//! What a run reached, counted from its audit events.

use std::collections::{BTreeMap, BTreeSet};

use crate::Code;
use crate::audit::{Event, EventKind};
use crate::report::{Denied, Reached};

/// Counts of a run's requests, by host.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    hosts: BTreeMap<String, Host>,
    denied: BTreeMap<(Option<String>, Code), u64>,
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
        let host = event
            .request
            .as_ref()
            .and_then(|request| request.host.clone());
        match event.event {
            EventKind::RequestStarted => {
                if let Some(host) = host {
                    let entry = self.hosts.entry(host).or_default();
                    entry.requests += 1;
                    entry.secrets.extend(event.secret.clone());
                }
            }
            EventKind::RequestFinished => {
                if let Some(host) = host {
                    let entry = self.hosts.entry(host).or_default();
                    entry.bytes_in += event.bytes_in.unwrap_or(0);
                    entry.bytes_out += event.bytes_out.unwrap_or(0);
                    entry.secrets.extend(event.secret.clone());
                }
            }
            EventKind::RequestDenied | EventKind::TokenRefused => {
                if let Some(host) = &host {
                    self.hosts.entry(host.clone()).or_default().denied += 1;
                }
                if let Some(code) = event.code {
                    *self.denied.entry((host, code)).or_default() += 1;
                }
            }
            EventKind::PlaceholderMisplaced | EventKind::SecretProbing => self.alarms += 1,
            EventKind::RunCreated
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
        self.denied
            .iter()
            .map(|((host, code), times)| Denied {
                host: host.clone(),
                code: *code,
                times: *times,
            })
            .collect()
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
            host: Some(host.to_owned()),
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
