//! A binding as it was when a run was created, whatever the owner's files say by now.
//!
//! It is not the grammar of `secrets.toml`: there a provider stands for the hosts of this version's catalogue.

use std::ffi::OsString;
use std::path::PathBuf;

use policies::{HostPattern, Slot};
use serde::{Deserialize, Serialize};

use crate::source::Source;

use super::Binding;

/// All of a binding that counts after the run was created.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FrozenBinding {
    name: String,
    provider: Option<String>,
    hosts: Vec<String>,
    ports: Vec<u16>,
    plaintext: bool,
    slots: Vec<Slot>,
    variables: Vec<String>,
    projects: Vec<OsString>,
    source: FrozenSource,
}

/// Paths need not be text.
#[derive(Serialize, Deserialize)]
enum FrozenSource {
    Env(String),
    File(OsString),
    Command(Vec<String>),
    Store(String),
}

impl FrozenBinding {
    /// Writes a binding down.
    pub(crate) fn of(binding: &Binding) -> Self {
        Self {
            name: binding.name.clone(),
            provider: binding.provider.clone(),
            hosts: binding.hosts.iter().map(ToString::to_string).collect(),
            ports: binding.ports.clone(),
            plaintext: binding.plaintext,
            slots: binding.slots.clone(),
            variables: binding.variables.clone(),
            projects: binding
                .projects
                .iter()
                .map(|path| path.clone().into_os_string())
                .collect(),
            source: match &binding.source {
                Source::Env(name) => FrozenSource::Env(name.clone()),
                Source::File(path) => FrozenSource::File(path.clone().into_os_string()),
                Source::Command(argv) => FrozenSource::Command(argv.clone()),
                Source::Store(name) => FrozenSource::Store(name.clone()),
            },
        }
    }

    /// The binding again; none if a host of it is no host in this version.
    pub(crate) fn thaw(self) -> Option<Binding> {
        let hosts = self.hosts.iter().map(|host| HostPattern::parse(host).ok());
        Some(Binding {
            hosts: hosts.collect::<Option<_>>()?,
            name: self.name,
            provider: self.provider,
            ports: self.ports,
            plaintext: self.plaintext,
            slots: self.slots,
            // The placeholder was made from it already.
            placeholder: None,
            variables: self.variables,
            projects: self.projects.into_iter().map(PathBuf::from).collect(),
            source: match self.source {
                FrozenSource::Env(name) => Source::Env(name),
                FrozenSource::File(path) => Source::File(path.into()),
                FrozenSource::Command(argv) => Source::Command(argv),
                FrozenSource::Store(name) => Source::Store(name),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::owner::{Home, parse_kept};

    use super::*;

    #[test]
    fn a_binding_reads_back_as_it_was() {
        let text = r#"{
            "a": {"hosts": ["api.example.com", "*.example.org"], "inject": {"header": "X-Key", "prefix": "k "},
                  "source": {"command": ["pass", "a b"]}, "ports": [8443], "plaintext": true},
            "b": {"hosts": ["192.0.2.1"], "inject": {"basic": true}, "source": {"file": "/keys/b"}, "projects": ["/p"]},
            "c": {"provider": "openai", "source": {"env": "C"}},
            "d": {"hosts": ["2001:db8::1"], "inject": {"path": "/bot{secret}/"}, "source": {"store": true}}
        }"#;
        for binding in parse_kept(text, &Home(None)).unwrap_or_default() {
            let text = serde_json::to_string(&FrozenBinding::of(&binding)).unwrap();
            let frozen: FrozenBinding = serde_json::from_str(&text).unwrap();
            let thawed = frozen.thaw().unwrap();
            assert_eq!(thawed.hosts, binding.hosts);
            assert_eq!(thawed.slots, binding.slots);
            assert_eq!(thawed.source, binding.source);
            // Written down again it is the same text, so nothing else was lost.
            let again = serde_json::to_string(&FrozenBinding::of(&thawed)).unwrap();
            assert_eq!(again, text);
        }
        assert_eq!(
            parse_kept(text, &Home(None)).map(|all| all.len()).ok(),
            Some(4)
        );
    }
}
