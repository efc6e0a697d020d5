//! Who says what is allowed? Only a policy its owner approved, as it is now; what is wrong in it is shown where it stands.

use crate::support::World;
use crate::support::world::greeting;

const RULE: &str = "[[allow]]\nhost = \"shop.example\"\n";

#[test]
fn a_policy_that_is_not_approved_runs_nothing() {
    let mut world = World::new();
    world.origin("shop.example", greeting());
    world.write_policy(RULE);
    world
        .run(&["echo", "it ran"])
        .exited(77)
        .says_nothing_of("it ran\n")
        .says("policy approve");
    world.approve();
    world.run(&["echo", "it ran"]).passed().says("it ran");
}

#[test]
fn a_changed_policy_needs_a_new_approval() {
    let world = World::new();
    world.policy(RULE);
    world.write_policy(&format!("{RULE}[[allow]]\nhost = \"more.example\"\n"));
    world.run(&["true"]).exited(77);
}

#[test]
fn an_older_approved_policy_does_not_come_back() {
    let world = World::new();
    world.policy(&format!("{RULE}[[allow]]\nhost = \"more.example\"\n"));
    world.policy(RULE);
    world.run(&["true"]).passed();
    world.write_policy(&format!("{RULE}[[allow]]\nhost = \"more.example\"\n"));
    world.run(&["true"]).exited(77);
}

#[test]
fn a_comment_changes_nothing() {
    let world = World::new();
    world.policy(RULE);
    world.write_policy(&format!("# a word\n{RULE}"));
    world.run(&["true"]).passed();
}

#[test]
fn an_approval_is_for_one_project() {
    let world = World::new();
    world.policy(RULE);
    let other = world.path("elsewhere/valetkey.toml");
    std::fs::copy(world.path("project/valetkey.toml"), &other).unwrap();
    let run = |folder: &str| {
        let mut command = world.command(&["run", "--", "true"]);
        command.current_dir(world.path(folder));
        world.finish(command, "")
    };
    run("elsewhere").exited(77);
    run("project").passed();
}

#[test]
fn a_policy_named_from_another_folder_is_for_the_project_one_stands_in() {
    let world = World::new();
    world.write_policy(RULE);
    let text = "version = 1\n[[allow]]\nhost = \"more.example\"\n[sandbox]\nworkspace = { path = \".\", mode = \"read-write\" }\n";
    std::fs::write(world.path("elsewhere/strict.toml"), text).unwrap();
    let policy = world.path("elsewhere/strict.toml").display().to_string();
    std::fs::create_dir(world.path("project/sub")).unwrap();
    world.file("data.txt", "the data\n");
    let here = |folder: &str, arguments: &[&str]| {
        let mut command = world.command(arguments);
        command.current_dir(world.path(folder));
        world.finish(command, "")
    };
    let run = |folder: &str, line: &str| {
        here(
            folder,
            &["run", "--policy", &policy, "--", "sh", "-c", line],
        )
    };
    run("project/sub", "true").exited(77);
    let checked = here("project", &["check", "--policy", &policy, "--json"]).passed();
    let digest = checked.json()["digest"].as_str().unwrap().to_owned();
    here(
        "project",
        &[
            "policy", "approve", "--policy", &policy, "--digest", &digest,
        ],
    )
    .passed();
    // One project, wherever one stands in it: approved once, with the whole of it to work on.
    let project = world.path("project").display().to_string();
    run("project/sub", "pwd; cat ../data.txt; echo new > ../new.txt")
        .passed()
        .says(&format!("{project}/sub"))
        .says("the data");
    assert!(world.path("project/new.txt").exists());
    // The policy's own folder is no part of it, and the project's own policy stays as it is.
    run(
        "project",
        &format!("ls {}", world.path("elsewhere").display()),
    )
    .exited(2);
    run("project", "echo >> valetkey.toml").exited(2);
    // Where there is no project, the folder one stands in is one, and not approved.
    run("logs", "true").exited(77);
}

#[test]
fn a_digest_that_is_not_the_policys_approves_nothing() {
    let world = World::new();
    world.write_policy(RULE);
    let wrong = format!("sha256:{}", "0".repeat(64));
    world
        .valetkey(&["policy", "approve", "--digest", &wrong])
        .exited(77);
    world.run(&["true"]).exited(77);
    world
        .valetkey(&["run", "--approved", &wrong, "--", "true"])
        .exited(77);
    let right = world.digest();
    world
        .valetkey(&["run", "--approved", &right, "--", "true"])
        .passed();
}

#[test]
fn a_policy_cannot_be_approved_without_a_terminal_or_digest() {
    let world = World::new();
    world.write_policy(RULE);
    let command = world.command(&["policy", "approve"]);
    let finished = world.finish(command, "yes\n");
    assert_ne!(finished.code(), 0);
    world.run(&["true"]).exited(77);
}

#[test]
fn a_policy_that_asks_for_nothing_needs_no_approval() {
    let world = World::new();
    world.file("valetkey.toml", "version = 1\n[limits]\nwall = \"10s\"\n");
    world.run(&["echo", "it ran"]).passed().says("it ran");
}

#[test]
fn without_a_policy_a_program_just_runs() {
    let world = World::new();
    world.file("script.py", "print('hello from', open('script.py').name)\n");
    world
        .run(&["python3", "script.py"])
        .passed()
        .says("hello from script.py");
}

#[test]
fn without_a_policy_the_summary_says_how_to_allow_a_host() {
    let world = World::new();
    world.run(&["true"]).passed().says("valetkey policy init");
}

#[test]
fn a_mistake_is_shown_where_it_stands() {
    let world = World::new();
    world.file(
        "valetkey.toml",
        "version = 1\n[[allow]]\nhots = \"shop.example\"\n",
    );
    let finished = world.run(&["true"]).exited(78);
    finished
        .says("valetkey.toml:3:1")
        .says("hots")
        .says("host")
        .says("^");
}

#[test]
fn what_is_not_enforced_yet_is_refused() {
    let world = World::new();
    world.file(
        "valetkey.toml",
        "version = 1\n[[allow]]\nhost = \"shop.example\"\nask = true\n",
    );
    world.run(&["true"]).exited(78).says("not supported yet");
}

#[test]
fn a_pattern_that_matches_everything_is_refused() {
    let world = World::new();
    for pattern in ["*", "*.com", "*.co.uk"] {
        world.file(
            "valetkey.toml",
            &format!("version = 1\n[[allow]]\nhost = \"{pattern}\"\n"),
        );
        world.valetkey(&["check"]).exited(78);
    }
    world.file(
        "valetkey.toml",
        "version = 1\n[[allow]]\nhost = \"*.shop.example\"\n",
    );
    world.valetkey(&["check"]).passed();
}

#[test]
fn an_empty_policy_is_an_error() {
    let world = World::new();
    world.file("valetkey.toml", "");
    world.run(&["true"]).exited(78);
}

#[test]
fn a_policy_outside_its_own_folder_is_not_extended() {
    let world = World::new();
    std::fs::write(world.path("elsewhere/base.toml"), "version = 1\n").unwrap();
    world.file(
        "valetkey.toml",
        "version = 1\nextends = [\"../elsewhere/base.toml\"]\n",
    );
    world.run(&["true"]).exited(78);
    world.file("base.toml", "version = 1\n");
    world.file("valetkey.toml", "version = 1\nextends = [\"base.toml\"]\n");
    world.run(&["true"]).passed();
}

#[test]
fn an_owners_file_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let mut world = World::new();
    world.secret("openai", "provider = \"openai\"");
    world.policy("[[allow]]\nuse = \"openai\"\nsecret = \"openai\"\n");
    let file = world.path("config/secrets.toml");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    world.run(&["true"]).exited(78).says("secrets.toml");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    world.run(&["true"]).passed();
}

#[test]
fn check_decides_a_request_and_says_which_rule() {
    let world = World::new();
    world.write_policy(RULE);
    world
        .valetkey(&["check", "GET https://shop.example/x"])
        .exited(0)
        .says("valetkey.toml:2");
    world
        .valetkey(&["check", "GET https://elsewhere.example/x"])
        .exited(3)
        .says("host-not-allowed");
}

#[test]
fn check_runs_the_policys_own_tests() {
    let world = World::new();
    let test = "[[test]]\nrequest = \"GET https://elsewhere.example/x\"\nexpect = ";
    world.write_policy(&format!("{RULE}{test}\"deny\"\n"));
    world.valetkey(&["check"]).exited(0).says("1 passed");
    world.write_policy(&format!("{RULE}{test}\"allow\"\n"));
    world.valetkey(&["check"]).exited(3).says("1 failed");
}

#[test]
fn explain_shows_where_each_rule_stands() {
    let world = World::new();
    world.write_policy(RULE);
    world
        .valetkey(&["policy", "explain"])
        .passed()
        .says("shop.example")
        .says("valetkey.toml:2");
}

#[test]
fn init_writes_a_policy_that_is_valid() {
    let mut world = World::new();
    world
        .valetkey(&[
            "policy",
            "init",
            "--allow",
            "openai",
            "--allow",
            "shop.example",
        ])
        .passed();
    world
        .valetkey(&["check"])
        .exited(78)
        .says("valid: ")
        .says("valetkey secret add openai");
    world.secret("openai", "provider = \"openai\"");
    world.valetkey(&["check"]).passed();
    world.valetkey(&["policy", "init"]).exited(78);
}

#[test]
fn init_writes_no_rule_for_a_slip_of_the_pen() {
    let world = World::new();
    let init = |wanted: &str| world.valetkey(&["policy", "init", "--allow", wanted]);
    for (wanted, hint) in [
        ("opnai", "did you mean `openai`?"),
        ("github-raed", "did you mean `github-read`?"),
        ("localhost", "with its domain"),
        ("no host", "with its domain"),
        ("*.com", "public suffix"),
    ] {
        init(wanted).exited(78).says(hint);
        assert!(!world.path("project/valetkey.toml").exists(), "{wanted}");
    }
    init("github-read").passed();
    let check = ["check", "GET https://api.github.com/repos/a/b"];
    world.valetkey(&check).passed();
}

#[test]
fn fail_on_deny_turns_a_refusal_into_3() {
    let world = World::new();
    world.policy(RULE);
    let refused = [
        "run",
        "--fail-on-deny",
        "--",
        "curl",
        "-s",
        "https://elsewhere.example/",
    ];
    world.valetkey(&refused).exited(3);
    world
        .valetkey(&["run", "--fail-on-deny", "--", "true"])
        .exited(0);
}

#[test]
fn a_package_client_in_the_project_is_never_run_and_one_outside_is() {
    let world = World::new();
    world.write_policy("extends = [\"preset:debian-packages\"]\n");
    let client = |folder: &std::path::Path| {
        use std::os::unix::fs::PermissionsExt;
        let file = folder.join("apt-get");
        let text = format!(
            "#!/bin/sh\n: > '{}'\necho http://deb.example/debian\n",
            folder.join("ran").display()
        );
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    let (theirs, ours) = (world.path("project/.venv/bin"), world.path("elsewhere/bin"));
    client(&theirs);
    client(&ours);
    std::os::unix::fs::symlink(theirs.join("apt-get"), world.path("elsewhere/apt-get")).unwrap();
    let path = std::env::join_paths([
        theirs.as_path(),
        std::path::Path::new(".venv/bin"),
        &world.path("elsewhere"),
        &ours,
    ])
    .unwrap();
    let mut command = world.command(&["check"]);
    command.env("PATH", path);
    world.finish(command, "").passed();
    assert!(!theirs.join("ran").exists());
    assert!(ours.join("ran").exists());
}
