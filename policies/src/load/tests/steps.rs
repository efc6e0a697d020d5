//! What is left to a step.

use std::sync::Arc;

use super::*;
use crate::sandbox::NetworkMode;

const RULES: &str = r#"version = 1
[[allow]]
name = "orders"
host = "a.test"
paths = ["/v1/**"]
secret = "orders-key"
[[allow]]
use = "github"
secret = "gh"
[[allow]]
host = "*.wide.test"
[[deny]]
host = "a.test"
paths = ["/v1/admin"]
"#;

fn with(steps: &str) -> Arc<Policy> {
    Arc::new(good(&format!("{RULES}{steps}")))
}

fn step(policy: &Arc<Policy>, request: &str) -> bool {
    is_allowed(&policy.for_step(Some("publish")), request)
}

#[test]
fn a_step_has_the_rules_that_it_names_and_no_other() {
    for (named, own) in [
        ("orders", "GET https://a.test/v1/x"),
        ("a.test", "GET https://a.test/v1/x"),
        ("A.Test", "GET https://a.test/v1/x"),
        ("github", "GET https://api.github.com/user"),
        ("*.wide.test", "GET https://b.wide.test/"),
    ] {
        let policy = with(&format!("[steps.publish]\nallow = [\"{named}\"]\n"));
        for request in [
            "GET https://a.test/v1/x",
            "GET https://api.github.com/user",
            "GET https://b.wide.test/",
        ] {
            assert_eq!(step(&policy, request), request == own, "{named}: {request}");
            // The twin: the run has them all.
            assert!(is_allowed(&policy, request), "{request}");
        }
    }
}

#[test]
fn what_a_rule_does_not_allow_and_what_is_denied_stays_refused() {
    let policy = with("[steps.publish]\nallow = [\"orders\"]\n");
    assert!(step(&policy, "GET https://a.test/v1/x"));
    assert!(!step(&policy, "GET https://a.test/v2/x"));
    assert!(!step(&policy, "GET https://a.test/v1/admin"));
}

#[test]
fn a_host_leaves_only_that_host_of_a_provider() {
    let github = crate::catalogue::provider("github").unwrap();
    assert!(
        github.hosts.len() > 1,
        "the test needs a provider of several hosts"
    );
    let host = &github.hosts[0];
    let policy = with(&format!("[steps.publish]\nallow = [\"{host}\"]\n"));
    for other in &github.hosts {
        let request = format!("GET https://{other}/");
        assert_eq!(step(&policy, &request), other == host, "{other}");
    }
}

#[test]
fn a_step_that_is_not_named_has_the_runs_rights() {
    let policy = with("[steps.publish]\nallow = [\"orders\"]\n");
    for name in [None, Some("fetch"), Some(""), Some("Publish")] {
        let rights = policy.for_step(name);
        assert!(
            is_allowed(&rights, "GET https://api.github.com/user"),
            "{name:?}"
        );
    }
}

#[test]
fn a_step_without_a_network_reaches_nothing() {
    let policy = with("[steps.publish]\nnetwork = \"none\"\n");
    let rights = policy.for_step(Some("publish"));
    assert_eq!(rights.sandbox().network, NetworkMode::None);
    assert!(!is_allowed(&rights, "GET https://a.test/v1/x"));
    assert_eq!(rights.secrets().count(), 0);
    // The twin.
    assert_eq!(policy.sandbox().network, NetworkMode::ProxyOnly);
}

#[test]
fn a_step_has_the_secrets_of_its_rules_only() {
    let policy = with("[steps.publish]\nallow = [\"orders\"]\n");
    let rights = policy.for_step(Some("publish"));
    assert_eq!(rights.secrets().collect::<Vec<_>>(), ["orders-key"]);
    assert!(rights.uses("orders-key") && !rights.uses("gh"));
    assert!(policy.uses("gh"));
    let origins: Vec<_> = rights.rules().map(|rule| rule.origin()).collect();
    assert_eq!(origins, ["valetkey.toml:2", "valetkey.toml:12"]);
}

#[test]
fn two_rules_for_one_host_lend_a_step_only_the_secret_of_the_one_it_names() {
    let policy = Arc::new(good(
        "version = 1\n[[allow]]\nname = \"read\"\nhost = \"a.test\"\nsecret = \"reader\"\n[[allow]]\nname = \"write\"\nhost = \"a.test\"\nsecret = \"writer\"\n[steps.publish]\nallow = [\"write\"]\n",
    ));
    let rights = policy.for_step(Some("publish"));
    let sample = Sample::parse("GET https://a.test/").unwrap();
    let Decision::Allow(allowed) = sample.decide(&rights) else {
        panic!("refused");
    };
    assert_eq!(allowed.secrets.as_slice(), ["writer"]);
    assert_eq!(allowed.rule.name(), Some("write"));
}

#[test]
fn what_the_run_inspects_is_no_tunnel_for_a_step() {
    let policy = Arc::new(good(
        "version = 1\n[[allow]]\nname = \"seen\"\nhost = \"a.test\"\n[[allow]]\nname = \"unseen\"\nhost = \"a.test\"\nmode = \"tunnel\"\n[steps.publish]\nallow = [\"unseen\"]\n",
    ));
    let rights = policy.for_step(Some("publish"));
    let host = Host::parse("a.test").unwrap();
    let decision = rights.decide_connection(Scheme::Https, &host, 443);
    assert!(matches!(decision, crate::ConnectionDecision::Inspect));
    assert!(step(&policy, "GET https://a.test/"));
}

#[test]
fn a_mistake_in_a_step_is_told_with_its_place() {
    let cases = [
        (
            "[steps.publish]\nallow = [\"oders\"]",
            "16:10: no rule is called `oders` or is for it",
        ),
        (
            "[steps.publish]\nallow = [\"orders\", \"b.wide.test\"]",
            "16:20: no rule is called `b.wide.test` or is for it",
        ),
        ("[steps.publish]\nallow = []", "16:9: `allow` names no rule"),
        (
            "[steps.publish]\nallow = \"orders\"",
            "16:9: `steps.publish.allow` must be an array of strings, not a string",
        ),
        (
            "[steps.publish]",
            "15:1: the step says nothing about its rights",
        ),
        (
            "[steps.publish]\nallow = [\"orders\"]\nnetwork = \"none\"",
            "16:9: without a network no rule is of use",
        ),
        (
            "[steps.publish]\nnetwork = \"all\"",
            "16:11: `network` cannot be this",
        ),
        (
            "[steps.publish]\nalow = [\"orders\"]\nnetwork = \"proxy\"",
            "16:1: unknown key `alow`",
        ),
        (
            "[sandbox]\nnetwork = \"none\"\n[steps.publish]\nnetwork = \"proxy\"",
            "18:11: the run has no network, and a step may only have less",
        ),
    ];
    for (more, expected) in cases {
        assert_eq!(
            errors(&format!("{RULES}{more}\n"), &[]),
            [expected],
            "{more}"
        );
    }
    let found = errors(
        &format!("{RULES}[steps.\"../x\"]\nnetwork = \"none\"\n"),
        &[],
    );
    assert!(
        found[0].starts_with("15:8: `../x` is not the name of a step"),
        "{found:?}"
    );
}

#[test]
fn a_mistake_in_a_step_says_what_was_meant() {
    for (named, hint) in [
        ("oders", "did you mean `orders`?"),
        ("b.wide.test", "a rule is for `*.wide.test`; name it so"),
        ("zzzzzzzz", "the rules go by `*.wide.test`, "),
    ] {
        let text = format!("{RULES}[steps.publish]\nallow = [\"{named}\"]\n");
        let found = load_with(&text, &[]).unwrap_err();
        let told = found[0].hint.clone().unwrap();
        assert!(told.starts_with(hint), "{told}");
    }
    // A denied host is not one that can be left to a step.
    let text = "version = 1\n[[deny]]\nhost = \"a.test\"\n[steps.publish]\nallow = [\"a.test\"]\n";
    let found = load_with(text, &[]).unwrap_err();
    assert_eq!(found[0].hint.as_deref(), Some("there is no `[[allow]]`"));
}

#[test]
fn the_steps_are_part_of_the_digest() {
    let plain = with("");
    let one = with("[steps.publish]\nallow = [\"orders\"]\n");
    let same =
        with("# written otherwise\n[steps]\npublish = { allow = [\"a.test\", \"orders\" ] }\n");
    let other = with("[steps.publish]\nallow = [\"github\"]\n");
    let none = with("[steps.publish]\nnetwork = \"none\"\n");
    assert_eq!(one.digest(), same.digest());
    for (a, b) in [
        (&plain, &one),
        (&one, &other),
        (&other, &none),
        (&plain, &none),
    ] {
        assert_ne!(a.digest(), b.digest());
    }
    // A step's own part of a policy goes by the name of the whole.
    assert_eq!(one.for_step(Some("publish")).digest(), one.digest());
}

#[test]
fn what_is_shown_of_steps_loads_to_the_same_policy() {
    let policy = with(
        "[steps.publish]\nallow = [\"orders\", \"*.wide.test\"]\n[steps.quiet]\nnetwork = \"none\"\n",
    );
    let shown = policy.effective_toml();
    assert!(
        shown.contains("# from valetkey.toml:15\n[steps.\"publish\"]\n"),
        "{shown}"
    );
    assert_eq!(good(&shown).digest(), policy.digest(), "{shown}");
    let rights = policy.for_step(Some("publish")).effective_toml();
    assert!(
        rights.contains("orders") && !rights.contains("github"),
        "{rights}"
    );
    let cut_off = policy.for_step(Some("quiet")).effective_toml();
    assert!(
        cut_off.contains("network = \"none\"") && !cut_off.contains("[[allow]]"),
        "{cut_off}"
    );
}

const LOCKED: &str = "version = 1\nlocked = true\n[[allow]]\nhost = \"a.test\"\n[[allow]]\nhost = \"b.test\"\n[steps.publish]\nallow = [\"a.test\"]\n[steps.quiet]\nnetwork = \"none\"\n";

#[test]
fn a_locked_base_bounds_the_steps_too() {
    let own = "version = 1\nextends = [\"base.toml\"]\n[[allow]]\nhost = \"a.test\"\n[[allow]]\nhost = \"b.test\"\n";
    for (more, publish) in [
        ("", ["a.test"].as_slice()),
        (
            "[steps.publish]\nallow = [\"a.test\", \"b.test\"]\n",
            &["a.test"],
        ),
        ("[steps.publish]\nallow = [\"b.test\"]\n", &[]),
    ] {
        let policy = load_with(&format!("{own}{more}"), &[("base.toml", LOCKED)]).unwrap();
        let policy = Arc::new(policy);
        for host in ["a.test", "b.test"] {
            let request = format!("GET https://{host}/");
            assert_eq!(
                step(&policy, &request),
                publish.contains(&host),
                "{more}{host}"
            );
            assert!(!is_allowed(&policy.for_step(Some("quiet")), &request));
            assert!(is_allowed(&policy, &request));
        }
    }
    let wider = format!("{own}[steps.quiet]\nnetwork = \"proxy\"\n");
    let found = errors(&wider, &[("base.toml", LOCKED)]);
    assert_eq!(
        found,
        ["8:11: the locked base leaves the step `quiet` no network"]
    );
}

#[test]
fn a_file_without_allows_names_the_rules_of_its_locked_base() {
    let own = "version = 1\nextends = [\"base.toml\"]\n[steps.fetch]\nallow = [\"b.test\"]\n";
    let policy = Arc::new(load_with(own, &[("base.toml", LOCKED)]).unwrap());
    let rights = policy.for_step(Some("fetch"));
    assert!(is_allowed(&rights, "GET https://b.test/"));
    assert!(!is_allowed(&rights, "GET https://a.test/"));
}

#[test]
fn the_file_says_instead_of_an_unlocked_base() {
    let files = [
        (
            "one.toml",
            "version = 1\n[[allow]]\nhost = \"a.test\"\n[steps.publish]\nallow = [\"a.test\"]\n",
        ),
        (
            "two.toml",
            "version = 1\n[[allow]]\nhost = \"b.test\"\n[steps.publish]\nallow = [\"b.test\"]\n",
        ),
    ];
    let head = "version = 1\nextends = [\"one.toml\", \"two.toml\"]\n";
    let found = errors(head, &files);
    assert_eq!(
        found,
        ["4:1: one.toml:4 gives the step `publish` rights as well"]
    );
    let text = format!("{head}[steps.publish]\nallow = [\"b.test\"]\n");
    let policy = Arc::new(load_with(&text, &files).unwrap());
    assert!(step(&policy, "GET https://b.test/") && !step(&policy, "GET https://a.test/"));
    let one = "version = 1\nextends = [\"one.toml\"]\n[[allow]]\nhost = \"b.test\"\n";
    let policy = Arc::new(load_with(one, &files).unwrap());
    assert!(step(&policy, "GET https://a.test/") && !step(&policy, "GET https://b.test/"));
}

#[test]
fn more_steps_than_anybody_writes_are_refused() {
    let steps = |count| {
        (0..count)
            .map(|n| format!("[steps.s{n}]\nnetwork = \"none\"\n"))
            .collect::<String>()
    };
    assert!(errors(&format!("version = 1\n{}", steps(256)), &[]).is_empty());
    refused(&steps(257), "at most 256 steps");
    let rules: String = (0..300)
        .map(|n| format!("[[allow]]\nname = \"all\"\nhost = \"h{n}.test\"\n"))
        .collect();
    let named: String = (0..250)
        .map(|n| format!("[steps.s{n}]\nallow = [\"all\"]\n"))
        .collect();
    refused(&format!("{rules}{named}"), "the steps name too many rules");
}
