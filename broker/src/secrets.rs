//! The owner's secrets: which there are, adding and removing those that we keep. No value ever comes out here.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use policies::{Slot, catalogue};
use sdk::api::SecretInfo;
use serde_json::json;
use zeroize::Zeroizing;

use crate::freeze::Bindings;
use crate::owner::{self, Binding, Home, Readers};
use crate::source::{MOST, Source};
use crate::store::{Store, StoredSecret};
use crate::{Error, dotenv};

/// The owner's secrets.
pub struct Secrets {
    store: Arc<Store>,
    /// `secrets.toml`.
    file: PathBuf,
    home: Home,
}

/// Where a secret that is added may go: to a provider's hosts, or to hosts by name with a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewSecret {
    /// A provider of the catalogue.
    pub provider: Option<String>,
    /// The hosts it may be sent to.
    pub hosts: Vec<String>,
    /// Where in a request it stands.
    pub slot: Option<Slot>,
}

/// What becomes of a secret of the same name that is kept already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and nothing is kept of what was to be.
    Keep,
    /// It is replaced.
    Replace,
}

/// What became of a secret that was added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// Whether one of the same name was replaced.
    pub replaced: bool,
    /// What the owner should know about it.
    pub warnings: Vec<String>,
}

/// What became of a `.env` file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// The names of the secrets that are kept now.
    pub names: Vec<String>,
    /// Those of them that were kept before, with another value.
    pub replaced: Vec<String>,
    /// The variables that no provider of the catalogue reads; they were left alone.
    pub left: Vec<String>,
    /// What the owner should know about those that are kept.
    pub warnings: Vec<String>,
}

impl Secrets {
    pub(crate) fn new(store: Arc<Store>, config_dir: &Path, home: Home) -> Self {
        Self {
            store,
            file: config_dir.join("secrets.toml"),
            home,
        }
    }

    /// Every secret, by name, with where it may go.
    ///
    /// # Errors
    /// If `secrets.toml` is wrong, or could have been written by somebody else.
    pub fn list(&self) -> Result<Vec<SecretInfo>, Error> {
        let info = |binding: &Arc<Binding>| SecretInfo {
            name: binding.name.clone(),
            source: binding.source.kind().to_owned(),
            hosts: binding.hosts.iter().map(ToString::to_string).collect(),
            provider: binding.provider.clone(),
        };
        Ok(self.bindings()?.values().map(info).collect())
    }

    /// Seals a secret into the store.
    ///
    /// Where `secrets.toml` names the secret with `source = { store = true }`, only the value is kept here.
    ///
    /// # Errors
    /// If the name, the binding or the value cannot be, or the name is kept already and shall stay.
    pub fn add(
        &self,
        name: &str,
        new: &NewSecret,
        value: Zeroizing<String>,
        existing: Existing,
    ) -> Result<Added, Error> {
        let warnings = check_value(name, &value)?;
        let secret = self.to_keep(name, new, &self.in_file()?)?;
        let replaced = self
            .store
            .put_secrets(&[(secret, value)], existing, now())?;
        Ok(Added {
            replaced: !replaced.is_empty(),
            warnings,
        })
    }

    /// A secret as the store keeps it, checked.
    fn to_keep(
        &self,
        name: &str,
        new: &NewSecret,
        in_file: &Bindings,
    ) -> Result<StoredSecret, Error> {
        if let Some(why) = owner::check_name(name) {
            return Err(Error::Asked(why.to_owned()));
        }
        let is_bare = new == &NewSecret::default();
        let binding = match in_file.get(name) {
            Some(binding) if binding.source == Source::Store(name.to_owned()) && is_bare => None,
            Some(_) => return Err(Error::TwoBindings(name.to_owned())),
            None => Some(self.binding_text(name, new)?),
        };
        Ok(StoredSecret {
            name: name.to_owned(),
            binding,
        })
    }

    /// Removes a secret from the store.
    ///
    /// # Errors
    /// If the store has no such secret; one of `secrets.toml` is removed there.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        if self.store.remove_secret(name)? {
            return Ok(());
        }
        Err(Error::Asked(if self.in_file()?.contains_key(name) {
            format!("secret `{name}` is not in the store; remove it from `secrets.toml`")
        } else {
            format!("there is no secret `{name}`")
        }))
    }

    /// Seals those variables of a `.env` file that a provider of the catalogue reads: all of them or none.
    ///
    /// # Errors
    /// If the text is no `.env` file, a value cannot be used, two values are one provider's, or a name is kept already
    /// and shall stay. Then nothing is kept.
    pub fn import(&self, text: &str, existing: Existing) -> Result<Imported, Error> {
        let in_file = self.in_file()?;
        let variables = dotenv::parse(text)
            .map_err(|line| Error::Asked(format!("line {line} is no `NAME=value`")))?;
        let mut imported = Imported::default();
        let mut chosen: Vec<(StoredSecret, Zeroizing<String>)> = Vec::new();
        for variable in variables {
            let provider = catalogue::providers()
                .find(|provider| provider.env.contains(&variable.name))
                .filter(|provider| !provider.hosts.is_empty());
            match provider {
                Some(provider) if !variable.value.is_empty() => {
                    let name = &provider.id;
                    match chosen.iter().find(|(secret, _)| secret.name == *name) {
                        Some((_, value)) if *value == variable.value => continue,
                        // Which one is meant cannot be known.
                        Some(_) => {
                            return Err(Error::Asked(format!(
                                "the file has two keys of `{name}`, the second in `{}`",
                                variable.name
                            )));
                        }
                        None => {}
                    }
                    let new = NewSecret {
                        provider: Some(name.clone()),
                        ..NewSecret::default()
                    };
                    let secret = self.to_keep(name, &new, &in_file)?;
                    let warnings = check_value(name, &variable.value)?;
                    imported.warnings.extend(warnings);
                    imported.names.push(name.clone());
                    chosen.push((secret, variable.value));
                }
                Some(_) | None => imported.left.push(variable.name),
            }
        }
        imported.replaced = self.store.put_secrets(&chosen, existing, now())?;
        Ok(imported)
    }

    /// Reads a secret's value and forgets it: whether its source works.
    ///
    /// # Errors
    /// If there is no such secret, or its value cannot be read or used.
    pub async fn test(&self, name: &str) -> Result<(), Error> {
        let bindings = self.bindings()?;
        let binding = bindings
            .get(name)
            .ok_or_else(|| Error::Asked(format!("there is no secret `{name}`")))?;
        match binding.source.read(&self.store).await {
            Ok(_) => Ok(()),
            Err(source) => Err(Error::Secret {
                name: name.to_owned(),
                source,
            }),
        }
    }

    /// Every binding, of `secrets.toml` and of our own store.
    pub(crate) fn bindings(&self) -> Result<Bindings, Error> {
        let mut all = self.in_file()?;
        for kept in self.store.kept_secrets()? {
            let Some(text) = kept.binding else {
                continue;
            };
            for binding in owner::parse_kept(&text, &self.home).map_err(Error::Owner)? {
                match all.entry(binding.name.clone()) {
                    Entry::Vacant(place) => {
                        place.insert(Arc::new(binding));
                    }
                    // Which one the owner means cannot be known.
                    Entry::Occupied(_) => return Err(Error::TwoBindings(binding.name)),
                }
            }
        }
        Ok(all)
    }

    /// The files that secrets are read from.
    ///
    /// # Errors
    /// If `secrets.toml` cannot be used. Then nobody knows what is to be hidden.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>, Error> {
        let files = self
            .bindings()?
            .values()
            .filter_map(|binding| match &binding.source {
                Source::File(path) => Some(path.clone()),
                Source::Env(_) | Source::Command(_) | Source::Store(_) => None,
            })
            .collect();
        Ok(files)
    }

    fn in_file(&self) -> Result<Bindings, Error> {
        let Some(text) = owner::read(&self.file, Readers::OwnerOnly)? else {
            return Ok(BTreeMap::new());
        };
        let name = self.file.display().to_string();
        let bindings = owner::parse_secrets(&name, &text, &self.home).map_err(Error::Owner)?;
        Ok(bindings
            .into_iter()
            .map(|binding| (binding.name.clone(), Arc::new(binding)))
            .collect())
    }

    /// A binding of our own, checked by the same reader as the owner's file.
    fn binding_text(&self, name: &str, new: &NewSecret) -> Result<String, Error> {
        let mut table = serde_json::Map::new();
        table.insert("source".to_owned(), json!({"store": true}));
        if let Some(provider) = &new.provider {
            table.insert("provider".to_owned(), json!(provider));
        }
        if !new.hosts.is_empty() {
            table.insert("hosts".to_owned(), json!(new.hosts));
        }
        if let Some(slot) = &new.slot {
            table.insert("inject".to_owned(), owner::describe(slot));
        }
        let text = json!({ name: table }).to_string();
        owner::parse_kept(&text, &self.home).map_err(|found| {
            let wrong: Vec<String> = found
                .into_iter()
                .map(|diagnostic| match diagnostic.hint {
                    Some(hint) => format!("{} ({hint})", diagnostic.message),
                    None => diagnostic.message,
                })
                .collect();
            Error::Asked(wrong.join("; "))
        })?;
        Ok(text)
    }
}

/// Checks a value, and warns of one too short to be found in what upstreams send back (decided for redaction: the
/// public beginning and eight private bytes have to be seen before anything is held back).
fn check_value(name: &str, value: &str) -> Result<Vec<String>, Error> {
    let refuse = |why: &str| Err(Error::Asked(format!("the value of `{name}` {why}")));
    if value.is_empty() {
        return refuse("is empty");
    }
    if value.len() > MOST {
        return refuse("is too long for a request");
    }
    if value.chars().any(char::is_control) {
        return refuse("holds control characters, such as a line end");
    }
    let private = private_bytes(value);
    if private >= PRIVATE {
        return Ok(Vec::new());
    }
    Ok(vec![format!(
        "`{name}` has only {private} bytes that are not public; if an upstream sends it back, it may not be found"
    )])
}

/// The bytes after the public beginning, such as `sk-proj-`.
fn private_bytes(value: &str) -> usize {
    let public = value
        .char_indices()
        .take(12)
        .filter(|(_, character)| matches!(character, '-' | '_'))
        .map(|(at, _)| at + 1)
        .last()
        .unwrap_or(0);
    value.len() - public
}

fn now() -> i64 {
    Timestamp::now().as_millisecond()
}

/// A secret has at least this many private bytes, or a warning is given.
const PRIVATE: usize = 16;

#[cfg(test)]
mod tests;
