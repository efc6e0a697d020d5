//! `valetkey doctor`: what this machine can do, by trying it.

use launcher::Check;
use serde_json::json;

use crate::engine;
use crate::failure::Failure;
use crate::folders::Folders;
use crate::output::{self, data};

/// Tries everything and says what to do about what does not work.
pub(crate) fn doctor(folders: &Folders, as_json: bool) -> Result<u8, Failure> {
    let mut checks = launcher::doctor(&folders.state);
    let limits = launcher::limits_kept_by();
    checks.push(state(folders));
    let works = checks.iter().all(|check| check.ok || check.optional);
    if as_json {
        output::json(&json!({
            "ok": works,
            "checks": checks.iter().map(|check| json!({
                "name": check.name,
                "ok": check.ok,
                "optional": check.optional,
                "detail": check.detail,
                "advice": check.advice,
            })).collect::<Vec<_>>(),
            "limits": limits.iter().map(|(name, by)| ((*name).to_owned(), json!(by)))
                .collect::<serde_json::Map<_, _>>(),
        }));
        return Ok(if works { 0 } else { 1 });
    }
    for check in &checks {
        let mark = match (check.ok, check.optional) {
            (true, _) => "ok  ",
            (false, true) => "note",
            (false, false) => "FAIL",
        };
        data(format_args!("{mark}  {}: {}", check.name, check.detail));
        if !check.ok && !check.advice.is_empty() {
            data(format_args!("      {}", check.advice));
        }
    }
    let kept: Vec<String> = limits
        .iter()
        .map(|(name, by)| format!("{name} by {by}"))
        .collect();
    if !kept.is_empty() {
        data(format_args!("limits: {}", kept.join(", ")));
    }
    let has_less = checks
        .iter()
        .any(|check| check.name == launcher::WITHOUT_NAMESPACES && check.ok);
    data(match (works, has_less) {
        (true, _) => "`valetkey run` works on this machine",
        (false, true) => {
            "`valetkey run` does not work on this machine yet; `valetkey run --isolation landlock` does, and isolates less"
        }
        (false, false) => "`valetkey run` does not work on this machine yet",
    });
    Ok(if works { 0 } else { 1 })
}

/// Whether the installation's folders can be used, and its files are right.
fn state(folders: &Folders) -> Check {
    let opened = engine::runtime()
        .and_then(|runtime| engine::Engine::open(runtime, folders, Vec::new()))
        .and_then(|engine| engine.require_roots());
    match opened {
        Ok(_) => Check {
            name: "state, settings and audit log",
            ok: true,
            optional: false,
            detail: format!(
                "{} and {}",
                folders.state.display(),
                folders.config.display()
            ),
            advice: String::new(),
        },
        Err(failure) => {
            let first = failure.problems().first();
            let advice = failure.advice();
            let advice = advice.or(first.and_then(|problem| problem.hint.as_deref()));
            Check {
                name: "state, settings and audit log",
                ok: false,
                optional: false,
                detail: failure.reason(),
                advice: advice.unwrap_or_default().to_owned(),
            }
        }
    }
}
