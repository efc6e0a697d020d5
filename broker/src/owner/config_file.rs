//! What `config.toml` says of this machine.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use policies::reader::{Findings, Item, Section, SourceText, parse_toml};
use policies::{Authority, Diagnostic, Host};

use crate::Durability;
use crate::config::{Config, Upstream};

/// The settings of the text of a `config.toml`.
pub(crate) fn parse(name: &str, text: &str) -> Result<Config, Vec<Diagnostic>> {
    let source = SourceText::new(name, text);
    let findings = Findings::default();
    let root = parse_toml(&source, &findings);
    let file = Section::open(&source, &findings, &root, "", KEYS);
    for key in ["ceiling", "serve", "store"] {
        if let Some(item) = file.item(key) {
            item.not_supported_yet();
        }
    }
    let config = Config {
        upstream: file
            .section("upstream", UPSTREAM_KEYS)
            .map(|section| upstream(&section))
            .unwrap_or_default(),
        durability: file
            .section("audit", &["durability"])
            .and_then(|section| durability(&section.item("durability")?)),
    };
    findings.into_result(config)
}

fn upstream(section: &Section<'_>) -> Upstream {
    if let Some(item) = section.item("proxy") {
        item.not_supported_yet();
    }
    Upstream {
        roots: section
            .item("roots")
            .and_then(|item| roots(&item))
            .unwrap_or_default(),
        resolver: section
            .item("resolver")
            .and_then(|item| socket(&item, "such as `127.0.0.1:5353`")),
        addresses: section
            .map("addresses")
            .map(|section| addresses(&section))
            .unwrap_or_default(),
        connect: section
            .map("connect")
            .map(|section| connect(&section))
            .unwrap_or_default(),
    }
}

fn roots(item: &Item<'_, '_>) -> Option<Vec<PathBuf>> {
    let texts = item.texts()?;
    if let Some(wrong) = texts
        .iter()
        .find(|text| !Path::new(text.value).is_absolute())
    {
        item.refuse(
            format!("`{}` does not begin with `/`", wrong.value.escape_default()),
            None,
        );
        return None;
    }
    Some(texts.iter().map(|text| PathBuf::from(text.value)).collect())
}

fn addresses(section: &Section<'_>) -> BTreeMap<Host, Vec<IpNet>> {
    let mut all = BTreeMap::new();
    for item in section.items() {
        let Ok(host) = Host::parse(&item.key().text) else {
            item.refuse("the key is not a host", None);
            continue;
        };
        let ranges = item.texts().unwrap_or_default();
        let ranges: Vec<IpNet> = ranges
            .iter()
            .filter_map(|text| {
                let range = range(text.value);
                if range.is_none() {
                    item.refuse(
                        format!(
                            "`{}` is not a range of addresses",
                            text.value.escape_default()
                        ),
                        Some("such as `10.0.0.0/8`".to_owned()),
                    );
                }
                range
            })
            .collect();
        if all.insert(host, ranges).is_some() {
            item.refuse("this host stands here twice", None);
        }
    }
    all
}

/// A range, or one address. Bits below the prefix are an error: they show that something else was meant.
fn range(text: &str) -> Option<IpNet> {
    let range = text
        .parse::<IpNet>()
        .ok()
        .or_else(|| text.parse::<std::net::IpAddr>().ok().map(IpNet::from))?;
    (range.trunc() == range).then_some(range)
}

fn connect(section: &Section<'_>) -> BTreeMap<Authority, SocketAddr> {
    let mut all = BTreeMap::new();
    for item in section.items() {
        let Ok(authority) = Authority::parse(&item.key().text, None) else {
            item.refuse(
                "the key is not a host with a port",
                Some("such as `\"api.example.com:443\" = \"127.0.0.1:8443\"`".to_owned()),
            );
            continue;
        };
        let Some(address) = socket(&item, "an address with a port, such as `127.0.0.1:8443`")
        else {
            continue;
        };
        if all.insert(authority, address).is_some() {
            item.refuse("this host and port stand here twice", None);
        }
    }
    all
}

fn socket(item: &Item<'_, '_>, hint: &str) -> Option<SocketAddr> {
    let address = item.text()?.value.parse().ok();
    if address.is_none() {
        item.refuse("this is not an address with a port", Some(hint.to_owned()));
    }
    address
}

fn durability(item: &Item<'_, '_>) -> Option<Durability> {
    match item.text()?.value {
        "process" => Some(Durability::Process),
        "disk" => Some(Durability::Disk),
        _ => {
            item.refuse("`durability` is `process` or `disk`", None);
            None
        }
    }
}

const KEYS: &[&str] = &["upstream", "audit", "ceiling", "serve", "store"];

const UPSTREAM_KEYS: &[&str] = &["roots", "resolver", "addresses", "connect", "proxy"];

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Config, Vec<Diagnostic>> {
        parse("config.toml", text)
    }

    #[test]
    fn the_settings_of_the_contract_are_read() {
        let config = parsed(
            r#"
[upstream]
roots = ["/path/ca.pem"]
resolver = "127.0.0.1:5353"
[upstream.addresses]
"API.internal.example" = ["10.0.0.0/8", "192.0.2.7"]
[upstream.connect]
"api.openai.com:443" = "127.0.0.1:8443"
[audit]
durability = "disk"
"#,
        )
        .unwrap();
        let host = Host::parse("api.internal.example").unwrap();
        assert_eq!(config.upstream.addresses[&host].len(), 2);
        assert_eq!(config.upstream.connect.len(), 1);
        assert_eq!(config.upstream.roots, [PathBuf::from("/path/ca.pem")]);
        assert!(config.upstream.resolver.is_some());
        assert_eq!(config.durability, Some(Durability::Disk));
    }

    #[test]
    fn an_empty_file_opens_nothing() {
        assert_eq!(parsed("").unwrap(), Config::default());
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for text in [
            "[upstream]\nresolver = \"localhost\"",
            "[upstream]\nroots = [\"ca.pem\"]",
            "[upstream.addresses]\n\"a.example\" = [\"10.0.0.1/8\"]",
            "[upstream.addresses]\n\"a.example\" = [\"all\"]",
            "[upstream.addresses]\n\"A.example\" = []\n\"a.example\" = []",
            "[upstream.connect]\n\"a.example\" = \"127.0.0.1:1\"",
            "[upstream.connect]\n\"a.example:443\" = \"b.example:1\"",
            "[audit]\ndurability = \"never\"",
            "[upstreams]",
        ] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_not_built_yet_is_refused_and_not_ignored() {
        for text in [
            "[ceiling]\nhosts = []",
            "[serve]",
            "[store]",
            "[upstream]\nproxy = \"x\"",
        ] {
            let found = parsed(text).unwrap_err();
            assert!(found[0].message.contains("not supported yet"), "{text}");
        }
    }
}
