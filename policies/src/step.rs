//! What a step of a run is called, and what its `[steps.NAME]` leaves of the run's rights.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::rule::Rule;
use crate::sandbox::NetworkMode;
use crate::settings::Placed;

/// The name of a step: letters, digits, `-`, `_` and `.`, at most 64, of which the first is a letter or a digit.
///
/// It is short and plain because it stands in tokens, in the audit log and in names of folders.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepName(Arc<str>);

/// A text is not the name of a step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not the name of a step: letters, digits, `-`, `_` and `.`, at most 64, beginning with a letter or digit"
)]
pub struct NotAStepName(String);

impl StepName {
    /// Reads a name.
    pub fn parse(text: &str) -> Result<Self, NotAStepName> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let is_name = text.len() <= LONGEST
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(is_plain);
        if is_name {
            Ok(Self(text.into()))
        } else {
            let shown = text.chars().filter(|c| !c.is_control()).take(LONGEST);
            Err(NotAStepName(shown.collect()))
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as text that is cheap to share.
    pub fn shared(&self) -> &Arc<str> {
        &self.0
    }
}

impl Borrow<str> for StepName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StepName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for StepName {
    type Err = NotAStepName;

    fn from_str(text: &str) -> Result<Self, NotAStepName> {
        Self::parse(text)
    }
}

impl Serialize for StepName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for StepName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// The steps that a file or its bases name.
pub(crate) type Steps = BTreeMap<StepName, Placed<StepRights>>;

/// What a `[steps.NAME]` says.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepRights {
    /// The rules that are left, as they were written; none: every rule.
    pub(crate) allow: Option<Vec<Placed<String>>>,
    pub(crate) network: Option<Placed<NetworkMode>>,
    /// What `allow` means: each rule with those of its hosts that are left. Known once all rules are.
    pub(crate) rules: Vec<Placed<Rule>>,
}

impl StepRights {
    /// Whether nothing of the network is left.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.network
            .as_ref()
            .is_some_and(|network| network.value == NetworkMode::None)
    }
}

const LONGEST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_name_is_a_steps() {
        for name in ["fetch", "build-2", "a.b_c", "7", &"x".repeat(64)] {
            assert_eq!(StepName::parse(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn a_name_that_could_lead_elsewhere_is_refused() {
        for name in [
            "",
            ".",
            "..",
            "-x",
            "a/b",
            "a b",
            "ä",
            "a\n",
            "a\0",
            &"x".repeat(65),
        ] {
            assert!(StepName::parse(name).is_err(), "{name:?}");
        }
    }
}
