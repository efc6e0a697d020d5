//! What is known of the providers of APIs.

use crate::pattern::HostPattern;
use crate::slot::Slot;

/// A provider of the catalogue.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Its id, as `use` names it.
    pub id: String,
    /// Its name, for people.
    pub name: String,
    /// Its hosts.
    pub hosts: Vec<HostPattern>,
    /// Where its clients put the credential; the first is filled when all are absent.
    pub slots: Vec<Slot>,
    /// The shape of its keys.
    pub placeholder: PlaceholderShape,
    /// The variables that its clients read the key from.
    pub env: Vec<String>,
    /// The variables that its clients read the base URL from.
    pub base_url_env: Vec<String>,
    /// Endpoints that are refused unless a rule names them, as `METHOD /path`.
    pub refused: Vec<String>,
}

/// What a key of a provider looks like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceholderShape {
    template: String,
}

impl PlaceholderShape {
    /// A harmless value of this shape; `entropy` gives one random byte a call.
    pub fn fill(&self, entropy: &mut dyn FnMut() -> u8) -> String {
        let mut text = self.template.clone();
        for _ in 0..20 {
            text.push(char::from(b'a' + entropy() % 26));
        }
        text
    }
}

/// The provider of this id.
pub fn provider(_id: &str) -> Option<&'static Provider> {
    None
}
