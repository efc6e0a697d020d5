//! Does `check --files` tell truly what a run would see?

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::support::World;

fn project() -> World {
    let world = World::new();
    world.file("src/main.rs", "fn main() {}\n");
    world.file("api/.env.production", "A=1\n");
    world.file(".env", "A=1\n");
    world.file("secrets/db.txt", "x\n");
    world.file("keys/server.pem", "-----BEGIN PRIVATE KEY-----\n");
    world.file("keys/ca.pem", "-----BEGIN CERTIFICATE-----\n");
    for name in [".ssh", ".aws"] {
        fs::create_dir(world.path("home").join(name)).unwrap();
    }
    world.policy("[sandbox]\nnetwork = \"none\"\nhide = [\"secrets/**\"]");
    world
}

#[test]
fn what_is_told_is_what_a_program_sees() {
    let world = project();
    symlink("../secrets/db.txt", world.path("project/src/link")).unwrap();
    let told = world
        .valetkey(&["check", "--files", "--json"])
        .passed()
        .json();
    let top = told["project"].as_str().unwrap().to_owned();
    let told_hidden: BTreeSet<String> = told["hidden"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| {
            one["path"]
                .as_str()?
                .strip_prefix(&format!("{top}/"))
                .map(str::to_owned)
        })
        .collect();

    // Everything in the project that the run cannot read, and that is there outside.
    let look = "find . -mindepth 1 ! -path ./valetkey.toml \\( -type f -o -type d \\) | while read -r p; do \
                if [ -d \"$p\" ]; then ls \"$p\" >/dev/null 2>&1 || echo \"$p\"; \
                else cat \"$p\" >/dev/null 2>&1 || echo \"$p\"; fi; done; \
                for p in $HOST_HOME/.ssh $HOST_HOME/.aws; do [ -e $p ] && echo there $p; done; true";
    let home = world.path("home").display().to_string();
    let seen = world
        .run(&["sh", "-c", &format!("HOST_HOME={home}; {look}")])
        .passed();
    let seen: BTreeSet<String> = seen
        .stdout
        .lines()
        .map(|line| line.trim_start_matches("./").to_owned())
        .collect();
    let expected = ["api/.env.production", ".env", "secrets", "keys/server.pem"];
    assert_eq!(told_hidden, expected.map(str::to_owned).into());
    assert_eq!(seen, told_hidden);
    let absent = told["not_there"].as_array().unwrap();
    for name in [".ssh", ".aws"] {
        assert!(
            absent
                .iter()
                .any(|path| path.as_str().unwrap().ends_with(name)),
            "{absent:?}"
        );
    }

    // Every place that is told to be shown is there, and none of the host's home is.
    let places: Vec<&str> = told["shown"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["path"].as_str().unwrap())
        .collect();
    let line = format!(
        "for p in {}; do [ -e $p ] || echo missing $p; done",
        places.join(" ")
    );
    assert_eq!(world.run(&["sh", "-c", &line]).passed().stdout, "");
}

#[test]
fn it_is_told_in_words_and_which_pattern_hides_what() {
    let world = project();
    world
        .valetkey(&["check", "--files"])
        .passed()
        .says("your source tree: readable, writes captured")
        .says(".env: hidden  (.env*)")
        .says("secrets: hidden  (`sandbox.hide`: secrets/**)")
        .says("keys/server.pem: hidden  (*.pem)")
        .says_nothing_of("keys/ca.pem")
        .says("~/.ssh: not there")
        .says("everything else of this machine's files: not there");
}

#[test]
fn a_hidden_file_that_git_keeps_is_warned_of_and_one_that_it_ignores_is_not() {
    let world = project();
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command
            .args(arguments)
            .current_dir(world.path("project"))
            .env("HOME", world.path("home"));
        world.finish(command, "").passed();
    };
    git(&["init", "-q"]);
    git(&["add", "-f", "api/.env.production", "src/main.rs"]);
    let told = world.valetkey(&["check", "--files"]).passed();
    assert!(
        told.stderr
            .contains("warning: api/.env.production is hidden, but git keeps"),
        "{}",
        told.stderr
    );
    assert!(!told.stderr.contains("warning: .env is"), "{}", told.stderr);
}

#[test]
fn a_hidden_file_with_another_name_that_is_shown_is_warned_of() {
    let world = project();
    fs::hard_link(
        world.path("project/.env"),
        world.path("project/src/settings"),
    )
    .unwrap();
    world
        .valetkey(&["check", "--files"])
        .passed()
        .says("warning: .env is hidden, but src/settings is the same file by another name");
    fs::remove_file(world.path("project/src/settings")).unwrap();
    world
        .valetkey(&["check", "--files"])
        .passed()
        .says_nothing_of("by another name");
}

#[test]
fn without_a_policy_the_files_are_told_too() {
    let world = World::new();
    world.file("a", "x\n");
    world
        .valetkey(&["check", "--files"])
        .passed()
        .says("your source tree: readable, writes captured");
}
