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
    fn no_text_makes_the_loader_panic(text in "(version = 1\n)?(\\[\\[?(allow|deny|limits|test|budget)\\]?\\]\n|(host|use|paths|only|memory|when\\.query\\.a|ports|extends) = (1|\"\\PC{0,6}\"|\\[\"/\\*?\"\\]|\\{|true)\n){0,8}") {
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
