//! `valetkey audit`: what runs reached, and whether the record is whole.

use broker::Broker;
use sdk::RunId;
use sdk::audit::EventKind;
use sdk::tally::Tally;
use serde_json::json;

use crate::args;
use crate::engine;
use crate::failure::Failure;
use crate::folders::Folders;
use crate::output::{self, bytes, count, data, sanitised};

/// Reads the log.
pub(crate) fn audit(asked: args::Audit, folders: &Folders, as_json: bool) -> Result<u8, Failure> {
    let broker = engine::open_broker(folders)?;
    match asked {
        args::Audit::Show { run, all } => {
            let run = match run {
                Some(run) => run,
                None => latest(&broker)?,
            };
            show(&broker, &run, all, as_json)
        }
        args::Audit::Verify => verify(&broker, as_json),
    }
}

fn latest(broker: &Broker) -> Result<RunId, Failure> {
    broker
        .runs()
        .map_err(engine::broker_failure)?
        .into_iter()
        .next()
        .map(|info| info.run)
        .ok_or_else(|| {
            Failure::negative("there was no run yet")
                .hint("start one with `valetkey run -- COMMAND`")
        })
}

fn show(broker: &Broker, run: &RunId, all: bool, as_json: bool) -> Result<u8, Failure> {
    let records = broker
        .events(run)
        .map_err(|error| Failure::ours("the audit log cannot be read").because(error))?;
    if records.is_empty() {
        return Err(
            Failure::negative(format!("the log knows nothing of `{run}`"))
                .hint("`valetkey runs list` lists the runs"),
        );
    }
    let mut tally = Tally::default();
    for record in &records {
        tally.add(&record.event);
    }
    if as_json {
        let events = records.iter().map(flat).collect::<Result<Vec<_>, _>>()?;
        output::json(&json!({
            "run": run,
            "reached": tally.reached(),
            "denied": tally.denied(),
            "failed": tally.failed(),
            "events": events,
        }));
        return Ok(0);
    }
    data(format_args!(
        "{run}: reached {}; refused {}",
        count(tally.reached().len() as u64, "host"),
        tally.refusals()
    ));
    for host in tally.reached() {
        let secrets = if host.secrets.is_empty() {
            String::new()
        } else {
            format!(", with the secret {}", host.secrets.join(", "))
        };
        data(format_args!(
            "  reached  {}: {}, {} sent, {} received{secrets}",
            host.host,
            count(host.requests, "request"),
            bytes(host.bytes_in),
            bytes(host.bytes_out)
        ));
    }
    for failed in tally.failed() {
        data(format_args!(
            "  failed   {}: {}, {}",
            failed
                .host
                .as_deref()
                .map_or_else(|| "(no host)".to_owned(), sanitised),
            failed.code,
            count(failed.times, "time")
        ));
    }
    for denied in tally.denied() {
        data(format_args!(
            "  refused  {}: {}, {}",
            denied
                .host
                .as_deref()
                .map_or_else(|| "(no host)".to_owned(), sanitised),
            denied.code,
            count(denied.times, "time")
        ));
    }
    if tally.alarms() > 0 {
        data(format_args!(
            "  ALARM    a placeholder or run token was sent where it does not belong, {}",
            count(tally.alarms(), "time")
        ));
    }
    if all {
        for record in &records {
            data(format_args!("  {}", line(record)));
        }
    }
    Ok(0)
}

/// An event as its line in the log has it, less what chains the lines.
fn flat(record: &broker::audit::Record) -> Result<serde_json::Value, Failure> {
    let mut value = serde_json::to_value(&record.event)
        .map_err(|error| Failure::ours("a record cannot be written as JSON").because(error))?;
    if let Some(members) = value.as_object_mut() {
        members.insert("v".to_owned(), sdk::audit::VERSION.into());
        members.insert("seq".to_owned(), record.seq.into());
        members.insert("time".to_owned(), record.time.as_str().into());
    }
    Ok(value)
}

/// One event on one line.
fn line(record: &broker::audit::Record) -> String {
    let event = &record.event;
    let mut line = format!("{}  {}", record.time, kind(event.event));
    if let Some(request) = &event.request {
        line.push_str(&format!(
            "  {} {}{}",
            sanitised(request.method.as_deref().unwrap_or("-")),
            sanitised(request.host.as_deref().unwrap_or("-")),
            sanitised(request.path.as_deref().unwrap_or("")),
        ));
    }
    if let Some(status) = event.status {
        line.push_str(&format!("  {status}"));
    }
    if let Some(code) = event.code {
        line.push_str(&format!("  {code}"));
    }
    if let Some(rule) = &event.rule {
        line.push_str(&format!("  rule {}", sanitised(rule)));
    }
    line
}

fn kind(kind: EventKind) -> String {
    serde_json::to_value(kind)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}

fn verify(broker: &Broker, as_json: bool) -> Result<u8, Failure> {
    let verified = broker
        .verify_audit()
        .map_err(|error| Failure::ours("the audit log cannot be read").because(error))?;
    let is_whole = verified.findings.is_empty();
    if as_json {
        output::json(&json!({
            "ok": is_whole,
            "segments": verified.segments,
            "records": verified.lines,
            "checkpoints": verified.checkpoints,
            "torn": verified.torn,
            "findings": verified.findings.iter().map(|finding| json!({
                "file": finding.file,
                "line": finding.line,
                "problem": finding.problem.as_str(),
            })).collect::<Vec<_>>(),
        }));
    } else {
        for finding in &verified.findings {
            data(finding);
        }
        for file in &verified.torn {
            data(format_args!(
                "note: {}: its process was killed within a line; the next one cuts it off",
                file.display()
            ));
        }
        if is_whole {
            data(format_args!(
                "whole: {} in {}, {}",
                count(verified.lines, "record"),
                count(verified.segments as u64, "segment"),
                count(verified.checkpoints, "signed checkpoint")
            ));
        }
    }
    Ok(if is_whole { 0 } else { 1 })
}
