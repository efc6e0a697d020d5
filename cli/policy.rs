//! `valetkey policy`: approve, explain, begin, and the schema for editors.

use std::fs;
use std::io::Write;
use std::path::Path;

use policies::reader::nearest;
use policies::{Host, HostPattern, StepName, catalogue, presets};

use crate::failure::Failure;
use crate::folders::Folders;
use crate::output::{self, data, sanitised, say};
use crate::project::{FILE_NAME, Project};
use crate::{approval, args, project};

/// Does what was asked about a policy.
pub(crate) fn policy(asked: args::Policy, folders: &Folders, json: bool) -> Result<u8, Failure> {
    match asked {
        args::Policy::Approve { policy, digest } => {
            let project = Project::open_with_file(policy.as_deref())?;
            approval::approve(folders, &project, digest.as_ref(), json)
        }
        args::Policy::Explain { policy, step } => explain(policy.as_deref(), step.as_ref(), json),
        args::Policy::Schema => {
            data(policies::schema::TEXT.trim_end());
            Ok(0)
        }
        args::Policy::Init { allow } => init(&allow, json),
    }
}

fn explain(file: Option<&Path>, step: Option<&StepName>, json: bool) -> Result<u8, Failure> {
    let project = Project::open(file)?;
    let policy = project.policy.for_step(step.map(StepName::as_str));
    let text = policy.effective_toml();
    let is_named = step.is_some_and(|step| project.policy.steps().any(|named| named == step));
    if let (Some(step), false) = (step, is_named) {
        say(format_args!("note: {}", not_named(step)));
    }
    if json {
        output::json(&serde_json::json!({
            "digest": project.policy.digest().to_string(),
            "needs_approval": project.policy.needs_approval(),
            "step": step,
            "effective": text,
        }));
    } else {
        for line in text.lines() {
            data(sanitised(line));
        }
    }
    Ok(0)
}

/// A slip in the name of a step must not look like an answer about that step.
pub(crate) fn not_named(step: &StepName) -> String {
    format!("the policy gives `{step}` no rights of its own, so the step has those of the run")
}

fn init(allow: &[String], json: bool) -> Result<u8, Failure> {
    let wanted: Vec<Wanted<'_>> = allow
        .iter()
        .map(|text| Wanted::read(text))
        .collect::<Result<_, _>>()?;
    let text = text(&wanted);
    let secrets: Vec<&str> = wanted.iter().filter_map(Wanted::secret).collect();
    let here = std::env::current_dir()
        .map_err(|error| Failure::ours("cannot tell which folder this is").because(error))?;
    project::check_text(&text, &here.join(FILE_NAME), &here)?;
    let file = Path::new(FILE_NAME);
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(file)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| {
            let failure = if error.kind() == std::io::ErrorKind::AlreadyExists {
                Failure::bad_policy(format!("there is a {FILE_NAME} in this folder already"))
                    .hint("change it by hand; `valetkey check` says whether it is right")
            } else {
                Failure::ours(format!("cannot write {FILE_NAME}"))
            };
            failure.because(error)
        })?;
    if json {
        output::json(&serde_json::json!({"written": FILE_NAME, "secrets": secrets}));
        return Ok(0);
    }
    data(format_args!("wrote {FILE_NAME}"));
    for secret in &secrets {
        data(format_args!(
            "next: valetkey secret add {secret} --provider {secret}"
        ));
    }
    data("next: valetkey policy approve");
    Ok(0)
}

/// What somebody wants to allow.
enum Wanted<'a> {
    /// A provider of the catalogue, with the secret of the same name.
    Provider(&'a str),
    /// A preset.
    Preset(&'a str),
    /// Reading from a host.
    Host(HostPattern),
}

impl<'a> Wanted<'a> {
    fn read(text: &'a str) -> Result<Self, Failure> {
        let preset = text.strip_prefix("preset:").unwrap_or(text);
        if catalogue::provider(text).is_some() {
            return Ok(Self::Provider(text));
        }
        if presets::names().any(|name| name == preset) {
            return Ok(Self::Preset(preset));
        }
        match HostPattern::parse(text) {
            Ok(pattern) if is_qualified(&pattern) => Ok(Self::Host(pattern)),
            // A name without a dot is a slip in another name far more often than a host.
            Ok(_) => Err(Self::unknown(text)),
            Err(error) => Err(Self::unknown(text).because(error)),
        }
    }

    fn unknown(text: &str) -> Failure {
        let known = catalogue::providers()
            .map(|provider| provider.id.as_str())
            .chain(presets::names());
        let hint = match nearest(text, known) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "write a host with its domain, such as `api.example.com`; \
                     `valetkey providers list` lists the providers"
                .to_owned(),
        };
        Failure::bad_policy(format!(
            "`{}` is neither a provider, nor a preset, nor a host with its domain",
            sanitised(text)
        ))
        .named("unknown-host")
        .hint(hint)
    }

    fn secret(&self) -> Option<&'a str> {
        match self {
            Self::Provider(id) => Some(id),
            Self::Preset(_) | Self::Host(_) => None,
        }
    }
}

fn is_qualified(pattern: &HostPattern) -> bool {
    match pattern {
        HostPattern::Exact(Host::Name(name)) => name.as_str().contains('.'),
        HostPattern::Exact(Host::V4(_) | Host::V6(_)) | HostPattern::Below(_) => true,
    }
}

/// The text of a first policy.
fn text(wanted: &[Wanted<'_>]) -> String {
    let (mut extends, mut rules) = (Vec::new(), String::new());
    for one in wanted {
        match one {
            Wanted::Provider(id) => {
                rules.push_str(&format!("\n[[allow]]\nuse = \"{id}\"\nsecret = \"{id}\"\n"))
            }
            Wanted::Preset(name) => extends.push(format!("\"preset:{name}\"")),
            Wanted::Host(host) => rules.push_str(&format!(
                "\n[[allow]]\nhost = \"{host}\"\nmethods = [\"GET\", \"HEAD\"]\n"
            )),
        }
    }
    let extends = match extends.as_slice() {
        [] => String::new(),
        names => format!("extends = [{}]\n", names.join(", ")),
    };
    format!("{BEGINNING}{extends}{rules}{ENDING}")
}

const BEGINNING: &str = "\
# What runs of this project may reach. No rule, no access.
# `valetkey check` says whether this file is right, `valetkey policy approve` puts it in force.
version = 1
";

const ENDING: &str = "
[sandbox]
workspace = { path = \".\", mode = \"overlay\" }   # changes are kept aside; your files stay as they are

[limits]
memory = \"2GiB\"
wall = \"15m\"
";
