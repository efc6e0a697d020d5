//! What a run may use: what its policy asks for, of what the owner allows. Decided once, when the run is created.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use policies::{PlaceholderShape, Policy};
use zeroize::Zeroizing;

use crate::owner::Binding;
use crate::{Error, Grant, random};

/// The owner's bindings by name.
pub(crate) type Bindings = BTreeMap<String, Arc<Binding>>;

/// The grants of a new run.
pub(crate) fn grants(
    policy: &Policy,
    bindings: &Bindings,
    project: &Path,
) -> Result<Vec<Grant>, Error> {
    policy
        .secrets()
        .map(|name| {
            let binding = bindings
                .get(name)
                .ok_or_else(|| Error::UnknownSecret(name.to_owned()))?;
            if !binding.is_for(project) {
                return Err(Error::NotForProject {
                    secret: name.to_owned(),
                    project: project.to_owned(),
                });
            }
            let placeholder = placeholder(binding.placeholder.as_ref())?;
            Ok(Grant::new(Arc::clone(binding), placeholder))
        })
        .collect()
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
    use super::*;

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
