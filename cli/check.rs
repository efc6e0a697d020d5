//! `valetkey check`: is this policy valid, would a run begin under it, and what does it decide for a request?

use policies::sample::{Expectation, Sample};
use policies::{Decision, Fields, StepName};
use serde_json::json;

use crate::engine::{self, Engine};
use crate::failure::Failure;
use crate::folders::Folders;
use crate::foresee::{Outlook, foresee};
use crate::output::{self, data, sanitised, say};
use crate::policy::not_named;
use crate::problem::Problem;
use crate::project::Project;
use crate::{approval, args, check_files};

/// Checks the policy, and decides the request if one is given.
///
/// What a run would be refused for is told as well: an allow that no run could use is none.
pub(crate) fn check(asked: &args::Check, folders: &Folders, as_json: bool) -> Result<u8, Failure> {
    if asked.files {
        return check_files::check_files(asked.policy.as_deref(), folders, as_json);
    }
    let project = Project::open_with_file(asked.policy.as_deref())?;
    let engine = Engine::open(engine::runtime()?, folders, Vec::new())?;
    let outlook = foresee(&engine, folders, &project)?;
    match &asked.request {
        Some(request) => decide(&engine, &project, outlook, (request, asked), as_json),
        None => {
            let is_approved = approval::is_given(&engine.broker, &project)?;
            validate(&project, &outlook, is_approved, as_json)
        }
    }
}

fn validate(
    project: &Project,
    outlook: &Outlook,
    is_approved: bool,
    as_json: bool,
) -> Result<u8, Failure> {
    let policy = &project.policy;
    let failed: Vec<&Expectation> = policy
        .tests()
        .iter()
        .filter(|test| !test.is_met(policy))
        .collect();
    let passed = policy.tests().len() - failed.len();
    if as_json {
        output::json(&json!({
            "valid": true,
            "digest": policy.digest().to_string(),
            "needs_approval": policy.needs_approval(),
            "approved": is_approved,
            "secrets": policy.secrets().collect::<Vec<_>>(),
            "tests": {"passed": passed, "failed": failed.len()},
            "can_run": outlook.is_clear(),
            "problems": outlook.problems,
            "warnings": outlook.warnings,
        }));
    } else {
        data(format_args!("valid: {}", policy.digest()));
        if !policy.tests().is_empty() {
            data(format_args!(
                "tests: {passed} passed, {} failed",
                failed.len()
            ));
        }
        for test in &failed {
            data(format_args!(
                "  {}:{}: expected {}",
                test.file,
                test.line,
                if test.is_allowed { "allow" } else { "deny" }
            ));
        }
        if !is_approved {
            data("not approved yet: `valetkey policy approve` puts it in force");
        }
        outlook.tell();
        if !outlook.is_clear() {
            say("error: the policy is valid, but no run would begin under it here");
        }
    }
    Ok(if !outlook.is_clear() {
        sdk::exit::BAD_POLICY
    } else if failed.is_empty() {
        0
    } else {
        sdk::exit::DENIED
    })
}

fn decide(
    engine: &Engine,
    project: &Project,
    mut outlook: Outlook,
    (request, typed): (&str, &args::Check),
    as_json: bool,
) -> Result<u8, Failure> {
    let asked = Sample::parse(request.trim()).map_err(|error| {
        Failure::bad_policy(format!("cannot read the request `{}`", sanitised(request)))
            .because(error)
            .hint("write it as \"GET https://api.example.com/v1/items\"")
    })?;
    let headers = Typed::parse(&typed.headers)?;
    let step = typed.step.as_ref();
    let policy = project.policy.for_step(step.map(StepName::as_str));
    if let Some(step) = step
        && !project.policy.steps().any(|named| named == step)
    {
        say(format_args!("note: {}", not_named(step)));
    }
    let decision = asked.decide_with(&policy, &headers);
    if let Decision::Allow(allowed) = &decision {
        let to = (asked.scheme, &asked.authority.host, asked.authority.port);
        for secret in &allowed.secrets {
            let refused = engine
                .broker
                .foresee_release(allowed.rule, secret, to)
                .map_err(engine::broker_failure)?
                .map(|error| Problem::refused(&error))
                // What the run itself would be refused for was said already.
                .filter(|problem| !outlook.problems.iter().any(|told| told.is_about(problem)));
            outlook.problems.extend(refused);
        }
    }
    let (allowed, code, rule, reason, secrets) = match &decision {
        Decision::Allow(allowed) => (
            true,
            None,
            Some(allowed.rule),
            None,
            allowed.secrets.to_vec(),
        ),
        Decision::Deny(refusal) => (
            false,
            Some(refusal.code),
            refusal.rule,
            refusal.reason,
            Vec::new(),
        ),
    };
    let code = match (code, outlook.problems.first()) {
        (Some(code), _) => Some(code.as_str()),
        (None, Some(problem)) => Some(problem.code),
        (None, None) => None,
    };
    let rule = rule.map(|rule| rule.origin().to_string());
    if as_json {
        output::json(&json!({
            "allowed": allowed && outlook.is_clear(),
            "policy_allows": allowed,
            "step": step,
            "code": code,
            "rule": rule,
            "reason": reason,
            "secrets": secrets,
            "can_run": outlook.is_clear(),
            "problems": outlook.problems,
            "warnings": outlook.warnings,
        }));
    } else {
        let verdict = match (allowed, outlook.is_clear()) {
            (true, true) => "allow",
            (true, false) => "refused, though the policy allows it",
            (false, _) => "deny",
        };
        data(format_args!(
            "{verdict}: {} {}://{}{}",
            asked.method,
            asked.scheme,
            asked.authority,
            asked.target.sent()
        ));
        if let Some(code) = code {
            data(format_args!("  why: {code}"));
        }
        if let Some(rule) = rule {
            data(format_args!("  rule: {rule}"));
        }
        if let Some(reason) = reason {
            data(format_args!("  reason: {}", sanitised(reason)));
        }
        if !secrets.is_empty() {
            data(format_args!("  secret: {}", secrets.join(", ")));
        }
        outlook.tell();
    }
    Ok(match (outlook.is_clear(), allowed) {
        (false, _) => sdk::exit::BAD_POLICY,
        (true, true) => 0,
        (true, false) => sdk::exit::DENIED,
    })
}

/// Header fields as they were typed.
struct Typed(Vec<(String, String)>);

impl Typed {
    fn parse(lines: &[String]) -> Result<Self, Failure> {
        lines
            .iter()
            .map(|line| {
                line.split_once(':')
                    .map(|(name, value)| {
                        (name.trim().to_ascii_lowercase(), value.trim().to_owned())
                    })
                    .ok_or_else(|| {
                        Failure::bad_policy(format!(
                            "the header `{}` has no colon",
                            sanitised(line)
                        ))
                        .hint("write it as \"X-Tier: small\"")
                    })
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl Fields for Typed {
    fn values(&self, name: &str) -> Vec<&[u8]> {
        self.0
            .iter()
            .filter(|(known, _)| known == name)
            .map(|(_, value)| value.as_bytes())
            .collect()
    }
}
