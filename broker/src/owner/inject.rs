//! How a secret is attached to a request, as the owner writes it: `inject = { header = "X-Api-Key" }`.

use policies::Slot;
use policies::reader::{Item, Section, Value};
use serde_json::json;

/// The slot that `inject` describes. What is wrong goes to the findings.
pub(super) fn parse(item: &Item<'_, '_>) -> Option<Slot> {
    if let Value::Text(word) = &item.node().value {
        return match word.as_str() {
            "bearer" => Some(Slot::bearer()),
            "basic" => Some(Slot::Basic { username: None }),
            _ => {
                item.refuse(
                    "`inject` as a word is `bearer` or `basic`",
                    Some(r#"others need a name, such as `{ header = "X-Api-Key" }`"#.to_owned()),
                );
                None
            }
        };
    }
    let section = item.section(KEYS);
    let is_way = |item: &Item<'_, '_>| !AFFIXES.contains(&item.key().text.as_str());
    let mut ways = section.items().filter(is_way);
    let way = ways.next();
    if let Some(second) = ways.next() {
        second.refuse("a secret is attached in one way only", None);
        return None;
    }
    let Some(way) = way else {
        item.refuse(
            "`inject` is empty",
            Some("such as `\"bearer\"` or `{ header = \"X-Api-Key\" }`".to_owned()),
        );
        return None;
    };
    let key = way.key().text.as_str();
    if key != "header" && AFFIXES.iter().any(|affix| section.has(affix)) {
        way.refuse("`prefix` and `suffix` are for `header` only", None);
        return None;
    }
    match key {
        "bearer" => way.boolean().and_then(|on| {
            if !on.value {
                way.refuse("`bearer = false` attaches nothing", None);
            }
            on.value.then(Slot::bearer)
        }),
        "header" => header(&section, &way),
        "basic" => basic(&way),
        "query" => named(&way, is_query_name, |name| Slot::Query { name }),
        "cookie" => named(&way, is_token, |name| Slot::Cookie { name }),
        "path" => named(&way, is_path_template, |template| Slot::Path { template }),
        "json" | "sigv4" | "hmac" | "oauth2" | "google" | "github-app" | "mtls" => {
            way.not_supported_yet();
            None
        }
        // An unknown key: the section has said so.
        _ => None,
    }
}

/// What stands for a slot in a binding that we keep ourselves; reads back as the same slot.
pub(crate) fn describe(slot: &Slot) -> serde_json::Value {
    match slot {
        Slot::Header {
            name,
            prefix,
            suffix,
        } => json!({"header": name, "prefix": prefix, "suffix": suffix}),
        Slot::Basic { username: None } => json!({"basic": true}),
        Slot::Basic {
            username: Some(name),
        } => json!({"basic": name}),
        Slot::Query { name } => json!({"query": name}),
        Slot::Path { template } => json!({"path": template}),
        Slot::Cookie { name } => json!({"cookie": name}),
    }
}

fn header(section: &Section<'_>, way: &Item<'_, '_>) -> Option<Slot> {
    let name = way.text()?;
    if !is_token(name.value) || is_framing(name.value) {
        way.refuse(
            "this header cannot carry a secret",
            Some("a field of the request itself, such as `X-Api-Key`".to_owned()),
        );
        return None;
    }
    let [prefix, suffix] = AFFIXES.map(|key| affix(section, key));
    Some(Slot::header(name.value, prefix?, suffix?))
}

/// What stands around the secret in a header; nothing if nothing is said.
fn affix<'a>(section: &Section<'a>, key: &str) -> Option<&'a str> {
    let Some(item) = section.item(key) else {
        return Some("");
    };
    let text = item.text()?.value;
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        Some(text)
    } else {
        item.refuse(
            format!("`{key}` has characters that a header cannot have"),
            None,
        );
        None
    }
}

fn basic(way: &Item<'_, '_>) -> Option<Slot> {
    if matches!(way.node().value, Value::Boolean(true)) {
        return Some(Slot::Basic { username: None });
    }
    named(way, is_username, |name| Slot::Basic {
        username: Some(name),
    })
}

fn named(
    way: &Item<'_, '_>,
    is_good: fn(&str) -> bool,
    make: impl FnOnce(String) -> Slot,
) -> Option<Slot> {
    let text = way.text()?;
    if is_good(text.value) {
        Some(make(text.value.to_owned()))
    } else {
        let key = &way.key().text;
        let hint = match key.as_str() {
            "path" => "a path with one `{secret}`, such as `/bot{secret}/`",
            _ => "a name as it stands in the request",
        };
        way.refuse(format!("`{key}` cannot be this"), Some(hint.to_owned()));
        None
    }
}

/// A token of RFC 9110, section 5.6.2.
fn is_token(text: &str) -> bool {
    let is_tchar = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.len() <= 256 && text.bytes().all(is_tchar)
}

fn is_query_name(text: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    !text.is_empty() && text.len() <= 256 && text.bytes().all(is_good)
}

/// A colon would end the name (RFC 7617, section 2).
fn is_username(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 256
        && text
            .bytes()
            .all(|byte| (b' '..=b'~').contains(&byte) && byte != b':')
}

fn is_path_template(text: &str) -> bool {
    let is_good =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/{}".contains(&byte);
    text.starts_with('/')
        && text.len() <= 1024
        && text.bytes().all(is_good)
        && text.matches("{secret}").count() == 1
        && text
            .replace("{secret}", "")
            .bytes()
            .all(|byte| !b"{}".contains(&byte))
        && !text.split('/').any(|segment| matches!(segment, "." | ".."))
}

/// Fields that say how a message is framed or routed, and those of the hop to us.
fn is_framing(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("proxy-")
        || matches!(
            name.as_str(),
            "connection"
                | "content-length"
                | "cookie"
                | "expect"
                | "host"
                | "keep-alive"
                | "te"
                | "trailer"
                | "transfer-encoding"
                | "upgrade"
        )
}

const AFFIXES: [&str; 2] = ["prefix", "suffix"];

const KEYS: &[&str] = &[
    "bearer",
    "header",
    "prefix",
    "suffix",
    "basic",
    "query",
    "path",
    "cookie",
    "json",
    "sigv4",
    "hmac",
    "oauth2",
    "google",
    "github-app",
    "mtls",
];
