//! A thin client of the control API, over its Unix socket.

use std::path::{Path, PathBuf};

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use crate::RunId;
use crate::api::{CreateRun, CreatedRun, Problem, RunInfo, RunStep, StepInfo};
use crate::events::Events;
use crate::report::{Report, Step};

/// Talks to the broker that listens on one socket.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

/// Why a call did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The broker refused; it says why and what to do.
    #[error("{detail}", detail = .0.detail)]
    Refused(Problem),
    /// Nobody listens there.
    #[error("cannot reach the control API at `{socket}`", socket = .socket.display())]
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The connection broke.
    #[error("the control API broke off")]
    Broken(#[source] hyper::Error),
    /// The answer is not what the API promises.
    #[error("the control API gave an answer that cannot be read")]
    Unreadable,
}

impl Client {
    /// A client for the socket at `path`. Nothing is opened yet.
    pub fn new(path: &Path) -> Self {
        Self {
            socket: path.to_owned(),
        }
    }

    /// Creates a run.
    pub async fn create_run(&self, asked: &CreateRun) -> Result<CreatedRun, ClientError> {
        self.call(Method::POST, "/v1/runs", Some(asked)).await
    }

    /// Tells what is known of a run.
    pub async fn run(&self, run: &RunId) -> Result<RunInfo, ClientError> {
        self.call(Method::GET, &format!("/v1/runs/{run}"), None::<&()>)
            .await
    }

    /// Gives the token, certificates and environment of a run that is active, again.
    pub async fn access(&self, run: &RunId) -> Result<CreatedRun, ClientError> {
        self.call(Method::GET, &format!("/v1/runs/{run}/access"), None::<&()>)
            .await
    }

    /// Runs one step of a run now, and waits until it has ended.
    ///
    /// It is dropped without harm: the step goes on, and [`steps`](Self::steps) tells what becomes of it.
    pub async fn run_step(&self, run: &RunId, asked: &RunStep) -> Result<Step, ClientError> {
        self.call(Method::POST, &format!("/v1/runs/{run}/steps"), Some(asked))
            .await
    }

    /// The steps of a run, in the order in which they were asked for.
    pub async fn steps(&self, run: &RunId) -> Result<Vec<StepInfo>, ClientError> {
        self.call(Method::GET, &format!("/v1/runs/{run}/steps"), None::<&()>)
            .await
    }

    /// The report of a run, as it is by now.
    pub async fn report(&self, run: &RunId) -> Result<Report, ClientError> {
        self.call(Method::GET, &format!("/v1/runs/{run}/report"), None::<&()>)
            .await
    }

    /// Follows what happens in a run, after the event of this number or from its first step on.
    pub async fn events(&self, run: &RunId, after: Option<u64>) -> Result<Events, ClientError> {
        let mut request = Request::builder()
            .uri(format!("/v1/runs/{run}/events"))
            .header("host", "valetkey");
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        let request = request
            .body(Full::new(Bytes::new()))
            .map_err(|_| ClientError::Unreadable)?;
        let (response, connection) = self.send(request).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(Events::new(response.into_body(), connection));
        }
        let body = whole(response.into_body()).await?;
        Err(refusal(status, &body))
    }

    /// Ends a run.
    pub async fn revoke(&self, run: &RunId) -> Result<RunInfo, ClientError> {
        self.call(Method::DELETE, &format!("/v1/runs/{run}"), None::<&()>)
            .await
    }

    async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Carrying), ClientError> {
        let stream =
            UnixStream::connect(&self.socket)
                .await
                .map_err(|source| ClientError::Unreachable {
                    socket: self.socket.clone(),
                    source,
                })?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(ClientError::Broken)?;
        let carrying = Carrying(tokio::spawn(connection));
        let response = sender.send_request(request).await;
        Ok((response.map_err(ClientError::Broken)?, carrying))
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, ClientError> {
        let bytes = match body {
            Some(body) => serde_json::to_vec(body).map_err(|_| ClientError::Unreadable)?,
            None => Vec::new(),
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "valetkey")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(bytes)))
            .map_err(|_| ClientError::Unreadable)?;
        let (response, _connection) = self.send(request).await?;
        let status = response.status();
        let body = whole(response.into_body()).await?;
        if status.is_success() {
            serde_json::from_slice(&body).map_err(|_| ClientError::Unreadable)
        } else {
            Err(refusal(status, &body))
        }
    }
}

/// The task that carries a connection; it ends with this.
pub(crate) struct Carrying(JoinHandle<Result<(), hyper::Error>>);

impl Drop for Carrying {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn whole(body: Incoming) -> Result<Bytes, ClientError> {
    let collected = Limited::new(body, MAX_ANSWER).collect().await;
    collected
        .map(|collected| collected.to_bytes())
        .map_err(|_| ClientError::Unreadable)
}

fn refusal(status: StatusCode, body: &[u8]) -> ClientError {
    match serde_json::from_slice(body) {
        Ok(problem) => ClientError::Refused(problem),
        Err(_) => ClientError::Refused(Problem {
            title: "refused".to_owned(),
            status: status.as_u16(),
            detail: format!("the control API answered {status}"),
        }),
    }
}

const MAX_ANSWER: usize = 16 * 1024 * 1024;
