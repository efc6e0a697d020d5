//! What a run may use: what its policy asks for, of what the owner allows. Decided once, when the run is created.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use policies::{PlaceholderShape, Policy, Rule};
use zeroize::Zeroizing;

use crate::owner::Binding;
use crate::{Error, Grant, random};

/// The owner's bindings by name.
pub(crate) type Bindings = BTreeMap<String, Arc<Binding>>;

/// What the owner's side says to a policy: the bindings that a run would get, and every reason to refuse the run.
pub(crate) struct Foreseen {
    bindings: Vec<Arc<Binding>>,
    /// Why no run begins; none if one would.
    pub(crate) refusals: Vec<Error>,
}

impl Foreseen {
    /// The grants of a new run; the first refusal if there is one.
    pub(crate) fn grants(self) -> Result<Vec<Grant>, Error> {
        if let Some(refusal) = self.refusals.into_iter().next() {
            return Err(refusal);
        }
        self.bindings
            .into_iter()
            .map(|binding| {
                let placeholder = placeholder(binding.placeholder.as_ref())?;
                Ok(Grant::new(binding, placeholder))
            })
            .collect()
    }
}

/// Compares what the policy asks for with what the owner allows.
///
/// Runs are created from the answer and `valetkey check` tells it, so the two cannot differ. No value is read.
pub(crate) fn foresee(policy: &Policy, bindings: &Bindings, project: &Path) -> Foreseen {
    let mut refusals = Vec::new();
    let mut told = BTreeSet::new();
    for rule in policy.rules() {
        let Some(name) = rule.secret() else {
            continue;
        };
        let Some(binding) = bindings.get(name) else {
            if told.insert(name) {
                refusals.push(Error::UnknownSecret {
                    secret: name.to_owned(),
                    rule: rule.origin(),
                });
            }
            continue;
        };
        refusals.extend(outside(rule, binding));
        if !binding.is_for(project) && told.insert(name) {
            refusals.push(Error::NotForProject {
                secret: name.to_owned(),
                rule: rule.origin(),
                project: project.to_owned(),
            });
        }
    }
    let granted: Vec<Arc<Binding>> = policy
        .secrets()
        .filter_map(|name| bindings.get(name).cloned())
        .collect();
    refusals.extend(shared_variables(&granted));
    Foreseen {
        bindings: granted,
        refusals,
    }
}

/// Secrets that are read from one variable: a program would be given one of them, and nobody could say which.
fn shared_variables(bindings: &[Arc<Binding>]) -> Vec<Error> {
    let (mut taken, mut found) = (BTreeMap::new(), Vec::new());
    for binding in bindings {
        for variable in &binding.variables {
            let other: Option<&str> = taken.insert(variable, binding.name.as_str());
            if let Some(other) = other.filter(|other| *other != binding.name) {
                found.push(Error::SameVariable {
                    variable: variable.clone(),
                    one: other.to_owned(),
                    other: binding.name.clone(),
                });
            }
        }
    }
    found
}

/// Where a rule would send its secret and the owner does not let it go. The same is asked again for each request; here
/// it is asked so that the policy's author hears of it before anything runs.
fn outside(rule: &Rule, binding: &Binding) -> Option<Error> {
    let name = &binding.name;
    if let (Some(wanted), Some(bound)) = (rule.provider(), &binding.provider)
        && wanted != bound
    {
        return Some(Error::ProviderMismatch {
            secret: name.clone(),
            rule: rule.origin(),
            wanted: wanted.to_owned(),
            bound: bound.clone(),
        });
    }
    for host in rule.hosts() {
        for port in rule.ports() {
            if !binding.may_reach(host, *port) {
                return Some(Error::OutsideBinding {
                    secret: name.clone(),
                    rule: rule.origin(),
                    destination: format!("{host}:{port}"),
                });
            }
        }
    }
    None
}

/// A random value of the secret's shape.
fn placeholder(shape: Option<&PlaceholderShape>) -> Result<String, Error> {
    let Some(shape) = shape else {
        let bits = random::bytes::<24>()?;
        return Ok(format!("vkp_{}", crate::hex::encode(&bits)));
    };
    let (mut pool, mut at, mut failure) = (Zeroizing::new([0; 64]), 64, None);
    let filled = shape.fill(&mut || {
        if at == pool.len() {
            match random::bytes::<64>() {
                Ok(fresh) => *pool = fresh,
                Err(error) => failure = Some(error),
            }
            at = 0;
        }
        at += 1;
        pool[at - 1]
    });
    // A placeholder that could be guessed is worse than no run.
    failure.map_or(Ok(filled), Err)
}

#[cfg(test)]
mod tests {
    use crate::owner::{Home, parse_kept};

    use super::*;

    const OWNER: &str = r#"{
        "orders": {"hosts": ["api.example.com", "*.example.org"], "inject": "bearer", "source": {"env": "ORDERS_KEY"}},
        "openai": {"provider": "openai", "source": {"env": "OPENAI_API_KEY"}},
        "openai-work": {"provider": "openai", "source": {"env": "WORK"}},
        "openai-other": {"provider": "openai", "source": {"env": "OTHER"}, "variables": ["OTHER_KEY"]},
        "here": {"hosts": ["api.example.com"], "inject": "bearer", "source": {"env": "A"}, "projects": ["/home/owner/here"]}
    }"#;

    /// What comes of one rule, given as JSON.
    fn frozen(rule: &str) -> Result<Vec<Grant>, Error> {
        let text = format!(r#"{{"version": 1, "allow": [{rule}]}}"#);
        let policy = Policy::from_json(&text).unwrap();
        let bindings = parse_kept(OWNER, &Home(None)).unwrap_or_default();
        let bindings = bindings
            .into_iter()
            .map(|binding| (binding.name.clone(), Arc::new(binding)))
            .collect();
        foresee(&policy, &bindings, Path::new("/home/owner/there")).grants()
    }

    #[test]
    fn a_secret_is_granted_for_its_hosts() {
        for rule in [
            r#"{"host": "api.example.com", "secret": "orders"}"#,
            r#"{"host": "a.example.org", "secret": "orders"}"#,
            r#"{"host": "*.a.example.org", "secret": "orders"}"#,
        ] {
            let grants = frozen(rule).unwrap_or_else(|error| panic!("{rule}: {error}"));
            assert_eq!(grants[0].secret(), "orders");
            assert_eq!(grants[0].variables(), ["ORDERS_KEY"]);
        }
        let grants = frozen(r#"{"use": "openai", "secret": "openai"}"#)
            .ok()
            .unwrap();
        assert!(grants[0].placeholder().starts_with("sk-"));
        assert_eq!(grants[0].variables()[0], "OPENAI_API_KEY");
    }

    #[test]
    fn a_host_that_is_not_the_owners_is_refused() {
        for rule in [
            r#"{"host": "evil.example", "secret": "orders"}"#,
            r#"{"host": "*.api.example.com", "secret": "orders"}"#,
            r#"{"host": "evilexample.org", "secret": "orders"}"#,
            r#"{"host": "api.example.com", "ports": [8443], "secret": "orders"}"#,
            r#"{"host": "api.example.com", "scheme": "http", "secret": "orders"}"#,
        ] {
            let error = frozen(rule).err();
            assert!(
                matches!(error, Some(Error::OutsideBinding { .. })),
                "{rule}"
            );
        }
    }

    #[test]
    fn a_secret_that_the_owner_does_not_have_is_named() {
        let error = frozen(r#"{"host": "api.example.com", "secret": "other"}"#).err();
        assert!(matches!(error, Some(Error::UnknownSecret { secret, .. }) if secret == "other"));
    }

    #[test]
    fn a_key_of_one_provider_is_not_for_another() {
        let error = frozen(r#"{"use": "anthropic", "secret": "openai"}"#).err();
        assert!(matches!(error, Some(Error::ProviderMismatch { .. })));
    }

    #[test]
    fn two_secrets_for_one_variable_are_refused_with_both_names() {
        let both = |other: &str| {
            frozen(&format!(
                r#"{{"use": "openai", "secret": "openai"}}, {{"use": "openai", "secret": "{other}"}}"#
            ))
        };
        let error = both("openai-work").err().unwrap();
        let text = error.to_string();
        assert!(
            text.contains("`openai`") && text.contains("`openai-work`"),
            "{text}"
        );
        assert!(text.contains("`OPENAI_API_KEY`"), "{text}");
        assert!(error.hint().unwrap().contains("`variables = "));
        // The twin: what the hint says helps.
        assert_eq!(both("openai-other").unwrap().len(), 2);
    }

    #[test]
    fn a_secret_of_another_project_is_refused() {
        let error = frozen(r#"{"host": "api.example.com", "secret": "here"}"#).err();
        assert!(matches!(error, Some(Error::NotForProject { .. })));
    }

    #[test]
    fn two_placeholders_are_never_the_same() {
        assert_ne!(placeholder(None).unwrap(), placeholder(None).unwrap());
        for provider in policies::catalogue::providers() {
            let shape = Some(&provider.placeholder);
            let (one, two) = (placeholder(shape).unwrap(), placeholder(shape).unwrap());
            assert_ne!(one, two, "{}", provider.id);
        }
    }
}
