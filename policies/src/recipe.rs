//! What a policy was read from, so that the same policy can be read again when its files are gone or changed.

use serde::{Deserialize, Serialize};

use crate::diagnostic::Diagnostic;
use crate::host::Host;
use crate::load::{Document, Origin, Sources, load, load_json};
use crate::policy::Policy;
use crate::scheme::Scheme;

/// Everything that a policy was read from.
///
/// Presets are not in it: they are part of the program. Whoever reads the policy again compares the digests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    text: Text,
    /// The files that it extends, each under the file that names it and the path given there.
    documents: Vec<(String, String, Document)>,
    packages: Vec<(String, Vec<KeptOrigin>)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Text {
    /// There was none: the policy without a file.
    #[default]
    Nothing,
    Toml(Document),
    Json(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KeptOrigin {
    scheme: String,
    host: String,
    port: u16,
    path: String,
}

impl Recipe {
    /// Reads the policy again.
    ///
    /// # Errors
    /// What is wrong, if this version of the program takes it for wrong.
    pub fn read(&self) -> Result<Policy, Vec<Diagnostic>> {
        let mut again = Again(self);
        match &self.text {
            Text::Nothing => Ok(Policy::default_for_no_file()),
            Text::Toml(root) => load(root.clone(), &mut again),
            Text::Json(text) => load_json(text, &mut again),
        }
    }
}

/// Writes down what the sources of a policy give.
pub(crate) struct Recorder<'s> {
    sources: &'s mut dyn Sources,
    recipe: Recipe,
}

impl<'s> Recorder<'s> {
    pub(crate) fn of_toml(root: &Document, sources: &'s mut dyn Sources) -> Self {
        Self::new(Text::Toml(root.clone()), sources)
    }

    pub(crate) fn of_json(text: &str, sources: &'s mut dyn Sources) -> Self {
        Self::new(Text::Json(text.to_owned()), sources)
    }

    fn new(text: Text, sources: &'s mut dyn Sources) -> Self {
        let recipe = Recipe {
            text,
            ..Recipe::default()
        };
        Self { sources, recipe }
    }

    pub(crate) fn finish(self) -> Recipe {
        self.recipe
    }
}

impl Sources for Recorder<'_> {
    fn document(&mut self, from: &str, path: &str) -> Result<Document, String> {
        let document = self.sources.document(from, path)?;
        let entry = (from.to_owned(), path.to_owned(), document.clone());
        self.recipe.documents.push(entry);
        Ok(document)
    }

    fn packages(&mut self, preset: &str) -> Result<Vec<Origin>, String> {
        let origins = self.sources.packages(preset)?;
        let kept = origins.iter().map(|origin| KeptOrigin {
            scheme: origin.scheme.as_str().to_owned(),
            host: origin.host.to_string(),
            port: origin.port,
            path: origin.path.clone(),
        });
        let entry = (preset.to_owned(), kept.collect());
        self.recipe.packages.push(entry);
        Ok(origins)
    }
}

/// Gives what was given before, and nothing else.
struct Again<'r>(&'r Recipe);

impl Sources for Again<'_> {
    fn document(&mut self, from: &str, path: &str) -> Result<Document, String> {
        let mut documents = self.0.documents.iter();
        documents
            .find(|(by, name, _)| by == from && name == path)
            .map(|(_, _, document)| document.clone())
            .ok_or_else(|| format!("`{path}` was not read before"))
    }

    fn packages(&mut self, preset: &str) -> Result<Vec<Origin>, String> {
        let mut packages = self.0.packages.iter();
        let (_, kept) = packages
            .find(|(name, _)| name == preset)
            .ok_or_else(|| format!("the hosts of `{preset}` were not read before"))?;
        kept.iter()
            .map(|origin| {
                Ok(Origin {
                    scheme: Scheme::parse(&origin.scheme).ok_or("no scheme")?,
                    host: Host::parse(&origin.host).map_err(|error| error.to_string())?,
                    port: origin.port,
                    path: origin.path.clone(),
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Files;

    impl Sources for Files {
        fn document(&mut self, _from: &str, path: &str) -> Result<Document, String> {
            Ok(Document {
                name: path.to_owned(),
                text: "version = 1\nlocked = true\n[[allow]]\nhost = \"*.example.com\"\n"
                    .to_owned(),
            })
        }

        fn packages(&mut self, _preset: &str) -> Result<Vec<Origin>, String> {
            Ok(vec![Origin {
                scheme: Scheme::Http,
                host: Host::parse("[2001:db8::1]").unwrap(),
                port: 8080,
                path: "/simple".to_owned(),
            }])
        }
    }

    fn again(policy: &Policy) -> Policy {
        let text = serde_json::to_string(policy.recipe()).unwrap();
        let recipe: Recipe = serde_json::from_str(&text).unwrap();
        recipe.read().unwrap()
    }

    #[test]
    fn a_policy_is_read_again_without_its_files() {
        let root = Document {
            name: "valetkey.toml".to_owned(),
            text: "version = 1\nextends = [\"base.toml\", \"preset:python-packages\"]\n\
                   [[allow]]\nhost = \"api.example.com\"\n"
                .to_owned(),
        };
        let policy = load(root, &mut Files).unwrap();
        assert_eq!(again(&policy).digest(), policy.digest());
        assert_eq!(again(&again(&policy)).digest(), policy.digest());
        // The base is in it: it is another policy without.
        assert_eq!(policy.layers.len(), 2);
        assert_eq!(again(&policy).layers.len(), 2);
    }

    #[test]
    fn a_policy_of_json_and_the_one_without_a_file_are_read_again() {
        let text = r#"{"version": 1, "allow": [{"host": "api.example.com"}]}"#;
        for policy in [
            Policy::from_json(text).unwrap(),
            Policy::default_for_no_file(),
        ] {
            assert_eq!(again(&policy).digest(), policy.digest());
        }
    }

    #[test]
    fn a_file_that_was_not_read_before_is_refused() {
        let recipe = Recipe {
            text: Text::Json(r#"{"version": 1, "extends": ["base.toml"]}"#.to_owned()),
            ..Recipe::default()
        };
        assert!(recipe.read().is_err());
    }
}
