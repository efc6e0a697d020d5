//! `valetkey env`: the variables and certificates that somebody else's sandbox needs for a run.

use std::collections::BTreeMap;

use sdk::client::Client;

use crate::args::{self, EnvFormat};
use crate::failure::Failure;
use crate::folders::Folders;
use crate::output::{self, data};
use crate::{engine, runs, serve};

/// Prints the environment of a run that `valetkey serve` holds.
pub(crate) fn env(asked: args::Env, folders: &Folders, json: bool) -> Result<u8, Failure> {
    let socket = runs::socket(asked.control.clone(), folders);
    let access = engine::runtime()?
        .block_on(Client::new(&socket).access(&asked.run))
        .map_err(runs::call_failure)?;
    let mut variables = access.env.clone();
    if let Some(path) = &asked.ca_path {
        replace(&mut variables, &access.ca_bundle, &path.to_string_lossy());
    }
    match (&asked.proxy_url, &access.proxy) {
        (Some(url), own) => {
            let seen = with_token(url, &access.token)?;
            replace(
                &mut variables,
                own.as_deref().unwrap_or(serve::NO_PROXY_URL),
                &seen,
            );
        }
        (None, Some(_)) => {}
        (None, None) => {
            // Few clients can use a proxy on a Unix socket; whoever mounts it into a sandbox puts a port before it.
            variables.retain(|_, value| !value.contains(serve::NO_PROXY_URL));
            output::say(
                "note: the proxy listens on a Unix socket only, so no proxy variables are printed; \
                 give the address at which the sandbox reaches it with --proxy-url",
            );
        }
    }
    let format = if json { EnvFormat::Json } else { asked.format };
    print(&variables, format)?;
    Ok(0)
}

/// Puts the sandbox's own view of a thing into the variables that hold the machine's.
fn replace(variables: &mut BTreeMap<String, String>, here: &str, inside: &str) {
    for value in variables.values_mut() {
        if value.contains(here) {
            *value = value.replace(here, inside);
        }
    }
}

/// A proxy's URL with the run's token in it: `http://run:TOKEN@host:port`.
pub(crate) fn with_token(url: &str, token: &str) -> Result<String, Failure> {
    let place = url
        .strip_prefix("http://")
        .map(|rest| rest.trim_end_matches('/'))
        .filter(|rest| {
            !rest.contains('@') && policies::Authority::parse(rest, Some(DEFAULT_PORT)).is_ok()
        })
        .ok_or_else(|| {
            Failure::bad_policy(format!("`{}` is not a proxy's URL", output::sanitised(url)))
                .hint("write it as http://host.docker.internal:3128")
        })?;
    Ok(format!("http://run:{token}@{place}"))
}

fn print(variables: &BTreeMap<String, String>, format: EnvFormat) -> Result<(), Failure> {
    match format {
        EnvFormat::Json => output::json(variables),
        EnvFormat::Sh => {
            for (name, value) in variables {
                data(format_args!(
                    "export {name}='{}'",
                    value.replace('\'', r"'\''")
                ));
            }
        }
        EnvFormat::Docker => {
            for (name, value) in variables {
                // The file has a variable a line and knows no quoting.
                if value.contains(['\n', '\r']) {
                    return Err(Failure::ours(format!(
                        "`{name}` has more than one line, which a Docker env file cannot hold"
                    )));
                }
                data(format_args!("{name}={value}"));
            }
        }
        EnvFormat::K8s => {
            data("env:");
            for (name, value) in variables {
                // A JSON string is a YAML string.
                data(format_args!("  - name: {name}"));
                data(format_args!(
                    "    value: {}",
                    serde_json::Value::from(value.as_str())
                ));
            }
        }
    }
    Ok(())
}

/// RFC 9110, 4.2.1: what an `http` URL without a port means.
const DEFAULT_PORT: u16 = 80;
