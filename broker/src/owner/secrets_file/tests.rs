//! What the owner may write, and what is refused.

use super::*;

fn home() -> Home {
    Home(Some(PathBuf::from("/home/owner")))
}

fn one(body: &str) -> Result<Binding, Vec<Diagnostic>> {
    let text = format!("[internal]\n{body}\n");
    parse("secrets.toml", &text, &home()).map(|mut all| all.remove(0))
}

fn with_inject(inject: &str) -> Result<Binding, Vec<Diagnostic>> {
    one(&format!(
        "hosts = [\"api.example.com\"]\ninject = {inject}\nsource = {{ env = \"ORDERS_KEY\" }}"
    ))
}

fn with(line: &str) -> Result<Binding, Vec<Diagnostic>> {
    one(&format!(
        "hosts = [\"api.example.com\"]\ninject = \"bearer\"\nsource = {{ env = \"ORDERS_KEY\" }}\n{line}"
    ))
}

fn with_source(source: &str) -> Result<Binding, Vec<Diagnostic>> {
    one(&format!(
        "hosts = [\"api.example.com\"]\ninject = \"bearer\"\nsource = {source}"
    ))
}

fn message(result: Result<Binding, Vec<Diagnostic>>) -> String {
    match result {
        Ok(_) => "accepted".to_owned(),
        Err(found) => found[0].message.clone(),
    }
}

#[test]
fn the_ways_to_attach_a_secret_are_read() {
    let cases = [
        ("\"bearer\"", Slot::bearer()),
        ("{ bearer = true }", Slot::bearer()),
        (
            "{ header = \"X-Api-Key\" }",
            Slot::header("x-api-key", "", ""),
        ),
        (
            "{ header = \"Authorization\", prefix = \"Token \" }",
            Slot::header("authorization", "Token ", ""),
        ),
        ("\"basic\"", Slot::Basic { username: None }),
        (
            "{ basic = \"git\" }",
            Slot::Basic {
                username: Some("git".to_owned()),
            },
        ),
        (
            "{ query = \"key\" }",
            Slot::Query {
                name: "key".to_owned(),
            },
        ),
        (
            "{ cookie = \"session\" }",
            Slot::Cookie {
                name: "session".to_owned(),
            },
        ),
        (
            "{ path = \"/bot{secret}/\" }",
            Slot::Path {
                template: "/bot{secret}/".to_owned(),
            },
        ),
    ];
    for (inject, slot) in cases {
        let Ok(binding) = with_inject(inject) else {
            panic!("{inject} is refused");
        };
        assert_eq!(binding.slots, [slot]);
    }
}

#[test]
fn what_cannot_carry_a_secret_is_refused() {
    let cases = [
        "{}",
        "\"header\"",
        "{ bearer = false }",
        "{ header = \"Host\" }",
        "{ header = \"Proxy-Authorization\" }",
        "{ header = \"X Key\" }",
        "{ header = \"A\", query = \"b\" }",
        "{ header = \"A\", prefix = \"\\r\\n\" }",
        "{ query = \"a&b\" }",
        "{ path = \"/bot/\" }",
        "{ path = \"/{secret}/{secret}\" }",
        "{ path = \"/../{secret}\" }",
        "{ basic = \"a:b\" }",
        "7",
    ];
    for inject in cases {
        assert!(with_inject(inject).is_err(), "{inject}");
    }
}

#[test]
fn what_is_not_built_yet_is_refused_and_not_ignored() {
    for inject in ["sigv4", "oauth2", "mtls"] {
        let message = message(with_inject(&format!("{{ {inject} = \"x\" }}")));
        assert!(message.contains("not supported yet"), "{message}");
    }
    for line in ["limits = { requests = 5 }", "capture = { path = \"/t\" }"] {
        assert!(message(with(line)).contains("not supported yet"));
    }
    for source in ["{ vault = \"x\" }", "{ keyring = \"x\" }"] {
        assert!(message(with_source(source)).contains("not supported yet"));
    }
}

#[test]
fn the_sources_are_read() {
    let cases = [
        ("{ env = \"A\" }", Source::Env("A".to_owned())),
        (
            "{ file = \"/etc/keys/a\" }",
            Source::File("/etc/keys/a".into()),
        ),
        (
            "{ file = \"~/keys/a\" }",
            Source::File("/home/owner/keys/a".into()),
        ),
        (
            "{ command = [\"op\", \"read\", \"x\"] }",
            Source::Command(["op", "read", "x"].map(str::to_owned).to_vec()),
        ),
        ("{ store = true }", Source::Store("internal".to_owned())),
    ];
    for (text, source) in cases {
        let Ok(binding) = with_source(text) else {
            panic!("{text} is refused");
        };
        assert_eq!(binding.source, source);
    }
}

#[test]
fn a_source_that_is_unclear_is_refused() {
    let cases = [
        "{}",
        "{ env = \"A\", file = \"/a\" }",
        "{ file = \"keys/a\" }",
        "{ file = \"/keys/../a\" }",
        "{ command = \"op read\" }",
        "{ command = [] }",
        "{ store = false }",
        "{ elsewhere = \"x\" }",
        "\"env\"",
    ];
    for source in cases {
        assert!(with_source(source).is_err(), "{source}");
    }
}

#[test]
fn a_secret_needs_a_place_to_go_and_a_source() {
    assert!(one("source = { env = \"A\" }").is_err());
    assert!(one("hosts = [\"a.example.com\"]\nsource = { env = \"A\" }").is_err());
    assert!(one("hosts = []\ninject = \"bearer\"\nsource = { env = \"A\" }").is_err());
    assert!(one("hosts = [\"a.example.com\"]\ninject = \"bearer\"").is_err());
}

#[test]
fn a_host_that_covers_strangers_is_refused() {
    for host in ["*", "*.com", "*.co.uk", "a.*.com"] {
        let text = format!("hosts = [\"{host}\"]\ninject = \"bearer\"\nsource = {{ env = \"A\" }}");
        assert!(one(&text).is_err(), "{host}");
    }
}

#[test]
fn a_secret_from_a_variable_is_a_placeholder_in_the_same_variable() {
    assert_eq!(with("").ok().unwrap().variables, ["ORDERS_KEY"]);
    assert_eq!(
        with("variables = [\"API_KEY\"]").ok().unwrap().variables,
        ["API_KEY"]
    );
}

#[test]
fn a_placeholder_does_not_go_into_a_variable_of_the_system() {
    for name in [
        "PATH",
        "LD_PRELOAD",
        "HTTPS_PROXY",
        "HOME",
        "lower",
        "1A",
        "A=B",
        "",
    ] {
        assert!(
            with(&format!("variables = [\"{name}\"]")).is_err(),
            "{name}"
        );
    }
}

#[test]
fn unknown_keys_are_explained() {
    let Err(found) = with("plaintxt = true") else {
        panic!("accepted");
    };
    assert_eq!(found[0].hint.as_deref(), Some("did you mean `plaintext`?"));
    assert_eq!(found[0].line, 5);
}

#[test]
fn ports_and_projects_narrow() {
    let binding = with("ports = [8443]\nprojects = [\"~/projects/orders/\"]")
        .ok()
        .unwrap();
    assert_eq!(binding.ports, [8443]);
    assert_eq!(
        binding.projects,
        [PathBuf::from("/home/owner/projects/orders")]
    );
    for line in [
        "ports = [0]",
        "ports = []",
        "ports = [70000]",
        "projects = []",
        "projects = [\"a\"]",
    ] {
        assert!(with(line).is_err(), "{line}");
    }
}

#[test]
fn a_kept_binding_reads_back_as_it_was() {
    for slot in [
        Slot::bearer(),
        Slot::header("x-key", "a ", " b"),
        Slot::Basic { username: None },
        Slot::Path {
            template: "/bot{secret}".to_owned(),
        },
    ] {
        let text = serde_json::json!({"a": {
            "hosts": ["api.example.com"], "inject": inject::describe(&slot), "source": {"store": true},
        }});
        let Ok(all) = parse_kept(&text.to_string(), &home()) else {
            panic!("refused");
        };
        assert_eq!(all[0].slots, [slot]);
    }
}
