//! The decision table.

use super::*;
use crate::load::{Document, NoSources, load};
use crate::sample::Sample;

fn policy(text: &str) -> Policy {
    let document = Document {
        name: "valetkey.toml".into(),
        text: format!("version = 1\n{text}"),
    };
    match load(document, &mut NoSources) {
        Ok(policy) => policy,
        Err(found) => panic!(
            "{}",
            found
                .iter()
                .map(|d| d.to_string())
                .collect::<Vec<_>>()
                .join("\n")
        ),
    }
}

fn outcome(policy: &Policy, request: &str) -> &'static str {
    match Sample::parse(request).unwrap().decide(policy) {
        Decision::Allow(_) => "allow",
        Decision::Deny(refusal) => refusal.code.as_str(),
    }
}

#[track_caller]
fn check(text: &str, cases: &[(&str, &str)]) {
    let policy = policy(text);
    for (request, expected) in cases {
        assert_eq!(outcome(&policy, request), *expected, "{request}");
    }
}

#[test]
fn no_rule_means_no_access() {
    check("", &[("GET https://api.test/", "host-not-allowed")]);
}

#[test]
fn a_host_is_allowed_on_its_default_port_only() {
    check(
        "[[allow]]\nhost = \"api.test\"\n",
        &[
            ("GET https://api.test/", "allow"),
            ("GET https://API.test./", "allow"),
            ("GET https://api.test:8443/", "port-not-allowed"),
            ("GET http://api.test/", "port-not-allowed"),
            ("GET http://api.test:443/", "port-not-allowed"),
            ("GET https://xapi.test/", "host-not-allowed"),
            ("GET https://a.api.test/", "host-not-allowed"),
        ],
    );
}

#[test]
fn plain_http_is_allowed_where_it_is_written() {
    check(
        "[[allow]]\nhost = \"api.test\"\nscheme = \"http\"\n",
        &[
            ("GET http://api.test/", "allow"),
            ("GET https://api.test/", "port-not-allowed"),
        ],
    );
}

#[test]
fn a_wildcard_means_every_name_below_and_not_the_apex() {
    check(
        "[[allow]]\nhost = \"*.wild.test\"\n",
        &[
            ("GET https://a.wild.test/", "allow"),
            ("GET https://a.b.c.wild.test/", "allow"),
            ("GET https://wild.test/", "host-not-allowed"),
            ("GET https://evilwild.test/", "host-not-allowed"),
            ("GET https://wild.test.evil.test/", "host-not-allowed"),
        ],
    );
}

#[test]
fn every_spelling_of_an_address_is_one_host() {
    check(
        "[[allow]]\nhost = \"10.0.0.1\"\n",
        &[
            ("GET https://10.0.0.1/", "allow"),
            ("GET https://0x0a000001/", "allow"),
            ("GET https://012.0.1/", "allow"),
            ("GET https://[::ffff:10.0.0.1]/", "allow"),
            ("GET https://10.0.0.2/", "host-not-allowed"),
        ],
    );
}

#[test]
fn methods_and_paths_are_told_apart() {
    check(
        "[[allow]]\nhost = \"api.test\"\nmethods = [\"GET\"]\npaths = [\"/v1/**\", \"/items/{id}\"]\n",
        &[
            ("GET https://api.test/v1/a/b", "allow"),
            ("GET https://api.test/v1", "allow"),
            ("GET https://api.test/items/7", "allow"),
            ("GET https://api.test/items/7/8", "path-not-allowed"),
            ("GET https://api.test/items/", "path-not-allowed"),
            ("POST https://api.test/v1/a", "method-not-allowed"),
            ("get https://api.test/v1/a", "method-not-allowed"),
            ("GET https://api.test/v2/a", "path-not-allowed"),
            ("GET https://api.test/V1/a", "path-not-allowed"),
        ],
    );
}

#[test]
fn a_deny_wins_wherever_it_stands() {
    let allow = "[[allow]]\nhost = \"api.test\"\n";
    let deny = "[[deny]]\nhost = \"api.test\"\npaths = [\"/admin/**\"]\n";
    for text in [format!("{allow}{deny}"), format!("{deny}{allow}")] {
        check(
            &text,
            &[
                ("GET https://api.test/", "allow"),
                ("GET https://api.test/admin", "denied-by-rule"),
                ("GET https://api.test/ADMIN/x", "denied-by-rule"),
                ("GET https://api.test//admin/x", "denied-by-rule"),
                ("GET https://api.test/admin%2Fx", "denied-by-rule"),
                ("GET https://api.test/admin;v=1/x", "denied-by-rule"),
                ("GET https://api.test/%61dmin./x", "denied-by-rule"),
                ("GET https://api.test/administrator", "allow"),
            ],
        );
    }
}

#[test]
fn an_encoded_slash_is_allowed_only_where_both_readings_are() {
    check(
        "[[allow]]\nhost = \"npm.test\"\npaths = [\"/-/one/*\", \"/pkg/**\"]\n",
        &[
            ("GET https://npm.test/pkg/@scope%2Fname", "allow"),
            ("GET https://npm.test/-/one/a", "allow"),
            ("GET https://npm.test/-/one/a%2Fb", "path-not-allowed"),
            ("GET https://npm.test/pkg%2Fa", "path-not-allowed"),
        ],
    );
}

#[test]
fn a_condition_on_the_query_must_hold() {
    check(
        "[[allow]]\nhost = \"api.test\"\nquery = { tenant = \"acme\" }\n",
        &[
            ("GET https://api.test/?tenant=acme", "allow"),
            ("GET https://api.test/?tenant=evil", "condition-not-met"),
            (
                "GET https://api.test/?tenant=acme&tenant=evil",
                "condition-not-met",
            ),
            ("GET https://api.test/", "condition-not-met"),
        ],
    );
}

#[test]
fn a_deny_holds_when_nobody_can_say() {
    check(
        "[[allow]]\nhost = \"api.test\"\n[[deny]]\nhost = \"api.test\"\nquery = { mode = \"admin\" }\n",
        &[
            ("GET https://api.test/?mode=user", "allow"),
            ("GET https://api.test/?mode=admin", "denied-by-rule"),
            ("GET https://api.test/?mode=user&mode=x", "denied-by-rule"),
            ("GET https://api.test/?mode=%zz", "denied-by-rule"),
        ],
    );
}

#[test]
fn what_the_catalogue_refuses_needs_to_be_named() {
    check(
        "[[allow]]\nuse = \"openai\"\nsecret = \"k\"\n",
        &[
            ("POST https://api.openai.com/v1/responses", "allow"),
            (
                "DELETE https://api.openai.com/v1/files/x",
                "path-not-allowed",
            ),
            (
                "GET https://api.openai.com/v1/organization/users",
                "path-not-allowed",
            ),
        ],
    );
    check(
        "[[allow]]\nuse = \"openai\"\nonly = [\"DELETE /v1/files/{id}\", \"* /v1/**\"]\n",
        &[
            ("DELETE https://api.openai.com/v1/files/x", "allow"),
            (
                "DELETE https://api.openai.com/v1/models/x",
                "path-not-allowed",
            ),
            (
                "GET https://api.openai.com/v1/organization/users",
                "path-not-allowed",
            ),
            ("GET https://api.openai.com/v1/models", "allow"),
        ],
    );
}

#[test]
fn the_secrets_of_all_matching_rules_are_given_once() {
    let policy = policy(
        "[[allow]]\nhost = \"api.test\"\nsecret = \"a\"\npaths = [\"/a/**\"]\n\
         [[allow]]\nhost = \"*.api.test\"\nsecret = \"c\"\n\
         [[allow]]\nhost = \"api.test\"\nsecret = \"b\"\n[[allow]]\nhost = \"api.test\"\nsecret = \"b\"\nmethods = [\"GET\"]\n",
    );
    let secrets = |request: &str| match Sample::parse(request).unwrap().decide(&policy) {
        Decision::Allow(allowed) => allowed.secrets.to_vec(),
        Decision::Deny(_) => vec!["denied"],
    };
    assert_eq!(secrets("GET https://api.test/x"), ["b"]);
    assert_eq!(secrets("GET https://api.test/a/x"), ["a", "b"]);
    assert_eq!(policy.secrets().collect::<Vec<_>>(), ["a", "b", "c"]);
}

#[test]
fn an_upgrade_is_refused_where_no_rule_says_so() {
    let policy = policy("[[allow]]\nhost = \"api.test\"\n");
    let host = Host::parse("api.test").unwrap();
    let target = RequestPath::parse("/").unwrap();
    for (upgrade, expected) in [(false, None), (true, Some(RefusalCode::UpgradeNotAllowed))] {
        let decision = policy.decide(&Request {
            scheme: Scheme::Https,
            host: &host,
            port: 443,
            method: "GET",
            target: &target,
            headers: &NoFields,
            upgrade,
        });
        let code = match decision {
            Decision::Allow(_) => None,
            Decision::Deny(refusal) => Some(refusal.code),
        };
        assert_eq!(code, expected);
    }
}

fn connection(policy: &Policy, host: &str, port: u16) -> String {
    let host = Host::parse(host).unwrap();
    match policy.decide_connection(Scheme::Https, &host, port) {
        ConnectionDecision::Refuse(refusal) => refusal.code.to_string(),
        ConnectionDecision::Inspect => "inspect".into(),
        ConnectionDecision::Tunnel(rule) => format!("tunnel {}", rule.origin()),
    }
}

#[test]
fn a_tunnel_is_a_tunnel_until_something_has_to_be_read() {
    let tunnel = "[[allow]]\nhost = \"pinned.test\"\nmode = \"tunnel\"\n";
    let cases = [
        ("", "tunnel valetkey.toml:2"),
        (
            "[[allow]]\nhost = \"pinned.test\"\nmethods = [\"GET\"]\n",
            "inspect",
        ),
        (
            "[[deny]]\nhost = \"pinned.test\"\npaths = [\"/x\"]\n",
            "inspect",
        ),
        ("[[deny]]\nhost = \"pinned.test\"\n", "denied-by-rule"),
        (
            "[[deny]]\nhost = \"*.test\"\nports = [80]\n",
            "tunnel valetkey.toml:2",
        ),
    ];
    for (more, expected) in cases {
        let policy = policy(&format!("{tunnel}{more}"));
        assert_eq!(connection(&policy, "pinned.test", 443), expected, "{more}");
        assert_eq!(connection(&policy, "other.test", 443), "host-not-allowed");
    }
    assert_eq!(
        connection(&policy(tunnel), "pinned.test", 8443),
        "port-not-allowed"
    );
}

#[test]
fn a_total_deny_tells_its_reason() {
    let policy = policy("[[deny]]\nhost = \"*.test\"\nreason = \"no\"\n");
    let host = Host::parse("a.test").unwrap();
    let ConnectionDecision::Refuse(refusal) = policy.decide_connection(Scheme::Http, &host, 80)
    else {
        panic!("it is allowed");
    };
    assert_eq!(refusal.reason, Some("no"));
}

#[test]
fn a_policy_is_shared_between_threads() {
    fn is_shared<T: Send + Sync>(_: &T) {}
    is_shared(&policy(""));
}

struct Header(&'static [(&'static str, &'static str)]);

impl Fields for Header {
    fn values(&self, name: &str) -> Vec<&[u8]> {
        let found = self.0.iter().filter(|(field, _)| *field == name);
        found.map(|(_, value)| value.as_bytes()).collect()
    }
}

#[test]
fn a_condition_on_a_header_field_must_hold_of_its_only_value() {
    let policy =
        policy("[[allow]]\nhost = \"api.test\"\nwhen.header = { X-Team = [\"a\", \"b\"] }\n");
    let host = Host::parse("api.test").unwrap();
    let target = RequestPath::parse("/").unwrap();
    for (fields, is_allowed) in [
        (&[("x-team", "b")] as &[_], true),
        (&[("x-team", "c")], false),
        (&[("x-team", "a"), ("x-team", "b")], false),
        (&[], false),
    ] {
        let decision = policy.decide(&Request {
            scheme: Scheme::Https,
            host: &host,
            port: 443,
            method: "GET",
            target: &target,
            headers: &Header(fields),
            upgrade: false,
        });
        assert_eq!(
            matches!(decision, Decision::Allow(_)),
            is_allowed,
            "{fields:?}"
        );
    }
}
