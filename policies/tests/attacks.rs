//! Known attacks on hosts and paths, by their number in the catalogue of attacks.

use policies::sample::Sample;
use policies::{Authority, Decision, Document, Host, Origin, Policy, RequestPath, Sources, load};

/// Authorities that are refused before any policy is asked.
#[test]
fn an_authority_that_hides_something_is_refused() {
    let long_label = format!("{}.wild.test:1", "a".repeat(64));
    let long_name = format!("{}test:1", "a.".repeat(126));
    for (id, text) in [
        ("HST-005", "allowed.test..:18100"),
        ("HST-011", "allowed.test@evil.test:18100"),
        ("HST-012", "allowed.test:18100@evil.test:18100"),
        ("HST-013", "allowed.test:x@evil.test:18100"),
        ("HST-015", "evil.test\\@allowed.test:18100"),
        ("HST-016", "evil.test\\.wild.test:18100"),
        ("HST-017", "evil.test:18100#@allowed.test"),
        ("HST-018", "evil.test:18100?@allowed.test"),
        ("HST-020", "evil.test%00.wild.test:18100"),
        ("HST-022", "evil.test\0.wild.test:18200"),
        ("HST-025", "\u{ff41}llowed.test:18100"),
        ("HST-026", "allowed\u{3002}test:18100"),
        ("HST-027", "al\u{ad}lowed.test:18100"),
        ("HST-030", "[allowed.test]:18200"),
        ("HST-031", "[[evil.test]]:18200"),
        ("HST-033", ":18100"),
        ("HST-035", "allowed..test:18200"),
        ("HST-036", &long_name),
        ("HST-037", &long_label),
        ("HST-038", "allowed.test :18200"),
        ("HST-039", "allowed.test\t:18200"),
        ("HST-040", "*.wild.test:18200"),
        ("HST-043", "allowed.test:65536"),
        ("HST-044", "allowed.test:0"),
        ("HST-045", "allowed.test:"),
        ("HST-046", "allowed.test:18200:1"),
        ("HST-047", "allowed.test:https"),
        ("HST-048", "allowed.test:+443"),
        ("HST-049", "allowed.test:0443"),
        ("HST-061", "allowed.test:18100, evil.test:18100"),
        ("IPA-018", "[::1%lo]:18100"),
        ("IPA-018", "[::1%25lo]:18100"),
        ("IPA-023", "127%2e0%2e0%2e3:18100"),
        ("IPA-024", "\u{ff11}27.0.0.3:18100"),
        ("IPA-026", "127\u{3002}0\u{3002}0\u{3002}3:18100"),
        ("IPA", "::1:18100"),
        ("IPA", "256.0.0.1:1"),
        ("IPA", "1.2.3.4.5:1"),
        ("IPA", "evil.0x7f:1"),
        ("IPA", "0x100000000:1"),
        ("IPA", "09.0.0.1:1"),
    ] {
        assert!(Authority::parse(text, None).is_err(), "{id} {text:?}");
    }
}

#[test]
fn spellings_of_one_host_are_one_host() {
    let loopback = "127.0.0.3";
    for (id, text, canonical) in [
        ("HST-001", "allowed.test", "allowed.test"),
        ("HST-002", "ALLOWED.Test", "allowed.test"),
        ("HST-003", "allowed.test.", "allowed.test"),
        ("HST-029", "xn--bcher-kva.test", "xn--bcher-kva.test"),
        ("IPA-002", "127.3", loopback),
        ("IPA-003", "2130706435", loopback),
        ("IPA-004", "0x7f000003", loopback),
        ("IPA-005", "017700000003", loopback),
        ("IPA-006", "0177.0.0.3", loopback),
        ("IPA-008", "127.0.0.3.", loopback),
        ("IPA-009", "[::ffff:127.0.0.3]", loopback),
        ("IPA-010", "[::ffff:7f00:3]", loopback),
        ("IPA-013", "[0:0:0:0:0:0:0:1]", "::1"),
        ("IPA-019", "[64:FF9B::7F00:3]", "64:ff9b::7f00:3"),
    ] {
        let authority = Authority::parse(text, Some(443)).unwrap();
        assert_eq!(authority.host.to_string(), canonical, "{id}");
    }
    for text in ["bücher.test", "BÜCHER.test", "bu\u{308}cher\u{3002}test"] {
        assert_eq!(
            Host::parse(text).unwrap().to_string(),
            "xn--bcher-kva.test",
            "HST-029"
        );
    }
    assert!(Host::parse("xn--\u{ff41}.test").is_err());
    assert!(Host::parse("xn--a.test").is_err(), "a false A-label");
}

#[test]
fn a_path_that_hides_something_is_refused() {
    for (id, text) in [
        ("HST-017", "/#@allowed.test"),
        ("HST-067", "allowed.test:18100"),
        ("HST-066", "*"),
        ("PTH-006", "/v1/%2E%2e/secret"),
        ("PTH-006", "/v1/.%2e/secret"),
        ("PTH-008", "/v1/x%2f..%2fadmin"),
        ("PTH-010", "/v1/%252e%252e/secret"),
        ("PTH-015", "/v1/..;/secret"),
        ("PTH-015", "/v1/.;x=1/secret"),
        ("PTH-016", "/v1/%2e%2e;/admin"),
        ("PTH-017", "/v1\\admin"),
        ("PTH-018", "/v1/x%5c..%5cadmin"),
        ("PTH-020", "/v1/admin%00"),
        ("PTH-023", "/v1/%c0%afadmin"),
        ("PTH-024", "/v1/%u0061dmin"),
        ("PTH-030", "/v1/%zzadmin"),
        ("PTH-030", "/v1/admin%"),
        ("PTH-031", "/v1/\u{e9}admin"),
        ("PTH-032", "/v1/\tadmin"),
        ("PTH-033", "/../../v1/admin"),
        ("PTH", "/v1/a b"),
        ("PTH", "/v1/%0d%0aX:1"),
        ("PTH", "/v1/..%20/admin"),
        ("PTH", "/v1/a?x=1 2"),
    ] {
        assert!(RequestPath::parse(text).is_err(), "{id} {text:?}");
    }
}

#[test]
fn a_path_is_sent_in_its_canonical_form() {
    for (text, sent) in [
        ("", "/"),
        ("?a=1", "/?a=1"),
        ("/v1/ok", "/v1/ok"),
        ("/v1/./ok", "/v1/ok"),
        ("/v1/x/../ok", "/v1/ok"),
        ("/v1/x/..", "/v1/"),
        ("/v1/%61dmin", "/v1/admin"),
        ("/v1/a%2fb", "/v1/a%2Fb"),
        ("/v1/%7euser", "/v1/~user"),
        ("/v1/{id}|x", "/v1/%7Bid%7D%7Cx"),
        ("/v1/a%20b", "/v1/a%20b"),
        ("/v1/caf%c3%a9", "/v1/caf%C3%A9"),
        ("/v1/.hidden/...", "/v1/.hidden/..."),
        ("/v1/ok?/../../secret", "/v1/ok?/../../secret"),
        ("/v1?a=%7e&b={}|", "/v1?a=%7e&b={}|"),
        ("/v1/a@b:c;d=1,2", "/v1/a@b:c;d=1,2"),
    ] {
        assert_eq!(RequestPath::parse(text).unwrap().sent(), sent, "{text}");
    }
}

struct Nothing;

impl Sources for Nothing {
    fn document(&mut self, _: &str, _: &str) -> Result<Document, String> {
        Err("nothing".into())
    }

    fn packages(&mut self, _: &str) -> Result<Vec<Origin>, String> {
        Err("nothing".into())
    }
}

fn policy() -> Policy {
    let text = "version = 1\n\
        [[allow]]\nhost = \"allowed.test\"\n\
        [[allow]]\nhost = \"*.wild.test\"\n\
        [[allow]]\nhost = \"paths.test\"\npaths = [\"/v1/**\"]\nmethods = [\"GET\"]\n\
        [[deny]]\nhost = \"paths.test\"\npaths = [\"/v1/admin/**\"]\n";
    load(
        Document {
            name: "valetkey.toml".into(),
            text: text.into(),
        },
        &mut Nothing,
    )
    .expect("the policy is right")
}

/// Whether the request would be let out. What cannot be parsed is not.
fn is_let_out(policy: &Policy, request: &str) -> bool {
    Sample::parse(request).is_ok_and(|sample| matches!(sample.decide(policy), Decision::Allow(_)))
}

#[test]
fn a_forbidden_host_is_not_reached_by_any_spelling() {
    let policy = policy();
    for (id, host) in [
        ("HST-004", "evil.test."),
        ("HST-006", "evilwild.test"),
        ("HST-008", "wild.test"),
        ("HST-010", "allowed.test.evil.test"),
        ("HST-028", "xn--llowed-2fg.test"),
        ("HST-041", "allowed.test:22"),
        ("IPA-053", "127.0.0.3"),
    ] {
        assert!(
            !is_let_out(&policy, &format!("GET https://{host}/")),
            "{id}"
        );
    }
    assert!(is_let_out(&policy, "GET https://allowed.test/"));
    assert!(is_let_out(&policy, "GET https://x.wild.test/"));
}

#[test]
fn a_forbidden_path_is_not_reached_by_any_spelling() {
    let policy = policy();
    for (id, path) in [
        ("PTH-002", "/v1/admin"),
        ("PTH-004", "/v1/../secret"),
        ("PTH-009", "/v1%2fadmin"),
        ("PTH-011", "/v1//admin"),
        ("PTH-012", "//v1/admin"),
        ("PTH-013", "/v1/./admin"),
        ("PTH-014", "/v1/admin;x=1"),
        ("PTH-019", "/v1/%61dmin"),
        ("PTH-021", "/v1/admin."),
        ("PTH-022", "/v1/admin%20"),
        ("PTH-034", "/v1/ok%3f/../admin"),
        ("PTH", "/v1/Admin"),
        ("PTH", "/v1/x%2F%2Fadmin/../../v1/admin"),
        ("PTH", "/v1;a/admin;b"),
        ("PTH", "/v1/admin/"),
    ] {
        assert!(
            !is_let_out(&policy, &format!("GET https://paths.test{path}")),
            "{id} {path}"
        );
    }
    for path in [
        "/v1/ok",
        "/v1/administrator",
        "/v1/ok?next=/v1/admin",
        "/v1/a;b=1",
        "/v1/a%2Fb",
        "/v1/a//b",
    ] {
        assert!(
            is_let_out(&policy, &format!("GET https://paths.test{path}")),
            "{path}"
        );
    }
    assert!(
        !is_let_out(&policy, "Get https://paths.test/v1/ok"),
        "PTH-035"
    );
}
