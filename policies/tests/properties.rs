//! What holds for every host, path and policy, however it is written.

use policies::sample::Sample;
use policies::{
    Authority, Decision, Document, Host, HostPattern, Origin, RequestPath, Sources, load,
};
use proptest::prelude::*;

/// Texts made of the pieces with which parsers are confused.
fn hostlike() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-z0-9]{1,5}",
        2 => Just(".".to_owned()),
        1 => prop::sample::select(vec![
            "xn--", "xn--bcher-kva", "0x", "0x7f", "017", "255", "256", "4294967296", "A", "ß", "ﬀ", "１", "。",
            "\u{ad}", "\u{200d}", "\u{130}", "-", "_", ":", "[", "]", "::", "ffff", "%", "%00", "%2e", "@", "/",
            "\\", "#", "?", " ", "\0", "*", "localhost", "..", "é",
        ])
        .prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

fn pathlike() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        3 => "[a-zA-Z0-9]{1,4}",
        3 => Just("/".to_owned()),
        2 => prop::sample::select(vec![
            ".", "..", "%2e", "%2E", "%2f", "%5c", "\\", ";", ";x", "%25", "%252e", "%00", "%0a", "%", "%zz", "%61",
            "%C3%A9", "%c0%af", "%ff", "~", "*", "{", "}", "|", "\"", "<", "é", " ", "%20", "?", "#", "+", "@", ":",
            "!", "%21", "%3f", "%23", "%7E", "...",
        ])
        .prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..14).prop_map(|pieces| format!("/{}", pieces.concat()))
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

/// One base, whatever it is called.
struct Base(String);

impl Sources for Base {
    fn document(&mut self, _: &str, name: &str) -> Result<Document, String> {
        Ok(Document {
            name: name.to_owned(),
            text: self.0.clone(),
        })
    }

    fn packages(&mut self, _: &str) -> Result<Vec<Origin>, String> {
        Err("nothing".into())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_canonical_host_is_its_own_canonical_form(text in hostlike()) {
        if let Ok(host) = Host::parse(&text) {
            prop_assert_eq!(Host::parse(&host.to_string()), Ok(host.clone()));
            prop_assert_eq!(Host::parse(&host.uri()), Ok(host));
        }
    }

    #[test]
    fn a_host_that_we_take_is_the_host_of_the_url_crate(text in hostlike()) {
        if let Ok(ours) = Host::parse(&text) {
            let bracketed = if text.contains(':') && !text.starts_with('[') { format!("[{text}]") } else { text };
            let theirs = url::Host::parse(&bracketed);
            prop_assert!(theirs.is_ok(), "{} is {} to us", bracketed, ours);
            let theirs = theirs.unwrap().to_string();
            let theirs = Host::parse(theirs.strip_suffix('.').unwrap_or(&theirs));
            prop_assert_eq!(Ok(ours), theirs);
        }
    }

    #[test]
    fn an_authority_is_its_own_canonical_form(host in hostlike(), port in "[0-9+a]{0,6}") {
        if let Ok(authority) = Authority::parse(&format!("{host}:{port}"), None) {
            prop_assert_eq!(Authority::parse(&authority.to_string(), None), Ok(authority));
        }
    }

    #[test]
    fn what_is_judged_is_what_is_sent(text in pathlike()) {
        if let Ok(path) = RequestPath::parse(&text) {
            prop_assert_eq!(RequestPath::parse(path.sent()), Ok(path.clone()));
            let is_dots = |segment: &str| matches!(segment, "." | "..");
            prop_assert!(!path.path().split('/').any(is_dots), "{}", path.path());
            let url = url::Url::parse(&format!("http://h{}", path.sent())).unwrap();
            prop_assert_eq!(url.path(), path.path());
        }
    }

    #[test]
    fn a_path_is_judged_as_the_url_crate_resolves_it(text in pathlike()) {
        // Only where nothing is encoded is there one right answer for everyone.
        if text.contains(['%', '?', '#', '\\']) { return Ok(()); }
        if let Ok(path) = RequestPath::parse(&text) {
            let url = url::Url::parse(&format!("http://h{text}")).unwrap();
            // The url crate leaves `|` as it is.
            prop_assert_eq!(url.path().replace('|', "%7C"), path.path());
        }
    }

    #[test]
    fn an_index_finds_what_a_list_finds(
        patterns in prop::collection::vec("(\\*\\.)?[ab]\\.[ab]\\.test|(\\*\\.)?[ab]\\.test|10\\.0\\.0\\.[12]", 1..12),
        host in "([ab]\\.){0,4}test|10\\.0\\.0\\.[123]",
    ) {
        let rules: String = patterns.iter().map(|p| format!("[[allow]]\nhost = \"{p}\"\n")).collect();
        let document = Document { name: "p".into(), text: format!("version = 1\n{rules}") };
        let policy = load(document, &mut Nothing).unwrap();
        let sample = Sample::parse(&format!("GET https://{host}/")).unwrap();
        let is_listed = patterns
            .iter()
            .any(|p| HostPattern::parse(p).unwrap().matches(&sample.authority.host));
        prop_assert_eq!(matches!(sample.decide(&policy), Decision::Allow(_)), is_listed);
    }

    #[test]
    fn a_step_never_has_more_than_its_policy(
        rules in prop::collection::vec(
            ("(\\*\\.)?[ab]\\.test|[ab]\\.[ab]\\.test", "|paths = \\[\"/[xy]/\\*\\*\"\\]|methods = \\[\"GET\"\\]|mode = \"tunnel\"", "k|l|", any::<bool>()),
            1..6,
        ),
        named in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
        is_locked in any::<bool>(),
        requests in prop::collection::vec("(GET|POST) https://([ab]\\.){1,3}test/[xyz]/[12]", 1..8),
    ) {
        let written = |(at, (host, more, secret, is_allow)): (usize, &(String, String, String, bool))| {
            let head = if *is_allow || at == 0 { "[[allow]]" } else { "[[deny]]" };
            let more = if head == "[[deny]]" && more.starts_with("mode") { "" } else { more };
            let secret = if head == "[[allow]]" && !secret.is_empty() && !more.starts_with("mode") {
                format!("secret = \"{secret}\"\n")
            } else {
                String::new()
            };
            format!("{head}\nname = \"r{at}\"\nhost = \"{host}\"\n{more}\n{secret}")
        };
        let rules_text: String = rules.iter().enumerate().map(written).collect();
        let allows: Vec<usize> = (0..rules.len()).filter(|at| rules[*at].3 || *at == 0).collect();
        let allow: Vec<String> = named
            .iter()
            .map(|index| {
                let at = allows[index.index(allows.len())];
                if index.index(2) == 0 { format!("\"r{at}\"") } else { format!("\"{}\"", rules[at].0) }
            })
            .collect();
        let steps = format!("[steps.s]\nallow = [{}]\n", allow.join(", "));
        let (text, base) = if is_locked {
            let base = format!("version = 1\nlocked = true\n{rules_text}{steps}");
            ("version = 1\nextends = [\"base.toml\"]\n".to_owned(), base)
        } else {
            (format!("version = 1\n{rules_text}{steps}"), String::new())
        };
        let policy = load(Document { name: "p".into(), text }, &mut Base(base));
        // Rules that contradict each other are another test's.
        let Ok(policy) = policy else { return Ok(()); };
        let policy = std::sync::Arc::new(policy);
        let step = policy.for_step(Some("s"));
        prop_assert!(step.sandbox().network <= policy.sandbox().network);
        for request in &requests {
            let sample = Sample::parse(request).unwrap();
            let Authority { host, port } = &sample.authority;
            let (of_step, of_run) = (
                step.decide_connection(sample.scheme, host, *port),
                policy.decide_connection(sample.scheme, host, *port),
            );
            use policies::ConnectionDecision::{Inspect, Refuse, Tunnel};
            prop_assert!(
                matches!((&of_step, &of_run), (Refuse(_), _) | (Inspect, Inspect | Tunnel(_)) | (Tunnel(_), Tunnel(_))),
                "{request}: {of_step:?} where the run has {of_run:?}"
            );
            match (sample.decide(&step), sample.decide(&policy)) {
                (Decision::Deny(_), _) => {}
                (Decision::Allow(step), Decision::Allow(run)) => {
                    prop_assert!(step.secrets.iter().all(|secret| run.secrets.contains(secret)));
                    let is_named = allow.iter().any(|named| {
                        let named = named.trim_matches('"');
                        Some(named) == step.rule.name()
                            || step.rule.hosts().iter().any(|host| host.to_string() == named)
                    });
                    // Under a locked base the rule that is told may be the policy's own.
                    prop_assert!(is_named || is_locked, "{request}");
                }
                (Decision::Allow(_), Decision::Deny(_)) => prop_assert!(false, "{request} is the step's only"),
            }
        }
    }

    #[test]
    fn no_text_makes_the_loader_panic(text in "(version = 1\n)?(\\[\\[?(allow|deny|limits|test|budget|steps\\.s)\\]?\\]\n|(host|use|paths|only|memory|when\\.query\\.a|ports|extends|allow|network) = (1|\"\\PC{0,6}\"|\\[\"/\\*?\"\\]|\\{|true)\n){0,8}") {
        let _ = load(Document { name: "p".into(), text }, &mut Nothing);
    }

    #[test]
    fn no_bytes_make_the_parsers_panic(text in any::<String>()) {
        let _ = load(Document { name: "p".into(), text: text.clone() }, &mut Nothing);
        let _ = policies::Policy::from_json(&text);
        let _ = Host::parse(&text);
        let _ = RequestPath::parse(&text);
        let _ = HostPattern::parse(&text);
        let _ = policies::path_pattern::PathPattern::parse(&text);
        let _ = Sample::parse(&text);
    }
}
