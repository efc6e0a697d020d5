//! The control API: what programs of the owner ask of a broker that serves, over a Unix socket.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use policies::Policy;
use sdk::api::CreatedRun;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::token::{Alias, RunToken};
use crate::{Broker, NewRun, Run};

mod bounds;
mod events;
mod feed;
mod hearing;
mod problem;
mod routes;
mod step_routes;
mod steps;
#[cfg(test)]
mod tests;

use steps::Steps;

pub use steps::{ReadyStep, StepListener, StepRefused, StepRunner};

/// What the broker cannot know: policy files, and where the proxy is.
pub trait Projects: Send + Sync + 'static {
    /// Reads the policy file at a path: the effective policy and the project's folder, which is the file's own where
    /// none is named.
    ///
    /// # Errors
    /// What is wrong, where, and what to do, for the caller to read.
    fn open(&self, policy: &Path, project: Option<&Path>)
    -> Result<(Arc<Policy>, PathBuf), String>;

    /// How a sandbox uses a run that was just created.
    ///
    /// # Errors
    /// What stands in the way on this machine. The run is ended then.
    fn access(&self, run: &Run, token: &RunToken, alias: &Alias) -> Result<CreatedRun, String>;
}

/// Serves the control API until it is told to stop, then finishes what was begun.
///
/// Only processes of the same user are answered: the kernel says who calls. The socket's own permissions are the
/// business of whoever binds it. The `resumed` runs are told of as if they had been created here. Steps are run by the
/// `runner`, if there is one; when it stops, whoever gave it has to end the steps that are under way.
pub async fn serve(
    listener: UnixListener,
    broker: Arc<Broker>,
    projects: Arc<dyn Projects>,
    runner: Option<Arc<dyn StepRunner>>,
    resumed: Vec<NewRun>,
    shutdown: CancellationToken,
) {
    let steps = Arc::new(Steps::new(Arc::clone(&broker), runner));
    let api = routes::Api::new(broker, projects, Arc::clone(&steps), shutdown.clone());
    let router = routes::router(api, resumed);
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let connections = TaskTracker::new();
    loop {
        // Taken before a connection is: too many callers wait in the listener's queue.
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            permit = Arc::clone(&room).acquire_owned() => match permit {
                Ok(permit) => permit,
                Err(_) => break,
            },
        };
        let stream = tokio::select! {
            () = shutdown.cancelled() => break,
            stream = listener.accept() => stream,
        };
        let stream = match stream {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely. The listener is as good as before.
                tracing::warn!(%error, "the control API cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        if !is_owner(&stream) {
            tracing::warn!("a process of another user called the control API");
            continue;
        }
        let (router, shutdown) = (router.clone(), shutdown.clone());
        connections.spawn(async move {
            let _permit = accepted;
            converse(stream, router, shutdown).await;
        });
    }
    connections.close();
    connections.wait().await;
    steps.tasks.close();
    steps.tasks.wait().await;
}

async fn converse(stream: UnixStream, router: axum::Router, shutdown: CancellationToken) {
    let connection = http1::Builder::new()
        // Without a timer hyper's timeouts do nothing.
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER)
        .max_headers(64)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            // One who takes no more of an answer does not hold the end up.
            match tokio::time::timeout(LAST, connection).await {
                Ok(ended) => ended,
                Err(_) => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the control API broke");
    }
}

/// Whether the process at the other end runs as the user that we are.
fn is_owner(stream: &UnixStream) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == ours)
}

/// The most connections at once.
const CONNECTIONS: usize = 64;

/// How long a caller may take to say what it wants.
const HEADER: Duration = Duration::from_secs(10);

/// How long an answer may take once it is to end. A step's is there when the step was ended.
const LAST: Duration = Duration::from_secs(30);

/// How long to wait when no connection can be accepted.
const PAUSE: Duration = Duration::from_millis(100);
