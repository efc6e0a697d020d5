//! `valetkey secret`: where the owner's keys are and where they may go. No value is ever shown.

use std::fs;
use std::io::Read;
use std::path::Path;

use broker::{Broker, Existing, NewSecret};
use policies::Slot;
use serde_json::json;
use zeroize::Zeroizing;

use crate::args;
use crate::engine;
use crate::failure::Failure;
use crate::folders::Folders;
use crate::output::{self, count, data, is_interactive, say};

/// Does what was asked about the owner's secrets.
pub(crate) fn secret(asked: args::Secret, folders: &Folders, as_json: bool) -> Result<u8, Failure> {
    let runtime = engine::runtime()?;
    let _inside = runtime.enter();
    let broker = engine::open_broker(folders)?;
    match asked {
        args::Secret::Add {
            name,
            provider,
            host,
            inject,
            replace,
        } => {
            let slot = if provider.is_some() {
                None
            } else {
                Some(slot(&inject)?)
            };
            add(
                &broker,
                &name,
                NewSecret {
                    provider,
                    hosts: host,
                    slot,
                },
                existing(replace),
                as_json,
            )
        }
        args::Secret::List => list(&broker, as_json),
        args::Secret::Remove { name } => remove(&broker, &name, as_json),
        args::Secret::Import { file, replace } => {
            import(&broker, &file, existing(replace), as_json)
        }
        args::Secret::Test { name } => {
            runtime
                .block_on(broker.secrets().test(&name))
                .map_err(engine::broker_failure)?;
            if as_json {
                output::json(&json!({"name": name, "ok": true}));
            } else {
                data(format_args!("`{name}` can be read"));
            }
            Ok(0)
        }
    }
}

fn existing(replace: bool) -> Existing {
    match replace {
        true => Existing::Replace,
        false => Existing::Keep,
    }
}

fn add(
    broker: &Broker,
    name: &str,
    new: NewSecret,
    existing: Existing,
    as_json: bool,
) -> Result<u8, Failure> {
    let value = read_value(name)?;
    let added = broker
        .secrets()
        .add(name, &new, value, existing)
        .map_err(engine::broker_failure)?;
    if as_json {
        output::json(&json!({
            "added": name,
            "replaced": added.replaced,
            "warnings": added.warnings,
        }));
        return Ok(0);
    }
    warn(&added.warnings);
    data(format_args!("sealed `{name}`"));
    if added.replaced {
        data("it replaced the one of the same name");
    }
    Ok(0)
}

fn warn(warnings: &[String]) {
    for warning in warnings {
        say(format_args!("warning: {warning}"));
    }
}

/// The value, from the terminal without showing it, or from standard input.
fn read_value(name: &str) -> Result<Zeroizing<String>, Failure> {
    let cannot = |error| Failure::ours("cannot read the value").because(error);
    if is_interactive() {
        say(format_args!("Value of `{name}` (it is not shown):"));
        let value = rpassword::read_password().map_err(cannot)?;
        return Ok(Zeroizing::new(value));
    }
    let mut value = Zeroizing::new(String::new());
    std::io::stdin()
        .lock()
        .take(MAX_VALUE)
        .read_to_string(&mut value)
        .map_err(cannot)?;
    let end = value.trim_end_matches(['\r', '\n']).len();
    value.truncate(end);
    Ok(value)
}

fn slot(text: &str) -> Result<Slot, Failure> {
    let (how, what) = text.split_once(':').unwrap_or((text, ""));
    let named = |make: fn(String) -> Slot| {
        if what.is_empty() {
            Err(Failure::bad_policy(format!(
                "`--inject {how}` needs a name, such as `{how}:NAME`"
            )))
        } else {
            Ok(make(what.to_owned()))
        }
    };
    match how {
        "bearer" => Ok(Slot::bearer()),
        "header" => named(|name| Slot::header(&name, "", "")),
        "basic" => Ok(Slot::Basic {
            username: (!what.is_empty()).then(|| what.to_owned()),
        }),
        "query" => named(|name| Slot::Query { name }),
        "cookie" => named(|name| Slot::Cookie { name }),
        "path" => named(|template| Slot::Path { template }),
        other => Err(
            Failure::bad_policy(format!("`{other}` is no way to attach a secret"))
                .hint("bearer, header:NAME, basic:USER, query:NAME, cookie:NAME or path:TEMPLATE"),
        ),
    }
}

fn list(broker: &Broker, as_json: bool) -> Result<u8, Failure> {
    let secrets = broker.secrets().list().map_err(engine::broker_failure)?;
    if as_json {
        output::json(&secrets);
        return Ok(0);
    }
    if secrets.is_empty() {
        data("no secrets; add one with `valetkey secret add NAME --provider ID`");
    }
    for secret in secrets {
        data(format_args!(
            "{}  from {}  to {}",
            secret.name,
            secret.source,
            secret.hosts.join(", ")
        ));
    }
    Ok(0)
}

fn remove(broker: &Broker, name: &str, as_json: bool) -> Result<u8, Failure> {
    broker
        .secrets()
        .remove(name)
        .map_err(engine::broker_failure)?;
    if as_json {
        output::json(&json!({"removed": name}));
    } else {
        data(format_args!("forgot `{name}`"));
    }
    Ok(0)
}

fn import(broker: &Broker, file: &Path, existing: Existing, as_json: bool) -> Result<u8, Failure> {
    let text = Zeroizing::new(fs::read_to_string(file).map_err(|error| {
        Failure::ours(format!("cannot read `{}`", file.display())).because(error)
    })?);
    let imported = broker
        .secrets()
        .import(&text, existing)
        .map_err(engine::broker_failure)?;
    if as_json {
        output::json(&json!({
            "imported": imported.names,
            "replaced": imported.replaced,
            "left": imported.left,
            "warnings": imported.warnings,
        }));
        return Ok(0);
    }
    warn(&imported.warnings);
    data(format_args!(
        "sealed {}: {}",
        count(imported.names.len() as u64, "secret"),
        imported.names.join(", ")
    ));
    if !imported.replaced.is_empty() {
        data(format_args!(
            "replaced what was kept before: {}",
            imported.replaced.join(", ")
        ));
    }
    if !imported.left.is_empty() {
        data(format_args!(
            "left alone, because no provider of the catalogue uses them: {}",
            imported.left.join(", ")
        ));
        data("add one of these with `valetkey secret add NAME --host HOST`");
    }
    Ok(0)
}

const MAX_VALUE: u64 = 64 * 1024;
