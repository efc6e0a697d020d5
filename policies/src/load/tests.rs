//! What loading accepts, refuses and puts together.

mod bases;
mod steps;

use std::collections::BTreeMap;

use super::*;
use crate::decide::Decision;
use crate::sample::Sample;

#[derive(Default)]
struct Folder(BTreeMap<&'static str, &'static str>);

impl Sources for Folder {
    fn document(&mut self, _from: &str, path: &str) -> Result<Document, String> {
        let text = self.0.get(path).ok_or("no such file")?;
        Ok(Document {
            name: path.to_owned(),
            text: (*text).to_owned(),
        })
    }

    fn packages(&mut self, preset: &str) -> Result<Vec<Origin>, String> {
        match preset {
            "python-packages" => Ok(vec![Origin {
                scheme: Scheme::Https,
                host: Host::parse("packages.test").map_err(|e| e.to_string())?,
                port: 8443,
                path: "/simple/".into(),
            }]),
            _ => Err("no index is configured".into()),
        }
    }
}

fn load_with(
    text: &str,
    files: &[(&'static str, &'static str)],
) -> Result<Policy, Vec<Diagnostic>> {
    let document = Document {
        name: "valetkey.toml".into(),
        text: text.to_owned(),
    };
    load(document, &mut Folder(files.iter().copied().collect()))
}

fn good(text: &str) -> Policy {
    load_with(text, &[]).unwrap_or_else(|found| panic!("{}", found[0]))
}

#[track_caller]
fn is_allowed(policy: &Policy, request: &str) -> bool {
    match Sample::parse(request).unwrap().decide(policy) {
        Decision::Allow(_) => true,
        Decision::Deny(_) => false,
    }
}

/// `line:column: message` of each finding.
fn errors(text: &str, files: &[(&'static str, &'static str)]) -> Vec<String> {
    match load_with(text, files) {
        Ok(_) => Vec::new(),
        Err(found) => found
            .iter()
            .map(|d| format!("{}:{}: {}", d.line, d.column, d.message))
            .collect(),
    }
}

#[track_caller]
fn refused(text: &str, expected: &str) {
    let found = errors(&format!("version = 1\n{text}"), &[]);
    assert!(
        found.iter().any(|error| error.contains(expected)),
        "{text}\n{found:#?}"
    );
}

#[test]
fn an_empty_file_is_an_error() {
    for text in ["", "\n\n", "# only a comment\n"] {
        assert_eq!(errors(text, &[]), ["1:1: the policy is empty"], "{text:?}");
    }
    assert_eq!(errors("[limits]\n", &[]), ["1:1: `version` is missing"]);
}

#[test]
fn every_error_of_a_file_is_reported_with_its_place() {
    let text = "version = 1\n[[allow]]\nhots = \"a.test\"\n[[allow]]\nhost = 7\n[limits]\nmemory = \"lots\"\n";
    assert_eq!(
        errors(text, &[]),
        [
            "2:1: the rule names no host",
            "3:1: unknown key `hots`",
            "5:8: `allow[1].host` must be a string, not an integer",
            "7:10: `memory` is not an amount that can be read",
        ]
    );
}

#[test]
fn what_is_not_enforced_yet_is_refused_and_never_ignored() {
    let rule = "[[allow]]\nhost = \"a.test\"\n";
    let cases = [
        (
            "budget = { requests = 5 }",
            "4:12: `allow[0].budget.requests` is not supported yet",
        ),
        ("ask = true", "4:1: `allow[0].ask` is not supported yet"),
        (
            "websocket = true",
            "4:1: `allow[0].websocket` is not supported yet",
        ),
        (
            "statements = [\"select\"]",
            "4:1: `allow[0].statements` is not supported yet",
        ),
        (
            "when.json = { \"/a\" = [1] }",
            "4:6: `allow[0].when.json` is not supported yet",
        ),
        (
            "when.graphql = { operations = [\"q\"] }",
            "4:6: `allow[0].when.graphql` is not supported yet",
        ),
        (
            "when.mcp = { tools = [\"t\"] }",
            "4:6: `allow[0].when.mcp` is not supported yet",
        ),
        (
            "[budget]\nrate = \"50/s\"",
            "5:1: `budget.rate` is not supported yet",
        ),
        (
            "[budget]\nllm_cost = \"5 USD\"",
            "5:1: `budget.llm_cost` is not supported yet",
        ),
        (
            "[budget]\nupload = \"5MiB\"",
            "5:1: `budget.upload` is not supported yet",
        ),
    ];
    for (more, expected) in cases {
        let found = errors(&format!("version = 1\n{rule}{more}\n"), &[]);
        assert_eq!(found, [expected], "{more}");
    }
    for key in ["postgres", "redis", "ssh", "tcp"] {
        let found = errors(
            &format!("version = 1\n[[allow]]\n{key} = \"db.test:5432\"\n"),
            &[],
        );
        assert_eq!(
            found,
            [format!("3:1: `allow[0].{key}` is not supported yet")]
        );
    }
}

#[test]
fn wrong_types_are_found_in_what_is_not_enforced_yet() {
    refused("[budget]\nrequests = \"many\"\n", "must be an integer");
    refused("[budget]\nllm_cost = \"5\"\n", "not an amount");
    refused(
        "[[allow]]\nhost = \"a.test\"\nask = 1\n",
        "must be `true` or `false`",
    );
    refused("[[allow]]\ntcp = \"a.test\"\n", "the port is not a number");
}

#[test]
fn hosts_that_mean_too_much_are_refused() {
    refused("[[allow]]\nhost = \"*\"\n", "matches every host");
    refused("[[allow]]\nhost = \"*.com\"\n", "public suffix");
    refused("[[allow]]\nhost = \"*.co.uk\"\n", "public suffix");
    refused("[[allow]]\nhost = \"*.github.io\"\n", "public suffix");
    refused(
        "[[allow]]\nhost = \"a*.test\"\n",
        "not the whole first label",
    );
    refused(
        "[[allow]]\nhost = \"*.*.test\"\n",
        "not the whole first label",
    );
    refused("[[allow]]\nhost = \"*.10.0.0.1\"\n", "below an address");
    refused("[[allow]]\nhost = \"https://a.test\"\n", "host pattern");
    refused("[[allow]]\nhost = \"a.test:443\"\n", "host pattern");
    refused(
        "[[allow]]\nhost = \"*.amazonaws.com\"\nsecret = \"k\"\n",
        "strangers",
    );
    good("version = 1\n[[allow]]\nhost = \"*.example.com\"\nsecret = \"k\"\n");
    good("version = 1\n[[deny]]\nhost = \"*.com\"\n");
}

#[test]
fn rules_that_contradict_themselves_are_refused() {
    refused("[[allow]]\nname = \"x\"\n", "names no host");
    refused(
        "[[allow]]\nhost = \"a.test\"\nuse = \"openai\"\n",
        "not both",
    );
    refused(
        "[[allow]]\nhost = \"a.test\"\nonly = [\"GET /\"]\nmethods = [\"GET\"]\n",
        "not both",
    );
    refused(
        "[[allow]]\nhost = \"a.test\"\nmode = \"tunnel\"\nsecret = \"k\"\n",
        "tunnel",
    );
    refused(
        "[[allow]]\nhost = \"a.test\"\nmode = \"tunnel\"\npaths = [\"/\"]\n",
        "tunnel",
    );
    refused(
        "[[allow]]\nhost = \"a.test\"\nmethods = []\n",
        "names no method",
    );
    refused(
        "[[allow]]\nhost = \"a.test\"\npaths = []\n",
        "names no path",
    );
    refused(
        "[[allow]]\nhost = \"a.test\"\nports = []\n",
        "names no port",
    );
    refused(
        "[[allow]]\nhost = \"a.test\"\nports = [0]\n",
        "from 1 to 65535",
    );
    refused(
        "[[allow]]\nhost = \"a.test\"\nmethods = [\"get\"]\n",
        "not in capitals",
    );
    refused(
        "[[allow]]\nhost = \"a.test\"\nmethods = [\"CONNECT\"]\n",
        "never carried",
    );
    refused(
        "[[allow]]\nhost = \"a.test\"\nonly = [\"/v1\"]\n",
        "a method and a path",
    );
    refused(
        "[[allow]]\nhost = \"a.test\"\npaths = [\"v1\"]\n",
        "begins with `/`",
    );
    refused(
        "[[allow]]\nhost = \"a.test\"\npaths = [\"/a/../b\"]\n",
        "never matches",
    );
    refused(
        "[[allow]]\nhost = \"a.test\"\nscheme = \"ftp\"\n",
        "neither",
    );
    refused("[[allow]]\nuse = \"opena\"\n", "not in the catalogue");
    refused(
        "[[allow]]\nhost = \"a.test\"\nreason = \"x\"\n",
        "unknown key `reason`",
    );
    refused(
        "[[deny]]\nhost = \"a.test\"\nsecret = \"x\"\n",
        "unknown key `secret`",
    );
    refused("version = 2\n", "duplicate key");
}

#[test]
fn an_unknown_provider_is_answered_with_the_one_that_was_meant() {
    let found = load_with("version = 1\n[[allow]]\nuse = \"opnai\"\n", &[]).unwrap_err();
    assert_eq!(found[0].hint.as_deref(), Some("did you mean `openai`?"));
}

#[test]
fn the_digest_is_of_the_meaning() {
    let one = good(
        "version = 1\n[[allow]]\nhost = \"a.test\"\nports = [443, 8443]\n[[allow]]\nhost = \"b.test\"\n[limits]\nmemory = \"1GiB\"\n",
    );
    let same = good(
        "# other\nversion=1\nlimits.memory=\"1024MiB\"\n[[allow]]\nhost='B.test.'\nscheme=\"https\"\n[[allow]]\nports=[8443,443]\nhost=\"A.test\"\n[[allow]]\nhost=\"b.test\"\n",
    );
    let other = good(
        "version = 1\n[[allow]]\nhost = \"a.test\"\nports = [443]\n[[allow]]\nhost = \"b.test\"\n[limits]\nmemory = \"1GiB\"\n",
    );
    assert_eq!(one.digest(), same.digest());
    assert_ne!(one.digest(), other.digest());
}

#[test]
fn the_effective_text_loads_to_the_same_policy() {
    let policy = good(
        "version = 1\n[[allow]]\nuse = \"openai\"\nsecret = \"k\"\nonly = [\"POST /v1/responses\", \"* /v1/files/*\"]\n\
         [[allow]]\nhost = \"*.b.test\"\nmethods = [\"GET\"]\nquery = { a = [\"1\", \"\\\"\\u202e\"] }\nwhen.header = { x-a = \"b\" }\n\
         [[allow]]\nhost = \"::1\"\nmode = \"tunnel\"\nname = \"v6\"\n\
         [[deny]]\nhost = \"b.test\"\nreason = \"no\"\n[sandbox]\nenv = { A = \"b\" }\nread = [\"/data\"]\n[limits]\ncpus = 1.5\n",
    );
    let again = good(&policy.effective_toml());
    assert_eq!(
        again.digest(),
        policy.digest(),
        "{}",
        policy.effective_toml()
    );
    assert!(policy.effective_toml().contains("# from valetkey.toml:2"));
}

#[test]
fn memory_in_which_nothing_starts_is_refused_and_the_least_is_told() {
    for text in ["64KiB", "1B", "1048575B"] {
        let found = errors(
            &format!("version = 1\n[limits]\nmemory = \"{text}\"\n"),
            &[],
        );
        assert_eq!(
            found,
            ["3:10: `memory` must be at least \"1MiB\""],
            "{text}"
        );
    }
    let policy = good("version = 1\n[limits]\nmemory = \"1MiB\"\noutput = \"64KiB\"\n");
    assert_eq!(policy.limits().memory, Some(1 << 20));
    assert_eq!(policy.limits().output, Some(64 << 10));
}

#[test]
fn only_what_asks_for_nothing_needs_no_approval() {
    let cases = [
        ("", false),
        ("[limits]\nmemory = \"64MiB\"\n", false),
        ("[sandbox]\nnetwork = \"none\"\nhide = [\"a\"]\n", false),
        ("[[deny]]\nhost = \"a.test\"\n", false),
        ("[[allow]]\nhost = \"a.test\"\n", true),
        ("[limits]\nmemory = \"64GiB\"\n", true),
        ("[budget]\nttl = \"2h\"\n", true),
        ("[sandbox]\nread = [\"/data\"]\n", true),
        ("[sandbox]\nworkspace = { mode = \"read-write\" }\n", true),
        ("[sandbox]\nworkspace = { path = \"..\" }\n", true),
    ];
    for (text, needs) in cases {
        let policy = good(&format!("version = 1\n{text}"));
        assert_eq!(policy.needs_approval(), needs, "{text}");
    }
    let default = Policy::default_for_no_file();
    assert!(!default.needs_approval());
    assert_eq!(default.sandbox().network, crate::sandbox::NetworkMode::None);
}

#[test]
fn json_of_the_same_model_is_the_same_policy() {
    let toml = good("version = 1\n[[allow]]\nhost = \"a.test\"\nports = [8443]\n");
    let json =
        Policy::from_json(r#"{"version": 1, "allow": [{"host": "a.test", "ports": [8443]}]}"#);
    assert_eq!(json.unwrap().digest(), toml.digest());
    let found = Policy::from_json(r#"{"version": 1, "allow": [{"hots": 1}]}"#).unwrap_err();
    assert!(
        found
            .iter()
            .any(|d| d.message == "unknown key `hots` (in `allow[0]`)"),
        "{found:?}"
    );
    for text in ["", "[]", "null", "{", r#"{"version":1,"version":1}"#] {
        assert!(Policy::from_json(text).is_err(), "{text}");
    }
}

#[test]
fn tests_in_the_file_are_requests_with_an_expectation() {
    let policy = good(
        "version = 1\n[[allow]]\nhost = \"a.test\"\n[[test]]\nrequest = \"GET https://a.test/\"\nexpect = \"allow\"\n[[test]]\nrequest = \"GET https://a.test/\"\nexpect = \"deny\"\n",
    );
    let met: Vec<bool> = policy
        .tests()
        .iter()
        .map(|test| test.is_met(&policy))
        .collect();
    assert_eq!(met, [true, false]);
    refused(
        "[[test]]\nrequest = \"a.test\"\nexpect = \"deny\"\n",
        "a method and a URL",
    );
    refused(
        "[[test]]\nrequest = \"GET https://a.test\"\n",
        "`expect` is missing",
    );
}

#[test]
fn the_defaults_have_no_findings() {
    let policy = load(
        Document {
            name: "defaults.toml".into(),
            text: include_str!("../../defaults.toml").into(),
        },
        &mut NoSources,
    );
    let policy = policy.unwrap();
    assert!(!policy.needs_approval());
    assert_eq!(policy.limits().memory, Some(2 << 30));
    assert_eq!(policy.budget().connections, Some(4096));
}

#[test]
fn a_hide_pattern_that_would_hide_nothing_is_refused() {
    let with = |pattern: &str| {
        load_with(
            &format!("version = 1\n[sandbox]\nhide = [{pattern:?}]\n"),
            &[],
        )
    };
    for pattern in [
        "~/p/secrets/**",
        "{a,b}/**",
        "a/[bc].txt",
        "!src/**",
        "../x",
        "**",
        "a?",
    ] {
        assert!(with(pattern).is_err(), "{pattern}");
    }
    for pattern in ["secrets/**", "*.pem", "/a/b", "./c", "**/*.txt"] {
        assert!(with(pattern).is_ok(), "{pattern}");
    }
}
