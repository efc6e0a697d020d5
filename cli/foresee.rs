//! What a run would be refused for, asked before there is one.

use std::time::Duration;

use policies::{NetworkMode, Policy};
use serde::Serialize;

use crate::engine::{self, Engine};
use crate::failure::Failure;
use crate::folders::Folders;
use crate::output::{count, say};
use crate::problem::Problem;
use crate::project::Project;
use crate::sandbox::{self, Foreseen};

/// What a run would meet on this machine.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Outlook {
    /// Why no run would begin; none if one would.
    pub(crate) problems: Vec<Problem>,
    /// What would not stop a run and still surprise somebody.
    pub(crate) warnings: Vec<String>,
}

impl Outlook {
    /// Whether a run would begin, once the policy is approved.
    pub(crate) fn is_clear(&self) -> bool {
        self.problems.is_empty()
    }

    /// Tells people what stands in the way. Where much does, the first are enough.
    pub(crate) fn tell(&self) {
        for problem in self.problems.iter().take(MOST) {
            say(problem);
        }
        if let Some(more) = self
            .problems
            .len()
            .checked_sub(MOST)
            .filter(|more| *more > 0)
        {
            say(format_args!("and {}", count(more as u64, "problem more")));
        }
        self.warn();
    }

    /// Tells people what might surprise them.
    pub(crate) fn warn(&self) {
        for warning in &self.warnings {
            say(format_args!("warning: {warning}"));
        }
    }
}

/// Asks those who would refuse a run of this project: the owner's side, the proxy and the launcher.
pub(crate) fn foresee(
    engine: &Engine,
    folders: &Folders,
    project: &Project,
) -> Result<Outlook, Failure> {
    let refused = engine
        .broker
        .foresee(&project.policy, &project.folder)
        .map_err(engine::broker_failure)?;
    let mut outlook = Outlook {
        problems: refused.iter().map(Problem::refused).collect(),
        warnings: warnings(&project.policy),
    };
    let mask = engine.broker.secret_files();
    match mask
        .map_err(engine::broker_failure)
        .and_then(|mask| sandbox::foresee(folders, project, mask))
    {
        Ok(Foreseen::Built) => {}
        Ok(Foreseen::NotHere(failure)) => outlook.warnings.push(failure.reason()),
        Ok(Foreseen::Refused(failure)) | Err(failure) => {
            outlook.problems.push(failure.into_problem());
        }
    }
    if project.policy.sandbox().network == NetworkMode::ProxyOnly
        && project.policy.rules().next().is_some()
        && let Err(failure) = engine.require_roots()
    {
        outlook.warnings.push(failure.told());
    }
    Ok(outlook)
}

fn warnings(policy: &Policy) -> Vec<String> {
    let lifetime = broker::lifetime(None, policy.budget().ttl);
    let Some(wall) = policy.limits().wall.filter(|wall| *wall > lifetime) else {
        return Vec::new();
    };
    let lifetime = seconds(lifetime);
    let whose = match policy.budget().ttl {
        Some(_) => "`budget.ttl`",
        None => "what a run has where no `budget.ttl` is set",
    };
    vec![format!(
        "`limits.wall` is {}, and {whose} is {lifetime}: the run ends after {lifetime}",
        seconds(wall)
    )]
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

/// As many problems are told to people.
const MOST: usize = 20;
