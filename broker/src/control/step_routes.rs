//! What the control API can be asked about the steps of a run.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use sdk::RunId;
use sdk::api::StepInfo;
use sdk::report::{Report, Step};

use super::problem::Refused;
use super::routes::{Answer, Api, CALL, Name, blocking};
use super::steps::{self, StepRefused};
use super::{events as told, problem};
use crate::{Error, Run};

/// Runs one step now, and answers with what became of it.
pub(super) async fn run(
    State(api): State<Arc<Api>>,
    Name(id): Name,
    request: Request,
) -> Answer<Step> {
    let Some(runner) = api.steps.runner() else {
        let detail = "this server runs no steps; `valetkey run --steps` does";
        return Err(Refused::new(StatusCode::NOT_IMPLEMENTED, detail));
    };
    let run = active(&api, &id)?;
    let asked = body(request).await?;
    let about = Arc::clone(&run);
    let ready = blocking(move || Ok(runner.read(&about, &asked)))
        .await?
        .map_err(refused)?;
    api.steps.run(&run, ready).await.map(Json).map_err(refused)
}

/// The steps that were asked for, in their order.
pub(super) async fn list(State(api): State<Arc<Api>>, Name(id): Name) -> Answer<Vec<StepInfo>> {
    if let Some(infos) = api.steps.listed(&id) {
        return Ok(Json(infos));
    }
    // None were asked for here, or the run has ended: its report has them.
    let report = report_of(&api, id).await?;
    let of_report = |step: Step| StepInfo {
        name: step.name.clone(),
        index: step.index,
        state: "ended".to_owned(),
        report: Some(step),
    };
    Ok(Json(report.steps.into_iter().map(of_report).collect()))
}

/// The report of a run, as it is by now.
pub(super) async fn report(State(api): State<Arc<Api>>, Name(id): Name) -> Answer<Report> {
    api.broker.audit().flush().await?;
    report_of(&api, id).await.map(Json)
}

/// What happens in a run, as it happens.
pub(super) async fn events(
    State(api): State<Arc<Api>>,
    Name(id): Name,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let run = active(&api, &id)?;
    let after = told::last_read(&headers)
        .map_err(|detail| Refused::new(StatusCode::BAD_REQUEST, detail))?;
    let place = Arc::clone(&api.readers).try_acquire_owned().map_err(|_| {
        Refused::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too many follow events already",
        )
    })?;
    let feed = Arc::clone(&api.steps.of(&run).feed);
    Ok(told::tell(&feed, after, place, api.shutdown.clone()))
}

async fn report_of(api: &Api, id: RunId) -> Result<Report, Refused> {
    let (broker, name) = (Arc::clone(&api.broker), id.clone());
    blocking(move || steps::report(&broker, &name))
        .await?
        .ok_or_else(|| Error::UnknownRun(id.to_string()).into())
}

/// A run of this process that has not ended.
fn active(api: &Api, id: &RunId) -> Result<Arc<Run>, Refused> {
    api.broker
        .run(id)
        .filter(|run| run.is_active())
        .ok_or_else(|| {
            let detail = format!("there is no active run `{id}` that was created here");
            Refused::new(StatusCode::NOT_FOUND, detail)
        })
}

/// The text of a body of JSON; a caller that sends it slowly does not hold a connection for ever.
async fn body(request: Request) -> Result<String, Refused> {
    let kind = request.headers().get(header::CONTENT_TYPE);
    let is_json = kind
        .and_then(|kind| kind.to_str().ok())
        .and_then(|kind| kind.split(';').next())
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
    if !is_json {
        let detail = "the body is JSON: send `content-type: application/json`";
        return Err(Refused::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    }
    let read = tokio::time::timeout(CALL, String::from_request(request, &())).await;
    let read = read.map_err(|_| problem::too_slow())?;
    read.map_err(|rejection| Refused::new(rejection.status(), rejection.body_text()))
}

fn refused(refused: StepRefused) -> Refused {
    let status = match &refused {
        StepRefused::Wrong(_) => StatusCode::UNPROCESSABLE_ENTITY,
        StepRefused::NotNow(_) => StatusCode::CONFLICT,
        StepRefused::Cannot(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    Refused::new(status, refused.why())
}
