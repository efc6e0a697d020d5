//! What the reader says about files that are wrong.

use super::*;

fn errors(text: &str) -> Vec<String> {
    let source = SourceText::new("f.toml", text);
    let findings = Findings::default();
    let root = parse_toml(&source, &findings);
    let section = Section::open(&source, &findings, &root, "", &["host", "ports", "rule"]);
    section.text("host");
    section.texts("ports");
    for rule in section.sections("rule", &["paths"]) {
        rule.text("paths");
    }
    match findings.into_result(()) {
        Ok(()) => Vec::new(),
        Err(found) => found.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn a_right_file_has_no_findings() {
    assert_eq!(errors("host = \"a\"\n[[rule]]\npaths = \"/\"\n"), [""; 0]);
}

#[test]
fn an_unknown_key_is_answered_with_the_one_that_was_meant() {
    assert_eq!(
        errors("hots = \"a\"\n"),
        [
            "error: unknown key `hots`\n  --> f.toml:1:1\n  |\n1 | hots = \"a\"\n  | ^^^^\nhint: did you mean `host`?"
        ]
    );
}

#[test]
fn a_wrong_kind_points_at_the_value() {
    assert_eq!(
        errors("\n[[rule]]\npaths = 7\n"),
        [
            "error: `rule[0].paths` must be a string, not an integer\n  --> f.toml:3:9\n  |\n3 | paths = 7\n  |         ^"
        ]
    );
}

#[test]
fn a_duplicate_key_is_an_error() {
    let found = errors("host = \"a\"\nhost = \"b\"\n");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("duplicate key"), "{found:?}");
    assert!(found[0].contains("f.toml:2:1"), "{found:?}");
}

#[test]
fn every_error_is_reported() {
    let found = errors("host = \nhots = 1\nports = \"a\"\n");
    assert!(found.len() >= 3, "{found:?}");
}

#[test]
fn hostile_text_does_no_harm() {
    for text in [
        "\0",
        "\u{feff}host = 1",
        "[",
        "]",
        "=",
        "\"",
        "'''",
        "a.b.c = {",
        "host = 99999999999999999999",
        "[[rule]\n[rule]",
        "rule = [[[[",
        "\r",
        "host = \"\\u{110000}\"",
    ] {
        let _ = errors(text);
    }
    let _ = errors(&format!("host = {}", "[".repeat(100_000)));
    let _ = errors(&"a.".repeat(100_000));
}

#[test]
fn json_with_a_duplicate_key_is_an_error() {
    let source = SourceText::without_spans("json", r#"{"a": 1, "a": 2}"#);
    let findings = Findings::default();
    parse_json(&source, &findings);
    assert!(!findings.is_empty());
}
