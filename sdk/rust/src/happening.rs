//! What happens in a run, while it happens: the events of the control API and of `valetkey run --events`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::RunId;
use crate::audit::Event;
use crate::report::{LimitHit, Outcome, Retried, Step};

/// One event as it is passed on: a line of `valetkey run --events`, or a server-sent event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEvent {
    /// Its number, to go on after it; none for `missed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// What kind of event it is; later versions may have more.
    pub kind: String,
    /// What happened.
    pub data: serde_json::Value,
}

impl RunEvent {
    /// What happened, if this version knows that kind of event.
    pub fn happening(&self) -> Option<Happening> {
        let tagged = serde_json::json!({"kind": self.kind, "data": self.data});
        serde_json::from_value(tagged).ok()
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "data")]
#[non_exhaustive]
pub enum Happening {
    /// The run is about to begin its first step.
    #[serde(rename = "run.started")]
    RunStarted(RunStarted),
    /// An attempt of a step is about to have its sandbox.
    #[serde(rename = "started")]
    Started(Started),
    /// A step wrote something.
    #[serde(rename = "output")]
    Output(Output),
    /// Something that the owner should know.
    #[serde(rename = "note")]
    Note(Note),
    /// A request of the run began, ended or was refused, as the audit log has it.
    #[serde(rename = "request")]
    Request(Arc<Event>),
    /// An attempt met a limit, whether or not that ended it. Told when the attempt has ended.
    #[serde(rename = "limit")]
    Limit(Limited),
    /// An attempt failed and is followed by another.
    #[serde(rename = "retry")]
    Retry(Retry),
    /// A step has ended for good.
    #[serde(rename = "ended")]
    Ended(Box<Ended>),
    /// The run has ended. Nothing follows.
    #[serde(rename = "run.ended")]
    RunEnded(RunEnded),
    /// So many events were not passed on, because whoever reads them was too slow.
    #[serde(rename = "missed")]
    Missed(Missed),
}

impl Happening {
    /// The name of its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::RunStarted(_) => "run.started",
            Self::Started(_) => "started",
            Self::Output(_) => "output",
            Self::Note(_) => "note",
            Self::Request(_) => "request",
            Self::Limit(_) => "limit",
            Self::Retry(_) => "retry",
            Self::Ended(_) => "ended",
            Self::RunEnded(_) => "run.ended",
            Self::Missed(_) => "missed",
        }
    }

    /// What is told of it beside its kind, as JSON in one line.
    ///
    /// # Errors
    /// None that is known: every field can be written.
    pub fn data(&self) -> serde_json::Result<String> {
        match self {
            Self::RunStarted(data) => serde_json::to_string(data),
            Self::Started(data) => serde_json::to_string(data),
            Self::Output(data) => serde_json::to_string(data),
            Self::Note(data) => serde_json::to_string(data),
            Self::Request(data) => serde_json::to_string(&**data),
            Self::Limit(data) => serde_json::to_string(data),
            Self::Retry(data) => serde_json::to_string(data),
            Self::Ended(data) => serde_json::to_string(data),
            Self::RunEnded(data) => serde_json::to_string(data),
            Self::Missed(data) => serde_json::to_string(data),
        }
    }

    /// The event with this number as one line of JSON, as [`RunEvent`] reads it, without a line end.
    ///
    /// # Errors
    /// As [`data`](Self::data).
    pub fn line(&self, number: u64) -> serde_json::Result<String> {
        let (kind, data) = (self.kind(), self.data()?);
        Ok(match self {
            Self::Missed(_) => format!(r#"{{"kind":"{kind}","data":{data}}}"#),
            Self::RunStarted(_)
            | Self::Started(_)
            | Self::Output(_)
            | Self::Note(_)
            | Self::Request(_)
            | Self::Limit(_)
            | Self::Retry(_)
            | Self::Ended(_)
            | Self::RunEnded(_) => {
                format!(r#"{{"number":{number},"kind":"{kind}","data":{data}}}"#)
            }
        })
    }
}

/// A run begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStarted {
    /// The run.
    pub run: RunId,
    /// The digest of its policy.
    pub policy: String,
}

/// An attempt begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The step's name.
    pub step: String,
    /// Its place, from 1.
    pub index: u32,
    /// Which attempt it is, from 1.
    pub attempt: u32,
}

/// A piece of what a step wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// The step's name.
    pub step: String,
    /// Its place, from 1.
    pub index: u32,
    /// `stdout` or `stderr`.
    pub stream: String,
    /// The text, with bytes that are not UTF-8 replaced.
    pub text: String,
    /// The bytes (base64), where `text` is not what was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
}

/// Something that the owner should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The step's name.
    pub step: String,
    /// Its place, from 1.
    pub index: u32,
    /// The words.
    pub text: String,
}

/// An attempt met a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limited {
    /// The step's name.
    pub step: String,
    /// Its place, from 1.
    pub index: u32,
    /// Which attempt it was, from 1.
    pub attempt: u32,
    /// The limit, its value, and what was used.
    pub limit: LimitHit,
    /// How the attempt ended.
    pub outcome: Outcome,
}

/// An attempt is followed by another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// The step's name.
    pub step: String,
    /// Its place, from 1.
    pub index: u32,
    /// Which attempt failed, from 1.
    pub attempt: u32,
    /// How it ended, and why it is tried again.
    pub failed: Retried,
}

/// A step has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// The step's name, if anything of it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Its place, from 1.
    pub index: u32,
    /// What became of it. `valetkey run` says what it reached in the run's report only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Step>,
    /// Why nothing of it ran, where the control API refused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A run has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnded {
    /// The run.
    pub run: RunId,
    /// How it ended, where one process ran all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// The signal by which its owner asked it to end, if that was before its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<i32>,
}

/// What was not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missed {
    /// How many events.
    pub events: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note() -> Happening {
        Happening::Note(Note {
            step: "build".to_owned(),
            index: 1,
            text: "two\nlines".to_owned(),
        })
    }

    #[test]
    fn a_line_is_read_as_what_was_written() {
        let missed = Happening::Missed(Missed { events: 3 });
        for (happening, number) in [(note(), Some(7)), (missed, None)] {
            let line = happening.line(7).unwrap();
            assert!(!line.contains('\n'), "{line}");
            let event: RunEvent = serde_json::from_str(&line).unwrap();
            assert_eq!(event.number, number);
            assert_eq!(event.kind, happening.kind());
            assert_eq!(event.happening(), Some(happening));
        }
    }

    #[test]
    fn an_event_of_a_later_version_is_kept_and_not_understood() {
        let event: RunEvent =
            serde_json::from_str(r#"{"number":1,"kind":"later","data":{"what":1}}"#).unwrap();
        assert_eq!(event.happening(), None);
    }
}
