//! Is every promise of GUARANTEES.md held by tests that are there?

use std::fs;
use std::path::Path;

use crate::support::root;

/// The rows of promises, each with what holds it.
fn rows(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| promise |"))
        .map(|row| {
            let cells = row.trim_end_matches(" |");
            (row, cells.rsplit_once(" | ").map_or("", |(_, last)| last))
        })
}

/// What stands in the quotes of a row's last cell.
fn quoted(holds: &str) -> impl Iterator<Item = &str> {
    holds.split('`').skip(1).step_by(2)
}

fn is_name_of_a_test(text: &str) -> bool {
    // Tests are sentences; options, keys and macros are not.
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    text.bytes().all(is_plain) && text.matches('_').count() >= 2
}

/// Whether a file has a test of that name that is run: one that is ignored runs only when asked for.
fn is_run(source: &str, test: &str) -> bool {
    let Some((above, _)) = source.split_once(&format!("fn {test}(")) else {
        return false;
    };
    let marks: Vec<&str> = above
        .lines()
        .rev()
        .map(str::trim)
        .filter(|line| !line.is_empty() && *line != "async" && *line != "pub")
        .take_while(|line| line.starts_with("#[") || line.starts_with("///"))
        .collect();
    let is_test = marks
        .iter()
        .any(|mark| mark.starts_with("#[test]") || mark.starts_with("#[tokio::test"));
    is_test && !marks.iter().any(|mark| mark.starts_with("#[ignore"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_promise_names_tests_that_are_run() {
    let text = read(&root().join("GUARANTEES.md"));
    let (mut named, mut missing) = (0, Vec::new());
    for (_, holds) in rows(&text) {
        let mut source = None;
        for word in quoted(holds) {
            if word.ends_with(".rs") {
                source = Some((word, read(&root().join(word))));
            } else if is_name_of_a_test(word) {
                let (file, source) = source.as_ref().unwrap_or_else(|| panic!("no file: {word}"));
                if !is_run(source, word) {
                    missing.push(format!("`{word}` of {file}"));
                }
                named += 1;
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(named > 200, "only {named} tests are named");
}

#[test]
fn every_row_of_promises_names_a_test() {
    let text = read(&root().join("GUARANTEES.md"));
    for (row, holds) in rows(&text) {
        let has_test = quoted(holds).any(is_name_of_a_test);
        assert!(has_test, "no test is named in: {row}");
    }
}

#[test]
fn a_name_that_is_no_test_is_told_from_one() {
    let source = "/// Helps.\nfn a_b_c() {}\n\n/// Why.\n#[test]\nfn one_two_three() {}\n\n#[test]\n#[ignore = \"slow\"]\n\
                  fn is_left_out_here() {}\n\n#[tokio::test(flavor = \"multi_thread\")]\nasync fn of_the_other_kind() {}\n";
    for (test, expected) in [
        ("one_two_three", true),
        ("of_the_other_kind", true),
        ("a_b_c", false),
        ("is_left_out_here", false),
        ("is_not_there", false),
    ] {
        assert_eq!(is_run(source, test), expected, "{test}");
    }
}
