//! Where one secret comes from, and the only places it may ever go.

use std::path::{Path, PathBuf};

use policies::{Host, HostPattern, PlaceholderShape, Scheme, Slot};

use crate::source::Source;

/// What the owner says about one secret. No policy can widen it.
pub(crate) struct Binding {
    /// The owner's name for the secret.
    pub(crate) name: String,
    /// The catalogue provider, if it is one's key.
    pub(crate) provider: Option<String>,
    /// The hosts it may be sent to.
    pub(crate) hosts: Vec<HostPattern>,
    /// The ports, if the owner named any.
    pub(crate) ports: Vec<u16>,
    /// Whether it may be sent without TLS.
    pub(crate) plaintext: bool,
    /// Where in a request it stands.
    pub(crate) slots: Vec<Slot>,
    /// What a placeholder for it looks like; none for a shape of our own.
    pub(crate) placeholder: Option<PlaceholderShape>,
    /// The environment variables that programs read it from.
    pub(crate) variables: Vec<String>,
    /// The project folders that may use it; empty for all.
    pub(crate) projects: Vec<PathBuf>,
    /// Where its value is.
    pub(crate) source: Source,
}

impl Binding {
    /// Whether the owner lets the secret go there.
    pub(crate) fn covers(&self, scheme: Scheme, host: &Host, port: u16) -> bool {
        let is_carried = match scheme {
            Scheme::Https => true,
            Scheme::Http => self.plaintext,
        };
        let is_port = if self.ports.is_empty() {
            port == scheme.default_port()
        } else {
            self.ports.contains(&port)
        };
        is_carried && is_port && self.hosts.iter().any(|pattern| pattern.matches(host))
    }

    /// Whether every host of a pattern is one that the owner lets the secret go to, on this port in some way.
    pub(crate) fn may_reach(&self, wanted: &HostPattern, port: u16) -> bool {
        let is_port = if self.ports.is_empty() {
            port == Scheme::Https.default_port()
                || (self.plaintext && port == Scheme::Http.default_port())
        } else {
            self.ports.contains(&port)
        };
        is_port && self.hosts.iter().any(|own| is_part(wanted, own))
    }

    /// Whether the owner lets this project use the secret.
    pub(crate) fn is_for(&self, project: &Path) -> bool {
        self.projects.is_empty()
            || self
                .projects
                .iter()
                .any(|folder| project.starts_with(folder))
    }
}

/// Whether every host of one pattern is a host of the other.
fn is_part(part: &HostPattern, whole: &HostPattern) -> bool {
    match (part, whole) {
        (HostPattern::Exact(host), whole) => whole.matches(host),
        (HostPattern::Below(_), HostPattern::Exact(_)) => false,
        (HostPattern::Below(part), HostPattern::Below(whole)) => {
            part == whole || HostPattern::Below(whole.clone()).matches(&Host::Name(part.clone()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(name: &str, hosts: &[&str]) -> Binding {
        Binding {
            name: name.to_owned(),
            provider: None,
            hosts: hosts
                .iter()
                .map(|host| HostPattern::parse(host).unwrap())
                .collect(),
            ports: Vec::new(),
            plaintext: false,
            slots: vec![Slot::bearer()],
            placeholder: None,
            variables: vec!["ORDERS_KEY".to_owned()],
            projects: Vec::new(),
            source: Source::Env("ORDERS_KEY".to_owned()),
        }
    }

    fn covers(binding: &Binding, scheme: Scheme, host: &str, port: u16) -> bool {
        binding.covers(scheme, &Host::parse(host).unwrap(), port)
    }

    #[test]
    fn a_secret_goes_to_its_host_over_https_only() {
        let binding = binding("a", &["api.example.com"]);
        assert!(covers(&binding, Scheme::Https, "api.example.com", 443));
        assert!(!covers(&binding, Scheme::Http, "api.example.com", 80));
        assert!(!covers(&binding, Scheme::Http, "api.example.com", 443));
        assert!(!covers(&binding, Scheme::Https, "api.example.com", 8443));
        assert!(!covers(&binding, Scheme::Https, "evil.example.com", 443));
    }

    #[test]
    fn named_ports_replace_the_default_one() {
        let mut binding = binding("a", &["api.example.com"]);
        binding.ports = vec![8443];
        assert!(covers(&binding, Scheme::Https, "api.example.com", 8443));
        assert!(!covers(&binding, Scheme::Https, "api.example.com", 443));
    }

    #[test]
    fn plaintext_is_for_the_owner_to_allow() {
        let mut binding = binding("a", &["api.example.com"]);
        binding.plaintext = true;
        assert!(covers(&binding, Scheme::Http, "api.example.com", 80));
        assert!(covers(&binding, Scheme::Https, "api.example.com", 443));
    }

    #[test]
    fn a_folder_that_only_begins_alike_is_another_project() {
        let mut binding = binding("a", &["api.example.com"]);
        binding.projects = vec![PathBuf::from("/home/owner/orders")];
        assert!(binding.is_for(Path::new("/home/owner/orders/sub")));
        assert!(!binding.is_for(Path::new("/home/owner/orders-evil")));
    }
}
