//! What a steps file says: the commands of a run, in which order, and when one is tried again.
//!
//! The file is the agent's: it can ask for less than the policy allows, never for more.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use launcher::Stdin;
use policies::reader::{At, Findings, Item, Section, SourceText, nearest, parse_json, parse_toml};
use policies::units::parse_duration;
use policies::{Diagnostic, Limits, StepName};

use super::StepSpec;
use super::graph::{self, Graph};
use super::retry::Cause;
use crate::failure::Failure;

/// A step as the file has it.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    /// What is run.
    pub(crate) spec: StepSpec,
    /// How often it is tried again at most.
    pub(crate) retries: u32,
    /// What it is tried again for; empty for every failure.
    pub(crate) retry_on: Vec<Cause>,
    /// How long to wait before the second attempt.
    pub(crate) retry_wait: Duration,
    /// Whether what it changed is dropped if it fails.
    pub(crate) rollback_failed: bool,
    /// Whether steps that need it run although it failed.
    pub(crate) continue_on_failure: bool,
}

/// The steps of a run, and which needs which.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// In the order of the file.
    pub(crate) steps: Vec<Planned>,
    /// Which step needs which.
    pub(crate) graph: Graph,
}

impl Plan {
    /// The one step of a single command.
    pub(crate) fn single(spec: StepSpec) -> Self {
        let step = Planned {
            spec,
            retries: 0,
            retry_on: Vec::new(),
            retry_wait: Duration::ZERO,
            rollback_failed: false,
            continue_on_failure: false,
        };
        Self {
            steps: vec![step],
            graph: Graph::single(),
        }
    }
}

/// Reads the steps file at `path`. No step may have more than `limits`.
pub(crate) fn read(path: &Path, limits: &Limits) -> Result<Plan, Failure> {
    let text = text(path).map_err(|why| {
        Failure::bad_policy(format!(
            "cannot read the steps file `{}`: {why}",
            path.display()
        ))
        .named("steps-invalid")
    })?;
    parse(&path.display().to_string(), &text, limits)
        .map_err(|found| Failure::mistakes(path.display(), "steps-invalid", &found))
}

fn text(path: &Path) -> Result<String, String> {
    // Looked at first: opening a pipe would wait for its other end.
    let found = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !found.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let mut text = String::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(LONGEST + 1)
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    if text.len() as u64 > LONGEST {
        return Err("it is larger than 1 MiB".to_owned());
    }
    Ok(text)
}

/// Reads one entry, given as JSON of the same model. It needs no other: who asks for it decides when it runs.
pub(crate) fn read_one(text: &str, limits: &Limits) -> Result<Planned, Vec<Diagnostic>> {
    let source = SourceText::without_spans("the step", text);
    let findings = Findings::default();
    let root = parse_json(&source, &findings);
    let known: Vec<&str> = OWN_KEYS.iter().chain(Limits::KEYS).copied().collect();
    let section = Section::open(&source, &findings, &root, "", &known);
    for key in ["needs", "continue_on_failure"] {
        if let Some(item) = section.item(key) {
            let message = format!("`{key}` is for the steps of a file");
            let hint = "a step that is asked for alone runs when it is asked for".to_owned();
            item.refuse(message, Some(hint));
        }
    }
    let step = read_step(&section, 0, limits);
    findings.into_result(step)
}

fn parse(name: &str, text: &str, limits: &Limits) -> Result<Plan, Vec<Diagnostic>> {
    let source = SourceText::new(name, text);
    let findings = Findings::default();
    let root = parse_toml(&source, &findings);
    let file = Section::open(&source, &findings, &root, "", &["step"]);
    let known: Vec<&str> = OWN_KEYS.iter().chain(Limits::KEYS).copied().collect();
    let sections = file.sections("step", &known);
    if sections.is_empty() && findings.is_empty() {
        let hint = "write a `[[step]]` with a `name` and what to `run`";
        file.refuse(&(0..0), "there are no steps", Some(hint.to_owned()));
    }
    if let Some(first_too_many) = sections.get(MOST_STEPS) {
        let message = format!("there are more than {MOST_STEPS} steps");
        first_too_many.refuse(first_too_many.span(), message, None);
    }
    let mut steps = Vec::new();
    let mut places = HashMap::new();
    for (index, section) in sections.iter().enumerate().take(MOST_STEPS) {
        let step = read_step(section, index, limits);
        if let Some(before) = places.insert(step.spec.name.clone(), index)
            && !step.spec.name.is_empty()
        {
            let line = sections[before].line();
            let message = format!(
                "another step is called `{}`, in line {line}",
                step.spec.name
            );
            let name = section.text("name");
            let span = name.map_or(section.span().clone(), |name| name.span);
            section.refuse(&span, message, None);
        }
        steps.push(step);
    }
    let needs: Vec<_> = sections
        .iter()
        .enumerate()
        .take(MOST_STEPS)
        .map(|(index, section)| read_needs(section, index, &places))
        .collect();
    let numbers = needs
        .iter()
        .map(|needs| needs.iter().map(|need| need.value).collect())
        .collect();
    match Graph::new(numbers) {
        Ok(graph) => findings.into_result(Plan { steps, graph }),
        Err(graph::Cycle(cycle)) => {
            refuse_cycle(&cycle, &steps, &sections, &needs);
            findings.into_result(()).map(|()| unreachable_plan())
        }
    }
}

/// What stands where there is a finding anyway.
fn unreachable_plan() -> Plan {
    Plan {
        steps: Vec::new(),
        graph: Graph::default(),
    }
}

fn refuse_cycle(
    cycle: &[usize],
    steps: &[Planned],
    sections: &[Section<'_>],
    needs: &[Vec<At<usize>>],
) {
    let Some(first) = cycle.first() else {
        return;
    };
    let next = cycle.get(1).unwrap_or(first);
    let names: Vec<&str> = cycle
        .iter()
        .chain([first])
        .map(|index| steps[*index].spec.name.as_str())
        .collect();
    let span = needs[*first]
        .iter()
        .find(|need| need.value == *next)
        .map_or(sections[*first].span(), |need| &need.span);
    let message = format!(
        "steps need each other in a circle: {}",
        names.join(" needs ")
    );
    sections[*first].refuse(
        span,
        message,
        Some("leave one of these needs out".to_owned()),
    );
}

fn read_step(section: &Section<'_>, index: usize, limits: &Limits) -> Planned {
    let rights = read_name(section);
    let name = rights.as_ref().map_or("", StepName::as_str).to_owned();
    let retries = section.integer("retries", 0..=MOST_RETRIES);
    let (retry_on, retry_wait) = (section.item("retry_on"), section.item("retry_wait"));
    for (key, item) in [("retry_on", &retry_on), ("retry_wait", &retry_wait)] {
        if let Some(item) = item
            && retries.as_ref().is_none_or(|retries| retries.value == 0)
        {
            let hint = "add `retries = 1` or more".to_owned();
            item.refuse(
                format!("`{key}` does nothing without `retries`"),
                Some(hint),
            );
        }
    }
    Planned {
        spec: StepSpec {
            name,
            rights,
            index: u32::try_from(index + 1).unwrap_or(u32::MAX),
            command: read_command(section),
            env: read_env(section),
            limits: limits.lowered_by(section),
            stdin: Stdin::Null,
        },
        retries: retries
            .and_then(|retries| u32::try_from(retries.value).ok())
            .unwrap_or(0),
        retry_on: retry_on.map(|item| read_causes(&item)).unwrap_or_default(),
        retry_wait: retry_wait.map(|item| read_wait(&item)).unwrap_or_default(),
        rollback_failed: section
            .boolean("rollback_failed")
            .is_some_and(|is_asked| is_asked.value),
        continue_on_failure: section
            .boolean("continue_on_failure")
            .is_some_and(|goes_on| goes_on.value),
    }
}

fn read_name(section: &Section<'_>) -> Option<StepName> {
    if !section.has("name") {
        section.refuse(section.span(), "`name` is missing", None);
    }
    let name = section.text("name")?;
    match StepName::parse(name.value) {
        Ok(name) => Some(name),
        Err(error) => {
            section.refuse(&name.span, error.to_string(), None);
            None
        }
    }
}

fn read_command(section: &Section<'_>) -> Vec<OsString> {
    match (section.item("run"), section.item("shell")) {
        (None, None) => {
            let hint =
                "give the command as `run = [\"python3\", \"fetch.py\"]` or as `shell = \"…\"`";
            section.refuse(
                section.span(),
                "there is nothing to run",
                Some(hint.to_owned()),
            );
            Vec::new()
        }
        (Some(_), Some(shell)) => {
            shell.refuse("a step has either `run` or `shell`", None);
            Vec::new()
        }
        (Some(run), None) => {
            let parts = run.texts().unwrap_or_default();
            if parts.first().is_none_or(|program| program.value.is_empty()) {
                run.refuse("`run` names no program", None);
            }
            for part in parts.iter().filter(|part| part.value.contains('\0')) {
                section.refuse(&part.span, "an argument cannot have a NUL", None);
            }
            parts.iter().map(|part| part.value.into()).collect()
        }
        (None, Some(shell)) => {
            let line = shell.text().map_or("", |line| line.value);
            if line.trim().is_empty() || line.contains('\0') {
                shell.refuse("this is no line of shell", None);
            }
            ["/bin/sh", "-c", line].map(OsString::from).to_vec()
        }
    }
}

fn read_env(section: &Section<'_>) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    for item in section.map("env").iter().flat_map(Section::items) {
        let name = &item.key().text;
        let is_name = !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !is_name {
            item.refuse("the key is not the name of a variable", None);
        }
        if let Some(value) = item.text() {
            if value.value.contains('\0') {
                item.refuse("a variable's value cannot have a NUL", None);
            }
            env.insert(name.clone(), value.value.to_owned());
        }
    }
    env
}

fn read_wait(item: &Item<'_, '_>) -> Duration {
    let Some(text) = item.text() else {
        return Duration::ZERO;
    };
    let found = parse_duration(text.value).filter(|wait| !wait.is_zero() && *wait <= LONGEST_WAIT);
    found.unwrap_or_else(|| {
        let hint = "write it with its unit, such as `2s`; at most `1m`".to_owned();
        item.refuse("this is no time to wait", Some(hint));
        Duration::ZERO
    })
}

fn read_causes(item: &Item<'_, '_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for one in item.each().unwrap_or_default() {
        let Some(word) = one.text() else {
            continue;
        };
        match Cause::parse(word.value) {
            Some(cause) => causes.push(cause),
            None => {
                let known = Cause::words();
                let hint = match nearest(word.value, known.iter().map(String::as_str)) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "`exit`, `signal`, a limit such as `wall`, or a code such as \
                             `upstream-unreachable`"
                        .to_owned(),
                };
                one.refuse("this is nothing that a step fails for", Some(hint));
            }
        }
    }
    causes
}

/// The steps that one needs: those it names, or else the one before.
fn read_needs(
    section: &Section<'_>,
    index: usize,
    places: &HashMap<String, usize>,
) -> Vec<At<usize>> {
    let Some(item) = section.item("needs") else {
        let before = index.checked_sub(1);
        let span = section.span().clone();
        return before.map(|value| At { value, span }).into_iter().collect();
    };
    let mut needs = Vec::new();
    for name in item.texts().unwrap_or_default() {
        match places.get(name.value) {
            Some(place) => needs.push(At {
                value: *place,
                span: name.span,
            }),
            None => {
                let near = nearest(name.value, places.keys().map(String::as_str));
                let hint = near.map(|near| format!("did you mean `{near}`?"));
                section.refuse(&name.span, "there is no step of this name", hint);
            }
        }
    }
    needs
}

const OWN_KEYS: &[&str] = &[
    "name",
    "run",
    "shell",
    "needs",
    "retries",
    "retry_on",
    "retry_wait",
    "rollback_failed",
    "continue_on_failure",
    "env",
];
/// Each has a layer of its own, and the launcher shows no more than [`launcher::MAX_LAYERS_BELOW`].
const MOST_STEPS: usize = 64;
const MOST_RETRIES: i64 = 20;
/// Between two attempts, however many came before.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(60);
const LONGEST: u64 = 1 << 20;
