//! `valetkey providers`: what the catalogue knows.

use policies::{Provider, catalogue};
use serde_json::json;

use crate::args;
use crate::failure::Failure;
use crate::output::{self, data, sanitised};

/// Lists the providers, or shows one.
pub(crate) fn providers(asked: &args::Providers, as_json: bool) -> Result<u8, Failure> {
    match asked {
        args::Providers::List => {
            let all: Vec<_> = catalogue::providers().map(facts).collect();
            if as_json {
                output::json(&all);
            } else {
                for provider in catalogue::providers() {
                    data(format_args!("{}  {}", provider.id, hosts(provider)));
                }
            }
        }
        args::Providers::Show { id } => {
            let provider = catalogue::provider(id).ok_or_else(|| {
                Failure::negative(format!("the catalogue has no provider `{}`", sanitised(id)))
                    .hint("`valetkey providers list` lists them")
            })?;
            if as_json {
                output::json(&facts(provider));
            } else {
                data(format_args!("provider   {}", provider.id));
                data(format_args!("hosts      {}", hosts(provider)));
                data(format_args!("variables  {}", provider.env.join(", ")));
            }
        }
    }
    Ok(0)
}

fn facts(provider: &Provider) -> serde_json::Value {
    json!({
        "id": provider.id,
        "name": provider.name,
        "hosts": provider.hosts.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "variables": provider.env,
    })
}

fn hosts(provider: &Provider) -> String {
    let hosts: Vec<_> = provider.hosts.iter().map(ToString::to_string).collect();
    hosts.join(", ")
}
