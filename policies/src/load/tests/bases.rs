//! What a policy and its bases say together.

use super::*;

#[test]
fn a_base_is_joined_and_its_settings_are_overridden() {
    let files = [(
        "base.toml",
        "version = 1\n[[allow]]\nhost = \"base.test\"\n[[deny]]\nhost = \"own.test\"\npaths = [\"/x\"]\n[limits]\nmemory = \"1GiB\"\nwall = \"1m\"\n",
    )];
    let policy = load_with(
        "version = 1\nextends = [\"base.toml\"]\n[[allow]]\nhost = \"own.test\"\n[limits]\nmemory = \"3GiB\"\n",
        &files,
    )
    .unwrap();
    assert!(is_allowed(&policy, "GET https://base.test/"));
    assert!(is_allowed(&policy, "GET https://own.test/"));
    assert!(!is_allowed(&policy, "GET https://own.test/x"));
    assert_eq!(policy.limits().memory, Some(3 << 30));
    assert_eq!(
        policy.limits().wall,
        Some(std::time::Duration::from_secs(60))
    );
}

const LOCKED: &str = "version = 1\nlocked = true\n[[allow]]\nhost = \"a.test\"\npaths = [\"/v1/**\"]\nsecret = \"k\"\n[[allow]]\nhost = \"b.test\"\n[limits]\nmemory = \"1GiB\"\n[sandbox]\nworkspace = { mode = \"read-only\" }\n";

#[test]
fn a_locked_base_can_only_be_narrowed() {
    let files = [("base.toml", LOCKED)];
    let policy = load_with(
        "version = 1\nextends = [\"base.toml\", \"preset:python-packages\"]\n[[allow]]\nhost = \"a.test\"\nsecret = \"k\"\n[[allow]]\nhost = \"c.test\"\n",
        &files,
    )
    .unwrap();
    assert!(is_allowed(&policy, "GET https://a.test/v1/x"));
    assert!(
        !is_allowed(&policy, "GET https://a.test/v2/x"),
        "the base says /v1"
    );
    assert!(
        !is_allowed(&policy, "GET https://b.test/"),
        "the file does not ask for it"
    );
    assert!(
        !is_allowed(&policy, "GET https://c.test/"),
        "the base does not have it"
    );
    assert!(!is_allowed(
        &policy,
        "GET https://packages.test:8443/simple/x"
    ));
    assert_eq!(policy.limits().memory, Some(1 << 30));
}

#[test]
fn a_file_without_allows_has_what_its_locked_base_has() {
    let policy = load_with(
        "version = 1\nextends = [\"base.toml\"]\n[[deny]]\nhost = \"b.test\"\n",
        &[("base.toml", LOCKED)],
    )
    .unwrap();
    assert!(is_allowed(&policy, "GET https://a.test/v1/x"));
    assert!(!is_allowed(&policy, "GET https://b.test/"));
    assert_eq!(policy.secrets().collect::<Vec<_>>(), ["k"]);
}

#[test]
fn widening_a_locked_base_is_an_error_at_its_place() {
    let head = "version = 1\nextends = [\"base.toml\"]\n";
    for (more, expected) in [
        (
            "[limits]\nmemory = \"2GiB\"\n",
            "4:10: \"2GiB\" is more than the locked base allows (\"1GiB\")",
        ),
        (
            "[sandbox]\nworkspace = { mode = \"overlay\" }\n",
            "4:22: overlay is more than the locked base allows (read-only)",
        ),
        (
            "[sandbox]\nread = [\"/data\"]\n",
            "4:9: the locked base does not show `/data`",
        ),
        (
            "[[allow]]\nhost = \"a.test\"\nsecret = \"other\"\n",
            "3:1: the locked base does not use the secret `other`",
        ),
    ] {
        let found = errors(&format!("{head}{more}"), &[("base.toml", LOCKED)]);
        assert_eq!(found, [expected], "{more}");
    }
}

#[test]
fn bases_that_lead_back_or_out_are_refused() {
    let files = [
        ("a.toml", "version = 1\nextends = [\"b.toml\"]\n"),
        ("b.toml", "version = 1\nextends = [\"a.toml\"]\n"),
        ("self.toml", "version = 1\nextends = [\"valetkey.toml\"]\n"),
        ("valetkey.toml", "version = 1\n"),
    ];
    for path in ["a.toml", "self.toml"] {
        let found = errors(&format!("version = 1\nextends = [\"{path}\"]\n"), &files);
        assert!(found[0].contains("extends itself"), "{found:?}");
    }
    for path in [
        "../a.toml",
        "/etc/a.toml",
        "x/../../a.toml",
        "~/a.toml",
        "",
        "C:\\\\a",
        "./a.toml",
    ] {
        let found = errors(&format!("version = 1\nextends = [\"{path}\"]\n"), &files);
        assert!(found[0].contains("own folder"), "{path}: {found:?}");
    }
    let found = errors("version = 1\nextends = [\"none.toml\"]\n", &files);
    assert_eq!(found, ["2:12: `none.toml` cannot be read: no such file"]);
}

#[test]
fn an_error_in_a_base_names_the_base() {
    let found = load_with(
        "version = 1\nextends = [\"b.toml\"]\n",
        &[("b.toml", "version = 1\nx = 1\n")],
    );
    let found = found.unwrap_err();
    assert_eq!((found[0].file.as_str(), found[0].line), ("b.toml", 2));
}

#[test]
fn package_presets_allow_reading_from_the_owners_own_hosts() {
    let policy = load_with("version = 1\nextends = [\"preset:python-packages\"]\n", &[]).unwrap();
    assert!(is_allowed(
        &policy,
        "GET https://packages.test:8443/simple/requests/"
    ));
    assert!(is_allowed(
        &policy,
        "HEAD https://packages.test:8443/simple/"
    ));
    assert!(!is_allowed(
        &policy,
        "POST https://packages.test:8443/simple/"
    ));
    assert!(!is_allowed(
        &policy,
        "GET https://packages.test:8443/legacy/"
    ));
    assert!(!is_allowed(&policy, "GET https://packages.test/simple/"));
    let found = errors("version = 1\nextends = [\"preset:go-packages\"]\n", &[]);
    assert!(found[0].contains("no index is configured"), "{found:?}");
}

#[test]
fn every_preset_loads() {
    for name in crate::presets::names().filter(|name| !crate::presets::PACKAGES.contains(name)) {
        good(&format!("version = 1\nextends = [\"preset:{name}\"]\n"));
    }
    let found = load_with("version = 1\nextends = [\"preset:quite\"]\n", &[]).unwrap_err();
    assert_eq!(
        found[0].hint.as_deref(),
        Some("did you mean `preset:quiet`?")
    );
}
