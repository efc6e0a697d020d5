//! What happens in a run, as a client reads it: server-sent events (the HTML standard, section 9.2).

use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::client::{Carrying, ClientError};
pub use crate::happening::RunEvent;

/// The events of a run, as they happen. Dropping it stops following.
pub struct Events {
    body: Incoming,
    /// What came and is not a whole event yet.
    begun: Vec<u8>,
    _connection: Carrying,
}

impl Events {
    pub(crate) fn new(body: Incoming, connection: Carrying) -> Self {
        Self {
            body,
            begun: Vec::new(),
            _connection: connection,
        }
    }

    /// The next event; none once the run has ended.
    ///
    /// # Errors
    /// If the connection broke; follow again after the last number.
    pub async fn next(&mut self) -> Result<Option<RunEvent>, ClientError> {
        loop {
            if let Some(end) = self.begun.windows(2).position(|two| two == b"\n\n") {
                let rest = self.begun.split_off(end + 2);
                let text = std::mem::replace(&mut self.begun, rest);
                let text = std::str::from_utf8(&text).map_err(|_| ClientError::Unreadable)?;
                match parse(text) {
                    Some(event) => return event.map(Some),
                    // A comment that keeps the connection open.
                    None => continue,
                }
            }
            if self.begun.len() > MAX_EVENT {
                return Err(ClientError::Unreadable);
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(ClientError::Broken(error)),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.begun.extend_from_slice(data);
                    }
                }
            }
        }
    }
}

fn parse(text: &str) -> Option<Result<RunEvent, ClientError>> {
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    };
    let (kind, data) = (field("event")?, field("data")?);
    Some(match serde_json::from_str(data) {
        Err(_) => Err(ClientError::Unreadable),
        Ok(data) => Ok(RunEvent {
            number: field("id").and_then(|number| number.parse().ok()),
            kind: kind.to_owned(),
            data,
        }),
    })
}

const MAX_EVENT: usize = 16 * 1024 * 1024;
