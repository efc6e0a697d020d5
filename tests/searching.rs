//! Would we notice a leak? The search that ends every test finds what a leaking program leaves behind.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fs;

use crate::support::World;

/// A world in which a program wrote `text` to a file of the workspace.
fn leaking(text: impl Fn(&str) -> String) -> Vec<String> {
    let mut world = World::new();
    let secret = world.plant("openai");
    world.file("notes/out.txt", &text(&secret));
    let leaks = world.leaks().iter().map(ToString::to_string).collect();
    world.forget_planted();
    leaks
}

#[test]
fn a_secret_in_a_file_is_found() {
    assert_eq!(leaking(|secret| format!("key={secret}\n")).len(), 1);
}

#[test]
fn a_file_without_a_secret_is_not_reported() {
    assert!(leaking(|_| "key=placeholder\n".to_owned()).is_empty());
}

#[test]
fn a_secret_in_base64_is_found_wherever_it_begins() {
    for prefix in ["", "a", "ab", "user:"] {
        let found = leaking(|secret| STANDARD.encode(format!("{prefix}{secret}")));
        assert_eq!(found.len(), 1, "after `{prefix}`");
    }
}

#[test]
fn a_secret_in_percent_encoding_is_found() {
    let encode = |secret: &str| secret.bytes().map(|b| format!("%{b:02X}")).collect();
    assert_eq!(leaking(encode).len(), 1);
}

#[test]
fn a_secret_in_the_name_of_a_file_is_found() {
    let mut world = World::new();
    let secret = world.plant("openai");
    fs::write(world.path("state").join(secret), "").unwrap();
    assert_eq!(world.leaks().len(), 1);
    world.forget_planted();
}

#[test]
fn a_secret_that_a_program_printed_is_found() {
    let mut world = World::new();
    let secret = world.plant("openai");
    let mut program = std::process::Command::new("echo");
    program.arg(&secret);
    world.finish(program, "").passed();
    assert_eq!(world.leaks().len(), 1);
    world.forget_planted();
}

#[test]
fn the_owners_own_file_is_no_leak() {
    let mut world = World::new();
    world.secret("openai", "provider = \"openai\"");
    assert!(world.leaks().is_empty());
}
