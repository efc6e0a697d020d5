//! `valetkey runs`: create, list, show and revoke.

use std::path::{Path, PathBuf};

use broker::Broker;
use sdk::api::{CreateRun, RunInfo};
use sdk::client::{Client, ClientError};

use crate::args;
use crate::engine;
use crate::failure::Failure;
use crate::folders::Folders;
use crate::output::{self, data};
use crate::project::Project;
use crate::report;

/// Does what was asked about runs.
pub(crate) fn runs(asked: args::Runs, folders: &Folders, json: bool) -> Result<u8, Failure> {
    match asked {
        args::Runs::Create {
            policy,
            ttl,
            approved,
            step,
            control,
        } => {
            let project = Project::open_with_file(policy.as_deref())?;
            let file = project.file.unwrap_or_default();
            let asked = CreateRun {
                policy: file.to_string_lossy().into_owned(),
                project: Some(project.folder.to_string_lossy().into_owned()),
                ttl,
                approved: approved.map(|digest| digest.to_string()),
                step: step.map(|step| step.to_string()),
            };
            create(&asked, &socket(control, folders), json)
        }
        args::Runs::List => list(&*engine::open_broker(folders)?, json),
        args::Runs::Show { run } => {
            let broker = engine::open_broker(folders)?;
            let info = info(&broker, &run)?;
            let report = broker.report(&run).map_err(engine::broker_failure)?;
            if json {
                let mut shown = serde_json::json!(info);
                if let (Some(report), Some(object)) = (&report, shown.as_object_mut()) {
                    object.insert("report".to_owned(), serde_json::json!(report));
                }
                output::json(&shown);
                return Ok(0);
            }
            tell(&info, json);
            for line in report
                .iter()
                .flat_map(|report| report::told(report, folders))
            {
                data(line);
            }
            Ok(0)
        }
        args::Runs::Revoke { run } => {
            let broker = engine::open_broker(folders)?;
            broker.revoke(&run).map_err(engine::broker_failure)?;
            tell(&info(&broker, &run)?, json);
            Ok(0)
        }
    }
}

/// Where the control API listens.
pub(crate) fn socket(asked: Option<PathBuf>, folders: &Folders) -> PathBuf {
    asked.unwrap_or_else(|| folders.control_socket())
}

/// How a call to the control API fails.
pub(crate) fn call_failure(error: ClientError) -> Failure {
    match &error {
        ClientError::Unreachable { .. } => Failure::ours("`valetkey serve` is not running here")
            .hint("start it, or give its socket with --control")
            .because(error),
        ClientError::Refused(problem) if problem.status == 403 => {
            Failure::not_approved(problem.detail.clone())
        }
        ClientError::Refused(problem) if problem.status == 422 => {
            Failure::bad_policy(problem.detail.clone())
        }
        ClientError::Refused(_) | ClientError::Broken(_) | ClientError::Unreadable => {
            Failure::ours("the control API did not do it").because(error)
        }
        _ => Failure::ours("the control API did not do it").because(error),
    }
}

fn create(asked: &CreateRun, socket: &Path, json: bool) -> Result<u8, Failure> {
    let created = engine::runtime()?
        .block_on(Client::new(socket).create_run(asked))
        .map_err(call_failure)?;
    if json {
        output::json(&created);
    } else {
        data(format_args!("{}  until {}", created.run, created.expires));
        if let Some(proxy) = &created.proxy {
            data(format_args!("proxy: {proxy}"));
        }
        data(format_args!(
            "variables for a sandbox: valetkey env {}",
            created.run
        ));
    }
    Ok(0)
}

fn list(broker: &Broker, json: bool) -> Result<u8, Failure> {
    let runs = broker.runs().map_err(engine::broker_failure)?;
    if json {
        output::json(&runs);
        return Ok(0);
    }
    if runs.is_empty() {
        data("no runs yet; start one with `valetkey run -- COMMAND`");
    }
    for info in &runs {
        data(format_args!(
            "{}  {:6}  {}  {}",
            info.run, info.state, info.created, info.project
        ));
    }
    Ok(0)
}

fn info(broker: &Broker, run: &sdk::RunId) -> Result<RunInfo, Failure> {
    broker
        .run_info(run)
        .map_err(engine::broker_failure)?
        .ok_or_else(|| {
            Failure::negative(format!("there is no run `{run}`"))
                .hint("`valetkey runs list` lists the runs")
        })
}

fn tell(info: &RunInfo, json: bool) {
    if json {
        output::json(info);
        return;
    }
    data(format_args!("run      {}", info.run));
    data(format_args!("state    {}", info.state));
    data(format_args!("project  {}", info.project));
    data(format_args!("policy   {}", info.policy));
    data(format_args!("created  {}", info.created));
    data(format_args!("expires  {}", info.expires));
    if let Some(ended) = &info.ended {
        data(format_args!("ended    {ended}"));
    }
}
