//! Is every promise of GUARANTEES.md held by tests that are there?

use std::fs;

use crate::support::root;

#[test]
fn every_promise_names_tests_that_exist() {
    let text = fs::read_to_string(root().join("GUARANTEES.md")).unwrap();
    let mut named = 0;
    for row in text
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains(".rs`"))
    {
        let mut quoted = row.split('`').skip(1).step_by(2).peekable();
        while let Some(file) = quoted.next() {
            let Some(path) = file.ends_with(".rs").then(|| root().join(file)) else {
                continue;
            };
            let test = quoted.next().unwrap();
            let source = fs::read_to_string(&path)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let is_there = source.contains(&format!("fn {test}("));
            assert!(
                is_there,
                "GUARANTEES.md names `{test}`, which is not in {file}"
            );
            named += 1;
        }
    }
    assert!(named > 50, "only {named} tests are named");
}

#[test]
fn every_row_of_promises_names_a_test() {
    let text = fs::read_to_string(root().join("GUARANTEES.md")).unwrap();
    for row in text.lines().filter(|line| line.starts_with("| ")) {
        let is_head = row.starts_with("| promise |");
        assert!(
            is_head || row.contains(".rs` `"),
            "no test is named in: {row}"
        );
    }
}
