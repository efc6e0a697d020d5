//! Which paths patterns mean.

use proptest::prelude::*;

use super::*;
use crate::path::RequestPath;

fn pattern(text: &str) -> PathPattern {
    PathPattern::parse(text).unwrap()
}

fn is_match(pattern: &PathPattern, path: &str) -> bool {
    let path = RequestPath::parse(path).unwrap();
    pattern.matches_strict(path.strict(), Case::Sensitive)
}

#[test]
fn wildcards_mean_segments() {
    for (text, path, expected) in [
        ("/", "/", true),
        ("/", "/a", false),
        ("/**", "/", true),
        ("/**", "/a/b", true),
        ("/a/**", "/a", true),
        ("/a/**", "/a/", true),
        ("/a/**", "/ab", false),
        ("/a/**/z", "/a/z", true),
        ("/a/**/z", "/a/b/c/z", true),
        ("/a/**/z", "/a/b/c/z/y", false),
        ("/**/b/**/d", "/a/b/b/c/d", true),
        ("/**/b/**/d", "/a/c/c/d", false),
        ("/a/*", "/a/b", true),
        ("/a/*", "/a/", false),
        ("/a/*", "/a/b/c", false),
        ("/a/{id}/c", "/a/b/c", true),
        ("/m/*:run", "/m/x:run", true),
        ("/m/*:run", "/m/:run", false),
        ("/m/*:run", "/m/x:stop", false),
        ("/m/{a}-{b}.json", "/m/1-2.json", true),
        ("/m/{a}-{b}.json", "/m/1-.json", false),
        ("/m/{a}-{b}.json", "/m/--2.json", true),
        ("/b%20c", "/b%20c", true),
        ("/é", "/%C3%A9", true),
        ("/%2A", "/*", true),
        ("/%2A", "/x", false),
        ("/a!b", "/a%21b", true),
        ("/@s%2Fn", "/@s%2fn", true),
        ("/@s/n", "/@s%2fn", false),
    ] {
        assert_eq!(is_match(&pattern(text), path), expected, "{text} {path}");
    }
}

#[test]
fn a_pattern_prints_what_it_reads() {
    for (text, printed) in [
        ("/a/{id}/**", "/a/*/**"),
        ("/é%2f%2a", "/%C3%A9%2F%2A"),
        ("/x:*", "/x:*"),
        ("/", "/"),
    ] {
        assert_eq!(pattern(text).to_string(), printed);
        assert_eq!(pattern(printed), pattern(text));
    }
}

#[test]
fn what_is_no_pattern_is_refused() {
    use PathPatternError as E;
    let deep = "/a".repeat(65);
    for (text, error) in [
        ("", E::NotAbsolute),
        ("a", E::NotAbsolute),
        ("/a?b", E::Query),
        ("/a/../b", E::Dots),
        ("/%2e%2e", E::Dots),
        ("/a**", E::Rest),
        ("/{}", E::Braces),
        ("/{a", E::Braces),
        ("/a}", E::Braces),
        ("/{a}{b}", E::Adjacent),
        ("/a\\b", E::Character),
        ("/%zz", E::Character),
        ("/%00", E::Character),
        (deep.as_str(), E::TooLong),
        ("/**/**/**/**/**", E::TooLong),
    ] {
        assert_eq!(PathPattern::parse(text), Err(error), "{text}");
    }
}

#[test]
fn a_pattern_is_within_a_wider_one() {
    for (inner, outer, expected) in [
        ("/v1/files/{id}", "/v1/**", true),
        ("/v1/**", "/v1/**", true),
        ("/**", "/v1/**", false),
        ("/v1/files/x", "/v1/files/*", true),
        ("/v1/files/*", "/v1/files/x", false),
        ("/v1/x*", "/v1/*", true),
        ("/v1/*", "/v1/x*", false),
        ("/v1", "/v1/**", true),
    ] {
        assert_eq!(
            pattern(inner).is_within(&pattern(outer)),
            expected,
            "{inner} {outer}"
        );
    }
}

fn patterns() -> impl Strategy<Value = String> {
    let segment = prop::sample::select(vec!["a", "b", "ab", "*", "a*", "*b", "**", ""]);
    prop::collection::vec(segment, 1..5).prop_map(|segments| format!("/{}", segments.join("/")))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_within_matches_no_more(inner in patterns(), outer in patterns(), path in "(/[ab]{0,2}){1,5}") {
        let (Ok(inner), Ok(outer)) = (PathPattern::parse(&inner), PathPattern::parse(&outer)) else {
            return Ok(());
        };
        if inner.is_within(&outer) && is_match(&inner, &path) {
            prop_assert!(is_match(&outer, &path), "{} {} {}", inner, outer, path);
        }
    }
}
