//! `valetkey policy`: approve, explain, begin, and the schema for editors.

use std::fs;
use std::io::Write;
use std::path::Path;

use policies::{HostPattern, catalogue};

use crate::failure::Failure;
use crate::folders::Folders;
use crate::output::{self, data, sanitised};
use crate::project::{FILE_NAME, Project};
use crate::{approval, args};

/// Does what was asked about a policy.
pub(crate) fn policy(asked: args::Policy, folders: &Folders, json: bool) -> Result<u8, Failure> {
    match asked {
        args::Policy::Approve { policy, digest } => {
            let project = Project::open_with_file(policy.as_deref())?;
            approval::approve(folders, &project, digest.as_ref(), json)
        }
        args::Policy::Explain { policy } => explain(policy.as_deref(), json),
        args::Policy::Schema => {
            data(policies::schema::TEXT.trim_end());
            Ok(0)
        }
        args::Policy::Init { allow } => init(&allow, json),
    }
}

fn explain(file: Option<&Path>, json: bool) -> Result<u8, Failure> {
    let project = Project::open(file)?;
    let text = project.policy.effective_toml();
    if json {
        output::json(&serde_json::json!({
            "digest": project.policy.digest().to_string(),
            "needs_approval": project.policy.needs_approval(),
            "effective": text,
        }));
    } else {
        for line in text.lines() {
            data(sanitised(line));
        }
    }
    Ok(0)
}

fn init(allow: &[String], json: bool) -> Result<u8, Failure> {
    let mut text = BEGINNING.to_owned();
    let mut secrets = Vec::new();
    for wanted in allow {
        text.push_str(&rule(wanted, &mut secrets)?);
    }
    text.push_str(ENDING);
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

/// The rule for a provider of the catalogue, or for a host.
fn rule(wanted: &str, secrets: &mut Vec<String>) -> Result<String, Failure> {
    if catalogue::provider(wanted).is_some() {
        secrets.push(wanted.to_owned());
        return Ok(format!(
            "\n[[allow]]\nuse = \"{wanted}\"\nsecret = \"{wanted}\"\n"
        ));
    }
    HostPattern::parse(wanted).map_err(|error| {
        let known: Vec<&str> = catalogue::providers()
            .map(|provider| provider.id.as_str())
            .collect();
        Failure::bad_policy(format!(
            "`{}` is neither a provider of the catalogue nor a host",
            sanitised(wanted)
        ))
        .because(error)
        .hint(format!("the providers are {}", known.join(", ")))
    })?;
    Ok(format!(
        "\n[[allow]]\nhost = \"{wanted}\"\nmethods = [\"GET\", \"HEAD\"]\n"
    ))
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
