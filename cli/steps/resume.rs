//! Going on with the steps of an earlier run: which of them need not be run again, and where their changes are.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use launcher::changes::{Hold, Kept, Record, State, escaped};
use policies::WorkspaceMode;
use sdk::RunId;
use sdk::report::{Outcome, Report, Step};
use serde::{Deserialize, Serialize};

use super::file::Plan;
use super::many::Progress;
use crate::failure::Failure;
use crate::project::Project;
use crate::sandbox;

/// What is written down beside a run's layers, for one that goes on with it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    steps: Vec<Passed>,
}

/// A step that passed.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Passed {
    index: u32,
    name: String,
    /// Its command, variables, limits and needs.
    what: String,
    layer: String,
}

/// An earlier run that is gone on with.
#[derive(Debug)]
pub(crate) struct Resumed {
    /// The run.
    pub(crate) run: RunId,
    /// Its folder.
    pub(crate) folder: PathBuf,
    /// The steps that passed in it, by their place in the plan, and the names of their layers.
    pub(crate) steps: BTreeMap<usize, (Step, String)>,
    _hold: Hold,
}

/// Writes down which steps passed, and which layers are theirs.
pub(crate) fn write(run: &Path, plan: &Plan, progress: &[Progress]) -> std::io::Result<()> {
    let passed = |(index, progress): (usize, &Progress)| {
        let layer = match progress {
            Progress::Ended(attempted) if attempted.is_passed() => attempted.layer.as_ref()?.name(),
            Progress::Earlier(_, layer) => layer.clone(),
            Progress::Ended(_) | Progress::Running | Progress::NotReached => return None,
        };
        let spec = &plan.steps[index].spec;
        Some(Passed {
            index: spec.index,
            name: spec.name.clone(),
            what: what(plan, index),
            layer,
        })
    };
    let steps = progress.iter().enumerate().filter_map(passed).collect();
    let text = serde_json::to_string(&Written { steps })?;
    fs::write(run.join(NEW_FILE), text)?;
    fs::rename(run.join(NEW_FILE), run.join(FILE))
}

/// Looks whether these steps can go on over what the run in `folder` left. Nothing is changed yet.
pub(crate) fn find(
    report: &Report,
    folder: PathBuf,
    project: &Project,
    plan: &Plan,
) -> Result<Resumed, Failure> {
    let cannot = |why: String| {
        Failure::bad_policy(format!(
            "the run `{}` cannot be gone on with: {why}",
            report.run
        ))
        .named("resume-impossible")
        .hint("leave `--resume` out to run all steps anew")
    };
    if project.policy.sandbox().workspace.mode != WorkspaceMode::Overlay {
        return Err(cannot(
            "the policy changed: `workspace.mode` is not \"overlay\"".to_owned(),
        ));
    }
    let hold = Hold::take(&folder).map_err(|error| cannot(error.to_string()))?;
    let kept = Kept::open(&folder).map_err(|error| cannot(error.to_string()))?;
    let record = kept.record();
    if record.workspace != sandbox::workspace_folder(project)? {
        let there = record.workspace.display();
        return Err(cannot(format!(
            "its workspace was `{there}`, and is another by now"
        )));
    }
    if record.state != State::Kept {
        return Err(cannot(
            "its changes were taken over or thrown away".to_owned(),
        ));
    }
    if !record.layers_folder().is_dir() {
        return Err(cannot("another run went on with it already".to_owned()));
    }
    if let Some(change) = kept.changes().iter().find(|one| one.conflict.is_some()) {
        let path = escaped(&change.path);
        return Err(cannot(format!(
            "`{path}` changed in the workspace since, and the run changed it, too"
        )));
    }
    let written = fs::read_to_string(folder.join(FILE))
        .map_err(|_| cannot("nothing of its steps was written down".to_owned()))?;
    let written: Written =
        serde_json::from_str(&written).map_err(|error| cannot(error.to_string()))?;
    let mut steps = BTreeMap::new();
    for passed in written.steps {
        let name = &passed.name;
        let index = (passed.index as usize).wrapping_sub(1);
        let is_same = plan
            .steps
            .get(index)
            .is_some_and(|step| step.spec.name == *name)
            && what(plan, index) == passed.what;
        if !is_same {
            return Err(cannot(format!(
                "the steps file changed: step {} (`{name}`), which passed, is another by now",
                passed.index
            )));
        }
        let told = report.steps.get(index).filter(|step| step.name == *name);
        let Some(step) = told.filter(|step| step.outcome == Outcome::Passed) else {
            return Err(cannot(format!(
                "its report does not know the step `{name}`"
            )));
        };
        // One that nothing was written to was removed.
        let is_there = record.layers_folder().join(&passed.layer).exists();
        if !record.layers.contains(&passed.layer) && is_there {
            return Err(cannot(format!("what `{name}` changed is not kept")));
        }
        steps.insert(index, (step.clone(), passed.layer));
    }
    if steps.is_empty() {
        return Err(cannot("none of its steps passed".to_owned()));
    }
    if steps.len() == plan.steps.len() {
        return Err(cannot("all of its steps passed".to_owned()));
    }
    Ok(Resumed {
        run: report.run.clone(),
        folder,
        steps,
        _hold: hold,
    })
}

impl Resumed {
    /// Takes the layers of the steps that passed into the run in `folder`.
    pub(super) fn hand_over(&self, folder: &Path) -> Result<Record, launcher::changes::Error> {
        let mut record = Record::load(&self.folder)?;
        let is_passed = |name: &String| self.steps.values().any(|(_, layer)| layer == name);
        let layers = record.layers.iter().filter(|name| is_passed(name)).cloned();
        let layers = layers.collect();
        record.hand_over(folder, layers)
    }
}

fn what(plan: &Plan, index: usize) -> String {
    let spec = &plan.steps[index].spec;
    let needs = plan.graph.needs(index);
    format!("{:?}", (&spec.command, &spec.env, &spec.limits, needs))
}

const FILE: &str = "steps.json";
const NEW_FILE: &str = "steps.json.new";
