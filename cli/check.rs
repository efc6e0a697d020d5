//! `valetkey check`: is this policy valid, and what does it decide for a request?

use policies::sample::{Expectation, Sample};
use policies::{Decision, Fields};
use serde_json::json;

use crate::args;
use crate::failure::Failure;
use crate::output::{self, data, sanitised};
use crate::project::Project;

/// Checks the policy, and decides the request if one is given.
pub(crate) fn check(asked: &args::Check, as_json: bool) -> Result<u8, Failure> {
    let project = Project::open_with_file(asked.policy.as_deref())?;
    match &asked.request {
        Some(request) => decide(&project, request, &asked.headers, as_json),
        None => validate(&project, as_json),
    }
}

fn validate(project: &Project, as_json: bool) -> Result<u8, Failure> {
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
            "secrets": policy.secrets().collect::<Vec<_>>(),
            "tests": {"passed": passed, "failed": failed.len()},
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
    }
    Ok(if failed.is_empty() {
        0
    } else {
        sdk::exit::DENIED
    })
}

fn decide(
    project: &Project,
    request: &str,
    headers: &[String],
    as_json: bool,
) -> Result<u8, Failure> {
    let asked = Sample::parse(request.trim()).map_err(|error| {
        Failure::bad_policy(format!("cannot read the request `{}`", sanitised(request)))
            .because(error)
            .hint("write it as \"GET https://api.example.com/v1/items\"")
    })?;
    let headers = Typed::parse(headers)?;
    let decision = asked.decide_with(&project.policy, &headers);
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
    let rule = rule.map(|rule| rule.origin().to_string());
    if as_json {
        output::json(&json!({
            "allowed": allowed,
            "code": code.map(|code| code.as_str()),
            "rule": rule,
            "reason": reason,
            "secrets": secrets,
        }));
    } else {
        data(format_args!(
            "{}: {} {}://{}{}",
            if allowed { "allow" } else { "deny" },
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
    }
    Ok(if allowed { 0 } else { sdk::exit::DENIED })
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
