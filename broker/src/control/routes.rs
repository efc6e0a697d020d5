//! What the control API can be asked.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use dashmap::DashMap;
use policies::{Digest, StepName};
use sdk::RunId;
use sdk::api::{CreateRun, CreatedRun, RunInfo, SecretInfo};
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::audit::Record;
use crate::{Broker, CreateRunSpec, Error, NewRun};

use super::problem::{Refused, too_slow};
use super::steps::Steps;
use super::{Projects, step_routes};

/// What every call has at hand.
pub(super) struct Api {
    pub(super) broker: Arc<Broker>,
    projects: Arc<dyn Projects>,
    pub(super) steps: Arc<Steps>,
    /// One for each reader of events.
    pub(super) readers: Arc<Semaphore>,
    pub(super) shutdown: CancellationToken,
    /// How to use the runs that have not ended. It holds their tokens, in memory only.
    access: Arc<DashMap<RunId, CreatedRun>>,
}

impl Api {
    pub(super) fn new(
        broker: Arc<Broker>,
        projects: Arc<dyn Projects>,
        steps: Arc<Steps>,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            broker,
            projects,
            steps,
            readers: Arc::new(Semaphore::new(READERS)),
            shutdown,
            access: Arc::new(DashMap::new()),
        }
    }

    /// Says how a sandbox uses a run, and remembers it until the run ends.
    fn give_access(&self, new: NewRun) -> Result<CreatedRun, String> {
        let created = self.projects.access(&new.run, &new.token, &new.alias)?;
        let id = new.run.id().clone();
        self.access.insert(id.clone(), created.clone());
        let (access, run) = (Arc::clone(&self.access), new.run);
        tokio::spawn(async move {
            run.ended().await;
            access.remove(&id);
        });
        Ok(created)
    }
}

pub(super) type Answer<T> = Result<Json<T>, Refused>;

/// Every call.
pub(super) fn router(api: Api, resumed: Vec<NewRun>) -> Router {
    let api = Arc::new(api);
    for new in resumed {
        let id = new.run.id().clone();
        if let Err(why) = api.give_access(new) {
            // Its token opens the proxy all the same.
            tracing::warn!(run = %id, why, "nobody can be told how to use this run");
        }
    }
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/v1/openapi.json", get(openapi))
        .route("/v1/runs", get(list_runs).post(create_run))
        .route("/v1/runs/{id}", get(show_run).delete(end_run))
        .route("/v1/runs/{id}/access", get(access))
        .route("/v1/runs/{id}/report", get(step_routes::report))
        .route("/v1/secrets", get(list_secrets))
        .route("/v1/audit", get(events))
        .fallback(|| async { Refused::new(StatusCode::NOT_FOUND, "there is no such call") })
        .method_not_allowed_fallback(|| async {
            Refused::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "this call takes another method",
            )
        })
        .layer(middleware::from_fn(in_time))
        // These take as long as what they are about.
        .route(
            "/v1/runs/{id}/steps",
            get(step_routes::list).post(step_routes::run),
        )
        .route("/v1/runs/{id}/events", get(step_routes::events))
        .layer(DefaultBodyLimit::max(BODY))
        .with_state(api)
}

/// Ready means that a run could begin: its record can be written.
async fn ready(State(api): State<Arc<Api>>) -> Result<&'static str, Refused> {
    api.broker.audit().flush().await?;
    Ok("ready\n")
}

async fn openapi() -> impl IntoResponse {
    (
        [(header::CONTENT_TYPE, "application/json")],
        include_str!("openapi.json"),
    )
}

async fn list_runs(State(api): State<Arc<Api>>) -> Answer<Vec<RunInfo>> {
    let broker = Arc::clone(&api.broker);
    blocking(move || broker.runs()).await.map(Json)
}

async fn create_run(
    State(api): State<Arc<Api>>,
    Body(asked): Body<CreateRun>,
) -> Result<(StatusCode, Json<CreatedRun>), Refused> {
    let wrong = |detail: String| Refused::new(StatusCode::UNPROCESSABLE_ENTITY, detail);
    let ttl = match asked.ttl.as_deref() {
        None => None,
        Some(text) => Some(
            policies::units::parse_duration(text)
                .ok_or_else(|| wrong("`ttl` is a time such as `15m`".to_owned()))?,
        ),
    };
    let expected: Option<Digest> = match asked.approved.as_deref() {
        None => None,
        Some(text) => Some(
            text.parse()
                .map_err(|_| wrong("`approved` is a digest such as `sha256:…`".to_owned()))?,
        ),
    };
    let step = match asked.step.as_deref() {
        None => None,
        Some(text) => Some(StepName::parse(text).map_err(|error| wrong(error.to_string()))?),
    };
    let path = Path::new(&asked.policy).to_owned();
    if !path.is_absolute() {
        // Relative to what? The caller's folder is not ours.
        return Err(wrong("`policy` is a path that begins with `/`".to_owned()));
    }
    let folder = asked.project.map(PathBuf::from);
    if folder.as_ref().is_some_and(|folder| !folder.is_absolute()) {
        return Err(wrong("`project` is a path that begins with `/`".to_owned()));
    }
    let projects = Arc::clone(&api.projects);
    let (policy, project) = blocking(move || Ok(projects.open(&path, folder.as_deref())))
        .await?
        .map_err(wrong)?;
    if let Some(expected) = expected
        && expected != *policy.digest()
    {
        let detail = format!(
            "the policy's digest is `{}`, not the one expected",
            policy.digest()
        );
        return Err(Refused::new(StatusCode::FORBIDDEN, detail));
    }
    let spec = CreateRunSpec {
        policy,
        project,
        // Who can reach this socket may start what the owner approved; approving is the owner's own.
        approved: None,
        ttl,
        step,
    };
    let new = api.broker.create_lasting_run(spec).await?;
    let run = Arc::clone(&new.run);
    match api.give_access(new) {
        Ok(created) => Ok((StatusCode::CREATED, Json(created))),
        Err(why) => {
            api.broker.end_run(&run)?;
            Err(Refused::new(StatusCode::SERVICE_UNAVAILABLE, why))
        }
    }
}

async fn show_run(State(api): State<Arc<Api>>, Name(id): Name) -> Answer<RunInfo> {
    run_info(&api, id).await.map(Json)
}

async fn end_run(State(api): State<Arc<Api>>, Name(id): Name) -> Answer<RunInfo> {
    let (broker, name) = (Arc::clone(&api.broker), id.clone());
    blocking(move || broker.revoke(&name)).await?;
    api.access.remove(&id);
    api.broker.audit().flush().await?;
    run_info(&api, id).await.map(Json)
}

async fn access(State(api): State<Arc<Api>>, Name(id): Name) -> Answer<CreatedRun> {
    let is_active = api.broker.run(&id).is_some_and(|run| run.is_active());
    api.access
        .get(&id)
        .filter(|_| is_active)
        .map(|created| Json(created.value().clone()))
        .ok_or_else(|| {
            let detail = format!("there is no active run `{id}` that was created here");
            Refused::new(StatusCode::NOT_FOUND, detail)
        })
}

async fn list_secrets(State(api): State<Arc<Api>>) -> Answer<Vec<SecretInfo>> {
    let broker = Arc::clone(&api.broker);
    blocking(move || broker.secrets().list()).await.map(Json)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WhichRun {
    run: RunId,
}

async fn events(
    State(api): State<Arc<Api>>,
    which: Result<axum::extract::Query<WhichRun>, QueryRejection>,
) -> Answer<Vec<Record>> {
    let which = which.map_err(|_| {
        Refused::new(
            StatusCode::BAD_REQUEST,
            "name the run, such as `?run=run_…`",
        )
    })?;
    let run = which.0.run;
    api.broker.audit().flush().await?;
    let broker = Arc::clone(&api.broker);
    blocking(move || broker.events(&run)).await.map(Json)
}

async fn run_info(api: &Api, id: RunId) -> Result<RunInfo, Refused> {
    let (broker, name) = (Arc::clone(&api.broker), id.clone());
    blocking(move || broker.run_info(&name))
        .await?
        .ok_or_else(|| Error::UnknownRun(id.to_string()).into())
}

/// The run that the path names.
pub(super) struct Name(pub(super) RunId);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Refused;

    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        state: &S,
    ) -> Result<Self, Refused> {
        let path = axum::extract::Path::<RunId>::from_request_parts(parts, state).await;
        path.map(|path| Self(path.0))
            .map_err(|_| Refused::new(StatusCode::NOT_FOUND, "this is not the name of a run"))
    }
}

/// A body of JSON.
struct Body<T>(T);

impl<T, S> FromRequest<S> for Body<T>
where
    Json<T>: FromRequest<S, Rejection = JsonRejection>,
    S: Send + Sync,
{
    type Rejection = Refused;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refused> {
        Json::<T>::from_request(request, state)
            .await
            .map(|body| Self(body.0))
            .map_err(|rejection| Refused::new(rejection.status(), rejection.body_text()))
    }
}

/// Bounds every call: a caller that sends its body slowly does not hold a connection for ever.
async fn in_time(request: Request, next: Next) -> Response {
    tokio::time::timeout(CALL, next.run(request))
        .await
        .unwrap_or_else(|_| too_slow().into_response())
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Refused> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(Refused::from),
        Err(_) => Err(Refused::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the call did not end",
        )),
    }
}

/// How many may follow events at once: fewer than there may be connections.
const READERS: usize = 32;

/// The largest body.
const BODY: usize = 64 * 1024;

/// How long a call may take; a program that gives a secret may ask its owner.
pub(super) const CALL: Duration = Duration::from_secs(60);
