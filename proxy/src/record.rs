//! Every request leaves exactly one final audit event, whatever became of it.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use broker::{AuditUnavailable, Broker};
use policies::{Host, Policy};
use sdk::audit::{Door, Event, EventKind, Request, Timings, Tls};
use sdk::{Code, RequestId};

use crate::destination::Destination;
use crate::principal::Principal;
use crate::refusal::Refusal;
use crate::respond::Asked;

/// The audit events of one request. Dropped before its end is told, it tells that the client went away.
pub(crate) struct Record(Box<Entry>);

struct Entry {
    broker: Arc<Broker>,
    /// Its kind is set when it is written; its request is always there.
    event: Event,
    id: RequestId,
    host: Option<Host>,
    arrived: Instant,
    uploaded: Option<Arc<AtomicU64>>,
    downloaded: u64,
    state: State,
}

/// How far a request has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Arrived,
    Started,
    Final,
}

impl Record {
    pub(crate) fn new(broker: &Arc<Broker>, door: Door, method: &str) -> Self {
        let millis = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
        let id = RequestId::new(millis, fastrand::u64(..));
        let mut event = Event::new(EventKind::RequestDenied);
        event.request = Some(Request {
            id: id.clone(),
            door,
            method: Some(logged(method)),
            scheme: None,
            host: None,
            port: None,
            ip: None,
            path: None,
            query_names: Vec::new(),
        });
        Self(Box::new(Entry {
            broker: Arc::clone(broker),
            event,
            id,
            host: None,
            arrived: Instant::now(),
            uploaded: None,
            downloaded: 0,
            state: State::Arrived,
        }))
    }

    /// Whose door it came through; who asks may be found to be another.
    pub(crate) fn of_door(&mut self, principal: &Principal) {
        self.0.event.run = Some(principal.run().id().clone());
        self.0.event.step = principal.step().map(|step| Arc::clone(step.shared()));
    }

    pub(crate) fn of(&mut self, principal: &Principal, policy: &Policy) {
        self.of_door(principal);
        self.0.event.policy = Some(principal.digest_text(policy.digest()));
    }

    pub(crate) fn to(&mut self, destination: &Destination) {
        let entry = &mut *self.0;
        entry.host = Some(destination.host().clone());
        if let Some(request) = &mut entry.event.request {
            request.scheme = Some(destination.scheme().as_str().into());
            request.host = Some(Arc::clone(destination.name()));
            request.port = Some(destination.port());
        }
    }

    pub(crate) fn asking_for(&mut self, path: String, query_names: Vec<String>) {
        if let Some(request) = &mut self.0.event.request {
            request.path = Some(path);
            request.query_names = query_names;
        }
    }

    pub(crate) fn by_rule(&mut self, rule: &Arc<str>) {
        self.0.event.rule = Some(Arc::clone(rule));
    }

    pub(crate) fn with_secret(&mut self, secret: &Arc<str>) {
        self.0.event.secret = Some(match self.0.event.secret.take() {
            Some(before) => format!("{before},{secret}").into(),
            None => Arc::clone(secret),
        });
    }

    pub(crate) fn reached(&mut self, ip: std::net::IpAddr, tls: Option<Tls>) {
        if let Some(request) = &mut self.0.event.request {
            request.ip = Some(ip);
        }
        self.0.event.tls = tls;
    }

    /// The counter of what the run sends.
    pub(crate) fn uploads(&mut self) -> Arc<AtomicU64> {
        Arc::clone(self.0.uploaded.get_or_insert_default())
    }

    pub(crate) fn sent(&mut self, count: usize) {
        self.0.downloaded += count as u64;
    }

    /// The answer's header is there.
    pub(crate) fn answered(&mut self, status: u16) {
        self.0.event.status = Some(status);
        let first_byte = millis(self.0.arrived);
        self.0.event.ms = Some(Timings {
            first_byte: Some(first_byte),
            total: None,
        });
    }

    /// Writes down that the request is about to leave. Nothing may be resolved or dialled before this returns.
    pub(crate) async fn start(&mut self) -> Result<(), AuditUnavailable> {
        self.0.event.event = EventKind::RequestStarted;
        self.0.broker.audit().append(&self.0.event).await?;
        self.0.state = State::Started;
        Ok(())
    }

    /// Writes down that the request is refused. The run is told only after this returned.
    pub(crate) async fn refuse(&mut self, refusal: &Refusal) -> Result<(), AuditUnavailable> {
        let entry = &mut *self.0;
        entry.event.code = Some(refusal.code);
        entry.event.status = Some(refusal.status());
        if refusal.rule.is_some() {
            entry.event.rule.clone_from(&refusal.rule);
        }
        if refusal.secret.is_some() {
            entry.event.secret.clone_from(&refusal.secret);
        }
        entry.sum_up();
        if entry.state == State::Final {
            return Ok(());
        }
        entry.state = State::Final;
        entry.event.event = EventKind::RequestDenied;
        entry.broker.audit().append(&entry.event).await
    }

    /// Writes down that something of this run was sent where it does not belong.
    pub(crate) async fn misplaced(&mut self, secret: Option<&str>) -> Result<(), AuditUnavailable> {
        let mut event = self.0.event.clone();
        event.event = EventKind::PlaceholderMisplaced;
        event.secret = secret.map(Arc::from);
        event.code = Some(Code::PlaceholderMisplaced);
        self.0.broker.audit().append(&event).await
    }

    /// Nothing is to be recorded: what came of it has records of its own.
    pub(crate) fn forget(&mut self) {
        self.0.state = State::Final;
    }

    /// Says more about an end that is not told otherwise.
    pub(crate) fn detail(&mut self, detail: &'static str) {
        self.0.event.detail = Some(detail.to_owned());
    }

    /// The answer has passed as a whole.
    pub(crate) fn complete(&mut self) {
        self.0.finish(None);
    }

    /// The upstream broke the answer off.
    pub(crate) fn broke_off(&mut self) {
        self.0.finish(Some("the upstream broke off"));
    }

    /// What is known, for the one who has to be told of a refusal.
    pub(crate) fn asked(&self, is_grpc: bool) -> Asked<'_> {
        Asked {
            request: &self.0.id,
            run: self.0.event.run.as_ref(),
            host: self.0.host.as_ref(),
            method: self
                .0
                .event
                .request
                .as_ref()
                .and_then(|request| request.method.as_deref()),
            policy: self.0.event.policy.as_deref(),
            is_grpc,
        }
    }
}

impl Entry {
    fn finish(&mut self, detail: Option<&str>) {
        let kind = match self.state {
            State::Arrived => EventKind::RequestDenied,
            State::Started => EventKind::RequestFinished,
            State::Final => return,
        };
        self.state = State::Final;
        if self.event.detail.is_none() {
            self.event.detail = detail.map(str::to_owned);
        }
        self.sum_up();
        self.event.event = kind;
        self.broker.audit().note(&self.event);
    }

    fn sum_up(&mut self) {
        let uploaded = self
            .uploaded
            .as_ref()
            .map_or(0, |count| count.load(Ordering::Relaxed));
        self.event.bytes_in = Some(uploaded);
        self.event.bytes_out = Some(self.downloaded);
        let total = Some(millis(self.arrived));
        self.event.ms = Some(Timings {
            total,
            ..self.event.ms.unwrap_or_default()
        });
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.finish(Some("the client went away"));
    }
}

/// A method is a token of any length; a log line is not.
fn logged(method: &str) -> Cow<'static, str> {
    match KNOWN.iter().find(|known| **known == method) {
        Some(known) => Cow::Borrowed(known),
        None => Cow::Owned(method.chars().take(32).collect()),
    }
}

/// The methods that need no copy.
const KNOWN: [&str; 8] = [
    "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT",
];

fn millis(since: Instant) -> f64 {
    (since.elapsed().as_secs_f64() * 1e6).round() / 1e3
}
