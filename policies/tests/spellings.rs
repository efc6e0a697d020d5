//! Spellings of hosts that fool who compares text are one host here, or none.

use policies::Host;

/// Who asks whether the text ends in an allowed name.
fn is_allowed_by_its_end(text: &str) -> bool {
    text.ends_with(".allowed.test")
}

/// Who asks whether the text is a forbidden host.
fn is_forbidden_by_its_text(text: &str) -> bool {
    ["127.0.0.1", "::1", "forbidden.test"].contains(&text)
}

#[test]
fn what_gets_past_a_comparison_of_texts_does_not_get_past_the_one_parser() {
    for text in [
        "evil.test\0.allowed.test",
        "evil.test/.allowed.test",
        "evil.test#.allowed.test",
        "evil.test\r\n.allowed.test",
        "evil.test:443 .allowed.test",
        "evil.test?.allowed.test",
        "evil.test\\.allowed.test",
        "evil.test@.allowed.test",
    ] {
        assert!(is_allowed_by_its_end(text), "{text:?}");
        assert!(Host::parse(text).is_err(), "{text:?}");
    }
    for (text, meant) in [
        ("2130706433", "127.0.0.1"),
        ("0x7f.1", "127.0.0.1"),
        ("017700000001", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("[::ffff:127.0.0.1]", "127.0.0.1"),
        ("[0:0:0:0:0:0:0:1]", "::1"),
        ("FORBIDDEN.test", "forbidden.test"),
        ("forbidden.test.", "forbidden.test"),
        ("forbidden\u{3002}test", "forbidden.test"),
        ("\u{ff46}orbidden.test", "forbidden.test"),
    ] {
        assert!(!is_forbidden_by_its_text(text), "{text:?}");
        assert_eq!(Host::parse(text), Host::parse(meant), "{text:?}");
        assert!(Host::parse(meant).is_ok());
    }
}
